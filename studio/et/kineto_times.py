"""Kineto's times, microseconds as numbers or texts, in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studio.trace import Bool, Float64, Int64

LONGEST_NS = 2**62
LONGEST_YEARS = 146
"""So many whole years are `LONGEST_NS`."""


def convert_to_ns(
    values: Sequence[Any] | Int64 | Float64, is_present: Bool | None = None
) -> tuple[Int64, Bool]:
    """Return microseconds as (M,) nanoseconds, and which of them (M,) are valid times; only those that are there.

    The fraction is taken apart first: multiplied whole, a time of 2023 would lose its last digit.

    Example:
        >>> convert_to_ns([4348927393528.336, 7, "x"])[0].tolist()
        [4348927393528336, 7000, 0]
    """
    is_present = np.array([True]) if is_present is None else is_present
    try:
        column = np.asarray(values)
        usual = column.dtype in (np.int64, np.float64) and column.ndim == 1
    except (ValueError, OverflowError):
        usual = False
    if not usual:
        column = np.array([parse_microseconds(value) for value in values], np.float64)
    longest = LONGEST_NS // 1000
    good = is_present & np.isfinite(column) & (column > -longest) & (column < longest)
    column = np.where(good, column, 0)
    if column.dtype == np.int64:
        return column * 1000, good
    whole = np.floor(column)
    return whole.astype(np.int64) * 1000 + np.rint((column - whole) * 1000).astype(np.int64), good


def parse_microseconds(value: Any) -> float:
    """Return a number of microseconds, NaN for what is none."""
    try:
        return float(value) if isinstance(value, int | float | str) else np.nan
    except (ValueError, OverflowError):
        return np.nan
