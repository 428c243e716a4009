"""Memory over time: what a job's allocator held, by rank and device, the peak, and whose tensors make it.

Of a recording whose profiler noted memory, bytes are those that PyTorch's caching allocator had given out: exact, with what
was allocated before the recording began. The allocator itself holds more of the device (`reserved_bytes`), and the context of
the device, libraries and other processes are not in it.

Without such notes it is estimated from the storages of tensors that operators name: each from its first to its last use, at
the largest size that a tensor needs of it. Where an operator gives out a storage that it did not take in, another life begins.
The estimate lacks workspaces and what no operator names, and is too high where recorders give a freed storage's id to another
one that no recorded operator gives out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.columns import join_ranges
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, Graph, Int32, Int64, Trace, is_generated, read_dense_column

HOST_MEMORY = -1
"""The device number of the processor's memory."""
BEFORE = ""
"""Stands for the operator of what was allocated before the recording began."""
_KEYS = ("ns", "bytes", "device", "address", "total", "reserved")
_STORAGE = re.compile(r"[\[(]\d+,\s*(\d+),\s*(\d+),\s*(\d+),\s*(\d+),\s*'([^']{1,64})'[\])]")
_DEVICE = re.compile(r"[a-z]+:(\d+)")


@dataclass(frozen=True, slots=True)
class Holder:
    """What operators of one name hold of the memory at the peak.

    Attributes:
        name: The operator that allocated it, or the first that names it, untrusted text; `BEFORE` for what was there before the recording began.
        bytes: Bytes.
        count: Allocations, or storages; 0 for what was there before.
    """

    name: str
    bytes: int
    count: int

    @property
    def was_there(self) -> bool:
        """Whether it is what was there before the recording began, of which no operator is known."""
        return self.name == BEFORE and not self.count


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of one device of a rank over time.

    M changes.

    Attributes:
        rank: Number of the rank.
        device: Number of the device, `HOST_MEMORY` for the processor's memory.
        time_ns: (M,) when it changes, rising.
        bytes: (M,) bytes held from then on.
        before_bytes: Bytes held before the first change.
        peak_bytes, peak_ns: The most, and when first.
        reserved_bytes: The most that the allocator held of the device, -1 where nothing tells.
        holders: Who holds the peak, the most first.
        noted: Whether a profiler noted allocations; else it is estimated from tensors, or counted.
        counted: Whether it is counted by the formulas of a generated job, which nobody recorded.
    """

    rank: int
    device: int
    time_ns: Int64
    bytes: Int64
    before_bytes: int
    peak_bytes: int
    peak_ns: int
    reserved_bytes: int
    holders: tuple[Holder, ...]
    noted: bool
    counted: bool = False

    __repr__ = format_record


def compute_memory_use(trace: Trace, times: NodeTimes, *, estimated: bool = True) -> list[MemoryUse]:
    """Return the memory of each device of each rank, by rank and device; nothing where a trace tells nothing.

    Args:
        trace: The job.
        times: When its nodes ran. In a simulation an allocation happens as long after the start of its operator as recorded.
        estimated: Whether to estimate it from tensors where no allocations were noted.
    """
    uses: list[MemoryUse] = []
    known: dict[tuple[int, int], list[MemoryUse]] = {}
    for place, rank in enumerate(trace.ranks):
        first = int(times.first[place])
        if first == NONE:
            continue
        if (rank.graph, first) not in known:
            graph = trace.graphs[rank.graph]
            start, end = (column[first : first + len(graph)] for column in (times.start_ns, times.end_ns))
            noted = _read_noted(graph, start)
            known[rank.graph, first] = noted or (
                _estimate_from_tensors(graph, start, end) if estimated else []
            )
        counted = is_generated(rank)
        uses += [
            _assign_rank(use, rank.number, counted=counted and use.noted) for use in known[rank.graph, first]
        ]
    return uses


def find_gpu_peak(uses: Sequence[MemoryUse]) -> MemoryUse | None:
    """Return the use of the device memory with the highest peak, None where no device's memory is known."""
    return max(
        (use for use in uses if use.device != HOST_MEMORY), key=lambda use: use.peak_bytes, default=None
    )


def label_origin(use: MemoryUse) -> str:
    """Say where a figure of memory is from: `noted`, `counted` or `estimated`."""
    return "noted" if use.noted else "counted" if use.counted else "estimated"


def _assign_rank(use: MemoryUse, rank: int, *, counted: bool) -> MemoryUse:
    return MemoryUse(
        rank, use.device, use.time_ns, use.bytes, use.before_bytes, use.peak_bytes, use.peak_ns,
        use.reserved_bytes, use.holders, use.noted and not counted, counted,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------
# Allocations that a profiler noted


def _read_noted(graph: Graph, start_ns: Int64) -> list[MemoryUse]:
    columns: dict[str, Int64] = {}
    row = np.zeros(0, np.int64)
    for key in _KEYS:
        row, columns[key] = _list_items(graph, f"memory_{key}")
    if not len(row) or len({len(column) for column in columns.values()}) > 1:
        return []
    timed = start_ns[row] >= 0
    row, columns = row[timed], {key: column[timed] for key, column in columns.items()}
    time = np.maximum(start_ns[row] + columns["ns"], 0)
    order = np.lexsort((np.arange(len(row)), time))
    uses = []
    for device in find_distinct(columns["device"]).tolist():
        here = order[columns["device"][order] == device]
        uses.append(
            _compute_noted_use(graph, device, row[here], time[here], {k: c[here] for k, c in columns.items()})
        )
    return uses


def _list_items(graph: Graph, key: str) -> tuple[Int64, Int64]:
    """Return the row and the value (M,) of each item of the lists of an attribute."""
    rows, where = graph.rows_with(key)
    length = graph.attrs.length[where].astype(np.int64)
    before = np.cumsum(length) - length
    places = np.arange(int(length.sum())) + np.repeat(graph.attrs.value[where] - before, length)
    return np.repeat(rows, length).astype(np.int64), graph.attrs.items[places]


def _compute_noted_use(
    graph: Graph, device: int, row: Int64, time: Int64, columns: dict[str, Int64]
) -> MemoryUse:
    size, total = columns["bytes"], columns["total"]
    # The total after an event, without the changes up to it, is what was there before; the least that is never negative.
    changed = np.cumsum(size)
    totalled = np.flatnonzero(total >= 0)
    before = int(total[totalled[0]] - changed[totalled[0]]) if len(totalled) else 0
    before = max(before, -int(changed.min()), 0)
    level = changed + before
    peak = int(np.argmax(level))
    at_start = before >= int(level[peak])
    live = {} if at_start else _find_live(row[: peak + 1], size[: peak + 1], columns["address"][: peak + 1])
    last = np.append(np.flatnonzero(np.diff(time)), len(time) - 1)
    peak_bytes = before if at_start else int(level[peak])
    return MemoryUse(
        NONE,
        device,
        time[last],
        level[last],
        before,
        peak_bytes,
        0 if at_start else int(time[peak]),
        int(columns["reserved"].max(initial=NONE)) if device != HOST_MEMORY else NONE,
        _list_holders(graph, list(live.values()), peak_bytes),
        True,
    )


def _find_live(row: Int64, size: Int64, address: Int64) -> dict[int, tuple[int, int]]:
    """Return row and bytes of what was allocated and not freed, by address."""
    live: dict[int, tuple[int, int]] = {}
    for at, node, count in zip(address.tolist(), row.tolist(), size.tolist(), strict=True):
        if count > 0:
            live[at] = (node, count)
        else:
            live.pop(at, None)
    return live


def _list_holders(graph: Graph, live: Sequence[tuple[int, int]], peak: int) -> tuple[Holder, ...]:
    by_name: dict[str, list[int]] = {}
    for row, count in live:
        entry = by_name.setdefault(graph.strings[int(graph.name[row])], [0, 0])
        entry[0] += count
        entry[1] += 1
    holders = [Holder(name, held, count) for name, (held, count) in by_name.items()]
    rest = peak - sum(holder.bytes for holder in holders)
    if rest > 0:
        holders.append(Holder(BEFORE, rest, 0))
    return tuple(sorted(holders, key=lambda holder: -holder.bytes))


def describe_holder(use: MemoryUse, holder: Holder) -> str:
    """Name who holds memory: an operator, or what was there before all of them."""
    if not holder.was_there:
        return holder.name
    return "there from the beginning" if use.counted else "before the recording"


# ---------------------------------------------------------------------------------------------------
# Storages of tensors


def _estimate_from_tensors(graph: Graph, start_ns: Int64, end_ns: Int64) -> list[MemoryUse]:
    if not len(graph.io):
        return []
    taken, given = _parse_storages(graph, graph.io[:, 0]), _parse_storages(graph, graph.io[:, 3])
    row, storage, size, device = (np.concatenate(pair) for pair in zip(taken, given, strict=True))
    out: Bool = np.arange(len(row)) >= len(taken[0])
    kept = (start_ns[row] >= 0) & (end_ns[row] >= 0) & (size > 0)
    row, storage, size, device = (column[kept] for column in (row, storage, size, device))
    out = out[kept]
    # With the operators it calls: what an operator gives out is there for certain when it returns, what it takes all along.
    whole = np.maximum(end_ns, start_ns + read_dense_column(graph, "inclusive_ns", 0))[row]
    uses = _Uses(
        row, storage, size, np.where(out, whole, start_ns[row]), whole, _begins(graph, row, storage, out)
    )
    return [
        _estimate_use(graph, number, uses.of(device == number)) for number in find_distinct(device).tolist()
    ]


@dataclass(frozen=True, slots=True)
class _Uses:
    """Uses (U,) of storages: the node, the storage and its bytes, from when until when, and whether a life begins."""

    row: Int64
    storage: Int64
    size: Int64
    start: Int64
    end: Int64
    begins: Bool

    def of(self, which: Bool | Int64) -> _Uses:
        return _Uses(*(getattr(self, name)[which] for name in self.__slots__))


def _begins(graph: Graph, row: Int64, storage: Int64, out: Bool) -> Bool:
    """Return which uses (U,) are of operators that give out a storage and do not take it in."""
    if not len(row):
        return np.zeros(0, np.bool_)
    use = np.unique(np.stack((storage, row), axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    takes = np.zeros(int(use.max()) + 1, np.bool_)
    takes[use[~out]] = True
    # Kernels repeat the tensors of their operator: they use them, and give out none.
    begins: Bool = out & ~takes[use] & (read_dense_column(graph, "is_cpu_op", 1)[row] != 0)
    return begins


def _parse_storages(graph: Graph, codes: Int32) -> tuple[Int64, Int64, Int64, Int64]:
    """Return row, storage, bytes and device of each tensor in a column of texts."""
    used, back = np.unique(codes, return_inverse=True)
    parsed = [_parse(graph.strings[code]) if code >= 0 else [] for code in used.tolist()]
    counts = np.array([len(tensors) for tensors in parsed], np.int64)
    flat = np.array([tensor for tensors in parsed for tensor in tensors], np.int64).reshape(-1, 3)
    first = np.cumsum(counts) - counts
    back = back.reshape(-1)
    many = counts[back]
    row = np.repeat(np.arange(len(codes)), many)
    places = join_ranges(first[back], many)
    return row, flat[places, 0], flat[places, 1], flat[places, 2]


def _parse(text: str) -> list[tuple[int, int, int]]:
    """Return storage, bytes and device of the tensors in a text.

    Example:
        >>> _parse("[[71, 72, 10, 192, 4, 'cuda:1'], 1]")
        [(72, 808, 1)]
    """
    tensors = []
    for storage, offset, count, width, device in _STORAGE.findall(text):
        number = _DEVICE.fullmatch(device)
        needs = (int(offset) + int(count)) * int(width)
        if max(needs, int(storage)) < 2**62:
            # "cuda" without a number is the first.
            place = int(number[1]) if number else HOST_MEMORY if device == "cpu" else 0
            tensors.append((int(storage), needs if int(count) else 0, place))
    return tensors


def _estimate_use(graph: Graph, device: int, uses: _Uses) -> MemoryUse:
    uses = uses.of(np.lexsort((uses.row, uses.start, uses.storage)))
    first = np.flatnonzero(np.append(True, np.diff(uses.storage) != 0) | uses.begins)
    start, end = uses.start[first], np.maximum.reduceat(uses.end, first)
    # Lives of one storage do not overlap: an operator that calls another gives out the same tensor.
    same = np.append(np.diff(uses.storage[first]) == 0, False)
    end[same] = np.minimum(end[same], np.append(start[1:], 0)[same])
    largest = np.maximum.reduceat(uses.size, first)
    times, place = np.unique(np.concatenate((end, start)), return_inverse=True)
    change = np.concatenate((-largest, largest)).astype(np.float64)
    level = np.cumsum(np.bincount(place.reshape(-1), change, len(times))).astype(np.int64)
    peak = int(np.argmax(level))
    when = int(times[peak])
    live = first[(start <= when) & (end > when)]
    size = largest[(start <= when) & (end > when)]
    held = list(zip(uses.row[live].tolist(), size.tolist(), strict=True))
    return MemoryUse(
        NONE, device, times, level, 0, int(level[peak]), when, NONE,
        _list_holders(graph, held, int(level[peak])), False,
    )  # fmt: skip
