"""Match the operators of the execution trace with the events of the Kineto trace."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from studio.et.recording import DeviceTrace, HostTrace
from studio.trace import NONE, Bool, Int64

Method = Literal["record function id", "external id", "order", "none"]

LEAST_SHARE = 0.5
"""Share of the smaller side that must be joined; below, the two files do not show the same run."""
_LEAST_AGREEMENT = 0.9
_LEAST_IN_ORDER = 20
"""Of fewer operators the names may be the same, one after another, by chance."""


@dataclass(frozen=True, slots=True)
class Joined:
    """How the operators of a host trace were joined with events.

    N host nodes.

    Attributes:
        event: (N,) row of the event, -1 where there is none.
        method: By which number.
        candidates: Pairs with the same number; those with different names are not joined.
        operators, events: Operators and host events there are to join; notes without an event count as neither.
        why: What kept the two from being joined, empty where they were.
        alone: Reasons for which events have no operator → how many.
        first_alone: Name of the first such event.
    """

    event: Int64
    method: Method
    candidates: int
    operators: int
    events: int
    why: str = ""
    alone: dict[str, int] = field(default_factory=dict)
    first_alone: str = ""

    @property
    def count(self) -> int:
        """Operators that have an event."""
        return int((self.event >= 0).sum())

    @property
    def share(self) -> float:
        """Operators with an event, as a share of those that could have one."""
        return self.count / max(min(self.operators, self.events), 1)


def join(host: HostTrace, device: DeviceTrace) -> Joined:
    """Match operators with events by record-function id; by external id or by their order only where that proves right.

    Roots are left out, an id of 0 means none, and names have to be equal. PyTorch 2.3 writes no record-function ids into Kineto traces,
    and its external ids leave out what a library of the processor carries out; both traces number operators as they begin.
    """
    roots, notes = host.roots, host.notes
    usable = ~roots & (host.numbers["rf_id"] != 0)
    is_host = device.is_host
    every = int((~roots).sum()), int(is_host.sum())
    numbered = is_host & (device.record_function > 0)
    if numbered.any():
        event, candidates = _match_events(host, device, usable, numbered, device.record_function)
        sizes = int((~roots & ~(notes & (event < 0))).sum()), every[1]
        result = Joined(event, "record function id", candidates, *sizes)
        if result.share >= LEAST_SHARE:
            return _add_alone(result, host, device, device.record_function)
        return Joined(
            np.full(len(host), NONE, np.int64),
            "none",
            candidates,
            *every,
            f"of {candidates:,} operators with the same record-function id only {result.count:,} have the same name",
        )
    event, candidates = _match_events(host, device, usable, is_host & (device.external > 0), device.external)
    sizes = int((~roots & ~(notes & (event < 0))).sum()), every[1]
    result = Joined(event, "external id", candidates, *sizes)
    if result.share >= LEAST_SHARE and result.count >= _LEAST_AGREEMENT * candidates:
        return _add_alone(result, host, device, device.external)
    event = _match_in_order(host, device, usable)
    if (event >= 0).any():
        sizes = int((~roots & ~(notes & (event < 0))).sum()), every[1]
        return Joined(event, "order", int((event >= 0).sum()), *sizes)
    why = (
        "the Kineto trace has no record-function ids, and of "
        f"{candidates:,} operators with the same external id only {result.count:,} have the same name"
    )
    return Joined(np.full(len(host), NONE, np.int64), "none", candidates, *every, why)


def _add_alone(joined: Joined, host: HostTrace, device: DeviceTrace, numbers: Int64) -> Joined:
    """Add which events (E,) have no operator, by reason; `numbers` are the ids to match by."""
    left = device.is_host
    left[joined.event[joined.event >= 0]] = False
    rows = np.flatnonzero(left)
    if not len(rows):
        return joined
    known = np.isin(numbers[rows], host.numbers["rf_id"][~host.roots])
    reasons = {
        f"no {joined.method}": int((numbers[rows] <= 0).sum()),
        f"no operator of their {joined.method}": int(((numbers[rows] > 0) & ~known).sum()),
        f"an operator of another name, or another event, has their {joined.method}": int(
            ((numbers[rows] > 0) & known).sum()
        ),
    }
    first = device.names[int(device.name[rows[0]])]
    return replace(joined, alone={why: count for why, count in reasons.items() if count}, first_alone=first)


def _match_in_order(host: HostTrace, device: DeviceTrace, usable: Bool) -> Int64:
    """Return the event (N,) of each operator where all events have the names of a thread's operators, one after another; else -1.

    The execution trace has one number for all threads that a profiler follows, and others for those that it leaves out.
    """
    matched = np.full(len(host), NONE, np.int64)
    events = np.flatnonzero(device.is_host)
    # Callers first, where both begin in the same tick.
    events = events[np.lexsort((-device.duration_ns[events], device.start_ns[events]))]
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(host.numbers["rf_id"][rows], kind="stable")]
    threads, counts = np.unique(host.numbers["tid"][rows], return_counts=True)
    for thread in threads[(counts == len(events)) & (counts >= _LEAST_IN_ORDER)].tolist():
        own = rows[host.numbers["tid"][rows] == thread]
        theirs = device.name[events].tolist()
        if [host.names[row] for row in own.tolist()] == [device.names[code] for code in theirs]:
            matched[own] = events
            break
    return matched


def _match_events(
    host: HostTrace, device: DeviceTrace, usable: Bool, events: Bool, numbers: Int64
) -> tuple[Int64, int]:
    """Return the event (N,) of each operator, and how many have one with the same number, whatever its name."""
    wanted = host.numbers["rf_id"]
    rows = np.flatnonzero(events)
    order = rows[np.argsort(numbers[rows], kind="stable")]
    sorted_numbers = numbers[order]
    low = np.searchsorted(sorted_numbers, wanted, side="left")
    high = np.searchsorted(sorted_numbers, wanted, side="right")
    event_of = np.full(len(host), NONE, np.int64)
    codes = {name: code for code, name in enumerate(device.names)}
    names = np.array([codes.get(name, NONE) for name in host.names], np.int64)
    candidates = np.flatnonzero(usable & (high > low))
    # Nearly always one operator and one event have a number; the others take their turns.
    numbered = np.sort(wanted[candidates])
    sharing = np.searchsorted(numbered, wanted, "right") - np.searchsorted(numbered, wanted, "left")
    alone = (high - low == 1)[candidates] & (sharing[candidates] == 1)
    rows = candidates[alone]
    rows = rows[device.name[order[low[rows]]] == names[rows]]
    event_of[rows] = order[low[rows]]
    taken: set[int] = set()
    for row in candidates[~alone].tolist():
        for event in order[low[row] : high[row]].tolist():
            if device.name[event] == names[row] and event not in taken:
                event_of[row] = event
                taken.add(event)
                break
    return event_of, len(candidates)
