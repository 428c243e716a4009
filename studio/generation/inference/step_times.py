"""How long steps take: simulated on a system at the points of a grid, remembered, and interpolated between them.

A step is one stream of kernels and collectives, one after the other. So its time is that of its tokens and logits with hardly any
attention, and what attention adds; and each further layer adds the same, so that models of few layers tell the time of all. Both parts
are tables over two totals of the step (`Load`), linear between points whose distance grows with them: 41 % (two to a doubling) for
tokens, twofold for logits and attention. `check` says how far all that is from simulating steps whole, as they are.

Of a pipeline one step is simulated on its way through the stages, and remembered is what each stage takes, what lies between them, and
how long the tokens take back: all of these are parts that are linear in the layers of a stage. Replicas that divide experts all work on
as much.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from studio.et.build import graph_of_nodes
from studio.generation.groups import comm_groups, group_ranks, names_by_rank, peers_by_rank
from studio.generation.inference.batches import Load
from studio.generation.inference.batching import Course
from studio.generation.inference.counts import ACTIVATION_BYTES
from studio.generation.inference.job import TOKEN_BYTES, Steps, layers_forward, step_passes
from studio.generation.layout import Layout
from studio.generation.program import AFTER, BEFORE, OWN, Program, Speed
from studio.generation.routing import is_even
from studio.sim import simulate
from studio.sim.config import SystemConfig
from studio.sim.result import SimResult
from studio.trace import Float64, Int64, Rank, Trace

_LARGEST = 1 << 40


def _points(to_double: int) -> tuple[int, ...]:
    """Return growing whole numbers from 1 to `_LARGEST`, so many to a factor of two."""
    steps = range(to_double * (_LARGEST.bit_length() - 1) + 1)
    return tuple(sorted({round(2 ** (step / to_double)) for step in steps}))


_TOKENS, _TOTALS = _points(2), _points(1)
_FEW = (2, 4)
"""Layers of the models that are simulated at points of the grid."""


def load_trace(what: Steps, load: Load, speed: Speed | None = None) -> Trace:
    """Return a step that computes so much on each replica that divides experts, as a job of its ranks alone.

    Args:
        what: Model, layout, and data types.
        load: What the step computes.
        speed: The GPU that durations are of; None leaves them to the roofline of the simulated system.
    """
    layout = replace(what.layout, dp=what.layout.ep)
    what = replace(what, layout=layout)
    places = 1 if is_even(what.model, replace(layout, micro_batch=1, sequence=load.tokens)) else layout.ep
    made = [
        graph_of_nodes(_stage_nodes(what, load, speed, stage, place))
        for stage in range(layout.pp)
        for place in range(places)
    ]
    members = group_ranks(layout)
    names, peers = names_by_rank(members, layout.ranks), peers_by_rank(members, layout.ranks)
    ranks = []
    for number in range(layout.ranks):
        stage, inner = divmod(number, layout.tp * layout.ep)
        index = stage * places + inner // layout.tp % places
        graph, slots = made[index]
        keys = [graph.strings[key] for key in graph.slot_key.tolist()]
        values = tuple(
            names[number][str(value)] if key == "pg_name" else peers[number][int(value)]
            for key, value in zip(keys, slots, strict=True)
        )
        ranks.append(Rank(number, index, values, "1.0.0", ()))
    groups = comm_groups(what.model, layout)
    return Trace(tuple(graph for graph, _ in made), tuple(ranks), groups, ())


_RECEIVE, _SEND, _BACK, _RETURNED = "step.recv.fwd", "step.send.fwd", "step.send.tokens", "step.recv.tokens"


def _stage_nodes(
    what: Steps, load: Load, speed: Speed | None, stage: int, place: int
) -> Sequence[dict[str, object]]:
    """Return the nodes of a stage that a step goes through."""
    program, last = Program(speed), what.layout.pp - 1
    passes = step_passes(program, what, load, place=place)
    size, tokens = ACTIVATION_BYTES * passes.width, TOKEN_BYTES * load.logits
    if stage:
        x = program.transfer(_RECEIVE, (BEFORE, OWN), 0, [], size)
    else:
        x = passes.embedding_forward("step", 0)
    x = layers_forward(passes, what.layout, stage, "step", x)
    if stage < last:
        program.transfer(_SEND, (OWN, AFTER), 0, [x], size)
        if not stage:
            program.transfer(_RETURNED, (BEFORE, OWN), 1, [], tokens)
        return program.nodes
    x = passes.sample("step", x)
    if last:
        program.transfer(_BACK, (OWN, AFTER), 1, [x], tokens)
    return program.nodes


def _parts(result: SimResult, layout: Layout) -> Float64:
    """Return the time of a step, or in a pipeline that of each stage and what follows it: the way to the next, or of tokens back."""
    if layout.pp == 1:
        return np.array([result.makespan_ns], np.float64)
    trace, times = result.trace, result.node_times()

    def latest(stage: int, name: str, when: Int64) -> int:
        cell = layout.tp * layout.ep
        found = []
        for rank in trace.ranks[stage * cell : (stage + 1) * cell]:
            graph = trace.graph_of(rank)
            [row] = np.flatnonzero(graph.name == graph.strings.index(name)).tolist()
            found.append(int(when[times.first[rank.number] + row]))
        return max(found)

    parts, came, last = [], 0, layout.pp - 1
    for stage in range(layout.pp):
        sends, receives = (_SEND, _RECEIVE) if stage < last else (_BACK, _RETURNED)
        left = latest(stage, sends, times.start_ns)
        there = latest((stage + 1) % layout.pp, receives, times.end_ns)
        parts += [left - came, there - left]
        came = there
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
        rest: Those of so many tokens and logits without attention.
    """

    what: Steps
    config: SystemConfig
    speed: Speed | None = None
    simulations: int = 0
    known: dict[Load, Float64] = field(default_factory=dict)
    rest: dict[tuple[int, int], Float64] = field(default_factory=dict)

    def __call__(self, load: Load) -> float:
        """Return the time of a step in nanoseconds, through all stages of a pipeline."""
        return _together(self._of(load))

    def course(self, load: Load) -> Course:
        """Return how a step goes through the stages of a pipeline."""
        parts = np.maximum(self._of(load), 0).tolist()
        return Course(tuple(parts[::2]), tuple(parts[1:-1:2]), parts[-1] if len(parts) > 1 else 0.0)

    def _of(self, load: Load) -> Float64:
        key = load.tokens, max(load.logits, 1)
        if key not in self.rest:
            self.rest[key] = self._rest(*key)
        return self.rest[key] + self._attention(load.pairs, load.cached)

    def whole(self, load: Load) -> float:
        """Return the time of a step in nanoseconds, simulated whole and as it is."""
        self.simulations += 1
        return _together(self._simulate(self.what, load))

    def _simulate(self, what: Steps, load: Load) -> Float64:
        return _parts(simulate(load_trace(what, load, self.speed), self.config), what.layout)

    def _point(self, load: Load) -> Float64:
        """Return the time at a point of the grid, simulated where it is not remembered."""
        if load not in self.known:
            self.simulations += 1
            model, layout = self.what.model, self.what.layout
            if model.layers <= _FEW[1] * layout.pp or model.dense_layers:
                # Few layers, or some unlike the others.
                self.known[load] = self._simulate(self.what, load)
                return self.known[load]
            few, more = (
                self._simulate(
                    replace(
                        self.what,
                        model=replace(model, layers=count * layout.pp),
                        layout=replace(layout, stage_layers=(count,) * layout.pp),
                    ),
                    load,
                )
                for count in _FEW
            )
            further = np.zeros(len(few))
            further[::2] = np.array(layout.stage_layers) - _FEW[0]
            self.known[load] = few + (more - few) / (_FEW[1] - _FEW[0]) * further
        return self.known[load]

    def _rest(self, tokens: int, logits: int) -> Float64:
        """Return the time of a step without what attention takes beyond that of a lone token."""

        def own(tokens: int, logits: int) -> Float64:
            return self._point(Load(tokens, logits, tokens, tokens))

        whole = _interpolated(_TOKENS, _TOTALS, (tokens, logits), own)
        # Where each token attends to itself; the rest of attention comes on top.
        return whole - self._attention(tokens, tokens)

    def _attention(self, pairs: int, cached: int) -> Float64:
        """Return what so much attention takes beyond that of a lone token."""
        base = self._point(Load(1, 1, 1, 1))

        def more(pairs: int, cached: int) -> Float64:
            return self._point(Load(1, 1, pairs, cached)) - base

        return _interpolated(_TOTALS, _TOTALS, (pairs, cached), more)

    def check(self, loads: Sequence[Load]) -> float:
        """Return the largest share by which the times of these steps differ from simulating them as they are."""
        return max((abs(self(load) / self.whole(load) - 1) for load in loads), default=0.0)


def _together(parts: Float64) -> float:
    """Return the time of a step from its beginning at the first stage to its end at the last."""
    return float(parts[0] if len(parts) == 1 else parts[:-1].sum())


def _around(points: tuple[int, ...], value: int) -> list[tuple[int, float]]:
    """Return the points around a value with their shares; one point where it is met."""
    place = bisect_right(points, value) - 1
    low = points[place]
    if low == value:
        return [(low, 1.0)]
    high = points[place + 1]
    share = (value - low) / (high - low)
    return [(low, 1.0 - share), (high, share)]


def _interpolated(
    first: tuple[int, ...],
    second: tuple[int, ...],
    at: tuple[int, int],
    value: Callable[[int, int], Float64],
) -> Float64:
    """Return the value at a point between those of the grid, linear in both directions."""
    lower = _around(second, at[1])
    parts = [share * other * value(x, y) for x, share in _around(first, at[0]) for y, other in lower]
    total: Float64 = np.add.reduce(parts)
    return total
