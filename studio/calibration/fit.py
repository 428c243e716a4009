"""Fit a cost model to the measured tables of one machine, and say what it is worth.

The tables of all collectives, groups and node counts are fitted together. Where they say little, the parameters stay near
the defaults of the GPU generation (`studio.calibration.prior`), so that few tables give a sane answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from studio.calibration.design import Design, build_design, build_group_shape, choose_ways
from studio.calibration.prior import build_precision
from studio.calibration.residuals import Outlier, build_curves, find_outliers
from studio.calibration.solve import Solution, solve
from studio.calibration.tables import MeasuredTable
from studio.errors import ConfigError
from studio.sim.costs.library import LIBRARIES
from studio.sim.costs.model import KINDS, CostModel, Range
from studio.sim.costs.parameters import NAMES
from studio.sim.costs.shapes import Float64, Ports, compute_comm_sizes, compute_rate_between

_CERTAIN = 1.96
"""Standard deviations of a 95 % interval."""
_WEAK = 0.15
"""A direction of the parameters counts as unknown where the tables tell less about it than the defaults do."""
_MOST_NAMED = 0.35
_PASSES = 3
_LEAST_OWN = 0.01
"""What is left of a measured time, as a share of the modelled one, where the latency that the network states takes more than all of it."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A cost model fitted to tables.

    Attributes:
        costs: The model, with the residual curves and the range it holds in.
        ports: The network; its rates are raised where measured times pass them.
        intervals: 95 % interval of each fitted parameter.
        inseparable: Parameters that these tables cannot tell apart, or say nothing about.
        outliers: Times that lie far from those of their neighbours in size.
        notes: What else the fit found, in sentences.
    """

    costs: CostModel
    ports: Ports
    intervals: Mapping[str, tuple[float, float]]
    inseparable: tuple[tuple[str, ...], ...]
    outliers: tuple[Outlier, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says of a table. S sizes.

    Attributes:
        time_us: (S,) times.
        extrapolated: (S,) whether the model was not fitted to such a size or group.
        latency_us: (S,) the part of the times that is the latency of the network.
        ways: (S,) algorithm and protocol taken.
    """

    time_us: Float64
    extrapolated: npt.NDArray[np.bool_]
    latency_us: Float64
    ways: tuple[str, ...]


def predict(costs: CostModel, ports: Ports, table: MeasuredTable, *, corrected: bool = True) -> Prediction:
    """Return what a model says of a table's sizes, with or without residual curves."""
    shape = build_group_shape(table, ports)
    sizes = compute_comm_sizes(table.collective, table.size_bytes, shape.ranks)
    charge = costs.charge(
        table.collective, sizes, shape, ports, corrected=corrected, gpus_per_thread=table.gpus_per_thread
    )
    ways = tuple(charge.choices[taken] for taken in charge.choice)
    return Prediction(charge.total_ns / 1000, charge.extrapolated, charge.latency_ns / 1000, ways)


def fit(tables: Sequence[MeasuredTable], costs: CostModel, ports: Ports) -> Fitted:
    """Fit the parameters of one machine to its tables.

    Args:
        tables: Tables of one machine.
        costs: Where to start: the library, what is forced, NICs; its values are what is expected where tables say nothing.
        ports: The network, with the rates of data sheets.

    Raises:
        ConfigError: There are no times to fit to.
    """
    used = [_select_positive(table) for table in tables if table.collective in KINDS]
    used = _select_telling([table for table in used if len(table.size_bytes)])
    if not used:
        raise ConfigError(
            "There is no measured time to fit to.",
            key="tables",
            allowed="tables of collectives",
            hint=f"Give tables with times of {', '.join(KINDS)}.",
        )
    ports, notes = _raise_ports(used, costs, ports)
    start = replace(costs, curves=(), fitted=None)
    notes = (*notes, *(note for table in used if (note := _describe_other_choices(start, table, ports))))
    plan, solution = _solve_fit(start, used, ports)
    determined = _find_determined(plan)
    fitted = replace(
        start, values=_collect_values(start, solution, determined), fitted=_build_range(used, ports)
    )
    firm = build_precision(start.library, one_network=True)
    plain = [predict(fitted, ports, table, corrected=False) for table in used]
    outliers = find_outliers(used, [modelled.time_us for modelled in plain])
    curves = build_curves(
        [_subtract_latency(table, modelled) for table, modelled in zip(used, plain, strict=True)],
        [modelled.time_us - modelled.latency_us for modelled in plain],
        [build_group_shape(table, ports) for table in used],
        outliers,
    )
    return Fitted(
        costs=replace(fitted, curves=curves),
        ports=ports,
        intervals=_compute_intervals(solution, firm, [name for name in NAMES if determined[name]]),
        inseparable=_find_inseparable(solution, firm, determined),
        outliers=outliers,
        notes=notes,
    )


def _subtract_latency(table: MeasuredTable, modelled: Prediction) -> MeasuredTable:
    """Return a table without the latency that the network states, which no curve corrects."""
    least = _LEAST_OWN * (modelled.time_us - modelled.latency_us)
    return replace(table, time_us=np.maximum(table.time_us - modelled.latency_us, least))


def _solve_fit(start: CostModel, tables: Sequence[MeasuredTable], ports: Ports) -> tuple[Design, Solution]:
    """Return the fit; where the library chooses by what is reached, repeated with the choice that the fit leads to."""
    times = np.concatenate([table.time_us for table in tables]) * 1000
    expected = np.log([start.value(name) for name in NAMES])
    chooser = start
    for _ in range(count_passes(start)):
        plan = build_design(chooser, tables, ports)
        solution = solve(plan, times, expected, build_precision(start.library, one_network=True))
        chooser = replace(start, values=_collect_values(start, solution, _find_determined(plan)))
    return plan, solution


def count_passes(start: CostModel) -> int:
    """Return how often a fit is repeated: more than once where what is fitted decides which ways are taken."""
    return _PASSES if LIBRARIES[start.library].searches or start.choice == "least" else 1


def _collect_values(start: CostModel, solution: Solution, determined: Mapping[str, bool]) -> dict[str, float]:
    """Return the parameters that the tables tell of, or that moved with those, and what the start had set."""
    values = {name: float(np.exp(log)) for name, log in zip(NAMES, solution.logs, strict=True)}
    moved = {name for name in NAMES if determined[name] or abs(values[name] / start.value(name) - 1) > 1e-3}
    return {**start.values, **{name: values[name] for name in NAMES if name in moved}}


def _select_telling(tables: Sequence[MeasuredTable]) -> list[MeasuredTable]:
    """Return the tables from which the time of hops between nodes is fitted: broadcasts and reduces only where there are no others.

    Their root goes on to the next call before the last rank has the data, so that benchmarks print the rate of calls.
    """
    waiting = [
        table for table in tables if table.nodes == 1 or table.collective not in ("broadcast", "reduce")
    ]
    return waiting or list(tables)


def _select_positive(table: MeasuredTable) -> MeasuredTable:
    kept = (table.size_bytes > 0) & (table.time_us > 0) & np.isfinite(table.time_us)
    order = np.flatnonzero(kept)[np.argsort(table.size_bytes[kept], kind="stable")]
    choices = tuple(table.choices[place] for place in order) if table.choices else ()
    return replace(table, size_bytes=table.size_bytes[order], time_us=table.time_us[order], choices=choices)


def _raise_ports(
    tables: Sequence[MeasuredTable], costs: CostModel, ports: Ports
) -> tuple[Ports, tuple[str, ...]]:
    """Raise rates that measured times pass: a data sheet, or a guess at one, was too low."""
    notes = []
    for table in tables:
        shape = build_group_shape(table, ports)
        ways = costs.possible(table.collective, shape, ports)
        per_ns = float(np.max(table.size_bytes / (table.time_us * 1000)))
        inside = min(way.inside for way in ways) * per_ns
        sent = min(way.between for way in ways) * per_ns
        if inside > ports.inside:
            notes.append(
                f"{table.table_id} passes {ports.inside:.6g} bytes/ns inside a node: raised to {inside:.6g}."
            )
            ports = replace(ports, inside=inside)
        used = compute_rate_between(ports, shape.per_node, costs.wiring.nics)
        if shape.nodes > 1 and sent > used > 0:
            raised = ports.between * sent / used
            notes.append(
                f"{table.table_id} passes {ports.between:.6g} bytes/ns a GPU between nodes: raised to {raised:.6g}."
            )
            ports = replace(ports, between=raised)
    return ports, tuple(notes)


def _describe_other_choices(costs: CostModel, table: MeasuredTable, ports: Ports) -> str:
    """Return a note where the kernels of a recording are of another algorithm than the library is expected to take; "" elsewhere."""
    shape = build_group_shape(table, ports)
    ways = costs.possible(table.collective, shape, ports)
    expected = costs.choose(table.collective, table.size_bytes, shape, ports, ways)
    taken = choose_ways(costs, table, shape, ports)
    other = int((expected != taken).sum())
    if not other:
        return ""
    names = sorted(
        {
            f"{ways[taken_way].name} for {ways[expected_way].name}"
            for taken_way, expected_way in zip(taken, expected, strict=True)
            if taken_way != expected_way
        }
    )
    return f"{table.table_id}: at {other} of {len(taken)} sizes kernels are named otherwise than expected: {', '.join(names)}."


def _find_determined(plan: Design) -> dict[str, bool]:
    """Return which parameters occur in the tables at all; the host calls for all of them."""
    used: Float64 = np.abs(plan.launch + plan.waits + plan.inside + plan.between).sum(axis=0)
    return {
        name: total > 0 or name == "host interval"
        for name, total in zip(plan.names, used.tolist(), strict=True)
    }


def _build_range(tables: Sequence[MeasuredTable], ports: Ports) -> Range:
    shapes = [build_group_shape(table, ports) for table in tables]
    sizes = np.concatenate([table.size_bytes for table in tables])
    return Range(
        kinds=tuple(sorted({table.collective for table in tables})),
        ranks=(min(shape.ranks for shape in shapes), max(shape.ranks for shape in shapes)),
        nodes=(min(shape.nodes for shape in shapes), max(shape.nodes for shape in shapes)),
        sizes=(float(sizes.min()), float(sizes.max())),
    )


def _compute_intervals(
    solution: Solution, firm: Float64, names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    covariance = np.linalg.inv(solution.information + firm)
    places = {name: place for place, name in enumerate(NAMES)}
    intervals = {}
    for name in names:
        place = places[name]
        log, apart = solution.logs[place], _CERTAIN * float(np.sqrt(covariance[place, place]))
        high = float(np.exp(log + apart))
        intervals[name] = (
            float(np.exp(log - apart)),
            min(high, 1.0) if name.startswith("efficiency") else high,
        )
    return intervals


def _find_inseparable(
    solution: Solution, firm: Float64, determined: Mapping[str, bool]
) -> tuple[tuple[str, ...], ...]:
    """Return groups of parameters along which the times hardly change: near-singular directions of the Jacobian."""
    rows = [place for place, name in enumerate(NAMES) if determined[name]]
    names = [NAMES[place] for place in rows]
    spread = np.sqrt(np.diag(np.linalg.inv(firm)))[rows]
    scaled = solution.information[np.ix_(rows, rows)] * np.outer(spread, spread)
    strength, directions = np.linalg.eigh(scaled)
    groups: list[tuple[str, ...]] = []
    for value, direction in zip(strength, directions.T, strict=True):
        if value < _WEAK:
            group = tuple(
                name for name, share in zip(names, direction, strict=True) if abs(share) > _MOST_NAMED
            )
            if group and group not in groups:
                groups.append(group)
    return tuple(groups)


def infer_library(hardware: str) -> str:
    """Return the library of a machine by the name of its GPU: `nccl-hopper` where nothing is known.

    Example:
        >>> infer_library("NVIDIA A100-SXM4-40GB"), infer_library("AMD Instinct MI300X"), infer_library("NVIDIA L40S")
        ('nccl-ampere', 'rccl', 'nccl-pcie')
    """
    for part, library in _LIBRARY_OF.items():
        if part.lower() in hardware.lower():
            return library
    return "nccl-hopper"


_LIBRARY_OF: Mapping[str, str] = {
    "PCIe": "nccl-pcie",
    "RTX": "nccl-pcie",
    "L40": "nccl-pcie",
    "L4": "nccl-pcie",
    "A40": "nccl-pcie",
    "B300": "nccl-blackwell",
    "B200": "nccl-blackwell",
    "B100": "nccl-blackwell",
    "H100": "nccl-hopper",
    "H200": "nccl-hopper",
    "H800": "nccl-hopper",
    "H20": "nccl-hopper",
    "A100": "nccl-ampere",
    "A800": "nccl-ampere",
    "V100": "nccl-volta",
    "Instinct": "rccl",
    "MI3": "rccl",
    "MI2": "rccl",
}
assert set(_LIBRARY_OF.values()) <= set(LIBRARIES)
