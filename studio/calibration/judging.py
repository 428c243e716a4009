"""Measured tables held against simulated times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from studio.calibration.machines import (
    Machine,
    build_machine_shape,
    choose_machine,
    group_by_machine,
    match_system,
)
from studio.calibration.measures import Errors, compute_errors
from studio.calibration.tables import Float64, MeasuredTable
from studio.sim.costs.shapes import compute_comm_sizes
from studio.sim.systems import System

CLASSES: Mapping[str, str] = {
    "fitted": "the system was fitted to this very table, at these sizes",
    "may be fitted": "the table names no machine, and one of as many of these GPUs, this collective and these sizes was fitted: maybe this one",
    "other sizes": "the system was fitted to this collective on these GPUs, at other sizes",
    "other collective or count": "the system was fitted to this machine on as many nodes, another collective or number of GPUs",
    "other nodes": "the system was fitted to this machine on other numbers of nodes",
    "other machine": "the system was fitted to other machines of its family",
    "data sheet": "the system was fitted to nothing",
}
"""What a table is to the system it is judged on."""
FEWEST_SIZES = 5
"""Tables of fewer sizes are reported and not counted."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One table, measured and simulated.

    S sizes.

    Attributes:
        table: The table.
        system: The system it was simulated on.
        relation: What the table is to the system (`CLASSES`).
        simulated_us: (S,) simulated times.
        uncorrected_us: (S,) those without residual curves.
        choices: (S,) algorithm and protocol that were simulated.
        extrapolated: (S,) whether a size, or the whole table, lies outside of what the system was fitted to.
        errors: How far the simulated times are off.
        uncorrected: How far those without residual curves are.
        reported: Why the table is reported and not counted; "" where it counts.
    """

    table: MeasuredTable
    system: str
    relation: str
    simulated_us: Float64
    uncorrected_us: Float64
    choices: tuple[str, ...]
    extrapolated: np.ndarray
    errors: Errors
    uncorrected: Errors
    reported: str = ""

    @property
    def gate_gmf(self) -> float:
        """What `--max-error` bounds: the GMF, of a fitted table that without residual curves, which repeat its times, noise too."""
        return (self.uncorrected if self.relation == "fitted" else self.errors).gmf


def judge(table: MeasuredTable, machine: Machine, relation: str | None = None) -> Judgement:
    """Return a table's times on a machine, simulated, beside the measured ones.

    A collective alone on its network takes what the cost model charges; that is what a simulation of it takes too, where the benchmark
    had a thread or process a GPU, as jobs have.

    Args:
        table: The table.
        machine: What it is judged on.
        relation: What the table is to the system; None reads it from the system's calibration.
    """
    shape = build_machine_shape(machine.ports, table)
    sizes = compute_comm_sizes(table.collective, table.size_bytes, shape.ranks)
    charge, plain = (
        machine.costs.charge(
            table.collective,
            sizes,
            shape,
            machine.ports,
            corrected=corrected,
            gpus_per_thread=table.gpus_per_thread,
        )
        for corrected in (True, False)
    )
    simulated, uncorrected = charge.total_ns / 1e3, plain.total_ns / 1e3
    return Judgement(
        table=table,
        system=machine.system.name,
        relation=relation or classify_table(machine.system, table),
        simulated_us=simulated,
        uncorrected_us=uncorrected,
        choices=tuple(charge.choices[choice] for choice in charge.choice),
        extrapolated=charge.extrapolated,
        errors=compute_errors(table.size_bytes, simulated, table.time_us),
        uncorrected=compute_errors(table.size_bytes, uncorrected, table.time_us),
        reported=explain_reported(table),
    )


def judge_all(tables: Sequence[MeasuredTable], named: str | None) -> tuple[list[Judgement], list[str]]:
    """Return every table's judgement on one system, or each on the built-in system that its hardware names.

    Returns:
        The judgements, in the order of the tables, and notes on what was assumed.

    Raises:
        ConfigError: There is no such system, or none for a table's hardware.
    """
    notes: list[str] = []
    judged: dict[str, Judgement] = {}
    for own in group_by_machine(tables).values():
        machine = choose_machine(own, named)
        about = f"{own[0].machine or own[0].table_id}: "
        # A table of no named machine is called by its hardware, with which some notes begin.
        notes += [about + note.removeprefix(about) for note in machine.notes]
        judged |= {table.table_id: judge(table, machine) for table in own}
    return [judged[table.table_id] for table in tables], notes


def classify_table(system: System, table: MeasuredTable) -> str:
    """Return what a table is to the system it is judged on (`CLASSES`)."""
    entries = list_calibration_tables(system)
    if not entries:
        return "data sheet"
    own = [entry for entry in entries if entry.get("machine") == table.machine]
    if not own:
        alike = _is_unnamed(table, system) and any(
            _has_sizes(entry, table) for entry in _select_alike(entries, table)
        )
        return "may be fitted" if alike else "other machine"
    for entry in _select_alike(own, table):
        return "fitted" if _has_sizes(entry, table) else "other sizes"
    return classify_gap(table, [int(entry.get("nodes", 0)) for entry in own])  # type: ignore[call-overload]


def _select_alike(
    entries: Sequence[Mapping[str, object]], table: MeasuredTable
) -> list[Mapping[str, object]]:
    """Return the fitted tables of the same collective on as many GPUs and nodes."""
    setup = (table.collective, table.gpus_per_node, table.nodes)
    return [
        entry
        for entry in entries
        if (entry.get("collective"), entry.get("gpus-per-node"), entry.get("nodes")) == setup
    ]


def _has_sizes(entry: Mapping[str, object], table: MeasuredTable) -> bool:
    return set(map(float, entry.get("sizes", ()))).issuperset(table.size_bytes.tolist())  # type: ignore[call-overload]


def _is_unnamed(table: MeasuredTable, system: System) -> bool:
    """Whether a table tells its machine by nothing but the hardware, and that is the system's."""
    match = match_system(table.hardware) if table.machine == table.hardware else None
    # What was fitted is kept without its times, so that only a name tells one machine from another.
    built_in = match.family if match is not None else None
    return built_in is not None and system.family is not None and built_in.devices == system.family.devices


def classify_gap(table: MeasuredTable, nodes: Sequence[int]) -> str:
    """Return what a table of a fitted machine is whose own collective and GPUs were not fitted.

    Args:
        table: The table.
        nodes: Numbers of nodes that were fitted.
    """
    return "other collective or count" if table.nodes in nodes else "other nodes"


def list_calibration_tables(system: System) -> list[Mapping[str, object]]:
    """Return what a system's calibration says of each table it was fitted to."""
    tables = system.calibration.get("tables", ())
    return (
        [entry for entry in tables if isinstance(entry, Mapping)] if isinstance(tables, list | tuple) else []
    )


# ---------------------------------------------------------------------------------------------------
# Tables that no model can meet

_NOT_COUNTED = (
    (
        "abci_",
        "broadcast",
        1,
        "times of small sizes are the rate of back-to-back calls, not of the data's arrival",
    ),
    ("vidur_", "", 1, "medians of a few runs at a resolution of 1 µs, with single outliers"),
    ("alps_", "", 2, "repeats of one setup differ by 21 to 44 %"),
    ("polaris_", "", 1, "variants of library and network settings, numbered in the source"),
)
"""Beginning of the name, collective, fewest nodes, and why; as the sources and the spread of repeats say."""


def explain_reported(table: MeasuredTable) -> str:
    """Return why a table is reported and not counted; "" where it counts."""
    if len(table.size_bytes) < FEWEST_SIZES:
        return f"fewer than {FEWEST_SIZES} sizes"
    for start, collective, nodes, why in _NOT_COUNTED:
        if table.table_id.startswith(start) and collective in ("", table.collective) and table.nodes >= nodes:
            return why
    return ""
