"""What a recording lacks is named where its communication cannot be matched."""

from __future__ import annotations

import pytest

from studio.errors import ConfigError
from studio.sim import simulate
from studio.sim.presets import preset
from studio.sim.unrecorded import check_missing_facts
from tests.doctor.broken_jobs import started
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled


def test_calls_without_times_are_of_threads_that_were_not_recorded():
    rank = [node(1, "COMP", micros=1), collective(2, "ALL_REDUCE", 64, 1), collective(3, "ALL_REDUCE", 64, 1)]
    trace = started(trace_of([rank, rank]), [0, 5, -1])
    fact = check_missing_facts(trace)
    assert fact is not None
    assert fact.message.startswith("2 communication nodes of 4 have no recorded time")
    assert "studio.collect" in fact.hint


def test_receives_that_name_no_source_began_before_the_recording_or_elsewhere():
    rank = [node(1, "COMP", micros=1), node(2, "COMM_RECV", 1, comm_size=8, comm_tag=0, comm_dst=0)]
    fact = check_missing_facts(started(trace_of([rank]), [0, 5]))
    assert fact is not None
    assert fact.message.startswith("The recording holds no send for 1 receive from any rank")


def test_a_job_without_times_lacks_nothing_that_recording_would_tell():
    rank = [node(1, "COMP", micros=1), collective(2, "ALL_REDUCE", 64, 1)]
    assert check_missing_facts(trace_of([rank])) is None


def test_ranks_of_one_group_that_recorded_unequally_many_calls_lack_some():
    ranks = [[collective(number, "ALL_REDUCE", 64) for number in range(1, count + 1)] for count in (3, 2)]
    fact = check_missing_facts(started(trace_of(ranks, {"0": [0, 1]}), [0, 1, 2], [0, 1]))
    assert fact is not None
    assert fact.message.startswith("The recording holds 3 collectives of rank 0 and 2 of rank 1")


def test_a_job_of_which_ranks_are_missing_is_told_how_to_get_them():
    """Another size of the network, which was advised, does not bring them."""
    job = trace_of([[collective(1, "ALL_REDUCE", 1 << 20, group="0")]], {"0": [0, 1, 2, 3]})
    for npus in (1, 4):
        with pytest.raises(ConfigError) as caught:
            simulate(job, preset("hgx-h100", npus=npus), native=compiled())
        assert "studio.complete" in caught.value.hint
    whole = trace_of([[collective(1, "ALL_REDUCE", 1 << 20)]] * 2)
    with pytest.raises(ConfigError, match="the topology has 4 NPUs, the trace 2 ranks") as caught:
        simulate(whole, preset("hgx-h100", npus=4), native=compiled())
    assert "preset(NAME, npus=2)" in caught.value.hint
