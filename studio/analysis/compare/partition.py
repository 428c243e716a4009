"""Divide the makespan of a run into parts: every nanosecond in exactly one.

On a rank each moment counts as the first of these that is true: a compute node is under way; a collective or a message
is, and all that take part have begun; one is, and others are still to begin; a copy is; a load or store is; a node of
the CPU is; nothing is; the rank is done while others are not. So the parts of a rank add up to the finish of the run, to the
nanosecond, whichever rank is looked at.

A member of a collective waits until the last member has begun it, a receive until its send has. Sends do not wait: they
may be over before anybody receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from studio.analysis.collectives.matching import GroupMatching, match_by_name, match_messages
from studio.analysis.job.breakdown import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    CPU,
    MEMORY,
    NOTHING,
    Spans,
    layered_ns,
    node_kinds,
)
from studio.notebook import one_line
from studio.timeline import NodeSpans, NodeTimes
from studio.trace import NONE, CommGroup, Int64, NodeType, Trace

Part = Literal["compute", "transfer", "waiting", "copy", "memory", "cpu", "idle", "finished"]
PARTS: tuple[Part, ...] = get_args(Part)
"""In the order in which a moment is given to them."""
_LAYERS = 6
_LAYER_OF = {COMPUTE: 0, COMMUNICATION: 1, COPY: 3, MEMORY: 4, CPU: 5, NOTHING: _LAYERS}
_WAITING = 2
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Partition:
    """The parts of a run's makespan, per rank.

    R ranks, those without times all zero.

    Attributes:
        ns: (R, 8) time in each of `PARTS`; the rows of ranks with times add up to the finish of the run.
        communication_ns: (R,) some collective or message was under way, compute or not.
        known: (R',) places in the trace of the ranks that have times.
    """

    ns: Int64
    communication_ns: Int64
    known: Int64

    __repr__ = one_line

    @property
    def busiest(self) -> int:
        """Index of the rank that waits and idles least, so others wait for it; -1 where none has times."""
        if not len(self.known):
            return NONE
        lost = self.ns[:, [PARTS.index(part) for part in ("waiting", "idle", "finished")]].sum(axis=1)
        return int(self.known[lost[self.known].argmin()])

    def mean(self) -> Int64:
        """Return (8,) the mean over ranks with times in whole ns, rounded so that the sum is exact."""
        total: Int64 = self.ns[self.known].sum(axis=0)
        count = max(len(self.known), 1)
        whole, rest = total // count, total % count
        lacking = (int(total.sum()) // count) - int(whole.sum())
        whole[np.argsort(-rest, kind="stable")[:lacking]] += 1
        return whole


def partition(
    trace: Trace,
    times: NodeTimes,
    finish_ns: Int64,
    groups: Sequence[CommGroup] | None = None,
) -> Partition:
    """Divide the makespan of a run into parts.

    Args:
        trace: The job.
        times: When its nodes ran.
        finish_ns: (R,) how long each rank took from the beginning of the run to its last end.
        groups: Comm groups in place of the trace's.
    """
    known = np.flatnonzero(times.first != NONE)
    # Ranks that share their times were simulated as one.
    _, index, of = np.unique(times.first[known], return_index=True, return_inverse=True)
    chosen = known[index]
    number = np.full(len(trace.ranks), NONE, np.int64)
    number[chosen] = np.arange(len(chosen))
    spans = times.spans(trace, chosen)
    layer = _layers(trace, spans)
    begun = arrivals(trace, times, groups)[times.first[spans.rank] + spans.row]
    split = Spans(spans.start_ns, spans.end_ns, number[spans.rank], layer)
    parts = layered_ns(*_with_waiting(split, begun), len(chosen), _LAYERS)
    talking = layered_ns(split, np.where(layer == 1, 0, 1), len(chosen), 1)[:, 0]
    made = np.zeros((len(trace.ranks), len(PARTS)), np.int64)
    made[known, :_LAYERS] = parts[of]
    made[known, -2] = finish_ns[known] - made[known, :_LAYERS].sum(axis=1)
    made[known, -1] = finish_ns[known].max(initial=0) - finish_ns[known]
    communication = np.zeros(len(trace.ranks), np.int64)
    communication[known] = talking[of]
    return Partition(made, communication, known)


def _layers(trace: Trace, spans: NodeSpans) -> Int64:
    """Return (S,) the layer of each span."""
    graph_of = np.array([rank.graph for rank in trace.ranks], np.int64)[spans.rank]
    layer = np.full(len(spans.row), _LAYERS, np.int64)
    table = np.array([_LAYER_OF[kind] for kind in sorted(_LAYER_OF)], np.int64)
    for index in np.unique(graph_of).tolist():
        mine = graph_of == index
        layer[mine] = table[node_kinds(trace.graphs[index])[spans.row[mine]]]
    return layer


def _with_waiting(spans: Spans, begun: Int64) -> tuple[Spans, Int64]:
    """Return spans and layers, with communication split where its last participant began."""
    waits = (spans.kind == _LAYER_OF[COMMUNICATION]) & (begun > spans.start_ns)
    until = np.where(waits, np.minimum(begun, spans.end_ns), spans.start_ns)
    start = np.concatenate([until, spans.start_ns[waits]])
    end = np.concatenate([spans.end_ns, until[waits]])
    rank = np.concatenate([spans.rank, spans.rank[waits]])
    layer = np.concatenate([spans.kind, np.full(int(waits.sum()), _WAITING)])
    return Spans(start, end, rank, layer), layer


def arrivals(trace: Trace, times: NodeTimes, groups: Sequence[CommGroup] | None = None) -> Int64:
    """Return (T,) when all participants of a node had begun it, -1 where unknown.

    T times, as in `times`. Members of a collective are matched as `match_by_name` says, else by
    the order in which they begin those of a group; where times are missing, by the order their dependencies give.
    """
    begun = np.full(len(times.start_ns), NONE, np.int64)
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    for group in match_by_name(trace, groups):
        _collectives_begun(group, times, place, begun)
    if any((graph.type == NodeType.COMM_RECV).any() for graph in trace.graphs):
        _receives_begun(trace, times, begun)
    return begun


def _collectives_begun(group: GroupMatching, times: NodeTimes, place: dict[int, int], begun: Int64) -> None:
    indices = np.array([place.get(member, NONE) for member in group.members], np.int64)
    first = np.where(indices == NONE, NONE, times.first[indices])
    there = np.flatnonzero((group.sequence_of != NONE) & (first != NONE))
    if not len(there):
        return
    # Members that share sequence and times are one.
    _, one_each = np.unique(np.stack([first[there], group.sequence_of[there]]), axis=1, return_index=True)
    there = there[one_each]
    rows = group.rows()[there]
    known = rows != NONE
    where = np.where(known, first[there][:, None] + rows, 0)
    start = np.where(known, times.start_ns[where], NONE)
    if not group.by_number:
        missing = (known & (start < 0)).any(axis=1)
        key = np.where(missing[:, None], 0, np.where(known, start, _NEVER))
        order = np.argsort(key, axis=1, kind="stable")
        where, start = np.take_along_axis(where, order, axis=1), np.take_along_axis(start, order, axis=1)
    last = np.broadcast_to(start.max(axis=0), start.shape)
    ran = start >= 0
    begun[where[ran]] = last[ran]


def _receives_begun(trace: Trace, times: NodeTimes, begun: Int64) -> None:
    messages = match_messages(trace)
    both = (messages.send_row != NONE) & (messages.receive_row != NONE)
    send, receive = times.first[messages.send_rank[both]], times.first[messages.receive_rank[both]]
    ran = (send != NONE) & (receive != NONE)
    send = send[ran] + messages.send_row[both][ran]
    receive = receive[ran] + messages.receive_row[both][ran]
    begun[receive] = times.start_ns[send]
