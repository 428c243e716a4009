"""A case for each type of collective, between two compute nodes, and one for each algorithm with the system that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from studio.et.records import NodeRecord
from studio.generation.cases.parts import Case, CaseJob, Sizes, build_collective, build_compute
from studio.sim.algorithms import ALGORITHM_NAMES, find_algorithm
from studio.sim.config import Algorithm, Dimension, DimensionKind, SystemConfig, Topology
from studio.sim.kinds import CollectiveKind
from studio.trace import CollectiveType


def _build_nodes(sizes: Sizes, kinds: Sequence[CollectiveType]) -> list[NodeRecord]:
    """Return a rank's nodes: computation, then each collective and computation behind it."""
    nodes = [build_compute(sizes, 1)]
    for kind in kinds:
        last = nodes[-1].id
        size = 0 if kind == CollectiveType.BARRIER else None
        nodes += [
            build_collective(sizes, last + 1, kind, last, size=size, name=kind.name),
            build_compute(sizes, last + 2, last + 1),
        ]
    return nodes


def _build_type_case(kind: CollectiveType) -> Case:
    return Case(
        f"collective_{kind.name.lower()}",
        "collective",
        f"{kind.name} of all ranks between two compute nodes.",
        lambda sizes: CaseJob({rank: _build_nodes(sizes, [kind]) for rank in range(sizes.npus)}),
    )


def _build_algorithm_case(name: str) -> Case:
    algorithm = find_algorithm(name)
    assert algorithm is not None
    row, single, window = algorithm
    kinds: list[tuple[CollectiveType, CollectiveKind]] = [
        (CollectiveType.ALL_REDUCE, "all_reduce"),
        (CollectiveType.ALL_GATHER, "all_gather"),
        (CollectiveType.REDUCE_SCATTER, "reduce_scatter"),
        (CollectiveType.ALL_TO_ALL, "all_to_all"),
    ]
    # Two trees carry out an all-reduce whatever is asked for.
    kinds = [pair for pair in kinds if pair[1] not in row.lacks][: 1 if row.two_trees else None]

    def make(sizes: Sizes) -> CaseJob:
        npus = max(sizes.npus, 2)
        npus = 1 << (npus.bit_length() - 1) if row.powers_of_two else npus
        links: DimensionKind = _LINKS[row.reach]
        config = SystemConfig(
            Topology((Dimension(links, npus, _BYTES_PER_NS, _LATENCY_NS),)),
            algorithms={kind: (Algorithm(row.kind, window, single),) for _, kind in kinds},
        )
        nodes = _build_nodes(sizes, [kind for kind, _ in kinds])
        return CaseJob(dict.fromkeys(range(npus), nodes), system=config)

    listed = ", ".join(kind.name for kind, _ in kinds)
    ranks = ", on as many ranks as a power of two allows" if row.powers_of_two else ""
    return Case(
        f"algorithm_{name}", "algorithm", f"{listed} by {name}{ranks}, with the system that says so.", make
    )


_LINKS: Mapping[str, DimensionKind] = {
    "next": "ring",
    "all": "fully_connected",
    "powers_of_two": "switch",
    "unlike": "switch",
}
"""Links that an algorithm's peers are on, by how far they reach."""
_BYTES_PER_NS, _LATENCY_NS = 50.0, 500.0

COLLECTIVES: tuple[Case, ...] = tuple(map(_build_type_case, CollectiveType))
ALGORITHMS: tuple[Case, ...] = tuple(map(_build_algorithm_case, ALGORITHM_NAMES))
