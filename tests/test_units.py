"""Times, bytes and rates as people read and write them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from studio import units
from studio.errors import ConfigError


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (0.25, "0.25 ns"),
        (12.5, "12.5 ns"),
        (1_000, "1.00 µs"),
        (1_280_000, "1.28 ms"),
        (12_345_678, "12.3 ms"),
        (123_456_789, "123 ms"),
        (1_500_000_000, "1.50 s"),
        (90 * 10**9, "1.50 min"),
        (5400 * 10**9, "1.50 h"),
        (4_000 * 3600 * 10**9, "4,000 h"),
        (-1_280_000, "-1.28 ms"),
        (-7, "-7 ns"),
        # Rounding reaches the next digit or the next unit.
        (999.9, "1.00 µs"),
        (999_400, "999 µs"),
        (999_500, "1.00 ms"),
        (9_994_999, "9.99 ms"),
        (9_999_999, "10.0 ms"),
        (99_960_000, "100 ms"),
        (59_940_000_000, "59.9 s"),
        (59_960_000_000, "1.00 min"),
        (59.96 * 60e9, "1.00 h"),
        (math.inf, "–"),
        (math.nan, "–"),
    ],
)
def test_times_take_the_unit_that_suits_them(ns: float, text: str) -> None:
    """Three significant digits, and never a number as large as the next unit."""
    assert units.format_ns(ns) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (48 * 2**20, "48.0 MiB"),
        (1023.6 * 2**20, "1.00 GiB"),
        (1023.4 * 2**20, "1,023 MiB"),
        (2**70, "1,024 EiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_sizes_are_binary(size_bytes: float, text: str) -> None:
    """Memory is counted in powers of 1024, and says so."""
    assert units.format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("bytes_per_ns", "text"),
    [
        (371.2, "371 GB/s"),
        (450, "450 GB/s"),
        (0.9996, "1.00 GB/s"),
        (0.0125, "12.5 MB/s"),
        (3350, "3.35 TB/s"),
        (0, "0 B/s"),
        (math.nan, "–"),
    ],
)
def test_rates_are_decimal(bytes_per_ns: float, text: str) -> None:
    """Links are sold in powers of 1000: GB = 10^9."""
    assert units.format_rate(bytes_per_ns) == text


def test_counts_and_operations() -> None:
    """Counts are exact; operations get a prefix."""
    assert units.format_count(96331) == "96,331"
    assert units.format_count(-1_000_000) == "-1,000,000"
    assert units.format_si(2e9) == "2.00 G"
    assert units.format_si(999_999, "FLOP") == "1.00 MFLOP"
    assert units.format_si(1.5) == "1.50"


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1.5 ms", 1_500_000),
        ("1.5ms", 1_500_000),
        (" 20 us ", 20_000),
        ("20 µs", 20_000),  # the micro sign
        ("20 μs", 20_000),  # the Greek letter, as other keyboards have it
        ("20\N{THIN SPACE}us", 20_000),
        ("20\N{NARROW NO-BREAK SPACE}us", 20_000),
        ("1,500 ns", 1_500),
        (".5 s", 500_000_000),
        ("1e3 s", 10**12),
        ("-3 ms", -3_000_000),
        ("−3 ms", -3_000_000),  # the minus sign
        ("2 min", 120 * 10**9),
        ("2 h", 7200 * 10**9),
        ("0", 0),
        ("9223372036854775807 ns", 2**63 - 1),
        ("1.0000000000000000001 s", 10**9),
    ],
)
def test_times_are_read(text: str, ns: int) -> None:
    """Every spelling people use, exactly."""
    assert units.parse_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("48MiB", 48 * 2**20),
        ("1e6", 10**6),
        ("1 GB", 10**9),
        ("1 kB", 1000),
        ("1 KB", 1000),
        ("1 KiB", 1024),
        ("0", 0),
        ("0.5 KiB", 512),
        ("4096 B", 4096),
    ],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    """Decimal and binary units are kept apart; a bare number is bytes."""
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (
            units.parse_ns,
            ("", "ms", "-", ".", "e3 ms", "1.5", "1 MS", "1 day", "1 2 ms", "1,5 ms", "0x10 ns", "nan s"),
        ),
        (units.parse_bytes, ("", "MiB", "-1 B", "1 gb", "1 Gb", "1 mB", "1 GB/s", "inf", "1__0", "١ B")),
    ],
)
def test_nonsense_is_named(parse: Callable[[str], float], texts: tuple[str, ...]) -> None:
    """The error quotes the value, lists the units and gives an example."""
    for text in texts:
        with pytest.raises(ConfigError) as caught:
            parse(text)
        assert repr(text) in caught.value.message
        assert "one of" in caught.value.message
        assert "'" in caught.value.hint


@pytest.mark.parametrize("parse", [units.parse_ns, units.parse_bytes])
@pytest.mark.parametrize("number", ["1e999", "9" * 50])
def test_numbers_beyond_64_bits_are_refused(parse: Callable[[str], float], number: str) -> None:
    """A number that no column can hold is an error, not an overflow later."""
    unit = {units.parse_ns: "h", units.parse_bytes: "B"}[parse]
    with pytest.raises(ConfigError, match="too large"):
        parse(f"{number} {unit}")


@pytest.mark.parametrize("parse", [units.parse_ns, units.parse_bytes])
@pytest.mark.parametrize("text", ["9" * 100_000 + " s", "1e999999999 s", " " * 100_000 + "x"])
def test_monstrous_text_is_refused_at_once(parse: Callable[[str], float], text: str) -> None:
    """Neither a huge number nor a huge message comes of it."""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert len(str(caught.value)) < 500


@given(st.text(max_size=80))
def test_any_text_gives_a_number_or_a_config_error(text: str) -> None:
    """Nothing typed into a field raises anything else."""
    for parse in (units.parse_ns, units.parse_bytes):
        try:
            number = parse(text)
        except ConfigError:
            continue
        assert math.isfinite(number)


@given(st.integers(-(2**62), 2**62))
@example(999_500)
@example(59_950_000_000)
def test_printed_times_read_back_within_rounding(ns: int) -> None:
    """Three digits: off by at most half a unit of the third, which is 0.5 percent."""
    assert units.parse_ns(units.format_ns(ns)) == pytest.approx(ns, rel=0.0051, abs=0)


@given(st.integers(0, 2**62))
@example(1023 * 1024 + 513)
def test_printed_sizes_read_back_within_rounding(size_bytes: int) -> None:
    """The same for sizes; whole bytes below 1 KiB exactly."""
    tolerance = 0 if size_bytes < 1024 else 0.0051
    assert units.parse_bytes(units.format_bytes(size_bytes)) == pytest.approx(
        size_bytes, rel=tolerance, abs=0
    )


@given(st.integers(-(2**60), 2**60))
def test_order_survives_printing(ns: int) -> None:
    """A longer time never prints as a shorter one."""
    later = ns + max(1, abs(ns) // 1000)
    assert units.parse_ns(units.format_ns(ns)) <= units.parse_ns(units.format_ns(later))


@pytest.mark.parametrize(
    ("unit", "duration", "offset"),
    [
        ("ms", "1.28 ms", "12.482 ms"),
        ("us", "1,280 µs", "12,482 µs"),
        ("ns", "1,280,000 ns", "12,481,900 ns"),
        ("s", "0.00128 s", "0.012482 s"),
        ("weeks", "1.28 ms", "12.482 ms"),
    ],
)
def test_times_are_written_in_the_unit_asked_for(unit: str, duration: str, offset: str) -> None:
    asked = units.time_unit.set(unit)
    try:
        assert units.format_ns(1_280_000) == duration
        assert units.format_offset(12_481_900, 3_000_000_000) == offset
        assert units.format_ns(float("nan")) == "\N{EN DASH}"
        assert units.format_ns(0).startswith("0 ")
    finally:
        units.time_unit.reset(asked)


FORMATS = json.loads((Path(__file__).parent / "data" / "formats.json").read_text(encoding="utf-8"))
WRITERS: dict[str, Callable[..., str]] = {
    "formatTime": units.format_ns,
    "formatMoment": units.format_offset,
    "formatBytes": units.format_bytes,
    "formatRate": units.format_rate,
    "formatCount": units.format_count,
}


def test_numbers_are_written_as_in_the_browser() -> None:
    """tests/client/formats.test.mjs checks assets/base/format.mjs by the same table."""
    for name, values, unit, text in FORMATS:
        chosen = units.time_unit.set(unit)
        try:
            assert WRITERS[name](*values) == text, (name, values, unit)
        finally:
            units.time_unit.reset(chosen)
