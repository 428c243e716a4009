"""Propose systems for a job, and an algorithm for each of its collectives, each with the reason in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from studio.sim.costs import CostModel, GroupShape, Ports
from studio.sim.parts import Parts
from studio.sim.systems.errors import describe_measured_errors, get_error_classes, get_fitted_tables
from studio.sim.systems.files import System
from studio.sim.systems.uses import Uses, uses_of
from studio.trace import Int64, Trace
from studio.units import format_counted

MOST = 6
"""Systems that are proposed."""
_ALGORITHM_WHY = {
    "ring": "each port carries the fewest bytes that point-to-point messages allow",
    "tree": "its steps between nodes grow with the logarithm of the nodes, those of a ring with the ranks",
    "NVLS": "the switch adds up, so that each port carries the buffer once",
    "NVLS-tree": "the switch adds up inside the nodes, and trees join the nodes",
    "direct": "every rank sends each part straight to the rank that needs it",
}
_PROTOCOL_WHY = {
    "LL": "LL has the shortest hops, which is what small sizes wait for",
    "LL128": "LL128 has short hops at most of the rate",
    "Simple": "Simple reaches the whole rate",
}


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """An algorithm for collectives of one kind, in groups that lie alike, over a range of sizes.

    Attributes:
        kind: The collective.
        where: How the group lies, in words.
        dimension: The dimension of the network, where each has its own algorithm; None where one serves the whole group.
        least_bytes, most_bytes: `comm_size` of the job's collectives that it is for.
        algorithm: Its name.
        why: The reason, in a sentence.
    """

    kind: str
    where: str
    dimension: int | None
    least_bytes: int
    most_bytes: int
    algorithm: str
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A system that a job can run on.

    Attributes:
        system: Its name, as `--preset` takes it.
        title: What it is.
        npus: Its size: that of the job.
        why: The reason, in a sentence.
        measured_error: How far simulated collectives are from measured ones, in words.
        algorithms: What carries out the collectives of the job.
    """

    system: str
    title: str
    npus: int
    why: str
    measured_error: str
    algorithms: tuple[AlgorithmChoice, ...]


def propose(trace: Trace, systems: Sequence[System] | None = None) -> list[Proposal]:
    """Return the systems that fit a job, the most fitting first.

    That of the devices it was recorded on comes first; then those whose costs were measured, whole nodes before parts.

    Args:
        trace: The job.
        systems: To choose from; None is the built-in ones.
    """
    if systems is None:
        from studio.sim.systems import SYSTEMS

        systems = tuple(SYSTEMS.values())
    uses = uses_of(trace)
    return [_build_proposal(system, uses) for system in _select_fitting(uses, systems)[:MOST]]


def _build_sort_key(system: System, uses: Uses) -> tuple[int, bool, bool, int, str]:
    return (
        -_match_device(system, uses.devices)[0],
        system.costs is None,
        not _fills_nodes(system, uses.ranks),
        -len(get_fitted_tables(system)),
        system.name,
    )


def _match_device(system: System, devices: Sequence[str]) -> tuple[int, str]:
    """Return how many letters of a recorded device's name the system knows, and the name."""
    if system.family is None:
        return 0, ""
    matches = [
        (len(words), device)
        for device in devices
        for words in system.family.devices
        if re.search(rf"(?<!\w){re.escape(words)}(?!\w)", device, re.IGNORECASE)
    ]
    return max(matches, default=(0, ""))


def _fills_nodes(system: System, ranks: int) -> bool:
    family = system.family
    return family is None or ranks <= family.node or ranks % family.node == 0


def _build_proposal(system: System, uses: Uses) -> Proposal:
    return Proposal(
        system.name,
        system.title,
        uses.ranks,
        _explain_proposal(system, uses),
        describe_measured_errors(system),
        tuple(_list_choices(system, uses)),
    )


def _explain_proposal(system: System, uses: Uses) -> str:
    """Say why a system is proposed, in a sentence."""
    device = _match_device(system, uses.devices)[1]
    if device:
        return f"The job was recorded on {device[:60]}. {_describe_size(system, uses)}"
    measured = len(get_fitted_tables(system))
    if get_error_classes(system):
        return f"{_describe_size(system, uses)} Its costs were fitted to {measured} measured tables."
    return _describe_size(system, uses)


def _describe_size(system: System, uses: Uses) -> str:
    ranks = f"{uses.ranks:,} {'rank' if uses.ranks == 1 else 'ranks'}"
    family = system.family
    if family is None:
        return f"It has an NPU for each of the {ranks}."
    sizes = system.dimensions(uses.ranks)
    if family.torus:
        return f"{ranks} are a torus of {' × '.join(map(str, sizes))}."
    inside = uses.ranks // sizes[-1] if len(sizes) > len(family.inside) else uses.ranks
    nodes = uses.ranks // inside
    if nodes == 1:
        return f"{ranks} fit into one node of {family.node}."
    crossing = sum(len({rank // inside for rank in ranks_of}) > 1 for ranks_of in uses.groups.values())
    groups = f"{crossing} of {format_counted(len(uses.groups), 'group')} {'crosses' if crossing == 1 else 'cross'} nodes"
    part = "" if inside == family.node else f", which could hold {family.node}"
    return f"{ranks} are {nodes:,} nodes of {inside}{part}; {groups}."


# ---------------------------------------------------------------------------------------------------
# Algorithms


def _list_choices(system: System, uses: Uses) -> Iterator[AlgorithmChoice]:
    parts = system.parts(uses.ranks)
    if system.costs is None:
        yield from _choose_by_dimension(parts, uses)
        return
    model, (node, ports) = (
        CostModel.from_table(_get_costs(system, parts), f"{system.place}: costs"),
        _read_ports(parts),
    )
    for (kind, shape), sizes in _group_by_shape(uses, node).items():
        charge = model.charge(kind, sizes.astype(np.float64), shape, ports)
        chosen = [charge.choices[index] for index in charge.choice.tolist()]
        starts = [0, *(at for at in range(1, len(chosen)) if chosen[at] != chosen[at - 1]), len(chosen)]
        for first, after in pairwise(starts):
            name = chosen[first]
            yield AlgorithmChoice(
                kind,
                _describe_shape(shape),
                None,
                int(sizes[first]),
                int(sizes[after - 1]),
                name,
                explain_way(name),
            )


def _get_costs(system: System, parts: Parts) -> dict[str, object]:
    costs = parts.network.get("costs", system.costs)
    return {str(key): value for key, value in costs.items()} if isinstance(costs, dict) else {}


def _read_ports(parts: Parts) -> tuple[int, Ports]:
    """Return the NPUs of a node, and what the ports of one can do."""
    columns = [parts.network[key] for key in ("npus_count", "bandwidth", "latency")]
    sizes, rates, latencies = (list(column) for column in columns)  # type: ignore[call-overload]  # lists of a preset
    between = min(rates[1:], default=0.0)
    return sizes[0], Ports(rates[0], latencies[0], between, max(latencies[1:], default=0.0), sizes[0])


def _group_by_shape(uses: Uses, node: int) -> dict[tuple[str, GroupShape], Int64]:
    """Return the sizes of a job's collectives by kind, and by how their groups lie on nodes."""
    shapes = {}
    for name, ranks in uses.groups.items():
        if len(ranks) > 1:
            counts = np.unique(np.array(ranks, np.int64) // node, return_counts=True)[1]
            shapes[name] = GroupShape(len(ranks), int(counts.max()), len(counts))
    by_shape: dict[tuple[str, GroupShape], Int64] = {}
    for (kind, name), sizes in uses.sizes.items():
        key = (kind, shapes[name])
        by_shape[key] = np.union1d(by_shape[key], sizes) if key in by_shape else sizes
    return by_shape


def _describe_shape(shape: GroupShape) -> str:
    if shape.nodes == 1:
        return f"{shape.ranks} ranks of one node"
    return f"{shape.ranks} ranks on {shape.nodes} nodes"


def explain_way(name: str) -> str:
    """Say in a sentence what an algorithm and protocol of a communication library are good for.

    Example:
        >>> explain_way("tree LL")
        'Its steps between nodes grow with the logarithm of the nodes, those of a ring with the ranks; LL has the shortest hops, which is what small sizes wait for.'
    """
    algorithm, _, protocol = name.partition(" ")
    reasons = [words for words in (_ALGORITHM_WHY.get(algorithm), _PROTOCOL_WHY.get(protocol)) if words]
    text = "; ".join(reasons) or "the library has no other"
    return f"{text[0].upper()}{text[1:]}."


def _choose_by_dimension(parts: Parts, uses: Uses) -> Iterator[AlgorithmChoice]:
    """Choose for messages on links: an algorithm per dimension."""
    columns = [parts.network[key] for key in ("topology", "npus_count")]
    kinds, counts = (list(column) for column in columns)  # type: ignore[call-overload]  # lists of a preset
    by_kind: dict[str, Int64] = {}
    for (kind, _), sizes in uses.sizes.items():
        by_kind[kind] = np.union1d(by_kind[kind], sizes) if kind in by_kind else sizes
    for kind, sizes in by_kind.items():
        for index, (topology, size) in enumerate(zip(kinds, counts, strict=True)):
            name, why = _choose_algorithm(kind, str(topology), int(size))
            where = f"dimension {index}, {topology} of {size}"
            yield AlgorithmChoice(kind, where, index, int(sizes[0]), int(sizes[-1]), name, why)


def _choose_algorithm(kind: str, topology: str, size: int) -> tuple[str, str]:
    """Return an algorithm for a dimension, and why."""
    if topology == "Ring":
        return "ring", "Only neighbours have a link, and a ring sends to no others."
    if kind == "all_to_all":
        return (
            "direct",
            "Any two have a way of one step, and a ring would pass each byte on from rank to rank.",
        )
    if size & (size - 1) == 0:
        return "halvingDoubling", "It sends as few bytes as a ring, in a step per power of two."
    return "ring", "It sends the fewest bytes; halving and doubling wants a power of two."


def _select_fitting(uses: Uses, systems: Sequence[System]) -> list[System]:
    """Return the systems that have an NPU for each rank, the most fitting first."""
    return sorted(
        (system for system in systems if system.fits(uses.ranks)),
        key=lambda system: _build_sort_key(system, uses),
    )


def find_recorded_system(trace: Trace, systems: Sequence[System] | None = None) -> tuple[System, str] | None:
    """Return the system of the devices that a job was recorded on, and the name the recording gives them; None where none fits.

    Args:
        trace: The job.
        systems: To choose from; None is the built-in ones.
    """
    if systems is None:
        from studio.sim.systems import SYSTEMS

        systems = tuple(SYSTEMS.values())
    uses = uses_of(trace)
    best = next(iter(_select_fitting(uses, systems)), None)
    device = "" if best is None else _match_device(best, uses.devices)[1]
    return (best, device) if best is not None and device else None
