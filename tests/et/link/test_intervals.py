"""The loops of linking do as they say, compiled and interpreted alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.et.link import intervals
from tests.examples import examples

SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.integers(-1, 3)), max_size=14)


def columns(spans):
    return (
        [np.array(column, np.int64) for column in zip(*spans, strict=True)]
        if spans
        else [np.zeros(0, np.int64)] * 3
    )


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def either(request, monkeypatch):
    monkeypatch.setattr(intervals, "_is_worth_compiling", lambda _count: request.param)


def test_parents_are_the_nearest_before_that_end_later(either) -> None:
    @settings(max_examples=examples(60))
    @given(SPANS)
    def check(spans) -> None:
        start, length, lane = columns(spans)
        end = start + length
        parent, depth = intervals.find_parents(start, end, lane)
        order = sorted(range(len(spans)), key=lambda row: (lane[row], start[row], -end[row], row))
        for place, row in enumerate(order):
            before = [
                other
                for other in order[:place]
                if lane[other] == lane[row] and end[other] >= max(end[row], start[row] + 1)
            ]
            assert parent[row] == (before[-1] if before else -1)
            assert depth[row] == (depth[parent[row]] + 1 if before else 0)

    check()


def test_the_innermost_around_a_time_is_that_with_the_mark_where_there_is_one(either) -> None:
    @settings(max_examples=examples(60))
    @given(SPANS, st.lists(st.tuples(st.integers(0, 30), st.integers(-1, 3)), max_size=8))
    def check(spans, asked) -> None:
        # Nested, as the calls of a thread are.
        nested = [span for span in spans if span[1]]
        start, length, mark = columns([(0, 40, 1), *nested])
        parent, _ = intervals.find_parents(start, start + length, np.zeros(len(start), np.int64))
        order = np.lexsort((-length, start))
        kept = [row for row in order.tolist() if row == order[0] or parent[row] >= 0]
        start, end, mark = start[kept], (start + length)[kept], mark[kept]
        times = np.array(sorted(time for time, _ in asked), np.int64)
        wanted = np.array([mark for _, mark in asked], np.int64)
        found = intervals.find_innermost(start, end, mark, times, wanted)
        for time, want, row in zip(times.tolist(), wanted.tolist(), found.tolist(), strict=True):
            assert start[row] <= time <= end[row]
            if want >= 0 and mark[row] != want:
                # None that is left on the stack carries it: the outermost covers all and is always there.
                assert mark[0] != want

    check()


def test_what_came_before_a_callee_is_all_that_ended_last(either) -> None:
    first, begin, end = (np.array(values, np.int64) for values in ([0, 3, 3], [5, 9], [8, 7, 20]))
    assert intervals.find_before(first, begin, end).tolist() == [5, 8, 8, 20, 9]


def test_waits_are_cut_out_of_the_spans_that_they_lie_in(either) -> None:
    """The second wait ends behind its span; the fourth span has none, and room for one."""
    begin, end = np.array([0, 10, 30, 40]), np.array([10, 25, 40, 50])
    first, last, slots = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 3]), np.array([0, 2, 4, 6, 7])
    waits = np.array([2, 20, 30]), np.array([5, 26, 33]), np.array([6, 27, 41])
    start, took, is_after, waited = intervals.cut_out((begin, end, first, last, slots), waits)
    left = [
        (int(start[place]), int(took[place]), bool(is_after[place]))
        for place in np.flatnonzero(took > 0).tolist()
    ]
    assert left == [(0, 2, False), (6, 4, True), (10, 15, False), (40, 10, False)]
    assert waited.tolist() == [4, 0, 11, 0]
