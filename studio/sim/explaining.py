"""Explain what one collective costs: each way to carry it out, with the numbers of its formula filled in.

The time of a way is `(host^4 + own^4)^(1/4) + latency`, with own = `launch + (waits^p + moving^p)^(1/p)` (`studio.sim.costs.ways`);
every term of these sums is told by name, with what it is made of, so that it can be checked by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from studio.analysis.collectives.nccl_tests import compute_bus_factor
from studio.errors import ConfigError
from studio.notebook import format_record
from studio.sim.charges import build_group_shape, build_network_ports, find_crossed_dimensions
from studio.sim.config import SystemConfig
from studio.sim.costs.model import KINDS, Charge, CostModel
from studio.sim.costs.parameters import is_time
from studio.sim.costs.shapes import AS_KIND, Float64, GroupShape, Ports, compute_buffer_bytes
from studio.sim.costs.ways import OVERLAP, Way
from studio.sim.fields import find_nearest
from studio.units import format_counted

_CURVE_STEPS = 121
_LEAST_BYTES = 8.0


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a sum.

    Attributes:
        name: The machine's parameter, such as `hop LL inside`; "network latency" for what no parameter changes.
        value: What the parameter is worth: ns, or for efficiencies and ramps a number.
        ns: What the term adds.
    """

    name: str
    value: float
    ns: float

    @property
    def is_time(self) -> bool:
        """Whether the value is in ns, and no number without a unit."""
        return is_time(self.name)


@dataclass(frozen=True, slots=True)
class WayTime:
    """What one way to carry out the collective takes.

    Attributes:
        name: Algorithm and protocol, such as `ring LL`.
        host: The host's time from call to call, which passes beside all that follows.
        launch: Terms of the launch.
        waits: Terms of protocol and hops.
        inside: Terms of bytes on the port inside the node.
        between: Terms of bytes on the port between nodes.
        latency: The latency of the network, which is added; empty where the network states none.
        overlap: How far waits and moving bytes overlap: p of the formula.
        total_ns: All together.
        inside_bytes, between_bytes: Bytes through the busiest member's ports.
        steps_inside, steps_between: Hops, one after the other.
    """

    name: str
    host: Term
    launch: tuple[Term, ...]
    waits: tuple[Term, ...]
    inside: tuple[Term, ...]
    between: tuple[Term, ...]
    latency: tuple[Term, ...]
    overlap: float
    total_ns: float
    inside_bytes: float
    between_bytes: float
    steps_inside: float
    steps_between: float

    @property
    def launch_ns(self) -> float:
        """Time before anything moves."""
        return _sum_terms(self.launch)

    @property
    def waits_ns(self) -> float:
        """Time of protocol and hops."""
        return _sum_terms(self.waits)

    @property
    def moving_ns(self) -> float:
        """Time of the bytes, on the port that takes longest."""
        return max(_sum_terms(self.inside), _sum_terms(self.between))


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where the choice changes.

    Attributes:
        size: `comm_size` from which on the second way is taken.
        before, after: The ways.
    """

    size: float
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a collective costs, by each way.

    W ways, S sizes.

    Attributes:
        kind: The collective, such as `all_reduce`.
        comm_size: Its size as Chakra counts it, in bytes.
        buffer_bytes: Bytes of the whole buffer, as nccl-tests counts.
        shape: Where its members lie.
        ports: What the ports of an NPU can do.
        nics: NICs of a node; 0 stands for one an NPU.
        library: Whose estimates choose.
        ways: (W,) what each takes.
        way_index: Which of them is taken.
        total_ns: What the simulator charges, residual curves included.
        correction: Which residual curves changed it; "" for none.
        extrapolated: Whether it lies outside of what the machine's parameters were fitted to.
        sizes: (S,) sizes over which `curves` go.
        curves: (W, S) time of each way.
        choice: (S,) index of the way that is taken.
        crossovers: Where another way is taken, by size, each to the byte.
    """

    kind: str
    comm_size: int
    buffer_bytes: float
    shape: GroupShape
    ports: Ports
    nics: int
    library: str
    ways: tuple[WayTime, ...]
    way_index: int
    total_ns: float
    correction: str
    extrapolated: bool
    sizes: Float64
    curves: Float64
    choice: npt.NDArray[np.int64]
    crossovers: tuple[Crossover, ...]

    __repr__ = format_record

    @property
    def way(self) -> WayTime:
        """The way that is taken."""
        return self.ways[self.way_index]

    @property
    def not_quickest(self) -> str:
        """Why a way is taken although another would end sooner, in a sentence; "" where it is the quickest."""
        quickest = min(self.ways, key=lambda way: way.total_ns)
        if quickest.total_ns >= self.way.total_ns:
            return ""
        return (
            f"{self.way.name} is taken though {quickest.name} would end sooner: the library chooses by estimates of its own, and "
            "the simulator as the library does."
        )

    @property
    def algorithm_bytes_per_ns(self) -> float:
        """Bytes of the whole buffer over the time that is charged: algbw."""
        return self.buffer_bytes / self.total_ns

    @property
    def bus_bytes_per_ns(self) -> float:
        """Bus bandwidth as nccl-tests defines it: see `compute_bus_factor`."""
        return self.algorithm_bytes_per_ns * compute_bus_factor(self.kind, self.shape.ranks)


def explain(config: SystemConfig, kind: str, comm_size: int, ranks: Sequence[int]) -> Explanation:
    """Return what a collective costs on a system, by each way it could be carried out.

    Args:
        config: The system, of the model `full` with costs.
        kind: The collective, or `send_recv`.
        comm_size: Its size in bytes, as Chakra counts it: of an all-gather one rank's part; of a barrier nothing counts.
        ranks: Members of its group.

    Raises:
        ConfigError: The system has no costs of collectives, the collective is unknown, there are no bytes, or ranks are not on the system.

    Example:
        >>> import studio
        >>> found = explain(studio.preset("hgx-h100", npus=8).config, "all_reduce", 1 << 20, range(8))
        >>> found.way.name, round(found.total_ns) == round(found.way.total_ns)
        ('ring LL', True)
    """
    model = config.costs
    if model is None:
        raise ConfigError(
            "this system has no costs of collectives: its messages are simulated one by one",
            hint="Presets of GPUs have costs in the model full, such as hgx-h100. `simulate` times messages on this system.",
        )
    members = list(ranks)
    _refuse_unanswerable(kind, comm_size, members, config.topology.npus)
    shape = build_group_shape(members, config.topology.dims[0].size)
    ports = build_network_ports(config.topology, find_crossed_dimensions(config.topology, members))
    done = AS_KIND.get(kind, kind)
    size = np.array([float(comm_size)])
    buffer = compute_buffer_bytes(kind, size, shape.ranks)
    charge = model.charge(kind, size, shape, ports)
    sizes = np.geomspace(_LEAST_BYTES, max(1 << 33, 4.0 * comm_size), _CURVE_STEPS)
    over = model.charge(kind, sizes, shape, ports)
    possible = model.possible(done, shape, ports)
    buffers = compute_buffer_bytes(kind, sizes, shape.ranks)
    return Explanation(
        kind,
        int(comm_size),
        float(buffer[0]),
        shape,
        ports,
        model.wiring.nics,
        model.library,
        tuple(_compute_way_time(model, way, done, float(buffer[0]), shape, ports) for way in possible),
        int(charge.choice[0]),
        float(charge.total_ns[0]),
        charge.correction,
        bool(charge.extrapolated[0]),
        sizes,
        np.array([model.times(way, done, buffers, shape, ports) for way in possible]),
        over.choice,
        _find_crossovers(model, kind, shape, ports, over, sizes),
    )


def _refuse_unanswerable(kind: str, comm_size: int, members: Sequence[int], npus: int) -> None:
    """Raise a ConfigError for what is no collective, for none or a negative size, and for ranks that are not on the system."""
    if kind not in KINDS:
        near = find_nearest_kind(kind)
        raise ConfigError(
            f"{kind[:40]!r} is no collective; allowed: {', '.join(KINDS)}",
            hint=f"The nearest is {near!r}." if near else "",
        )
    if kind != "barrier" and comm_size < 1:
        raise ConfigError(f"the size of {kind} is {comm_size:,} bytes; allowed: 1 byte and above")
    if npus < 2:
        raise ConfigError(
            "the system has one NPU, which has nobody to communicate with; allowed: two or more",
            hint="Explain it on another system, or on more NPUs of this one.",
        )
    if kind == "send_recv" and len(members) != 2:
        raise ConfigError(
            f"a message has {format_counted(len(members), 'rank')}; allowed: two, its sender and its receiver",
            hint=f"Give both: 0,1 or 0,{npus - 1}.",
        )
    outside = [rank for rank in members if not 0 <= rank < npus]
    twice = [rank for rank, count in Counter(members).items() if count > 1]
    if outside or twice or len(members) < 2:
        given = (
            f"the group has rank {outside[0]:,}"
            if outside
            else f"the group has rank {twice[0]:,} twice"
            if twice
            else f"the group has {format_counted(len(members), 'rank')}"
        )
        raise ConfigError(
            f"{given}; allowed: two or more different ranks of 0 to {npus - 1:,}",
            hint="Ranks are numbered from 0. --npus says how many the system has.",
        )


def _find_crossovers(
    model: CostModel, kind: str, shape: GroupShape, ports: Ports, over: Charge, sizes: Float64
) -> tuple[Crossover, ...]:
    """Return where another way is taken: between neighbouring sizes, by halving, to the byte."""
    at = np.flatnonzero(np.diff(over.choice))
    below, above, before = np.floor(sizes[at]), np.ceil(sizes[at + 1]), over.choice[at]
    while len(at) and (above - below).max() > 1:
        middle = np.floor((below + above) / 2)
        same = model.charge(kind, middle, shape, ports).choice == before
        below, above = np.where(same, middle, below), np.where(same, above, middle)
    after = model.charge(kind, above, shape, ports).choice
    return tuple(
        Crossover(size, over.choices[first], over.choices[second])
        for size, first, second in zip(above.tolist(), before.tolist(), after.tolist(), strict=True)
    )


def assume_members(kind: str, npus: int) -> Sequence[int]:
    """Return the members of a group where none are named: all NPUs, of a message the first and the last.

    Example:
        >>> assume_members("send_recv", 16), assume_members("all_reduce", 4)
        ((0, 15), range(0, 4))
    """
    return (0, npus - 1) if kind == "send_recv" and npus > 1 else range(npus)


def find_nearest_kind(kind: str) -> str:
    """Return the collective that is most like a word, however its parts are set apart; "" if none is.

    Example:
        >>> find_nearest_kind("allreduce"), find_nearest_kind("AllGather"), find_nearest_kind("matmul")
        ('all_reduce', 'all_gather', '')
    """
    plain = {name.replace("_", ""): name for name in KINDS}
    return plain.get(find_nearest(re.sub(r"[^a-z]", "", kind.lower()), list(plain)) or "", "")


def _compute_way_time(
    model: CostModel, way: Way, kind: str, buffer: float, shape: GroupShape, ports: Ports
) -> WayTime:
    buffers = np.array([buffer])
    split = model.terms(way, kind, buffers, shape, ports)
    host = model.value("host interval")

    def build_terms(parts: Sequence[tuple[str, Float64]]) -> tuple[Term, ...]:
        terms = []
        for name, factor in parts:
            value = model.value(name)
            amount = float(factor[0]) / value if name.startswith("efficiency") else float(factor[0]) * value
            terms.append(Term(name, value, amount))
        return tuple(terms)

    latency = (Term("network latency", split.latency_ns, split.latency_ns),) if split.latency_ns else ()
    return WayTime(
        way.name,
        Term("host interval", host, host),
        build_terms(split.launch),
        build_terms(split.waits),
        build_terms(split.inside),
        build_terms(split.between),
        latency,
        OVERLAP[way.rates],
        float(model.times(way, kind, buffers, shape, ports)[0]),
        way.inside * buffer,
        way.between * buffer,
        way.steps_inside,
        way.steps_between,
    )


def _sum_terms(terms: Sequence[Term]) -> float:
    return sum(term.ns for term in terms)
