"""Write a timeline in Perfetto's own format; `slices.py` prepares its content.

Written with the messages of Google's package `perfetto`, which is no dependency of the studio. Every rank is a process,
every lane a thread. Beginnings and ends of slices carry the numbers of their flows; Perfetto joins those of one number by
time, so that a collective needs one number, and at one time in the order they are written. Ranks with equal graphs share a
packet sequence, on which each text is written once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.slices import CALL_NOTES, Slices, Thread, collect_notes
from studio.distinct import find_distinct
from studio.errors import StudioError
from studio.timeline import LANE_KINDS
from studio.trace import NONE, Graph, Int64, NodeType, Rank, label_collective, read_dense_column, type_name

INSTALL = "pip install 'chakra-studio[perfetto]'"
_PROTOBUF_AT_LEAST = (6, 31, 1)
"""What the generated code of the package asks for; it raises an error of protobuf's with an older one."""
_EVENTS_AT_ONCE = 8192
"""Packets that are encoded together: few pieces to send, few objects alive."""
_ANNOTATIONS = ("id", "type", "bytes", "collective", "unfinished")
_ID, _TYPE, _BYTES, _COLLECTIVE, _UNFINISHED = range(1, len(_ANNOTATIONS) + 1)
_PACKET = b"\x0a"
"""Tags of the fields of a packet that are written here, not by protobuf: in `Trace`, in `TracePacket`, and in `TrackEvent`."""
_TIME, _SEQUENCE, _EVENT, _FLAGS = b"\x40", b"\x50", b"\x5a", b"\x68"
_TRACK, _FLOW = b"\x58", b"\xf9\x02"
_FLOW_BYTES = 10
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def iterate_perfetto_events(gantt: Gantt) -> Iterator[bytes]:
    """Return the file in pieces; times are ns from the beginning.

    Raises:
        StudioError: The package that writes it cannot be used; nothing has been written by then.
    """
    return _Writer(_import_messages(), Slices(gantt)).pieces()


def explain_unwritable() -> str:
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


def _import_messages() -> ModuleType:
    reason = explain_unwritable()
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


_Flows = tuple[Int64, Int64]
"""The flows that start or end at the slices of a rank: keys (twice the slice index, plus 1 for its end), and their numbers."""


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
        self.texts: dict[int, dict[tuple[int, ...], bytes]] = {}
        """By sequence what begins a slice, encoded once for all ranks whose graph it is of."""
        self.notes = CALL_NOTES if slices.gantt.calls else ()
        self.tracks = 0
        self.flows = 0
        numbers = [rank.number for rank in slices.gantt.trace.ranks]
        # Numbers of processes have 32 bits; ranks can carry any their files are named by.
        self.processes = numbers if max(numbers, default=0) < 1 << 31 else list(range(len(numbers)))
        # Threads count on where processes end: one with the number of a process would pass for its main thread.
        self.first_thread = max(self.processes, default=0)

    def pieces(self) -> Iterator[bytes]:
        meetings = self._number_meetings()
        for place, rank in enumerate(self.slices.gantt.trace.ranks):
            yield from self._iterate_rank(place, rank, meetings[place])

    def _number_meetings(self) -> list[_Flows]:
        """Number the flows between ranks; return them by place of the rank."""
        columns = [np.zeros((3, 0), np.int64)]
        for meeting, place, slice_at, received in self.slices.meeting_places():
            # A receive may begin before its send, but not end.
            columns.append(np.stack([place, 2 * slice_at + received, self.flows + 1 + meeting]))
            self.flows += int(meeting.max(initial=-1)) + 1
        table = np.concatenate(columns, axis=1)
        table = table[:, np.argsort(table[0], kind="stable")]
        bounds = np.searchsorted(table[0], np.arange(len(self.processes) + 1)).tolist()
        return [(table[1, begin:end], table[2, begin:end]) for begin, end in pairwise(bounds)]

    def _iterate_rank(self, place: int, rank: Rank, flows: _Flows) -> Iterator[bytes]:
        before, after, _ = self.slices.dependency_places(rank)
        apart = before != after
        ends = 2 * np.stack([before[apart], after[apart]], axis=1).reshape(-1)
        given = np.repeat(self.flows + 1 + np.arange(len(ends) // 2), 2)
        self.flows += len(ends) // 2
        keys, numbers = np.append(flows[0], ends), np.append(flows[1], given)
        order = np.argsort(keys, kind="stable")
        flows = keys[order], numbers[order]
        trace = self.messages.Trace()
        self._open_sequence(trace, rank.graph)
        threads = list(self.slices.threads(rank))
        first = self._describe(trace, place, rank, threads)
        yield trace.SerializeToString()
        yield from self._iterate_slices(rank, threads, first, flows)

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
        for number, name in enumerate((*_ANNOTATIONS, *self.notes), 1):
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
            track.thread.thread_name = _replace_surrogates(thread.title)
        return process

    def _iterate_slices(
        self, rank: Rank, threads: list[Thread], first: int, flows: _Flows
    ) -> Iterator[bytes]:
        gantt = self.slices.gantt
        graph = gantt.trace.graph_of(rank)
        notes = collect_notes(gantt, rank)
        places, track, kind = _order_slices(gantt, threads, first)
        node = gantt.coverage.row[places]
        keys, numbers = flows
        # Fixed in length, flows are cut out of one text.
        joining = np.zeros(len(numbers), [("tag", "S2"), ("number", "<u8")])
        joining["tag"], joining["number"] = _FLOW, numbers
        flow_texts = joining.tobytes()
        texts = self.texts.setdefault(rank.graph, {})
        sequence = _SEQUENCE + _encode_varint(rank.graph + 1) + _EVENT
        tracks = {number: _TRACK + _encode_varint(number) for number in find_distinct(track).tolist()}
        over_text = self.messages.TrackEvent(type=self.end).SerializeToString()
        flags = _FLAGS + _encode_varint(self.interned)
        columns_of = (
            kind,
            graph.name[node],
            graph.id[node],
            graph.type[node],
            gantt.sizes_of(rank.graph)[node],
            np.where(graph.type == NodeType.COMM_COLL, read_dense_column(graph, "comm_type", NONE), NONE)[
                node
            ],
            read_dense_column(graph, "unfinished", 0)[node],
        )
        time, which, ends = _order_moments(
            gantt.coverage.start_ns[places] - gantt.origin_ns, gantt.coverage.end_ns[places] - gantt.origin_ns
        )
        for piece in range(0, len(time), _EVENTS_AT_ONCE):
            part = slice(piece, piece + _EVENTS_AT_ONCE)
            slices = which[part]
            key = 2 * places[slices] + ends[part]
            joined = (np.searchsorted(keys, key), np.searchsorted(keys, key, side="right"))
            columns = (
                ends[part],
                track[slices],
                *joined,
                *(column[slices] for column in columns_of),
            )
            packets: list[bytes] = []
            for when, noted, over, where, since, until, *what in zip(
                _encode_varints(time[part]),
                notes.of(places[slices]),
                *(column.tolist() for column in columns),
                strict=True,
            ):
                body, new = over_text, b""
                if not over:
                    key_of = tuple(what)
                    known = texts.get(key_of)
                    if known is None:
                        known = texts[key_of] = self._tell(what)
                        new = self._intern(rank.graph, graph, what)
                    body = known + self._note(noted) if noted else known
                # In the order of the numbers of fields, as protobuf writes them.
                event = body + tracks[where] + flow_texts[_FLOW_BYTES * since : _FLOW_BYTES * until]
                packet = b"".join((_TIME, when, sequence, _encode_varint(len(event)), event, new, flags))
                packets += (_PACKET, _encode_varint(len(packet)), packet)
            yield b"".join(packets)

    def _intern(self, sequence: int, graph: Graph, what: list[int]) -> bytes:
        """Return the texts of a slice that its sequence does not know yet, as a field of its packet; empty where it knows all."""
        _, code, _, of, *_ = what
        packet = self.messages.TracePacket()
        if code not in self.named[sequence]:
            self.named[sequence].add(code)
            packet.interned_data.event_names.add(iid=code + 1, name=graph.strings[code])
        if of not in self.typed[sequence]:
            self.typed[sequence].add(of)
            packet.interned_data.debug_annotation_string_values.add(
                iid=_type_number(of), str=type_name(of).encode()
            )
        text: bytes = packet.SerializeToString()
        return text

    def _note(self, notes: list[tuple[str, int]]) -> bytes:
        """Return the fields that say what a slice of a recorded call is."""
        event = self.messages.TrackEvent()
        for key, value in notes:
            number = len(_ANNOTATIONS) + 1 + CALL_NOTES.index(key)
            event.debug_annotations.add(name_iid=number, int_value=value)
        text: bytes = event.SerializeToString()
        return text

    def _tell(self, what: list[int]) -> bytes:
        """Return the fields that begin a slice: category, name, id, type, bytes and collective, and whether it never ended."""
        kind, code, number, of, size, collective, unfinished = what
        event = self.messages.TrackEvent(type=self.begin, name_iid=code + 1)
        event.category_iids.append(kind)
        annotate = event.debug_annotations.add
        annotate(name_iid=_ID, uint_value=number)
        annotate(name_iid=_TYPE, string_value_iid=_type_number(of))
        if size:
            annotate(name_iid=_BYTES, int_value=size)
        if collective != NONE:
            annotate(name_iid=_COLLECTIVE, string_value=label_collective(collective))
        if unfinished:
            annotate(name_iid=_UNFINISHED, uint_value=1)
        text: bytes = event.SerializeToString()
        return text


def _encode_varint(number: int) -> bytes:
    r"""Return a number as protobuf writes it.

    Example:
        >>> _encode_varint(1), _encode_varint(300)
        (b'\x01', b'\xac\x02')
    """
    if number < len(_SHORT):
        return _SHORT[number]
    return bytes((number & 127 | 128,)) + _encode_varint(number >> 7)


_SHORT = [bytes((number,)) for number in range(128)]
_SHORT += [bytes((number & 127 | 128, number >> 7)) for number in range(128, 1 << 12)]


def _encode_varints(numbers: Int64) -> list[bytes]:
    """Return many numbers, from 0 on, as protobuf writes them.

    Example:
        >>> _encode_varints(np.array([0, 1, 300, 1 << 40])) == [_encode_varint(number) for number in (0, 1, 300, 1 << 40)]
        True
    """
    length = np.ones(len(numbers), np.int64)
    for count in range(1, 9):
        length += numbers >= 1 << (7 * count)
    most = int(length.max(initial=1))
    place = np.arange(most)
    digits = numbers[:, None] >> (7 * place) & 127 | np.where(place + 1 < length[:, None], 128, 0)
    text = digits.astype(np.uint8).tobytes()
    begins = range(0, most * len(numbers), most)
    return [text[at : at + size] for at, size in zip(begins, length.tolist(), strict=True)]


def _order_slices(gantt: Gantt, threads: list[Thread], first: int) -> tuple[Int64, Int64, Int64]:
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


def _order_moments(start: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the starts and ends of slices by time: time, slice, whether it ends.

    At one time the earlier slice ends before the later one begins, as they may stand in one thread.

    Example:
        >>> _order_moments(np.array([0, 5, 5]), np.array([5, 5, 9]))
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


def _replace_surrogates(text: str) -> str:
    r"""Return a text that can be written as UTF-8; group names from JSON can hold unpaired surrogates.

    Example:
        >>> _replace_surrogates("tp\udcff0") == "tp\ufffd0"
        True
    """
    return _HALF_CHARACTER.sub("\ufffd", text)
