"""Compare runs with the first: how much longer they take, and why.

Each of A, B and up to six more is a folder, files or the prefix of files of traces that hold times, or, in the
workspace, a run (RUN or JOB/RUN) or a job: its recording (JOB/recorded), else its newest run. Jobs and runs go by
id or name. Nodes are matched by rank and id, or by structure if the jobs differ.

With --baseline one run is held against measures kept in a file, for continuous integration: step time, finish, exposed
communication, idle, imbalance and the Doctor's findings, each with what --allow says it may be worse by.

The exit code is 0, 1 for an error, 2 for wrong arguments, 3 if --fail-if-slower finds a slower run or --baseline a worse
measure, and 4 if a side was read from damaged files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from studio.analysis.compare.alignment import Alignment
from studio.analysis.compare.alone import AloneName, group_alone_by_name
from studio.analysis.compare.changes import MOST_LISTED, NodeAlone, NodeChange
from studio.analysis.compare.runs import Comparison, Figure
from studio.analysis.compare.sides import Side
from studio.analysis.compare.waterfall import Waterfall
from studio.analysis.compare.words import (
    describe_basis,
    describe_before,
    describe_comparison,
    describe_side_node,
    explain_devices,
    explain_mean,
    format_difference_share,
    format_share,
    format_signed_ns,
)
from studio.analysis.job.function_names import shorten_distinctly
from studio.analysis.job.part_words import NAMES
from studio.commands.base.names import find_runs
from studio.commands.base.options import (
    EXISTING_FILE,
    NameOrPath,
    PathOption,
    allow_damaged,
    rank_option,
    workspace_option,
)
from studio.commands.base.outcome import doubt_report
from studio.commands.base.output import build_progress_line, end_with_losses, list_findings, show
from studio.commands.base.terminal import escape_controls, shorten
from studio.comparing import LETTERS, SIDES_AT_MOST, Compared, Lineup, build_lineup, build_settings_table
from studio.errors import ConfigError
from studio.et import Progress
from studio.sim.setting_values import convert_settings, format_plain_name
from studio.units import format_count, format_counted, format_ns

if TYPE_CHECKING:
    from studio.commands.base.baseline import Judged

_SHOWN = 8
_NAME_WIDTH = 46
_VALUE_WIDTH = 18


@dataclass(frozen=True, slots=True)
class Request:
    """Options of `compare`.

    Attributes:
        sides: Names of the runs, as `names.find_runs` takes them; the others are compared with the first.
        workspace: Its folder; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
    """

    sides: tuple[str, ...]
    workspace: Path | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)


def run(request: Request, *, progress: Progress | None = None) -> Lineup:
    """Read the runs and compare each with the first.

    Raises:
        ConfigError: Too few or too many names, or nothing is called so.
        StudioError: What is named cannot be read, or holds no times.
    """
    chosen = find_runs(request.sides, request.workspace, ranks=request.ranks, progress=progress)
    return build_lineup(chosen, progress)


def run_baseline(
    request: Request,
    baseline: Path | None,
    write_to: Path | None,
    allow: Sequence[str] = (),
    *,
    progress: Progress | None = None,
) -> tuple[Judged, Compared]:
    """Measure a run, compare it with a baseline, and make it the new baseline unless something got worse.

    Raises:
        ConfigError: Nothing is called so, or the baseline is none, or of a run of another kind.
        StudioError: What is named cannot be read, or holds no times.
    """
    from studio.commands.base.baseline import (
        Judged,
        hold,
        measure_baseline,
        parse_allowed,
        read_baseline,
        write_baseline,
    )

    allowed = parse_allowed(allow)
    against = None if baseline is None else read_baseline(baseline)
    [side] = find_runs(request.sides, request.workspace, ranks=request.ranks, progress=progress, least=1)
    measured = measure_baseline(side)
    judged = Judged(measured, None, (), None)
    if against is not None and baseline is not None:
        judged = hold(measured, against, allowed, baseline)
    if write_to is not None and not judged.worse:
        write_baseline(write_to, measured)
        judged = replace(judged, written=write_to)
    return judged, side


def is_slower_than(shown: Lineup, percent: float) -> bool:
    """Return whether any run finishes later than the first by more than so many percent.

    Raises:
        ConfigError: A run is of another model than the first, so that neither is faster.
    """
    why = next((comparison.unranked for comparison in shown.comparisons if comparison.unranked), "")
    if why:
        raise ConfigError("--fail-if-slower ranks runs of one model", hint=why)
    return any(
        comparison.b.makespan_ns * 100 > comparison.a.makespan_ns * (100 + percent)
        for comparison in shown.comparisons
    )


def report(shown: Lineup) -> dict[str, Any]:
    """Return a comparison as plain data; times are in nanoseconds, differences are to the first run."""
    return {
        "sides": [
            {
                "side": letter,
                "name": side.name,
                "job": side.job or None,
                "run": side.run,
                "model": side.side.model or None,
                "finish_ns": side.side.makespan_ns,
                "ranks": len(side.side.trace.ranks),
                "nodes": side.side.trace.node_count,
                "settings": convert_settings(side.settings),
                "doubts": [doubt_report(doubt) for doubt in side.doubts],
            }
            for letter, side in zip(LETTERS, shown.sides, strict=False)
        ],
        "differing_settings": _list_differing_settings(shown.sides),
        "comparisons": [
            _build_comparison_report(comparison, LETTERS[index])
            for index, comparison in enumerate(shown.comparisons, start=1)
        ],
    }


def _build_comparison_report(comparison: Comparison, letter: str) -> dict[str, Any]:
    alignment = comparison.alignment
    before = comparison.a.makespan_ns
    return {
        "a": "A",
        "b": letter,
        "verdict": describe_comparison(comparison, "A", letter),
        "difference_ns": comparison.difference_ns,
        "difference_percent": 100 * comparison.difference_ns / before
        if before and not comparison.unranked
        else None,
        "unranked": comparison.unranked or None,
        "figures": [_build_figure_report(figure) for figure in comparison.figures],
        "dimensions": [_build_figure_report(figure) for figure in comparison.dimensions],
        "links": [_build_figure_report(figure) for figure in comparison.links],
        "waterfalls": [_build_waterfall_report(fall) for fall in comparison.waterfalls],
        "matching": {
            "by": alignment.by,
            "share": alignment.share,
            "matched": alignment.matched,
            "nodes_a": alignment.nodes_a,
            "nodes_b": alignment.nodes_b,
            "ranks_only_a": [comparison.a.trace.ranks[place].number for place in alignment.alone_a.tolist()],
            "ranks_only_b": [comparison.b.trace.ranks[place].number for place in alignment.alone_b.tolist()],
            "added": comparison.added_count,
            "removed": comparison.removed_count,
        },
        "added_by_name": _build_alone_report(comparison.b, alignment, of_b=True),
        "removed_by_name": _build_alone_report(comparison.a, alignment, of_b=False),
        "slower": [_change_report(comparison, change) for change in comparison.slower],
        "faster": [_change_report(comparison, change) for change in comparison.faster],
        "added": [_build_node_report(comparison.b, node) for node in comparison.added],
        "removed": [_build_node_report(comparison.a, node) for node in comparison.removed],
        "operations": [
            {
                "type": operation.type,
                "name": operation.name,
                "count_a": operation.count_a,
                "count_b": operation.count_b,
                "a_ns": operation.a_ns,
                "b_ns": operation.b_ns,
                "difference_ns": operation.difference_ns,
            }
            for operation in comparison.operations
        ],
    }


def _build_figure_report(figure: Figure) -> dict[str, Any]:
    return {
        "figure": figure.key,
        "unit": figure.unit,
        "a": figure.a,
        "b": figure.b,
        "difference": figure.difference,
        "share": figure.share,
    }


def _build_waterfall_report(fall: Waterfall) -> dict[str, Any]:
    return {
        "basis": fall.basis,
        "rank_a": fall.rank if fall.basis == "busiest" else None,
        "rank_b": fall.rank if fall.basis == "busiest" else None,
        "a_ns": fall.a_ns,
        "b_ns": fall.b_ns,
        "before_recording_ns": list(fall.before_ns),
        "steps": [
            {
                "part": step.part,
                "a_ns": step.a_ns,
                "b_ns": step.b_ns,
                "difference_ns": step.difference_ns,
                "share": step.share,
            }
            for step in fall.steps
        ],
    }


def _change_report(comparison: Comparison, change: NodeChange) -> dict[str, Any]:
    other = describe_side_node(comparison.b, change.rank_b, change.row_b)
    return {
        **describe_side_node(comparison.a, change.rank_a, change.row_a),
        "rank_b": other["rank"],
        "node_b": other["node"],
        "a_ns": change.a_ns,
        "b_ns": change.b_ns,
        "difference_ns": change.difference_ns,
        "ranks": change.ranks,
        "total_ns": change.total_ns,
    }


def _build_node_report(side: Side, node: NodeAlone) -> dict[str, Any]:
    return {
        **describe_side_node(side, node.rank, node.row),
        "duration_ns": node.ns if node.ns >= 0 else None,
        "ranks": node.ranks,
    }


def _build_alone_report(side: Side, alignment: Alignment, *, of_b: bool) -> list[dict[str, Any]]:
    alone = group_alone_by_name(side, alignment, of_b=of_b)[:MOST_LISTED]
    return [
        {"name": entry.name, "count": entry.count, "total_ns": entry.total_ns, "ranks": entry.ranks}
        for entry in alone
    ]


def _list_differing_settings(sides: Sequence[Compared]) -> list[str]:
    """Return the settings that differ, with the units in their names."""
    names: dict[str, str] = {}
    for side in sides:
        names.update((key, format_plain_name(key, value)) for key, value in side.settings.items())
    return [names[key] for key, _ in build_settings_table(sides)]


def text(shown: Lineup) -> str:
    """Format a comparison for a terminal."""
    sides = shown.sides
    wide = max(len(side.name) for side in sides)
    base = sides[0].side.makespan_ns
    lines = list(_doubt_lines(sides))
    unranked = ["", *(comparison.unranked for comparison in shown.comparisons)]
    for letter, side, why in zip(LETTERS, sides, unranked, strict=False):
        finish = side.side.makespan_ns
        change = f"{'not ranked':>14}" if why else ""
        if letter != "A" and not why:
            share = format_share((finish - base) / base) if base else ""
            change = f"{format_signed_ns(finish - base):>14}{share:>12}"
        lines.append(
            f"{letter}  {side.name:{wide}}  {side.side.model or 'recorded':18}  finish {format_ns(finish):>10}{change}"
        )
    for letter, pair in zip(LETTERS[1:], shown.comparisons, strict=False):
        lines += ["", *_pair_lines(pair, letter)]
    settings = build_settings_table(sides)
    if settings:
        lines += ["", "settings that differ"]
        wide = max(_VALUE_WIDTH, *(len(text) for _, values in settings for text, _ in values))
        lines += [
            f"  {key:34}" + "  ".join(f"{text or '-':>{wide}}" for text, _ in values)
            for key, values in settings
        ]
    return "\n".join(escape_controls(line) for line in lines)


def _doubt_lines(sides: Sequence[Compared]) -> Iterator[str]:
    """Say why runs are not to be believed as they stand, each doubt once with all the runs it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    for letter, side in zip(LETTERS, sides, strict=False):
        for doubt in side.doubts:
            about.setdefault((doubt.mark, doubt.message), []).append(letter)
    for (mark, message), letters in about.items():
        yield f"{mark} in {', '.join(dict.fromkeys(letters))}: {message}"
    if about:
        yield ""


def _pair_lines(comparison: Comparison, letter: str) -> Iterator[str]:
    yield describe_comparison(comparison, "A", letter)
    for words in (explain_mean(comparison, letter), explain_devices(comparison, letter)):
        if words:
            yield words
    yield from _format_parts(comparison, letter)
    if comparison.dimensions:
        yield ""
        yield from _format_table_head("time one port, or a link, sends", letter, share="")
        for figure in (*comparison.dimensions, *comparison.links[: 2 * _SHOWN]):
            if figure.unit == "ns":
                yield _format_row(figure.key, figure.a, figure.b, None)
    yield from _format_nodes(comparison, letter)


def _format_parts(comparison: Comparison, letter: str) -> Iterator[str]:
    """Show where the difference of the finish is, by each basis; once where both jobs have one rank, which is the mean too."""
    of_one = len(comparison.a.trace.ranks) == len(comparison.b.trace.ranks) == 1
    for fall in comparison.waterfalls[:1] if of_one else comparison.waterfalls:
        yield ""
        yield from _format_table_head("finish" if of_one else f"finish {describe_basis(fall)}", letter)
        for step in fall.steps:
            if step.a_ns or step.b_ns:
                yield _format_row(NAMES[step.part], step.a_ns, step.b_ns, step.share)
        yield _format_row("together", fall.a_ns, fall.b_ns, 1.0 if comparison.difference_ns else None)
        if words := describe_before(fall, letter):
            yield f"  {words}"
    if of_one and comparison.waterfalls:
        return
    yield ""
    yield from _format_table_head(f"mean of a {comparison.whose}", letter, share="")
    for figure in comparison.figures[1:]:
        if figure.a or figure.b:
            # Means cover the same time several times over, so that shares of the difference tell nothing.
            yield _format_row(NAMES[figure.key], figure.a, figure.b, None)


def _format_table_head(title: str, letter: str, *, share: str = "share") -> Iterator[str]:
    yield f"  {title:{_NAME_WIDTH}}{'A':>12}{letter:>12}{'difference':>14}{share:>10}".rstrip()


def _format_row(name: str, a: float | None, b: float | None, share: float | None) -> str:
    cells = "".join(f"{'-' if value is None else format_ns(round(value)):>12}" for value in (a, b))
    change = "-" if a is None or b is None else format_signed_ns(round(b - a))
    return (
        f"  {shorten(name, _NAME_WIDTH):{_NAME_WIDTH}}{cells}{change:>14}{format_difference_share(share):>10}"
    )


def _format_nodes(comparison: Comparison, letter: str) -> Iterator[str]:
    alignment = comparison.alignment
    how = "by rank and id" if alignment.by == "id" else "by structure"
    yield ""
    yield (
        f"  {format_counted(alignment.matched, 'node')} matched {how}, {100 * alignment.share:.1f} % of both sides; "
        f"{format_count(comparison.added_count)} added, {format_count(comparison.removed_count)} removed"
    )
    for side, places, name in (
        (comparison.a, alignment.alone_a, "A"),
        (comparison.b, alignment.alone_b, letter),
    ):
        if len(places):
            numbers = ", ".join(str(side.trace.ranks[place].number) for place in places[:_SHOWN].tolist())
            more = ", …" if len(places) > _SHOWN else ""
            yield f"  only {name} has ranks {numbers}{more}"
    for title, changes in (("slower nodes", comparison.slower), ("faster nodes", comparison.faster)):
        if changes:
            yield ""
            yield from _format_table_head(title, letter, share="")
        for change in changes[:_SHOWN]:
            words = describe_side_node(comparison.a, change.rank_a, change.row_a)
            yield _format_row(
                f"rank {words['rank']} {_end_of(words['name'])} ({words['node']})",
                change.a_ns,
                change.b_ns,
                None,
            )
    for title, side, of_b in ((f"only in {letter}", comparison.b, True), ("only in A", comparison.a, False)):
        yield from _format_alone(title, group_alone_by_name(side, alignment, of_b=of_b))


def _format_alone(title: str, alone: Sequence[AloneName]) -> Iterator[str]:
    """List what only one side has, a line for each name."""
    if not alone:
        return
    yield ""
    yield f"  {title:{_NAME_WIDTH}}{'nodes':>12}{'together':>12}"
    names = shorten_distinctly([entry.name for entry in alone[:_SHOWN]], _NAME_WIDTH)
    for name, entry in zip(names, alone, strict=False):
        lasted = format_ns(entry.total_ns) if entry.total_ns else "no time"
        yield f"  {name:{_NAME_WIDTH}}{format_count(entry.count):>12}{lasted:>12}"
    if len(alone) > _SHOWN:
        rest = alone[_SHOWN:]
        yield (
            f"  {f'and {format_count(len(rest))} more names':{_NAME_WIDTH}}{format_count(sum(entry.count for entry in rest)):>12}"
            f"{format_ns(sum(entry.total_ns for entry in rest)):>12}"
        )


def _end_of(name: str) -> str:
    """Shorten a name from its start; the end says more."""
    return name if len(name) <= 26 else f"…{name[-25:]}"


@click.command(help=__doc__, epilog="Example: chakra-studio compare traces/ fast --fail-if-slower 2")
@click.argument("sides", metavar="A [B] [C]...", nargs=-1, required=True, type=NameOrPath())
@click.option("--json", "as_json", is_flag=True, help="Print JSON: everything, in nanoseconds.")
@click.option(
    "--fail-if-slower",
    type=click.FloatRange(min=0),
    metavar="PCT",
    help="Exit with 3 if a run finishes more than this many percent later than A.",
)
@click.option(
    "--baseline",
    type=EXISTING_FILE,
    metavar="FILE.json",
    help="Hold one run against the measures in this file.",
)
@click.option(
    "--write-baseline",
    type=PathOption(dir_okay=False),
    metavar="FILE.json",
    help="Keep the measures of one run in this file; with --baseline only if none is worse.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="LIMITS",
    help="What may be worse by how much.  [default: step=5%,finish=5%,exposed=2points,idle=2points,imbalance=0.05,errors=0,warnings=0]",
)
@workspace_option
@allow_damaged
@rank_option
@click.pass_context
def command(
    ctx: click.Context,
    sides: tuple[str, ...],
    as_json: bool,
    fail_if_slower: float | None,
    baseline: Path | None,
    write_baseline: Path | None,
    allow: tuple[str, ...],
    workspace: Path | None,
    allow_damaged: bool,
    ranks: dict[str, int],
) -> None:
    """Carry out `compare`."""
    if baseline is not None or write_baseline is not None:
        if len(sides) != 1 or fail_if_slower is not None:
            raise click.UsageError(
                "With --baseline or --write-baseline name one run, without --fail-if-slower."
            )
        from studio.commands.base.baseline import build_baseline_report, format_baseline

        request = Request(sides, workspace, ranks)
        judged, side = run_baseline(request, baseline, write_baseline, allow, progress=build_progress_line())
        show(judged, as_json, build_baseline_report, format_baseline)
        end_with_losses(ctx, list_findings([side]), allow_damaged or bool(judged.worse), warned=False)
        if judged.worse:
            ctx.exit(3)
        return
    if allow:
        raise click.UsageError("--allow goes with --baseline.")
    if not 2 <= len(sides) <= SIDES_AT_MOST:
        raise click.UsageError(f"Name 2 to {SIDES_AT_MOST} runs to compare, not {len(sides)}.")
    shown = run(Request(sides, workspace, ranks), progress=build_progress_line())
    show(shown, as_json, report, text)
    slower = fail_if_slower is not None and is_slower_than(shown, fail_if_slower)
    # That a run is slower is what the user asked about; that a side is damaged is said all the same.
    end_with_losses(ctx, list_findings(shown.sides), allow_damaged or slower, warned=False)
    if slower:
        ctx.exit(3)
