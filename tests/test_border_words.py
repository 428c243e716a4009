"""Collectives that not all members were recorded long enough to have are told wherever the longest are listed."""

from __future__ import annotations

import studio
from studio.analysis.collectives.cell import cell_words
from studio.analysis.collectives.heat import Look, Shown, heat_of
from studio.analysis.collectives.members import collective_members
from studio.analysis.collectives.times import collective_times, partly_words
from studio.analysis.compare.sides import recorded_side
from studio.commands.base.outcome import _slowest_collectives
from studio.reporting.content import _slowest
from studio.reporting.document import Document
from studio.timeline import node_times, recorded
from studio.trace import CommGroup, Trace
from tests.doctor.broken_jobs import BROKEN


def job() -> Trace:
    return BROKEN["border-collectives"]()


def test_only_members_that_the_trace_holds_can_lack_a_collective() -> None:
    trace = job()
    assert partly_words(trace, "", 1) == "1 of 2 members have it"
    assert partly_words(trace, "", 2) == ""
    assert partly_words(trace, "tp", 1, [CommGroup("tp", (1, 2, 3))]) == ""


def test_a_simulation_says_which_of_the_slowest_collectives_it_did_not_simulate() -> None:
    result = studio.simulate(job(), studio.preset("hgx-h100", npus=2).config)
    said = list(_slowest_collectives(result))
    assert [line for line in said if "1 of 2 members have it; it takes the time it was recorded with" in line]
    first = next(line for line in said if line.lstrip().startswith("ALL_REDUCE"))
    assert "5.00 ms" in first


def test_a_report_says_so_in_the_table() -> None:
    trace = job()
    side = recorded_side(trace, node_times(trace, recorded(trace)))
    document = Document("a report")
    _slowest(document, trace, collective_times(trace, side.times), None)
    assert "all ranks (1 of 2 members have it)" in document.html("")


def test_a_cell_of_collectives_says_so() -> None:
    trace = job()
    side = recorded_side(trace, node_times(trace, recorded(trace)))
    look = Look(metric="duration", sort="time")
    shown = Shown(trace, heat_of(collective_members(trace, side.times), look), look, relative=False)
    assert "1 of 2 members have it" in cell_words(shown, 0, 0)
    assert "members have it" not in cell_words(shown, 1, 0)
