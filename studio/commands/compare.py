"""`chakra-studio compare`: how much longer runs take than the first, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from studio.analysis.compare.runs import Comparison, Figure, NodeAlone, NodeChange, Side, Waterfall
from studio.analysis.comparison_words import WORDS, node_words, percent, signed, verdict
from studio.commands.names import find_runs
from studio.commands.terminal import printable, shortened
from studio.comparing import LETTERS, Compared, Lineup, lineup, settings_table
from studio.et import Progress
from studio.sim.setting_values import plain_name, plain_settings
from studio.units import format_count, format_ns

_SHOWN = 8
_NAME_WIDTH = 46


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare.

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
    return lineup(chosen, progress)


def slower_than(shown: Lineup, percent: float) -> bool:
    """Return whether any run finishes later than the first by more than so many percent."""
    return any(one.b.makespan_ns * 100 > one.a.makespan_ns * (100 + percent) for one in shown.found)


def report(shown: Lineup) -> dict[str, Any]:
    """Return everything about a comparison as plain data; times are nanoseconds, differences those to the first."""
    return {
        "sides": [
            {
                "side": letter,
                "name": one.name,
                "job": one.job or None,
                "run": one.run,
                "finish_ns": one.side.makespan_ns,
                "ranks": len(one.side.trace.ranks),
                "nodes": one.side.trace.node_count,
                "settings": plain_settings(one.settings),
            }
            for letter, one in zip(LETTERS, shown.sides, strict=False)
        ],
        "differing_settings": _differing(shown.sides),
        "comparisons": [_compared(one, LETTERS[at]) for at, one in enumerate(shown.found, start=1)],
    }


def _compared(found: Comparison, letter: str) -> dict[str, Any]:
    alignment = found.alignment
    before = found.a.makespan_ns
    return {
        "a": "A",
        "b": letter,
        "verdict": verdict(found, "A", letter),
        "difference_ns": found.difference_ns,
        "difference_percent": 100 * found.difference_ns / before if before else None,
        "figures": [_figure(one) for one in found.figures],
        "dimensions": [_figure(one) for one in found.dimensions],
        "links": [_figure(one) for one in found.links],
        "waterfalls": [_waterfall(one) for one in found.waterfalls],
        "matching": {
            "by": alignment.by,
            "share": alignment.share,
            "matched": alignment.matched,
            "nodes_a": alignment.nodes_a,
            "nodes_b": alignment.nodes_b,
            "ranks_only_a": [found.a.trace.ranks[at].number for at in alignment.alone_a.tolist()],
            "ranks_only_b": [found.b.trace.ranks[at].number for at in alignment.alone_b.tolist()],
            "added": found.added_count,
            "removed": found.removed_count,
        },
        "slower": [_change(found, one) for one in found.slower],
        "faster": [_change(found, one) for one in found.faster],
        "added": [_alone(found.b, one) for one in found.added],
        "removed": [_alone(found.a, one) for one in found.removed],
        "operations": [
            {
                "type": one.type,
                "name": one.name,
                "count_a": one.count_a,
                "count_b": one.count_b,
                "a_ns": one.a_ns,
                "b_ns": one.b_ns,
                "difference_ns": one.difference_ns,
            }
            for one in found.operations
        ],
    }


def _figure(one: Figure) -> dict[str, Any]:
    return {
        "figure": one.key,
        "unit": one.unit,
        "a": one.a,
        "b": one.b,
        "difference": one.difference,
        "share": one.share,
    }


def _waterfall(one: Waterfall) -> dict[str, Any]:
    return {
        "basis": one.basis,
        "rank_a": one.rank_a if one.basis == "busiest" else None,
        "rank_b": one.rank_b if one.basis == "busiest" else None,
        "a_ns": one.a_ns,
        "b_ns": one.b_ns,
        "steps": [
            {
                "part": step.part,
                "a_ns": step.a_ns,
                "b_ns": step.b_ns,
                "difference_ns": step.difference_ns,
                "share": step.share,
            }
            for step in one.steps
        ],
    }


def _change(found: Comparison, one: NodeChange) -> dict[str, Any]:
    other = node_words(found.b, one.rank_b, one.row_b)
    return {
        **node_words(found.a, one.rank_a, one.row_a),
        "rank_b": other["rank"],
        "node_b": other["node"],
        "a_ns": one.a_ns,
        "b_ns": one.b_ns,
        "difference_ns": one.difference_ns,
        "ranks": one.ranks,
        "total_ns": one.total_ns,
    }


def _alone(side: Side, one: NodeAlone) -> dict[str, Any]:
    return {
        **node_words(side, one.rank, one.row),
        "duration_ns": one.ns if one.ns >= 0 else None,
        "ranks": one.ranks,
    }


def _differing(sides: Sequence[Compared]) -> list[str]:
    """Return the settings that differ, called as plain data calls them."""
    names: dict[str, str] = {}
    for side in sides:
        names.update((key, plain_name(key, one)) for key, one in side.settings.items())
    return [names[key] for key, _ in settings_table(sides)]


def text(shown: Lineup) -> str:
    """Return a comparison for reading in a terminal."""
    sides = shown.sides
    wide = max(len(one.name) for one in sides)
    base = sides[0].side.makespan_ns
    lines = []
    for letter, one in zip(LETTERS, sides, strict=False):
        finish = one.side.makespan_ns
        change = ""
        if letter != "A":
            share = percent((finish - base) / base) if base else ""
            change = f"{signed(finish - base):>14}{share:>12}"
        lines.append(f"{letter}  {one.name:{wide}}  finish {format_ns(finish):>10}{change}")
    for letter, pair in zip(LETTERS[1:], shown.found, strict=False):
        lines += ["", *_pair(pair, letter)]
    settings = settings_table(sides)
    if settings:
        lines += ["", "settings that differ"]
        lines += [
            f"  {key:34}" + "  ".join(f"{text or '-':>18}" for text, _ in values) for key, values in settings
        ]
    return "\n".join(printable(line) for line in lines)


def _pair(found: Comparison, letter: str) -> Iterator[str]:
    yield verdict(found, "A", letter)
    for fall in found.waterfalls:
        where = "in the mean of all ranks"
        if fall.basis == "busiest":
            where = f"on the rank that waits least ({fall.rank_a} in A, {fall.rank_b} in {letter})"
        yield ""
        yield from _table(f"finish {where}", letter)
        for step in fall.steps:
            if step.a_ns or step.b_ns:
                yield _row(WORDS[step.part], step.a_ns, step.b_ns, step.share)
        yield _row("together", fall.a_ns, fall.b_ns, 1.0 if found.difference_ns else None)
    yield ""
    yield from _table("mean of a rank", letter)
    for one in found.figures[1:]:
        if one.a or one.b:
            yield _row(WORDS[one.key], one.a, one.b, one.share)
    if found.dimensions:
        yield ""
        yield from _table("time one port, or a link, sends", letter)
        for one in (*found.dimensions, *found.links[: 2 * _SHOWN]):
            if one.unit == "ns":
                yield _row(one.key, one.a, one.b, one.share)
    yield from _nodes(found, letter)


def _table(title: str, letter: str) -> Iterator[str]:
    yield f"  {title:{_NAME_WIDTH}}{'A':>12}{letter:>12}{'difference':>14}{'share':>10}"


def _row(name: str, a: float | None, b: float | None, share: float | None) -> str:
    cells = "".join(f"{'-' if one is None else format_ns(round(one)):>12}" for one in (a, b))
    change = "-" if a is None or b is None else signed(round(b - a))
    # Where parts outweigh the whole difference by this much, they nearly cancel out, and shares of it say nothing.
    told = "" if share is None or abs(share) >= _SHARE_TOLD else f"{100 * share:.1f} %".replace("-", "−")
    return f"  {shortened(name, _NAME_WIDTH):{_NAME_WIDTH}}{cells}{change:>14}{told:>10}"


_SHARE_TOLD = 10


def _nodes(found: Comparison, letter: str) -> Iterator[str]:
    alignment = found.alignment
    how = "by rank and id" if alignment.by == "id" else "by structure"
    yield ""
    yield (
        f"  {format_count(alignment.matched)} nodes matched {how}, {100 * alignment.share:.1f} % of both sides; "
        f"{format_count(found.added_count)} added, {format_count(found.removed_count)} removed"
    )
    for side, places, name in ((found.a, alignment.alone_a, "A"), (found.b, alignment.alone_b, letter)):
        if len(places):
            numbers = ", ".join(str(side.trace.ranks[at].number) for at in places[:_SHOWN].tolist())
            more = ", …" if len(places) > _SHOWN else ""
            yield f"  only {name} has ranks {numbers}{more}"
    for title, changes in (("slower nodes", found.slower), ("faster nodes", found.faster)):
        if changes:
            yield ""
            yield from _table(title, letter)
        for one in changes[:_SHOWN]:
            words = node_words(found.a, one.rank_a, one.row_a)
            yield _row(
                f"rank {words['rank']} {_end_of(words['name'])} ({words['node']})", one.a_ns, one.b_ns, None
            )
    for title, side, alone in (
        (f"only in {letter}", found.b, found.added),
        ("only in A", found.a, found.removed),
    ):
        if alone:
            yield ""
            yield f"  {title}"
        for node in alone[:_SHOWN]:
            words = node_words(side, node.rank, node.row)
            lasted = format_ns(node.ns) if node.ns >= 0 else "no time"
            name = f"rank {words['rank']} {_end_of(words['name'])} ({words['node']})"
            yield f"  {shortened(name, _NAME_WIDTH):{_NAME_WIDTH}}{lasted:>12}"


def _end_of(name: str) -> str:
    """Return the end of a name, which tells more than its beginning."""
    return name if len(name) <= 26 else f"…{name[-25:]}"
