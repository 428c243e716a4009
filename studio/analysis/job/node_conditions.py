"""Conditions on the columns of the list of nodes: which texts or numbers fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from studio.analysis.job.names import lower_case
from studio.analysis.job.node_columns import COLUMNS, QUANTITIES
from studio.analysis.job.number_filter import Wanted, parse_filter
from studio.arrow import from_arrow
from studio.errors import TraceError
from studio.trace import NONE, Bool, Int64, UInt64


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a column.

    Texts compare without regard to case; `to` is the end of a range. Numbers that `matches` a text are those
    the text asks for, such as `>= 1.5 ms`, see `number_filter.parse_filter`.
    """

    column: str
    operator: str
    value: str = ""
    to: str = ""


def match_texts(lower: pa.LargeStringArray, condition: Condition) -> Bool:
    """Return which texts, in lower case, meet a condition.

    Raises:
        TraceError: Texts are not compared so.
    """
    value, empty = lower_case([condition.value, ""])
    text = value.as_py()
    tests: dict[str, Callable[[], pa.BooleanArray]] = {
        "contains": lambda: pc.match_substring(lower, text),
        "notContains": lambda: pc.invert(pc.match_substring(lower, text)),
        "equals": lambda: pc.equal(lower, value),
        "notEqual": lambda: pc.not_equal(lower, value),
        "startsWith": lambda: pc.starts_with(lower, text),
        "endsWith": lambda: pc.ends_with(lower, text),
        "blank": lambda: pc.equal(lower, empty),
        "notBlank": lambda: pc.not_equal(lower, empty),
    }
    if condition.operator not in tests:
        raise TraceError(
            f"Texts cannot be compared by {condition.operator!r}.", hint=f"Allowed: {', '.join(tests)}."
        )
    return from_arrow(tests[condition.operator]()).astype(np.bool_, copy=False)


def match_numbers(column: Int64 | UInt64, condition: Condition) -> Bool:
    """Return which numbers meet a condition; of ids all 64 bits count, of other columns -1 stands for no value.

    Raises:
        TraceError: Numbers are not compared so, or the condition names none.
    """
    has_value = np.ones(len(column), bool) if column.dtype == np.uint64 else column != NONE
    if condition.operator in ("blank", "notBlank"):
        return ~has_value if condition.operator == "blank" else has_value
    if condition.operator == "matches":
        return has_value & _is_in_range(column, condition)
    value = _parse_number(condition.value)
    tests: dict[str, Callable[[], Bool]] = {
        "equals": lambda: column == value,
        "notEqual": lambda: column != value,
        "lessThan": lambda: column < value,
        "lessThanOrEqual": lambda: column <= value,
        "greaterThan": lambda: column > value,
        "greaterThanOrEqual": lambda: column >= value,
        "inRange": lambda: (column >= value) & (column <= _parse_number(condition.to)),
    }
    if condition.operator not in tests:
        raise TraceError(
            f"Numbers cannot be compared by {condition.operator!r}.",
            hint=f"Allowed: {', '.join(tests)}, matches.",
        )
    # A node without a value is neither less nor more nor different.
    return has_value & tests[condition.operator]()


def _is_in_range(column: Int64 | UInt64, condition: Condition) -> Bool:
    try:
        asked: Wanted = parse_filter(condition.value, QUANTITIES.get(condition.column, "number"))
    except TraceError as error:
        name = condition.column.removesuffix("_ns").replace("_", " ").capitalize()
        raise TraceError(f"{name}: {error.message}", hint=error.hint) from error
    inside: Bool = (column >= asked.low) & (column <= asked.high)
    return ~inside if asked.outside else inside


def _parse_number(text: str) -> int | float:
    try:
        return int(text) if re.fullmatch("[+-]?[0-9]{1,40}", text.strip()) else float(text)
    except ValueError:
        raise TraceError(
            f"{text[:40]!r} is not a number.", hint="Enter digits, such as 4096 or 1.5e6."
        ) from None


def build_column_error(name: str) -> TraceError:
    """Return the error that says which columns there are."""
    return TraceError(f"There is no column {name[:40]!r}.", hint=f"Columns: {', '.join(COLUMNS)}.")
