"""Print and parse times, bytes and rates.

Inside the library a time is a whole number of nanoseconds, a size a whole number of bytes, and
a rate a number of bytes per nanosecond, which is numerically GB/s with GB = 10^9. Everything
else is converted here, once, where it enters or leaves.

Printed numbers carry three significant digits (whole units below 1,000 are exact), with the
unit chosen after rounding, so that 999,999 ns reads 1.00 ms and never 1000 µs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from fractions import Fraction
from itertools import pairwise
from typing import Final

from studio.errors import ConfigError

_TIMES: Final = (
    ("ns", 1.0),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("h", 3600e9),
)
_BYTES: Final = tuple(
    (unit, 1024.0**power) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
)
_RATES: Final = (
    ("B/s", 1e-9),
    ("kB/s", 1e-6),
    ("MB/s", 1e-3),
    ("GB/s", 1.0),
    ("TB/s", 1e3),
    ("PB/s", 1e6),
)
_SI: Final = tuple(
    (prefix, 1000.0**power) for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E", "Z"))
)
# What stands where a number would: 0 bytes in 0 ns have no rate.
_UNDEFINED: Final = "\N{EN DASH}"

_NS: Final = {
    "ns": 1,
    "us": 10**3,
    "\N{MICRO SIGN}s": 10**3,
    "\N{GREEK SMALL LETTER MU}s": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PREFIX: Final[dict[str, int]] = {"": 1} | {
    spelling: factor
    for power, letter in enumerate("kMGTPE", start=1)
    for spelling, factor in (
        (letter, 1000**power),
        (letter.upper(), 1000**power),
        (f"{letter.upper()}i", 1024**power),
    )
}
_SIZE_UNITS: Final = {"": 1} | {f"{prefix}B": factor for prefix, factor in _PREFIX.items()}

# Three digits of exponent keep a typing mistake from becoming a number of a billion digits.
_QUANTITY: Final = re.compile(
    r"\s*(?P<sign>[-+\N{MINUS SIGN}]?)"
    r"(?P<number>(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?)"
    # \s matches the thin and the no-break space too.
    r"\s*(?P<unit>[^\s0-9.,]*)\s*"
)
_LONGEST: Final = 64
_INT64_MAX: Final = 2**63 - 1
_TICK_DIGITS: Final = 9
_FAR: Final = 1e7
"""How many of the largest unit are written out."""


time_unit: ContextVar[str] = ContextVar("time_unit", default="")
"""The unit all times are written in, a key of TIME_UNITS; anything else leaves the choice to each time's size."""
TIME_UNITS: Final = {"s": "s", "ms": "ms", "us": "µs", "ns": "ns"}
_FINEST: Final = {"s": 9, "ms": 6, "µs": 3, "ns": 0}


def format_ns(ns: float) -> str:
    """Format a time in a unit that suits its size, or in `time_unit`.

    Example:
        >>> format_ns(1280000), format_ns(12), format_ns(0), format_ns(-90_000_000_000)
        ('1.28 ms', '12 ns', '0 ns', '-1.50 min')
        >>> format_ns(9_999_999), format_ns(999_999), format_ns(59_999_000_000)
        ('10.0 ms', '1.00 ms', '1.00 min')
    """
    unit = TIME_UNITS.get(time_unit.get())
    if unit is not None and math.isfinite(ns):
        return _sign_text(ns, _format_in_full(abs(ns) / dict(_TIMES)[unit], unit), unit)
    return _scale_text(ns, _TIMES)


def format_distinct(times_ns: Sequence[int]) -> list[str]:
    """Format times like `format_ns`, with more digits where different times would read the same.

    Example:
        >>> format_distinct([205_261_417, 205_105_000]), format_distinct([205_261_417, 723_000]), format_distinct([20_000_001, 20_000_000])
        (['205.261 ms', '205.105 ms'], ['205 ms', '723 µs'], ['20,000,001 ns', '20,000,000 ns'])
    """
    most = max(times_ns, default=0)
    writers: tuple[Callable[[int], str], ...] = (format_ns, lambda ns: format_offset(ns, most))
    for write in writers:
        texts = [write(time_ns) for time_ns in times_ns]
        if len(set(texts)) == len(set(times_ns)):
            return texts
    return [f"{time_ns:,} ns" for time_ns in times_ns]


def format_offset(ns: int, span_ns: int) -> str:
    """Format a time since a zero, precise enough to distinguish neighbours in a span of `span_ns`.

    Example:
        >>> format_offset(12_481_900, 3_000_000_000), format_offset(12_481, 900_000)
        ('12.482 ms', '12.481 µs')
    """
    asked = TIME_UNITS.get(time_unit.get())
    if asked is not None:
        places = max(0, _FINEST[asked] - (0 if span_ns < 10_000_000 else 3))
        return _sign_text(ns, f"{abs(ns) / dict(_TIMES)[asked]:,.{places}f}", asked)
    unit, scale = ("µs", 1_000) if span_ns < 10_000_000 else ("ms", 1_000_000)
    whole, rest = divmod((abs(ns) * 1000 + scale // 2) // scale, 1000)
    return _sign_text(ns, f"{whole:,d}.{rest:03d}", unit)


def format_bytes(size_bytes: float) -> str:
    """Format a size in binary units.

    Example:
        >>> format_bytes(48 * 2**20), format_bytes(512), format_bytes(1000 * 2**10)
        ('48.0 MiB', '512 B', '1,000 KiB')
    """
    return _scale_text(size_bytes, _BYTES)


def format_rate(bytes_per_ns: float) -> str:
    """Format a rate in decimal units, as networks and memories are sold.

    Example:
        >>> format_rate(371.2), format_rate(0.0125), format_rate(3350)
        ('371 GB/s', '12.5 MB/s', '3.35 TB/s')
        >>> format_rate(1e99)
        '1.00e+93 PB/s'
    """
    return _scale_text(bytes_per_ns, _RATES)


def format_count(count: int) -> str:
    """Format a whole number of things in full.

    Example:
        >>> format_count(96331)
        '96,331'
    """
    return f"{count:,d}"


def format_count_range(least: int, most: int) -> str:
    """Format the least and the most of counts; once where they are equal.

    Example:
        >>> format_count_range(7, 7), format_count_range(0, 1200)
        ('7', '0 to 1,200')
    """
    return format_count(least) if least == most else f"{format_count(least)} to {format_count(most)}"


def format_counted(count: int, noun: str, plural: str = "") -> str:
    """Format a count followed by its noun, singular or plural.

    Example:
        >>> format_counted(1, "node"), format_counted(1200, "node")
        ('1 node', '1,200 nodes')
    """
    return f"{format_count(count)} {noun if count == 1 else plural or noun + 's'}"


def format_percent(share: float, digits: int = 1) -> str:
    """Format a share of a whole in percent, with so many digits behind the point.

    Example:
        >>> format_percent(0.1234), format_percent(2.5, 0)
        ('12.3 %', '250 %')
    """
    return f"{100 * share:.{digits}f} %"


def format_si(value: float, unit: str = "") -> str:
    """Format a number with its decimal prefix, such as a count of operations.

    Example:
        >>> format_si(2e9), format_si(2e9, "FLOP"), format_si(950), format_si(0, "FLOP")
        ('2.00 G', '2.00 GFLOP', '950', '0 FLOP')
    """
    return _scale_text(value, tuple((f"{prefix}{unit}", factor) for prefix, factor in _SI))


def format_time_ticks(ticks_ns: Sequence[float]) -> list[str]:
    """Format the ticks of an axis of times in one unit, that of the largest or `time_unit`, with as many decimals as tell them in full.

    Example:
        >>> format_time_ticks([0, 80_000_000, 100_000_000]), format_time_ticks([99_500_000, 100_000_000])
        (['0 ms', '80 ms', '100 ms'], ['99.5 ms', '100.0 ms'])
    """
    asked = TIME_UNITS.get(time_unit.get())
    # Round numbers of minutes are none of nanoseconds, of which ticks are made.
    return _format_ticks(
        ticks_ns, tuple(unit for unit in _TIMES if unit[0] in ((asked,) if asked else _FINEST))
    )


def format_si_ticks(ticks: Sequence[float]) -> list[str]:
    """Format the ticks of an axis with the decimal prefix of the largest, and as many decimals as tell them in full.

    Example:
        >>> format_si_ticks([242_500, 245_000]), format_si_ticks([0, 500_000, 1_000_000]), format_si_ticks([])
        (['242.5 k', '245.0 k'], ['0.0 M', '0.5 M', '1.0 M'], [])
    """
    return _format_ticks(ticks, _SI)


def _format_ticks(ticks: Sequence[float], units: tuple[tuple[str, float], ...]) -> list[str]:
    most = max(map(abs, ticks), default=0)
    unit, scale = next((known for known in reversed(units) if known[1] <= most), units[0])
    sizes = [abs(tick) / scale for tick in ticks]
    # Ticks come of sums: what is beyond their ten digits is none of them.
    exact = (
        decimals
        for decimals in range(_TICK_DIGITS)
        if all(math.isclose(round(size, decimals), size, rel_tol=1e-9) for size in sizes)
    )
    decimals = next(exact, _TICK_DIGITS)
    return [_sign_text(tick, f"{size:,.{decimals}f}", unit) for tick, size in zip(ticks, sizes, strict=True)]


def parse_ns(text: str) -> int:
    """Parse a time such as "1.5 ms" as nanoseconds, rounded to a whole number.

    Raises:
        ConfigError: The text is no time, or has no unit.

    Example:
        >>> parse_ns("1.5 ms"), parse_ns("20us"), parse_ns("-3 ns"), parse_ns("2 h")
        (1500000, 20000, -3, 7200000000000)
        >>> parse_ns("1500")
        Traceback (most recent call last):
        ...
        studio.errors.ConfigError: '1500' is not a time: a number and one of ns, us, ms, s, min, h
        Write the unit, as in '1500 us'.
    """
    number, unit = _split(text)
    if number is not None and (unit in _NS or (number == 0 and not unit)):
        ns = round(number * _NS.get(unit, 1))
        if abs(ns) <= _INT64_MAX:
            return ns
        raise _build_too_large_error(text, "time", "292 years")
    bare = number is not None and not unit
    raise ConfigError(
        f"{_quote(text)} is not a time: a number and one of ns, us, ms, s, min, h",
        hint=f"Write the unit, as in '{text.strip()} us'." if bare else "For example '1.5 ms'.",
    )


def parse_bytes(text: str) -> int:
    """Parse a size such as "48MiB", "1 GB" (10^9) or "1e6" as bytes, rounded to a whole number.

    Raises:
        ConfigError: The text is no size, negative, or a fraction of bytes without a larger unit.

    Example:
        >>> parse_bytes("48MiB"), parse_bytes("1e6"), parse_bytes("1 GB")
        (50331648, 1000000, 1000000000)
    """
    number, unit = _split(text)
    if number is not None and number >= 0 and unit in _SIZE_UNITS:
        if _SIZE_UNITS[unit] == 1 and number.denominator > 1:
            raise ConfigError(
                f"{_quote(text)} is not a size: there are no parts of a byte; allowed: a whole number of bytes",
                hint="With a larger unit fractions are allowed, such as '1.5 MiB'.",
            )
        size_bytes = round(number * _SIZE_UNITS[unit])
        if size_bytes <= _INT64_MAX:
            return size_bytes
        raise _build_too_large_error(text, "size", "8 EiB")
    raise ConfigError(
        f"{_quote(text)} is not a size: a number, not negative, and one of "
        "B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)",
        hint="Units are spelled exactly so: B is a byte, b a bit. For example '48 MiB'.",
    )


def _scale_text(value: float, units: tuple[tuple[str, float], ...]) -> str:
    """Format a value in the first unit that keeps it, rounded, below the next unit."""
    if not math.isfinite(value):
        return _UNDEFINED
    size = abs(value)
    smallest, scale = units[0]
    # Nanoseconds and bytes are counted, not measured: 12 ns, not 12.0 ns. Nothing is 0, not 0.00.
    if size == 0 or (scale == 1 and size < units[1][1] and size == int(size)):
        return _sign_text(value, f"{size:,.0f}", smallest)
    for (unit, scale), (_, larger) in pairwise(units):
        digits = _format_three_digits(size / scale)
        if float(digits.replace(",", "")) < round(larger / scale):
            return _sign_text(value, digits, unit)
    unit, scale = units[-1]
    # What lies far beyond the largest unit is a mistake somewhere; it need not break the line as well.
    digits = _format_three_digits(size / scale) if size < _FAR * scale else f"{size / scale:.2e}"
    return _sign_text(value, digits, unit)


def _format_in_full(size: float, unit: str) -> str:
    """Format a time in a given unit: three digits or more, at the finest down to nanoseconds."""
    wanted = 2 - math.floor(math.log10(size)) if size else 0
    return f"{size:,.{max(0, min(_FINEST[unit], wanted))}f}"


def _format_three_digits(size: float) -> str:
    """Format with three significant digits, and never fewer than the whole part has."""
    for decimals, limit in ((2, 10), (1, 100)):
        text = f"{size:.{decimals}f}"
        if float(text) < limit:
            return text
    return f"{size:,.0f}"


def _sign_text(value: float, digits: str, unit: str) -> str:
    return f"{'-' if value < 0 else ''}{digits} {unit}".rstrip()


def _split(text: str) -> tuple[Fraction | None, str]:
    """Split a quantity into number and unit; the number is None where there is none."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None, ""
    number = Fraction(match["number"].replace(",", ""))
    return -number if match["sign"] in ("-", "\N{MINUS SIGN}") else number, match["unit"]


def _quote(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _build_too_large_error(text: str, what: str, limit: str) -> ConfigError:
    return ConfigError(f"{_quote(text)} is too large a {what}; allowed: at most {limit}")
