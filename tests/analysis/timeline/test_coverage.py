"""How busy the rows of a timeline are, against counting nanosecond by nanosecond."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.timeline.coverage import TRACKS_AT_MOST, Category, Coverage, classify_spans
from studio.timeline import Lane, Timeline, recorded
from tests.analysis.jobs import five
from tests.handmade import node, trace_of

END = 60
spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, END - 1), st.integers(0, 20), st.sampled_from(Category)),
    min_size=1,
    max_size=60,
)


def timeline_of(found) -> tuple[Timeline, np.ndarray]:
    """The timeline of (lane, start, length, category), and the categories in its order."""
    listed = sorted((lane, start, min(start + length, END), kind) for lane, start, length, kind in found)
    used = sorted({one[0] for one in listed})
    lane, start, end = (np.array([one[part] for one in listed], np.int64) for part in range(3))
    lanes = tuple(Lane(number, "compute") for number in used)
    timeline = Timeline(lanes, np.searchsorted(used, lane), np.arange(len(listed)), start, end)
    return timeline, np.array([one[3] for one in listed], np.uint8)


def brute(coverage: Coverage, track: int) -> np.ndarray:
    """(categories, END) whether a span of the category covers a nanosecond."""
    covered = np.zeros((len(Category), END), bool)
    for at in range(coverage.bounds[track], coverage.bounds[track + 1]):
        covered[coverage.category[at], coverage.start_ns[at] : coverage.end_ns[at]] = True
    return covered


@given(spans, st.integers(0, 30), st.integers(1, 9))
def test_bins_hold_the_true_fraction_of_every_category(found, begin: int, width: int) -> None:
    coverage = Coverage(*timeline_of(found))
    for track in range(len(coverage)):
        covered = np.pad(brute(coverage, track), ((0, 0), (0, 200)))
        bins = coverage.bins(track, begin, width, 12)
        expected = covered[:, begin : begin + 12 * width].reshape(len(Category), 12, width).mean(axis=2)
        answer = np.zeros_like(expected)
        answer[bins.category] = bins.fraction
        np.testing.assert_allclose(answer, expected, atol=1e-12)
        starts = coverage.start_ns[coverage.bounds[track] : coverage.bounds[track + 1]]
        edges = [begin + width * number for number in range(13)]
        begun = [int(((starts >= low) & (starts < high)).sum()) for low, high in pairwise(edges)]
        assert bins.begun.tolist() == begun


@given(spans)
def test_spans_of_a_track_follow_each_other_and_none_is_lost(found) -> None:
    timeline, kinds = timeline_of(found)
    coverage = Coverage(timeline, kinds)
    assert sorted(coverage.row.tolist()) == timeline.row.tolist()
    np.testing.assert_array_equal(coverage.start_ns, timeline.start_ns[coverage.row])
    np.testing.assert_array_equal(coverage.end_ns, timeline.end_ns[coverage.row])
    np.testing.assert_array_equal(coverage.category, kinds[coverage.row])
    for track in range(len(coverage)):
        part = slice(coverage.bounds[track], coverage.bounds[track + 1])
        assert set(timeline.lane[coverage.row[part]].tolist()) == {int(coverage.lane[track])}
        if coverage.level[track] < TRACKS_AT_MOST - 1:
            assert (coverage.start_ns[part][1:] >= coverage.end_ns[part][:-1]).all()


@given(spans)
def test_a_lane_has_as_many_tracks_as_spans_overlap(found) -> None:
    """No more than are under way at once: the lowest free track is taken."""
    timeline, kinds = timeline_of([one for one in found if one[2]] or [(0, 0, 1, Category.COMPUTE)])
    coverage = Coverage(timeline, kinds)
    for lane in range(len(timeline.lanes)):
        part = timeline.of_lane(lane)
        deepest = max(
            int(((timeline.start_ns[part] <= at) & (at < timeline.end_ns[part])).sum()) for at in range(END)
        )
        assert int((coverage.lane == lane).sum()) == min(max(deepest, 1), TRACKS_AT_MOST)


@given(spans, st.integers(0, END), st.integers(1, 30))
def test_spans_of_a_window_are_those_that_touch_it(found, begin: int, length: int) -> None:
    coverage = Coverage(*timeline_of(found))
    end = begin + length
    for track in range(len(coverage)):
        places = range(int(coverage.bounds[track]), int(coverage.bounds[track + 1]))
        expected = {
            at
            for at in places
            if coverage.start_ns[at] < end and (coverage.end_ns[at] > begin or coverage.start_ns[at] >= begin)
        }
        assert set(coverage.spans(track, begin, end).tolist()) == expected


def test_what_overlaps_too_deeply_shares_the_last_track_and_counts_once() -> None:
    coverage = Coverage(*timeline_of([(0, 0, 20, Category.RECEIVE)] * (TRACKS_AT_MOST + 5)))
    assert len(coverage) == TRACKS_AT_MOST
    assert coverage.bounds[-1] - coverage.bounds[-2] == 6
    bins = coverage.bins(TRACKS_AT_MOST - 1, 0, 40, 1)
    assert bins.category.tolist() == [Category.RECEIVE]
    assert bins.fraction.tolist() == [[0.5]]
    assert bins.begun.tolist() == [6]


def test_the_span_under_the_pointer_is_found_else_the_longest_near() -> None:
    coverage = Coverage(*timeline_of([(0, 10, 5, Category.COMPUTE), (0, 20, 8, Category.COMPUTE)]))
    assert coverage.at(0, 12, 0) == 0
    assert coverage.at(0, 12, 30) == 0
    assert coverage.at(0, 17, 6) == 1
    assert coverage.at(0, 17, 1) == -1


def test_categories_are_those_of_the_nodes() -> None:
    job = five()
    timeline = recorded(job)
    found = classify_spans(timeline, job)
    kinds = {
        (timeline.lanes[lane].rank, row): Category(kind)
        for lane, row, kind in zip(timeline.lane.tolist(), timeline.row.tolist(), found.tolist(), strict=True)
    }
    assert kinds[0, 0] == Category.COMPUTE
    assert kinds[4, 1] == Category.COLLECTIVE


def test_what_a_job_on_its_processor_computes_is_compute_and_the_time_between_is_the_hosts() -> None:
    operator = node(1, "COMP", micros=5, is_cpu_op=True, tid=1)
    gap = node(2, "COMP", 1, micros=3, is_cpu_op=True, tid=1, gap="host")
    kernel = node(3, "COMP", 2, micros=2, is_cpu_op=False, stream=7)

    def found(*nodes) -> dict[int, Category]:
        trace = trace_of([nodes])
        starts = replace(trace.graphs[0], start_ns=1000 * np.arange(0, 10 * len(nodes), 10))
        job = replace(trace, graphs=(starts,))
        timeline = recorded(job)
        return {
            int(row) + 1: Category(kind)
            for row, kind in zip(timeline.row, classify_spans(timeline, job).tolist(), strict=True)
        }

    assert found(operator, gap) == {1: Category.COMPUTE, 2: Category.HOST}
    assert found(operator, gap, kernel) == {1: Category.HOST, 2: Category.HOST, 3: Category.COMPUTE}
    permute = node(3, "COMP", 2, micros=2, is_cpu_op=True, tid=1, name="collective-permute.1")
    assert found(operator, gap, permute)[3] == Category.COLLECTIVE
