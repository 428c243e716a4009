"""What runs by name: kernels of a device, or operators, with count, time, share, and the rate of copies.

On a device every kernel, copy and collective counts, by the name it was recorded with. A job without a device has what
computes, communicates and moves memory. Steps, micro-batches, layers and the like count under one name: `step*.layer*.fc1`.
A receive that no stream of a device carries out only waits from when it was posted, so a message counts with its send.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.kinds import COMMUNICATION, COMPUTE, COPY, MEMORY, infer_work_kinds
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import NONE, STEP, Bool, Float64, Graph, Int64, NodeType, Strings, Trace, read_dense_column
from studio.units import format_counted

KIND_WORDS = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy", MEMORY: "memory"}
_COUNTED = re.compile(
    r"(?i)(?<![a-z])((?:step|mb|micro_?batch|layers?|iter(?:ation)?|blocks?|stage|expert|chunk)[ ._#-]?)\d+"
)
_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True, slots=True)
class Kernel:
    """All that runs under one name.

    Attributes:
        name: As recorded, with * for numbers of steps, layers and the like; untrusted text.
        kind: "compute", "communication", "copy" or "memory".
        count: How often it runs on all ranks.
        total_ns: How long, all together; what overlaps counts in full.
        share: Of the time of all that runs, of any name.
        least_ns, median_ns, most_ns: Of single ones.
        bytes: Bytes moved by those of known size; 0 where no size is known, and for what moves none.
        sized_ns: How long those took.
        longest: Rank and row of the longest one.
    """

    name: str
    kind: str
    count: int
    total_ns: int
    share: float
    least_ns: int
    median_ns: int
    most_ns: int
    bytes: int
    sized_ns: int
    longest: tuple[int, int]

    __repr__ = format_record

    @property
    def mean_ns(self) -> float:
        """The mean duration."""
        return self.total_ns / self.count

    @property
    def bytes_per_ns(self) -> float | None:
        """Achieved rate of copies and memory accesses; None where no size is known, or for other kinds."""
        moves = self.kind in (KIND_WORDS[COPY], KIND_WORDS[MEMORY])
        return self.bytes / self.sized_ns if moves and self.bytes and self.sized_ns else None


def list_kernels(trace: Trace, times: NodeTimes) -> list[Kernel]:
    """Return what ran by name, the longest in total first.

    Args:
        trace: The job.
        times: When its nodes ran.
    """
    names: dict[tuple[str, int], int] = {}
    parts: list[tuple[Int64, ...]] = []
    known: dict[tuple[int, int], int] = {}
    families: dict[bytes, str] = {}
    kinds = infer_work_kinds(trace)
    for place, first in enumerate(times.first.tolist()):
        graph = trace.ranks[place].graph
        if first == NONE:
            continue
        if (graph, first) in known:
            parts[known[graph, first]][5][0] += 1
            continue
        known[graph, first] = len(parts)
        parts.append(
            _collect_rank_kernels(trace.graphs[graph], kinds[graph], times, (place, first), names, families)
        )
    return _sum_kernels(parts, list(names), [rank.number for rank in trace.ranks])


def describe_receives(trace: Trace) -> str:
    """Say how many posted receives `list_kernels` leaves out, and why; empty where there are none."""
    counts = [int(are_posted_receives(graph).sum()) for graph in trace.graphs]
    count = sum(counts[rank.graph] for rank in trace.ranks)
    if not count:
        return ""
    return f"{format_counted(count, 'posted receive')} left out: they wait for messages, each of which counts with its send."


def are_posted_receives(graph: Graph) -> Bool:
    """Return (N,) which nodes are receives that no stream of a device carries out."""
    posted: Bool = (graph.type == NodeType.COMM_RECV) & (read_dense_column(graph, "stream", NONE) < 0)
    return posted


def mask_numbers(name: str) -> str:
    """Return a name with * for numbers that only count steps, layers and the like.

    Example:
        >>> mask_numbers("step0.mb1.layer12.fc1"), mask_numbers("nvjet_tst_64x64_bz")
        ('step*.mb*.layer*.fc1', 'nvjet_tst_64x64_bz')
    """
    return _COUNTED.sub(r"\1*", name)


def _mask_names(strings: Strings, codes: Int64, known: dict[bytes, str]) -> tuple[list[str], Int64]:
    """Return the families of names, each once, and (C,) which is whose.

    Jobs have a million names that differ in numbers alone. With one digit in place of each number few are left, and where
    a family keeps no number, it is that of all names that are alike then.

    Args:
        strings: The texts of a graph.
        codes: (C,) the names, of the texts.
        known: Families by texts with one digit in place of each number; those found are added.
    """
    data, offsets = strings.data, strings.offsets
    digit = (data >= ord("0")) & (data <= ord("9"))
    begins = np.zeros(len(data) + 1, np.bool_)
    begins[offsets] = True
    stays = np.ones(len(data), np.bool_)
    stays[1:] = ~(digit[1:] & digit[:-1] & ~begins[1:-1])
    block = np.where(digit, np.uint8(ord("0")), data)[stays].tobytes()
    bounds = offsets - np.searchsorted(np.flatnonzero(~stays), offsets)
    number: dict[str, int] = {}
    of_alike: dict[bytes, int] = {}
    of = []
    for code, low, high in zip(
        codes.tolist(), bounds[codes].tolist(), bounds[codes + 1].tolist(), strict=True
    ):
        alike = block[low:high]
        at = of_alike.get(alike)
        if at is None:
            name = known.get(alike)
            if name is None:
                name = known[alike] = mask_numbers(alike.decode("utf-8", "replace"))
            at = NONE if _DIGIT.search(name) else number.setdefault(name, len(number))
            of_alike[alike] = at
        of.append(number.setdefault(mask_numbers(strings[code]), len(number)) if at == NONE else at)
    return list(number), np.array(of, np.int64)


def _collect_rank_kernels(
    graph: Graph,
    kinds: Int64,
    times: NodeTimes,
    where: tuple[int, int],
    names: dict[tuple[str, int], int],
    families: dict[bytes, str],
) -> tuple[Int64, ...]:
    """Return key, row, duration, bytes and place of what ran on a rank, and how many ranks share it."""
    place, first = where
    start, end = (column[first : first + len(graph)] for column in (times.start_ns, times.end_ns))
    ran = np.isin(kinds, list(KIND_WORDS)) & (start >= 0) & (end >= start)
    rows = np.flatnonzero(ran & ~are_posted_receives(graph))
    code, inverse = np.unique(graph.name[rows].astype(np.int64) * 8 + kinds[rows], return_inverse=True)
    family_names, of = _mask_names(graph.strings, code // 8, families)
    # Annotations of steps run nothing.
    is_step = np.array([name.startswith(STEP) for name in family_names], np.bool_)[of]
    rows, inverse = rows[~is_step[inverse]], inverse[~is_step[inverse]]
    pairs, seen, which = np.unique(of * 8 + code % 8, return_index=True, return_inverse=True)
    number = np.full(len(pairs), NONE, np.int64)
    for pair in np.argsort(seen).tolist():
        if not is_step[seen[pair]]:
            what = (family_names[int(pairs[pair]) // 8], int(pairs[pair]) % 8)
            number[pair] = names.setdefault(what, len(names))
    numbers = number[which]
    size = np.maximum(read_dense_column(graph, "tensor_size", 0)[rows], 0)
    many = np.ones(1, np.int64)
    key = numbers[inverse] if len(rows) else np.zeros(0, np.int64)
    # A kernel that overlaps the next of its stream lasted longer than until that began.
    lasted = (end - start)[rows]
    whole = read_dense_column(graph, "inclusive_ns", NONE)[rows]
    longer = (read_dense_column(graph, "stream", NONE)[rows] >= 0) & (lasted == graph.duration_ns[rows])
    lasted = np.where(longer, np.maximum(whole, lasted), lasted)
    return key, rows, lasted, size, np.full(len(rows), place), many


def _sum_kernels(
    parts: list[tuple[Int64, ...]], names: list[tuple[str, int]], numbers: list[int]
) -> list[Kernel]:
    if not names:
        return []
    weight = np.concatenate([np.full(len(part[0]), part[5][0]) for part in parts])
    key, row, lasted, size, place = (np.concatenate([part[index] for part in parts]) for index in range(5))
    order = np.lexsort((lasted, key))
    key, row, lasted, size, place, weight = (
        column[order] for column in (key, row, lasted, size, place, weight)
    )
    begin = np.searchsorted(key, np.arange(len(names) + 1))
    count = np.add.reduceat(weight, begin[:-1])
    total = np.add.reduceat(lasted * weight, begin[:-1])
    moved = np.add.reduceat(size * weight, begin[:-1])
    sized = np.add.reduceat(np.where(size > 0, lasted, 0) * weight, begin[:-1])
    share: Float64 = total / max(int(total.sum()), 1)
    summed = []
    for index in np.argsort(-total, kind="stable").tolist():
        low, high = int(begin[index]), int(begin[index + 1])
        name, kind = names[index]
        summed.append(
            Kernel(
                name,
                KIND_WORDS[kind],
                int(count[index]),
                int(total[index]),
                float(share[index]),
                int(lasted[low]),
                _compute_median(lasted[low:high], weight[low:high]),
                int(lasted[high - 1]),
                int(moved[index]),
                int(sized[index]),
                (numbers[int(place[high - 1])], int(row[high - 1])),
            )
        )
    return summed


def _compute_median(ordered: Int64, weight: Int64) -> int:
    """Return the median of values in order that count as often as their weights say, of an even number the mean of both in the middle."""
    reached = np.cumsum(weight)
    # Counted from 0, the middle ones are the same where the number is odd.
    middle = [(int(reached[-1]) - 1) // 2, int(reached[-1]) // 2]
    return round(float(ordered[np.searchsorted(reached, middle, side="right")].mean()))
