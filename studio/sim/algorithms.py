"""The table of collective algorithms, one row each, and the programs they make.

Whatever handles algorithms reads these rows: their names in files, what the compatible mode takes them for, the
choices of the form, the documentation, folding, and the programs of the extended mode. A new algorithm is a row here
and the functions that write its steps down (`studio.sim.programs`); without code of its own in the engine it runs by
its programs everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from studio.sim import programs as p
from studio.sim.kinds import ROOTED_KINDS, CollectiveKind

AlgorithmKind = Literal["ring", "direct", "halving_doubling", "double_binary_tree"]
RootedSteps = Callable[[p.Shape, int], list[p.Step]]
"""The steps of a place, counted from the root, that bring data from place 0 to all others."""
Steps = Callable[[int, int], Iterator[p.Step]]
"""The steps of a place, from the number of ranks and the place."""


def _compute_logarithm(size: int) -> int:
    return (size - 1).bit_length()


@dataclass(frozen=True, slots=True)
class AlgorithmRow:
    """A collective algorithm.

    Attributes:
        kind: What the configuration calls it.
        name: What ASTRA-sim's files call it.
        label: What people read.
        hint: What it does, in a phrase.
        rounds: Steps one after the other that a collective of so many ranks takes (twice for an all-reduce).
        broadcast, scatter: Steps of collectives with a root; reduce and gather are these two backwards.
        steps: Steps of the other collectives, as far as the engine has no form of its own on that number of ranks.
        two_trees: Whether chunks take two trees in turn, which then carry out an all-reduce whatever is asked for.
        windowed: Whether a number after the name limits how many peers a rank sends to at a time.
        single: Whether it has a form over all ranks as one dimension, named `one…`.
        powers_of_two: Whether the reference's form runs on powers of two only.
        in_groups: Whether the reference runs it in comm groups.
        lacks: Collectives that the engine has no form of, so that they run by their steps on any number of ranks.
        reach: How far a rank's peers are: the next ones, all, powers of two (by flipping bits), or unlike on every rank.
    """

    kind: AlgorithmKind
    name: str
    label: str
    hint: str
    rounds: Callable[[int], int]
    broadcast: RootedSteps
    scatter: RootedSteps
    steps: Mapping[CollectiveKind, Steps] = field(default_factory=dict)
    two_trees: bool = False
    windowed: bool = False
    single: bool = True
    powers_of_two: bool = False
    in_groups: bool = True
    lacks: tuple[CollectiveKind, ...] = ()
    reach: Literal["next", "all", "powers_of_two", "unlike"] = "unlike"

    @property
    def names(self) -> tuple[str, ...]:
        """The names in files, including the form over all ranks; without windows."""
        return (self.name, f"one{self.name[0].upper()}{self.name[1:]}") if self.single else (self.name,)


ALGORITHMS: Mapping[AlgorithmKind, AlgorithmRow] = {
    row.kind: row
    for row in (
        AlgorithmRow(
            "ring",
            "ring",
            "Ring",
            "n-1 steps of 1/n of the data (twice for an all-reduce)",
            rounds=lambda size: size - 1,
            broadcast=p.build_ring_broadcast,
            scatter=p.build_ring_scatter,
            reach="next",
        ),
        AlgorithmRow(
            "direct",
            "direct",
            "Direct",
            "one step, every rank to every other; direct4 to four peers at a time",
            rounds=lambda _: 1,
            broadcast=p.build_star,
            scatter=p.build_star,
            windowed=True,
            reach="all",
        ),
        AlgorithmRow(
            "halving_doubling",
            "halvingDoubling",
            "Halving-doubling",
            "log2 n steps",
            rounds=_compute_logarithm,
            broadcast=p.build_binomial,
            scatter=p.build_binomial,
            steps={
                "all_reduce": p.build_halving_all_reduce,
                "reduce_scatter": p.build_halving_reduce_scatter,
                "all_gather": p.build_doubling_all_gather,
                "all_to_all": p.build_bruck,
                "barrier": p.build_dissemination,
            },
            powers_of_two=True,
            lacks=("all_to_all", "barrier"),
            reach="powers_of_two",
        ),
        AlgorithmRow(
            "double_binary_tree",
            "doubleBinaryTree",
            "Double binary tree",
            "two trees, half of the data each",
            rounds=_compute_logarithm,
            broadcast=p.build_binary_tree,
            scatter=p.build_binary_tree,
            two_trees=True,
            single=False,
            powers_of_two=True,
            in_groups=False,
        ),
    )
}
ALGORITHM_NAMES = (
    *(row.name for row in ALGORITHMS.values()),
    *(name for row in ALGORITHMS.values() for name in row.names[1:]),
)
"""The names of all algorithms in files, without windows."""
ALGORITHMS_ALLOWED = (
    f"{', '.join(ALGORITHM_NAMES)}, and direct and oneDirect with a window from 1, such as direct4"
)
ALGORITHMS_HINT = (
    " ".join(f"{row.label}: {row.hint}." for row in ALGORITHMS.values())
    + " Forms named one… run over all ranks as one dimension."
)


def find_algorithm(text: str) -> tuple[AlgorithmRow, bool, int | None] | None:
    """Parse an algorithm's name: its row, whether it spans all ranks, and its window; None if unknown.

    Example:
        >>> row, single, window = find_algorithm("oneDirect4")
        >>> row.kind, single, window
        ('direct', True, 4)
    """
    # Files may write oneRing or onering.
    named = f"one{text[3:4].upper()}{text[4:]}" if text.startswith("one") else text
    base = named.rstrip("0123456789")
    window = named[len(base) :]
    for row in ALGORITHMS.values():
        if base in row.names and (row.windowed or not window):
            return row, base != row.name, int(window) if window else None
    return None


# ---------------------------------------------------------------------------------------------------
# Programs


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parameters of a phase's programs.

    Attributes:
        kind: The collective.
        algorithm: How it is carried out.
        size: Ranks.
        root: Place of the rank all goes out from, or comes together at.
        window: Peers of the direct algorithm at a time, 0 for all.
        backwards: Whether rings go round towards lower places.
        second: Whether it is the second of the two trees.
    """

    kind: CollectiveKind
    algorithm: AlgorithmKind
    size: int
    root: int = 0
    window: int = 0
    backwards: bool = False
    second: bool = False


def build_programs(recipe: Recipe) -> Iterator[p.Program]:
    """Yield the program of every place in a group.

    Example:
        >>> for program in build_programs(Recipe("broadcast", "halving_doubling", 3, root=1)):
        ...     print([[(message.what, message.peer) for message in step.messages] for step in program])
        [[('receive', 1)]]
        [[('send_wait', 0)], [('send_wait', 2)]]
        [[('receive', 1)]]
    """
    row = ALGORITHMS[recipe.algorithm]
    if recipe.kind in ROOTED_KINDS:
        yield from _build_rooted_programs(recipe, row)
    elif row.two_trees:
        yield from map(
            partial(p.build_tree_all_reduce, recipe.size, second=recipe.second), range(recipe.size)
        )
    else:
        steps = row.steps[recipe.kind]
        yield from (tuple(steps(recipe.size, place)) for place in range(recipe.size))


_OPPOSITE: dict[CollectiveKind, CollectiveKind] = {"reduce": "broadcast", "gather": "scatter"}
"""Collectives that are others backwards: what is sent is received, the last step comes first."""


def _build_rooted_programs(recipe: Recipe, row: AlgorithmRow) -> Iterator[p.Program]:
    """Yield the programs of a collective with a root."""
    outward = _OPPOSITE.get(recipe.kind, recipe.kind)
    spread = outward == "scatter"
    steps = row.scatter if spread else row.broadcast
    size = recipe.size
    # Parts of the data that a message holds: all of it, or so many blocks of which each rank gets one.
    divisor = size if recipe.kind == "scatter" else 1
    shape = p.Shape(size, divisor, spread, recipe.window, recipe.second)
    sign = -1 if recipe.backwards else 1
    for place in range(size):
        from_root = sign * (place - recipe.root) % size
        program = [
            p.Step(tuple(_place_message(message, recipe, sign) for message in step.messages), step.times)
            for step in steps(shape, from_root)
        ]
        yield tuple(program if recipe.kind == outward else _reverse(program, recipe.kind == "reduce"))


def _place_message(message: p.Message, recipe: Recipe, sign: int) -> p.Message:
    peer = (recipe.root + sign * message.peer) % recipe.size
    return p.Message(message.what, peer, message.divisor, message.factor)


def _reverse(program: list[p.Step], reduces: bool) -> list[p.Step]:
    received: p.What = "reduce" if reduces else "receive"
    swapped: dict[p.What, p.What] = {"send_wait": received, "receive": "send_wait"}
    return [
        p.Step(
            tuple(p.Message(swapped[m.what], m.peer, m.divisor, m.factor) for m in step.messages), step.times
        )
        for step in reversed(program)
    ]
