"""Collectives that not all members were recorded long enough to have are told wherever the longest are listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

import studio
from studio.analysis.collectives.cell import describe_cell
from studio.analysis.collectives.heat import Look, Shown, build_heat
from studio.analysis.collectives.members import collect_members
from studio.analysis.collectives.size_classes import describe_partial, list_size_classes
from studio.analysis.collectives.times import compute_collective_times, describe_presence
from studio.analysis.compare.sides import build_recorded_side
from studio.cli import main
from studio.commands.base.outcome import _format_slowest_collectives
from studio.pages.collectives.classes import _build_count
from studio.reporting.content import _write_slowest
from studio.reporting.document import Document
from studio.timeline import collect_node_times, recorded
from studio.trace import CommGroup, Trace
from tests.doctor.broken_jobs import BROKEN


def job() -> Trace:
    return BROKEN["border-collectives"]()


def test_only_members_that_the_trace_holds_can_lack_a_collective() -> None:
    trace = job()
    assert describe_presence(trace, "", 1) == "1 of 2 members have it"
    assert describe_presence(trace, "", 2) == ""
    assert describe_presence(trace, "tp", 1, [CommGroup("tp", (1, 2, 3))]) == ""


def test_a_simulation_says_which_of_the_slowest_collectives_it_did_not_simulate() -> None:
    result = studio.simulate(job(), studio.preset("hgx-h100", npus=2).config)
    said = list(_format_slowest_collectives(result))
    assert [line for line in said if "1 of 2 members have it; it takes the time it was recorded with" in line]
    first = next(line for line in said if line.lstrip().startswith("ALL_REDUCE"))
    assert "5.00 ms" in first


def test_a_report_says_so_in_the_table() -> None:
    trace = job()
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    document = Document("a report")
    _write_slowest(document, trace, compute_collective_times(trace, side.times), None)
    assert "all ranks (1 of 2 members have it)" in document.html("")


def test_a_cell_of_collectives_says_so() -> None:
    trace = job()
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    look = Look(metric="duration", sort="time")
    shown = Shown(trace, build_heat(collect_members(trace, side.times), look), look, relative=False)
    assert "1 of 2 members have it" in describe_cell(shown, 0, 0)
    assert "members have it" not in describe_cell(shown, 1, 0)


def test_classes_of_collectives_count_them() -> None:
    trace = job()
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    [one] = list_size_classes(trace, compute_collective_times(trace, side.times))
    assert (one.count, one.partial_count) == (4, 2)
    assert describe_partial([one], "*").startswith("Not all members have 2 of 4 collectives (*)")
    assert describe_partial([replace(one, partial_count=0)]) == ""


def test_the_command_marks_them(tmp_path: Path) -> None:
    studio.write(job(), tmp_path, "job")
    listed = CliRunner().invoke(main, ["collectives", str(tmp_path)]).output
    assert " 4* " in listed
    assert "Not all members have 2 of 4 collectives (*)" in listed


def test_the_table_by_size_marks_them() -> None:
    trace = job()
    side = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    [one] = list_size_classes(trace, compute_collective_times(trace, side.times))
    marked, plain = _build_count(one), _build_count(replace(one, partial_count=0))
    assert "4*" in str(marked)
    assert plain == "4"
