"""Changes of a pipeline: more and smaller micro-batches, and another order of their passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from studio.advice.baseline import Scene
from studio.advice.candidates import Candidate, Found, Refusal
from studio.advice.collective_times import Took, estimate_collective_costs, fit_line
from studio.advice.micro_batches import Plan, SplitMicroBatches, fits
from studio.advice.passes import BACKWARD, FORWARD, Passes, find_passes
from studio.advice.terms import NODES_NAMED, Change, Kind
from studio.analysis.collectives.messages import Messages, match_messages
from studio.distinct import find_distinct
from studio.generation.layout import Schedule
from studio.generation.schedule import order_passes
from studio.trace import NONE, Bool, Int64

_PARTS = (2, 4)
_MOST_NODES = 300_000
"""Larger graphs are not searched for passes, which takes a look at each node one by one."""
_WORDS: Mapping[Schedule, str] = {"1f1b": "1F1B", "gpipe": "GPipe"}
_LEVERS = frozenset({"dependencies", "micro-batches"})
_SHARES = {2: "half", 4: "a quarter of"}


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """The pipeline of a job.

    Attributes:
        passes: By graph.
        stage: (R,) the stage of each rank, by place.
        micro_batches: How many a step has.
        schedule: The order of passes; None where data alone says what runs when.
        messages: Sends and receives.
    """

    passes: dict[int, Passes]
    stage: Int64
    micro_batches: int
    schedule: Schedule | None
    messages: Messages

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return int(self.stage.max()) + 1


def propose_pipelines(scene: Scene) -> Iterator[Found]:
    """Yield twice and four times as many micro-batches of a step, as much smaller, and the other one of 1F1B and GPipe."""
    messages = match_messages(scene.trace)
    if not len(messages):
        return
    pipeline = _find_pipeline(scene, messages)
    if isinstance(pipeline, str):
        yield Refusal("micro-batches", pipeline)
        yield Refusal("schedule", pipeline)
        return
    took = estimate_collective_costs(scene.members)
    for parts in _PARTS:
        yield _build_candidate(scene, pipeline, took, (parts, pipeline.schedule))
    if pipeline.schedule is None:
        yield Refusal("schedule", "no dependency keeps passes in an order: data alone says what runs when")
        return
    other: Schedule = "gpipe" if pipeline.schedule == "1f1b" else "1f1b"
    orders = [
        [_list_passes(pipeline, schedule, stage, 1) for stage in range(pipeline.stages)]
        for schedule in _WORDS
    ]
    if orders[0] == orders[1]:
        yield Refusal("schedule", "with so few micro-batches 1F1B and GPipe are the same order")
        return
    yield _build_candidate(scene, pipeline, took, (1, other))


def _find_pipeline(scene: Scene, messages: Messages) -> _Pipeline | str:
    """Return the pipeline of a job; else why it has none that can be changed."""
    trace = scene.trace
    if max(map(len, trace.graphs)) > _MOST_NODES:
        return f"graphs of more than {_MOST_NODES:,} nodes are not searched for the passes of a pipeline"
    passes = {}
    for index in {rank.graph for rank in trace.ranks}:
        own_passes = find_passes(trace.graphs[index])
        if isinstance(own_passes, str):
            return own_passes
        passes[index] = own_passes
    if len({(own_passes.micro_batches, own_passes.ordered) for own_passes in passes.values()}) > 1:
        return "ranks have different micro-batches"
    first = next(iter(passes.values()))
    stage = _infer_stages(scene, passes, messages)
    if stage is None:
        return "messages of forward passes go round in a ring: stages are interleaved, or share a sequence"
    pipeline = _Pipeline(passes, stage, first.micro_batches, None, messages)
    if not first.ordered:
        return pipeline
    for schedule in _WORDS:
        if all(
            passes[rank.graph].order(step) == _list_passes(pipeline, schedule, int(at), 1)
            for rank, at in zip(trace.ranks, stage.tolist(), strict=True)
            for step in find_distinct(passes[rank.graph].steps).tolist()
        ):
            return _Pipeline(passes, stage, first.micro_batches, schedule, messages)
    return "passes follow an order that is neither 1F1B nor GPipe"


def _list_passes(
    pipeline: _Pipeline, schedule: Schedule, stage: int, parts: int
) -> tuple[tuple[int, int], ...]:
    """Return way and micro-batch of the passes of a stage, in order, with each micro-batch cut into some parts."""
    count = pipeline.micro_batches * parts
    order = order_passes(schedule, stage, pipeline.stages, count)
    return tuple((FORWARD if turn.way == "fwd" else BACKWARD, turn.number) for turn in order)


def _infer_stages(scene: Scene, passes: dict[int, Passes], messages: Messages) -> Int64 | None:
    """Return (R,) the stage of each rank: how many stages its forward passes wait for; None where that is a circle."""
    ranks = scene.trace.ranks
    stage = np.zeros(len(ranks), np.int64)
    known = (messages.send_rank != NONE) & (messages.receive_rank != NONE)
    forward = known.copy()
    for index in np.flatnonzero(known).tolist():
        own_passes = passes[ranks[int(messages.send_rank[index])].graph]
        at = int(own_passes.at[int(messages.send_row[index])])
        forward[index] = at != NONE and (not own_passes.ordered or own_passes.ways[at] == FORWARD)
    if not next(iter(passes.values())).ordered:
        # Without ways the first of the messages between two ranks tells which of them is before the other.
        forward = _are_first_between(scene, messages, known)
    pairs = np.unique(np.stack([messages.send_rank[forward], messages.receive_rank[forward]]), axis=1)
    for _ in range(len(ranks)):
        before = stage.copy()
        np.maximum.at(stage, pairs[1], stage[pairs[0]] + 1)
        if np.array_equal(stage, before):
            return stage
    return None


def _are_first_between(scene: Scene, messages: Messages, known: Bool) -> Bool:
    begun = np.full(len(messages), np.iinfo(np.int64).max)
    begun[known] = scene.start_of(messages.send_rank[known], messages.send_row[known])
    chosen = np.zeros(len(messages), np.bool_)
    seen: set[frozenset[int]] = set()
    kept: set[tuple[int, int]] = set()
    for index in np.lexsort((np.arange(len(messages)), begun)).tolist():
        pair = int(messages.send_rank[index]), int(messages.receive_rank[index])
        if known[index] and frozenset(pair) not in seen:
            seen.add(frozenset(pair))
            kept.add(pair)
        chosen[index] = bool(known[index]) and pair in kept
    return chosen


def _build_candidate(
    scene: Scene, pipeline: _Pipeline, took: Took, how: tuple[int, Schedule | None]
) -> Candidate | Refusal:
    parts, schedule = how
    kind: Kind = "micro-batches" if parts > 1 else "schedule"
    less = _estimate_saved_ns(scene, pipeline, took, parts)
    plans = {}
    # Ranks of one graph and stage fit alike.
    fitting: set[tuple[int, int]] = set()
    for place, rank in enumerate(scene.trace.ranks):
        order = (
            () if schedule is None else _list_passes(pipeline, schedule, int(pipeline.stage[place]), parts)
        )
        plans[place] = Plan(pipeline.passes[rank.graph], order, less[place])
        alike = rank.graph, int(pipeline.stage[place])
        if alike in fitting:
            continue
        fitting.add(alike)
        if not fits(scene.trace.graph_of(rank), plans[place], parts):
            return Refusal(kind, f"rank {rank.number} needs data of a pass that would come later")
    return Candidate(
        kind,
        _describe_action(pipeline, parts, schedule),
        Change((SplitMicroBatches(parts, plans),)),
        _LEVERS,
        nodes=_find_longest_receives(scene, pipeline.messages),
    )


def _describe_action(pipeline: _Pipeline, parts: int, schedule: Schedule | None) -> str:
    count = pipeline.micro_batches
    if parts == 1:
        assert schedule is not None
        held = (
            f"a stage holds activations of all {count:,} micro-batches then"
            if schedule == "gpipe"
            else "a stage holds activations of no more micro-batches than stages are left then"
        )
        return f"Run the passes of the pipeline in the order of {_WORDS[schedule]}: {held}."
    order = "" if schedule is None else f", in the order of {_WORDS[schedule]} as now"
    size = _SHARES[parts]
    return (
        f"Cut each micro-batch of the pipeline into {parts}, {count * parts:,} a step in place of {count:,}{order}. "
        f"Assumes that {size} the tokens take {size} the time, launches apart."
    )


def _estimate_saved_ns(scene: Scene, pipeline: _Pipeline, took: Took, parts: int) -> list[Int64]:
    """Return, by place, (N,) how much less communication of one of the parts takes, by the lines through what was recorded."""
    less = [np.zeros(len(scene.trace.graph_of(rank)), np.int64) for rank in scene.trace.ranks]
    if not scene.is_replay or parts == 1:
        return less
    members, messages = scene.members, pipeline.messages
    for group, collectives in enumerate(members.by_group()):
        timed = collectives[took.time_ns[collectives] > 0]
        saved = took.time_ns[timed] * (1 - took.scale(timed, group, took.carried[timed] / parts))
        for collective, cut in zip(timed.tolist(), np.rint(saved).astype(np.int64).tolist(), strict=True):
            at = slice(*members.offsets[collective : collective + 2].tolist())
            for place, row in zip(members.rank[at].tolist(), members.row[at].tolist(), strict=True):
                less[place][row] = cut
    known = np.flatnonzero((messages.send_rank != NONE) & (messages.receive_rank != NONE))
    lasted = _compute_message_ns(scene, messages, known)
    time = lasted.astype(np.float64)
    line = fit_line(messages.bytes[known][time > 0].astype(np.float64), time[time > 0])
    for index, took_ns in zip(known[time > 0].tolist(), lasted[time > 0].tolist(), strict=True):
        size = np.array([float(messages.bytes[index]), messages.bytes[index] / parts])
        whole, share = line.at(size).tolist()
        scale = 1.0 if whole <= 0 else share / whole
        for place, row in (
            (int(messages.send_rank[index]), int(messages.send_row[index])),
            (int(messages.receive_rank[index]), int(messages.receive_row[index])),
        ):
            less[place][row] = round(took_ns * (1 - scale))
    return less


def _compute_message_ns(scene: Scene, messages: Messages, which: Int64) -> Int64:
    """Return (M,) how long messages took from when both their ranks had begun them."""
    sent = scene.start_of(messages.send_rank[which], messages.send_row[which])
    place, row = messages.receive_rank[which], messages.receive_row[which]
    came = scene.start_of(place, row)
    took: Int64 = np.maximum(came + scene.took_of(place, row) - np.maximum(sent, came), 0)
    return took


def _find_longest_receives(scene: Scene, messages: Messages) -> tuple[tuple[int, int], ...]:
    """Return rank and node id of the receives that took longest."""
    known = messages.receive_rank != NONE
    place, row = messages.receive_rank[known], messages.receive_row[known]
    chosen = np.lexsort((row, place, -scene.took_of(place, row)))[:NODES_NAMED]
    ranks = [scene.trace.ranks[index] for index in place[chosen].tolist()]
    return tuple(
        (rank.number, int(scene.trace.graph_of(rank).id[node]))
        for rank, node in zip(ranks, row[chosen].tolist(), strict=True)
    )
