"""How a collective becomes streams, and a stream phases.

A collective is cut into equal chunks. Each chunk is a stream that passes through phases, one or two per
network dimension; within a phase an algorithm exchanges messages between the members of the dimension. The
rules are those of ASTRA-sim's system layer, sizes truncated where it truncates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from studio.errors import ConfigError
from studio.sim.config import Algorithm, CollectiveKind, SystemConfig

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
    """

    kind: CollectiveKind
    algorithm: Algorithm
    dim: int
    size: int
    stride: int
    role: Role = "normal"


def chunks(kind: CollectiveKind, size_bytes: int, splits: int, npus: int) -> tuple[int, int]:
    """Return the size of a chunk, and how many there are.

    All chunks are of the full size, so a remainder costs one more whole chunk. Except for all-gathers, a
    chunk has at least one byte per NPU of the system, whatever the group.

    Example:
        >>> chunks("all_reduce", 1_048_576, 3, 8)
        (349525, 4)
        >>> chunks("all_reduce", 100, 4, 64), chunks("all_gather", 100, 4, 64)
        ((64, 4), (25, 4))
        >>> chunks("all_gather", 3, 4, 64)
        (0, 0)
    """
    chunk = size_bytes // splits
    if kind != "all_gather" and chunk < npus:
        chunk, size_bytes = npus, splits * npus
    if chunk == 0:
        return 0, 0
    return chunk, -(-size_bytes // chunk)


def world_phases(
    config: SystemConfig, kind: CollectiveKind, involved: Sequence[bool] | None = None
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
        >>> [(p.kind, p.dim, p.role) for p in world_phases(config, "all_reduce")]
        [('reduce_scatter', 0, 'up'), ('all_reduce', 1, 'up'), ('all_gather', 0, 'down')]
    """
    taken = [True] * DEFAULT_INVOLVED if involved is None else list(involved)
    dims: list[tuple[int, Algorithm, int, int]] = []
    stride = 1
    for at, algorithm in enumerate(_algorithms(config, kind)):
        size = config.topology.npus if algorithm.single else config.topology.dims[at].size
        if at < len(taken) and taken[at] and size > 1:
            _check_size(kind, algorithm, size, f"dimension {at}")
            dims.append((at, algorithm, size, 1 if algorithm.single else stride))
        if algorithm.single:
            break
        stride *= size
    return _ordered(config, kind, dims)


def group_phases(config: SystemConfig, kind: CollectiveKind) -> tuple[Phase, ...]:
    """Return the phases of a collective of a comm group smaller than the system: one ring of its ranks.

    The algorithm is the configured one where exactly one is listed, else ring.

    Example:
        >>> from studio.sim.config import Dimension, Topology
        >>> topology = Topology((Dimension("ring", 4, 50.0), Dimension("switch", 2, 25.0)))
        >>> config = SystemConfig(topology, algorithms={"all_gather": (Algorithm("direct", 2),)})
        >>> group_phases(config, "all_gather")[0].algorithm.name
        'direct2'
    """
    listed = _algorithms(config, kind)
    algorithm = listed[0] if len(listed) == 1 else Algorithm("ring")
    return _ordered(config, kind, [(0, algorithm, 0, 0)])


def check_group(kind: CollectiveKind, algorithm: Algorithm, size: int, name: str) -> None:
    """Raise a ConfigError where a comm group cannot use an algorithm."""
    if algorithm.kind == "double_binary_tree":
        raise ConfigError(
            f"doubleBinaryTree for {kind} in comm group {name!r}; allowed: ring, direct, halvingDoubling",
            hint="Trees are built over whole dimensions only.",
        )
    _check_size(kind, algorithm, size, f"comm group {name!r}")


def _algorithms(config: SystemConfig, kind: CollectiveKind) -> tuple[Algorithm, ...]:
    listed = config.algorithms.get(kind)
    if not listed:
        raise ConfigError(
            f"no algorithm for {kind}, which the trace uses; allowed: one algorithm per dimension",
            hint=f"Set {kind.replace('_', '-')}-implementation, for example to ring in every dimension.",
        )
    return listed


def _check_size(kind: CollectiveKind, algorithm: Algorithm, size: int, where: str) -> None:
    if algorithm.kind in ("halving_doubling", "double_binary_tree") and size & (size - 1):
        raise ConfigError(
            f"{algorithm.name} for {kind} on the {size} ranks of {where}; allowed: powers of two",
            hint="Use ring or direct there.",
        )
    if algorithm.kind == "halving_doubling" and kind == "all_to_all":
        raise ConfigError(
            f"{algorithm.name} for all_to_all in {where}; allowed: ring, direct",
            hint="Halving-doubling exchanges no all-to-all.",
        )


def _ordered(
    config: SystemConfig, kind: CollectiveKind, dims: list[tuple[int, Algorithm, int, int]]
) -> tuple[Phase, ...]:
    """Put the dimensions (place, algorithm, size, stride) in the order a stream passes them."""
    if kind == "all_reduce" and config.collective_optimization == "local_bw_aware" and dims:
        at, algorithm, size, stride = dims[-1]
        up = [Phase("reduce_scatter", a, i, n, s, "up") for i, a, n, s in dims[:-1]]
        down = [Phase("all_gather", a, i, n, s, "down") for i, a, n, s in reversed(dims[:-1])]
        return (*up, Phase("all_reduce", algorithm, at, size, stride, "up"), *down)
    if kind == "all_gather":
        return tuple(Phase(kind, a, i, n, s) for i, a, n, s in reversed(dims))
    return tuple(Phase(kind, a, i, n, s) for i, a, n, s in dims)
