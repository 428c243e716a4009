"""Splits: a machine is fitted on a part of its tables, and judged by the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from studio.calibration.fit import fit
from studio.calibration.judging import Judgement, classify_gap, explain_reported, judge
from studio.calibration.machines import Machine, choose_machine, group_by_machine
from studio.calibration.tables import MeasuredTable
from studio.errors import ConfigError
from studio.sim.costs import CostModel

SPLITS = ("sizes", "table", "nodes", "machine")
"""What is left out: every second size of each table; one table after the other; all tables of a number of nodes; the machine."""
Starts = Mapping[str, CostModel]
"""What fits begin with, by machine."""
Progress = Callable[[str, int, int], None]


def judge_split(
    tables: Sequence[MeasuredTable],
    split: str,
    named: str | None,
    *,
    starts: Starts | None = None,
    progress: Progress | None = None,
) -> tuple[list[Judgement], list[str]]:
    """Return the judgements of what is left out of fits.

    Args:
        tables: Of any number of machines.
        split: One of `SPLITS`.
        named: What fits begin with; None takes the built-in system that the hardware names.
        starts: Costs that fits begin with, by machine, in place of the defaults of their libraries.
        progress: Told how many machines are done.

    Returns:
        The judgements and notes.

    Raises:
        ConfigError: Nothing is left to fit or to judge.
    """
    judged: list[Judgement] = []
    notes: list[str] = []
    machines = group_by_machine(tables)
    whole = {table.table_id: table for table in tables}
    for number, (name, own) in enumerate(machines.items()):
        if progress:
            progress("fitting", number, len(machines))
        start = from_data_sheet(choose_machine(own, named), None if starts is None else starts.get(name))
        notes += [f"{name or own[0].table_id}: {note}" for note in start.notes]
        parts = list(_split_tables(own, split))
        if not parts:
            notes.append(f"{name or own[0].table_id}: nothing to fit once {_LEFT_OUT[split]} is left out.")
        for fitted, left in parts:
            machine = fit_machine(fitted, start) if fitted else start
            judged += [
                _judge_part(table, whole, machine, _classify_table(split, table, fitted)) for table in left
            ]
    if progress:
        progress("fitting", len(machines), len(machines))
    if not judged:
        raise ConfigError(f"No table can be judged: {' '.join(notes)}", hint="Give more tables of a machine.")
    return judged, notes


def _judge_part(
    table: MeasuredTable, whole: Mapping[str, MeasuredTable], machine: Machine, relation: str
) -> Judgement:
    """Judge a part of a table; whether it counts follows from the whole."""
    return replace(judge(table, machine, relation), reported=explain_reported(whole[table.table_id]))


_LEFT_OUT = {
    "sizes": "every second size",
    "table": "the table",
    "nodes": "a number of nodes",
    "machine": "the machine",
}


def from_data_sheet(machine: Machine, defaults: CostModel | None = None) -> Machine:
    """Return a machine as data sheets describe it: what was fitted to any tables is forgotten.

    Args:
        machine: The machine.
        defaults: What holds where nothing is fitted; None takes the library's own defaults.
    """
    own = machine.costs
    plain = CostModel(library=own.library, transport=own.transport) if defaults is None else defaults
    return replace(
        machine, costs=replace(plain, wiring=own.wiring, algorithm=own.algorithm, protocol=own.protocol)
    )


def select_every_second(table: MeasuredTable, first: int) -> MeasuredTable:
    """Return a table of every second of its sizes.

    Args:
        table: The table.
        first: 0 begins with the smallest size, 1 with the next.
    """
    order = np.argsort(table.size_bytes, kind="stable")[first::2]
    choices = tuple(table.choices[place] for place in order) if table.choices else ()
    return replace(table, size_bytes=table.size_bytes[order], time_us=table.time_us[order], choices=choices)


def _split_tables(
    tables: Sequence[MeasuredTable], split: str
) -> Iterator[tuple[list[MeasuredTable], list[MeasuredTable]]]:
    """Yield pairs of tables: those to fit, and those to judge the fit on."""
    if split == "machine":
        yield [], list(tables)
    elif split == "sizes":
        several = [table for table in tables if len(table.size_bytes) > 1]
        if several:
            yield (
                [select_every_second(table, 0) for table in several],
                [select_every_second(table, 1) for table in several],
            )
    elif split == "nodes":
        for nodes in sorted({table.nodes for table in tables}):
            others = [table for table in tables if table.nodes != nodes]
            if others:
                yield others, [table for table in tables if table.nodes == nodes]
    else:
        for table in tables if len(tables) > 1 else ():
            yield [other for other in tables if other is not table], [table]


def _classify_table(split: str, table: MeasuredTable, fitted: Sequence[MeasuredTable]) -> str:
    if not fitted:
        return "data sheet"
    return "other sizes" if split == "sizes" else classify_gap(table, [other.nodes for other in fitted])


def fit_machine(tables: Sequence[MeasuredTable], start: Machine) -> Machine:
    """Return a machine fitted to tables.

    Raises:
        ConfigError: There are no times to fit to.
    """
    fitted = fit(tables, start.costs, start.ports)
    return replace(start, costs=fitted.costs, ports=fitted.ports)
