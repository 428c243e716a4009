"""What a recording lacks is named where its communication cannot be matched."""

from __future__ import annotations

from studio.sim.unrecorded import missing_fact
from tests.doctor.broken_jobs import started
from tests.handmade import collective, node, trace_of


def test_calls_without_times_are_of_threads_that_were_not_recorded():
    rank = [node(1, "COMP", micros=1), collective(2, "ALL_REDUCE", 64, 1), collective(3, "ALL_REDUCE", 64, 1)]
    trace = started(trace_of([rank, rank]), [0, 5, -1])
    fact = missing_fact(trace)
    assert fact is not None
    assert fact.message.startswith("2 communication nodes of 4 have no recorded time")
    assert "studio.collect" in fact.hint


def test_receives_that_name_no_source_began_before_the_recording_or_elsewhere():
    rank = [node(1, "COMP", micros=1), node(2, "COMM_RECV", 1, comm_size=8, comm_tag=0, comm_dst=0)]
    fact = missing_fact(started(trace_of([rank]), [0, 5]))
    assert fact is not None
    assert fact.message.startswith("The recording holds no send for 1 receive from any rank")


def test_a_job_without_times_lacks_nothing_that_recording_would_tell():
    rank = [node(1, "COMP", micros=1), collective(2, "ALL_REDUCE", 64, 1)]
    assert missing_fact(trace_of([rank])) is None


def test_ranks_of_one_group_that_recorded_unequally_many_calls_lack_some():
    ranks = [[collective(number, "ALL_REDUCE", 64) for number in range(1, count + 1)] for count in (3, 2)]
    fact = missing_fact(started(trace_of(ranks, {"0": [0, 1]}), [0, 1, 2], [0, 1]))
    assert fact is not None
    assert fact.message.startswith("The recording holds 3 collectives of rank 0 and 2 of rank 1")
