"""Convert between cycles of a simulator and nanoseconds, by the frequency of its NPUs."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import click
import numpy as np

from studio.commands.base.param_type import ParamType
from studio.errors import TraceError
from studio.et.events import CALLBACK
from studio.trace import Graph, Int64, Trace, ValueKind

_UNITS_HZ = {"": 10**6, "hz": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}
_FREQUENCY = re.compile(
    r"\s*(?P<number>[0-9]{1,12}(?:\.[0-9]{1,12})?(?:e[0-9]{1,2})?)\s*(?P<unit>[kmg]?hz|)\s*", re.IGNORECASE
)
_MOST_HZ = 10**15
_EXACT_BELOW = 1 << 62
_ONE_GHZ = Fraction(10**9)


class Frequency(ParamType[Fraction]):
    """The clock of an NPU: a number of MHz, or one with a unit."""

    name = "frequency"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """Return it in Hz.

        Raises:
            click.BadParameter: It is no frequency above 0.

        Example:
            >>> [int(Frequency().convert(text, None, None)) for text in ("1500", "1.5GHz", "1500 MHz")]
            [1500000000, 1500000000, 1500000000]
        """
        if isinstance(value, Fraction):
            return value
        match = _FREQUENCY.fullmatch(str(value))
        hertz = Fraction(match["number"]) * _UNITS_HZ[match["unit"].lower()] if match else Fraction(0)
        if not 1 <= hertz <= _MOST_HZ:
            self.fail(f"{value!r} is no frequency; allowed: 1500 (MHz), 1500MHz or 1.5GHz.", param, ctx)
        return hertz


def to_ns(trace: Trace, frequency_hz: Fraction) -> tuple[Trace, int]:
    """Return a trace whose times were cycles in nanoseconds, each rounded to the nearest, and how many had to be rounded.

    Raises:
        TraceError: A time is beyond 292 years.
    """
    return _scale_trace(trace, _ONE_GHZ / frequency_hz)


def to_cycles(trace: Trace, frequency_hz: Fraction) -> tuple[Trace, int]:
    """Return a trace whose times were nanoseconds in cycles, each rounded to the nearest, and how many had to be rounded.

    Raises:
        TraceError: A time has more cycles than 63 bits hold.
    """
    return _scale_trace(trace, frequency_hz / _ONE_GHZ)


def _scale_trace(trace: Trace, factor: Fraction) -> tuple[Trace, int]:
    rounded = 0
    graphs = []
    for graph in trace.graphs:
        timed = graph.start_ns >= 0
        begun = graph.start_ns[timed]
        start, end = graph.start_ns.copy(), graph.start_ns.copy()
        # Ends are rounded too, not lengths: what followed at once still does.
        start[timed], off_start = _scale_times(begun, factor)
        end[timed], off_end = _scale_times(begun + graph.duration_ns[timed], factor)
        attrs, off_attrs = _scale_attributes(graph, factor)
        rounded += off_start + off_end + off_attrs
        graphs.append(replace(graph, start_ns=start, duration_ns=end - start, attrs=attrs))
    return replace(trace, graphs=tuple(graphs)), rounded


def _scale_attributes(graph: Graph, factor: Fraction) -> tuple[Any, int]:
    value, rounded = graph.attrs.value.copy(), 0
    # How long calls lasted goes along with their times, and is no time that is written.
    for key in (CALLBACK, "inclusive_ns", "wait_ns"):
        _, where = graph.rows_with(key)
        where = where[graph.attrs.kind[where] == ValueKind.INT64]
        value[where], off = _scale_times(value[where], factor)
        rounded += off if key == CALLBACK else 0
    return replace(graph.attrs, value=value), rounded


def _scale_times(times: Int64, factor: Fraction) -> tuple[Int64, int]:
    """Return times by a factor, halves rounded up, and how many were no whole numbers."""
    top, bottom = factor.numerator, factor.denominator
    most = int(times.max(initial=0)) * top
    if most // bottom >= 1 << 63:
        raise TraceError(
            f"A time of {int(times.max()):,} is too large to be converted by this frequency.",
            hint="Is --npu-frequency right? A number without a unit means MHz.",
        )
    wide = times.astype(object) if 2 * most + bottom >= _EXACT_BELOW else times
    product = wide * top
    scaled = np.asarray((2 * product + bottom) // (2 * bottom), np.int64)
    return scaled, int(np.count_nonzero(product % bottom))
