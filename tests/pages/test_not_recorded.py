"""What a trace does not record is called so: no size becomes 0, and no rank stands out where ranks tie."""

from __future__ import annotations

import numpy as np

from studio.analysis.collectives.groups import sum_group_use
from studio.analysis.collectives.imbalance import (
    build_matrix,
    build_rows,
    compute_amounts,
    compute_spread,
    find_worst_rows,
)
from studio.analysis.collectives.members import collect_members
from studio.analysis.job.summary import count_unsized, summarise
from studio.analysis.timeline.counters import count_in_flight
from studio.analysis.timeline.gantt import Gantt
from studio.comparing import build_compared_recording
from studio.figures.beside import draw_beside
from studio.figures.groups import draw_group_matrix
from studio.figures.theme import SEQUENTIAL
from studio.pages.collectives.words import _describe_lead
from studio.pages.overview.words import build_collectives_table, build_use_table
from studio.reporting import build_report
from studio.timeline import recorded
from studio.trace import Trace
from tests.handmade import collective, node, trace_of
from tests.pages.test_simulate_runs import texts


def job(*sizes: int | None) -> Trace:
    """Two ranks with an all-reduce of each size, None for one that is not recorded, and a barrier."""

    def made(at: int, size: int | None):
        found = (
            collective(at, "ALL_REDUCE", size or 0)
            if size is not None
            else node(at, "COMM_COLL", comm_type=0)
        )
        found.start_time_micros, found.duration_micros = 10 * at, 5
        return found

    barrier = node(99, "COMM_COLL", comm_type=9)
    barrier.start_time_micros, barrier.duration_micros = 990, 1
    return trace_of([[*(made(at, size) for at, size in enumerate(sizes, start=1)), barrier]] * 2)


def test_sizes_that_are_not_recorded_are_not_0() -> None:
    trace = job(None, None)
    assert count_unsized(trace) == {"ALL_REDUCE": 4}
    said = texts(build_collectives_table(summarise(trace), count_unsized(trace)))
    assert "ALL_REDUCE 4 not recorded not recorded" in said
    assert "BARRIER 2 0 B 0 B" in said  # a barrier moves nothing, which is known
    use = sum_group_use(trace)
    assert (use.count.tolist(), use.bytes.tolist(), use.sized.tolist()) == ([3, 3], [0, 0], [1, 1])
    bare = sum_group_use(trace_of([[node(1, "COMM_COLL", comm_type=0)]] * 2))
    assert [row[3] for row in build_use_table(bare).rows] == ["not recorded", "not recorded"]
    drawn = draw_group_matrix(bare, dark=False)
    assert "sizes not recorded" in drawn.data[0].customdata[0][0]
    assert list(drawn.data[0].colorbar.ticktext) == ["not recorded"]
    assert drawn.layout.yaxis.title.text == "comm group"
    assert drawn.layout.xaxis.title.text == "rank"
    timed = recorded(trace)
    assert [
        one.unit for one in count_in_flight(Gantt(trace, timed, origin_ns=int(timed.start_ns.min())))
    ] == ["nodes"]
    members = collect_members(trace)
    assert np.isnan(compute_amounts(members, "size")[0]).all()
    told = build_report([build_compared_recording(trace, "csv")])
    assert "0 B" not in told.split("Collectives by type")[1].split("Collectives in which")[0]
    assert "the trace does not record how much they move" in told


def test_sizes_of_which_some_are_recorded_are_said_to_be_more() -> None:
    trace = job(None, 4096)
    said = texts(build_collectives_table(summarise(trace), count_unsized(trace)))
    assert "ALL_REDUCE 4 8.00 KiB and more 4.00 KiB and more" in said
    assert count_unsized(job(0)) == {}


def test_ranks_that_tie_for_most_are_not_named() -> None:
    def lead(*rows: list[float]) -> str:
        table = np.array(rows)
        return texts(
            _describe_lead([10, 16, 20, 30], table, find_worst_rows(table, compute_spread(table), "max"))
        )

    assert lead([4, 4, 1, 1]) == "In each of them several ranks tie for the most."
    assert lead([1, 4, 1, 1]) == "Rank 16  has most in the one uneven row."
    assert lead([1, 4, 1, 1], [4, 4, 1, 1]) == "Rank 16  has most in 1 of the 2 most uneven rows."


def test_heatmaps_beside_each_other_share_a_logarithmic_scale() -> None:
    drawn = draw_beside(
        [np.array([[1e3, 1e6]]), np.array([[0.0, 1e9]])], [[0, 1], [0, 1]], ["A", "B"], dark=False
    )
    axis = drawn.layout.coloraxis
    assert drawn.data[0].z.tolist() == [[3, 6]]
    np.testing.assert_allclose([axis.cmin, axis.cmax, drawn.data[1].z[0][0]], [1.5, 9, 1.5])
    assert list(axis.colorbar.ticktext) == ["0 ns", "1.00 µs", "31.6 µs", "1.00 ms", "31.6 ms", "1.00 s"]
    # What is most lies farthest from the background, as on Collectives; no axis draws a line through rank 0.
    assert [colour for _, colour in axis.colorscale] == list(SEQUENTIAL["light"])
    axes = (drawn.layout.xaxis, drawn.layout.xaxis2, drawn.layout.yaxis, drawn.layout.yaxis2)
    assert [each.zeroline for each in axes] == [False] * 4
    # What is read at a cell is the figure itself.
    assert drawn.data[0].customdata.tolist() == [[np.float32(1e-6), np.float32(1e-3)]]


def test_a_run_without_collectives_says_so_in_the_place_of_its_heatmap() -> None:
    """A heatmap without rows has axes without a length, of which the browser complains."""
    drawn = draw_beside([np.zeros((0, 1)), np.array([[1e3]])], [[0], [0]], ["A", "B"], dark=False)
    assert [trace.type for trace in drawn.data] == ["scatter", "heatmap"]
    assert (drawn.layout.xaxis.type, list(drawn.layout.yaxis.range)) == ("linear", [0, 1])
    assert "no collectives" in [note.text for note in drawn.layout.annotations]


def test_rows_of_a_matrix_without_sizes_are_empty() -> None:
    members = collect_members(job(None))
    assert np.isnan(build_matrix(members, build_rows(members), "size")).all()
