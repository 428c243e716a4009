"""Read and write issue and callback lines of simulators: a recorded timeline without dependencies.

    issue,sys->id=0, tick=0, node->id=1, node->name=embedding, node->type=4
    callback,sys->id=0, tick=43, node->id=1, node->name=embedding, node->type=4

The lines may stand in a log, with other lines between them and whatever before them. What is before each `=` is ignored,
but for the type, which older files lack. Ticks are nanoseconds.

A node whose callback is not there gets the attribute `unfinished`, a callback without an issue the attribute
`callback_ns`, so that both are written back as what they were and not as complete nodes.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from studio.distinct import find_distinct
from studio.errors import TraceFormatError
from studio.et.columns import AttributeColumns, Texts
from studio.et.format import Part, RankPart, Reading
from studio.trace import (
    NONE,
    Dependencies,
    Finding,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    compute_recorded_ends,
    is_flagged,
    read_dense_column,
)
from studio.units import format_counted

_EVENT = re.compile(
    rb"(?:^|[\s:\]>])(issue|callback),[^=,\r\n]*=[ \t]*([0-9]{1,20})[ \t]*,[^=,\r\n]*=[ \t]*([0-9]{1,20})[ \t]*"
    rb",[^=,\r\n]*=[ \t]*([0-9]{1,20})[ \t]*,[^=,\r\n]*=([^\r\n]*)",
    re.MULTILINE,
)
_STARTED = re.compile(rb"(?:^|[\s:\]>])(?:issue|callback),[^=,\r\n]*=", re.MULTILINE)
_TYPE = re.compile(rb"^(.*),([^=,]*)=[ \t]*([0-9]{1,3})[ \t]*$", re.DOTALL)
NAMED_TYPE = re.compile(r"(?:^|[^A-Z])(MEM_LOAD|MEM_STORE|COMP|COMM_SEND|COMM_RECV|COMM_COLL)_NODE(?![A-Z])")
"""Finds the type of a node in a name such as COMM_COLL_NODE_x."""
_FINISHED = re.compile(
    rb"(?:^|[\s:\]>])sys\[([0-9]{1,10})\][^\r\n]{0,40}?finished, ([0-9]{1,20}) cycles"
    rb"(?:, exposed communication ([0-9]{1,20}) cycles)?",
    re.MULTILINE | re.IGNORECASE,
)
_COUNTED = re.compile(r": ([0-9][0-9,]*)\.$")
_LARGEST_RANK = 2**31 - 1
_TICK_EVERY = 100_000
UNFINISHED, CALLBACK = "unfinished", "callback_ns"
"""Attributes of a node without callback (a truth value), and of a callback without issue (its tick)."""
LOST_LINES = ("damaged-line", "bad-value")
"""Codes of findings that count lines which were left out; `count_of` returns how many."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The line by which a simulator says that a rank is done.

    Attributes:
        ticks: When.
        exposed: Its exposed communication in ticks; None where the line does not tell it.
    """

    ticks: int
    exposed: int | None = None


def finish_lines(log: bytes) -> dict[int, Finish]:
    """Return when each rank finished, by lines such as `sys[0] finished, 43 cycles, …`.

    Where a rank finishes several times, as of several iterations, the last counts.

    Example:
        >>> finish_lines(b"[t] [info] sys[1] finished, 43 cycles, exposed communication 2 cycles.")
        {1: Finish(ticks=43, exposed=2)}
    """
    return {
        int(rank): Finish(int(ticks), int(exposed) if exposed else None)
        for rank, ticks, exposed in _FINISHED.findall(log)
        if int(rank) <= _LARGEST_RANK and int(ticks) < 2**63
    }


def count_of(finding: Finding) -> int:
    """Return how many lines or nodes a finding of this module speaks of; 0 where it counts none.

    Example:
        >>> count_of(Finding("warning", "unfinished", "log: issues without a callback: 1,204."))
        1204
    """
    match = _COUNTED.search(finding.message)
    return int(match[1].replace(",", "")) if match else 0


def sniff(head: bytes) -> bool:
    """Whether `head` begins with an issue or callback line, or holds two; a text about them may quote one.

    A log in which ranks only finish is one too: reading it says what it lacks.
    """
    if b"\0" in head:
        return False
    first = _EVENT.search(head)
    if first is None:
        return len(finish_lines(head)) > 1 or _FINISHED.match(head) is not None
    return first.start() == 0 or _EVENT.search(head, first.end()) is not None


@dataclass(slots=True)
class _Spans:
    """The recorded spans, one row per issue line.

    Attributes:
        rank, node: Rank and node id.
        name: Index into `names`.
        start, end: Ticks; end -1 while there is no callback, start -1 where there is no issue.
        open: Rows still without callback, by rank and node.
        names: Texts after the fourth `=`, by first appearance.
        counts: What is wrong, and how often.
    """

    rank: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    open: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    names: dict[bytes, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, word: bytes, rank: int, tick: int, node: int, name: bytes) -> None:
        """Record one line."""
        if rank > _LARGEST_RANK or tick >= 2**63 or node >= 2**64:
            self.counts["out of range"] += 1
            return
        key = (rank, node)
        if word == b"callback":
            waiting = self.open.get(key)
            if waiting:
                row = waiting.popleft()
                if not waiting:
                    del self.open[key]
                if tick < self.start[row]:
                    self.counts["backwards"] += 1
                self.end[row] = max(tick, self.start[row])
                return
            self.counts["without issue"] += 1
        else:
            self.open.setdefault(key, deque()).append(len(self.rank))
        self.rank.append(rank)
        self.node.append(node)
        self.name.append(self.names.setdefault(name, len(self.names)))
        issued = word == b"issue"
        self.start.append(tick if issued else NONE)
        self.end.append(NONE if issued else tick)


def read(reading: Reading) -> list[Part]:
    """Read the timeline of all ranks.

    Raises:
        TraceFormatError: No line is a complete event.
    """
    spans, events = _Spans(), 0
    data = bytes(reading.data)
    for match in _EVENT.finditer(data):
        word, rank, tick, node, name = match.groups()
        spans.take(word, int(rank), int(tick), int(node), name.strip())
        events += 1
        if events % _TICK_EVERY == 0:
            reading.tick(match.end())
    finished = finish_lines(data)
    if not spans.rank and finished:
        raise TraceFormatError(
            f"{reading.name}: a log in which {format_counted(len(finished), 'rank')} only finish, without issue and "
            "callback lines, so there is no timeline in it.",
            hint="ASTRA-sim writes them to log/log.log where system.json has trace-enabled 1.",
        )
    if not spans.rank:
        raise TraceFormatError(
            f"{reading.name}: no complete issue or callback line.",
            hint="Expected lines such as issue,sys->id=0,tick=0,node->id=1,node->name=x,node->type=4.",
        )
    spans.counts["incomplete"] = sum(1 for _ in _STARTED.finditer(data)) - events
    reading.tick(len(data))
    spans.counts["never finished"] = len(set(spans.rank) - finished.keys()) if finished else 0
    names, types = _split_types(list(spans.names), spans.counts)
    return _build_parts(spans, names, types, reading)


def _split_types(texts: list[bytes], counts: Counter[str]) -> tuple[list[str], list[int]]:
    """Split names from node types: the type is the last column, known by its key or by being on every line.

    Example:
        >>> _split_types([b"a,b=3,node->type=4", b"x=1,node->type=7"], Counter())
        (['a,b=3', 'x=1'], [4, 7])
        >>> _split_types([b"COMM_COLL_NODE_1, k=2"], Counter())
        (['COMM_COLL_NODE_1'], [2])
    """
    split = [_TYPE.match(text) for text in texts]
    keys = {match[2].strip() if match else b"" for match in split}
    alike = len(keys) == 1 and None not in split
    names, types = [], []
    for text, match in zip(texts, split, strict=True):
        has_type = match is not None and (alike or b"type" in match[2].lower())
        raw = match[1] if match is not None and has_type else text
        name = raw.strip().decode("utf-8", "replace")
        names.append(name)
        if match is not None and has_type:
            types.append(int(match[3]))
        else:
            named = NAMED_TYPE.search(name)
            counts["type from name" if named else "no type"] += 1
            types.append(int(NodeType[named[1]]) if named else int(NodeType.INVALID))
    return names, types


def _build_parts(spans: _Spans, names: list[str], types: list[int], reading: Reading) -> list[Part]:
    rank = np.array(spans.rank, np.int64)
    start, end = np.array(spans.start, np.int64), np.array(spans.end, np.int64)
    node = np.array(spans.node, np.uint64)
    name, kind = np.array(spans.name, np.int64), np.array(types, np.int32)
    order = np.lexsort((node, start, rank))
    numbers, first = np.unique(rank[order], return_index=True)
    bounds = [*first.tolist(), len(order)]
    findings = _build_findings(spans, reading, len(rank))
    parts: list[Part] = []
    repeated = 0
    for index, number in enumerate(numbers.tolist()):
        rows = order[bounds[index] : bounds[index + 1]]
        repeated += len(rows) - len(find_distinct(node[rows]))
        graph = _build_graph(
            node[rows],
            kind[name[rows]],
            [names[code] for code in name[rows].tolist()],
            start[rows],
            end[rows],
        )
        rank_of = Rank(NONE, NONE, file=reading.name)
        parts.append(RankPart(rank_of, graph, number, tuple(findings) if not index else ()))
    if repeated:
        message = f"{reading.name}: nodes that repeat the id of an earlier node of their rank: {repeated:,}."
        hint = "The log holds several runs or passes, or recorded calls in pieces; each occurrence is a node."
        finding = Finding("warning", "duplicate-id", message, hint, file=reading.name)
        parts[0] = RankPart(parts[0].rank, parts[0].graph, parts[0].number, (*findings, finding))  # type: ignore[union-attr]
    return parts


def _build_graph(node: object, kind: object, names: Iterable[str], start: Int64, end: Int64) -> Graph:
    texts = Texts()
    codes = texts.of(names)
    nothing = Dependencies(np.zeros(len(codes) + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint64))
    columns = AttributeColumns(texts)
    columns.flag(UNFINISHED, np.flatnonzero(end < 0), value=True)
    lone = np.flatnonzero(start < 0)
    columns.numbers(CALLBACK, lone, end[lone])
    attrs, slot_key, _ = columns.finish(len(codes))
    return Graph(
        id=node,  # type: ignore[arg-type]
        type=kind,  # type: ignore[arg-type]
        name=codes,
        start_ns=start,
        duration_ns=np.where((start >= 0) & (end >= 0), end - start, 0),
        ctrl=nothing,
        data=nothing,
        io=np.empty((0, 6), np.int32),
        attrs=attrs,
        slot_key=slot_key,
        extra_row=np.empty(0, np.int32),
        extra=np.empty(0, np.int32),
        strings=texts.strings(),
    )


def _build_findings(spans: _Spans, reading: Reading, nodes: int) -> list[Finding]:
    name, counts = reading.name, spans.counts
    findings = [
        *reading.findings,
        Finding(
            "info",
            "timeline-only",
            f"{name}: a recorded timeline of {format_counted(nodes, 'node')}, without dependencies, sizes and groups.",
            "Look at its timeline; to simulate, open the traces the run was made of.",
            file=name,
        ),
    ]
    unfinished = sum(map(len, spans.open.values()))
    noticed = (
        (unfinished, "warning", "unfinished", "issues without a callback, kept with no duration"),
        (counts["without issue"], "warning", "no-issue", "callbacks without an issue, kept without a start"),
        (counts["backwards"], "warning", "backwards", "callbacks before their issue, kept with no duration"),
        (
            counts["never finished"],
            "warning",
            "rank-unfinished",
            "ranks that run nodes and have no line that says they finished",
        ),
        (
            counts["out of range"],
            "error",
            "bad-value",
            "lines with a rank, tick or id out of range, left out",
        ),
        (
            counts["incomplete"],
            "error",
            "damaged-line",
            "lines that begin like an event but are malformed, left out",
        ),
        (
            counts["type from name"],
            "info",
            "type-inferred",
            "names without a type beside them, typed by the name",
        ),
        (counts["no type"], "warning", "unknown-type", "names without a type"),
    )
    for count, level, code, what in noticed:
        if count:
            findings.append(Finding(level, code, f"{name}: {what}: {count:,}.", file=name))  # type: ignore[arg-type]
    return findings


# ---------------------------------------------------------------------------------------------------
# Writing

PREFIX = "[1970-01-01T00:00:00+0000] [{level}] <workload>: "
"""What ASTRA-sim's logger writes before a line, with a time that is the same every time."""
_ISSUE, _CALLBACK = "issue", "callback"


Cuts = Sequence[tuple[Int64, Int64, Int64]]
"""Of each graph row, start and end of the pieces of calls that ran in several: by row, then time."""


def write(trace: Trace, cuts: Cuts = ()) -> Iterator[str]:
    """Yield the lines of a recorded timeline in order of time; nodes that have neither start nor callback have none.

    At one tick callbacks come first, so that a node's own are in order unless it took no time. A node that never ended
    has no callback.

    Args:
        trace: The job.
        cuts: Calls that are issued for each piece of their own time, and call back after it; () where none are.
    """
    pieces = []
    for index, rank in enumerate(trace.ranks):
        graph = trace.graph_of(rank)
        ended = read_dense_column(graph, UNFINISHED, 0) == 0
        lone = read_dense_column(graph, CALLBACK, NONE)
        rows = np.flatnonzero((graph.start_ns >= 0) | (lone >= 0))
        start = graph.start_ns[rows]
        end = np.where(start >= 0, start + graph.duration_ns[rows], lone[rows])
        if cuts:
            rows, start, end = _cut_spans(rows, start, end, cuts[rank.graph])
        place = np.full(len(rows), index)
        begun, ended = start >= 0, ended[rows]
        issues = np.stack([start, np.ones(len(rows), np.int64), place, rows])
        # What takes no time ends after it began.
        callbacks = np.stack([end, np.where(end > start, 0, 2), place, rows])
        pieces += [issues[:, begun], callbacks[:, ended]]
    if not pieces:
        return
    when, what, rank_number, row = np.concatenate(pieces, axis=1)
    endings = [list_line_ends(graph) for graph in trace.graphs]
    order = np.lexsort((row, rank_number, what, when))
    for tick, word, index, node in zip(
        *(column[order].tolist() for column in (when, what, rank_number, row)), strict=True
    ):
        rank = trace.ranks[index]
        yield f"{_ISSUE if word == 1 else _CALLBACK},sys->id={rank.number},tick={tick},{endings[rank.graph][node]}\n"


def _cut_spans(
    rows: Int64, start: Int64, end: Int64, cut: tuple[Int64, Int64, Int64]
) -> tuple[Int64, Int64, Int64]:
    """Return rows, starts and ends with those of pieces in place of those of their calls."""
    whole = ~np.isin(rows, cut[0])
    columns = zip((rows, start, end), cut, strict=True)
    cut_rows, cut_start, cut_end = (np.append(column[whole], pieces) for column, pieces in columns)
    return cut_rows, cut_start, cut_end


def write_log(trace: Trace, cuts: Cuts = ()) -> Iterator[str]:
    """Yield the log of a recorded timeline, with a line for each rank that finished; of one that did not there is none.

    Args:
        trace: The job.
        cuts: As in `write`.
    """
    yield from map(format_log_line, write(trace, cuts))
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        timed = graph.start_ns >= 0
        if not timed.any() or read_dense_column(graph, UNFINISHED, 0).any():
            continue
        finish = int(compute_recorded_ends(graph)[timed].max())
        computing = timed & (graph.type == NodeType.COMP) & ~is_flagged(graph, "is_cpu_op")
        yield finish_line(rank.number, finish, finish - int(graph.duration_ns[computing].sum()))


def format_log_line(line: str) -> str:
    """Return an event line as it stands in ASTRA-sim's log: behind a prefix, with spaces between the columns."""
    word, rank, tick, node, rest = line.split(",", 4)
    name, _, kind = rest.rpartition(",")
    return f"{PREFIX.format(level='D')}{word},{rank}, {tick}, {node}, {name}, {kind}"


def finish_line(rank: int, finish: int, exposed: int) -> str:
    """Return the line with which a rank finishes; exposed communication is the finish less all compute, as ASTRA-sim has it."""
    level = PREFIX.format(level="I")
    return f"{level}sys[{rank}] finished, {finish} cycles, exposed communication {exposed % 2**64} cycles.\n"


def list_line_ends(graph: Graph) -> list[str]:
    """Return per node the end that both of its lines share; a name stays on one line."""
    names = [" ".join(name.split()) for name in graph.strings]
    columns = graph.id.tolist(), graph.name.tolist(), graph.type.tolist()
    return [
        f"node->id={number},node->name={names[name] if name >= 0 else ''},node->type={kind}"
        for number, name, kind in zip(*columns, strict=True)
    ]
