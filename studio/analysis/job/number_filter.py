"""Parse filters of number columns: `>= 1.5 ms`, `2.43 ms`, `1 KiB..48 MiB`, `!= 0`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from studio.errors import ConfigError, TraceError
from studio.units import parse_bytes, parse_ns

Quantity = Literal["number", "time", "bytes", "count"]

_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_AMOUNT = re.compile(
    r"(?P<number>[+-]?(?:[0-9][0-9,]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)\s*(?P<unit>[^\d\s.]*)"
)
_SIGNS = ("<=", ">=", "!=", "<", ">", "=")
_RANGE = re.compile(r"\s*(?:\.\.|…|\bto\b)\s*")
_LONGEST = 64
_DIGITS_SHOWN = 3
_EXAMPLES: Mapping[Quantity, str] = {
    "number": "5, > 5, 5..9 or != 5",
    "time": "20 us, >= 1.5 ms or 1 ms..2 ms",
    "bytes": "48 MiB, > 1 GB or 1 KiB..1 MiB",
    "count": "2 G, > 500 M or 1 k..1 M",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Numbers from `low` to `high`, both included, or, where `outside`, all others.

    Example:
        >>> parse_filter("2.43 ms", "time"), parse_filter("> 1 KiB", "bytes").low
        (Wanted(low=2425000, high=2435000, outside=False), 1025)
        >>> parse_filter("!= 5", "number")
        Wanted(low=5, high=5, outside=True)
    """

    low: int
    high: int
    outside: bool = False


def parse_filter(text: str, quantity: Quantity) -> Wanted:
    """Return the range of numbers that a text asks for.

    A quantity with a unit stands for all that are shown as it is: `2.43 ms` for what rounds to 2.43 ms in
    the three digits of the list, both ends of the range included. Times without a unit are nanoseconds, sizes bytes.

    Raises:
        TraceError: The text asks for nothing that could be understood.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        raise _build_filter_error(text, quantity)
    ends = _RANGE.split(text)
    if len(ends) == 2:
        low, high = _parse_amount(ends[0], quantity), _parse_amount(ends[1], quantity)
        return Wanted(_round_up(low.value - low.slack), _round_down(high.value + high.slack))
    sign = next((sign for sign in _SIGNS if text.startswith(sign)), "")
    amount = _parse_amount(text[len(sign) :], quantity)
    return _compare(sign, amount)


@dataclass(frozen=True, slots=True)
class _Amount:
    """A quantity and its rounding error as displayed."""

    value: Fraction
    slack: Fraction


_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def _compare(sign: str, amount: _Amount) -> Wanted:
    value, slack = amount.value, amount.slack
    if sign == "<":
        return Wanted(_LEAST, _round_down(value, open_end=True))
    if sign == ">":
        return Wanted(-_round_down(-value, open_end=True), _MOST)
    if sign == "<=":
        return Wanted(_LEAST, _round_down(value))
    if sign == ">=":
        return Wanted(_round_up(value), _MOST)
    return Wanted(_round_up(value - slack), _round_down(value + slack), sign == "!=")


def _parse_amount(text: str, quantity: Quantity) -> _Amount:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise _build_filter_error(text, quantity)
    number, scale = Fraction(match["number"].replace(",", "")), _find_scale(match["unit"], quantity)
    if scale is None or abs(number * scale) > _MOST:
        raise _build_filter_error(text, quantity)
    slack = Fraction(0)
    if match["unit"] and scale > 1 and number:
        slack = min(_compute_last_digit(match["number"]), _compute_third_digit(number)) * scale / 2
    return _Amount(number * scale, slack)


def _compute_last_digit(number: str) -> Fraction:
    """Return the value of one unit in the last written digit."""
    mantissa, _, exponent = number.lower().partition("e")
    return Fraction(10) ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _compute_third_digit(number: Fraction) -> Fraction:
    """Return the value of one unit in the third digit, the last one displayed."""
    exponent, size = 0, abs(number)
    while size >= 10:
        size, exponent = size / 10, exponent + 1
    while size < 1:
        size, exponent = size * 10, exponent - 1
    return Fraction(10) ** (exponent - _DIGITS_SHOWN + 1)


def _find_scale(unit: str, quantity: Quantity) -> Fraction | None:
    """Return the factor of a unit, None where it is unknown."""
    if not unit:
        return Fraction(1)
    if quantity == "count":
        prefix = unit.removesuffix("FLOP")
        return Fraction(_PREFIXES[prefix]) if prefix in _PREFIXES else None
    try:
        if quantity == "time":
            return Fraction(parse_ns(f"1 {unit}"))
        return Fraction(parse_bytes(f"1 {unit}")) if quantity == "bytes" else None
    except ConfigError:
        return None


def _round_up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def _round_down(value: Fraction, *, open_end: bool = False) -> int:
    """Return the largest whole number up to `value`, excluded where the end is open."""
    return _round_up(value) - 1 if open_end else value.numerator // value.denominator


def _build_filter_error(text: str, quantity: Quantity) -> TraceError:
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return TraceError(f"The filter {shown!r} is not understood.", hint=f"Write {_EXAMPLES[quantity]}.")
