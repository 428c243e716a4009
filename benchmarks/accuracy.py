"""How near the cost model comes to measured tables that it was not fitted to, and where its defaults come from.

    python benchmarks/accuracy.py TABLES.csv            # the four splits, by class
    python benchmarks/accuracy.py TABLES.csv --each     # with every table
    python benchmarks/accuracy.py TABLES.csv --learn    # prints studio/sim/costs/defaults.py

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

from studio.calibration.design import design
from studio.calibration.fit import fit, library_of, predict
from studio.calibration.prior import precision
from studio.calibration.solve import solve
from studio.calibration.tables import MeasuredTable, read_csv
from studio.sim.costs.library import LIBRARIES
from studio.sim.costs.model import CostModel
from studio.sim.costs.parameters import GENERAL, NAMES
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
    odd = rates_of_calls or (name.startswith("h100x") and table.collective == "send_recv")
    return len(table.size_bytes) >= 3 and not odd and not name.startswith(ODD)


class Defaults:
    """The parameters of each library's machines in general: a mean over machines, each with its own deviation.

    Machines lie around their library's mean as `studio.calibration.prior` says, and libraries around what all have in
    common; each machine counts by what its tables tell.
    """

    def __init__(self, machines: Mapping[str, Sequence[MeasuredTable]]) -> None:
        self.machines = machines
        self.weights: dict[str, float] = {}
        general = np.log([GENERAL.get(name, GENERAL.get(name.partition(" ")[0], 1.0)) for name in NAMES])
        self.general = general
        self.means = dict.fromkeys(LIBRARIES, general)

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
        rest.means, rest.weights = dict(self.means), dict(self.weights)
        return rest.learn(2)

    def costs(self, library: str) -> CostModel:
        """Return the model of a library's machine that was never measured."""
        logs = self.means[library]
        return CostModel(library, values=dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))

    def _round(self) -> None:
        count = len(NAMES)
        sums = {library: (np.zeros((count, count)), np.zeros(count)) for library in LIBRARIES}
        for machine, tables in self.machines.items():
            library = library_of(tables[0].hardware)
            mean, firm = self.means[library], precision(library)
            plan = design(CostModel(library), tables, ports_of(tables))
            times = np.concatenate([table.time_us for table in tables]) * 1000
            weight = self.weights.get(machine, 1.0)
            for _ in range(2):
                found = solve(plan, times, mean, firm * weight)
                away = found.logs - mean
                weight = 1 / (1 + away @ firm @ away / STUDENT)
            self.weights[machine] = weight
            told, held = found.information, firm * weight
            share = held @ np.linalg.inv(told + held)
            sums[library][0][:] += share @ told
            sums[library][1][:] += share @ (told @ found.logs + held @ away)
        self._pool(sums)

    def _pool(self, sums: Mapping[str, tuple[Float64, Float64]]) -> None:
        """Bring the libraries' sums together: what all have in common first, then each library around it."""
        wide = precision("", 2.5)
        matrix, vector = wide.copy(), wide @ self.general
        for library, (told, where) in sums.items():
            held = precision(library, 1.5)
            share = held @ np.linalg.inv(told + held)
            matrix += share @ told
            vector += share @ where
        common = np.linalg.solve(matrix, vector)
        reached = np.array([name.startswith("efficiency") for name in NAMES])
        for library, (told, where) in sums.items():
            held = precision(library, 1.5)
            mean = np.linalg.solve(told + held, where + held @ common)
            mean = self.means[library] + np.clip(mean - self.means[library], -1, 1)
            self.means[library] = np.where(reached, np.minimum(mean, -0.005), mean)


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
        start = defaults.without(machine).costs(library_of(group[0].hardware))
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
    for library in LIBRARIES:
        sys.stdout.write(f'    "{library}": {{\n')
        for name, log in zip(NAMES, defaults.means[library], strict=True):
            sys.stdout.write(f'        "{name}": {float(f"{np.exp(log):.3g}"):g},\n')
        sys.stdout.write("    },\n")


def _sorted(table: MeasuredTable) -> MeasuredTable:
    order = np.argsort(table.size_bytes, kind="stable")
    return replace(table, size_bytes=table.size_bytes[order], time_us=table.time_us[order])


if __name__ == "__main__":
    main()
