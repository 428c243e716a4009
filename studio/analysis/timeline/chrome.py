"""Write a timeline as a Chrome trace with flows, which Perfetto opens; `slices.py` prepares its content."""

from __future__ import annotations

import json
from collections.abc import Iterator

from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.slices import End, Slices, collect_notes
from studio.trace import NONE, NodeType, Rank, label_collective, read_dense_column, type_name

HEAD = '{"displayTimeUnit": "ns", "otherData": {"writer": "chakra-studio"}, "traceEvents": [\n'


def iterate_chrome_events(gantt: Gantt) -> Iterator[str]:
    """Yield the file in pieces; times are microseconds from the beginning, exact to the nanosecond."""
    slices = Slices(gantt)
    yield HEAD + json.dumps(
        {"ph": "M", "pid": 0, "name": "process_labels", "args": {"labels": "chakra-studio"}}
    )
    for rank in gantt.trace.ranks:
        yield from _iterate_rank(slices, rank)
    for number, (kind, before, after) in enumerate(slices.flows()):
        end_ns = int(gantt.coverage.end_ns[after.place]) - gantt.origin_ns
        yield _format_flow(kind, number, before, after, end_ns)
    yield "\n]}\n"


def _iterate_rank(slices: Slices, rank: Rank) -> Iterator[str]:
    yield _format_metadata_event("process_name", rank.number, 0, f"rank {rank.number}")
    yield _format_metadata_event("process_sort_index", rank.number, 0, rank.number)
    gantt = slices.gantt
    graph = gantt.trace.graph_of(rank)
    sizes, kinds = gantt.sizes_of(rank.graph), read_dense_column(graph, "comm_type", NONE)
    # No end was recorded: drawn where it begins, and marked.
    unfinished = read_dense_column(graph, "unfinished", 0)
    names: dict[int, str] = {}
    notes = collect_notes(gantt, rank)
    for thread in slices.threads(rank):
        yield _format_metadata_event("thread_name", rank.number, thread.number, thread.title)
        yield _format_metadata_event("thread_sort_index", rank.number, thread.number, thread.number)
        places = thread.places
        node = gantt.coverage.row[places]
        columns = (
            gantt.coverage.start_ns[places] - gantt.origin_ns,
            gantt.coverage.end_ns[places] - gantt.coverage.start_ns[places],
            graph.name[node],
            graph.id[node],
            graph.type[node],
            sizes[node],
            kinds[node],
            unfinished[node],
        )
        lines = []
        for noted, start, length, code, number, of, size, kind, open_ended in zip(
            notes.of(places), *(column.tolist() for column in columns), strict=True
        ):
            name = names.get(code) or names.setdefault(code, json.dumps(graph.strings[code]))
            more = f', "bytes": {size}' if size else ""
            more += (
                f', "collective": "{label_collective(kind)}"'
                if of == NodeType.COMM_COLL and kind != NONE
                else ""
            )
            more += ', "unfinished": true' if open_ended else ""
            if noted:
                more += "".join(f', "{key}": {value}' for key, value in noted)
            lines.append(
                f',\n{{"ph": "X", "pid": {rank.number}, "tid": {thread.number}, "cat": "{thread.kind}", '
                f'"ts": {_format_micros(start)}, "dur": {_format_micros(length)}, "name": {name}, '
                f'"args": {{"id": {number}, "type": "{type_name(of)}"{more}}}}}'
            )
        yield "".join(lines)


def _format_flow(name: str, number: int, before: End, after: End, after_end_ns: int) -> str:
    """Return an arrow between two slices.

    A viewer joins an arrow's ends to the slices that are open at its times, and refuses one that ends before it starts.
    So it ends where both have begun; where the second had ended by then, it is drawn backwards and says so.
    """
    head = f'"cat": "{name}", "name": "{name}", "id": {number}'
    more = ""
    if after.start_ns < before.start_ns and before.start_ns >= after_end_ns:
        before, after, more = after, before, ', "args": {"reversed": true}'
    meet_ns = max(before.start_ns, after.start_ns)
    return (
        f',\n{{"ph": "s", {head}, "pid": {before.rank}, "tid": {before.thread}, "ts": {_format_micros(before.start_ns)}{more}}},\n'
        f'{{"ph": "f", "bp": "e", {head}, "pid": {after.rank}, "tid": {after.thread}, "ts": {_format_micros(meet_ns)}{more}}}'
    )


def _format_metadata_event(what: str, rank: int, thread: int, value: str | int) -> str:
    key = "sort_index" if what.endswith("sort_index") else "name"
    return ",\n" + json.dumps({"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {key: value}})


def _format_micros(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"
