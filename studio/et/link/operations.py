"""The operators of a process in one shape, from both traces or from one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from studio.et.columns import Texts
from studio.et.link.intervals import find_parents
from studio.et.recording import DeviceTrace, HostTrace, mark_names
from studio.trace import NONE, STEP, Bool, Int32, Int64

_NEVER = np.iinfo(np.int64).max

LIBRARY = "gloo:"
"""Operations that start so are those in which a library carries out calls on the processor."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Operators and annotations of one process.

    N operations, by id.

    Attributes:
        id: (N,) id.
        parent: (N,) row of the caller, -1 where there is none.
        name: (N,) index into `names`.
        names: Distinct names, of which some may be those of other events.
        start_ns, end_ns: (N,) recorded times, -1 where there are none.
        begin, finish: (N,) times to put operations in order by: the recorded ones, or places in the call tree.
        depth: (N,) callers above.
        thread: (N,) number of the thread.
        event: (N,) row of the Kineto event, -1 where there is none.
        frame: (N,) whether it stands for the process, a thread or a step, and takes no time of its own.
    """

    id: Int64
    parent: Int64
    name: Int32
    names: list[str]
    start_ns: Int64
    end_ns: Int64
    begin: Int64
    finish: Int64
    depth: Int64
    thread: Int64
    event: Int64
    frame: Bool

    def __len__(self) -> int:
        return len(self.id)

    @property
    def timed(self) -> Bool:
        """Which operations (N,) have recorded times."""
        return self.start_ns >= 0

    def name_of(self, row: int) -> str:
        """Return the name of one operation."""
        return self.names[int(self.name[row])]

    def find_named(self, is_so: Callable[[str], bool]) -> Int64:
        """Return the rows of the operations with a name that is so; each name is looked at once."""
        return np.flatnonzero(mark_names(self.names, self.name, is_so))

    def find_above(self, row: int, prefixes: str | tuple[str, ...]) -> int:
        """Return the nearest caller with a name that begins so, -1 where there is none."""
        for _ in range(64):
            row = int(self.parent[row])
            if row < 0:
                break
            if self.name_of(row).startswith(prefixes):
                return row
        return NONE


def from_host(host: HostTrace, device: DeviceTrace | None, event: Int64) -> Operations:
    """Return the operators of an execution trace, with the times of their events."""
    parent, depth, place, last = _build_tree(host.id, _correct_callers(host, device, event))
    linked = event >= 0
    start, end = np.full(len(host), NONE, np.int64), np.full(len(host), NONE, np.int64)
    thread = host.numbers["tid"].copy()
    if device is not None and linked.any():
        own = event[linked]
        start[linked] = device.start_ns[own]
        end[linked] = device.start_ns[own] + device.duration_ns[own]
        thread = _infer_threads(
            host.numbers["tid"], parent, depth, linked, device.thread[event].astype(np.int64)
        )
        begin, finish = _fill_times(start, end, linked)
    else:
        begin, finish = place, last
    texts = Texts()
    name = texts.of(host.names)
    names = list(texts.codes)
    frame = host.roots | mark_names(names, name, _is_step)
    return Operations(host.id, parent, name, names, start, end, begin, finish, depth, thread, event, frame)


def _correct_callers(host: HostTrace, device: DeviceTrace | None, event: Int64) -> Int64:
    """Return the id of each operator's caller (N,), corrected where the times speak against the recorded one.

    Where libraries run operators on threads of their own, the recorder writes as caller whatever began last, which may
    have ended long before.
    """
    timed = np.flatnonzero(event >= 0)
    if device is None or not len(timed) or not any(name.startswith(LIBRARY) for name in host.names):
        return host.parent
    start, end, thread = (np.full(len(host), NONE, np.int64) for _ in range(3))
    start[timed] = device.start_ns[event[timed]]
    end[timed] = start[timed] + device.duration_ns[event[timed]]
    thread[timed] = device.thread[event[timed]]
    caller = np.minimum(np.searchsorted(host.id, host.parent), max(len(host) - 1, 0))
    known = (host.id[caller] == host.parent) & (event >= 0) & (event[caller] >= 0)
    over = known & (thread == thread[caller]) & ((end[caller] <= start) | (start[caller] > start))
    if not over.any():
        return host.parent
    own = timed[[not host.names[row].startswith(LIBRARY) or bool(over[row]) for row in timed.tolist()]]
    above, _ = find_parents(start[own], end[own], thread[own])
    ids = host.parent.copy()
    wrong = np.flatnonzero(over[own])
    callers = above[wrong]
    root = int(host.id[host.roots][-1]) if host.roots.any() else NONE
    ids[own[wrong]] = np.where(callers >= 0, host.id[own[callers]], root)
    return ids


def from_device(device: DeviceTrace) -> Operations:
    """Return the operators of a Kineto trace alone; callers are the operators around them."""
    rows = np.flatnonzero(device.is_host)
    start = device.start_ns[rows]
    end = start + device.duration_ns[rows]
    thread = device.thread[rows].astype(np.int64)
    parent, depth = find_parents(start, end, thread)
    name = device.name[rows]
    frame = mark_names(device.names, name, _is_step)
    ids = np.arange(1, len(rows) + 1, dtype=np.int64)
    return Operations(ids, parent, name, device.names, start, end, start, end, depth, thread, rows, frame)


def _is_step(name: str) -> bool:
    return name.startswith(STEP)


def _build_tree(ids: Int64, parent_ids: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Return callers as rows (N,), their number, and the first and last position of each call in calling order.

    Self-loops (the process root has one) and circles of callers are cut.
    """
    count = len(ids)
    caller = np.minimum(np.searchsorted(ids, parent_ids), max(count - 1, 0))
    parent = np.where((parent_ids >= 0) & (ids[caller] == parent_ids), caller, NONE) if count else caller
    parent[parent == np.arange(count)] = NONE
    children: list[list[int]] = [[] for _ in range(count)]
    tops: list[int] = []
    for row, above in enumerate(parent.tolist()):
        (children[above] if above >= 0 else tops).append(row)
    depth, place, last = (np.full(count, NONE, np.int64) for _ in range(3))
    done = 0
    for first in [*tops, *range(count)]:
        if place[first] >= 0:
            continue
        if first not in tops[:1] and parent[first] >= 0:
            parent[first] = NONE  # only in a circle
        done = _walk(first, children, parent, (depth, place, last), done)
    return parent, depth, place, last


def _walk(
    top: int, children: list[list[int]], parent: Int64, out: tuple[Int64, Int64, Int64], done: int
) -> int:
    """Number the calls below `top`; returns the next free number."""
    depth, place, last = out
    stack = [(top, 0)]
    while stack:
        row, level = stack.pop()
        if row < 0:
            last[-1 - row] = done - 1
            continue
        if place[row] >= 0:
            continue
        place[row], depth[row] = done, level
        done += 1
        stack.append((-1 - row, 0))
        stack.extend((child, level + 1) for child in reversed(children[row]) if parent[child] == row)
    return done


def _infer_threads(tid: Int64, parent: Int64, depth: Int64, linked: Bool, thread: Int64) -> Int64:
    """Return the thread (N,) of every operator: its event's, its caller's, or what its number mostly means.

    What no event has the number of ran on a thread that the profiler left out, as it does those that a script starts: such
    threads are numbered behind those of events.
    """
    usual: dict[int, Counter[int]] = {}
    both = Counter(zip(tid[linked].tolist(), thread[linked].tolist(), strict=True))
    for (number, lane), count in both.items():
        usual.setdefault(number, Counter())[lane] = count
    main = Counter(thread[linked].tolist()).most_common(1)[0][0]
    result = np.where(linked, thread, NONE)
    left_out: dict[int, int] = {}
    behind = int(thread[linked].max()) + 1
    for row in np.argsort(depth, kind="stable")[~linked[np.argsort(depth, kind="stable")]].tolist():
        above, number = int(parent[row]), int(tid[row])
        if above >= 0 and number not in usual and number != tid[above]:
            result[row] = left_out.setdefault(number, behind + len(left_out))
        elif above >= 0 and result[above] >= 0:
            result[row] = result[above]
        else:
            counts = usual.get(number)
            result[row] = counts.most_common(1)[0][0] if counts else main
    return result


def _fill_times(start: Int64, end: Int64, linked: Bool) -> tuple[Int64, Int64]:
    """Return times for every operator; one without takes that of the last one to begin before it.

    Recorders give ids as operators begin, on threads that a profiler leaves out as well.
    """
    latest = np.maximum.accumulate(np.where(linked, start, int(start[linked].min())))
    last = np.maximum.accumulate(np.where(linked, np.arange(len(start)), -1))
    upcoming = np.minimum.accumulate(np.where(linked, start, _NEVER)[::-1])[::-1]
    # A nanosecond after the other, so that they stay in order.
    times = np.minimum(latest + np.arange(len(start)) - last, np.maximum(upcoming - 1, latest))
    return np.where(linked, start, times), np.where(linked, end, times)
