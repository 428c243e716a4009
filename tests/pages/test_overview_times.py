"""Where the time goes, on the Overview."""

from __future__ import annotations

import re

import numpy as np

from studio.analysis.job.breakdown import Breakdown, RankUse
from studio.analysis.job.summary import summarise
from studio.analysis.job.type_times import TypeTime, type_times
from studio.pages.overview.times import _in_words
from studio.pages.overview.words import types_table
from studio.timeline import NodeTimes, recorded_times
from studio.trace import NONE, Trace
from tests.handmade import collective, node, trace_of
from tests.pages.test_simulate_runs import texts


def job(micros: int) -> Trace:
    """Three ranks of one graph: two compute nodes and a collective between them."""
    first, last = node(1, "COMP", micros=micros), node(3, "COMP", 2, micros=micros)
    met = collective(2, "ALL_REDUCE", 1, 1)
    first.start_time_micros, last.start_time_micros = 10, 50
    return trace_of([[first, met, last]] * 3)


RUN = NodeTimes(
    np.array([0, 0, 3]), np.array([0, 2000, 6000] * 2), np.array([2000, 6000, 7000, 5000, NONE, 9000])
)


def test_times_of_types_are_those_of_every_rank() -> None:
    """Ranks 0 and 1 share the times of one; rank 2 computes 5 + 3 µs, and its collective did not end."""
    assert type_times(job(20), RUN) == {
        "COMP": TypeTime(14_000, 8000, 2),
        "COMM_COLL": TypeTime(8000, 4000, NONE),  # ranks 0 and 1 tie
    }
    recorded = {share.name: share for share in summarise(job(20)).types}
    found = type_times(job(20), recorded_times(job(20)))["COMP"]
    assert found == TypeTime(recorded["COMP"].duration_ns, 40_000, NONE)
    assert type_times(job(0), NodeTimes(np.full(3, NONE), RUN.start_ns, RUN.end_ns))["COMP"].most_rank == NONE


def test_nodes_by_type_tell_the_run_that_is_shown_before_what_was_recorded() -> None:
    """A run without a recording stands alone, and so does a recording."""
    recorded = texts(types_table(summarise(job(20))))
    assert "Recorded, mean rank ? Max / mean" in recorded
    assert "In run" not in recorded
    both = texts(types_table(summarise(job(20)), type_times(job(20), RUN)))
    assert "In run, mean rank ? Max / mean Recorded, mean rank ? Max / mean" in both
    assert "COMP 6 2 4.67 µs 1.71 on rank 2 40.0 µs 1.00" in both
    assert "COMM_COLL 3 1 2.67 µs 1.50 – –" in both
    alone = texts(types_table(summarise(job(0)), type_times(job(0), RUN)))
    assert "4.67 µs 1.71 on rank 2" in alone
    assert "Recorded" not in alone


def test_shares_of_the_mean_rank_fill_the_finish() -> None:
    """A rank that ends early, copies, memory and idle time are all told, as shares of what the last rank takes."""
    columns = {
        "compute_ns": [20, 30],
        "communication_ns": [60, 10],
        "exposed_communication_ns": [50, 0],
        "copy_ns": [5, 4],
        "exposed_copy_ns": [4, 0],
        "memory_ns": [10, 0],
        "cpu_ns": [0, 10],
        "idle_ns": [20, 0],
    }
    times = Breakdown(**{name: np.array(column) for name, column in columns.items()})
    said = texts(_in_words(RankUse(np.array([0, 1]), np.array([100, 40]), times)))
    assert "finish (100 ns)" in said
    shares = dict(
        re.findall(r"([a-z][a-zA-Z ]*?) (?:\? )?([\d.]+) %", said.split("mean rank:")[1].split("·")[0])
    )
    assert shares == {
        "compute": "25.0",
        "exposed communication": "25.0",
        "copies alone": "2.0",
        "memory and CPU alone": "8.0",
        "idle": "10.0",
        "done before the last rank": "30.0",
    }
