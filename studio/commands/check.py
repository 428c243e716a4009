"""Find problems of a job: what, where, what follows, and what can be repaired.

The worst comes first. The files given are not changed. The exit code is 0 if there is no finding of the level of
--fail-on or worse, 1 if there is one, and 2 for wrong arguments; with --repair the findings that remain count.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from studio.commands.base.options import (
    PathOption,
    json_option,
    paths_argument,
    rank_option,
    refuse_own_input,
    suggest,
)
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.terminal import escape_controls
from studio.doctor import CHECKS, REPAIRS, Change, Diagnosis, Examination, repair_all, run_checks
from studio.doctor.diagnosis import LEVELS, list_node_names
from studio.errors import TraceError
from studio.et import JobFiles, Progress, discover, read_job, write
from studio.et.each_job import read_each
from studio.et.ranks import index_ranks_by_file
from studio.et.source import open_sources
from studio.trace import Level, Trace
from studio.units import format_count, format_counted

_WIDTH = 110
_NODES_SHOWN = 4
_CHANGES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `check`.

    Attributes:
        paths: Files, folders or archives.
        target: Folder for the repaired job; None repairs nothing.
        only: Codes of the repairs to make; none stands for all.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    paths: tuple[Path, ...]
    target: Path | None = None
    only: tuple[str, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """A job with its findings and, if repaired, the changes.

    Attributes:
        name: The job.
        trace: It, as it was read.
        examination: What came of it.
        changes: What was repaired; empty where nothing was asked for or had to be.
        files: The files of the repaired job.
        left: What the repaired job is examined to; None where none was asked for.
        only: The repairs that were asked for; none stands for all.
    """

    name: str
    trace: Trace
    examination: Examination
    changes: tuple[Change, ...] = ()
    files: tuple[Path, ...] = ()
    left: Examination | None = None
    only: tuple[str, ...] = ()


def run(request: Request, *, progress: Progress | None = None) -> list[Checked]:
    """Examine every job at the paths; with a folder, write repaired copies into it.

    Raises:
        TraceError: Several jobs are to be repaired into one folder, or a job into its own.
        TraceFormatError: A file is of no known format.
    """
    target = request.target
    if target is not None:
        refuse_own_input(request.paths, target)
    with open_sources(request.paths, progress) as files:
        jobs = discover(files, progress)
        if target is not None and len(jobs) > 1:
            names = ", ".join(job.name for job in jobs[:6])
            raise TraceError(f"{len(jobs)} jobs found, not one: {names}.", hint="Repair them one by one.")
        numbers = index_ranks_by_file(files, request.ranks)

        def check(job: JobFiles) -> Checked:
            trace = read_job(job, ranks=numbers, progress=progress)
            checked = Checked(job.name, trace, run_checks(trace, progress=progress))
            return checked if target is None else _repair(checked, target, request.only, progress)

        return read_each(jobs, check)


def _repair(checked: Checked, target: Path, only: Sequence[str], progress: Progress | None) -> Checked:
    repaired = repair_all(checked.trace, only or None, progress=progress)
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in checked.name).lstrip(".")[:150] or "job"
    files = write(repaired.trace, target, name, progress=progress)
    left = run_checks(repaired.trace, progress=progress)
    return Checked(
        checked.name, checked.trace, checked.examination, repaired.changes, tuple(files), left, tuple(only)
    )


def reaches_level(done: Sequence[Checked], level: Level) -> bool:
    """Whether any finding has this level or a worse one; of a repaired job the remaining findings count."""
    bad = LEVELS[: LEVELS.index(level) + 1]
    return any(
        diagnosis.level in bad for job in done for diagnosis in (job.left or job.examination).diagnoses
    )


def report(done: Sequence[Checked]) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the findings as plain data: a dictionary for one job, a list for several."""
    reports = [_build_job_report(checked) for checked in done]
    return reports if len(reports) > 1 else reports[0]


def _build_job_report(checked: Checked) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": checked.name,
        "ranks": len(checked.trace.ranks),
        "nodes": checked.trace.node_count,
        **_build_examination_report(checked.trace, checked.examination),
    }
    if checked.left is not None:
        data["repaired"] = {
            "files": [str(path) for path in checked.files],
            "changes": [
                {"what": change.what, "count": change.count, "first": list(change.first)}
                for change in checked.changes
            ],
            "failed": _list_failed(checked),
            "levels": {level: checked.left.count(level) for level in LEVELS},
            "left": sorted({diagnosis.code for diagnosis in checked.left.diagnoses}),
        }
    return data


def _build_examination_report(trace: Trace, examination: Examination) -> dict[str, Any]:
    return {
        "levels": {level: examination.count(level) for level in LEVELS},
        "findings": [_build_finding(trace, diagnosis) for diagnosis in examination.diagnoses],
        "passed": [check.code for check in examination.passed],
    }


def _build_finding(trace: Trace, diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "code": diagnosis.code,
        "level": diagnosis.level,
        "title": diagnosis.title,
        "message": diagnosis.message,
        "ranks": list(diagnosis.ranks),
        "nodes": [{"rank": rank, "node": node} for rank, node in list_node_names(trace, diagnosis)],
        "count": diagnosis.count,
        "evidence": [{"what": what, "value": value} for what, value in diagnosis.evidence],
        "consequence": diagnosis.consequence,
        "advice": diagnosis.advice,
        "repair": diagnosis.repair,
    }


def text(done: Sequence[Checked]) -> str:
    """Format the result for a terminal."""
    return "\n\n".join(_format_job(checked) for checked in done)


def _format_job(checked: Checked) -> str:
    trace, examination = checked.trace, checked.examination
    size = f"{format_counted(len(trace.ranks), 'rank')}, {format_counted(trace.node_count, 'node')}"
    lines = [f"{checked.name}: {size}: {describe_levels(examination)}."]
    for diagnosis in examination.diagnoses:
        lines += ["", *_format_diagnosis(trace, diagnosis)]
    titles = "; ".join(check.title[0].lower() + check.title[1:] for check in examination.passed)
    if titles:
        lines += ["", *_wrap("Looked for and not found: ", f"{titles}.", "  ")]
    if checked.left is not None:
        lines += ["", *_format_repairs(checked)]
    return "\n".join(escape_controls(line) for line in lines)


def describe_levels(examination: Examination) -> str:
    """Return the number of errors and warnings in words."""
    counts = [(examination.count(level), level) for level in ("error", "warning")]
    problems = ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for count, level in counts if count)
    return problems or f"no problems, {len(CHECKS)} checks made"


def _format_diagnosis(trace: Trace, diagnosis: Diagnosis) -> list[str]:
    lines = _wrap(f"{diagnosis.level:8}", f"{diagnosis.title} [{diagnosis.code}]", " " * 8)
    lines += _wrap(" " * 8, diagnosis.message, " " * 8)
    lines += [
        part for what, value in diagnosis.evidence for part in _wrap(f"{'':8}{what}: ", value, " " * 10)
    ]
    nodes = [f"{node} of rank {rank}" for rank, node in list_node_names(trace, diagnosis)[:_NODES_SHOWN]]
    if nodes:
        more = (
            f" and {format_count(diagnosis.count - len(nodes))} more" if diagnosis.count > len(nodes) else ""
        )
        lines += _wrap(f"{'':8}nodes: ", ", ".join(nodes) + more, " " * 10)
    if diagnosis.consequence:
        lines += _wrap(f"{'':8}→ ", diagnosis.consequence, " " * 10)
    if diagnosis.repair:
        lines += _wrap(f"{'':8}--repair: ", f"{REPAIRS[diagnosis.repair].title}.", " " * 10)
    if diagnosis.advice:
        lines += _wrap(" " * 8, diagnosis.advice, " " * 8)
    return lines


_WHY_NOT = "dependencies leave no way to do it."


def _list_failed(checked: Checked) -> list[str]:
    """Return the codes of repairs that were asked for and offered, and whose finding is there as it was."""
    assert checked.left is not None
    offered = {diagnosis.repair for diagnosis in checked.examination.diagnoses}
    left = {diagnosis.repair for diagnosis in checked.left.diagnoses}
    return [code for code in REPAIRS if code in offered & left and (not checked.only or code in checked.only)]


def _format_repairs(checked: Checked) -> list[str]:
    assert checked.left is not None
    changes = []
    for change in checked.changes:
        changes += _wrap("Repaired: ", f"{change.what}.", "  ")
        for text in change.first[:_CHANGES_SHOWN]:
            changes += _wrap("  ", text, "    ")
        if change.count > _CHANGES_SHOWN and change.first:
            changes.append(f"  and {format_count(change.count - len(change.first[:_CHANGES_SHOWN]))} more")
    written = f"{checked.files[0]}" + (f" … {checked.files[-1]}" if len(checked.files) > 1 else "")
    noun = "file" if len(checked.files) == 1 else "files"
    failed = [
        line
        for code in _list_failed(checked)
        for line in _wrap("Not repaired: ", f"{REPAIRS[code].title} [{code}]: {_WHY_NOT}", "  ")
    ]
    head = changes or ([] if failed else ["Repaired: nothing; no finding can be repaired."])
    return [
        *head,
        *failed,
        f"Written: {format_count(len(checked.files))} {noun}, {written}",
        f"Now: {describe_levels(checked.left)}.",
    ]


def _wrap(first: str, text: str, rest: str) -> list[str]:
    # Names of nodes may hold line breaks, which are shown as escapes.
    plain = escape_controls(text)
    return textwrap.wrap(
        plain,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _check_repairs(_ctx: click.Context, _param: click.Parameter, codes: tuple[str, ...]) -> tuple[str, ...]:
    """Validate the names of repairs."""
    if codes:
        unknown = next((code for code in codes if code not in REPAIRS), None)
        if unknown is not None:
            raise click.BadParameter(
                f"there is no repair {unknown!r}; {suggest(unknown, REPAIRS)}there are {', '.join(REPAIRS)}."
            )
    return codes


@click.command(
    help=__doc__, epilog="Example: chakra-studio check traces/ --fail-on warning --repair repaired/"
)
@paths_argument
@json_option
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    default="error",
    show_default=True,
    help="Exit with 1 if there is a finding of this level or worse.",
)
@click.option(
    "--repair",
    "target",
    metavar="OUT",
    type=PathOption(file_okay=False),
    help="Repair what can be repaired and write the job into this folder.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="CODE",
    callback=_check_repairs,
    help="Make only this repair; may be repeated.",
)
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    as_json: bool,
    fail_on: Level,
    target: Path | None,
    only: tuple[str, ...],
    ranks: dict[str, int],
) -> None:
    """Carry out `check`."""
    if only and target is None:
        raise click.UsageError("--only needs --repair with a folder for the repaired job.")
    request = Request(paths, target, only, ranks)
    done = run(request, progress=build_progress_line())
    show(done, as_json, report, text)
    if reaches_level(done, fail_on):
        ctx.exit(1)
