"""Hold measured collectives against simulated ones: errors by size, table and class.

TABLES are outputs of nccl-tests and rccl-tests, CSV files, recorded jobs, or folders of these. Without --system each
table is judged on the preset that its hardware names.

gm|e| is the geometric mean of |simulated / measured - 1|, GMF is exp(mean |ln(simulated / measured)|) - 1. A table's
class is what it is to the system: fitted, may be fitted (it names no machine), other sizes, other collective or count, other nodes,
other machine, data sheet. The exit code is 1 if the GMF of a table exceeds --max-error; that of a fitted table counts without its residual curve, which
repeats what was fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from studio.calibration.judging import Judgement, judge_all
from studio.calibration.machines import pick_machine
from studio.calibration.measures import RANGES
from studio.calibration.reading.files import read_tables
from studio.calibration.reading.given import UNSAID, Given
from studio.calibration.splits import SPLITS, judge_split
from studio.calibration.tables import MeasuredTable
from studio.calibration.validation import find_worst, report_of, summarise
from studio.commands.base.options import PathOption, json_option
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.tables import add_given_options, format_share, tables_argument, warn_notes
from studio.commands.base.terminal import describe_written, escape_controls
from studio.et import Progress
from studio.store.durable_files import write_atomically
from studio.units import format_bytes, format_counted, format_ns


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `validate`.

    Attributes:
        paths: Measured tables.
        system: A preset or system file; None judges each table on the preset that its hardware names.
        machine: The machine whose tables are judged; None judges all.
        split: Which part of the tables is left out of a fit and judged (`SPLITS`); "" fits nothing.
        given: What the tables do not say themselves.
    """

    paths: tuple[Path, ...]
    system: str | None = None
    machine: str | None = None
    split: str = ""
    given: Given = UNSAID


@dataclass(frozen=True, slots=True)
class Validated:
    """Measured tables beside their simulated times.

    Attributes:
        judged: Every table, measured and simulated.
        notes: What was left out or assumed.
        split: As asked for.
        per_size: Whether the text shows every size.
    """

    judged: tuple[Judgement, ...]
    notes: tuple[str, ...]
    split: str = ""
    per_size: bool = False


def run(request: Request, *, progress: Progress | None = None) -> Validated:
    """Judge the tables.

    Raises:
        StudioError: The tables cannot be read, or there is no such system, or none for their hardware.
    """
    read = read_tables(request.paths, request.given, progress=progress)
    tables = read.tables if request.machine is None else pick_machine(read.tables, request.machine)
    if request.split:
        judged, notes = judge_split(tables, request.split, request.system, progress=progress)
    else:
        judged, notes = judge_all(tables, request.system)
    return Validated(tuple(judged), (*read.notes, *notes), request.split)


def write_report(request: Request, target: Path, *, progress: Progress | None = None) -> Path:
    """Write the report of accuracy; the file appears when it is complete.

    Raises:
        StudioError: The tables cannot be read or judged, or the file cannot be written.
    """
    from studio.calibration.accuracy import build_accuracy_report

    tables: Sequence[MeasuredTable] = read_tables(request.paths, request.given, progress=progress).tables
    if request.machine is not None:
        tables = pick_machine(tables, request.machine)
    # The folder says nothing to a reader of the report.
    names = " ".join(path.name for path in request.paths)
    words = build_accuracy_report(
        tables, command=f"chakra-studio validate {names} --report {target.name}", progress=progress
    )
    with write_atomically(target, "--report") as stream:
        stream.write(words)
    return target


def report(done: Validated) -> dict[str, Any]:
    """Return the errors as plain data; all errors are shares, so 0.1 is 10 %."""
    return {
        "split": done.split or None,
        "tables": [report_of(judgement) for judgement in done.judged],
        "classes": [
            {
                "class": summary.relation,
                "tables": summary.tables,
                "reported": summary.reported,
                "median_gm_error": _convert_nan(summary.gm_error),
                "median_gmf": _convert_nan(summary.gmf),
                "gmf_of_nine_in_ten": _convert_nan(summary.gmf_nine),
            }
            for summary in summarise(done.judged)
        ],
        "notes": list(done.notes),
    }


def _convert_nan(value: float) -> float | None:
    return value if value == value else None


def text(done: Validated) -> str:
    """Format the errors for a terminal."""
    width = max(len(escape_controls(judgement.table.table_id)) for judgement in done.judged)
    lines = [
        f"{'table':{width}}  {'system':16}  {'class':25} {'gm|e|':>8} {'GMF':>8}  "
        + " ".join(f"{name:>8}" for name, _ in RANGES)
        + "   signed bias by size",
    ]
    for judgement in done.judged:
        lines.append(_format_line(judgement, width))
        if done.per_size:
            lines += _format_sizes(judgement)
    lines += ["", *_format_summary(done.judged)]
    reported = [judgement for judgement in done.judged if judgement.reported]
    if reported:
        lines.append(f"* {format_counted(len(reported), 'table')} reported and not counted:")
        whys = dict.fromkeys(judgement.reported for judgement in reported)
        lines += [f"  {sum(j.reported == why for j in reported):3} {why}" for why in whys]
    return "\n".join(lines)


def _format_line(judgement: Judgement, width: int) -> str:
    errors = judgement.errors
    bias = " ".join(
        f"{format_share(errors.bias[name], signed=True) if name in errors.bias else '':>8}"
        for name, _ in RANGES
    )
    outside = "  extrapolated" if judgement.extrapolated.any() else ""
    star = "*" if judgement.reported else " "
    curve = ""
    if judgement.uncorrected != errors:
        curve = f"  without curve gm|e| {format_share(judgement.uncorrected.gm_error)} GMF {format_share(judgement.uncorrected.gmf)}"
    return (
        f"{escape_controls(judgement.table.table_id):{width}}{star} {judgement.system:16}  {judgement.relation:25} "
        f"{format_share(errors.gm_error):>8} {format_share(errors.gmf):>8}  {bias}{outside}{curve}"
    ).rstrip()


def _format_sizes(judgement: Judgement) -> list[str]:
    rows = zip(
        judgement.table.size_bytes,
        judgement.table.time_us,
        judgement.simulated_us,
        judgement.choices,
        judgement.extrapolated,
        strict=True,
    )
    return [
        f"    {format_bytes(size):>10}  measured {format_ns(measured * 1e3):>9}  simulated {format_ns(simulated * 1e3):>9} "
        f"{format_share(simulated / measured - 1, signed=True):>9}  {choice}{'  extrapolated' if outside else ''}"
        for size, measured, simulated, choice, outside in rows
    ]


def _format_summary(judged: Sequence[Judgement]) -> list[str]:
    lines = [f"{'class':27} {'tables':>7} {'median gm|e|':>13} {'median GMF':>11} {'9 of 10 GMF':>12}"]
    for summary in summarise(judged):
        figures = (summary.gm_error, summary.gmf, summary.gmf_nine)
        shown = [format_share(value) if summary.tables else "–" for value in figures]
        count = f"{summary.tables}" + (f"+{summary.reported}*" if summary.reported else "")
        lines.append(f"{summary.relation:27} {count:>7} {shown[0]:>13} {shown[1]:>11} {shown[2]:>12}")
    return lines


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio validate all_reduce.txt --system my-cluster.yml --max-error 10",
)
@tables_argument
@click.option(
    "--system", "--preset", "system", metavar="NAME|FILE", help="The preset or system file to judge on."
)
@click.option("--machine", metavar="NAME", help="Judge the tables of this machine only.")
@click.option(
    "--max-error",
    type=click.FloatRange(min=0),
    metavar="PCT",
    help="Exit with 1 if a table's GMF is above this.",
)
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    help="Fit each machine on a part of its tables and judge the rest: every second of the sizes, each table by the "
    "others, the tables of each number of nodes by the others; or fit nothing and judge by data sheets.",
)
@click.option(
    "--report",
    "target",
    metavar="FILE",
    type=PathOption(dir_okay=False),
    help="Write a report of accuracy as Markdown instead: every table by every split.",
)
@click.option("--sizes", "per_size", is_flag=True, help="Show every size; one table alone always does.")
@add_given_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    system: str | None,
    machine: str | None,
    max_error: float | None,
    split: str | None,
    target: Path | None,
    per_size: bool,
    given: Given,
    as_json: bool,
) -> None:
    """Carry out `validate`."""
    if target is not None:
        if system or split or max_error is not None or as_json:
            raise click.UsageError(
                "--report judges by every split: leave out --system, --split, --max-error and --json."
            )
        click.echo(
            escape_controls(
                describe_written(
                    [
                        write_report(
                            Request(paths, None, machine, "", given), target, progress=build_progress_line()
                        )
                    ]
                )
            )
        )
        return
    done = run(Request(paths, system, machine, split or "", given), progress=build_progress_line())
    done = Validated(done.judged, done.notes, done.split, per_size or len(done.judged) == 1)
    warn_notes(done.notes)
    show(done, as_json, report, text)
    if max_error is not None and done.judged:
        judgement = find_worst(done.judged)
        if 100 * judgement.gate_gmf > max_error:
            name = escape_controls(judgement.table.table_id)
            of_fitted = " without its residual curve" if judgement.relation == "fitted" else ""
            click.echo(
                f"GMF of {name}{of_fitted} is {format_share(judgement.gate_gmf)}, above --max-error {max_error:g} %.",
                err=True,
            )
            ctx.exit(1)
