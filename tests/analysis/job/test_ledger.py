"""Every nanosecond of a rank belongs to one part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.job.accounting import TimedRun, build_ledger
from studio.analysis.job.blame import compute_blame
from studio.analysis.job.ledger import EXPOSED, IDLE, PARTS, Delays
from studio.analysis.job.occupancy import compute_occupancy
from studio.timeline import collect_node_times, recorded
from studio.trace import NONE
from tests.examples import examples
from tests.handmade import at, collective, node, trace_of

WORLD = 100_000
"""When handmade recordings begin."""


def job(*ranks):
    """Ranks of (kind, start, length) in µs; COMM_COLL are all-reduces of all, a send goes to the other rank."""

    def made(rank, spans):
        nodes = []
        for number, (kind, start, length) in enumerate(spans, start=1):
            if kind == "COMM_COLL":
                one = collective(number, "ALL_REDUCE", 8)
            elif kind.startswith("COMM"):
                one = node(number, kind, comm_src=0, comm_dst=1, comm_tag=0, comm_size=8)
            elif kind == "CPU":
                one = node(number, "COMP", is_cpu_op=True)
            else:
                one = node(number, kind)
            one.start_time_micros, one.duration_micros = 100 + start, length
            nodes.append(one)
        return nodes

    return trace_of([made(rank, spans) for rank, spans in enumerate(ranks)])


def account(trace, *, is_recording=True, **more):
    times = collect_node_times(trace, recorded(trace))
    finish = np.full(len(trace.ranks), NONE, np.int64)
    spans = times.spans(trace, np.flatnonzero(times.first != NONE))
    np.maximum.at(finish, spans.rank, spans.end_ns - WORLD)
    return build_ledger(TimedRun(trace, times, finish, origin_ns=WORLD, is_recording=is_recording, **more))


def told(found, rank=0):
    """The parts of a rank in µs, those that are nothing left out."""
    ns = found.ns()[rank]
    return {part: int(ns[code]) // 1000 for code, part in enumerate(PARTS) if ns[code]}


def test_each_moment_is_the_first_part_that_holds():
    """Rank 0: compute 0-10, an all-reduce 5-40 that rank 1 joins at 25, a copy 30-35, the CPU 38-50, a load 60-62."""
    found = account(
        job(
            [("COMP", 0, 10), ("COMM_COLL", 5, 35), ("MEM_LOAD", 30, 5), ("CPU", 38, 12), ("COMP", 60, 2)],
            [("COMP", 0, 25), ("COMM_COLL", 25, 15)],
        )
    )
    expected = {"compute": 7, "overlapped": 10, "waiting": 15, "communication": 10, "host": 10, "stall": 10}
    assert told(found) == expected
    assert told(found, 1) == {"compute": 25, "communication": 15}
    times = found.totals()
    assert times.exposed_ns.tolist() == [25_000, 15_000]
    assert times.idle_ns.tolist() == [20_000, 0]
    assert times.after_finish_ns.tolist() == [0, 22_000]
    assert times.communicating_ns.tolist() == [35_000, 15_000]


def test_a_receive_that_began_before_its_send_is_a_bubble_which_is_idle():
    """The sender computes until 30; the receiver has waited since 10."""
    ranks = ([("COMP", 0, 30), ("COMM_SEND", 30, 5)], [("COMP", 0, 10), ("COMM_RECV", 10, 26)])
    found = account(job(*ranks), is_recording=False)
    assert told(found, 1) == {"compute": 10, "bubble": 20, "transfer": 6}
    assert told(found) == {"compute": 30, "transfer": 5}
    assert found.totals().exposed_ns.tolist() == [5_000, 6_000]
    assert found.totals().idle_ns.tolist() == [0, 20_000]
    assert "bubble" in IDLE
    assert "bubble" not in EXPOSED


def test_time_before_a_receive_that_is_noted_with_its_message_is_a_bubble_too():
    """The second stage has nothing to do from 2 to 9, when the first sends; a receive noted 3 µs after that explains nothing."""

    def told_of(noted):
        receiver = [("COMP", 0, 2), ("COMM_RECV", noted, 13 - noted), ("COMP", 13, 1)]
        return told(account(job([("COMP", 0, 9), ("COMM_SEND", 9, 2)], receiver)), 1)

    assert told_of(9) == {"compute": 3, "bubble": 7, "communication": 4}
    assert told_of(12) == {"compute": 3, "stall": 10, "communication": 1}


def test_time_before_a_collective_that_all_are_noted_to_begin_together_is_waiting():
    """Rank 0 is ready at 10, rank 1 at 30, rank 2 at 20; all note the all-reduce at 33, the 3 µs before that are nobody's."""
    trace = job(*([("COMP", 0, ready), ("COMM_COLL", 33, 7), ("COMP", 40, 5)] for ready in (10, 30, 20)))
    found = account(trace)
    assert told(found) == {"compute": 15, "waiting": 20, "communication": 7, "stall": 3}
    assert told(found, 1) == {"compute": 35, "communication": 7, "stall": 3}
    assert told(found, 2) == {"compute": 25, "waiting": 10, "communication": 7, "stall": 3}
    waits = compute_blame(trace, collect_node_times(trace, recorded(trace)), found)
    assert list(zip(waits.waiter.tolist(), waits.culprit.tolist(), waits.ns.tolist(), strict=True)) == [
        (0, 1, 20_000),
        (2, 1, 10_000),
    ]
    assert waits.doing[:, PARTS.index("compute")].tolist() == [20_000, 10_000]
    # A simulation begins a collective where its rank does, so that a gap before is none of it.
    assert told(account(trace, is_recording=False)) == {"compute": 15, "transfer": 7, "stall": 23}


def test_a_receive_posted_early_explains_no_time_of_a_collective():
    """The receive is posted at 0; an all-reduce holds the receiver from 10 to 18, and only then it waits for the send at 30.

    Nor does what the receiver computes meanwhile hide any communication: nothing is sent yet.
    """
    ranks = (
        [("COMP", 0, 10), ("COMM_COLL", 10, 8), ("COMP", 18, 12), ("COMM_SEND", 30, 5)],
        [("COMM_RECV", 0, 35), ("COMP", 0, 10), ("COMM_COLL", 10, 8)],
    )
    found = account(job(*ranks), is_recording=False)
    assert told(found, 1) == {"compute": 10, "transfer": 13, "bubble": 12}


def test_a_simulation_tells_latency_and_queueing_apart_where_it_knows_them():
    trace = job([("COMM_COLL", 0, 20)], [("COMP", 0, 5), ("COMM_COLL", 5, 15)])
    count = sum(len(graph) for graph in trace.graphs)
    waiting = np.zeros(count, np.int64)
    waiting[0] = 5_000
    delays = Delays(waiting, np.full(count, 2_000), np.full(count, 3_000))
    found = account(trace, is_recording=False, delays=delays)
    assert told(found) == {"waiting": 5, "latency": 2, "queueing": 3, "transfer": 10}
    assert told(found, 1) == {"compute": 5, "latency": 2, "queueing": 3, "transfer": 10}


def test_waiting_in_a_recording_is_measured_on_aligned_clocks():
    """Rank 1's clock is 5 ms ahead: its all-reduces end 5 ms after those of rank 0, and nobody waits for it."""
    begins = [0, 1000, 2000]
    ranks = [[("COMM_COLL", begin + ahead, 100) for begin in begins] for ahead in (0, 5000)]
    ranks[1].insert(0, ("COMP", 4950, 50))
    ranks[0][0] = ("COMM_COLL", -20, 120)
    trace = job(*[[(kind, start + 20, length) for kind, start, length in rank] for rank in ranks])
    found = account(trace)
    assert told(found) == {"waiting": 20, "communication": 300, "stall": 1800}
    assert account(trace, is_recording=False).totals().of("waiting")[0] == 320_000


def test_a_job_on_processors_computes_where_its_operators_run():
    """No node is on a device, so the CPU's operators are what the job does."""
    found = account(job([("CPU", 0, 10), ("CPU", 15, 5)]))
    assert told(found) == {"compute": 15, "stall": 5}


@pytest.mark.parametrize(
    "call", ["c10d::send", "record_param_comms", "gloo:all_reduce", "_c10d_functional::wait_tensor"]
)
def test_a_processor_inside_of_a_call_of_a_communication_library_does_not_compute(call: str):
    nodes = [
        at(100, 10, node(1, "COMP", name="aten::mm", is_cpu_op=True)),
        at(110, 6, node(2, "COMP", name=call, is_cpu_op=True)),
        at(112, 10, collective(3, "ALL_REDUCE", 8)),
    ]
    assert told(account(trace_of([nodes, nodes]))) == {"compute": 10, "host": 2, "communication": 10}


def test_a_window_holds_what_lies_in_it_and_nothing_after_the_finish():
    found = account(job([("COMP", 0, 10)], [("COMP", 0, 40)]))
    assert found.ns(5_000, 20_000).sum(axis=1).tolist() == [5_000, 15_000]
    assert found.totals(5_000, 20_000).after_finish_ns.tolist() == [10_000, 0]


KINDS = ("COMP", "COMM_COLL", "MEM_LOAD", "CPU")
SPANS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=8
)


def moments(ranks, rank, last, first):
    """The part of each µs of a rank, moment by moment."""
    on_processor = not any(kind == "COMP" for spans in ranks for kind, *_ in spans)
    spans = [(kind, start - first, start - first + length) for kind, start, length in ranks[rank]]
    found = []
    for moment in range(max(end for *_, end in spans)):
        on = [
            (kind, start, number) for number, (kind, start, end) in enumerate(spans) if start <= moment < end
        ]
        kinds = {kind for kind, *_ in on}
        if on_processor:
            kinds = {"COMP" if kind == "CPU" else kind for kind in kinds}
        talks = min(((start, number) for kind, start, number in on if kind == "COMM_COLL"), default=None)
        if talks and kinds & {"COMP", "MEM_LOAD"}:
            found.append("overlapped")
        elif "COMP" in kinds:
            found.append("compute")
        elif "MEM_LOAD" in kinds:
            found.append("copy")
        elif talks:
            found.append("waiting" if moment < last(rank, talks[1]) - first else "communication")
        else:
            found.append("host" if "CPU" in kinds else "stall")
    return found


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(SPANS, min_size=1, max_size=3), st.integers(1, 23))
def test_parts_equal_counting_moment_by_moment(ranks, bins):
    """Members meet by order of start; clocks agree."""
    trace = job(*ranks)
    first = min(start for rank in ranks for _, start, _ in rank)
    times = collect_node_times(trace, recorded(trace))
    finish = np.full(len(ranks), NONE, np.int64)
    spans = times.spans(trace, np.arange(len(ranks)))
    np.maximum.at(finish, spans.rank, spans.end_ns - WORLD - 1000 * first)
    found = build_ledger(TimedRun(trace, times, finish, origin_ns=WORLD + 1000 * first))
    talks = [
        sorted(
            (number for number, span in enumerate(rank) if span[0] == "COMM_COLL"),
            key=lambda number, rank=rank: (rank[number][1], number),
        )
        for rank in ranks
    ]

    def last(rank, number):
        nth = talks[rank].index(number)
        return max(ranks[other][mine[nth]][1] for other, mine in enumerate(talks) if nth < len(mine))

    for rank in range(len(ranks)):
        expected = moments(ranks, rank, last, first)
        got = {part.replace("transfer", "communication"): count for part, count in told(found, rank).items()}
        assert got == {part: expected.count(part) for part in set(expected)}
    over_time = compute_occupancy(found, bins)
    if found.makespan_ns:
        whole = found.ns().sum(axis=0) / (found.makespan_ns * len(ranks))
        assert np.allclose(over_time.share.mean(axis=1), whole, atol=1e-9)


def test_ranks_whose_times_lie_centuries_apart_are_counted_alike():
    """Three ranks over 2^61 ns: moved one beyond the other their times would leave the range of the clock."""
    far = 2**61 // 1000
    found = account(job([("COMP", 0, 10), ("COMP", far, 5)], [("COMP", 0, far)], [("COMP", 7, 2)]))
    assert found.totals().of("compute").tolist() == [15_000, far * 1000, 2_000]


@pytest.mark.parametrize("empty", [True, False])
def test_ranks_without_times_are_left_out(empty):
    trace = job([("COMP", 0, 10)], [] if empty else [("COMP", 0, 5)])
    assert account(trace).numbers == ([0] if empty else [0, 1])
