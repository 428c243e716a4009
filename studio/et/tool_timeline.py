"""Read the timelines of Chakra's own tool (chakra_timeline_visualizer): Chrome traces whose times are milliseconds.

    {"meta_user": …, "traceEvents": [{"pid": 0, "tid": 3, "ts": 0.0, "dur": 4.3e-05, "ph": "X", "name": …,
                                      "args": {"ms": 4.3e-05}}], "meta_cpu_count": 8}

A process is a rank, a thread one of its four lanes. It has neither node ids nor types, and what never ended is not in it.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.columns import AttributeColumns, NodeColumns, Texts, build_dependencies, build_graph
from studio.et.damaged_json import decode_or_recover
from studio.et.events import NAMED_TYPE
from studio.et.format import Part, RankPart, Reading
from studio.trace import NONE, Finding, NodeType, Rank
from studio.units import format_counted

_HEAD = re.compile(rb'"args"\s*:\s*\{\s*"ms"\s*:')
_TYPES = {1: NodeType.MEM_LOAD, 2: NodeType.MEM_LOAD, 3: NodeType.COMP, 4: NodeType.COMM_COLL}
"""What runs in its lanes: local memory, remote memory, compute, communication."""
_LONGEST_MS = 2.0**53 / 1e6
"""Beyond it a number of the file is no whole nanosecond any more."""
_NS_PER_MS = 1_000_000


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    pid: int = NONE
    tid: int = NONE
    name: str = ""
    ts: float = -1.0
    dur: float = -1.0

    def is_span(self) -> bool:
        """Whether it is a node of a rank with times."""
        timed = 0 <= self.ts <= _LONGEST_MS and 0 <= self.dur <= _LONGEST_MS
        return self.ph == "X" and 0 <= self.pid < 1 << 31 and timed


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(default_factory=list, name="traceEvents")


_file = build_decoder(_File)


def sniff(head: bytes) -> bool:
    """Whether `head` starts a timeline of the tool."""
    return head.lstrip()[:1] == b"{" and b'"meta_user"' in head[:400] and _HEAD.search(head) is not None


def read(reading: Reading) -> list[Part]:
    """Read the timeline of all ranks; times become nanoseconds.

    Raises:
        TraceFormatError: It is damaged beyond use, or holds no node.
    """
    with pause_collector():
        try:
            content, findings = decode_or_recover(reading.data, _file, reading.name)
        except msgspec.DecodeError as error:
            raise TraceFormatError(
                f"{reading.name}: not as chakra_timeline_visualizer writes it: {error}.",
                hint="Make it again.",
            ) from error
        reading.tick(len(reading.data))
        ranks: dict[int, list[_Event]] = {}
        for event in content.events:
            if event.is_span():
                ranks.setdefault(event.pid, []).append(event)
    if not ranks:
        raise TraceFormatError(
            f"{reading.name}: a timeline without a node.", hint="Make it again of lines that hold some."
        )
    left = len(content.events) - sum(map(len, ranks.values()))
    all_findings = (*reading.findings, *findings, *_build_findings(reading.name, left))
    return [
        _build_part(reading, number, ranks[number], all_findings if not at else ())
        for at, number in enumerate(sorted(ranks))
    ]


def _build_part(
    reading: Reading, number: int, events: list[_Event], findings: tuple[Finding, ...]
) -> RankPart:
    events.sort(key=lambda event: event.ts)
    start = np.rint(np.array([event.ts for event in events]) * _NS_PER_MS).astype(np.int64)
    end = np.rint(np.array([event.ts + event.dur for event in events]) * _NS_PER_MS).astype(np.int64)
    texts = Texts()
    none = np.zeros(0, np.int64)
    count = len(events)
    nodes = NodeColumns(
        ids=np.arange(count, dtype=np.uint64),
        types=np.array([_infer_type(event) for event in events], np.int32),
        names=texts.of(event.name for event in events),
        start_ns=start,
        duration_ns=np.maximum(end - start, 0),
        ctrl=build_dependencies(none, none, count),
        data=build_dependencies(none, none, count),
        io=np.empty((0, 6), np.int32),
    )
    graph, slots = build_graph(nodes, AttributeColumns(texts))
    return RankPart(Rank(NONE, NONE, slots, file=reading.name), graph, number, findings)


def _infer_type(event: _Event) -> int:
    named = NAMED_TYPE.search(event.name)
    return int(NodeType[named[1]]) if named else int(_TYPES.get(event.tid, NodeType.INVALID))


def _build_findings(name: str, left: int) -> list[Finding]:
    message = (
        f"{name}: a timeline of chakra_timeline_visualizer, whose times are milliseconds; it holds no node ids and no "
        "dependencies, and nodes that never ended are not in it."
    )
    findings = [
        Finding("info", "exported-timeline", message, "The lines that it was made of have all of them.")
    ]
    if left:
        message = f"{name}: {format_counted(left, 'event')} without usable rank or times left out."
        findings.append(Finding("warning", "damaged-event", message, file=name))
    return findings
