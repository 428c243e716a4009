"""How long steps take: simulated on a system at the points of a grid, remembered, and interpolated between them.

A step is one stream of kernels and collectives, one after the other. So its time is that of its tokens and logits with hardly any
attention, and what attention adds; and each further layer adds the same, so that models of few layers tell the time of all. Both parts
are tables over two totals of the step (`Load`), linear between points whose distance grows with them: 41 % (two to a doubling) for
tokens, twofold for logits and attention. Multi-head latent attention takes tokens that decode and those of prompts another way, so its
steps are told by both numbers of tokens, and attention of each kind adds its own. `check` says how far all that is from simulating
steps whole, as they are.

Of a pipeline one step is simulated on its way through the stages, and remembered is what each stage takes, what lies between them, and
how long the tokens take back: all of these are parts that are linear in the layers of a stage. Replicas that divide experts all work on
as much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

import numpy as np

from studio.et.build import build_graph
from studio.generation.groups import build_comm_groups, group_ranks, list_names_by_rank, list_peers_by_rank
from studio.generation.inference.batches import Load, Part, sum_load_of_parts
from studio.generation.inference.batching import Course
from studio.generation.inference.counts import ACTIVATION_BYTES
from studio.generation.inference.job import TOKEN_BYTES, Steps, append_layers_forward, build_step_passes
from studio.generation.layout import Layout
from studio.generation.program import AFTER, BEFORE, OWN, Program, Speed
from studio.generation.routing import is_even
from studio.sim import simulate
from studio.sim.config import SystemConfig
from studio.sim.result import SimResult
from studio.trace import Float64, Int64, Rank, Trace

_LARGEST = 1 << 40


def _build_points(to_double: int) -> tuple[int, ...]:
    """Return growing whole numbers from 1 to `_LARGEST`, so many to a factor of two."""
    steps = range(to_double * (_LARGEST.bit_length() - 1) + 1)
    return tuple(sorted({round(2 ** (step / to_double)) for step in steps}))


_TOKENS, _TOTALS = (0, *_build_points(2)), _build_points(1)
_FEW = (2, 4)
"""Layers of a stage of the models that are simulated at points of the grid, beside the dense ones of a model with experts."""


def build_load_trace(what: Steps, load: Load, speed: Speed | None = None) -> Trace:
    """Return a step that computes so much on each replica that divides experts, as a job of its ranks alone.

    Args:
        what: Model, layout, and data types.
        load: What the step computes.
        speed: The GPU that durations are of; None leaves them to the roofline of the simulated system.
    """
    layout = replace(what.layout, dp=what.layout.ep)
    what = replace(what, layout=layout)
    places = 1 if is_even(what.model, replace(layout, micro_batch=1, sequence=load.tokens)) else layout.ep
    built = [
        build_graph(_build_stage_nodes(what, load, speed, stage, place))
        for stage in range(layout.pp)
        for place in range(places)
    ]
    members = group_ranks(layout)
    names, peers = list_names_by_rank(members, layout.ranks), list_peers_by_rank(members, layout.ranks)
    ranks = []
    for number in range(layout.ranks):
        stage, inner = divmod(number, layout.tp * layout.ep)
        index = stage * places + inner // layout.tp % places
        graph, slots = built[index]
        keys = [graph.strings[key] for key in graph.slot_key.tolist()]
        values = tuple(
            names[number][str(value)] if key == "pg_name" else peers[number][int(value)]
            for key, value in zip(keys, slots, strict=True)
        )
        ranks.append(Rank(number, index, values, "1.0.0", ()))
    groups = build_comm_groups(what.model, layout)
    return Trace(tuple(graph for graph, _ in built), tuple(ranks), groups, ())


_RECEIVE, _SEND, _BACK, _RETURNED = "step.recv.fwd", "step.send.fwd", "step.send.tokens", "step.recv.tokens"


def _build_stage_nodes(
    what: Steps, load: Load, speed: Speed | None, stage: int, place: int
) -> Sequence[dict[str, object]]:
    """Return the nodes of a stage that a step goes through."""
    program, last = Program(speed), what.layout.pp - 1
    passes = build_step_passes(program, what, load, place=place)
    size, tokens = ACTIVATION_BYTES * passes.width, TOKEN_BYTES * load.logits
    if stage:
        x = program.transfer(_RECEIVE, (BEFORE, OWN), 0, [], size)
    else:
        x = passes.embedding_forward("step", 0)
    x = append_layers_forward(passes, what.layout, stage, "step", x)
    if stage < last:
        program.transfer(_SEND, (OWN, AFTER), 0, [x], size)
        if not stage:
            program.transfer(_RETURNED, (BEFORE, OWN), 1, [], tokens)
        return program.nodes
    x = passes.sample("step", x)
    if last:
        program.transfer(_BACK, (OWN, AFTER), 1, [x], tokens)
    return program.nodes


def _compute_stage_times(result: SimResult, layout: Layout) -> Float64:
    """Return the time of a step, or in a pipeline that of each stage and what follows it: the way to the next, or of tokens back."""
    if layout.pp == 1:
        return np.array([result.makespan_ns], np.float64)
    trace, times = result.trace, result.node_times()

    def find_latest(stage: int, name: str, when: Int64) -> int:
        cell = layout.tp * layout.ep
        times_ns = []
        for rank in trace.ranks[stage * cell : (stage + 1) * cell]:
            graph = trace.graph_of(rank)
            [row] = np.flatnonzero(graph.name == graph.strings.index(name)).tolist()
            times_ns.append(int(when[times.first[rank.number] + row]))
        return max(times_ns)

    parts, came, last = [], 0, layout.pp - 1
    for stage in range(layout.pp):
        sends, receives = (_SEND, _RECEIVE) if stage < last else (_BACK, _RETURNED)
        left = find_latest(stage, sends, times.start_ns)
        arrived = find_latest((stage + 1) % layout.pp, receives, times.end_ns)
        parts += [left - came, arrived - left]
        came = arrived
    return np.array(parts, np.float64)


@dataclass(slots=True)
class StepTimes:
    """Times of steps on a system.

    Attributes:
        what: Model, layout of one stage, and data types.
        config: The system, of as many NPUs as a replica has.
        speed: The GPU that durations of nodes are of; None leaves them to the roofline of the system.
        simulations: How many steps were simulated so far.
        known: Parts of times at points of the grid.
        rest: Those of so many tokens of each kind and logits without attention.
    """

    what: Steps
    config: SystemConfig
    speed: Speed | None = None
    simulations: int = 0
    known: dict[Load, Float64] = field(default_factory=dict)
    rest: dict[tuple[int, ...], Float64] = field(default_factory=dict)

    def __call__(self, load: Load) -> float:
        """Return the time of a step in nanoseconds, through all stages of a pipeline."""
        return _sum_stage_times(self._compute_times(load))

    def course(self, load: Load) -> Course:
        """Return how a step goes through the stages of a pipeline."""
        parts = np.maximum(self._compute_times(load), 0).tolist()
        return Course(tuple(parts[::2]), tuple(parts[1:-1:2]), parts[-1] if len(parts) > 1 else 0.0)

    def _compute_times(self, load: Load) -> Float64:
        kinds = self._split_load(load)
        key = *self._count_tokens(load), max(load.logits, 1)
        if key not in self.rest:
            self.rest[key] = self._compute_rest(key)
        total = self.rest[key]
        for kind, part in enumerate(kinds):
            if part.tokens:
                total = total + self._compute_attention(kind, part.pairs, part.cached)
        return total

    def _split_load(self, load: Load) -> tuple[Part, ...]:
        """Return the parts of a step that attention takes in other ways: one, or with latent attention what decodes and what is read."""
        if self.what.model.kv_rank:
            return load.decoding, load.reading
        return (Part(load.tokens, load.pairs, load.cached),)

    def _count_tokens(self, load: Load) -> tuple[int, ...]:
        """Return the tokens of each such part."""
        decoding, *reading = (part.tokens for part in self._split_load(load))
        # Of replicas that step together each part is the most that one has, and so is the sum.
        return (decoding, load.tokens - decoding) if reading else (decoding,)

    def whole(self, load: Load) -> float:
        """Return the time of a step in nanoseconds, simulated whole and as it is."""
        self.simulations += 1
        return _sum_stage_times(self._simulate(self.what, load))

    def _simulate(self, what: Steps, load: Load) -> Float64:
        return _compute_stage_times(
            simulate(build_load_trace(what, load, self.speed), self.config), what.layout
        )

    def _compute_point(self, load: Load) -> Float64:
        """Return the time at a point of the grid, simulated where it is not remembered."""
        if load not in self.known:
            self.simulations += 1
            dense, alike = self._count_layers()
            few, more = ([min(count, own) for own in alike] for count in _FEW)
            if more == alike:
                self.known[load] = self._simulate(self.what, load)
                return self.known[load]
            smaller, larger = (
                self._simulate(self._build_steps(dense, counts), load) for counts in (few, more)
            )
            layer, further = larger - smaller, np.zeros(len(smaller))
            layer[::2] /= np.maximum(np.subtract(more, few), 1)
            further[::2] = np.subtract(alike, few)
            self.known[load] = smaller + layer * further
        return self.known[load]

    def _count_layers(self) -> tuple[list[int], list[int]]:
        """Return how many dense layers each stage of a model with experts has, and how many layers that are all alike."""
        left, dense = self.what.model.dense_layers, []
        for count in self.what.layout.stage_layers:
            dense.append(min(left, count))
            left -= dense[-1]
        alike = [count - own for count, own in zip(self.what.layout.stage_layers, dense, strict=True)]
        return dense, alike

    def _build_steps(self, dense: Sequence[int], alike: Sequence[int]) -> Steps:
        """Return the steps of a model that has so many layers in each stage."""
        counts = tuple(map(sum, zip(dense, alike, strict=True)))
        model = replace(self.what.model, layers=sum(counts))
        return replace(self.what, model=model, layout=replace(self.what.layout, stage_layers=counts))

    def _compute_rest(self, key: tuple[int, ...]) -> Float64:
        """Return the time of a step of so many tokens of each kind and logits without attention beyond that of a lone token of each."""

        def compute_own(*at: int) -> Float64:
            *tokens, logits = at
            return self._compute_point(_build_load([Part(count, count, count) for count in tokens], logits))

        axes = [(_TOKENS, count) for count in key[:-1]]
        whole = _interpolate([*axes, (_TOTALS, key[-1])], compute_own)
        # Where each token attends to itself; the rest of attention comes on top.
        for kind, tokens in enumerate(key[:-1]):
            if tokens:
                whole = whole - self._compute_attention(kind, tokens, tokens)
        return whole

    def _compute_attention(self, kind: int, pairs: int, cached: int) -> Float64:
        """Return what so much attention of a kind takes beyond that of a lone token."""

        def compute_lone(pairs: int, cached: int) -> Float64:
            return self._compute_point(_build_load([*[Part()] * kind, Part(1, pairs, cached)], 1))

        base = compute_lone(1, 1)
        return _interpolate(
            [(_TOTALS, pairs), (_TOTALS, cached)], lambda pairs, cached: compute_lone(pairs, cached) - base
        )

    def check(self, loads: Sequence[Load]) -> float:
        """Return the largest share by which the times of these steps differ from simulating them as they are."""
        return max((abs(self(load) / self.whole(load) - 1) for load in loads), default=0.0)


def _build_load(parts: Sequence[Part], logits: int) -> Load:
    """Return a step of so much that decodes, and is read where a second part is given."""
    return sum_load_of_parts(parts[0], parts[1] if len(parts) > 1 else Part(), logits)


def _sum_stage_times(parts: Float64) -> float:
    """Return the time of a step from its beginning at the first stage to its end at the last."""
    return float(parts[0] if len(parts) == 1 else parts[:-1].sum())


def _find_neighbours(points: tuple[int, ...], value: int) -> list[tuple[int, float]]:
    """Return the points around a value with their shares; one point where it is met."""
    place = bisect_right(points, value) - 1
    low = points[place]
    if low == value:
        return [(low, 1.0)]
    high = points[place + 1]
    share = (value - low) / (high - low)
    return [(low, 1.0 - share), (high, share)]


def _interpolate(axes: Sequence[tuple[tuple[int, ...], int]], value: Callable[..., Float64]) -> Float64:
    """Return the value at a point between those of a grid, linear in every direction.

    Args:
        axes: The points of each direction, and where between them.
        value: Returns the value at a point of the grid.
    """
    corners = product(*(_find_neighbours(points, at) for points, at in axes))
    parts = [prod(share for _, share in corner) * value(*(at for at, _ in corner)) for corner in corners]
    total: Float64 = np.add.reduce(parts)
    return total
