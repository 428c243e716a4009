"""Of messages alike the one whose other half is lost is told by when they were recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis.strategies import booleans, integers, lists, sets

from studio.analysis.collectives.lone import Recorded, find_lone_halves
from studio.analysis.collectives.messages import match_messages
from studio.doctor.repairs import repair
from studio.trace import NONE, Trace
from tests.handmade import node, trace_of


def timed(halves: list[tuple[str, list[tuple[int, int]]]]) -> Trace:
    """Ranks 0 and 1, whose messages alike began and ended at these times; ids count from 1."""
    ranks = [
        [
            node(at + 1, kind, *([at] if at else []), comm_size=8, comm_tag=3, **{key: 1 - rank})
            for at in range(len(times))
        ]
        for rank, (kind, times) in enumerate(halves)
        for key in ["comm_dst" if kind == "COMM_SEND" else "comm_src"]
    ]
    made = trace_of(ranks)
    graphs = list(made.graphs)
    for rank, (_, times) in zip(made.ranks, halves, strict=True):
        begin, end = np.array(times, np.int64).reshape(-1, 2).T
        graphs[rank.graph] = replace(graphs[rank.graph], start_ns=begin, duration_ns=end - begin)
    return replace(made, graphs=tuple(graphs))


@pytest.mark.parametrize("receives", [False, True])
@given(
    gaps=lists(integers(50, 500), min_size=2, max_size=12),
    lag=integers(0, 2_000),
    jitter=lists(integers(0, 4), min_size=12, max_size=12),
    lost=sets(integers(0, 11), min_size=1, max_size=3),
    blocks=booleans(),
)
def test_the_half_whose_other_one_is_lost_is_found(receives, gaps, lag, jitter, lost, blocks):
    """Sends that wait for their receive or not, receives that come at once or long after later sends."""
    # Times between messages differ, else those before and after may be shifted alike.
    begins = np.cumsum([gap + 700 * at for at, gap in enumerate(gaps)])
    ends = [int(begin) + lag + 10 + more for begin, more in zip(begins, jitter, strict=False)]
    sends = [(int(begin), end if blocks else int(begin) + 5) for begin, end in zip(begins, ends, strict=True)]
    awaited = [(end - 8, end) for end in ends]
    lost = {at % len(gaps) for at in lost}
    assume(len(gaps) - len(lost) > 1)
    kept = [at for at in range(len(gaps)) if at not in lost]
    if receives:
        sends = [sends[at] for at in kept]
    else:
        awaited = [awaited[at] for at in kept]
    trace = timed([("COMM_SEND", sends), ("COMM_RECV", awaited)])
    messages = match_messages(trace)
    left = np.flatnonzero((messages.send_row if receives else messages.receive_row) == NONE)
    found = find_lone_halves(Recorded(trace, messages, np.zeros(2, np.int64)), left, receives=receives)
    rows = (messages.receive_row if receives else messages.send_row)[found]
    assert rows.tolist() == sorted(lost)


def test_the_repair_removes_the_receive_whose_send_is_lost():
    sends = [(at, at + 10) for at in (0, 100, 300, 400)]
    receives = [(at, at + 12) for at in (0, 100, 200, 300, 400)]
    trace = timed([("COMM_SEND", sends), ("COMM_RECV", receives)])
    done = repair(trace, "receive-unmatched")
    assert [change.first for change in done.changes if change.count] == [("rank 1: node 3 (n3)",)]
    other = timed([("COMM_SEND", receives), ("COMM_RECV", sends)])
    assert [change.first for change in repair(other, "send-unmatched").changes] == [("rank 0: node 3 (n3)",)]


def test_without_times_the_last_is_left_over():
    trace = timed([("COMM_SEND", [(0, 10)] * 2), ("COMM_RECV", [(0, 10)] * 3)])
    graphs = tuple(replace(graph, start_ns=np.full(len(graph), -1)) for graph in trace.graphs)
    done = repair(replace(trace, graphs=graphs), "receive-unmatched")
    assert [change.first for change in done.changes if change.count] == [("rank 1: node 3 (n3)",)]
