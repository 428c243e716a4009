"""Simulate the jobs of a suite on its systems, and score the systems.

SUITE.toml names jobs, systems, and limits that cases have to keep; docs/fleet.md describes it. Every job is simulated on every
system. The score of a system is the geometric mean over the jobs of its speed relative to the reference system.

A case that fails ends no other. Killed and run again, a suite continues where it was: cases whose files and system have
not changed are taken from RESULTS.

The exit code is 0, 1 if a case failed or for another error, 2 for wrong arguments, 3 if a limit is not kept or a case is
slower than in --against, and 4 if a job was read from damaged files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import msgspec

from studio.analysis.job.function_names import cut_middle
from studio.commands.base.losses import STATUS
from studio.commands.base.options import (
    EXISTING_FILE,
    PathOption,
    allow_damaged,
    json_option,
    workspace_option,
)
from studio.commands.base.output import build_progress_line, show
from studio.commands.base.suite_cases import Case, Results, Score, find_regressions, read_results, run_suite
from studio.commands.base.suite_file import read_suite
from studio.commands.base.terminal import align_columns, escape_controls, shorten
from studio.et import Progress
from studio.store.durable_files import write_atomically
from studio.units import format_counted, format_ns

_WIDE = 100
_NAME = 32


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `suite`.

    Attributes:
        suite: The manifest.
        out: Folder for results.
        against: Stored results to compare with; None for none.
        slower_percent: By how much a case may be slower than there.
        again: Whether to simulate all cases again.
        workspace: Its folder; None is the user's.
    """

    suite: Path
    out: Path
    against: Path | None = None
    slower_percent: float = 1.0
    again: bool = False
    workspace: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `suite` prints.

    Attributes:
        results: The results.
        output: Where they are.
    """

    results: Results
    output: Path


def run(request: Request, *, progress: Progress | None = None) -> Outcome:
    """Simulate the cases of a suite, and write and score what they came to.

    Raises:
        ConfigError: The manifest or the stored results are wrong.
        StudioError: The folder cannot be written.
    """
    suite = read_suite(request.suite)
    # Before they are replaced, where both are in one folder.
    before = None if request.against is None else read_results(request.against)
    results = run_suite(
        suite, request.out, workspace=request.workspace, again=request.again, progress=progress
    )
    if before is not None:
        results = replace(
            results, regressions=find_regressions(results, before, request.slower_percent / 100)
        )
    path = request.out / "suite.json"
    with write_atomically(path, "--out") as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(results), indent=2).decode() + "\n")
    return Outcome(results, path)


def report(outcome: Outcome) -> dict[str, Any]:
    """Return results as plain data: what `suite.json` holds; times are in nanoseconds."""
    results: dict[str, Any] = msgspec.to_builtins(outcome.results)
    return {**results, "output": str(outcome.output)}


def text(outcome: Outcome) -> str:
    """Format results for a terminal."""
    return "\n".join(escape_controls(line) for line in _format_lines(outcome))


def _format_lines(outcome: Outcome) -> Iterator[str]:
    results = outcome.results
    kept = sum(case.kept for case in results.cases)
    resumed = f", {kept} of them from an earlier run" if kept else ""
    yield f"{results.name}: {format_counted(len(results.cases), 'case')}{resumed}; speeds are relative to {results.reference}"
    head = ("job", "system", "finish", "speed", "exposed", "limits")
    rows = [head, *(_format_cells(case) for case in results.cases)]
    wide = [max(len(row[place]) for row in rows) for place in (0, 1)]
    named = [(f"{row[0]:{wide[0]}}  {row[1]:{wide[1]}}", *row[2:]) for row in rows]
    yield from (f"  {line}".rstrip() for line in align_columns(named, (24, 11, 9, 10, 12)))
    for case in results.cases:
        result = case.result
        if result.finish_ns is None:
            yield f"  failed: {result.job} on {result.system}: {shorten(result.error.splitlines()[0], 2 * _WIDE)}"
        for words in case.exceeded:
            yield f"  limit: {result.job} on {result.system}: {words}"
        if result.impossible:
            yield f"  IMPOSSIBLE: {result.job} on {result.system}: {result.impossible}"
        if result.other_gpu:
            yield f"  doubtful: {result.job} on {result.system}: {result.other_gpu}"
    if any(case.result.other_gpu for case in results.cases):
        yield '  Give these systems gpu = "NAME" to have recorded durations recomputed; a generated job is generated anew for each GPU.'
    yield ""
    yield f"  {'score':24}{'speed':>11}{'jobs':>9}"
    for score in results.scores:
        yield f"  {cut_middle(score.system, 24):24}{'–' if score.speed is None else f'{score.speed:.3f}':>11}{score.jobs:>9}{_format_mark(score)}"
    for slower in results.regressions:
        now = "failed or is gone"
        if slower.now_ns is not None:
            now = f"{format_ns(slower.now_ns)}, {100 * (slower.change or 0):+.1f} %"
        yield f"  slower than before: {slower.job} on {slower.system}: {format_ns(slower.before_ns)}, now {now}"
    yield f"written: {outcome.output}"


def _format_mark(score: Score) -> str:
    """Say of how many jobs a score has a finish that no such network could have."""
    return f"  IMPOSSIBLE in {score.impossible} of them" if score.impossible else ""


def _format_cells(case: Case) -> tuple[str, ...]:
    result = case.result
    if result.finish_ns is None:
        return cut_middle(result.job, _NAME), cut_middle(result.system, _NAME), "failed", "–", "–", "–"
    return (
        cut_middle(result.job, _NAME),
        cut_middle(result.system, _NAME),
        format_ns(result.finish_ns),
        "–" if case.speed is None else f"{case.speed:.3f}",
        "–" if result.exposed is None else f"{100 * result.exposed:.1f} %",
        "not kept" if case.exceeded else "",
    )


@click.command(
    help=__doc__, epilog="Example: chakra-studio suite suite.toml -o results/ --against last-week/"
)
@click.argument("suite", metavar="SUITE.toml", type=EXISTING_FILE)
@click.option(
    "-o", "--out", required=True, metavar="RESULTS", type=PathOption(file_okay=False), help="Folder for results."
)  # fmt: skip
@click.option(
    "--against", metavar="RESULTS", type=PathOption(exists=True), help="Stored results that no case may be slower than."
)  # fmt: skip
@click.option(
    "--slower",
    "slower_percent",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="PCT",
    help="By how many percent a case may be slower than stored.",
)
@click.option("--again", is_flag=True, help="Simulate cases again that are in RESULTS.")
@workspace_option
@json_option
@allow_damaged
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, allow_damaged: bool, **given: Any) -> None:
    """Carry out `suite`."""
    outcome = run(Request(**given), progress=build_progress_line())
    show(outcome, as_json, report, text)
    results = outcome.results
    if results.failed:
        ctx.exit(1)
    if results.exceeded or results.regressions:
        ctx.exit(3)
    if not allow_damaged and any(case.result.damaged for case in results.cases):
        ctx.exit(STATUS)
