"""Divide a collective into streams, and a stream into phases.

A collective is cut into equal chunks. Each chunk is a stream that passes through phases, one or two per
network dimension; within a phase an algorithm exchanges messages between the members of the dimension. The
rules are those of ASTRA-sim's system layer, sizes truncated where it truncates them.

The extended mode adds to them:

- Collectives with a root. A broadcast passes the dimensions downwards, so the slow ones first and only in the
  root's own line; a scatter upwards; a reduce and a gather are these two backwards. In a phase those lines
  take part that have the data, or of which the root's line still needs it.
- A barrier is an all-gather of nothing, or, by halvingDoubling, a dissemination; a reduce-scatter-block is a
  reduce-scatter.
- Orders of the dimensions other than rising, see `build_stream_phases`.
- Halving-doubling and trees on any number of ranks, see `studio.sim.programs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from studio.errors import ConfigError
from studio.sim.algorithms import ALGORITHMS
from studio.sim.config import Algorithm, SystemConfig
from studio.sim.extensions import EXTENDED_MODE
from studio.sim.kinds import REFERENCE_KINDS, ROOTED_KINDS, CollectiveKind
from studio.trace import CollectiveType

Role = Literal["normal", "up", "down"]

DEFAULT_INVOLVED = 4
"""A collective that names no dimensions involves this many of them, the lowest."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a stream: a collective among the members of one logical dimension.

    Attributes:
        kind: What is done.
        algorithm: How.
        dim: Place in the list of algorithms, which decides the queues it uses.
        size: Members; 0 stands for the size of the comm group.
        stride: Distance of neighbouring members in rank numbers; 0 stands for the group's list.
        role: Which queues of the dimension it may use, and which way round it goes.
        root: The rank, in a comm group the place, that all goes out from or comes together at.
        line: Dimensions, as stride and size, in which a rank has to have the root's coordinate to take part.
    """

    kind: CollectiveKind
    algorithm: Algorithm
    dim: int
    size: int
    stride: int
    role: Role = "normal"
    root: int | None = None
    line: tuple[tuple[int, int], ...] = ()


KIND_OF: Mapping[int, CollectiveKind] = {
    CollectiveType.ALL_REDUCE: "all_reduce",
    CollectiveType.ALL_GATHER: "all_gather",
    CollectiveType.ALL_TO_ALL: "all_to_all",
    CollectiveType.REDUCE_SCATTER: "reduce_scatter",
}
"""What the compatible mode knows of the types that nodes name."""
EXTENDED_KIND_OF: Mapping[int, CollectiveKind] = {
    **KIND_OF,
    CollectiveType.REDUCE: "reduce",
    CollectiveType.GATHER: "gather",
    CollectiveType.SCATTER: "scatter",
    CollectiveType.BROADCAST: "broadcast",
    CollectiveType.REDUCE_SCATTER_BLOCK: "reduce_scatter_block",
    CollectiveType.BARRIER: "barrier",
}
"""What the extended mode knows of them."""
_DOWNWARDS: tuple[CollectiveKind, ...] = ("all_gather", "broadcast", "gather")
_INSTEAD: dict[CollectiveKind, tuple[CollectiveKind, ...]] = {
    "reduce_scatter_block": ("reduce_scatter", "all_reduce")
}
"""Whose algorithms a collective of the extended mode takes that has none of its own; others, the all-reduce's."""


def compute_chunks(kind: CollectiveKind, size_bytes: int, splits: int, npus: int) -> tuple[int, int]:
    """Return the size of a chunk, and how many there are.

    All chunks are of the full size, so a remainder costs one more whole chunk. Except for all-gathers, a
    chunk has at least one byte per NPU of the system, whatever the group.

    Example:
        >>> compute_chunks("all_reduce", 1_048_576, 3, 8)
        (349525, 4)
        >>> compute_chunks("all_reduce", 100, 4, 64), compute_chunks("all_gather", 100, 4, 64)
        ((64, 4), (25, 4))
        >>> compute_chunks("all_gather", 3, 4, 64)
        (0, 0)
    """
    if kind == "barrier":
        return 0, 1
    chunk = size_bytes // splits
    if kind == "gather" and chunk == 0:
        return size_bytes, 1
    if kind not in ("all_gather", "gather") and chunk < npus:
        chunk, size_bytes = npus, splits * npus
    if chunk == 0:
        return 0, 0
    return chunk, -(-size_bytes // chunk)


def build_world_phases(
    config: SystemConfig,
    kind: CollectiveKind,
    involved: Sequence[bool] | None = None,
    root: int | None = None,
) -> tuple[Phase, ...]:
    """Return the phases of a collective of all ranks.

    Reduce-scatter and all-to-all pass the involved dimensions upwards, all-gather downwards. An all-reduce
    is one all-reduce per dimension, or, with `local_bw_aware`, reduce-scatters upwards, an all-reduce in the
    last dimension, and all-gathers back down.

    Example:
        >>> from studio.sim.config import Dimension, Topology
        >>> topology = Topology((Dimension("ring", 4, 50.0), Dimension("switch", 2, 25.0)))
        >>> ring = Algorithm("ring")
        >>> config = SystemConfig(topology, collective_optimization="local_bw_aware",
        ...                       algorithms={"all_reduce": (ring, ring)})
        >>> [(p.kind, p.dim, p.role) for p in build_world_phases(config, "all_reduce")]
        [('reduce_scatter', 0, 'up'), ('all_reduce', 1, 'up'), ('all_gather', 0, 'down')]
    """
    dims = _list_dimensions(config, kind, involved)
    if config.extensions is not None and config.extensions.dimension_order == "descending":
        dims.reverse()
    return _order_phases(config, kind, dims, root)


def build_stream_phases(
    config: SystemConfig,
    kind: CollectiveKind,
    involved: Sequence[bool] | None,
    root: int | None,
    chunks_of: tuple[int, int],
) -> list[tuple[Phase, ...]]:
    """Return the phases of each stream of a collective of all ranks; a single list where they are the same.

    With the balanced order each chunk passes first the dimension with the least work so far: it carries the
    most there, as a reduce-scatter leaves less to the next ones. Then what the chunk takes in each dimension
    is added to its work: steps × (latency + endpoint delay) + bytes / bandwidth. All-gathers pass the
    dimensions in the opposite order. That is the greedy schedule of Themis (Rashidi et al., Themis: a
    network bandwidth-aware collective scheduling policy for distributed training of DL models, ISCA 2022).

    Args:
        config: The system.
        kind: The collective.
        involved: Which dimensions it names; None for those it has where it names none.
        root: The rank that all goes out from or comes together at.
        chunks_of: Size and number of its chunks.
    """
    if not is_balanced(config):
        return [build_world_phases(config, kind, involved, root)]
    dims = _list_dimensions(config, kind, involved)
    chunk, count = chunks_of
    work = dict.fromkeys((dimension for dimension, *_ in dims), 0.0)
    streams = []
    for _ in range(count):
        dims.sort(key=lambda dim: (work[dim[0]], dim[0]))
        phases = _order_phases(config, kind, dims, root)
        size = float(chunk)
        for phase in phases:
            time, size = _estimate_work(config, phase, size)
            work[phase.dim] += time
        streams.append(phases)
    return streams[:1] if len(set(streams)) == 1 else streams


def is_balanced(config: SystemConfig) -> bool:
    """Whether chunks pass the dimensions in the order that loads them evenly."""
    return config.extensions is not None and config.extensions.dimension_order == "balanced"


def _estimate_work(config: SystemConfig, phase: Phase, size: float) -> tuple[float, float]:
    """Estimate how long a phase keeps its dimension busy; also returns the remaining size."""
    ranks, kind, dim = phase.size, phase.kind, config.topology.dims[phase.dim]
    share = (ranks - 1) / ranks
    sent, after = {
        "reduce_scatter": (size * share, size / ranks),
        "scatter": (size * share, size / ranks),
        "all_gather": (size * (ranks - 1), size * ranks),
        "gather": (size * (ranks - 1), size * ranks),
        "all_reduce": (2 * size * share, size),
        "all_to_all": (size * share, size),
    }.get(kind, (size, size))
    steps = phase.algorithm.row.rounds(ranks) * (1 + (kind == "all_reduce"))
    return steps * (dim.latency_ns + config.packet_delay_ns) + sent / dim.bytes_per_ns, after


_Dim = tuple[int, Algorithm, int, int]
"""A dimension of a collective: its place, algorithm, size and stride."""


def _list_dimensions(
    config: SystemConfig, kind: CollectiveKind, involved: Sequence[bool] | None
) -> list[_Dim]:
    """Return the dimensions that count for a collective, the lowest first."""
    taken = [True] * DEFAULT_INVOLVED if involved is None else list(involved)
    dims: list[_Dim] = []
    stride = 1
    for index, algorithm in enumerate(list_algorithms(config, kind)):
        size = config.topology.npus if algorithm.single else config.topology.dims[index].size
        if index < len(taken) and taken[index] and size > 1:
            check_size(config, kind, algorithm, size, f"dimension {index}")
            dims.append((index, algorithm, size, 1 if algorithm.single else stride))
        if algorithm.single:
            break
        stride *= size
    return dims


def build_group_phases(
    config: SystemConfig, kind: CollectiveKind, root: int | None = None
) -> tuple[Phase, ...]:
    """Return the phases of a collective of a comm group smaller than the system: one ring of its ranks.

    The algorithm is the configured one where exactly one is listed, else ring.

    Args:
        config: The system.
        kind: The collective.
        root: The place in the group that all goes out from or comes together at.

    Example:
        >>> from studio.sim.config import Dimension, Topology
        >>> topology = Topology((Dimension("ring", 4, 50.0), Dimension("switch", 2, 25.0)))
        >>> config = SystemConfig(topology, algorithms={"all_gather": (Algorithm("direct", 2),)})
        >>> build_group_phases(config, "all_gather")[0].algorithm.name
        'direct2'
    """
    listed = list_algorithms(config, kind)
    algorithm = listed[0] if len(listed) == 1 else Algorithm("ring")
    return _order_phases(config, kind, [(0, algorithm, 0, 0)], root)


def check_group(
    config: SystemConfig, kind: CollectiveKind, algorithm: Algorithm, size: int, name: str
) -> None:
    """Raise a ConfigError if a comm group cannot use its algorithm."""
    if not algorithm.row.in_groups and not supports_any_size(config):
        others = ", ".join(row.name for row in ALGORITHMS.values() if row.in_groups)
        raise ConfigError(
            f"{algorithm.name} for {kind} in comm group {name!r}; allowed: {others}",
            hint=f"Trees are built over whole dimensions only, but in the {EXTENDED_MODE}.",
        )
    check_size(config, kind, algorithm, size, f"comm group {name!r}")


def supports_any_size(config: SystemConfig) -> bool:
    """Whether halving-doubling and trees support any number of ranks, and comm groups."""
    return config.extensions is not None and config.extensions.group_sizes == "any"


def allows_all_collectives(config: SystemConfig) -> bool:
    """Whether all collectives are carried out, not only those of the compatible mode."""
    return config.flows or (config.extensions is not None and config.extensions.collectives == "all")


def list_algorithms(config: SystemConfig, kind: CollectiveKind) -> tuple[Algorithm, ...]:
    """Return the algorithms of a collective, one per dimension.

    Raises:
        ConfigError: There are none for it, nor for one whose algorithms it takes.
    """
    if listed := list_configured(config, kind):
        return listed
    raise ConfigError(
        f"no algorithm for {kind}, which the trace uses; allowed: one algorithm per dimension",
        hint=f"Set {kind.replace('_', '-')}-implementation, for example to ring in every dimension.",
    )


def list_configured(config: SystemConfig, kind: CollectiveKind) -> tuple[Algorithm, ...]:
    """Return the algorithms configured for a collective, or those of its fallback; () if none."""
    instead = () if kind in REFERENCE_KINDS else _INSTEAD.get(kind, ("all_reduce",))
    return next(filter(None, (config.algorithms.get(name, ()) for name in (kind, *instead))), ())


def lacks_form(algorithm: Algorithm, kind: CollectiveKind) -> bool:
    """Whether ASTRA-sim lacks this algorithm for this collective."""
    return kind in algorithm.row.lacks and kind in REFERENCE_KINDS


def check_size(
    config: SystemConfig, kind: CollectiveKind, algorithm: Algorithm, size: int, where: str
) -> None:
    """Raise a ConfigError if an algorithm does not support this number of ranks."""
    if supports_any_size(config):
        return
    if algorithm.row.powers_of_two and size & (size - 1):
        raise ConfigError(
            f"{algorithm.name} for {kind} on the {size} ranks of {where}; allowed: powers of two",
            hint=f"Use ring or direct there, or the {EXTENDED_MODE}.",
        )
    if lacks_form(algorithm, kind):
        others = ", ".join(row.name for row in ALGORITHMS.values() if not row.powers_of_two and not row.lacks)
        raise ConfigError(
            f"{algorithm.name} for {kind} in {where}; allowed: {others}",
            hint=f"{algorithm.row.label} has no {kind.replace('_', '-')}, but in the {EXTENDED_MODE}.",
        )


def _order_phases(
    config: SystemConfig, kind: CollectiveKind, dims: list[_Dim], root: int | None
) -> tuple[Phase, ...]:
    """Return the phases of a stream that passes the dimensions upwards in this order."""
    if kind == "all_reduce" and config.collective_optimization == "local_bw_aware" and dims:
        dimension, algorithm, size, stride = dims[-1]
        # One way round on the way up and the other on the way down leaves half of each ring idle at a time.
        halves: tuple[Role, Role] = ("normal", "normal") if is_balanced(config) else ("up", "down")
        up = [Phase("reduce_scatter", a, i, n, s, halves[0]) for i, a, n, s in dims[:-1]]
        down = [Phase("all_gather", a, i, n, s, halves[1]) for i, a, n, s in reversed(dims[:-1])]
        return (*up, Phase("all_reduce", algorithm, dimension, size, stride, halves[0]), *down)
    passed = dims[::-1] if kind in _DOWNWARDS else dims
    if kind not in ROOTED_KINDS:
        done = "reduce_scatter" if kind == "reduce_scatter_block" else kind
        return tuple(Phase(done, a, i, n, s) for i, a, n, s in passed)
    phases = []
    for turn, (i, a, n, s) in enumerate(passed):
        # What goes out has not passed the dimensions to come; what comes in has left those it has passed.
        others = passed[turn + 1 :] if kind in ("broadcast", "scatter") else passed[:turn]
        line = tuple((stride, size) for _, _, size, stride in others)
        phases.append(Phase(kind, a, i, n, s, root=root, line=line))
    return tuple(phases)
