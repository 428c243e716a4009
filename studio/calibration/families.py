"""Fit the costs of a family of systems to the tables of all its machines at once, and say how far they are off.

What one machine's tables cannot tell the other's may. Machines keep their own ports: those that their tables state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from studio.calibration.design import Design, build_design
from studio.calibration.fit import count_passes
from studio.calibration.judging import Judgement, explain_reported, judge
from studio.calibration.machines import (
    Machine,
    build_machine_shape,
    build_ports,
    describe,
    group_by_machine,
    match_system,
    read_stated_nics,
)
from studio.calibration.measures import compute_quantile, round_figure
from studio.calibration.prior import WIDER, build_precision
from studio.calibration.solve import solve
from studio.calibration.tables import MeasuredTable, build_measured_entry
from studio.sim.costs import CostModel
from studio.sim.costs.model import KINDS, Range
from studio.sim.costs.parameters import NAMES, get_factor
from studio.sim.systems import System

_DIGITS = 5
_WIDEN = 0.25
"""How far the parameters of a family may lie from those of its generation, in units of what those of one machine do: what
predicts a machine best that is left out (medians of GMF, mean of six families: 18.9 % at 0.5, 18.2 % at 0.35, 17.5 % at
0.25). Twice as far where the machines of a library differ more (RTX PRO 6000 and 2080 Ti: 6 and 11 % at 0.5, 13 and 19 % at
0.25); as far as those of one machine where a family has one only."""
_RING = re.compile(r"\bring\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FamilyFit:
    """The costs of a family, and what they are worth.

    Attributes:
        costs: The model.
        tables: What it was fitted to.
        judged: Every one of these tables, by the model.
        unseen: The same tables, each by a fit to the other machines; where there is one machine, to its other tables.
    """

    costs: CostModel
    tables: tuple[MeasuredTable, ...]
    judged: tuple[Judgement, ...]
    unseen: tuple[Judgement, ...]


def select_family_tables(system: System, tables: Sequence[MeasuredTable]) -> list[MeasuredTable]:
    """Return the tables that were measured on machines of a family, without those whose times no model can meet."""
    return [
        table
        for table in tables
        if (own_system := match_system(table.hardware)) is not None
        and own_system.name == system.name
        and table.collective in KINDS
        and not _is_spoilt(table)
        and not _shares_ports(system, table)
    ]


def _is_spoilt(table: MeasuredTable) -> bool:
    """Whether a table says nothing of costs: it cannot be met, is read from a figure, or does not state its network's rate."""
    # Few sizes are few, and not wrong: they say what the ports reach.
    unmet = bool(explain_reported(table)) and not explain_reported(table).startswith("fewer")
    figure = "figure" in table.source.lower() or table.table_id.startswith("astrasim_fig_")
    return unmet or figure or (table.nodes > 1 and not table.nominal_gbytes_per_s > 0)


def _shares_ports(system: System, table: MeasuredTable) -> bool:
    """Whether GPUs of a table over several nodes share network ports, where those of the family have one each.

    What they reach of a port then is no property of the family: eight A100 with four ports reached a third of their rate.
    """
    family = system.family
    return (
        table.nodes > 1
        and family is not None
        and family.nics >= family.node
        and 0 < read_stated_nics(table) < table.gpus_per_node
    )


def fit_family(system: System, tables: Sequence[MeasuredTable]) -> FamilyFit:
    """Fit the costs of a family to its tables.

    Args:
        system: The family; what was fitted to it before is forgotten.
        tables: At least one.
    """
    own = group_by_machine(tables)
    machines = {name: build_machine(system, listed) for name, listed in own.items()}
    costs = _fit_costs(own, machines, _read_transport(system))
    judged = [
        judge(table, _apply_costs(machines[name], costs), "fitted")
        for name, listed in own.items()
        for table in listed
    ]
    return FamilyFit(
        costs, tuple(tables), tuple(judged), tuple(_judge_unseen(own, machines, _read_transport(system)))
    )


def build_machine(system: System, tables: Sequence[MeasuredTable]) -> Machine:
    """Return a machine of a family as data sheets and its own tables describe it, before any fit."""
    given = CostModel.from_table(system.costs or {}, f"{system.place}: costs")
    forced = all(_RING.search(table.interconnect) for table in tables)
    costs = CostModel(
        library=given.library,
        algorithm="ring" if forced else "auto",
        transport=given.transport,
        wiring=replace(given.wiring, nics=0),
    )
    return describe(Machine(system, costs, build_ports(system)), tables)


def _apply_costs(machine: Machine, costs: CostModel) -> Machine:
    """Return a machine with the costs of its family; its network, and what is forced, stay its own."""
    own = machine.costs
    built = replace(costs.over(own.transport), wiring=own.wiring, algorithm=own.algorithm)
    return replace(machine, costs=built)


def _read_transport(system: System) -> str:
    return CostModel.from_table(system.costs or {}, f"{system.place}: costs").transport


def _fit_costs(
    own: Mapping[str, Sequence[MeasuredTable]], machines: Mapping[str, Machine], transport: str
) -> CostModel:
    """Return the costs of a family with this transport; those of machines with another one differ by what transports do."""
    first = next(iter(machines.values())).costs
    start = CostModel(library=first.library, transport=transport, wiring=replace(first.wiring, nics=0))
    times = np.concatenate([_sort_sizes(table).time_us for listed in own.values() for table in listed]) * 1000
    expected = np.log([start.value(name) for name in NAMES])
    values: dict[str, float] = {}
    widen = _WIDEN * (2 if start.library in WIDER else 1) if len(own) > 1 else 1.0
    for _ in range(count_passes(start)):
        plan = _join_designs(
            [
                _convert_design(
                    transport,
                    machines[name].costs.transport,
                    build_design(
                        replace(machines[name].costs, values=values),
                        [_sort_sizes(table) for table in listed],
                        machines[name].ports,
                    ),
                )
                for name, listed in own.items()
            ]
        )
        solution = solve(plan, times, expected, build_precision(start.library, widen))
        logs = zip(NAMES, solution.logs, strict=True)
        fitted = {name: float(f"{np.exp(log):.{_DIGITS}g}") for name, log in logs}
        values = {name: value for name, value in fitted.items() if abs(value / start.value(name) - 1) > 1e-3}
    return replace(start, values=values, fitted=_build_range(own, machines))


def _convert_design(family: str, own: str, plan: Design) -> Design:
    """Return a design in terms of a family's parameters, of a machine that has another transport."""
    ratios = (
        np.array([get_factor(own, name) / get_factor(family, name) for name in plan.names]) ** plan.powers
    )
    return replace(plan, waits=plan.waits * ratios, between=plan.between * ratios)


def _sort_sizes(table: MeasuredTable) -> MeasuredTable:
    """Return a table of its usable sizes, rising."""
    usable = (table.size_bytes > 0) & (table.time_us > 0) & np.isfinite(table.time_us)
    order = np.flatnonzero(usable)[np.argsort(table.size_bytes[usable], kind="stable")]
    return replace(table, size_bytes=table.size_bytes[order], time_us=table.time_us[order])


def _join_designs(plans: Sequence[Design]) -> Design:
    """Return the designs of several machines as one."""
    first = plans[0]
    joined: dict[str, Any] = {}
    tables = np.cumsum([0, *(int(plan.table.max(initial=-1)) + 1 for plan in plans)])
    for field in fields(Design):
        values = [getattr(plan, field.name) for plan in plans]
        if field.name == "table":
            values = [value + start for value, start in zip(values, tables[:-1], strict=True)]
        joined[field.name] = (
            getattr(first, field.name) if field.name in ("names", "powers") else np.concatenate(values)
        )
    return Design(**joined)


def _build_range(own: Mapping[str, Sequence[MeasuredTable]], machines: Mapping[str, Machine]) -> Range:
    shapes = [
        build_machine_shape(machines[name].ports, table) for name, listed in own.items() for table in listed
    ]
    tables = [table for listed in own.values() for table in listed]
    sizes = np.concatenate([table.size_bytes for table in tables])
    return Range(
        tuple(sorted({table.collective for table in tables})),
        (min(shape.ranks for shape in shapes), max(shape.ranks for shape in shapes)),
        (min(shape.nodes for shape in shapes), max(shape.nodes for shape in shapes)),
        (float(sizes.min()), float(sizes.max())),
    )


def _judge_unseen(
    own: Mapping[str, Sequence[MeasuredTable]], machines: Mapping[str, Machine], transport: str
) -> list[Judgement]:
    """Judge each machine by a fit to the others, and of a single one each table by a fit to its others."""
    judged = []
    if len(own) > 1:
        for name, listed in own.items():
            others = {other: tables for other, tables in own.items() if other != name}
            machine = _apply_costs(machines[name], _fit_costs(others, machines, transport))
            judged += [judge(table, machine, "other machine") for table in listed]
        return judged
    [(name, listed)] = own.items()
    for table in listed:
        rest = [other for other in listed if other.table_id != table.table_id]
        if rest:
            machine = _apply_costs(machines[name], _fit_costs({name: rest}, machines, transport))
            judged.append(judge(table, machine, "other collective or count"))
    return judged


# ---------------------------------------------------------------------------------------------------
# As a system file has it


def build_calibration(family_fit: FamilyFit) -> dict[str, object]:
    """Return what a system file keeps of a fit: the tables, and the errors by class."""
    several = len({table.machine for table in family_fit.tables}) > 1
    left_out = "machine left out of the fit" if several else "table left out of the fit"
    across = {judgement.table.table_id: _crosses(judgement.table) for judgement in family_fit.judged}
    classes = {
        "in a node": [judgement for judgement in family_fit.judged if not across[judgement.table.table_id]],
        "across nodes": [judgement for judgement in family_fit.judged if across[judgement.table.table_id]],
        left_out: list(family_fit.unseen),
    }
    return {
        "made-by": "python -m benchmarks.fit_families",
        "tables": [_build_entry(table) for table in family_fit.tables],
        "errors": {name: _summarise_errors(judged) for name, judged in classes.items() if judged},
    }


def _crosses(table: MeasuredTable) -> bool:
    return table.nodes > 1 and not (
        "NVL72" in f"{table.interconnect} {table.hardware}" and table.gpus_per_node * table.nodes <= 72
    )


def _build_entry(table: MeasuredTable) -> dict[str, object]:
    return {
        "table_id": table.table_id,
        "machine": table.machine,
        **build_measured_entry(table),
    }


def _summarise_errors(judged: Sequence[Judgement]) -> dict[str, object]:
    """Return the errors of tables together; those of few sizes count where there are no others."""
    counted = [judgement for judgement in judged if not judgement.reported] or list(judged)
    gmf = [judgement.errors.gmf for judgement in counted]
    sizes = [float(size) for judgement in judged for size in judgement.table.size_bytes]
    ranks = [judgement.table.gpus_per_node * judgement.table.nodes for judgement in judged]
    return {
        "gmf": round_figure(compute_quantile(gmf, 0.5)),
        "gm_error": round_figure(compute_quantile([judgement.errors.gm_error for judgement in counted], 0.5)),
        "gmf-nine-of-ten": round_figure(compute_quantile(gmf, 0.9)),
        "tables": len(counted),
        "sizes": [int(min(sizes)), int(max(sizes))],
        "ranks": [min(ranks), max(ranks)],
    }
