"""Recorded timelines as Chrome traces, which Perfetto and chrome://tracing open. Written only."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from studio.timeline import Lane, Timeline, recorded
from studio.trace import NONE, Trace, dense_column, type_name

HEAD = '{"displayTimeUnit": "ns", "otherData": {"writer": "chakra-studio"}, "traceEvents": [\n'


def write(trace: Trace, timeline: Timeline | None = None) -> Iterator[str]:
    """Yield a Chrome trace: ranks are its processes, lanes its threads, times are microseconds to the nanosecond.

    Args:
        trace: Whose nodes are shown.
        timeline: When they ran; None takes what the trace itself recorded.
    """
    shown = recorded(trace) if timeline is None else timeline
    yield HEAD
    place = {rank.number: at for at, rank in enumerate(trace.ranks)}
    separator = ""
    first_of: dict[int, int] = {}
    for index, lane in enumerate(shown.lanes):
        first = first_of.setdefault(lane.rank, index)
        thread = index - first + 1
        if first == index:
            yield separator + _named("process_name", lane.rank, 0, f"rank {lane.rank}")
            yield ",\n" + _named("process_sort_index", lane.rank, 0, lane.rank)
        yield ",\n" + _named("thread_name", lane.rank, thread, _title(lane))
        yield ",\n" + _named("thread_sort_index", lane.rank, thread, thread)
        separator = ",\n"
        for event in _events(trace, place[lane.rank], shown, index):
            yield f',\n{{"ph": "X", "pid": {lane.rank}, "tid": {thread}, "cat": "{lane.kind}", {event}'
    yield "\n]}\n"


def _named(what: str, rank: int, thread: int, value: str | int) -> str:
    key = "sort_index" if what.endswith("sort_index") else "name"
    return json.dumps({"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {key: value}})


def _title(lane: Lane) -> str:
    return f"{lane.kind} {lane.name}".strip()


def _events(trace: Trace, at: int, timeline: Timeline, lane: int) -> Iterator[str]:
    """Yield the spans of a lane, the beginning of each left out."""
    graph, part = trace.graph_of(trace.ranks[at]), timeline.of_lane(lane)
    names: dict[int, str] = {}
    sizes = dense_column(graph, "comm_size", NONE)
    rows = timeline.row[part]
    columns = (
        rows,
        timeline.start_ns[part],
        timeline.end_ns[part],
        graph.id[rows],
        graph.type[rows],
        sizes[rows],
    )
    for row, start, end, number, kind, size in zip(
        *(np.asarray(one).tolist() for one in columns), strict=True
    ):
        code = int(graph.name[row])
        name = names.get(code) or names.setdefault(code, json.dumps(graph.strings[code]))
        more = f', "bytes": {size}' if size >= 0 else ""
        yield (
            f'"ts": {_microseconds(start)}, "dur": {_microseconds(end - start)}, "name": {name}, '
            f'"args": {{"id": {number}, "type": "{type_name(kind)}"{more}}}}}'
        )


def _microseconds(time_ns: int) -> str:
    """Return a time in microseconds, exactly.

    Example:
        >>> _microseconds(2**62 + 1), _microseconds(5)
        ('4611686018427387.905', '0.005')
    """
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
