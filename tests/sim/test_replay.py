"""Recorded times, numbered collectives, and slots of threads and streams in the extended mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from studio.errors import ConfigError, TraceError
from studio.et.link.dep_kinds import DEP_KINDS, DepKind
from studio.sim import simulate
from studio.sim.check import check
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions
from studio.sim.matched import are_sequence_only
from studio.trace import Trace
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

REPLAY = Extensions(communication_times="recorded", rank_starts="recorded")


def system(npus: int = 2, extensions: Extensions | None = None) -> SystemConfig:
    dims = (Dimension("fully_connected", npus, 64.0, 500.0),)
    return SystemConfig(
        Topology(dims), algorithms={"all_reduce": (Algorithm("ring"),)}, extensions=extensions or Extensions()
    )


def timed(trace: Trace, starts_us: list[list[int]]) -> Trace:
    """The trace with start times; each rank has a graph of its own."""
    graphs = [
        replace(trace.graph_of(rank), start_ns=np.array(starts, np.int64) * 1000)
        for rank, starts in zip(trace.ranks, starts_us, strict=True)
    ]
    ranks = tuple(replace(rank, graph=at) for at, rank in enumerate(trace.ranks))
    return replace(trace, graphs=tuple(graphs), ranks=ranks)


def ends(trace: Trace, config: SystemConfig) -> list[list[int]]:
    """When every node of every rank ended, in µs rounded down."""
    result = simulate(trace, config, native=compiled())
    times = result.node_times()
    return [
        (times.end_ns[first : first + len(trace.graph_of(rank))] // 1000).tolist()
        for first, rank in zip(times.first.tolist(), trace.ranks, strict=True)
    ]


def cpu(number: int, micros: int, *deps: int, **given: object):
    return node(number, "COMP", *deps, micros=micros, is_cpu_op=True, **given)


def kernel(number: int, micros: int, *deps: int, **given: object):
    return node(number, "COMP", *deps, micros=micros, is_cpu_op=False, **given)


@pytest.mark.parametrize(
    ("nodes", "switch", "apart", "together"),
    [
        ([cpu(1, 5, thread="a"), cpu(2, 5, thread="b")], {"host_slots": "one"}, [5, 10], [5, 5]),
        ([cpu(1, 5, tid=1), cpu(2, 5, tid=2)], {"host_slots": "one"}, [5, 10], [5, 5]),
        ([kernel(1, 5, stream=7), kernel(2, 5, stream=20)], {"compute_slots": "one"}, [5, 10], [5, 5]),
        ([kernel(1, 5, stream=7, device=0), kernel(2, 5, stream=7, device=1)], {"compute_slots": "one"}, [5, 10], [5, 5]),
    ],
)  # fmt: skip
def test_threads_and_streams_run_side_by_side(nodes, switch, apart, together):
    """With one slot they follow each other, as in the reference."""
    trace = trace_of([nodes, nodes])
    assert ends(trace, system()) == [together] * 2
    assert ends(trace, system(extensions=Extensions(**switch))) == [apart] * 2
    assert ends(trace, system(extensions=Extensions.off())) == [apart] * 2


def test_nodes_of_one_thread_take_turns_and_those_that_name_none_share_one():
    nodes = [cpu(1, 5, thread="a"), cpu(2, 5, thread="a"), cpu(3, 1), cpu(4, 1), kernel(5, 3), kernel(6, 3)]
    assert ends(trace_of([nodes, nodes]), system()) == [[5, 10, 1, 2, 3, 6]] * 2


def test_speeds_reach_kernels_on_streams():
    nodes = [kernel(1, 4, stream=7), kernel(2, 4, stream=8)]
    extensions = Extensions(compute_speeds={1: 2.0})
    assert ends(trace_of([nodes, nodes]), system(extensions=extensions)) == [[4, 4], [2, 2]]


def crossing(seq: bool) -> Trace:
    """Rank 1 is ready for the second collective first."""
    number = [{"comm_seq": at} if seq else {} for at in (0, 1)]
    ranks = []
    for first, second in ((1, 9), (9, 1)):
        ranks.append(
            [
                kernel(1, first, stream=1),
                kernel(2, second, stream=2),
                collective(3, "ALL_REDUCE", 4096, 1, **number[0]),
                collective(4, "ALL_REDUCE", 8192, 2, **number[1]),
            ]
        )
    return trace_of(ranks)


def test_numbered_collectives_begin_in_their_order_on_every_rank():
    """Without numbers, or where they do not count, each rank begins another one and both wait for ever."""
    result = simulate(crossing(seq=True), system(), native=compiled())
    assert result.makespan_ns > 9000
    for trace, extensions in (
        (crossing(seq=False), Extensions()),
        (crossing(seq=True), Extensions(collective_order="ready")),
    ):
        with pytest.raises(TraceError, match="never finish"):
            simulate(trace, system(extensions=extensions), native=compiled())


def test_a_replayed_collective_ends_as_long_after_the_last_arrival_as_recorded():
    """Rank 1 came at 30 µs and all left 4 µs and 5 µs later; replayed with rank 1 twice as slow it comes at 50."""
    ranks = [
        [kernel(1, 10), collective(2, "ALL_REDUCE", 8, 1), kernel(3, 1, 2)],
        [kernel(1, 20), collective(2, "ALL_REDUCE", 8, 1), kernel(3, 1, 2)],
    ]
    for nodes, duration in zip(ranks, (24, 5), strict=True):
        nodes[1].duration_micros = duration
    trace = timed(trace_of(ranks), [[0, 10, 34], [10, 30, 35]])
    assert ends(trace, system(extensions=REPLAY)) == [[10, 34, 35], [30, 35, 36]]
    slower = replace(REPLAY, compute_speeds={1: 0.5})
    assert ends(trace, system(extensions=slower)) == [[10, 54, 55], [50, 55, 57]]
    together = replace(REPLAY, rank_starts="together")
    assert ends(trace, system(extensions=together)) == [[10, 24, 25], [20, 25, 26]]


def test_without_start_times_a_replayed_collective_takes_the_shortest_recorded_time():
    ranks = [[kernel(1, 10), collective(2, "BROADCAST", 8, 1)], [collective(2, "BROADCAST", 8)]]
    ranks[0][1].duration_micros, ranks[1][0].duration_micros = 3, 40
    assert ends(trace_of(ranks), system(extensions=REPLAY)) == [[10, 13], [13]]


@pytest.mark.parametrize(("size", "ended"), [(0, 2), (8, 30)], ids=["empty tensors", "others"])
def test_a_replayed_collective_of_empty_tensors_waits_for_nobody(size, ended):
    """A library returns from it at once, whoever is still to come; of others an earlier end is a matter of clocks."""
    ranks = [[collective(1, "ALL_REDUCE", size)], [kernel(2, 30), collective(1, "ALL_REDUCE", size, 2)]]
    for nodes in ranks:
        nodes[-1].duration_micros = 2
    trace = timed(trace_of(ranks), [[0], [0, 30]])
    assert ends(trace, system(extensions=REPLAY))[0] == [ended]


def test_a_replayed_send_waits_for_nobody_and_its_receive_for_both():
    send = node(1, "COMM_SEND", comm_dst=1, comm_size=8, comm_tag=0, micros=2)
    receive = node(2, "COMM_RECV", 1, comm_src=0, comm_size=8, comm_tag=0, micros=3)
    trace = trace_of([[send, kernel(2, 1, 1)], [kernel(1, 9), receive]])
    assert ends(timed(trace, [[0, 2], [0, 9]]), system(extensions=REPLAY)) == [[2, 3], [9, 12]]


def test_replayed_collectives_overlap_where_only_their_sequence_keeps_them_apart():
    """The second one ran beside the first, on another thread; simulated, they run one by one."""

    def job() -> Trace:
        nodes = [
            collective(1, "ALL_REDUCE", 8, comm_seq=0),
            collective(2, "ALL_REDUCE", 8, 1, comm_seq=1),
        ]
        for one in nodes:
            one.duration_micros = 50
        nodes[1].attr.add(name=DEP_KINDS).int32_list.values.append(DepKind.SEQUENCE)
        return timed(trace_of([nodes, nodes]), [[0, 10], [0, 10]])

    trace = job()
    assert are_sequence_only(trace.graphs[0]).tolist() == [True]
    assert ends(trace, system(extensions=replace(REPLAY, rank_starts="together"))) == [[50, 50]] * 2


def test_a_replay_needs_neither_algorithms_nor_sizes():
    nodes = [node(1, "COMM_COLL", comm_type=0, micros=7)]
    config = replace(system(extensions=REPLAY), algorithms={})
    assert ends(trace_of([nodes, nodes]), config) == [[7], [7]]


def test_a_job_of_one_rank_runs_on_one_npu():
    """Its collectives take 1 ns; beside other dimensions one of size 1 is a mistake in the compatible mode."""
    alone = Topology((Dimension("switch", 1, 64.0),))
    for config in (SystemConfig(alone), SystemConfig(alone, extensions=Extensions())):
        assert ends(trace_of([[kernel(1, 5)]]), config) == [[5]]
        reducing = trace_of([[kernel(1, 5), collective(2, "ALL_REDUCE", 64, 1), kernel(3, 7, 2)]])
        assert check(reducing, config) == []
        assert simulate(reducing, config, native=compiled()).makespan_ns == 12_001
    with pytest.raises(ConfigError, match="dimension size is 1 in dimension 0; allowed beside other"):
        SystemConfig(Topology((Dimension("switch", 1, 64.0), Dimension("ring", 2, 64.0))))


def test_a_replay_says_what_has_no_recorded_time():
    """Without any there is nothing to replay; where some ranks have none, they are named and counted."""
    bare = [collective(1, "ALL_REDUCE", 8)]
    told = [collective(1, "ALL_REDUCE", 8)]
    told[0].duration_micros = 5
    config = system(extensions=REPLAY)
    [nothing] = [one for one in check(trace_of([bare, bare]), config) if one.level == "error"]
    assert nothing.message.startswith("None of the 2 communication nodes has a recorded duration")
    [partly] = check(trace_of([told, bare]), config)
    assert partly.level == "warning"
    assert "1 of 2 communication nodes have no recorded duration, on rank 1" in partly.message
    assert check(trace_of([told, told]), config) == []


def test_a_replay_takes_the_recorded_time_of_loads_and_stores():
    rank = [
        node(1, "MEM_LOAD", micros=7, tensor_size=64),
        node(2, "COMP", 1, micros=5),
        collective(3, "ALL_REDUCE", 64, 2, micros=2),
    ]
    trace = timed(trace_of([rank, rank]), [[1, 8, 13]] * 2)
    config = system(extensions=REPLAY)
    assert not [finding for finding in check(trace, config) if finding.level == "error"]
    assert [times[:2] for times in ends(trace, config)] == [[7, 12], [7, 12]]
    # Without a recorded time it needs a memory to load from, as in every other simulation.
    untimed = timed(
        trace_of([[node(1, "MEM_LOAD", tensor_size=64), node(2, "COMP", 1, micros=5)]] * 2), [[1, 8]] * 2
    )
    assert [finding.code for finding in check(untimed, config) if finding.level == "error"] == ["no-memory"]
