"""Find the machine of measured tables, the system that describes it, and its number of ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.calibration.tables import MeasuredTable
from studio.errors import ConfigError
from studio.sim.costs import CostModel, GroupShape, Ports
from studio.sim.network import UNIT, UNITS
from studio.sim.settings import NETWORK_UNIT
from studio.sim.systems import SYSTEMS, System, find_system
from studio.units import format_counted

_LISTED = 12
_NICS = re.compile(r"\b(\d+)\s*x\s+(?=\w)")
_RING = re.compile(r"\bNCCL_ALGO=Ring\b|\bring algorithm\b", re.IGNORECASE)
_VERBS = re.compile(r"\b(?:InfiniBand|RoCE)", re.IGNORECASE)
_PLUGIN = re.compile(r"\b(?:EFA|Slingshot|CXI|TCP|GPUDirect-TCPXO?|sockets|plugin)\b", re.IGNORECASE)
_TRANSPORT_NOTES = {
    "verbs": "Other nodes are reached by InfiniBand verbs, as the tables say.",
    "plugin": "Other nodes are reached by a network plugin or sockets, as the tables say.",
    "": "The tables do not say how other nodes are reached: between InfiniBand and network plugins.",
}
_MESH = re.compile(r"\bmesh of (\d+)\b")

OTHERWISE = "--system or --preset names another"
"""How a command is told that the hardware is another system; pages say it in their own words."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A system as the cost model sees it.

    Attributes:
        system: The system.
        costs: The costs of its collectives.
        ports: What the ports of an NPU can do, of a whole node and between nodes.
        notes: What was assumed or taken from tables, a sentence each.
    """

    system: System
    costs: CostModel
    ports: Ports
    notes: tuple[str, ...] = ()


def group_by_machine(tables: Sequence[MeasuredTable]) -> dict[str, list[MeasuredTable]]:
    """Return the tables by machine, in order of first appearance; tables that name none join the only machine there is."""
    by_machine: dict[str, list[MeasuredTable]] = {}
    for table in tables:
        by_machine.setdefault(table.machine, []).append(table)
    if "" in by_machine and len(by_machine) == 2:
        [other] = [name for name in by_machine if name]
        return {other: [table for table in tables if table.machine in ("", other)]}
    return by_machine


def pick_machine(tables: Sequence[MeasuredTable], name: str | None) -> list[MeasuredTable]:
    """Return the tables of one machine.

    Args:
        tables: Of one machine or several.
        name: Which; needed where there are several.

    Raises:
        ConfigError: There are several machines and none is named, or there is none of this name; lists them.
    """
    by_machine = group_by_machine(tables)
    if name is None and len(by_machine) == 1:
        return next(iter(by_machine.values()))
    if name is not None and name in by_machine:
        return by_machine[name]
    names = [machine or "(no name)" for machine in by_machine]
    listed = ", ".join(names[:_LISTED]) + (
        f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    )
    if name is None:
        raise ConfigError(
            f"The tables are of {len(by_machine)} machines: {listed}; allowed: one machine a file",
            hint=f"Pick one with --machine, such as --machine {next(iter(by_machine))}.",
            key="machine",
        )
    from studio.sim.fields import find_nearest

    near = find_nearest(name, tuple(by_machine))
    raise ConfigError(
        f"--machine is {name!r}; allowed: {listed}",
        hint=f"The nearest is {near!r}."
        if near
        else "A machine is called by what stands before _n<nodes> in its tables.",
        key="machine",
    )


def match_system(hardware: str) -> System | None:
    """Return the built-in system whose NPUs a table's hardware names; the longest name counts. None where none does.

    Example:
        >>> found = match_system("NVIDIA H100 80GB HBM3 (Nebius)")
        >>> found.name if found else None
        'hgx-h100'
    """
    text = _normalise_text(hardware)
    best: tuple[int, System] | None = None
    for system in SYSTEMS.values():
        for device in system.family.devices if system.family else ():
            words = _normalise_text(device)
            # Whole words: GB200 is no B200.
            if re.search(rf"(?<![a-z0-9]){re.escape(words)}(?![a-z0-9])", text) and (
                best is None or len(words) > best[0]
            ):
                best = (len(words), system)
    return None if best is None else best[1]


def _normalise_text(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.lower())


def choose_machine(tables: Sequence[MeasuredTable], named: str | None, *, nominal: bool = True) -> Machine:
    """Return the system that tables of one machine are judged on, or a fit of them begins with.

    Args:
        tables: The tables.
        named: A preset or system file; None takes the built-in system that the tables' hardware names.
        nominal: Whether nominal rates and numbers of ports that the tables state take the place of a preset's. A
            calibrated system keeps its own.

    Raises:
        ConfigError: There is no such system, or none is named and none has the hardware; or it has no costs.
    """
    notes = []
    if named is not None:
        system = find_system(named)[0]
    else:
        hardware = next((table.hardware for table in tables if table.hardware), "")
        match = match_system(hardware)
        if match is None:
            what = f"the hardware {hardware!r}" if hardware else "a table that does not name its hardware"
            raise ConfigError(
                f"{tables[0].table_id}: there is no built-in system for {what}",
                hint="Name one with --preset or --system; `chakra-studio presets` lists them.",
                key="preset",
            )
        system = match
        notes.append(f"{hardware}: taken to be {system.name}; {OTHERWISE}.")
    costs = CostModel.from_table(system.costs or {}, f"{system.place}: costs")
    ports = build_ports(system)
    machine = Machine(system, costs, ports, tuple(notes))
    return describe(machine, tables) if nominal and not is_calibrated(system) else machine


def build_machine_shape(ports: Ports, table: MeasuredTable) -> GroupShape:
    """Return where the ranks of a table lie on a machine with these ports.

    A table counts hosts as nodes. Where NVLinks join the hosts of a rack, the rack is the node.
    """
    ranks = table.gpus_per_node * table.nodes
    if _is_rack(table) and ports.per_node > table.gpus_per_node:
        racks = -(-ranks // ports.per_node)
        return GroupShape(ranks, -(-ranks // racks), racks)
    return GroupShape(ranks, table.gpus_per_node, table.nodes)


def is_calibrated(system: System) -> bool:
    """Whether a system was fitted to one machine's own tables, so that its ports are that machine's."""
    return isinstance(system.calibration.get("machine"), str)


def build_ports(system: System) -> Ports:
    """Return what the ports of an NPU of a whole node can do.

    Raises:
        ConfigError: The system has no dimensions, but links written down one by one.
    """
    network = system.network
    if "bandwidth" not in network:
        raise ConfigError(
            f"{system.place}: a network of single links; allowed: one with dimensions",
            key="network",
            hint="Name another.",
        )
    rates = [float(rate) * get_unit_gbytes(system) for rate in network["bandwidth"]]  # type: ignore[attr-defined]
    latencies = [float(latency) for latency in network["latency"]]  # type: ignore[attr-defined]
    node = system.family.node if system.family else int(network["npus_count"][0])  # type: ignore[index]
    inside = len(system.family.inside) if system.family else 1
    return Ports(
        inside=rates[0],
        inside_ns=latencies[0],
        between=min(rates[inside:], default=0.0),
        between_ns=max(latencies[inside:], default=0.0),
        per_node=node,
    )


def describe(machine: Machine, tables: Sequence[MeasuredTable]) -> Machine:
    """Return a machine with the nominal rates, ports of a node and GPUs of a node that its tables state.

    A preset describes a class of machines; how many GPUs and network ports a node of this one has, and what they carry,
    stands in its tables and is no measurement.
    """
    ports, costs, notes = machine.ports, machine.costs, list(machine.notes)
    node = _infer_node_gpus(tables, ports.per_node)
    if node != ports.per_node:
        ports = replace(ports, per_node=node)
        notes.append(f"Nodes of {format_counted(node, 'GPU')}, as the tables say.")
    inside = [table.nominal_gbytes_per_s for table in tables if table.nodes == 1 and _has_rate(table)]
    if inside and max(inside) != ports.inside:
        ports = replace(ports, inside=max(inside))
        notes.append(f"{max(inside):g} GB/s a GPU inside a node, as the tables say.")
    stated = _list_stated_rates(tables)
    if stated:
        share, nics, host = max(stated)
        if not np.isclose(share, ports.between):
            notes.append(f"{share * host:g} GB/s a node to other nodes, as the tables say.")
        ports = replace(ports, between=share)
        # Where a GPU has several ports, it uses all of its own: as good as one port a GPU.
        shared = nics * (node // host) if 0 < nics < host else 0
        if nics and shared != costs.wiring.nics:
            costs = replace(costs, wiring=replace(costs.wiring, nics=shared))
            notes.append(f"{nics} network ports a node of {host} GPUs, as the tables say.")
    transport = infer_transport(tables)
    if transport is not None and transport != costs.transport:
        costs = costs.over(transport)
        notes.append(_TRANSPORT_NOTES[transport])
    if all(_RING.search(table.interconnect) for table in tables):
        costs = replace(costs, algorithm="ring")
        notes.append("The ring is forced, as the tables say.")
    return replace(machine, ports=ports, costs=costs, notes=tuple(notes))


def infer_transport(tables: Sequence[MeasuredTable]) -> str | None:
    """Return the transport between nodes that tables of a machine name; "" where they name none, None where all have one node.

    Example:
        >>> infer_transport([])
    """
    across = [table.interconnect for table in tables if table.nodes > 1 and not _is_within_rack(table)]
    for words in across:
        if _PLUGIN.search(words):
            return "plugin"
        if _VERBS.search(words):
            return "verbs"
    return "" if across else None


def _has_rate(table: MeasuredTable) -> bool:
    return bool(table.nominal_gbytes_per_s > 0)


def _is_rack(table: MeasuredTable) -> bool:
    return "NVL72" in f"{table.interconnect} {table.hardware}"


def _infer_node_gpus(tables: Sequence[MeasuredTable], usual: int) -> int:
    """Return the GPUs of a node of the tables' machine; several nodes are only used once one is full."""
    if any(_is_rack(table) for table in tables):
        return usual
    stated = [int(match[1]) for table in tables if (match := _MESH.search(table.interconnect))]
    full = [table.gpus_per_node for table in tables if table.nodes > 1 and table.gpus_per_node > 1]
    most = max(table.gpus_per_node for table in tables)
    return max([most, *stated, *full]) if stated or full else max(usual, most)


def _list_stated_rates(tables: Sequence[MeasuredTable]) -> list[tuple[float, int, int]]:
    """Return the rates to other nodes that tables state, a GPU's share each, with ports (0: not stated) and GPUs of a host."""
    most = max((table.gpus_per_node for table in tables if table.nodes > 1), default=0)
    return [
        (table.nominal_gbytes_per_s / most, read_stated_nics(table), most)
        for table in tables
        if table.nodes > 1 and _has_rate(table) and table.gpus_per_node == most and not _is_within_rack(table)
    ]


def read_stated_nics(table: MeasuredTable) -> int:
    """Return the network ports of a node that a table states; 0 where it states none."""
    ports = _NICS.search(table.interconnect)
    return int(ports[1]) if ports else 0


def _is_within_rack(table: MeasuredTable) -> bool:
    """Whether a table of several trays names the rate of NVLinks, as it does inside of one rack."""
    return _is_rack(table) and table.gpus_per_node * table.nodes <= 72


def get_unit_gbytes(system: System) -> float:
    """Return what one unit of a system's bandwidths is in bytes per ns."""
    return UNITS[str(system.network.get(UNIT, NETWORK_UNIT))] / 1e9
