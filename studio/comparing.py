"""Runs to compare, by the names people give them, and what is said about the outcome.

A run is a recording, which is a job whose files hold times, or a simulation that was kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from studio.analysis.breakdown import RankUse, rank_use
from studio.analysis.comparison import (
    Carried,
    Comparison,
    Figure,
    NodeAlone,
    NodeChange,
    Side,
    Waterfall,
    compare,
    recorded_side,
)
from studio.analysis.nodes import node_ref
from studio.analysis.occupancy import Occupancy, occupancy
from studio.analysis.summary import Summary, summarise
from studio.errors import ConfigError, StudioError
from studio.et import read
from studio.settings import Setting, differ, plain_name, plain_settings, settings_of, told
from studio.sim.result import SimResult
from studio.sim.traffic import offered_load_words
from studio.simulating import prefixed
from studio.store.runs import Run, RunInfo
from studio.store.workspace import Workspace
from studio.terminal import printable
from studio.timeline import NodeTimes, node_times, recorded
from studio.trace import Trace, type_name
from studio.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from studio.session import Session

Progress = Callable[[str, int, int], None]
RECORDED = "recorded"
"""What stands for a recording where a run could be named."""
SIDES_AT_MOST = 8
LETTERS = "ABCDEFGH"
_BINS = 480
"""Into how many parts a run is cut to show what the ranks did over time."""
_SHOWN = 8
_NAME_WIDTH = 46

WORDS: Mapping[str, str] = {
    "finish": "finish",
    "compute": "compute",
    "communication": "communication",
    "exposed": "exposed communication",
    "transfer": "exposed communication under way",
    "waiting": "exposed, waiting for other ranks",
    "memory": "memory",
    "cpu": "CPU",
    "idle": "idle",
    "finished": "done before the last rank",
}
"""Figures and parts of a finish as they are called."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A run to be compared.

    Attributes:
        name: What to call it; untrusted text.
        side: Its trace and times.
        settings: What is known of how it came about.
        job, run: Ids in the workspace, `RECORDED` for a recording; "" where it came from files.
    """

    name: str
    side: Side
    settings: Mapping[str, Setting] = field(default_factory=dict)
    job: str = ""
    run: str = RECORDED


@dataclass(frozen=True, slots=True)
class Lineup:
    """Runs side by side, the first of them what the others are compared with.

    Attributes:
        sides: Two or more.
        found: Each but the first, compared with it.
    """

    sides: tuple[Compared, ...]
    found: tuple[Comparison, ...]

    def partners(self, side: int, rank: int, row: int) -> list[tuple[int, int] | None]:
        """Return a node of a side on every side: place of its rank and row; None where it is not."""
        first: tuple[int, int] | None = (rank, row)
        if side:
            first = self.found[side - 1].alignment.partner_back(rank, row)
        if first is None:
            return [(rank, row) if at == side else None for at in range(len(self.sides))]
        return [first, *(one.alignment.partner(*first) for one in self.found)]


def lineup(sides: Sequence[Compared], progress: Progress | None = None) -> Lineup:
    """Compare each run with the first."""
    return Lineup(tuple(sides), tuple(comparisons(sides, progress)))


def comparisons(sides: Sequence[Compared], progress: Progress | None = None) -> list[Comparison]:
    """Compare each run with the first; `progress` is told how many are."""
    found = []
    for done, other in enumerate(sides[1:]):
        if progress:
            progress("comparing", done, len(sides) - 1)
        found.append(compare(sides[0].side, other.side))
    if progress and found:
        progress("comparing", len(found), len(found))
    return found


def side_use(side: Side) -> tuple[RankUse, Occupancy]:
    """Return where the time of each rank of a run goes, and what the ranks did over time."""
    over_time = occupancy(
        side.trace, side.times, origin_ns=side.origin_ns, makespan_ns=side.makespan_ns, bins=_BINS
    )
    return rank_use(side.trace, side.times, side.finish_ns, side.origin_ns), over_time


def recording(
    trace: Trace,
    name: str,
    summary: Summary | None = None,
    job: str = "",
    times: NodeTimes | None = None,
) -> Compared:
    """Return a recording to be compared; `times` are the trace's own, where they are known already.

    Raises:
        TraceError: The job holds no times.
    """
    side = recorded_side(trace, node_times(trace, recorded(trace)) if times is None else times)
    return Compared(name, side, {"times": Setting("recorded"), **_facts(summary or summarise(trace))}, job)


def simulation(run: Run, info: RunInfo, summary: Summary | None = None, job_name: str = "") -> Compared:
    """Return a simulation to be compared."""
    result = run.result
    side = Side(
        result.trace,
        result.node_times(),
        result.finish_ns,
        groups=result.config.groups,
        dimensions=_dimensions(result),
        links=_links(result),
    )
    facts = _facts(summary or summarise(result.trace))
    known = {"times": Setting("simulated"), **facts, **settings_of(info.tables)}
    return Compared(f"{job_name} · {info.name}" if job_name else info.name, side, known, info.job, info.id)


def _facts(summary: Summary) -> dict[str, Setting]:
    """Return what tells jobs apart."""
    facts = {
        "ranks": Setting(summary.ranks, "things"),
        "nodes": Setting(summary.nodes, "things"),
        "operations": Setting(summary.operations, "things"),
        "schema": Setting(", ".join(summary.schema)),
    }
    for one in summary.collectives:
        facts[f"{one.name} nodes"] = Setting(one.nodes, "things")
        if one.bytes:  # 0 where no size is recorded
            facts[f"{one.name} bytes"] = Setting(one.bytes, "bytes")
    return facts


def _dimensions(result: SimResult) -> Carried:
    # By number: what a dimension is made of is a setting, which may be what is compared.
    names = tuple(f"dimension {at}" for at in range(len(result.dimensions)))
    size = [int(one.bytes.sum()) for one in result.dimensions]
    # Among single links a dimension has no ports of its own: neither is known, and nothing is compared with it.
    ports = [one.capacity_bytes_per_ns > 0 for one in result.dimensions]
    told = list(zip(result.dimensions, ports, strict=True))
    busy = [float(one.busy_ns.mean()) if known else np.nan for one, known in told]
    load = [one.offered_load(result.makespan_ns) if known else np.nan for one, known in told]
    about = offered_load_words(result.config)
    return Carried(names, np.array(size, np.int64), np.array(busy, float), np.array(load, float), about)


def _links(result: SimResult) -> Carried:
    links = result.links
    names = tuple(links.name(at) for at in range(len(links)))
    busy = links.busy_ns.astype(float)
    about = "Time in which the link was sending, of the time until the finish."
    return Carried(names, links.bytes, busy, busy / max(result.makespan_ns, 1), about)


# ---------------------------------------------------------------------------------------------------
# By name


def find(
    names: Sequence[str],
    workspace: Path | None = None,
    *,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    least: int = 2,
) -> list[Compared]:
    """Return the runs that are named.

    A name is a path of traces, or, in the workspace: `job/run`, a run, a job (its recording, else its newest run);
    jobs and runs by id or by name.

    Args:
        names: `least` to `SIDES_AT_MOST`.
        workspace: Folder of imported jobs; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        progress: Told how far reading is.
        least: How many there have to be.

    Raises:
        ConfigError: Too few or too many names, or nothing is called so; names the nearest.
        StudioError: What is named cannot be read, or holds no times.
    """
    if not least <= len(names) <= SIDES_AT_MOST:
        raise ConfigError(
            f"{len(names)} runs are named; allowed: {least} to {SIDES_AT_MOST}",
            hint="`chakra-studio runs` lists the simulations that were kept.",
        )
    root = workspace or Workspace.default_root()

    @cache
    def session() -> Session | None:
        from studio.session import Session

        return Session(Workspace(root)) if root.is_dir() else None

    return [_find(name, session, ranks, progress) for name in names]


def _find(
    name: str,
    open_session: Callable[[], Session | None],
    ranks: Mapping[str, int] | None,
    progress: Progress | None,
) -> Compared:
    files: list[Path] = [Path(name)] if Path(name).exists() else prefixed(name)
    if files:
        return _named_in_errors(name, lambda: recording(read(files, ranks=ranks, progress=progress), name))
    session = open_session()
    if session is None:
        raise ConfigError(
            f"{name!r}: no file or folder, no files {name}.<rank>.et, and no workspace with runs",
            hint="Name a folder of traces.",
        )
    return session.compared(*_kept(session.workspace, name))


def _named_in_errors(name: str, make: Callable[[], Compared]) -> Compared:
    try:
        return make()
    except StudioError as error:
        if name in error.message:
            raise
        raise type(error)(f"{name}: {error.message}", hint=error.hint) from error


def _kept(store: Workspace, name: str) -> tuple[str, str]:
    """Return job and run of the workspace that are called so."""
    found: dict[str, list[tuple[str, str]]] = {}
    for job in store.jobs():
        runs = store.runs(job.id) if job.runs else []
        timed = job.summary.timed_nodes > 0
        usual = RECORDED if timed or not runs else runs[0].id
        for word in dict.fromkeys((job.id, job.name)):
            found.setdefault(word, []).append((job.id, usual))
            found.setdefault(f"{word}/{RECORDED}", []).append((job.id, RECORDED))
            for run in runs:
                for label in dict.fromkeys((run.id, run.name)):
                    found.setdefault(f"{word}/{label}", []).append((job.id, run.id))
        for run in runs:
            for label in dict.fromkeys((run.id, run.name)):
                found.setdefault(label, []).append((job.id, run.id))
    fitting = list(dict.fromkeys(found.get(name, [])))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        told = ", ".join(f"{job}/{run}" for job, run in fitting[:SIDES_AT_MOST])
        raise ConfigError(f"{name!r} names {len(fitting)} runs: {told}", hint="Name one of them by its ids.")
    near = difflib.get_close_matches(name[:200], found, n=1)
    raise ConfigError(
        f"{name!r}: no file or folder, no files {name}.<rank>.et, no run or job of the workspace {store.root}",
        hint=f"The nearest is {near[0]}."
        if near
        else "`chakra-studio runs` lists the simulations that were kept.",
    )


# ---------------------------------------------------------------------------------------------------
# What is said


def slower_than(shown: Lineup, percent: float) -> bool:
    """Return whether any run finishes later than the first by more than so many percent."""
    return any(one.b.makespan_ns * 100 > one.a.makespan_ns * (100 + percent) for one in shown.found)


def verdict(found: Comparison, name_a: str = "A", name_b: str = "B") -> str:
    """Return how much and why, in a sentence.

    The reasons are the steps of the waterfall on the busiest ranks that change the finish most.
    """
    grew, before = found.difference_ns, found.a.makespan_ns
    steps = sorted(found.waterfall("busiest").steps, key=lambda one: -abs(one.difference_ns))
    reasons = [
        f"{WORDS[one.part]} {signed(one.difference_ns)}"
        for one in steps
        if abs(one.difference_ns) * 50 >= max(abs(grew), 1)
    ][:3]
    if not grew:
        same = f"{name_b} takes as long as {name_a}: {format_ns(before)}."
        return f"{same} Within it: {', '.join(reasons)}." if reasons else same
    word = "slower" if grew > 0 else "faster"
    share = f" ({percent(abs(grew) / before)})" if before else ""
    return f"{name_b} is {format_ns(abs(grew))}{share} {word} than {name_a}: {', '.join(reasons)}."


def percent(share: float) -> str:
    """Return a part of a whole in percent, with three digits or all whole ones.

    Example:
        >>> percent(0.28412), percent(28.9), percent(-0.000265)
        ('28.4 %', '2,890 %', '−0.0265 %')
    """
    size = 100 * abs(share)
    return f"{'−' if share < 0 else ''}{f'{size:,.0f}' if size >= 100 else f'{size:.3g}'} %"


def signed(ns: float) -> str:
    """Return a difference in time with its sign.

    Example:
        >>> signed(1_500_000), signed(-20), signed(0)
        ('+1.50 ms', '−20 ns', '0 ns')
    """
    return f"{'+' if ns > 0 else '−' if ns < 0 else ''}{format_ns(abs(ns))}"


def signed_bytes(size: float) -> str:
    """Return a difference in bytes with its sign."""
    return f"{'+' if size > 0 else '−' if size < 0 else ''}{format_bytes(abs(size))}"


def signed_share(share: float) -> str:
    """Return a difference in percentage points with its sign.

    Example:
        >>> signed_share(0.066), signed_share(-0.5), signed_share(-0.00001)
        ('+6.6 points', '−50.0 points', '0.0 points')
    """
    points = round(100 * share, 1)
    return f"{'+' if points > 0 else '−' if points < 0 else ''}{abs(points):.1f} points"


def settings_table(
    sides: Sequence[Compared], *, differing: bool = True
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each setting with its value of every side in words and exactly, "" where one has none.

    Args:
        sides: The runs.
        differing: Whether only those that differ, by their exact values, or all.
    """
    keys = dict.fromkeys(key for side in sides for key in side.settings)
    rows = [(key, [side.settings.get(key) for side in sides]) for key in keys]
    return [(key, told(values)) for key, values in rows if not differing or differ(values)]


def _differing(sides: Sequence[Compared]) -> list[str]:
    """Return the settings that differ, called as plain data calls them."""
    names: dict[str, str] = {}
    for side in sides:
        names.update((key, plain_name(key, one)) for key, one in side.settings.items())
    return [names[key] for key, _ in settings_table(sides)]


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


def node_words(side: Side, rank: int, row: int) -> dict[str, Any]:
    """Return which node a row is: rank number, node as addresses name it, type and name."""
    graph = side.trace.graph_of(side.trace.ranks[rank])
    return {
        "rank": side.trace.ranks[rank].number,
        "node": node_ref(graph, row),
        "type": type_name(int(graph.type[row])),
        "name": graph.strings[int(graph.name[row])],
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


def as_text(shown: Lineup) -> str:
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
    return f"  {_shortened(name):{_NAME_WIDTH}}{cells}{change:>14}{told:>10}"


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
            yield f"  {_shortened(name):{_NAME_WIDTH}}{lasted:>12}"


def _end_of(name: str) -> str:
    """Return the end of a name, which tells more than its beginning."""
    return name if len(name) <= 26 else f"…{name[-25:]}"


def _shortened(text: str) -> str:
    return text if len(text) < _NAME_WIDTH else f"{text[: _NAME_WIDTH - 2]}…"
