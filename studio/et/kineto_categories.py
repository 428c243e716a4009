"""What events of a Kineto trace are, by their categories, and which of them are not read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from studio.decoding import build_decoder
from studio.et import event_kernel as k
from studio.et.event_columns import EventRows
from studio.et.kineto_events import Event, decode_text, decode_value
from studio.et.recording import EventKind
from studio.et.records import clean
from studio.trace import Finding, UInt8

CATEGORIES = {
    "cpu_op": EventKind.OPERATOR,
    "operator": EventKind.OPERATOR,
    "user_annotation": EventKind.ANNOTATION,
    "runtime": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "memcpy": EventKind.COPY,
    "memset": EventKind.FILL,
    "cuda_sync": EventKind.SYNC,
    "python_function": EventKind.PYTHON,
}
"""Categories by lower-case name, old spellings included."""
_CATEGORY_ENDS = {
    "_runtime": EventKind.RUNTIME,
    "_driver": EventKind.RUNTIME,
    "_memcpy": EventKind.COPY,
    "_memset": EventKind.FILL,
}
"""Ends of categories that are called after a vendor's device: cuda, hip, xpu, mtia, mlu, gcu and whatever comes."""
_CATEGORIES_BESIDE = frozenset({
    "trace", "overhead", "gpu_user_annotation", "mlu_user_annotation", "cpu_instant_event", "cuda_profiler_range",
    "cuda_event", "xpu_sync", "external_correlation", "gpu_pm_counter", "mtia_counters",
})  # fmt: skip
"""Categories of what neither ran nor was called: spans, marks and measurements, and annotations once more where their kernels ran."""
_PROCESS_NAME = re.compile(rb'\{[^{}]*(?:\{[^{}]*\})?[^{}]*"process_name"[^{}]*(?:\{[^{}]*\})?[^{}]*\}')
_PROCESS_MARK, _MARK_BYTES = b'"process_name"', 1 << 12
"""What events that name a process hold, and how far from it they begin and end at most."""
_PLACES = {"CPU functions": EventKind.OPERATOR, "CUDA functions": EventKind.KERNEL}
"""Processes by which PyTorch's first profiler, which knows no categories, tells what its events are."""


class _Mark(msgspec.Struct, gc=False):
    """An event that names a process or thread."""

    name: Any = ""
    pid: Any = ""
    args: dict[str, Any] = {}


_mark = build_decoder(_Mark)
_CATEGORIES_NAMED = 8

UnreadKey = tuple[str, str]
"""The category of an event that is not read, and where it has none its process as the file writes it."""


def build_unread_key(category: Any, process: Any) -> UnreadKey:
    """Return what an event that is not read is counted as."""
    return (category, "") if isinstance(category, str) and category else ("", str(process))


def select_unknown(others: Counter[UnreadKey]) -> Counter[UnreadKey]:
    """Return the events that were not read, without those of categories that are known to be no operations."""
    return Counter(
        {key: count for key, count in others.items() if count and key[0].lower() not in _CATEGORIES_BESIDE}
    )


def build_unknown_finding(unknown: Counter[UnreadKey], data: bytes | memoryview, name: str) -> Finding:
    """Return the finding about events of kinds that are not read, those without a category by the names of their processes."""
    called = _list_process_names(bytes(data)) if any(not category for category, _ in unknown) else {}
    counts: Counter[str] = Counter()
    for (category, process), count in unknown.items():
        counts[category or called.get(process) or "without a category"] += count
    listed = ", ".join(f"{clean(what)} ({count:,})" for what, count in counts.most_common(_CATEGORIES_NAMED))
    message = f"{name}: events of categories or processes that are not read, left out: {listed}."
    hint = "If they are what a device did, times and figures of the job lack it: the processor's part alone was read."
    return Finding("warning", "left-out", message, hint, file=name)


def _list_process_names(data: bytes) -> dict[str, str]:
    """Return the names that a file gives its processes."""
    names = {}
    place = data.find(_PROCESS_MARK)
    while place != -1:
        first = max(place - _MARK_BYTES, 0)
        # The event begins at the brace before, or at the one before that where its arguments come first.
        inner = data.rfind(b"{", first, place)
        for begin in (inner, data.rfind(b"{", first, max(inner, first))):
            match = _PROCESS_NAME.match(data, begin, place + _MARK_BYTES) if begin != -1 else None
            if match:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    event = _mark(match[0])
                    if event.name == "process_name":
                        names[str(event.pid)] = str(event.args.get("name", ""))
                break
        place = data.find(_PROCESS_MARK, place + 1)
    return names


def infer_row_places(rows: EventRows, kind: UInt8) -> Counter[UnreadKey]:
    """Give events without a category the kind (M,) that their process tells; return how many of which process it tells nothing of."""
    processes, process = rows.texts(k.PROCESS)
    names = [decode_text(raw) for raw in processes]
    of_process = np.array([_PLACES.get(name, EventKind.OTHER) for name in names], np.uint8)
    silent = np.flatnonzero(kind == EventKind.OTHER)
    silent = silent[[not decode_value(raw) for raw in rows.content(k.CATEGORY, silent)]]
    kind[silent] = of_process[process[silent]]
    left = process[silent[kind[silent] == EventKind.OTHER]]
    return Counter(build_unread_key("", names[code]) for code in left.tolist())


def infer_kinds(events: Sequence[Event]) -> UInt8:
    """Return (M,) the kinds of events."""
    categories = [event.cat for event in events]
    try:
        distinct = set(categories)
    except TypeError:
        categories = [category if isinstance(category, str) else None for category in categories]
        distinct = set(categories)
    known = {category: infer_category_kind(category) for category in distinct}
    kind = np.array(list(map(known.__getitem__, categories)), np.uint8)
    if not all(distinct):
        for row in np.flatnonzero(kind == EventKind.OTHER).tolist():
            if not categories[row]:
                kind[row] = _PLACES.get(str(events[row].pid), EventKind.OTHER)
    return kind


def infer_category_kind(category: Any) -> EventKind:
    """Return the kind of the events of a category."""
    if not isinstance(category, str):
        return EventKind.OTHER
    name = category.lower()
    return CATEGORIES.get(name) or next(
        (kind for end, kind in _CATEGORY_ENDS.items() if name.endswith(end)), EventKind.OTHER
    )
