"""Which machine tables are of, which system describes it, and what the tables say of its ports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.calibration.tables import MeasuredTable
from studio.errors import ConfigError
from studio.sim.costs import CostModel, Ports
from studio.sim.network import UNIT, UNITS
from studio.sim.settings import NETWORK_UNIT
from studio.sim.systems import SYSTEMS, System, find_system

_LISTED = 12
_NICS = re.compile(r"\b(\d+)\s*x\s+(?=\w)")
_MESH = re.compile(r"\bmesh of (\d+)\b")


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


def machines_of(tables: Sequence[MeasuredTable]) -> dict[str, list[MeasuredTable]]:
    """Return the tables by machine, in order of first appearance; tables that name none join the only machine there is."""
    found: dict[str, list[MeasuredTable]] = {}
    for table in tables:
        found.setdefault(table.machine, []).append(table)
    if "" in found and len(found) == 2:
        [other] = [name for name in found if name]
        return {other: [table for table in tables if table.machine in ("", other)]}
    return found


def pick_machine(tables: Sequence[MeasuredTable], name: str | None) -> list[MeasuredTable]:
    """Return the tables of one machine.

    Args:
        tables: Of one machine or several.
        name: Which; needed where there are several.

    Raises:
        ConfigError: There are several machines and none is named, or there is none of this name; lists them.
    """
    found = machines_of(tables)
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is not None and name in found:
        return found[name]
    names = [machine or "(no name)" for machine in found]
    listed = ", ".join(names[:_LISTED]) + (f", and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    if name is None:
        raise ConfigError(
            f"The tables are of {len(found)} machines: {listed}; allowed: one machine a file",
            hint=f"Pick one with --machine, such as --machine {next(iter(found))}.",
            key="machine",
        )
    from studio.sim.fields import nearest

    near = nearest(name, tuple(found))
    raise ConfigError(
        f"--machine is {name!r}; allowed: {listed}",
        hint=f"The nearest is {near!r}." if near else "A machine is called by what stands before _n<nodes> in its tables.",
        key="machine",
    )


def system_for(hardware: str) -> System | None:
    """Return the built-in system whose NPUs a table's hardware names; the longest name counts. None where none does.

    Example:
        >>> found = system_for("NVIDIA H100 80GB HBM3 (Nebius)")
        >>> found.name if found else None
        'hgx-h100'
    """
    text = _plain(hardware)
    best: tuple[int, System] | None = None
    for system in SYSTEMS.values():
        for device in system.family.devices if system.family else ():
            words = _plain(device)
            # Whole words: GB200 is no B200.
            if re.search(rf"(?<![a-z0-9]){re.escape(words)}(?![a-z0-9])", text) and (best is None or len(words) > best[0]):
                best = (len(words), system)
    return None if best is None else best[1]


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.lower())


def machine_for(tables: Sequence[MeasuredTable], named: str | None, *, nominal: bool = True) -> Machine:
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
        found = system_for(hardware)
        if found is None:
            what = f"the hardware {hardware!r}" if hardware else "tables that do not name their hardware"
            raise ConfigError(
                f"There is no built-in system for {what}",
                hint="Name one with --preset or --system; `chakra-studio presets` lists them.",
                key="preset",
            )
        system = found
        notes.append(f"{hardware}: taken to be {system.name}; --system or --preset names another.")
    costs = CostModel.from_table(system.costs or {}, f"{system.place}: costs")
    ports = ports_of(system)
    machine = Machine(system, costs, ports, tuple(notes))
    return describe(machine, tables) if nominal and not is_calibrated(system) else machine


def is_calibrated(system: System) -> bool:
    """Whether a system was fitted to a machine's own tables, so that its ports are that machine's."""
    return bool(system.calibration.get("machine"))


def ports_of(system: System) -> Ports:
    """Return what the ports of an NPU of a whole node can do.

    Raises:
        ConfigError: The system has no dimensions, but links written down one by one.
    """
    from studio.sim.parts import interpret
    from studio.sim.charges import network_ports

    family = system.family
    node = family.node if family else 0
    npus = None
    if family is not None and not family.torus:
        npus = node * 2 if family.fits(node * 2) else node
    return network_ports(interpret(system.parts(npus)).config.topology)


def describe(machine: Machine, tables: Sequence[MeasuredTable]) -> Machine:
    """Return a machine with the nominal rates, ports of a node and GPUs of a node that its tables state.

    A preset describes a class of machines; how many GPUs and network ports a node of this one has, and what they carry,
    stands in its tables and is no measurement.
    """
    ports, costs, notes = machine.ports, machine.costs, list(machine.notes)
    node = _gpus_of_a_node(tables, ports.per_node)
    if node != ports.per_node:
        between = ports.between * ports.per_node / node if not _stated_between(tables) else ports.between
        ports = replace(ports, per_node=node, between=between)
        notes.append(f"Nodes of {node} GPUs, as the tables say.")
    inside = [table.nominal_gbytes_per_s for table in tables if table.nodes == 1 and _has_rate(table)]
    if inside and max(inside) != ports.inside:
        ports = replace(ports, inside=max(inside))
        notes.append(f"{max(inside):g} GB/s a GPU inside a node, as the tables say.")
    stated = _stated_between(tables)
    if stated:
        rate, nics = max(stated)
        share = rate / node
        if not np.isclose(share, ports.between):
            notes.append(f"{rate:g} GB/s a node to other nodes, as the tables say.")
        ports = replace(ports, between=share)
        if nics and nics != (costs.nics or node):
            costs = replace(costs, nics=0 if nics == node else nics)
            notes.append(f"{nics} network ports a node, as the tables say.")
    return replace(machine, ports=ports, costs=costs, notes=tuple(notes))


def _has_rate(table: MeasuredTable) -> bool:
    return bool(table.nominal_gbytes_per_s > 0)


def _is_rack(table: MeasuredTable) -> bool:
    return "NVL72" in f"{table.interconnect} {table.hardware}"


def _gpus_of_a_node(tables: Sequence[MeasuredTable], usual: int) -> int:
    """Return the GPUs of a node of the tables' machine; several nodes are only used once one is full."""
    if any(_is_rack(table) for table in tables):
        return usual
    said = [int(found[1]) for table in tables if (found := _MESH.search(table.interconnect))]
    full = [table.gpus_per_node for table in tables if table.nodes > 1 and table.gpus_per_node > 1]
    most = max(table.gpus_per_node for table in tables)
    return max([most, *said, *full]) if said or full else max(usual, most)


def _stated_between(tables: Sequence[MeasuredTable]) -> list[tuple[float, int]]:
    """Return the rates to other nodes that tables state for a whole node, with the number of ports where stated."""
    most = max((table.gpus_per_node for table in tables if table.nodes > 1), default=0)
    found = []
    for table in tables:
        if table.nodes > 1 and _has_rate(table) and table.gpus_per_node == most and not _within_rack(table):
            ports = _NICS.search(table.interconnect)
            found.append((table.nominal_gbytes_per_s, int(ports[1]) if ports else 0))
    return found


def _within_rack(table: MeasuredTable) -> bool:
    """Whether a table of several trays names the rate of NVLinks, as it does inside of one rack."""
    return _is_rack(table) and table.gpus_per_node * table.nodes <= 72


def nics_stated(tables: Sequence[MeasuredTable]) -> int:
    """Return the network ports of a node that tables state; 0 where they state none."""
    return max((nics for _, nics in _stated_between(tables)), default=0)


def unit_gbytes(system: System) -> float:
    """Return what one unit of a system's bandwidths is in bytes per ns."""
    return UNITS[str(system.network.get(UNIT, NETWORK_UNIT))] / 1e9
