"""How long steps take: simulated on a system at the points of a grid, remembered, and interpolated between them.

A step is one stream of kernels and collectives, one after the other. So its time is that of its tokens and logits with hardly any
attention, and what attention adds; and each further layer adds the same, so that models of few layers tell the time of all. Both parts
are tables over two totals of the step (`Load`), linear between points whose distance grows with them: 41 % (two to a doubling) for
tokens, twofold for logits and attention. `check` says how far all that is from simulating steps whole, as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from studio.et.build import graph_of_nodes
from studio.generation.inference.batches import Load
from studio.generation.inference.job import Steps, layer_forward, step_passes
from studio.generation.program import Program, Speed
from studio.sim import simulate
from studio.sim.config import SystemConfig
from studio.trace import CommGroup, Rank, Trace

_LARGEST = 1 << 40


def _points(to_double: int) -> tuple[int, ...]:
    """Return growing whole numbers from 1 to `_LARGEST`, so many to a factor of two."""
    steps = range(to_double * (_LARGEST.bit_length() - 1) + 1)
    return tuple(sorted({round(2 ** (step / to_double)) for step in steps}))


_TOKENS, _TOTALS = _points(2), _points(1)
_FEW = (2, 4)
"""Layers of the models that are simulated at points of the grid."""


def load_trace(what: Steps, load: Load, speed: Speed | None = None) -> Trace:
    """Return a step of one replica that computes so much, as a job of its ranks alone.

    Args:
        what: Model, layout of one stage, and data types.
        load: What the step computes.
        speed: The GPU that durations are of; None leaves them to the roofline of the simulated system.
    """
    program = Program(speed)
    passes = step_passes(program, what, load)
    x = passes.embedding_forward("step", 0)
    for layer in range(what.model.layers):
        x = layer_forward(passes, f"step.layer{layer}", layer, x)
    passes.sample("step", x)
    graph, slots = graph_of_nodes(program.nodes)
    tp = what.layout.tp
    values = tuple("tp0" for _ in slots)
    ranks = tuple(Rank(number, 0, values, "1.0.0", ()) for number in range(tp))
    return Trace((graph,), ranks, (CommGroup("tp0", tuple(range(tp))),) if tp > 1 else (), ())


@dataclass(slots=True)
class StepTimes:
    """Times of steps on a system.

    Attributes:
        what: Model, layout of one stage, and data types.
        config: The system, of as many NPUs as a replica has.
        speed: The GPU that durations of nodes are of; None leaves them to the roofline of the system.
        simulations: How many steps were simulated so far.
        known: Times at points of the grid.
        rest: Times of so many tokens and logits without attention.
    """

    what: Steps
    config: SystemConfig
    speed: Speed | None = None
    simulations: int = 0
    known: dict[Load, float] = field(default_factory=dict)
    rest: dict[tuple[int, int], float] = field(default_factory=dict)

    def __call__(self, load: Load) -> float:
        """Return the time of a step in nanoseconds."""
        key = load.tokens, max(load.logits, 1)
        if key not in self.rest:
            self.rest[key] = self._rest(*key)
        return self.rest[key] + self._attention(load.pairs, load.cached)

    def whole(self, load: Load) -> float:
        """Return the time of a step in nanoseconds, simulated whole and as it is."""
        self.simulations += 1
        return self._simulate(self.what, load)

    def _simulate(self, what: Steps, load: Load) -> float:
        return float(max(simulate(load_trace(what, load, self.speed), self.config).finish_ns))

    def _point(self, load: Load) -> float:
        """Return the time at a point of the grid, simulated where it is not remembered."""
        if load not in self.known:
            self.simulations += 1
            layers = self.what.model.layers
            few, more = (
                self._simulate(replace(self.what, model=replace(self.what.model, layers=count)), load)
                for count in (_FEW if layers > _FEW[1] else (layers, layers))
            )
            self.known[load] = few + (more - few) / (_FEW[1] - _FEW[0]) * (layers - _FEW[0])
        return self.known[load]

    def _rest(self, tokens: int, logits: int) -> float:
        """Return the time of a step without what attention takes beyond that of a lone token."""

        def own(tokens: int, logits: int) -> float:
            return self._point(Load(tokens, logits, tokens, tokens))

        whole = _interpolated(_TOKENS, _TOTALS, (tokens, logits), own)
        # Where each token attends to itself; the rest of attention comes on top.
        return whole - self._attention(tokens, tokens)

    def _attention(self, pairs: int, cached: int) -> float:
        """Return what so much attention takes beyond that of a lone token."""
        base = self._point(Load(1, 1, 1, 1))

        def more(pairs: int, cached: int) -> float:
            return self._point(Load(1, 1, pairs, cached)) - base

        return _interpolated(_TOTALS, _TOTALS, (pairs, cached), more)

    def check(self, loads: Sequence[Load]) -> float:
        """Return the largest share by which the times of these steps differ from simulating them as they are."""
        return max((abs(self(load) / self.whole(load) - 1) for load in loads), default=0.0)


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
    first: tuple[int, ...], second: tuple[int, ...], at: tuple[int, int], value: Callable[[int, int], float]
) -> float:
    """Return the value at a point between those of the grid, linear in both directions."""
    lower = _around(second, at[1])
    return sum(share * other * value(x, y) for x, share in _around(first, at[0]) for y, other in lower)
