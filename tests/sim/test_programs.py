"""The message programs of the extended mode, played by the simplest machine that can: everybody knows something."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.sim.algorithms import ALGORITHMS, Recipe, build_programs
from studio.sim.programs import Program, find_branch

ROOTED = ("broadcast", "reduce", "scatter", "gather")
X = 5040
"""Divisible by every number of ranks below 11."""


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    size = draw(st.integers(1, 10))
    kind = draw(
        st.sampled_from([*ROOTED, "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"])
    )
    forms = [name for name, row in ALGORITHMS.items() if kind in (*ROOTED, *row.steps) or row.two_trees]
    return Recipe(
        kind,
        draw(st.sampled_from(forms)),
        size,
        root=draw(st.integers(0, size - 1)) if kind in ROOTED else 0,
        window=draw(st.integers(0, size)),
        backwards=draw(st.booleans()),
        second=draw(st.booleans()),
    )


class Ranks:
    """Plays programs: a rank sends all it knows; a step ends when its receives have come."""

    def __init__(self, listed: list[Program]) -> None:
        self.steps = [deque(step for step in program for _ in range(step.times)) for program in listed]
        self.known = [{place} for place in range(len(listed))]
        self.wire: dict[tuple[int, int], deque[tuple[int, frozenset[int]]]] = {}
        self.sent = [0] * len(listed)
        self.got = [0] * len(listed)
        self.posted: list[list[tuple[int, int]]] = [[] for _ in listed]
        self.begun = [False] * len(listed)

    def play(self) -> None:
        while any(self.advance(place) for place in range(len(self.steps))):
            pass

    def advance(self, place: int) -> bool:
        if not self.steps[place]:
            return False
        if not self.begun[place]:
            self.begin(place)
            return True
        waiting = self.posted[place]
        for peer, size in waiting:
            if self.wire.get((peer, place)):
                arrived, known = self.wire[peer, place].popleft()
                assert arrived == size, "sizes of both sides agree"
                self.known[place] |= known
                self.got[place] += size
                waiting.remove((peer, size))
                return True
        if waiting:
            return False
        self.steps[place].popleft()
        self.begun[place] = False
        return True

    def begin(self, place: int) -> None:
        self.begun[place] = True
        for message in self.steps[place][0].messages:
            size = X // message.divisor * message.factor
            assert message.peer != place
            if message.what.startswith("send"):
                line = self.wire.setdefault((place, message.peer), deque())
                line.append((size, frozenset(self.known[place])))
                self.sent[place] += size
            else:
                self.posted[place].append((message.peer, size))


@given(recipes())
def test_programs_do_what_their_collective_asks(recipe: Recipe) -> None:
    """All messages match, all ranks come to their end, and know of everybody they have to know of."""
    ranks = Ranks(list(build_programs(recipe)))
    ranks.play()
    assert not any(ranks.steps)
    assert not any(ranks.wire.values())
    everybody = set(range(recipe.size))
    for place, known in enumerate(ranks.known):
        if recipe.kind in ("broadcast", "scatter"):
            assert recipe.root in known
        elif recipe.kind not in ("reduce", "gather") or place == recipe.root:
            assert known == everybody
    assert sum(ranks.sent) == sum(ranks.got)
    # No algorithm sends less than its collective needs; what the four of the reference send is known exactly.
    assert sum(ranks.sent) >= needed(recipe)
    if recipe.algorithm in EXACT:
        assert sum(ranks.sent) == whole(recipe)


EXACT = ("ring", "direct", "halving_doubling", "double_binary_tree")


def needed(recipe: Recipe) -> int:
    """Return the bytes that must be sent, whatever the algorithm: what each rank lacks of its result.

    A sum counts once per addition: n inputs of x need n - 1 messages of x in all, however they are cut.
    """
    others, x = recipe.size - 1, X
    if ALGORITHMS[recipe.algorithm].two_trees and recipe.kind not in ROOTED:
        return 2 * others * x
    block = x // recipe.size
    return others * {
        "scatter": block,
        "all_gather": recipe.size * x,
        "all_reduce": 2 * x,
        "all_to_all": recipe.size * block,
        "barrier": 0,
    }.get(recipe.kind, x)


def whole(recipe: Recipe) -> int:
    """Return the bytes that all ranks together send, by the formula of the algorithm."""
    n, x = recipe.size, X
    others = n - 1
    if recipe.algorithm == "double_binary_tree" and recipe.kind not in ROOTED:
        return 2 * others * x
    if recipe.kind in ("broadcast", "reduce"):
        return others * x if recipe.algorithm != "ring" else others * n * (x // n)
    if recipe.kind in ("scatter", "gather"):
        block = x // n if recipe.kind == "scatter" else x
        hops = {"ring": n * others // 2, "direct": others}.get(recipe.algorithm)
        return block * (hops if hops is not None else depths(recipe))
    p = 1 << (n.bit_length() - 1)
    surplus, rounds = n - p, n.bit_length() - 1
    if recipe.kind == "all_reduce":
        return 2 * p * sum(x // (2 << bit) for bit in range(rounds)) + 2 * surplus * x
    if recipe.kind == "barrier":
        return n * others.bit_length() * x
    if recipe.kind == "all_to_all":
        return n * (x // n) * sum(distance.bit_count() for distance in range(n))
    block = x // n if recipe.kind == "reduce_scatter" else x
    # The halving works on n blocks whoever holds them: every rank but the own gets each block once.
    halving = block * n * (p - 1)
    if recipe.kind == "reduce_scatter":
        return halving + surplus * (x + block)
    return halving + surplus * (x + others * x)


def depths(recipe: Recipe) -> int:
    """Return the sum over all ranks of the hops to the root."""
    n = recipe.size
    if recipe.algorithm == "halving_doubling":
        return sum(place.bit_count() for place in range(n))
    # A message crosses every branch it goes into: as many blocks as the branch has nodes.
    return sum(find_branch(label, n - 1).size for label in range(1, n))


@pytest.mark.parametrize("size", range(2, 40))
def test_nearly_every_leaf_of_one_tree_is_an_inner_node_of_the_other(size: int) -> None:
    """What lets both trees together use every rank's links: at most one rank is a leaf twice."""
    leaves = [
        {
            place
            for place, program in enumerate(
                build_programs(Recipe("broadcast", "double_binary_tree", size, second=second))
            )
            if len(program) == 1 and place
        }
        for second in (False, True)
    ]
    assert len(leaves[0] & leaves[1]) <= 1


@pytest.mark.parametrize("size", range(1, 33))
def test_trees_are_trees(size: int) -> None:
    """Every node is its parent's child, and branches add up."""
    for label in range(1, size + 1):
        node = find_branch(label, size)
        assert node.size == 1 + sum(child.size for child in node.children)
        assert all(find_branch(child.label, size).parent == label for child in node.children)
        assert all(find_branch(child.label, size).size == child.size for child in node.children)
        assert (node.parent == 0) == (node.size == size)
        assert size.bit_length() >= depth(label, size)


def depth(label: int, size: int) -> int:
    steps = 1
    while label := find_branch(label, size).parent:
        steps += 1
    return steps
