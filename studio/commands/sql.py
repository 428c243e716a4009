"""Ask jobs and runs by SQL, or write their tables as Parquet.

Tables: nodes, attributes, dependencies, spans, collectives, links, exposed, ranks, runs, jobs; --tables lists their columns.

QUERY is a question in the SQL of DuckDB, or - to read it from stdin. Each JOB|RUN is a folder, files or the prefix of files of
traces, or, in the workspace, a run (RUN or JOB/RUN) or a job: its recording (JOB/recorded), else its newest run. The tables jobs
and runs can be asked for without any: they list the workspace. Traces are read only where a table of theirs is named.

Queries can read the tables and nothing else. What they take is limited, and said where a limit is reached.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from studio.analysis.job.function_names import cut_middle
from studio.commands.base import parquet_folder
from studio.commands.base.options import (
    Bytes,
    PathOption,
    Seconds,
    add_size_options,
    allow_damaged,
    json_option,
    quiet_option,
    rank_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, end_with_losses, show, warn
from studio.commands.base.parquet_folder import write_tables
from studio.commands.base.queried import find_sources
from studio.commands.base.terminal import escape_controls
from studio.sql.answers import choose_writer, iterate_plain_rows
from studio.sql.columns import TABLES
from studio.sql.database import (
    ANSWER_BYTES,
    LEAST_BYTES,
    ROWS_SHOWN,
    ROWS_WRITTEN,
    TIME_S,
    Answer,
    Database,
    Limits,
)
from studio.sql.process import start_ahead
from studio.trace import Finding
from studio.units import format_counted, format_ns

if TYPE_CHECKING:
    from studio.et import JobSize, Progress

_CELL = 60
_NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `sql`.

    Attributes:
        query: The question.
        names: Jobs and runs, as `queried.find_sources` takes them.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        out: A file to write the answer to, or None.
        limits: How much the query may take.
        memory_bytes: Memory that it may take; None for a quarter of the machine's.
        size: NPUs and passes, where a workload leaves them open; None where nothing is said.
    """

    query: str
    names: Sequence[str] = ()
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    out: Path | None = None
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    memory_bytes: int | None = None
    size: JobSize | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, and what readers noticed.

    Attributes:
        answer: The answer.
        findings: What the readers of files noticed.
        out: The file that it was written to, or None.
    """

    answer: Answer
    findings: tuple[Finding, ...] = ()
    out: Path | None = None


def run(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Answer a query, and write the answer where a file is named.

    Raises:
        ConfigError: Nothing is called so, or the query asks for what there is not or is not allowed.
        StudioError: A job or run cannot be read, or DuckDB is not installed.
    """
    write = choose_writer(request.out) if request.out else None
    findings: list[Finding] = []
    start_ahead()
    sources = find_sources(request.names, request.workspace, request.ranks, progress, findings, request.size)
    with Database(sources, request.memory_bytes) as database:
        answer = database.ask(request.query, request.limits)
    if write and request.out:
        from studio.et.write import write_together

        with write_together() as put:
            put(request.out, write(answer.table))
    return Outcome(answer, tuple(findings), request.out)


def report(outcome: Outcome) -> dict[str, Any]:
    """Return what `--json` prints."""
    answer = outcome.answer
    names = answer.table.column_names
    answered: dict[str, Any] = {"columns": names, "row_count": answer.table.num_rows, "more": answer.more}
    answered |= {"spent_s": answer.spent_s, "notes": list(answer.notes)}
    if outcome.out:
        return {**answered, "file": str(outcome.out)}
    return {
        **answered,
        "rows": [dict(zip(names, row, strict=True)) for row in iterate_plain_rows(answer.table)],
    }


def text(outcome: Outcome) -> str:
    """Format an answer for a terminal."""
    answer = outcome.answer
    count = format_counted(answer.table.num_rows, "row")
    more = ", and there are more: --limit-rows N allows more" if answer.more else ""
    foot = f"{count} in {format_ns(answer.spent_s * 1e9)}{more}"
    if outcome.out:
        return escape_controls(f"{outcome.out}: {foot}")
    rows = list(iterate_plain_rows(answer.table))
    cells = [
        list(map(escape_controls, answer.table.column_names)),
        *([_format_cell(value) for value in row] for row in rows),
    ]
    is_number = [
        all(row[place] is None or isinstance(row[place], int | float) for row in rows)
        for place in range(answer.table.num_columns)
    ]
    widths = [max(len(row[place]) for row in cells) for place in range(len(is_number))]
    lines = [
        "  ".join(
            f"{cell:>{width}}" if number else f"{cell:{width}}"
            for cell, width, number in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([*lines, "", foot])


def _format_cell(value: Any) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    return cut_middle(escape_controls(str(value)), _CELL)


def list_report(_nothing: object = None) -> list[dict[str, Any]]:
    """Return the tables and their columns."""
    return [asdict(table) for table in TABLES]


def list_text(_nothing: object = None) -> str:
    """Format the tables and their columns for a terminal."""
    lines: list[str] = []
    for table in TABLES:
        lines += [f"{table.name}: {table.about}"]
        lines += [
            f"  {column.name:24}{column.type:11}{column.unit:10}{column.about.replace('`', '')}"
            for column in table.columns
        ]
        lines.append("")
    return "\n".join(lines).rstrip()


def _read_query(words: Sequence[str]) -> str:
    if not words:
        raise click.UsageError(
            "Missing argument 'QUERY'. Examples: chakra-studio sql --tables; sql 'FROM jobs'"
        )
    if words[0] != "-":
        return words[0]
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def _build_job_size(npus: int | None, passes: int | None) -> JobSize | None:
    if npus is None and passes is None:
        return None
    # Lists of the workspace need no reader of files.
    from studio.et import JobSize

    return JobSize(npus, passes)


def _say_notes(notes: Sequence[str], quiet: bool) -> None:
    for note in () if quiet else notes:
        click.secho(escape_controls(f"Note: {note}"), fg="yellow", err=True)


@click.command(
    help=__doc__,
    epilog="Example: chakra-studio sql 'SELECT rank, exposed_ns FROM ranks ORDER BY 2 DESC' traces/",
)
@click.argument("words", metavar="[QUERY] [JOB|RUN]...", nargs=-1)
@click.option(
    "-o",
    "out",
    metavar="FILE",
    type=PathOption(dir_okay=False),
    help="Write the answer: .csv, .json, .parquet, .arrow.",
)
@click.option("--tables", "list_tables", is_flag=True, help="List tables and columns with their units.")
@click.option(
    "--export",
    "folder",
    metavar="FOLDER",
    type=PathOption(file_okay=False),
    help="Write all tables of JOB|RUN as Parquet, one file each.",
)
@click.option(
    "--table", "chosen", metavar="NAME", multiple=True, help="Export this table only; may be repeated."
)
@click.option(
    "--limit-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Most rows of the answer.  [default: {ROWS_SHOWN:,}; with -o {ROWS_WRITTEN:,}]",
)
@click.option(
    "--limit-time",
    type=Seconds(),
    default=TIME_S,
    metavar="S",
    show_default=True,
    help="Most seconds of the query.",
)
@click.option(
    "--limit-memory",
    type=Bytes(LEAST_BYTES),
    metavar="SIZE",
    help="Most memory of the query, such as 8GiB.  [default: a quarter of the machine's]",
)
@quiet_option
@json_option
@workspace_option
@allow_damaged
@rank_option
@add_size_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    out: Path | None,
    list_tables: bool,
    folder: Path | None,
    chosen: tuple[str, ...],
    limit_rows: int | None,
    limit_time: float,
    limit_memory: int | None,
    quiet: bool,
    as_json: bool,
    allow_damaged: bool,
    **given: Any,
) -> None:
    """Carry out `sql`."""
    size = _build_job_size(given.pop("npus"), given.pop("passes"))
    if list_tables:
        show(None, as_json, list_report, list_text)
        return
    if folder is not None:
        progress = build_progress_line()
        exported = write_tables(
            words, folder, chosen, given["workspace"], given["ranks"], progress, size, limit_memory
        )
        if as_json or not quiet:
            show(exported, as_json, parquet_folder.report, parquet_folder.text)
        end_with_losses(ctx, exported.given, allow_damaged, warned=False)
        return
    if chosen:
        raise click.UsageError("--table belongs to --export.")
    limits = Limits(
        limit_rows or (ROWS_WRITTEN if out else ROWS_SHOWN), limit_time, None if out else ANSWER_BYTES
    )
    request = Request(
        _read_query(words), words[1:], out=out, limits=limits, memory_bytes=limit_memory, size=size, **given
    )
    outcome = run(request, progress=build_progress_line())
    if as_json or not (quiet and out):
        show(outcome, as_json, report, text)
    sys.stdout.flush()
    _say_notes(outcome.answer.notes, quiet)
    for finding in () if quiet else outcome.findings:
        warn(finding)
    end_with_losses(ctx, outcome.findings, allow_damaged, warned=not quiet)
