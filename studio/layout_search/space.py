"""The layouts of a model on some ranks: which degrees are tried, why, and which of them divide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from studio.errors import ConfigError
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.options import BY_KEY
from studio.generation.wish import split_layers
from studio.generation.workload import Workload, build_workload

MICRO_BATCHES = (1, 2, 4, 8)
CHUNKS = (2, 4)
LONG_SEQUENCE = 16_384
"""From so many tokens on context parallelism is tried."""
MOST_TOKENS = 1 << 24
"""Tokens of a step where nobody says a batch: those of Llama 3 405B."""

Chosen = Mapping[str, Any]
"""Options of a layout, by key."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What all layouts of a search have in common.

    Attributes:
        model: What is trained.
        ranks: How many ranks.
        node: NPUs of a node.
        given: What the user said; those degrees are not varied. The batch is always there.
        batch_from: Where the batch is from, in words.
    """

    model: Model
    ranks: int
    node: int
    given: Chosen
    batch_from: str

    @property
    def sequence(self) -> int:
        """Tokens of a sequence."""
        return int(self.given.get("sequence") or self.model.sequence)

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return int(self.given["batch"])

    def copies(self, chosen: Chosen) -> int:
        """Return how many ranks there are for each place in a tensor parallel group and pipeline."""
        return self.ranks // (int(chosen.get("tp", 1)) * int(chosen.get("pp", 1)))


@dataclass(frozen=True, slots=True)
class Degree:
    """An option that a search varies.

    Attributes:
        key: The option.
        values: What is tried beside what was chosen of the degrees before it.
        words: What is tried and why.
    """

    key: str
    values: Callable[[Frame, Chosen], tuple[Any, ...]]
    words: str


def list_divisors(number: int) -> tuple[int, ...]:
    """Return what divides a number, in rising order.

    Example:
        >>> list_divisors(12), list_divisors(7)
        ((1, 2, 3, 4, 6, 12), (1, 7))
    """
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def _list_tensor_sizes(frame: Frame, _chosen: Chosen) -> tuple[int, ...]:
    return tuple(n for n in list_divisors(frame.ranks) if frame.node % n == 0)


def _list_stage_counts(frame: Frame, chosen: Chosen) -> tuple[int, ...]:
    able = list_divisors(frame.copies(chosen))
    if frame.given.get("stage_layers") is not None:
        return tuple(n for n in able if n <= frame.model.layers)
    return tuple(n for n in able if split_layers(frame.model.layers, n) is not None)


def _list_context_sizes(frame: Frame, chosen: Chosen) -> tuple[int, ...]:
    if frame.sequence < LONG_SEQUENCE:
        return (1,)
    return tuple(n for n in list_divisors(frame.copies(chosen)) if n & (n - 1) == 0 and n <= frame.node)


def _list_expert_sizes(frame: Frame, chosen: Chosen) -> tuple[int, ...]:
    experts = getattr(frame.model, "experts", 0)
    return tuple(n for n in list_divisors(experts) if frame.copies(chosen) % n == 0) if experts else (1,)


def _list_micro_batches(frame: Frame, chosen: Chosen) -> tuple[int, ...]:
    replicas = frame.copies(chosen) // chosen.get("cp", 1)
    each = frame.batch // replicas if replicas else 0
    return tuple(n for n in MICRO_BATCHES if each and each % n == 0) or (1,)


def _list_choices(key: str, *without: Any) -> tuple[Any, ...]:
    return tuple(choice for choice in BY_KEY[key].choices if choice not in without)


def _list_shardings(frame: Frame, chosen: Chosen) -> tuple[Any, ...]:
    return _list_choices("zero") if frame.copies(chosen) > 1 else (0,)


def _list_sequence_choices(_frame: Frame, chosen: Chosen) -> tuple[bool, ...]:
    return (True, False) if chosen["tp"] > 1 else (False,)


def _list_chunk_counts(frame: Frame, chosen: Chosen) -> tuple[int, ...]:
    if chosen["schedule"] != "interleaved":
        return (1,)
    layers, stages = frame.model.layers, chosen["pp"]
    able = tuple(n for n in CHUNKS if n * stages <= layers and split_layers(layers, n * stages) is not None)
    return able or CHUNKS[:1]


def _list_schedules(_frame: Frame, chosen: Chosen) -> tuple[Any, ...]:
    return _list_choices("schedule", "gpipe") if chosen["pp"] > 1 else _list_choices("schedule")[:1]


DEGREES = (
    Degree(
        "tp",
        _list_tensor_sizes,
        "divisors of the ranks within a node: its groups exchange activations in every layer",
    ),
    Degree(
        "pp",
        _list_stage_counts,
        "divisors of what is left, where layers divide, the first and the last stage perhaps with fewer",
    ),
    Degree(
        "cp",
        _list_context_sizes,
        f"powers of two within a node, for sequences of {LONG_SEQUENCE:,} tokens and more",
    ),
    Degree("ep", _list_expert_sizes, "divisors of the experts and of the replicas"),
    Degree("zero", _list_shardings, "all stages of sharding that are modelled, where there are replicas"),
    Degree("schedule", _list_schedules, "all but GPipe, which takes as long as 1F1B and holds more"),
    Degree(
        "virtual_stages", _list_chunk_counts, "2 and 4 chunks of an interleaved schedule, where layers divide"
    ),
    Degree("sequence_parallel", _list_sequence_choices, "with and without, where tp is above 1"),
    Degree(
        "micro_batch",
        _list_micro_batches,
        "1, 2, 4 and 8 sequences, where they divide the batch of a replica",
    ),
    Degree(
        "recompute", lambda _frame, _chosen: _list_choices("recompute"), "none, and all that are modelled"
    ),
)
"""What is tried, in this order; options that are not in the table of a generated job's options are left out."""


def list_degrees() -> tuple[Degree, ...]:
    """Return the degrees that are tried."""
    return tuple(degree for degree in DEGREES if degree.key in BY_KEY)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that divides.

    Attributes:
        number: Its place among all that divide.
        options: What it takes to generate it: keys of `studio.generation.options.OPTIONS`.
        workload: What that makes.
    """

    number: int
    options: Chosen
    workload: Workload

    @property
    def layout(self) -> Layout:
        """Its layout."""
        return self.workload.layout

    @property
    def kind(self) -> str:
        """What it combines, such as `tp × pp × dp`; replicas that share weights are `fsdp`."""
        layout = self.layout
        parts = [key for key in ("tp", "cp", "ep", "pp") if getattr(layout, key, 1) > 1]
        if layout.dp > 1:
            parts.append("fsdp" if layout.zero == 3 else "dp")
        return " × ".join(parts) or "one rank"


def build_frame(model: str | Model, ranks: int, given: Chosen, node: int) -> Frame:
    """Return what the layouts of a search have in common; the batch follows from the model where nobody says it.

    Raises:
        ConfigError: A name is not known, or a number is out of its range.
    """
    chosen = {key: value for key, value in given.items() if value is not None}
    alone = {
        key: value for key, value in chosen.items() if BY_KEY.get(key) is None or BY_KEY[key].part != "layout"
    }
    sequence = {"sequence": chosen["sequence"]} if "sequence" in chosen else {}
    shape = build_workload(model, 1, alone | sequence).model
    rest = {key: value for key, value in chosen.items() if BY_KEY[key].part != "shape"}
    batch, words = chosen.get("batch"), "given"
    if batch is None:
        batch, words = _choose_batch(shape, ranks, rest.get("sequence") or shape.sequence)
    return Frame(shape, ranks, node, {**rest, "batch": batch}, words)


def _choose_batch(model: Model, ranks: int, sequence: int) -> tuple[int, str]:
    """Return the sequences of a step where nobody says them: they have to be the same for all layouts.

    Those of the published training, where every rank gets at least one and all as many; else one for each rank, halved to
    at most `MOST_TOKENS`.
    """
    if model.batch and model.batch % ranks == 0:
        return model.batch, "published recipe"
    batch = ranks
    while batch * sequence > MOST_TOKENS and batch % 2 == 0:
        batch //= 2
    each = "a sequence for each rank" if batch == ranks else f"at most {MOST_TOKENS:,} tokens"
    return batch, f"assumed, {each}"


def list_candidates(frame: Frame) -> tuple[list[Candidate], Counter[str]]:
    """Return all layouts that divide, and why others do not: messages, and how many layouts each is of.

    Example:
        >>> from studio.generation.models import find_model
        >>> found, _ = list_candidates(build_frame("llama3-8b", 7, {}, 8))
        >>> [one.layout.name for one in found[:2]]
        ['tp=1,dp=7,pp=1', 'tp=1,dp=7,pp=1']
    """
    layouts: list[Candidate] = []
    refused: Counter[str] = Counter()
    for chosen in _iterate_combinations(frame, list_degrees(), {}):
        options = {**frame.given, **chosen}
        try:
            workload = build_workload(frame.model, frame.ranks, options)
        except ConfigError as error:
            refused[error.message] += 1
            continue
        layouts.append(Candidate(len(layouts), options, workload))
    return layouts, refused


def with_options(frame: Frame, candidate: Candidate, **changes: Any) -> Candidate:
    """Return a layout with other options.

    Raises:
        ConfigError: The layout does not allow them.
    """
    options = {**candidate.options, **changes}
    return replace(candidate, options=options, workload=build_workload(frame.model, frame.ranks, options))


def _iterate_combinations(frame: Frame, left: tuple[Degree, ...], chosen: Chosen) -> Iterator[Chosen]:
    if not left:
        yield chosen
        return
    degree = left[0]
    given = frame.given.get(degree.key)
    for value in (given,) if given is not None else degree.values(frame, chosen):
        yield from _iterate_combinations(frame, left[1:], {**chosen, degree.key: value})
