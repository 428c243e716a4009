"""Read what NCCL's Inspector writes of a process: one JSON object a line for each collective that ended, with its time.

A line names the communicator by a hash, and the rank in it; from version 4.3 of the layout on, a line before those of a
communicator does so for all of them (`dump_stats`). The largest communicator of a process stands for the world: its rank there
is the rank of the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.build import build_graph
from studio.et.collector import pause_collector
from studio.et.format import GroupsPart, Part, RankPart, Reading
from studio.et.link.names import infer_operator_kind
from studio.et.records import clean
from studio.trace import NONE, Attribute, CollectiveType, CommGroup, Finding, Level, Rank, ValueKind

RECORDER = "NCCL Inspector"
NODES = "communicator_nodes"
"""Metadata of a rank: how many machines its largest communicator spans."""
MEMBERS = "communicator_ranks"

_KINDS = len(CollectiveType)
_LARGEST_US = 2**53
_LARGEST_BYTES = 2**62
_TICK_EVERY = 4096
_MOST_MEMBERS = 1 << 20
"""Members of a communicator that are listed."""


class _Header(msgspec.Struct, gc=False):
    id: str | int = ""
    rank: int = NONE
    n_ranks: int = NONE
    nnodes: int = NONE


class _Metadata(msgspec.Struct, gc=False):
    inspector_output_format_version: str = ""
    dump_timestamp_us: int = NONE
    hostname: str = ""
    pid: int = NONE


class _Kernel(msgspec.Struct, gc=False):
    kernel_stop_ts: int = NONE


class _Times(msgspec.Struct, gc=False):
    # When the call had been put into the queue of its stream: the kernels run later.
    coll_stop_ts: int = NONE
    kernel_events: list[_Kernel] = []


class _Written(msgspec.Struct, gc=False):
    coll_dropped_since_last_dump: int = 0


class _Collective(msgspec.Struct, gc=False):
    coll: str = ""
    coll_sn: int = NONE
    coll_msg_size_bytes: int = NONE
    coll_exec_time_us: float = -1.0
    coll_timing_source: str = ""
    coll_algo: str = ""
    coll_proto: str = ""
    event_trace_ts: _Times | None = None


class _Line(msgspec.Struct, gc=False):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Collective | None = None
    p2p_perf: dict[str, Any] | None = None
    proxy_trace: dict[str, Any] | None = None
    dump_stats: _Written | None = None


_line = build_decoder(_Line)


def sniff(head: bytes) -> bool:
    """Whether `head` starts a log of the Inspector."""
    start = head.lstrip()
    return (
        start[:1] == b"{"
        and b'"header"' in head
        and b'"n_ranks"' in head
        and any(key in head for key in (b'"coll_perf"', b'"p2p_perf"', b'"dump_stats"'))
    )


@dataclass(slots=True)
class _Record:
    """A collective of one process.

    Attributes:
        group: Its comm group.
        place: The process's rank in it.
        end_ns: When it ended at the latest, -1 where nothing tells.
        took_ns: How long it took.
        exact: Whether the recorder wrote when it ended.
        what: What else is known.
    """

    group: str
    place: int
    members: int
    nodes: int
    end_ns: int
    took_ns: int
    exact: bool
    what: _Collective

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.took_ns


def read(reading: Reading) -> list[Part]:
    """Read a log: a rank for each process in it.

    Raises:
        TraceFormatError: No line is a collective.
    """
    counts: Counter[str] = Counter()
    processes: dict[tuple[str, int], list[_Record]] = {}
    versions: dict[tuple[str, int], str] = {}
    with pause_collector():
        for process, version, record in _iterate_records(reading, counts):
            processes.setdefault(process, []).append(record)
            versions.setdefault(process, version)
        if not processes:
            reasons = (
                ", ".join(f"{what}: {count:,}" for what, count in counts.items()) or "the file has no line"
            )
            raise TraceFormatError(
                f"{reading.name}: no collective with a time; {reasons}.",
                hint="Record with NCCL_PROFILER_PLUGIN=…/libnccl-profiler-inspector.so and NCCL_INSPECTOR_ENABLE=1.",
            )
        parts = [
            _build_part(reading.name, process, versions[process], records, counts)
            for process, records in processes.items()
        ]
        reading.tick(len(reading.data))
        return [
            GroupsPart(_list_worlds(processes.values())),
            replace(parts[0], findings=(*reading.findings, *_build_findings(reading.name, counts))),
            *parts[1:],
        ]


def _list_worlds(processes: Iterable[Sequence[_Record]]) -> tuple[CommGroup, ...]:
    """Return the largest communicator of each process, whose members are the ranks of the job."""
    worlds = {record.group: record.members for record in map(_find_world, processes)}
    return tuple(
        CommGroup(name, tuple(range(members))) for name, members in worlds.items() if members <= _MOST_MEMBERS
    )


def _find_world(records: Sequence[_Record]) -> _Record:
    return max(records, key=lambda record: record.members)


def _iterate_records(
    reading: Reading, counts: Counter[str]
) -> Iterator[tuple[tuple[str, int], str, _Record]]:
    """Yield process, version and record of every collective with a time; the others are counted."""
    done = 0
    header, metadata = _Header(), _Metadata()
    for number, raw in enumerate(bytes(reading.data).split(b"\n")):
        done += len(raw) + 1
        if not number % _TICK_EVERY:
            reading.tick(min(done, len(reading.data)))
        if not raw.strip():
            continue
        try:
            line = _line(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            counts["lines that are no record"] += 1
            continue
        collective = line.coll_perf
        header, metadata = line.header or header, line.metadata or metadata
        if collective is None:
            _count_other(line, counts)
            continue
        bounds = 0 <= header.rank < header.n_ranks <= 2**31
        sized = 0 <= collective.coll_msg_size_bytes <= _LARGEST_BYTES // max(header.n_ranks, 1)
        if not (bounds and sized and 0 <= collective.coll_exec_time_us < _LARGEST_US):
            counts["records with a rank, size or time out of range"] += 1
            continue
        end, exact = _read_end_us(collective), True
        if not 0 < end < _LARGEST_US:
            end, exact = metadata.dump_timestamp_us, False
        if not 0 < end < _LARGEST_US:
            counts["records without a point in time"] += 1
            end = NONE
        record = _Record(
            clean(str(header.id)),
            header.rank,
            header.n_ranks,
            header.nnodes,
            end * 1000 if end >= 0 else NONE,
            round(collective.coll_exec_time_us * 1000),
            exact,
            collective,
        )
        yield (
            (clean(metadata.hostname), metadata.pid),
            clean(metadata.inspector_output_format_version),
            record,
        )


def _count_other(line: _Line, counts: Counter[str]) -> None:
    """Count a line that is of no collective."""
    if line.dump_stats is not None:
        if line.dump_stats.coll_dropped_since_last_dump > 0:
            counts["overwritten"] += line.dump_stats.coll_dropped_since_last_dump
    elif line.p2p_perf is not None:
        counts["messages"] += 1
    elif line.proxy_trace is not None:
        counts["records of proxies"] += 1
    else:
        counts["lines that are no record"] += 1


def _read_end_us(collective: _Collective) -> int:
    """Return when a collective ended, in microseconds; -1 where that is not written.

    Its own stop is the end of the call on the host, which the kernels begin after: without their times it began then.
    """
    times = collective.event_trace_ts
    if times is None:
        return NONE
    if stops := [each.kernel_stop_ts for each in times.kernel_events if each.kernel_stop_ts > 0]:
        return max(stops)
    return times.coll_stop_ts + round(collective.coll_exec_time_us) if times.coll_stop_ts > 0 else NONE


def _build_part(
    name: str, process: tuple[str, int], version: str, records: list[_Record], counts: Counter[str]
) -> RankPart:
    """Return one process as a rank."""
    _bound_ends(records, counts)
    records.sort(key=lambda record: (record.start_ns, record.group, record.what.coll_sn))
    world = _find_world(records)
    nodes, last = [], dict[str, int]()
    for number, record in enumerate(records, 1):
        nodes.append(_build_node(number, record, last.get(record.group), counts))
        last[record.group] = number
    graph, slots = build_graph(nodes)
    starts = [record.start_ns if record.end_ns > 0 else NONE for record in records]
    durations = [record.took_ns for record in records]
    graph = replace(graph, start_ns=np.array(starts, np.int64), duration_ns=np.array(durations, np.int64))
    metadata = [
        Attribute("recorder", ValueKind.STRING, RECORDER),
        Attribute("hostname", ValueKind.STRING, process[0]),
        Attribute("pid", ValueKind.INT64, process[1]),
        Attribute("inspector_version", ValueKind.STRING, version),
        Attribute("world_size", ValueKind.INT64, world.members),
        Attribute(MEMBERS, ValueKind.INT64, world.members),
        Attribute(NODES, ValueKind.INT64, world.nodes),
    ]
    return RankPart(Rank(NONE, NONE, slots, metadata=tuple(metadata), file=name), graph, world.place)


def _bound_ends(records: Sequence[_Record], counts: Counter[str]) -> None:
    """Set ends that are only known to be before the line was written: a comm group does one collective after the other."""
    by_group: dict[str, list[_Record]] = {}
    for record in records:
        if record.end_ns > 0:
            by_group.setdefault(record.group, []).append(record)
    for members in by_group.values():
        begun = members[-1].end_ns
        for record in reversed(members):
            if not record.exact:
                counts["bounded"] += 1
                record.end_ns = min(record.end_ns, begun)
            begun = min(begun, record.start_ns)


def _build_node(number: int, record: _Record, before: int | None, counts: Counter[str]) -> dict[str, Any]:
    collective = record.what
    kind = infer_operator_kind(collective.coll)
    if kind is None or kind < 0:
        counts["collectives of a kind that is not known"] += 1
    # A rank gives the whole input of a reduce-scatter; NCCL counts the part that it gets.
    parts = record.members if kind == CollectiveType.REDUCE_SCATTER else 1
    chosen = [
        word.upper()
        for word in (collective.coll_algo, collective.coll_proto)
        if word and word.lower() != "unknown"
    ]
    return {
        "id": number,
        "type": "COMM_COLL_NODE",
        "name": clean("_".join([collective.coll or "collective", *chosen])),
        "data_deps": [before] if before else [],
        "attrs": {
            "is_cpu_op": False,
            "pg_name": record.group,
            "comm_size": collective.coll_msg_size_bytes * parts,
            **({"comm_type": kind} if kind is not None and kind >= 0 else {}),
            # NCCL numbers the collectives of a comm group by kind.
            **(
                {"comm_seq": collective.coll_sn * _KINDS + max(kind or 0, 0)}
                if 0 <= collective.coll_sn < 2**40
                else {}
            ),
            **(
                {"timing_source": clean(collective.coll_timing_source)}
                if collective.coll_timing_source
                else {}
            ),
        },
    }


def _build_findings(name: str, counts: Counter[str]) -> Iterator[Finding]:
    """Yield what was left out or assumed."""
    bounded, overwritten = counts.pop("bounded", 0), counts.pop("overwritten", 0)
    consequences: dict[str, tuple[Level, str, str]] = {
        "messages": ("info", "left-out", "left out"),
        "records of proxies": ("info", "left-out", "left out"),
        "records without a point in time": ("warning", "no-time", "kept without a start"),
        "collectives of a kind that is not known": ("warning", "unknown-type", "kept without a type"),
    }
    for what, count in counts.items():
        level, code, kept = consequences.get(what, ("error", "damaged-line", "left out"))
        yield Finding(level, code, f"{name}: {what}, {kept}: {count:,}.", file=name)
    if overwritten:
        yield Finding(
            "warning",
            "left-out",
            f"{name}: collectives that the Inspector overwrote before it wrote them: {overwritten:,}.",
            "Let it write more often: NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS.",
            file=name,
        )
    if bounded:
        message = (
            f"{name}: collectives drawn as late as they can have been, before their line was written and before the next "
            f"one of their comm group: {bounded:,}. How long they took is measured."
        )
        yield Finding(
            "info",
            "times-bounded",
            message,
            "NCCL_INSPECTOR_DUMP_VERBOSE=1 has the times written at which they began and ended.",
            file=name,
        )
