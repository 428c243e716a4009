from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.errors import TraceError
from studio.sim import simulate
from studio.sim.astra import from_parts
from studio.timeline import LANE_KINDS, Lane, Timeline, recorded
from studio.trace import Trace
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled
from tests.strategies import traces

RING2 = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
}
MEMORY = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 1}


def at(number: int, kind: str, start: int, micros: int, **more):
    """A node with a recorded start, in µs."""
    made = node(number, kind, micros=micros, **more)
    made.start_time_micros = start
    return made


def rows(trace: Trace, timeline: Timeline) -> list[tuple[object, ...]]:
    """Every span: rank, lane, node id, start, end."""
    found = []
    for index, lane in enumerate(timeline.lanes):
        graph = trace.graph_of(trace.rank(lane.rank))
        for span in range(*timeline.of_lane(index).indices(len(timeline))):
            times = int(timeline.start_ns[span]), int(timeline.end_ns[span])
            found.append((lane.rank, lane.kind, lane.name, int(graph.id[timeline.row[span]]), *times))
    return found


# ---------------------------------------------------------------------------------------------------
# Recordings


def test_a_recording_is_sorted_into_lanes():
    """Written last to first; a message that names no group stands with the group of all ranks."""
    trace = trace_of([[
        at(9, "MEM_LOAD", 8, 1), at(8, "COMM_SEND", 7, 1, comm_dst=1), at(7, "COMM_COLL", 6, 1, pg_name="tp"),
        at(6, "COMM_COLL", 5, 1), at(5, "COMP", 4, 1, is_cpu_op=True), at(4, "METADATA", 3, 0),
        at(3, "COMP", 2, 2), at(2, "COMP", 2, 1),
    ]])  # fmt: skip
    assert rows(trace, recorded(trace)) == [
        (0, "compute", "", 2, 2000, 3000),
        (0, "compute", "", 3, 2000, 4000),
        (0, "communication", "", 6, 5000, 6000),
        (0, "communication", "", 8, 7000, 8000),
        (0, "communication", "tp", 7, 6000, 7000),
        (0, "memory", "", 9, 8000, 9000),
        (0, "cpu", "", 4, 3000, 3000),
        (0, "cpu", "", 5, 4000, 5000),
    ]


def test_threads_and_streams_have_lanes_of_their_own_and_collectives_stay_with_their_group():
    trace = trace_of([[
        at(1, "COMP", 1, 1, is_cpu_op=True, tid=77), at(2, "COMP", 1, 1, stream=7), at(3, "COMP", 1, 1, stream=20),
        at(4, "COMM_COLL", 1, 1, stream=20, pg_name="dp"), at(5, "COMP", 1, 1),
    ]])  # fmt: skip
    assert recorded(trace).lanes == (
        Lane(0, "compute"), Lane(0, "communication", "dp"), Lane(0, "thread", "77"), Lane(0, "stream", "20"),
        Lane(0, "stream", "7"),
    )  # fmt: skip


def test_ranks_without_times_are_named_and_nodes_without_a_start_left_out():
    timed, untimed = [at(1, "COMP", 5, 2), node(2, "COMP", micros=9)], [node(1, "COMP", micros=9)]
    trace = trace_of({3: untimed, 5: timed, 8: untimed})
    whole = recorded(trace)
    assert rows(trace, whole) == [(5, "compute", "", 1, 5000, 7000)]
    assert whole.untimed == (3, 8)
    assert recorded(trace, [8]).untimed == (8,)
    assert len(recorded(trace, [])) == 0


def test_ranks_that_share_a_graph_have_their_own_groups_in_the_order_of_names():
    """What is group "a" of one rank is group "z" of the other: the lanes change places."""

    def nodes(first, second):
        return [at(1, "COMM_COLL", 1, 1, pg_name=first), at(2, "COMM_COLL", 2, 1, pg_name=second)]

    trace = trace_of([nodes("a", "b"), nodes("z", "b")])
    assert len(trace.graphs) == 1
    assert [(lane.rank, lane.name) for lane in recorded(trace).lanes] == [
        (0, "a"),
        (0, "b"),
        (1, "b"),
        (1, "z"),
    ]
    assert [row[3] for row in rows(trace, recorded(trace))] == [1, 2, 2, 1]


def test_group_0_is_the_group_of_all_ranks_unless_it_is_listed_with_other_members():
    nodes = [at(1, "COMM_COLL", 1, 1, pg_name="0"), at(2, "COMM_COLL", 2, 1)]
    assert recorded(trace_of([nodes, nodes])).lanes == (Lane(0, "communication"), Lane(1, "communication"))
    own = recorded(trace_of([nodes, nodes], {"0": [0]}), [0])
    assert [lane.name for lane in own.lanes] == ["", "0"]


def test_a_rank_that_is_not_there_is_named():
    with pytest.raises(TraceError, match="There is no rank 7; the trace has ranks 0 to 1"):
        recorded(trace_of([[at(1, "COMP", 1, 1)]] * 2), [0, 7])
    with pytest.raises(TraceError, match="the trace has ranks 0, 4"):
        recorded(trace_of({0: [at(1, "COMP", 1, 1)], 4: [at(1, "COMP", 1, 1)]}), 3)
    with pytest.raises(TraceError, match="the trace has rank 2\\."):
        recorded(trace_of({2: [at(1, "COMP", 1, 1)]}), 0)


@given(traces(), st.data())
@settings(deadline=None)
def test_every_timed_node_has_one_span_in_the_promised_order(trace: Trace, data):
    """Any trace, any choice of ranks: nothing lost, nothing twice, sorted, no empty lane; choosing is cutting."""
    chosen = data.draw(st.lists(st.sampled_from([rank.number for rank in trace.ranks]), unique=True))
    timeline = recorded(trace, chosen)
    found = sorted(
        (timeline.lanes[lane].rank, row) for lane, row in zip(timeline.lane, timeline.row, strict=True)
    )
    wanted = [
        (number, row)
        for number in sorted(chosen)
        for row in np.flatnonzero(trace.graph_of(trace.rank(number)).start_ns >= 0).tolist()
    ]
    assert found == wanted
    keys = list(zip(timeline.lane, timeline.start_ns, timeline.end_ns, strict=True))
    assert keys == sorted(keys)
    lanes = [(lane.rank, LANE_KINDS.index(lane.kind), lane.name) for lane in timeline.lanes]
    assert lanes == sorted(set(lanes))
    assert set(timeline.lane.tolist()) == set(range(len(lanes)))
    assert set(timeline.untimed) == set(chosen) - {number for number, _ in wanted}
    whole = rows(trace, recorded(trace))
    assert [row for row in whole if row[0] in chosen] == rows(trace, timeline)


# ---------------------------------------------------------------------------------------------------
# Simulations


def small():
    """Two ranks: compute of 3 µs (rank 1: 5), an all-reduce after it, memory, and something on the CPU."""

    def nodes(micros):
        return [
            node(1, "COMP", micros=micros), collective(2, "ALL_REDUCE", 4096, 1),
            node(3, "MEM_LOAD", tensor_size=50), node(4, "COMP", 2, micros=1, is_cpu_op=True),
        ]  # fmt: skip

    trace = trace_of([nodes(3), nodes(5)])
    return trace, simulate(trace, from_parts(RING2, SYSTEM, MEMORY), native=compiled())


def test_a_simulation_has_a_span_from_issue_to_callback_of_every_node():
    """The all-reduce waits from 3 µs on for rank 1, which comes at 5; the load takes 100 + 50 ns from the start."""
    trace, result = small()
    end = result.finish_ns.tolist()
    assert rows(trace, result.timeline()) == [
        (0, "compute", "", 1, 0, 3000),
        (0, "communication", "", 2, 3000, end[0] - 1000),
        (0, "memory", "", 3, 0, 150),
        (0, "cpu", "", 4, end[0] - 1000, end[0]),
        (1, "compute", "", 1, 0, 5000),
        (1, "communication", "", 2, 5000, end[1] - 1000),
        (1, "memory", "", 3, 0, 150),
        (1, "cpu", "", 4, end[1] - 1000, end[1]),
    ]
    assert rows(trace, result.timeline([1])) == rows(trace, result.timeline())[4:]


def test_a_folded_simulation_expands_to_the_ranks_that_are_asked_for():
    """Rank 0 stands for both: its spans are those of rank 1, in lanes of rank 1's own groups."""
    nodes = [collective(1, "ALL_REDUCE", 4096, group="1"), collective(2, "ALL_REDUCE", 64, 1)]
    trace = trace_of([nodes, nodes], {"1": [0, 1]})
    full = simulate(trace, from_parts(RING2, SYSTEM), native=compiled())
    mine = full.event_rank == 0
    events = {
        name: getattr(full, name)[mine] for name in ("event_ns", "event_rank", "event_row", "event_end")
    }
    folded = replace(full, **events, representative=np.zeros(2, np.int64))
    for ranks in (None, [0], [1]):
        assert rows(trace, folded.timeline(ranks)) == rows(trace, full.timeline(ranks))
