"""Where the time goes, on the Overview."""

from __future__ import annotations

import re

import numpy as np

from studio.analysis.collectives.arrivals import Arrivals
from studio.analysis.job.ledger import PARTS, Ledger
from studio.analysis.job.stretches import Stretches
from studio.analysis.job.summary import summarise
from studio.analysis.job.type_times import TypeTime, type_times
from studio.doctor.diagnosis import Diagnosis
from studio.pages.overview.times import _describe_use, build_untimed_notice
from studio.pages.overview.words import build_types_table, select_findings
from studio.timeline import NodeTimes, read_recorded_times
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
    found = type_times(job(20), read_recorded_times(job(20)))["COMP"]
    assert found == TypeTime(recorded["COMP"].duration_ns, 40_000, NONE)
    assert type_times(job(0), NodeTimes(np.full(3, NONE), RUN.start_ns, RUN.end_ns))["COMP"].most_rank == NONE


def test_nodes_by_type_tell_the_run_that_is_shown_before_what_was_recorded() -> None:
    """A run without a recording stands alone, and so does a recording."""
    recorded = texts(build_types_table(summarise(job(20))))
    assert "Recorded, mean rank ? Max / mean" in recorded
    assert "In run" not in recorded
    both = texts(build_types_table(summarise(job(20)), type_times(job(20), RUN)))
    assert "In run, mean rank ? Max / mean Recorded, mean rank ? Max / mean" in both
    assert "COMP 6 2 4.67 µs 1.71 on rank 2 40.0 µs 1.00" in both
    assert "COMM_COLL 3 1 2.67 µs 1.50 – –" in both
    alone = texts(build_types_table(summarise(job(0)), type_times(job(0), RUN)))
    assert "4.67 µs 1.71 on rank 2" in alone
    assert "Recorded" not in alone
    # Without times there is no column of them, and what was not recorded is not called so.
    assert "mean rank" not in texts(build_types_table(summarise(job(0))))
    assert "In the files, mean rank ?" in texts(build_types_table(summarise(job(20)), ran=False))
    assert texts(build_untimed_notice("j", True)).startswith(
        "The files say how long nodes take, not when they ran."
    )
    assert texts(build_untimed_notice("j", False)).startswith("The files hold no times.")


def test_a_file_that_is_no_part_of_the_job_is_no_finding_of_its_overview() -> None:
    notes = Diagnosis("ignored-file", "info", "", "notes.txt: a text file, no execution trace, left out.")
    lost = Diagnosis("ignored-file", "warning", "", "a.3.et: binary data of an unknown kind, left out.")
    clock = Diagnosis("clock", "info", "", "Clocks compared.")
    assert select_findings([lost, clock, notes]) == [lost, clock]


def test_time_in_which_nothing_ran_is_no_compute_of_its_rank() -> None:
    """Rank 1 works no longer than rank 0, but its processor stood outside operators for longer."""

    def rank(program: int) -> list:
        work = node(1, "COMP", micros=10, is_cpu_op=True)
        between = node(2, "COMP", 1, name="host gap", micros=program, is_cpu_op=True, gap="program")
        idle = node(3, "COMP", name="device gap", micros=4, is_cpu_op=False, gap="stall")
        work.start_time_micros, between.start_time_micros, idle.start_time_micros = 10, 20, 50
        return [work, between, idle]

    trace = trace_of([rank(2), rank(30)])
    kinds = {share.name: (share.nodes, share.duration_ns) for share in summarise(trace).types}
    assert kinds == {"COMP": (2, 20_000), "host gap": (2, 32_000), "device gap": (2, 8000)}
    assert type_times(trace, read_recorded_times(trace))["COMP"] == TypeTime(20_000, 10_000, NONE)
    said = texts(build_types_table(summarise(trace)))
    assert "COMP 2 1 10.0 µs 1.00" in said
    assert "host gap ? 2 1 16.0 µs 1.88 on rank 1" in said


def test_kernels_of_a_communication_library_are_no_compute() -> None:
    """Neither size nor group is known, so that they are no collective either."""
    trace = trace_of([[node(1, "COMP"), node(2, "COMP", name="ncclDevKernel_Generic(x)", micros=5)]])
    kinds = {share.name: (share.nodes, share.duration_ns) for share in summarise(trace).types}
    assert kinds == {"COMP": (1, 0), "communication kernel": (1, 5000)}
    assert "communication kernel ?" in texts(build_types_table(summarise(trace)))


def test_shares_of_the_mean_rank_fill_the_finish() -> None:
    """A rank that ends early, copies and idle time are all told, as shares of what the last rank takes."""
    ns = np.zeros((2, len(PARTS)), np.int64)
    for part, row in (("compute", (20, 30)), ("overlapped", (5, 0)), ("copy", (10, 10)), ("stall", (15, 0))):
        ns[:, PARTS.index(part)] = row
    for part, row in (("waiting", (40, 0)), ("communication", (10, 0))):
        ns[:, PARTS.index(part)] = row
    lines = [(0, code) for code in range(len(PARTS))], [(1, code) for code in range(len(PARTS))]
    start = np.concatenate([np.cumsum(row) - row for row in ns])
    stretches = Stretches(
        np.array([0, len(PARTS), 2 * len(PARTS)]),
        start,
        start + ns.ravel(),
        np.array([code for line in lines for _, code in line], np.uint8),
    )
    nothing = np.zeros(0, np.int64)
    both = np.arange(2)
    joined = Arrivals(nothing, nothing, (), None)
    use = Ledger([0, 1], both, np.array([100, 40]), both, stretches, True, nothing, both, nothing, joined)
    said = " ".join(texts(_describe_use(use)).split())
    assert "finish (100 ns)" in said
    plain = re.sub(r"\([^)]*%[^)]*\)", "", said.split("mean rank:")[1].split("·")[0])
    shares = dict(re.findall(r"([a-z][a-zA-Z ]*?) (?:\? )?([\d.]+) %", plain))
    assert shares == {
        "compute": "25.0",
        "overlapped": "2.5",
        "copies": "10.0",
        "exposed communication": "25.0",
        "idle": "7.5",
        "after finish": "30.0",
    }
    assert "(waiting 20.0 %, communication 5.0 %)" in said
