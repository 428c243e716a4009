"""The result of a simulation: finish times, events in order, and ASTRA-sim's statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from studio.analysis.collectives.arrivals import Matched
from studio.analysis.job.accounting import TimedRun, build_ledger
from studio.analysis.job.ledger import PARTS, Delays, Ledger
from studio.analysis.job.part_words import NAMES
from studio.columns import group_places
from studio.distinct import find_distinct
from studio.notebook import build_html_table, format_parts
from studio.sim.compute import compute_attainable
from studio.sim.config import SystemConfig
from studio.sim.flow_parts import FlowParts, compute_flow_parts
from studio.sim.flow_plans import Flows
from studio.sim.folding import expand_links
from studio.sim.kernel import records as k
from studio.sim.links import compute_first_records
from studio.sim.plan import Plan
from studio.sim.traffic import (
    DimensionTraffic,
    LinkTraffic,
    read_dimension_traffic,
    read_link_traffic,
    sum_flow_traffic,
)
from studio.timeline import NodeTimes, Timeline, arrange_lanes, build_empty_times, rank_indices
from studio.trace import Bool, Int64, NodeType, Rank, Trace, are_idle
from studio.units import format_counted, format_ns

WRAP = 1 << 64
CPU, GPU, COMM, MEMORY, OTHER = range(5)
_NAMES = {CPU: "cpu", GPU: "gpu", COMM: "comm", MEMORY: "remote_mem"}


@dataclass(frozen=True, slots=True)
class SimResult:
    """The outcome of a simulation.

    R ranks, E events.

    Attributes:
        trace: What was simulated.
        config: On what.
        finish_ns: (R,) when each rank finished.
        event_ns: (E,) when each event happened; the order of events is the order in which they happened.
        event_rank: (E,) the rank concerned.
        event_row: (E,) the node concerned, a row of the rank's graph.
        event_end: (E,) whether the node completed; False where it was issued.
        links: What each link of the congestion-aware network carried; the unaware one has none.
        dimensions: Per dimension what each rank sent into it.
        callbacks: Callbacks and actions the engine ran, the measure of its work.
        representative: (R,) the rank that was simulated for each rank: itself, or, where the simulation was
            folded, one of its class. Events are those of the representatives only; `events_of` gives any
            rank's.
        unfolded: Why every rank was simulated by itself; "" where one stood for many.
    """

    trace: Trace
    config: SystemConfig
    finish_ns: Int64
    event_ns: Int64
    event_rank: Int64
    event_row: Int64
    event_end: Bool
    links: LinkTraffic
    dimensions: tuple[DimensionTraffic, ...]
    callbacks: int
    representative: Int64
    unfolded: str = ""

    def __repr__(self) -> str:
        """Return it in a line."""
        ranks = format_counted(len(self.finish_ns), "rank")
        return format_parts(
            "SimResult",
            [
                f"finish {format_ns(self.makespan_ns)}",
                ranks,
                format_counted(len(self.event_ns), "event"),
            ],
        )

    def _repr_html_(self) -> str:
        """Return where the time of the ranks goes, as a table."""
        times = compute_ledger(self).totals()
        columns: dict[str, Int64] = {"finish": self.finish_ns}
        for part in PARTS:
            columns[part] = times.of(part)
        rows = [
            (NAMES[name], *(format_ns(float(value)) for value in ends))
            for name, column in columns.items()
            if (ends := (column.min(), column.mean(), column.max()))[2]
        ]
        return build_html_table(repr(self), ("per rank", "least", "mean", "most"), rows)

    @property
    def makespan_ns(self) -> int:
        """When the last rank finished.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
            >>> result.makespan_ns == int(result.finish_ns.max())
            True
        """
        return int(self.finish_ns.max())

    @property
    def classes(self) -> int:
        """How many ranks were simulated: one of each class of equivalent ranks.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
            >>> result.classes
            8
        """
        return len(find_distinct(self.representative))

    def events_of(self, rank: int | Rank) -> tuple[Int64, Int64, Bool]:
        """Return tick, row and whether it completes of every event of a rank, given by number or itself, in order.

        Raises:
            TraceError: There is no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
            >>> tick, row, completes = result.events_of(3)
            >>> len(tick), int(completes.sum())
            (594, 297)
        """
        [place] = rank_indices(self.trace, [rank]).tolist()
        is_own = self.event_rank == self.representative[place]
        return self.event_ns[is_own], self.event_row[is_own], self.event_end[is_own]

    def timeline(self, ranks: Sequence[int | Rank] | int | Rank | None = None) -> Timeline:
        """Return the timeline: each node from issue to callback, in lanes.

        Args:
            ranks: A rank or several, by number or themselves; None takes all. Of a folded simulation each rank asked for costs as much as
                one that was not: ask for those that are shown.

        Raises:
            TraceError: There is no such rank.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
            >>> result.timeline(3), result.timeline([0, 3])
            (Timeline(297 spans, 7 lanes, 1 rank, 44.4 ms), Timeline(594 spans, 14 lanes, 2 ranks, 44.5 ms))
        """
        chosen = rank_indices(self.trace, ranks)
        groups = self.trace.groups if self.config.groups is None else self.config.groups
        return arrange_lanes(
            self.trace, self.node_times(chosen).spans(self.trace, chosen), ranks=chosen, groups=groups
        )

    def node_times(self, chosen: Int64 | None = None) -> NodeTimes:
        """Return the times of the nodes of the ranks at places `chosen`; None for all ranks.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
            >>> len(result.node_times().start_ns) == trace.node_count
            True
        """
        simulated = find_distinct(self.representative if chosen is None else self.representative[chosen])
        times = build_empty_times(self.trace, simulated)
        selection = (
            slice(None) if len(simulated) == len(self.finish_ns) else times.first[self.event_rank] >= 0
        )
        # Every node is issued and ends once, so its place is known without sorting.
        place = times.first[self.event_rank[selection]] + self.event_row[selection]
        ended, tick = self.event_end[selection], self.event_ns[selection]
        times.start_ns[place[~ended]], times.end_ns[place[ended]] = tick[~ended], tick[ended]
        return replace(times, first=times.first[self.representative])

    def communication(self) -> FlowParts | None:
        """Return what the time of collectives and messages went to, by `node_times`; None where no cost model timed them.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
            >>> result.communication() is None
            True
        """
        return compute_flow_parts(self.trace, self.config, self.node_times(), self.representative)

    def event_ids(self) -> Any:
        """Return (E,) the id of the node each event concerns, as written in the trace.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> result = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times())
            >>> len(result.event_ids()) == 2 * trace.node_count
            True
        """
        graph_of = np.array([rank.graph for rank in self.trace.ranks])[self.event_rank]
        ids = np.zeros(len(self.event_row), np.uint64)
        for index, places in group_places(graph_of):
            ids[places] = self.trace.graphs[index].id[self.event_row[places]]
        return ids


def read_result(trace: Trace, config: SystemConfig, plan: Plan, unfolded: str = "") -> SimResult:
    """Read the outcome out of the engine's array; `unfolded` says why every rank was simulated.

    Raises:
        DeadlockError: Some rank did not finish; says what the stuck ranks wait for.
    """
    m = plan.m
    start, end = plan.log, int(m[k.Head.LOG])
    tick, what = _order_events(m[start:end].reshape(-1, k.Log.WORDS))
    rank, pos, done = what >> k.Log.RANK, (what & (k.Log.POSTPONED - 1)) >> 1, (what & 1) != 0
    records = m[m[k.Head.RANKS] : m[k.Head.RANKS] + k.Rank.WORDS * m[k.Head.COUNT]].reshape(-1, k.Rank.WORDS)
    finish = records[:, k.Rank.FINISH].copy()
    row = _find_rows(plan, rank, pos)
    own = _are_own(trace, rank, row)
    if len(tick) < 2 * plan.instances or (finish < 0).any():
        from studio.sim.deadlock import explain_deadlock

        raise explain_deadlock(
            trace, config, _find_stuck(plan, finish, rank, done), (rank[own], row[own], done[own])
        )
    representative = np.arange(len(finish))
    if plan.folding is not None:
        of = plan.folding.class_of
        representative, finish = plan.folding.representatives[of], finish[of]
        if m[k.Head.AWARE]:
            start, count = int(m[k.Head.LINKS]), compute_first_records(config.topology)[-1]
            links = m[start : start + 8 * count].reshape(-1, 8)
            links[:] = expand_links(plan.folding, config, links.copy())
    return SimResult(
        trace,
        config,
        finish,
        tick[own],
        rank[own],
        row[own],
        done[own],
        read_link_traffic(config, m),
        read_dimension_traffic(config, m, representative)
        if plan.flows is None
        else sum_flow_traffic(config, plan.flows, representative),
        int(m[k.Head.STEPS]),
        representative,
        unfolded,
    )


def _order_events(log: Int64) -> tuple[Int64, Int64]:
    """Return (E,) when each event happened and what it was, in the order in which they happened."""
    tick, what = log.T
    postponed = (what & k.Log.POSTPONED) != 0
    if not postponed.any():
        return tick.copy(), what
    # They were issued when something else of their rank had ended.
    order = np.lexsort((postponed, tick))
    return tick[order], what[order]


def _find_rows(plan: Plan, rank: Int64, pos: Int64) -> Int64:
    """Return the graph row of each position."""
    used = find_distinct(plan.graph_of).tolist()
    table = np.concatenate([plan.graphs[index].order for index in used])
    first = np.zeros(len(plan.graphs) + 1, np.int64)
    start = 0
    for index in used:
        first[index] = start
        start += len(plan.graphs[index].order)
    rows: Int64 = table[first[plan.graph_of[rank]] + pos]
    return rows


def _are_own(trace: Trace, rank: Int64, row: Int64) -> Bool:
    """Return which events (E,) are of the job's own nodes; a replay adds others behind them, which tell nothing but time."""
    counts = np.array([len(trace.graph_of(item)) for item in trace.ranks], np.int64)
    own: Bool = row < counts[rank]
    return own


def _find_stuck(plan: Plan, finish: Int64, rank: Int64, done: Bool) -> Int64:
    """Return the ranks that never finish."""
    counts = np.array([len(plan.graphs[g].order) for g in plan.graph_of.tolist()])
    completed = np.bincount(rank[done], minlength=len(finish))
    return np.flatnonzero((finish < 0) | (completed < counts))


# ---------------------------------------------------------------------------------------------------
# The reference's statistics


def compute_statistics(result: SimResult) -> list[dict[str, float]] | None:
    """Return per rank the statistics that ASTRA-sim prints, under its names; None if it cannot.

    `wall` is the latest end; `gpu`, `comm`, `cpu` and `remote_mem` are the time some node of that class was
    under way; `overlap` is gpu + comm - wall, an unsigned number that wraps when the rank also idles. It
    fails on every CPU, memory or invalid node. With the roofline model come averages over compute nodes.
    """
    classes = {}
    for index in {rank.graph for rank in result.trace.ranks}:
        classes[index] = _classify_rows(result, index)
        if np.isin(classes[index], (CPU, MEMORY, OTHER)).any():
            return None
    simulated, of = np.unique(result.representative, return_inverse=True)
    figures = [_rank_statistics(result, number, classes) for number in simulated.tolist()]
    return [figures[place] for place in of.tolist()]


def compute_ledger(result: SimResult, flows: Flows | None = None, matched: Matched | None = None) -> Ledger:
    """Return where each nanosecond of every rank went; `flows` are those of the plan, `matched` who takes part in what, where they are known."""
    times = result.node_times()
    return build_ledger(
        TimedRun(
            result.trace,
            times,
            result.finish_ns,
            result.config.groups,
            delays=compute_delays(result, times, flows),
            matched=matched,
        )
    )


def compute_delays(result: SimResult, times: NodeTimes, flows: Flows | None = None) -> Delays | None:
    """Return what a cost model tells of the times of communication; None where messages on links took them.

    Args:
        result: The run.
        times: Its times, of all ranks.
        flows: Those of its plan, where they are still known.
    """
    parts = compute_flow_parts(result.trace, result.config, times, result.representative, flows)
    if parts is None:
        return None
    count = len(times.start_ns)
    columns = (parts.waiting_ns, parts.latency_ns, parts.queueing_ns)
    return Delays(*(parts.spread(column, count) for column in columns))


def compute_exposed_ns(result: SimResult) -> Int64:
    """Return (R,) finish minus the time of compute nodes, which the reference calls exposed communication.

    It includes idle time, and wraps below zero to nearly 2^64 when replaying: read it as unsigned.
    """
    exposed = result.finish_ns.copy()
    start, end, rank, row = _list_simulated_intervals(result)
    graph_of = np.array([r.graph for r in result.trace.ranks])[rank]
    for index, places in group_places(graph_of):
        kind = _classify_rows(result, index)[row[places]]
        counted = kind != CPU if result.config.replay_only else kind == GPU
        np.subtract.at(exposed, rank[places][counted], (end - start)[places][counted])
    return exposed[result.representative]


def _list_simulated_intervals(result: SimResult) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the intervals of the simulated ranks only."""
    order = np.lexsort((result.event_end, result.event_row, result.event_rank))
    issued, ended = order[0::2], order[1::2]
    return (
        result.event_ns[issued],
        result.event_ns[ended],
        result.event_rank[issued],
        result.event_row[issued],
    )


def _classify_rows(result: SimResult, index: int) -> Int64:
    """Return (N,) the class of each row of a graph."""
    graph = result.trace.graphs[index]
    kinds = np.full(len(graph), COMM, np.int64)
    kinds[graph.type == NodeType.COMP] = GPU
    kinds[are_idle(graph)] = OTHER
    kinds[np.isin(graph.type, (NodeType.MEM_LOAD, NodeType.MEM_STORE))] = MEMORY
    kinds[np.isin(graph.type, (NodeType.INVALID, NodeType.METADATA))] = OTHER
    rows, where = graph.rows_with("is_cpu_op")
    kinds[rows[graph.attrs.value[where] != 0]] = CPU
    return kinds


def _rank_statistics(result: SimResult, number: int, classes: dict[int, Int64]) -> dict[str, float]:
    is_own = result.event_rank == number
    order = np.lexsort((result.event_end[is_own], result.event_row[is_own]))
    ticks, rows = result.event_ns[is_own][order], result.event_row[is_own][order][0::2]
    start, end = ticks[0::2], ticks[1::2]
    kind = classes[result.trace.ranks[number].graph][rows]
    figures: dict[str, float] = {"wall": int(end.max())}
    for code, name in _NAMES.items():
        if (kind == code).any():
            figures[name] = _compute_union_length(start[kind == code], end[kind == code])
    if "gpu" in figures and "comm" in figures:
        overlap = (int(figures["gpu"]) + int(figures["comm"]) - int(figures["wall"])) % WRAP
        if overlap:
            figures["overlap"] = overlap
    if result.config.roofline is not None:
        figures |= _compute_roofline(result, number, rows[kind == GPU], (end - start)[kind == GPU])
    return figures


def _compute_union_length(start: Int64, end: Int64) -> int:
    """Return the length of a union of intervals."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate((start[:1], end[:-1]))
    return int(np.maximum(end - np.maximum(start, before), 0).sum())


def _compute_roofline(result: SimResult, number: int, rows: Int64, time: Int64) -> dict[str, float]:
    graph, config = result.trace.graphs[result.trace.ranks[number].graph], result.config
    assert config.roofline is not None
    columns = []
    for key in ("num_ops", "tensor_size"):
        column = np.zeros(len(graph), np.int64)
        nodes, where = graph.rows_with(key)
        column[nodes] = graph.attrs.value[where]
        columns.append(column[rows])
    ops, size = columns
    keep = size > 0
    ops, size, time = ops[keep], size[keep], time[keep]
    bandwidth, peak = config.local_memory_bytes_per_ns * 1e9, config.roofline.peak_tera_ops_per_s * 1e12
    intensity, performance = compute_attainable(config, ops, size)
    total = float(time.sum()) + 1

    def compute_mean(values: Any) -> float:
        return float((values * time).sum() / total)

    return {
        "compute_bound_pct": round(100 * compute_mean(bandwidth * intensity >= peak), 3),
        "avg_compute_util_pct": round(100 * compute_mean(performance / peak), 3),
        "avg_mem_util_pct": round(100 * compute_mean(performance / intensity / bandwidth), 3),
        "avg_op_intensity": round(compute_mean(intensity), 3),
    }
