"""Join the beginnings and ends that Chrome traces may have in place of complete events."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Parse = Callable[[Any], float]
"""Returns a time as the file has it in microseconds, NaN where it is none."""


class TimedEvent(Protocol):
    """An event as decoded; its fields hold whatever the file has."""

    ph: Any
    name: Any
    pid: Any
    tid: Any
    ts: Any
    dur: Any
    args: Any


def pair_events(events: Sequence[TimedEvent], parse: Parse) -> None:
    """Turn each beginning into a complete event (`X`) that lasts until its end; one that never ends has no time any more.

    An end closes the last beginning of its thread that is called as it is, the last one at all where it has no name.

    Args:
        events: As the file has them, changed in place.
        parse: Reads times.
    """
    opened: dict[tuple[str, str], list[TimedEvent]] = {}
    marks = [event for event in events if event.ph in ("B", "E")]
    # Files need not be in the order of time.
    for event in sorted(marks, key=lambda event: _sort_time(event, parse)):
        waiting = opened.setdefault((str(event.pid), str(event.tid)), [])
        if event.ph == "B":
            event.ph = "X"
            waiting.append(event)
        elif (place := _find_beginning(waiting, event.name)) is not None:
            _close_event(waiting.pop(place), event, parse)
    for waiting in opened.values():
        for event in waiting:
            # Counted with other events without a usable time.
            event.ts = None


def _sort_time(event: TimedEvent, parse: Parse) -> float:
    time = parse(event.ts)
    return math.inf if math.isnan(time) else time


def _find_beginning(waiting: Sequence[TimedEvent], name: Any) -> int | None:
    """Return the place of the beginning that an end of this name closes, None where there is none."""
    for place in range(len(waiting) - 1, -1, -1):
        if not name or waiting[place].name == name:
            return place
    return None


def _close_event(begin: TimedEvent, end: TimedEvent, parse: Parse) -> None:
    is_whole = isinstance(begin.ts, int) and isinstance(end.ts, int)
    begin.dur = end.ts - begin.ts if is_whole else parse(end.ts) - parse(begin.ts)
    begin.args = end.args if begin.args is None else begin.args
