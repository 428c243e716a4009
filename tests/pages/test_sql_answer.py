"""Answers on the SQL page: numbers that can be read, units where the name of a column tells one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from studio.pages.sql.answer import build_grid


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("bytes", 1 << 20, "1.00 MiB"),
        ("avg(bytes)", 34570500.0, "33.0 MiB"),
        ("sum(duration_ns)", 1_500_000, "1.50 ms"),
        ("sum(t.duration_ns)", 1_500_000, "1.50 ms"),
        ("max(DISTINCT bytes)", 1 << 20, "1.00 MiB"),
        # No unit: what is counted is no longer the column, or nothing tells it.
        ("count(bytes)", 1_048_576, "1,048,576"),
        ("sum((bytes * duration_ns))", 34570500.0, "34,570,500"),
        ("(max(bytes) / max(duration_ns))", 12.34567, "12.35"),
        ("x", 34570500.4, "34,570,500"),
        ("x", -1234.5678, "-1,235"),
        ("x", 0.000123456, "0.0001235"),
        ("x", 1.5e-9, "1.5e-09"),
        ("x", 3.4e30, "3.4e+30"),
        ("x", 0.0, "0"),
        ("x", 2.0, "2"),
        # What a table holds as it is, such as ids, is no count.
        ("id", 123456, "123456"),
        ("other_id", 123456, "123456"),
        ("count_star()", 123456, "123,456"),
    ],
)
def test_numbers_have_separators_and_units_only_where_the_name_tells_one(
    name: str, value: float, shown: str
) -> None:
    _, [row] = build_grid(pa.table({name: [value]}))
    assert (row["t0"], row["c0"]) == (shown, value)


def test_the_tip_of_a_rounded_number_has_all_its_digits() -> None:
    [column], [row] = build_grid(pa.table({"x": [34570500.4375]}))
    assert (column["tooltipField"], row["e0"]) == ("e0", "34,570,500.4375")
