"""Read what another simulator's program said of a job as a run of it, and say how it differs from the simulation here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from studio.commands.base.terminal import escape_controls
from studio.errors import TraceError, TraceFormatError
from studio.et import events
from studio.et.events import Finish, finish_lines
from studio.et.format import RankPart, Reading
from studio.sim.agreement import format_ranks
from studio.sim.result import SimResult
from studio.sim.traffic import DimensionTraffic, LinkTraffic
from studio.trace import Graph, Int64
from studio.units import format_count, format_counted, format_ns

LINES_SHOWN = 8
LINE_CUT = 300
_RANKS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One run of another simulator's program on a job: its times, beside those of the simulation here.

    R ranks.

    Attributes:
        program: Its path.
        backend: Which backend it was taken for.
        guessed: What that was told by: `given`, `name` of the program, or the `network` of the system.
        command: Its arguments.
        spent_s: How long it ran.
        finish_ns: (R,) when each rank finished, -1 where nothing says it.
        ours_ns: (R,) the same of the simulation here.
        timed: Nodes whose issue and callback it logged, and how many there are.
        differing: Of those, how many begin or end at another time than here.
        unknown: Events of nodes or ranks that the job does not have.
        result: Its times as a run; None where it did not log both ends of every node.
        run: Id of the run that was kept of it; None where none was.
    """

    program: str
    backend: str
    guessed: str
    command: tuple[str, ...]
    spent_s: float
    finish_ns: Int64
    ours_ns: Int64
    timed: tuple[int, int]
    differing: int
    unknown: int
    result: SimResult | None
    run: str | None = None

    @property
    def unfinished(self) -> list[int]:
        """Places of the ranks that did not finish."""
        unfinished: list[int] = np.flatnonzero(self.finish_ns < 0).tolist()
        return unfinished

    @property
    def makespan_ns(self) -> int:
        """When the last rank that finished did."""
        return int(self.finish_ns.max())

    @property
    def difference_ns(self) -> int | None:
        """Its finish less that of the simulation here; None where ranks did not finish."""
        return None if self.unfinished else self.makespan_ns - int(self.ours_ns.max())


def read_engine_run(
    given: str,
    ours: SimResult,
    log: bytes,
    output: bytes,
    about: tuple[str, str, str, tuple[str, ...], float],
) -> EngineRun:
    """Return what a program said of a job.

    Args:
        given: What the user calls the program.
        ours: The simulation of the same here.
        log: What it logged.
        output: What it printed.
        about: The first fields of the run.

    Raises:
        TraceError: It said nothing of the job.
    """
    lines = output + b"\n" + log
    finished = finish_lines(lines)
    parts = _read_events(log) or _read_events(output)
    if not finished and not parts:
        head = [line for line in output[: 1 << 16].decode("utf-8", "replace").splitlines() if line.strip()]
        first = "".join(f"\n  {escape_controls(line[:LINE_CUT])}" for line in head[:LINES_SHOWN])
        raise TraceError(
            f"--engine {given}: ended, and no line says that a rank finished or a node ran."
            + (f" It printed:{first}" if first else " It printed nothing."),
            hint="ASTRA-sim prints sys[0] finished, N cycles for every rank that finishes.",
        )
    times = _Times(ours, parts)
    finish = _collect_finishes(ours, finished, times)
    result = times.result(finish)
    differing = times.differing()
    ours_ns = ours.finish_ns
    return EngineRun(*about, finish, ours_ns, times.count_known(), differing, times.unknown, result)


def _read_events(log: bytes) -> dict[int, Graph]:
    """Return the events of a log by rank; none where it has none."""
    if not log:
        return {}
    try:
        parts = events.read(Reading("log", log))
    except TraceFormatError:
        return {}
    return {
        part.number: part.graph for part in parts if isinstance(part, RankPart) and part.number is not None
    }


def _collect_finishes(ours: SimResult, finished: dict[int, Finish], times: _Times) -> Int64:
    """Return when each rank finished: as it says itself, else when the last of its nodes ended, if all did."""
    finish = np.full(len(ours.trace.ranks), -1, np.int64)
    for place, rank in enumerate(ours.trace.ranks):
        if rank.number in finished:
            finish[place] = finished[rank.number].ticks
        elif not finished and times.is_whole(place):
            finish[place] = times.last(place)
    return finish


class _Times:
    """The times of a job's nodes as a log tells them, beside those of a simulation here."""

    def __init__(self, ours: SimResult, parts: dict[int, Graph]) -> None:
        self.ours = ours
        self.unknown = 0
        sizes = [len(ours.trace.graph_of(rank)) for rank in ours.trace.ranks]
        self.bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.start, self.end = (np.full(int(self.bounds[-1]), -1, np.int64) for _ in range(2))
        numbers = {rank.number for rank in ours.trace.ranks}
        self.unknown += sum(len(graph) for number, graph in parts.items() if number not in numbers)
        for place, rank in enumerate(ours.trace.ranks):
            if rank.number in parts:
                self._take(place, ours.trace.graph_of(rank), parts[rank.number])

    def _take(self, place: int, graph: Graph, recorded: Graph) -> None:
        order = np.argsort(graph.id, kind="stable")
        ids = graph.id[order]
        at = np.minimum(np.searchsorted(ids, recorded.id), max(len(ids) - 1, 0))
        known = (ids[at] == recorded.id) if len(ids) else np.zeros(len(recorded), np.bool_)
        self.unknown += int((~known).sum())
        row = self.bounds[place] + order[at[known]]
        ended = np.ones(len(recorded), np.bool_)
        ended[recorded.rows_with(events.UNFINISHED)[0]] = False
        start, length = recorded.start_ns[known], recorded.duration_ns[known]
        self.start[row] = start
        self.end[row] = np.where(ended[known] & (start >= 0), start + length, -1)

    def count_known(self) -> tuple[int, int]:
        """Return for how many nodes both ends are known, and of how many."""
        return int(((self.start >= 0) & (self.end >= 0)).sum()), len(self.start)

    def is_whole(self, place: int) -> bool:
        """Whether both ends of all nodes of a rank are known."""
        nodes = slice(int(self.bounds[place]), int(self.bounds[place + 1]))
        return bool(((self.start[nodes] >= 0) & (self.end[nodes] >= 0)).all())

    def last(self, place: int) -> int:
        """Return the last end of a rank."""
        return int(self.end[int(self.bounds[place]) : int(self.bounds[place + 1])].max(initial=0))

    def differing(self) -> int:
        """Return how many of the known nodes begin or end at another time than here."""
        start, end = self.ours.node_times().of_nodes(self.ours.trace)
        known = (self.start >= 0) & (self.end >= 0)
        return int((known & ((self.start != start) | (self.end != end))).sum())

    def result(self, finish: Int64) -> SimResult | None:
        """Return the times as a run; None where they are not those of all nodes, or a rank did not finish."""
        known, nodes = self.count_known()
        if known < nodes or (finish < 0).any():
            return None
        ranks = np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))
        rows = np.arange(nodes) - self.bounds[ranks]
        tick = np.concatenate([self.start, self.end])
        ended = np.repeat([False, True], nodes)
        instant = np.tile(self.start == self.end, 2)
        # At one tick what ended makes room for what begins; what takes no time ends after it began.
        order = np.lexsort(
            (np.tile(rows, 2), np.tile(ranks, 2), np.where(ended, np.where(instant, 2, 0), 1), tick)
        )
        none = np.zeros(0, np.int64)
        zeros = np.zeros(len(finish), np.int64)
        return replace(
            self.ours,
            finish_ns=finish,
            event_ns=tick[order],
            event_rank=np.tile(ranks, 2)[order],
            event_row=np.tile(rows, 2)[order],
            event_end=ended[order],
            # What its links carried, it does not say.
            links=LinkTraffic(len(finish), none, none, none, none, none, none),
            dimensions=tuple(
                DimensionTraffic(zeros, zeros, zeros.astype(np.float64), dimension.capacity_bytes_per_ns)
                for dimension in self.ours.dimensions
            ),
            callbacks=0,
            representative=np.arange(len(finish)),
            unfolded="the program of --engine simulates every rank",
        )


def build_engine_report(run: EngineRun, numbers: Sequence[int]) -> dict[str, Any]:
    """Return an engine's run, beside ours, as plain data; `numbers` are those of the ranks."""
    rows = zip(numbers, run.finish_ns.tolist(), run.ours_ns.tolist(), strict=True)
    ours = int(run.ours_ns.max())
    return {
        "program": run.program,
        "backend": run.backend,
        "backend_by": run.guessed,
        "command": list(run.command),
        "spent_s": round(run.spent_s, 6),
        "finish_ns": run.makespan_ns if not run.unfinished else None,
        "ours_ns": ours,
        "difference_ns": run.difference_ns,
        "difference_percent": None
        if run.difference_ns is None or not ours
        else 100 * run.difference_ns / ours,
        "unfinished_ranks": [numbers[place] for place in run.unfinished],
        "nodes_timed": run.timed[0],
        "nodes": run.timed[1],
        "nodes_differing": run.differing,
        "unknown_events": run.unknown,
        "run": run.run,
        "ranks": [
            {
                "rank": number,
                "finish_ns": theirs if theirs >= 0 else None,
                "ours_ns": own,
                "difference_ns": theirs - own if theirs >= 0 else None,
            }
            for number, theirs, own in rows
        ],
    }


def format_engine_lines(run: EngineRun, numbers: Sequence[int]) -> Iterator[str]:
    """Say what an engine made of the job, beside what came out here."""
    by = {"given": "as given", "name": "by its name", "network": "by the network, its name tells nothing"}[
        run.guessed
    ]
    yield f"  engine  {Path(run.program).name}, backend {run.backend} ({by}), ran {format_ns(run.spent_s * 1e9)}"
    ours = int(run.ours_ns.max())
    if run.unfinished:
        stuck = format_ranks([numbers[place] for place in run.unfinished])
        yield f"    {len(run.unfinished):,} of {len(numbers):,} ranks never finished there: {stuck}"
    else:
        yield f"    finish   {format_ns(run.makespan_ns)}  ({format_count(run.makespan_ns)} ns), {_format_difference(run.makespan_ns, ours)}"
    yield from _rank_lines(run, numbers)
    timed, nodes = run.timed
    if not timed:
        yield "    nodes    it logged no issue and callback lines"
    else:
        same = (
            f"{format_count(run.differing)} begin or end at another time"
            if run.differing
            else "all at the same times as here"
        )
        yield f"    nodes    {format_count(timed)} of {format_count(nodes)} were logged whole, {same}"
    if run.unknown:
        yield f"    nodes    {format_counted(run.unknown, 'event')} of nodes or ranks that the job does not have"


def _rank_lines(run: EngineRun, numbers: Sequence[int]) -> Iterator[str]:
    off = run.finish_ns - run.ours_ns
    is_finished = run.finish_ns >= 0
    places = np.flatnonzero(is_finished & (off != 0))
    if not len(places):
        if is_finished.any():
            yield f"    ranks    {'all' if is_finished.all() else format_count(int(is_finished.sum()))} finish when they do here"
        return
    yield f"    ranks    {format_count(len(places))} of {format_count(len(numbers))} finish at another time than here; the most:"
    for place in places[np.argsort(-np.abs(off[places]), kind="stable")][:_RANKS_SHOWN].tolist():
        theirs, own = int(run.finish_ns[place]), int(run.ours_ns[place])
        yield f"      rank {numbers[place]}  {format_ns(theirs)} there, {format_ns(own)} here, {_format_difference(theirs, own)}"


def _format_difference(theirs: int, own: int) -> str:
    if theirs == own:
        return "the same as here"
    share = f" ({100 * (theirs - own) / own:+.2f} %)" if own else ""
    return f"{'+' if theirs > own else '-'}{format_ns(abs(theirs - own))}{share} against here"
