"""Write a timeline in Perfetto's own format; `slices.py` prepares its content.

Written with the messages of Google's package `perfetto`, which is no dependency of the studio. Every rank is a process,
every lane a thread. Beginnings and ends of slices carry the numbers of their flows; Perfetto joins those of one number by
time, so that a collective needs one number, and at one time in the order they are written. Ranks with equal graphs share a
packet sequence, on which each text is written once.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import numpy as np

from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.slices import Slices, Thread
from studio.errors import StudioError
from studio.timeline import LANE_KINDS
from studio.trace import NONE, Graph, Int64, NodeType, Rank, collective_name, dense_column, type_name

INSTALL = "pip install 'chakra-studio[perfetto]'"
_PROTOBUF_AT_LEAST = (6, 31, 1)
"""What the generated code of the package asks for; it raises an error of protobuf's with an older one."""
_EVENTS_AT_ONCE = 8192
"""Packets that are encoded together: few pieces to send, few objects alive."""
_ANNOTATIONS = ("id", "type", "bytes", "collective", "unfinished")
_ID, _TYPE, _BYTES, _COLLECTIVE, _UNFINISHED = range(1, len(_ANNOTATIONS) + 1)
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def perfetto_events(gantt: Gantt) -> Iterator[bytes]:
    """Return the file in pieces; times are ns from the beginning.

    Raises:
        StudioError: The package that writes it cannot be used; nothing has been written by then.
    """
    return _Writer(_messages(), Slices(gantt)).pieces()


def cannot_write() -> str:
    """Return why the format cannot be written here, "" where it can. Imports nothing."""
    try:
        version("perfetto")
        numbers = re.findall(r"\d+", version("protobuf"))
    except PackageNotFoundError:
        return "Perfetto's format is written by the package perfetto, which is not installed."
    if tuple(int(number) for number in numbers[:3]) < _PROTOBUF_AT_LEAST:
        needed = ".".join(str(number) for number in _PROTOBUF_AT_LEAST)
        return f"Perfetto's format needs protobuf {needed} or newer; {version('protobuf')} is installed."
    return ""


def _messages() -> ModuleType:
    reason = cannot_write()
    if reason:
        raise StudioError(reason, hint=f"{INSTALL}, or save a Chrome trace, which Perfetto opens too.")
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise StudioError(
            f"Perfetto's format is written by the package perfetto, which cannot be imported: {error}.",
            hint=f"{INSTALL}, or save a Chrome trace, which Perfetto opens too.",
        ) from error
    module: ModuleType = perfetto_trace_pb2
    return module


class _Flows:
    """The flows that start or end at the slices of a rank."""

    def __init__(self) -> None:
        self.keys = array("q")
        self.numbers = array("q")

    def add(self, place: int, number: int, *, at_end: bool = False) -> None:
        self.keys.append(2 * place + at_end)
        self.numbers.append(number)

    def sorted(self) -> tuple[Int64, Int64]:
        """Return sorted keys (twice the slice index, plus 1 for its end) and their flow numbers."""
        keys = np.array(self.keys, np.int64)
        order = np.argsort(keys, kind="stable")
        return keys[order], np.array(self.numbers, np.int64)[order]


class _Writer:
    """The state of one file: numbers given out, and texts known to each sequence."""

    def __init__(self, messages: ModuleType, slices: Slices) -> None:
        self.slices = slices
        self.messages: Any = messages
        event, packet = messages.TrackEvent, messages.TracePacket
        self.begin, self.end = event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END
        self.cleared, self.interned = (
            packet.SEQ_INCREMENTAL_STATE_CLEARED,
            packet.SEQ_NEEDS_INCREMENTAL_STATE,
        )
        self.named: dict[int, set[int]] = {}
        self.typed: dict[int, set[int]] = {}
        self.tracks = 0
        self.flows = 0
        numbers = [rank.number for rank in slices.gantt.trace.ranks]
        # Numbers of processes have 32 bits; ranks can carry any their files are named by.
        self.processes = numbers if max(numbers, default=0) < 1 << 31 else list(range(len(numbers)))
        # Threads count on where processes end: one with the number of a process would pass for its main thread.
        self.first_thread = max(self.processes, default=0)

    def pieces(self) -> Iterator[bytes]:
        meetings = self._meetings()
        for place, rank in enumerate(self.slices.gantt.trace.ranks):
            yield from self._rank(place, rank, meetings.pop(rank.number, _Flows()))

    def _meetings(self) -> dict[int, _Flows]:
        """Number the flows between ranks, by rank."""
        flows: dict[int, _Flows] = {}
        for kind, ends in self.slices.meetings():
            if len(ends) < 2:
                continue
            self.flows += 1
            for side, end in enumerate(ends):
                # A receive may begin before its send, but not end.
                received = kind == "message" and side == 1
                flows.setdefault(end.rank, _Flows()).add(end.place, self.flows, at_end=received)
        return flows

    def _rank(self, place: int, rank: Rank, flows: _Flows) -> Iterator[bytes]:
        for _, before, after in self.slices.dependencies(rank):
            if before.place == after.place:
                continue
            self.flows += 1
            flows.add(before.place, self.flows)
            flows.add(after.place, self.flows)
        trace = self.messages.Trace()
        self._open_sequence(trace, rank.graph)
        threads = list(self.slices.threads(rank))
        first = self._describe(trace, place, rank, threads)
        yield trace.SerializeToString()
        yield from self._slices(rank, threads, first, flows)

    def _open_sequence(self, trace: Any, graph: int) -> None:
        if graph in self.named:
            return
        self.named[graph], self.typed[graph] = set(), set()
        packet = trace.packet.add(
            trusted_packet_sequence_id=graph + 1,
            sequence_flags=self.cleared | self.interned,
            first_packet_on_sequence=True,
        )
        for number, kind in enumerate(LANE_KINDS, 1):
            packet.interned_data.event_categories.add(iid=number, name=kind)
        for number, name in enumerate(_ANNOTATIONS, 1):
            packet.interned_data.debug_annotation_names.add(iid=number, name=name)

    def _describe(self, trace: Any, place: int, rank: Rank, threads: list[Thread]) -> int:
        """Add the tracks of a rank; return the number before its first thread."""
        descriptor = self.messages.TrackDescriptor
        self.tracks += 1
        process, number = self.tracks, self.processes[place]
        track = trace.packet.add(trusted_packet_sequence_id=rank.graph + 1).track_descriptor
        track.uuid, track.sibling_order_rank = process, place
        track.process_ordering = descriptor.PROCESS_ORDERING_EXPLICIT
        track.thread_ordering = descriptor.THREAD_ORDERING_EXPLICIT
        track.child_ordering = descriptor.EXPLICIT
        track.process.pid, track.process.process_name = number, f"rank {rank.number}"
        for thread in threads:
            self.tracks += 1
            track = trace.packet.add(trusted_packet_sequence_id=rank.graph + 1).track_descriptor
            track.uuid, track.parent_uuid, track.sibling_order_rank = self.tracks, process, thread.number
            track.thread.pid, track.thread.tid = number, self.first_thread + self.tracks
            track.thread.thread_name = _text(thread.title)
        return process

    def _slices(self, rank: Rank, threads: list[Thread], first: int, flows: _Flows) -> Iterator[bytes]:
        gantt = self.slices.gantt
        graph = gantt.trace.graph_of(rank)
        places, track, kind = _in_order(gantt, threads, first)
        node = gantt.coverage.row[places]
        keys, numbers = flows.sorted()
        columns_of = (
            kind,
            graph.name[node],
            graph.id[node],
            graph.type[node],
            gantt.sizes_of(rank.graph)[node],
            np.where(graph.type == NodeType.COMM_COLL, dense_column(graph, "comm_type", NONE), NONE)[node],
            dense_column(graph, "unfinished", 0)[node],
        )
        time, which, ends = _moments(
            gantt.coverage.start_ns[places] - gantt.origin_ns, gantt.coverage.end_ns[places] - gantt.origin_ns
        )
        for piece in range(0, len(time), _EVENTS_AT_ONCE):
            part = slice(piece, piece + _EVENTS_AT_ONCE)
            slices = which[part]
            key = 2 * places[slices] + ends[part]
            joined = (np.searchsorted(keys, key), np.searchsorted(keys, key, side="right"))
            columns = (
                time[part],
                ends[part],
                track[slices],
                *joined,
                *(column[slices] for column in columns_of),
            )
            trace = self.messages.Trace()
            for when, over, where, since, until, *what in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                packet = trace.packet.add(
                    timestamp=when, trusted_packet_sequence_id=rank.graph + 1, sequence_flags=self.interned
                )
                event = packet.track_event
                event.track_uuid = where
                event.type = self.end if over else self.begin
                if since < until:
                    event.flow_ids.extend(numbers[since:until].tolist())
                if not over:
                    self._tell(packet, rank.graph, graph, what)
            yield trace.SerializeToString()

    def _tell(self, packet: Any, sequence: int, graph: Graph, what: list[int]) -> None:
        """Add category, name, id, type, bytes and collective of a slice, and whether it never ended."""
        kind, code, number, of, size, collective, unfinished = what
        event = packet.track_event
        event.category_iids.append(kind)
        event.name_iid = code + 1
        if code not in self.named[sequence]:
            self.named[sequence].add(code)
            packet.interned_data.event_names.add(iid=code + 1, name=graph.strings[code])
        if of not in self.typed[sequence]:
            self.typed[sequence].add(of)
            packet.interned_data.debug_annotation_string_values.add(
                iid=_type_number(of), str=type_name(of).encode()
            )
        annotate = event.debug_annotations.add
        annotate(name_iid=_ID, uint_value=number)
        annotate(name_iid=_TYPE, string_value_iid=_type_number(of))
        if size:
            annotate(name_iid=_BYTES, int_value=size)
        if collective != NONE:
            annotate(name_iid=_COLLECTIVE, string_value=collective_name(collective))
        if unfinished:
            annotate(name_iid=_UNFINISHED, uint_value=1)


def _in_order(gantt: Gantt, threads: list[Thread], first: int) -> tuple[Int64, Int64, Int64]:
    """Return the slices of a rank by start, end and node: index, track and category number."""
    if not threads:
        return (np.zeros(0, np.int64),) * 3
    sizes = [len(thread.places) for thread in threads]
    places = np.concatenate([thread.places for thread in threads])
    track = np.repeat([first + thread.number for thread in threads], sizes)
    kind = np.repeat([LANE_KINDS.index(thread.kind) + 1 for thread in threads], sizes)
    coverage = gantt.coverage
    order = np.lexsort((coverage.row[places], coverage.end_ns[places], coverage.start_ns[places]))
    return places[order], track[order], kind[order]


def _moments(start: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the starts and ends of slices by time: time, slice, whether it ends.

    At one time the earlier slice ends before the later one begins, as they may stand in one thread.

    Example:
        >>> _moments(np.array([0, 5, 5]), np.array([5, 5, 9]))
        (array([0, 5, 5, 5, 5, 9]), array([0, 0, 1, 1, 2, 2]), array([0, 1, 0, 1, 0, 1]))
    """
    time = np.concatenate((start, end))
    which = np.tile(np.arange(len(start)), 2)
    ends = np.repeat([0, 1], len(start))
    order = np.lexsort((ends, which, time))
    return time[order], which[order], ends[order]


def _type_number(number: int) -> int:
    """Return a positive number for a node type's name, whatever number the file has."""
    return 2 * number + 2 if number >= 0 else -2 * number - 1


def _text(text: str) -> str:
    r"""Return a text that can be written as UTF-8; group names from JSON can hold unpaired surrogates.

    Example:
        >>> _text("tp\udcff0") == "tp\ufffd0"
        True
    """
    return _HALF_CHARACTER.sub("\ufffd", text)
