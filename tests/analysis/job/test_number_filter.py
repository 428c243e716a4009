"""Filters of numbers as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.job.number_filter import Quantity, parse_filter
from studio.errors import TraceError
from studio.units import format_bytes, format_ns


def fits(value: int, text: str, quantity: Quantity) -> bool:
    asked = parse_filter(text, quantity)
    return (asked.low <= value <= asked.high) != asked.outside


@given(st.integers(0, 10**15))
def test_a_time_as_it_is_shown_finds_itself(ns):
    assert fits(ns, format_ns(ns), "time")


@given(st.integers(0, 2**50))
def test_a_size_as_it_is_shown_finds_itself(size_bytes):
    assert fits(size_bytes, format_bytes(size_bytes), "bytes")


@given(st.integers(1, 10**12), st.integers(-(10**12), 10**12))
def test_what_is_further_away_than_rounding_is_not_found(ns, step):
    """Three digits are shown, so what is more than 1 % away is shown differently."""
    assert not (abs(step) * 100 > ns and fits(ns + step, format_ns(ns), "time"))


@pytest.mark.parametrize(
    ("text", "quantity", "inside", "outside"),
    [
        ("5", "number", [5], [4, 6]),
        ("= 5", "number", [5], [4, 6]),
        ("!= 5", "number", [4, 6], [5]),
        ("< 5", "number", [4, -1], [5]),
        ("<=5", "number", [5], [6]),
        ("> 1.5 ms", "time", [1_500_001], [1_500_000]),
        (">= 1.5ms", "time", [1_500_000], [1_499_999]),
        ("1 us..2 us", "time", [1_000, 2_000], [900, 2_100]),
        ("5 to 9", "number", [5, 9], [4, 10]),
        ("1,024", "bytes", [1024], [1023, 1025]),
        ("48 MiB", "bytes", [48 << 20], [47 << 20]),
        ("> 2 G", "count", [2_000_000_001], [2_000_000_000]),
        ("1.2 GFLOP", "count", [1_200_000_000, 1_204_999_999], [1_205_000_001]),
        (str(2**64 - 1), "number", [2**64 - 1], [2**64 - 2]),
    ],
)
def test_what_can_be_written(text, quantity, inside, outside):
    assert [fits(value, text, quantity) for value in inside] == [True] * len(inside)
    assert [fits(value, text, quantity) for value in outside] == [False] * len(outside)


@pytest.mark.parametrize("text", ["", "soon", "5 apples", "1..2..3", "< ", "..", "1e99", "9" * 80])
def test_what_cannot_be_understood_is_refused_with_examples(text):
    with pytest.raises(TraceError, match="not understood") as caught:
        parse_filter(text, "time")
    assert "1.5 ms" in caught.value.hint
