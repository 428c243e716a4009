"""Fit a system to measured collectives of one machine, and write it as a preset file.

TABLES are outputs of nccl-tests and rccl-tests as printed, CSV files, recorded jobs, or folders of these; content decides.
The file is a preset: simulate --preset FILE takes it, and so does validate --system FILE. It keeps where its numbers are
from, the range they hold in, and a residual curve for each table of 8 sizes or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from studio.calibration.clusters import Calibrated, calibrate
from studio.calibration.judging import Judgement
from studio.calibration.machines import choose_machine, pick_machine
from studio.calibration.reading.files import read_tables
from studio.calibration.reading.given import UNSAID, Given
from studio.commands.base.options import PathOption, json_option
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.tables import add_given_options, format_share, tables_argument, warn_notes
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError
from studio.et import Progress
from studio.sim.costs.parameters import is_time
from studio.sim.systems import is_system_file, write_system
from studio.store.durable_files import write_atomically
from studio.units import format_bytes, format_counted


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `calibrate`.

    Attributes:
        paths: Measured tables.
        out: The system file to write.
        machine: The machine whose tables are fitted; needed where the tables are of several.
        system: The preset or system file to begin with; None takes the one that the hardware names.
        given: What the tables do not say themselves.
    """

    paths: tuple[Path, ...]
    out: Path
    machine: str | None = None
    system: str | None = None
    given: Given = UNSAID


@dataclass(frozen=True, slots=True)
class Written:
    """A fitted system, and the file it was written to."""

    file: Path
    calibrated: Calibrated
    notes: tuple[str, ...]


def run(request: Request, *, progress: Progress | None = None) -> Written:
    """Fit the system and write its file; it appears when it is complete.

    Raises:
        ConfigError: The tables are of several machines, no system has their hardware, or the file cannot be written.
        StudioError: The tables cannot be read.
    """
    if not is_system_file(request.out):
        raise ConfigError(
            f"-o is {str(request.out)!r}; allowed: a name that ends in .yml",
            hint="Such as -o my-cluster.yml.",
            key="out",
        )
    read = read_tables(request.paths, request.given, progress=progress)
    tables = pick_machine(read.tables, request.machine)
    start = choose_machine(tables, request.system)
    if progress:
        progress("fitting", 0, 1)
    done = calibrate(tables, start, request.out.stem)
    if progress:
        progress("fitting", 1, 1)
    with write_atomically(request.out, "-o") as stream:
        stream.write(write_system(done.table))
    return Written(request.out, done, (*read.notes, *start.notes, *done.fitted.notes))


def report(written: Written) -> dict[str, Any]:
    """Return what the fit found as plain data; errors are shares, so 0.1 is 10 %."""
    calibration = written.calibrated.system.calibration
    return {
        "file": str(written.file),
        "name": written.calibrated.system.name,
        "parameters": {
            name: {"value": written.calibrated.fitted.costs.value(name), "interval": list(interval)}
            for name, interval in written.calibrated.fitted.intervals.items()
        },
        "inseparable": calibration["inseparable"],
        "outliers": calibration["outliers"],
        "errors": calibration["errors"],
        "tables": [_build_table_report(judgement) for judgement in written.calibrated.judged],
        "notes": list(written.notes),
    }


def _build_table_report(judgement: Judgement) -> dict[str, Any]:
    return {
        "table_id": judgement.table.table_id,
        "class": judgement.relation,
        "gm_error": judgement.errors.gm_error,
        "gmf": judgement.errors.gmf,
        "gm_error_without_curve": judgement.uncorrected.gm_error,
        "gmf_without_curve": judgement.uncorrected.gmf,
    }


def text(written: Written) -> str:
    """Format what the fit found for a terminal."""
    done = written.calibrated
    costs = done.fitted.costs
    lines = [
        f"{escape_controls(done.system.title)}",
        (
            f"Fitted to {format_counted(len(done.judged), 'table')}, {_format_sizes(done.judged)}, from {done.start.system.name} "
            f"({costs.library})."
        ),
        "",
        f"{'parameter':28} {'value':>10} {'unit':4}   95 % interval",
    ]
    for name, (low, high) in done.fitted.intervals.items():
        unit = "ns" if is_time(name) else ""
        lines.append(
            f"{name:28} {_format_number(costs.value(name)):>10} {unit:4}   {_format_number(low)} to {_format_number(high)}"
        )
    lines += [
        "",
        *_format_inseparable(done.fitted.inseparable),
        *_format_outliers(done),
        *_format_range(done),
        "",
        *_format_errors(done),
    ]
    return "\n".join([*lines, "", f"Written: {escape_controls(str(written.file))}"])


def _format_sizes(judged: Sequence[Judgement]) -> str:
    return format_counted(sum(len(judgement.table.size_bytes) for judgement in judged), "size")


def _format_number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _format_inseparable(groups: Sequence[Sequence[str]]) -> list[str]:
    if not groups:
        return ["These tables tell all parameters apart."]
    lines = ["These tables cannot tell apart, or say nothing about (kept near the defaults of the library):"]
    return lines + [f"  {', '.join(group)}" for group in groups]


def _format_outliers(done: Calibrated) -> list[str]:
    if not done.fitted.outliers:
        return ["No outliers."]
    lines = ["Outliers, which no residual curve follows:"]
    return lines + [
        f"  {escape_controls(outlier.table_id)} at {format_bytes(outlier.size_bytes)}: {outlier.factor:.2f} × its neighbours"
        for outlier in done.fitted.outliers
    ]


def _format_range(done: Calibrated) -> list[str]:
    known = done.fitted.costs.fitted
    if known is None:
        return []
    return [
        (
            f"Holds for {', '.join(known.kinds)} of {_format_span(known.ranks, 'rank')} on {_format_span(known.nodes, 'node')}, from "
            f'{format_bytes(known.sizes[0])} to {format_bytes(known.sizes[1])}; results outside say "extrapolated".'
        )
    ]


def _format_span(pair: Sequence[int], noun: str) -> str:
    least, most = pair
    return format_counted(most, noun) if least == most else f"{least:,} to {format_counted(most, noun)}"


def _format_errors(done: Calibrated) -> list[str]:
    width = max(len(escape_controls(judgement.table.table_id)) for judgement in done.judged)
    unseen = {judgement.table.table_id: judgement for judgement in done.unseen}
    lines = [
        "gm|e| and GMF with residual curve, without, and of every second size by a fit to the others:",
        f"{'':{width}} {'gm|e|':>8} {'GMF':>8}   {'without':>8} {'GMF':>8}   {'unseen':>8} {'GMF':>8}",
    ]
    for judgement in done.judged:
        other = unseen.get(judgement.table.table_id)
        last = (
            ""
            if other is None
            else f"   {format_share(other.errors.gm_error):>8} {format_share(other.errors.gmf):>8}"
        )
        lines.append(
            f"{escape_controls(judgement.table.table_id):{width}} {format_share(judgement.errors.gm_error):>8} "
            f"{format_share(judgement.errors.gmf):>8}   {format_share(judgement.uncorrected.gm_error):>8} "
            f"{format_share(judgement.uncorrected.gmf):>8}{last}"
        )
    return lines


@click.command(
    help=__doc__, epilog="Example: chakra-studio calibrate all_reduce.txt all_gather.txt -o my-cluster.yml"
)
@tables_argument
@click.option(
    "-o",
    "--out",
    required=True,
    metavar="FILE",
    type=PathOption(dir_okay=False),
    help="The system file to write.",
)
@click.option("--machine", metavar="NAME", help="The machine to fit, where the tables are of several.")
@click.option(
    "--preset",
    "--system",
    "system",
    metavar="NAME|FILE",
    help="The preset or system file to begin with; else the one that the hardware of the tables names.",
)
@add_given_options
@json_option
def command(
    paths: tuple[Path, ...],
    out: Path,
    machine: str | None,
    system: str | None,
    given: Given,
    as_json: bool,
) -> None:
    """Carry out `calibrate`."""
    written = run(Request(paths, out, machine, system, given), progress=build_progress_line())
    warn_notes(written.notes)
    show(written, as_json, report, text)
