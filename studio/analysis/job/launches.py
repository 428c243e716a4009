"""How long launches took to become work of a device, and how much each stream had before it over time.

The terms are those of Holistic Trace Analysis (HTA 0.5, `get_cuda_kernel_launch_stats` and `get_queue_length_time_series`): the
launch delay is the time from the end of the call that launched an operation to the operation's begin, 0 where it began during
the call; an operation is short if it took less time than its call. Where HTA counts an operation into the queue until it begins,
the queue here is what was launched and has not ended; what had not begun is told beside it. A call that launched several
operations, such as a graph, has the delay of the first, and all they took is its work.

Recordings tell launches; operations whose launch was not recorded are counted and left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.kernels import mask_numbers
from studio.notebook import format_record
from studio.trace import (
    LAUNCH_CALL_NS,
    LAUNCH_NS,
    NONE,
    Bool,
    Float64,
    Graph,
    Int64,
    Trace,
    read_dense_column,
    read_int_column,
)

PIECES = 240
"""Pieces of time in which the length of a queue is told."""


@dataclass(frozen=True, slots=True)
class Delays:
    """Launches and how long after them their work began.

    Attributes:
        count: Calls that launched something.
        operations: What they launched.
        least_ns, median_ns, p99_ns, most_ns: Launch delays; of quantiles the smallest delay that at least so many have.
        late: Calls whose delay was longer than the work they launched.
        short: Calls that took longer than the work they launched.
    """

    count: int
    operations: int
    least_ns: int
    median_ns: int
    p99_ns: int
    most_ns: int
    late: int
    short: int

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Queue:
    """How many operations of a stream were launched and had not ended, over time.

    P pieces of time, from the first launch on the rank's device to the end of the last operation launched.

    Attributes:
        rank: The rank, the first of those that share the recording.
        device, stream: -1 where not recorded.
        count: Operations.
        mean, most: The length of the queue.
        waiting_mean, waiting_most: The same without what had begun, which is what HTA calls the queue length.
        empty: The share of the time in which there was nothing in it.
        edges_ns: (P+1,) where pieces begin and end, as the rank's clock says.
        length: (P,) the mean length in each.
        recorded_ns: How long the recording of the rank is, from its first node on.
    """

    rank: int
    device: int
    stream: int
    count: int
    mean: float
    most: int
    waiting_mean: float
    waiting_most: int
    empty: float
    edges_ns: Int64
    length: Float64
    recorded_ns: int = 0

    __repr__ = format_record

    @property
    def window_ns(self) -> int:
        """How long the queue is told of: from the first launch to the last end."""
        return int(self.edges_ns[-1] - self.edges_ns[0]) if len(self.edges_ns) else 0


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a recording.

    Attributes:
        all: Those of all ranks.
        call_ns: The median time of a call.
        unknown: Operations of devices whose launch was not recorded.
        by_name: The same by the name of the first operation launched, as `kernels` has names; untrusted text.
        queues: By rank and stream, those of the largest mean first within a rank.
    """

    all: Delays
    call_ns: int
    unknown: int
    by_name: dict[str, Delays]
    queues: tuple[Queue, ...]

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls of a graph that launched something: C calls.

    Attributes:
        name: (C,) names of the first operations, as codes of the graph.
        delay_ns, call_ns, work_ns: (C,) launch delay, time of the call, time of all it launched.
        operations: (C,) how many it launched.
    """

    name: Int64
    delay_ns: Int64
    call_ns: Int64
    work_ns: Int64
    operations: Int64


def find_launches(trace: Trace) -> Launches | None:
    """Return the launches that a recording holds; None where it holds none.

    Args:
        trace: The recording. Ranks that share a graph share its launches, each counted.
    """
    weights: dict[int, int] = {}
    first: dict[int, int] = {}
    for rank in trace.ranks:
        weights[rank.graph] = weights.get(rank.graph, 0) + 1
        first.setdefault(rank.graph, rank.number)
    parts, queues, unknown = [], [], 0
    codes: dict[str, int] = {}
    for index, weight in weights.items():
        graph = trace.graphs[index]
        rows = _find_launched(graph)
        unknown += weight * (len(graph.rows_with("device_kind")[0]) - len(rows))
        if len(rows):
            calls = _collect_calls(graph, rows)
            parts.append((calls, weight, _number_families(graph, calls.name, codes)))
            queues += _build_queues(graph, rows, first[index])
    if not parts:
        return None
    weight_of = np.concatenate([np.full(len(calls.name), weight) for calls, weight, _ in parts])
    name = np.concatenate([names for _, _, names in parts])
    columns = [
        np.concatenate([getattr(calls, key) for calls, _, _ in parts])
        for key in ("delay_ns", "call_ns", "work_ns", "operations")
    ]
    order = np.argsort(name, kind="stable")
    bounds = np.searchsorted(name[order], np.arange(len(codes) + 1)).tolist()
    by_name = {
        word: _compute_delays([column[order[low:high]] for column in columns], weight_of[order[low:high]])
        for word, low, high in zip(codes, bounds, bounds[1:], strict=False)
    }
    call_ns = _compute_quantile(columns[1], weight_of, 0.5)
    return Launches(_compute_delays(columns, weight_of), call_ns, unknown, by_name, tuple(queues))


def _find_launched(graph: Graph) -> Int64:
    """Return the operations of a device whose launch and begin were recorded."""
    rows, _ = read_int_column(graph, LAUNCH_NS)
    return rows[graph.start_ns[rows] >= 0].astype(np.int64)


def _collect_calls(graph: Graph, rows: Int64) -> _Calls:
    began, took = _compute_call_times(graph, rows)
    start, duration = graph.start_ns[rows], graph.duration_ns[rows]
    # Operations of one call have its number; of those without a number each is of its own.
    number = read_dense_column(graph, "correlation", NONE)[rows]
    number = np.where(number >= 0, number, number.max(initial=0) + 1 + np.arange(len(rows)))
    order = np.lexsort((start, number))
    begins = np.flatnonzero(np.append(True, np.diff(number[order]) != 0))
    first = order[begins]
    return _Calls(
        graph.name[rows[first]].astype(np.int64),
        np.maximum(start[first] - began[first] - took[first], 0),
        took[first],
        np.add.reduceat(duration[order], begins),
        np.diff(np.append(begins, len(order))),
    )


def _compute_call_times(graph: Graph, rows: Int64) -> tuple[Int64, Int64]:
    """Return when the calls that launched operations began, and how long they took."""
    before, took = (
        read_dense_column(graph, LAUNCH_NS, 0)[rows],
        read_dense_column(graph, LAUNCH_CALL_NS, 0)[rows],
    )
    return graph.start_ns[rows] - before, np.maximum(took, 0)


def _number_families(graph: Graph, names: Int64, codes: dict[str, int]) -> Int64:
    """Return the numbers (C,) of names without numbers of steps and layers; new ones are added to `codes`."""
    distinct, inverse = np.unique(names, return_inverse=True)
    words = [mask_numbers(graph.strings[code]) for code in distinct.tolist()]
    return np.array([codes.setdefault(word, len(codes)) for word in words], np.int64)[inverse]


def _compute_delays(columns: Sequence[Int64], weight: Int64) -> Delays:
    delay, call, work, operations = columns
    return Delays(
        int(weight.sum()),
        int((operations * weight).sum()),
        int(delay.min()),
        _compute_quantile(delay, weight, 0.5),
        _compute_quantile(delay, weight, 0.99),
        int(delay.max()),
        int(weight[delay > work].sum()),
        int(weight[call > work].sum()),
    )


def _compute_quantile(values: Int64, weight: Int64, share: float) -> int:
    """Return the smallest value that at least this share of the weight does not exceed.

    Example:
        >>> _compute_quantile(np.array([5, 1, 3]), np.array([1, 1, 2]), 0.5)
        3
    """
    if (weight == weight[0]).all():
        place = math.ceil(share * len(values)) - 1
        return int(np.partition(values, place)[place])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return int(values[order[np.searchsorted(reached, share * reached[-1], side="left")]])


# ---------------------------------------------------------------------------------------------------
# Queues


def _build_queues(graph: Graph, rows: Int64, rank: int) -> list[Queue]:
    """Return the queues of a rank's streams."""
    began, _ = _compute_call_times(graph, rows)
    start = graph.start_ns[rows]
    end = start + graph.duration_ns[rows]
    # A clock that is a little off may say that work began before its launch.
    began = np.minimum(began, start)
    window = int(began.min()), int(end.max())
    timed = graph.start_ns >= 0
    ends = graph.start_ns[timed] + np.maximum(graph.duration_ns[timed], 0)
    recorded = int(ends.max()) - int(graph.start_ns[timed].min())
    devices, device = np.unique(read_dense_column(graph, "device", NONE)[rows], return_inverse=True)
    streams, stream = np.unique(read_dense_column(graph, "stream", NONE)[rows], return_inverse=True)
    of = device * len(streams) + stream
    queues = []
    for code in np.flatnonzero(np.bincount(of)).tolist():
        in_queue = of == code
        whose = rank, int(devices[code // len(streams)]), int(streams[code % len(streams)])
        queues.append(
            _build_queue(whose, window, recorded, (began[in_queue], start[in_queue], end[in_queue]))
        )
    return sorted(queues, key=lambda queue: -queue.mean)


def _build_queue(
    whose: tuple[int, int, int],
    window: tuple[int, int],
    recorded_ns: int,
    operations: tuple[Int64, Int64, Int64],
) -> Queue:
    (low, high), (began, start, end) = window, operations
    whole = max(high - low, 1)
    edges = low + np.arange(PIECES + 1, dtype=np.int64) * whole // PIECES
    length = _Steps(began - low, end - low)
    waiting = _Steps(began - low, start - low)
    areas = np.diff(length.area(edges - low))
    widths = np.maximum(np.diff(edges), 1)
    return Queue(
        *whose,
        len(began),
        float(length.area(np.array([whole]))[0]) / whole,
        length.most,
        float(waiting.area(np.array([whole]))[0]) / whole,
        waiting.most,
        1 - length.busy(whole) / whole,
        edges,
        areas / widths,
        recorded_ns,
    )


class _Steps:
    """How many of some intervals are under way, as a function of time."""

    def __init__(self, begin: Int64, end: Int64) -> None:
        time = np.concatenate([begin, end])
        change = np.repeat(np.array([1, -1], np.int64), len(begin))
        # What ends at a time is no longer there when something else begins then.
        order = np.lexsort((change, time))
        self.time, self.change = time[order], change[order]
        self.count = np.cumsum(self.change)

    @property
    def most(self) -> int:
        """The most at a time."""
        return int(self.count.max(initial=0))

    def area(self, until: Int64) -> Int64:
        """Return the sum over time (M,) from the beginning to some times."""
        passed = np.append(0, self.count), np.append(0, np.cumsum(self.change * self.time))
        place = np.searchsorted(self.time, until, side="right")
        area: Int64 = passed[0][place] * until - passed[1][place]
        return area

    def busy(self, until: int) -> int:
        """Return for how long there was any, up to a time."""
        lasts = np.diff(np.append(self.time, until))
        is_busy: Bool = self.count > 0
        return int(lasts[is_busy].sum())
