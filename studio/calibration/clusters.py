"""Calibrated systems: a machine fitted to its tables, as a system file that people can read and edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from studio.calibration.fit import Fitted, fit
from studio.calibration.judging import Judgement, judge
from studio.calibration.machines import Machine, get_unit_gbytes
from studio.calibration.measures import round_figure
from studio.calibration.splits import fit_machine, select_every_second
from studio.calibration.tables import MeasuredTable, build_measured_entry
from studio.calibration.validation import summarise_judgements
from studio.sim.costs import Ports
from studio.sim.network import UNIT
from studio.sim.systems import System, build_system


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A machine fitted to its tables.

    Attributes:
        table: The system file's keys and values.
        system: The system that they describe.
        fitted: What the fit found.
        judged: Every table, by the fitted machine.
        unseen: Every second size of the tables, by a fit to the others; empty where tables have single sizes.
        start: What the fit began with.
    """

    table: dict[str, object]
    system: System
    fitted: Fitted
    judged: tuple[Judgement, ...]
    unseen: tuple[Judgement, ...]
    start: Machine


def calibrate(tables: Sequence[MeasuredTable], start: Machine, name: str) -> Calibrated:
    """Fit a machine to its tables, and judge the fit by sizes that it has seen and by sizes that another had not.

    Args:
        tables: Tables of one machine.
        start: The system to begin with.
        name: What the system is called.

    Raises:
        ConfigError: There are no times to fit to.
    """
    fitted = fit(tables, start.costs, start.ports)
    machine = replace(start, costs=fitted.costs, ports=fitted.ports)
    judged = tuple(judge(table, machine, "fitted") for table in tables)
    unseen = _judge_unseen(tables, start)
    table = _build_system_table(name, tables, start, fitted, {"fitted": judged, "other sizes": unseen})
    return Calibrated(table, build_system(table, name), fitted, judged, unseen, start)


def _judge_unseen(tables: Sequence[MeasuredTable], start: Machine) -> tuple[Judgement, ...]:
    several = [table for table in tables if len(table.size_bytes) > 1]
    if not several:
        return ()
    machine = fit_machine([select_every_second(table, 0) for table in several], start)
    return tuple(judge(select_every_second(table, 1), machine, "other sizes") for table in several)


def _build_system_table(
    name: str,
    tables: Sequence[MeasuredTable],
    start: Machine,
    fitted: Fitted,
    judged: Mapping[str, Sequence[Judgement]],
) -> dict[str, object]:
    """Return the keys and values of the system file."""
    hardware = next((table.hardware for table in tables if table.hardware), start.system.title)
    system = start.system
    content: dict[str, object] = {
        "name": name,
        "title": f"{hardware}, calibrated to measured collectives",
        "source": f"{len(tables)} measured tables, listed under calibration; the rest as preset {system.name}",
        "sources": _collect_sources(system, fitted, start),
        "family": _build_family(system, fitted.ports, fitted.costs.wiring.nics),
        "network": _build_network(system, fitted.ports),
        "system": dict(system.system),
    }
    if system.gpu is not None:
        gpu = system.gpu
        content["gpu"] = {
            "name": gpu.name,
            "tera-flops": dict(gpu.tera_flops),
            "memory-bandwidth": gpu.memory_bytes_per_ns,
            "memory-size": gpu.memory_gbytes,
        }
    content["costs"] = _round_numbers(fitted.costs.to_table())
    content["calibration"] = _build_calibration(tables, start, fitted, judged)
    return content


def _collect_sources(system: System, fitted: Fitted, start: Machine) -> dict[str, str]:
    """Return where numbers come from: those of the preset, but for what tables stated or the fit found."""
    sources = {
        key: text for key, text in system.sources.items() if key.split(".")[0] in ("gpu", "system", "family")
    }
    network_sources = {key: text for key, text in system.sources.items() if key.startswith("network")}
    note = "; ".join((*start.notes[-3:], *fitted.notes)) or "as the preset"
    for place, rate in (
        (0, (fitted.ports.inside, start.ports.inside)),
        (1, (fitted.ports.between, start.ports.between)),
    ):
        key = f"network.bandwidth[{place}]"
        same = abs(rate[0] - rate[1]) < 1e-9 * max(rate[1], 1e-9) and not start.notes[1:]
        sources[key] = network_sources.get(key, note) if same else note
    return {**sources, "costs": "fitted to the tables listed under calibration"}


def _build_family(system: System, ports: Ports, nics: int) -> dict[str, object]:
    family: dict[str, object] = {
        "node": ports.per_node,
        "nics": nics or ports.per_node,
        "start": ports.per_node,
    }
    if system.family is not None and system.family.node == ports.per_node:
        family["node"] = list(system.family.inside) if len(system.family.inside) > 1 else ports.per_node
    return family


def _build_network(system: System, ports: Ports) -> dict[str, object]:
    """Return the network with the ports' rates; what a fit leaves alone stays as the preset has it."""
    inside = len(system.family.inside) if system.family else 1
    scale = get_unit_gbytes(system)
    topology = list(system.network["topology"])  # type: ignore[call-overload]  # checked when it was read
    between = bool(ports.between) and len(topology) > inside
    rates = [ports.inside / scale] * inside + [ports.between / scale] * (len(topology) - inside)
    latencies = [ports.inside_ns] * inside + [ports.between_ns] * (len(topology) - inside)
    count = len(topology) if between else inside
    network: dict[str, object] = {
        "topology": topology[:count],
        "bandwidth": [round(rate, 6) for rate in rates[:count]],
        "latency": latencies[:count],
    }
    if UNIT in system.network:
        network[UNIT] = system.network[UNIT]
    if system.family is None:
        network["npus_count"] = [ports.per_node, *([2] if between else [])]
    return network


def _build_calibration(
    tables: Sequence[MeasuredTable],
    start: Machine,
    fitted: Fitted,
    judged: Mapping[str, Sequence[Judgement]],
) -> dict[str, object]:
    from studio import __version__

    return {
        "machine": tables[0].machine or tables[0].hardware or "not named",
        "made-by": f"chakra-studio {__version__} calibrate",
        "started-from": start.system.name,
        "tables": [_build_entry(table) for table in tables],
        "intervals": {
            name: [round_figure(low), round_figure(high)] for name, (low, high) in fitted.intervals.items()
        },
        "inseparable": [list(group) for group in fitted.inseparable],
        "outliers": [
            {
                "table": outlier.table_id,
                "size": int(outlier.size_bytes),
                "measured-by-expected": round_figure(outlier.factor),
            }
            for outlier in fitted.outliers
        ],
        "errors": {name: _summarise_errors(name, own) for name, own in judged.items() if own},
    }


def _build_entry(table: MeasuredTable) -> dict[str, object]:
    """Return the file's entry for a table: source, collective, machine and range of sizes."""
    return {
        "table_id": table.table_id,
        "machine": table.machine,
        "source": table.source,
        "hardware": table.hardware,
        "library": table.library_version,
        **build_measured_entry(table),
    }


def _summarise_errors(name: str, judged: Sequence[Judgement]) -> dict[str, object]:
    # In its own machine's file every table counts.
    summary = summarise_judgements(name, [replace(judgement, reported="") for judgement in judged])
    return {
        "gmf": round_figure(summary.gmf),
        "gm_error": round_figure(summary.gm_error),
        "gmf-without-curve": round_figure(summary.uncorrected_gmf),
        "tables": summary.tables,
    }


def _round_numbers(value: object) -> object:
    """Return a table with numbers of six digits."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _round_numbers(item) for key, item in value.items()}
    return [_round_numbers(item) for item in value] if isinstance(value, list | tuple) else value
