"""What the inspector tells of one collective or message: waiting, and bandwidth once all are there."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.analysis.collectives.arrivals import find_arrivals
from studio.analysis.collectives.meeting import find_meeting
from studio.analysis.collectives.times import compute_collective_times
from studio.timeline import collect_node_times, recorded
from studio.trace import NodeType, Trace, read_int_column


@pytest.fixture(scope="module")
def sample() -> Trace:
    return studio.read(studio.sample_path("imbalance_8r"))


def test_every_member_waits_until_the_last_and_bandwidths_are_those_of_the_table(sample: Trace) -> None:
    times = collect_node_times(sample, recorded(sample))
    met = find_arrivals(sample, times, is_recording=True)
    table = compute_collective_times(sample, times)
    found = {}
    for rank in sample.ranks:
        graph = sample.graph_of(rank)
        for row in np.flatnonzero(graph.type == NodeType.COMM_COLL).tolist():
            one = find_meeting(sample, times, met, rank, row)
            assert one is not None
            assert one.members == 8
            assert (one.waited_ns == 0) or one.last_rank != rank.number
            found[rank.number, row] = one
    for place in range(len(table)):
        one = found[int(table.last_rank[place]), int(table.last_row[place])]
        assert (one.last_rank, one.last_row) == (int(table.last_rank[place]), int(table.last_row[place]))
        assert one.took_ns == table.end_ns[place] - table.arrived_ns[place]
        assert one.algorithm_bytes_per_ns == pytest.approx(table.algorithm_bytes_per_ns[place], nan_ok=True)
        assert one.bus_bytes_per_ns == pytest.approx(table.bus_bytes_per_ns[place], nan_ok=True)


def test_members_wait_for_the_last_a_receive_for_its_sender_and_other_nodes_for_nobody() -> None:
    """Of a real recording; on each collective one rank waits for nobody."""
    trace = studio.read(Path(__file__).parents[2] / "data" / "nccl_4r")
    times = collect_node_times(trace, recorded(trace))
    met = find_arrivals(trace, times, is_recording=True)
    kinds = set()
    longest = 0
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        sources = dict(
            zip(*(part.tolist() for part in read_int_column(graph, "comm_src", rank.slots)), strict=True)
        )
        for row, kind in enumerate(graph.type.tolist()):
            one = find_meeting(trace, times, met, rank, row)
            kinds.add((NodeType(kind).name, one is not None))
            longest = max(longest, one.waited_ns if one else 0)
            if kind == NodeType.COMM_RECV:
                assert one is not None
                assert (one.last_rank, one.members) == (sources[row], 2)
                assert math.isnan(one.bus_bytes_per_ns)
    assert longest > 1_000_000
    assert {("COMM_RECV", True), ("COMM_COLL", True)} <= kinds
    assert not {("COMP", True), ("COMM_SEND", True)} & kinds
