"""How near the cost model comes to measured tables that it was not fitted to, and where its defaults come from.

    python -m benchmarks.accuracy TABLES.csv            # the four splits, by class
    python -m benchmarks.accuracy TABLES.csv --each     # with every table
    python -m benchmarks.accuracy TABLES.csv --learn    # prints studio/sim/costs/defaults.py

The splits: A, every second size of a table is fitted and the others are judged; B, a table is judged by the other tables of
its machine, of which one at least has as many nodes; C, by tables of the machine with other node counts; D, from data
sheets and the defaults of the GPU generation, which are learnt without that machine's tables in B, C and D alike.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from studio.calibration.design import Design, build_design
from studio.calibration.fit import fit, infer_library, predict
from studio.calibration.machines import infer_transport
from studio.calibration.prior import build_precision
from studio.calibration.solve import solve
from studio.calibration.tables import MeasuredTable, read_csv
from studio.sim.costs.library import LIBRARIES
from studio.sim.costs.model import CostModel
from studio.sim.costs.parameters import GENERAL, NAMES, TRANSPORTS
from studio.sim.costs.shapes import Float64, Ports

INSIDE = {
    "2080 Ti": 15.75,
    "L40S": 31.5,
    "RTX PRO 6000": 63.0,
    "PCIe": 63.0,
    "MI355X": 537.6,
    "MI3": 448.0,
    "B300": 900.0,
    "B200": 900.0,
    "H100": 450.0,
    "H200": 450.0,
    "A100": 300.0,
    "V100": 150.0,
}
"""Data sheets: bytes per ns of a GPU's links inside a node, one direction."""
LATENCY_NS = (0.0, 0.0)
"""The hops of the cost model hold all latency, as in the built-in systems."""
RACK = 72
ODD = ("vidur", "h100y")
"""Machines whose network or times are not known well enough to learn defaults from."""
STUDENT = 20.0
"""Machines far from the others pull the defaults less: degrees of freedom."""


NOISE = 0.05
"""Times of a machine as those of its library, as a logarithm: versions, boards and ways of starting differ besides."""
LIBRARIES_LIE = 1.5
TRANSPORTS_LIE = 2.0
"""How far libraries and transports lie from what all have in common, in units of what machines of one library do."""
BETWEEN = np.array([place for place, name in enumerate(NAMES) if name.endswith(" between")])
REACHED = np.array([name.startswith("efficiency") for name in NAMES])


@dataclass(frozen=True, slots=True)
class Judged:
    """A table and what was said of it: both measures, in percent."""

    table: MeasuredTable
    gmf: float
    gm_error: float


def ports_of(tables: Sequence[MeasuredTable]) -> Ports:
    """Return the network of a machine, from data sheets and the stated rates."""
    first = tables[0]
    inside = next(rate for part, rate in INSIDE.items() if part in first.hardware)
    rack = any("NVL72" in table.interconnect for table in tables)
    shares = [table.nominal_gbytes_per_s / table.gpus_per_node for table in tables if table.nodes > 1]
    stated = [share for share in shares if np.isfinite(share)]
    between = 50.0 if rack or (shares and not stated) else max(stated, default=0.0)
    width = RACK if rack else max(table.gpus_per_node for table in tables)
    return Ports(inside, LATENCY_NS[0], between, LATENCY_NS[1], width)


def errors(modelled: Float64, measured: Float64) -> tuple[float, float]:
    """Return GMF and gm|e| in percent."""
    ratio = modelled / measured
    gmf = np.exp(np.mean(np.abs(np.log(ratio)))) - 1
    return 100 * float(gmf), 100 * float(np.exp(np.mean(np.log(np.maximum(np.abs(ratio - 1), 1e-4)))))


def counted(table: MeasuredTable) -> bool:
    """Return whether a table counts: not those that no model can meet."""
    name = table.table_id
    odd = (name.startswith("abci") and table.collective == "broadcast") or name.startswith(
        ("vidur", "polaris")
    )
    return len(table.size_bytes) >= 5 and not odd and not (name.startswith("alps") and table.nodes > 1)


def learnable(table: MeasuredTable) -> bool:
    """Return whether defaults may be learnt from a table."""
    name = table.table_id
    rates_of_calls = name.startswith("abci") and table.collective == "broadcast"
    single_link = name.startswith("astrasim_fig_v100")
    # What a network reaches of its rate cannot be told where the rate is not.
    unknown_rate = table.nodes > 1 and not np.isfinite(table.nominal_gbytes_per_s)
    odd = rates_of_calls or single_link or unknown_rate
    return len(table.size_bytes) >= 3 and not odd and not name.startswith(ODD)


class Defaults:
    """What holds for machines that were never measured: means of libraries and transports, each machine with its own deviation.

    A machine lies around the sum of what all have in common, what its library adds and, for parameters between nodes, what its
    transport adds, as `studio.calibration.prior` says. All three are found together; each machine counts by what its tables tell.
    """

    def __init__(self, machines: Mapping[str, Sequence[MeasuredTable]]) -> None:
        self.machines = machines
        self.weights: dict[str, float] = {}
        self.designs: dict[str, tuple[Design, Float64]] = {}
        self.general = np.log([GENERAL.get(name, GENERAL.get(name.partition(" ")[0], 1.0)) for name in NAMES])
        count = len(NAMES)
        places = [*LIBRARIES, *TRANSPORTS]
        sizes = [count] * len(LIBRARIES) + [len(BETWEEN)] * len(TRANSPORTS)
        starts = np.cumsum([count, *sizes]).tolist()
        self.rows = {
            name: np.arange(at, at + size) for name, at, size in zip(places, starts, sizes, strict=False)
        }
        self.means = np.concatenate([self.general, np.zeros(starts[-1] - count)])

    def learn(self, rounds: int = 6) -> Defaults:
        """Learn the means; returns itself."""
        for _ in range(rounds):
            self._round()
        return self

    def without(self, machine: str) -> Defaults:
        """Return the defaults without a machine, and without other runs on the same one."""
        family = machine.partition("_")[0]
        same = {
            name
            for name in self.machines
            if name == machine or (family in ("p5", "polaris") and name.startswith(family))
        }
        rest = Defaults({name: tables for name, tables in self.machines.items() if name not in same})
        rest.means, rest.weights, rest.designs = self.means.copy(), dict(self.weights), self.designs
        return rest.learn(2)

    def logs(self, library: str, transport: str = "") -> Float64:
        """Return the logarithms of the parameters of a library's machines with a transport; "" where it is not known."""
        found: Float64 = self.means[: len(NAMES)] + self.means[self.rows[library]]
        if transport:
            found[BETWEEN] += self.means[self.rows[transport]]
        return np.where(REACHED, np.minimum(found, -0.005), found)

    def factors(self, transport: str) -> dict[str, float]:
        """Return what a transport multiplies the parameters between nodes by."""
        found = np.exp(self.means[self.rows[transport]]).tolist()
        return {NAMES[place]: value for place, value in zip(BETWEEN, found, strict=True)}

    def costs(self, library: str, transport: str = "") -> CostModel:
        """Return the model of a machine that was never measured."""
        values = np.exp(self.logs(library, transport)).tolist()
        return CostModel(library, values=dict(zip(NAMES, values, strict=True)), transport=transport)

    def _round(self) -> None:
        """Take one step towards the means that fit all machines."""
        count, every = len(NAMES), np.arange(len(NAMES))
        matrix, vector = np.zeros((len(self.means), len(self.means))), np.zeros(len(self.means))
        wide = build_precision("", 2.5)
        matrix[:count, :count], vector[:count] = wide, wide @ self.general
        for name, rows in self.rows.items():
            firm = build_precision(name, LIBRARIES_LIE) if name in LIBRARIES else _firm_between()
            matrix[np.ix_(rows, rows)] = firm
        for machine, tables in self.machines.items():
            library, transport = infer_library(tables[0].hardware), infer_transport(tables)
            told, where = self._told(machine, library, transport or "")
            parts = [(every, every), (self.rows[library], every)]
            if transport:
                parts.append((self.rows[transport], BETWEEN))
            for rows, own in parts:
                vector[rows] += where[own]
                for columns, other in parts:
                    matrix[np.ix_(rows, columns)] += told[np.ix_(own, other)]
        self.means = self.means + np.clip(np.linalg.solve(matrix, vector) - self.means, -1, 1)

    def _told(self, machine: str, library: str, transport: str) -> tuple[Float64, Float64]:
        """Return what a machine's tables tell of the means: its information (K, K), and that times the means it speaks for."""
        tables = self.machines[machine]
        if machine not in self.designs:
            times = np.concatenate([table.time_us for table in tables]) * 1000
            self.designs[machine] = build_design(CostModel(library), tables, ports_of(tables)), times
        plan, times = self.designs[machine]
        mean, firm = self.logs(library, transport), build_precision(library)
        weight = self.weights.get(machine, 1.0)
        for _ in range(2):
            found = solve(plan, times, mean, firm * weight, NOISE)
            away = found.logs - mean
            weight = 1 / (1 + away @ firm @ away / STUDENT)
        self.weights[machine] = weight
        told, held = found.information, firm * weight
        share = held @ np.linalg.inv(told + held)
        return share @ told, share @ (told @ found.logs + held @ away)


def _firm_between() -> Float64:
    """Return how firmly what a transport adds lies around none (B, B)."""
    spread = np.linalg.inv(build_precision("", TRANSPORTS_LIE))
    return np.asarray(np.linalg.inv(spread[np.ix_(BETWEEN, BETWEEN)]))


def by_machine(
    tables: Sequence[MeasuredTable], kept: Callable[[MeasuredTable], bool]
) -> dict[str, list[MeasuredTable]]:
    """Return tables by machine."""
    found: dict[str, list[MeasuredTable]] = {}
    for table in tables:
        if kept(table):
            found.setdefault(table.machine, []).append(table)
    return found


def judge(table: MeasuredTable, costs: CostModel, ports: Ports) -> Judged:
    """Hold a model against a table."""
    return Judged(table, *errors(predict(costs, ports, table).time_us, table.time_us))


def splits(tables: Sequence[MeasuredTable]) -> dict[str, list[Judged]]:
    """Return what the splits A to D say of each table."""
    found: dict[str, list[Judged]] = {"A": [], "A without curves": [], "B": [], "C": [], "D": []}
    defaults = Defaults(by_machine(tables, learnable)).learn()
    machines = by_machine(tables, lambda _: True)
    for machine, group in machines.items():
        start = defaults.without(machine).costs(
            infer_library(group[0].hardware), infer_transport(group) or ""
        )
        ports = ports_of(group)
        usable = [table for table in group if len(table.size_bytes) >= 3]
        for table in group:
            found["D"].append(judge(table, start, ports))
        for table in filter(counted, usable):
            half = replace(table, size_bytes=table.size_bytes[::2], time_us=table.time_us[::2])
            rest = replace(table, size_bytes=table.size_bytes[1::2], time_us=table.time_us[1::2])
            fitted = fit([half], start, ports)
            found["A"].append(judge(rest, fitted.costs, fitted.ports))
            found["A without curves"].append(judge(rest, replace(fitted.costs, curves=()), fitted.ports))
            others = [other for other in usable if other is not table]
            if any(other.nodes == table.nodes for other in others):
                known = fit(others, start, ports)
                found["B"].append(judge(table, known.costs, known.ports))
            elsewhere = [other for other in others if other.nodes != table.nodes]
            if elsewhere:
                known = fit(elsewhere, start, ports)
                found["C"].append(judge(table, known.costs, known.ports))
    return found


def show(found: Mapping[str, Sequence[Judged]], each: bool) -> None:
    """Print medians and nine-of-ten by split and class."""
    print(
        f"{'split':18}{'class':14}{'tables':>7}{'GMF median':>12}{'9 of 10':>9}{'gm|e| median':>14}{'9 of 10':>9}"
    )
    for split, judged in found.items():
        for place, inside in (("in a node", True), ("across nodes", False)):
            rows = [one for one in judged if counted(one.table) and (one.table.nodes == 1) == inside]
            if not rows:
                continue
            gmf, error = [one.gmf for one in rows], [one.gm_error for one in rows]
            figures = (np.median(gmf), np.percentile(gmf, 90), np.median(error), np.percentile(error, 90))
            print(
                f"{split:18}{place:14}{len(rows):7}{figures[0]:12.1f}{figures[1]:9.1f}{figures[2]:14.1f}{figures[3]:9.1f}"
            )
            if each:
                for one in sorted(rows, key=lambda row: -row.gmf):
                    print(f"    {one.table.table_id:48}{one.gmf:8.1f}{one.gm_error:8.1f}")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", type=Path, nargs="?")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--learn", action="store_true")
    options = parser.parse_args()
    if options.tables is None:
        print("No tables were named, so there is nothing to judge.")
        return
    tables = [_sorted(table) for table in read_csv(options.tables)]
    if not options.learn:
        show(splits(tables), options.each)
        return
    defaults = Defaults(by_machine(tables, learnable)).learn()
    _print_table("DEFAULTS", {library: _values(defaults, library) for library in LIBRARIES})
    _print_table("TRANSPORT_FACTORS", {transport: defaults.factors(transport) for transport in TRANSPORTS})


def _values(defaults: Defaults, library: str) -> dict[str, float]:
    return dict(zip(NAMES, np.exp(defaults.logs(library)).tolist(), strict=True))


def _print_table(name: str, table: Mapping[str, Mapping[str, float]]) -> None:
    sys.stdout.write(f"{name}: Mapping[str, Mapping[str, float]] = {{\n")
    for key, values in table.items():
        sys.stdout.write(f'    "{key}": {{\n')
        for parameter, value in values.items():
            sys.stdout.write(f'        "{parameter}": {float(f"{value:.3g}"):g},\n')
        sys.stdout.write("    },\n")
    sys.stdout.write("}\n")


def _sorted(table: MeasuredTable) -> MeasuredTable:
    order = np.argsort(table.size_bytes, kind="stable")
    return replace(table, size_bytes=table.size_bytes[order], time_us=table.time_us[order])


if __name__ == "__main__":
    main()
