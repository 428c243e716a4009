"""The runs that are compared: a recording or a simulation, and what its network carried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.accounting import TimedRun, build_ledger
from studio.analysis.job.device_parts import DeviceParts, compute_device_parts
from studio.analysis.job.ledger import Delays, Ledger
from studio.errors import TraceError
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, CommGroup, Float64, Int64, Trace


@dataclass(frozen=True, slots=True)
class Carried:
    """Traffic of the parts of a network: its dimensions, or its links.

    L parts.

    Attributes:
        names: What they are called; parts of the same name are compared.
        bytes: (L,) bytes sent.
        busy_ns: (L,) how long one port takes to send what a rank sent, in the mean; how long a link was sending. NaN
            where that is not known.
        load: (L,) what was sent until the finish over what could have been: 1 is all of the bandwidth. NaN where
            that is not known.
        about: What the load is, in words.
    """

    names: tuple[str, ...]
    bytes: Int64
    busy_ns: Float64
    load: Float64
    about: str = ""

    __repr__ = format_record


NOTHING_CARRIED = Carried((), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Side:
    """A run to compare.

    R ranks.

    Attributes:
        trace: The job.
        times: When its nodes ran.
        finish_ns: (R,) how long each rank took from the beginning of the run, -1 where nothing is known of it.
        origin_ns: When the run began.
        groups: Comm groups in place of the trace's.
        dimensions, links: What its network carried; nothing in a recording.
        model: The model that was simulated; "" for a recording.
        is_recording: Whether the times were measured.
        joins: Whether ranks waited for each other in their communication: not where each node takes its recorded time.
        delays: Works out what a simulation tells of its communication, None where it tells nothing.
        dimensions_between: Returns which dimensions of its network lie between some ranks, given by number; None where there
            is no network, or none of dimensions.
        system: What was simulated but for the speeds of its dimensions, equal where that is; None where there is none of dimensions.
        speeds: Bandwidth in bytes per ns and latency in ns of a message of each dimension.
        explain_choice: Returns why a collective, given by CollectiveType, size in bytes and ranks, is not carried out in the quickest way,
            "" where it is; None where no library chooses.
    """

    trace: Trace
    times: NodeTimes
    finish_ns: Int64
    origin_ns: int = 0
    groups: Sequence[CommGroup] | None = None
    dimensions: Carried = NOTHING_CARRIED
    links: Carried = NOTHING_CARRIED
    model: str = ""
    is_recording: bool = False
    joins: bool = True
    delays: Callable[[], Delays | None] | None = None
    dimensions_between: Callable[[Sequence[int]], tuple[int, ...]] | None = None
    system: object = None
    speeds: tuple[tuple[float, float], ...] = ()
    explain_choice: Callable[[int, int, Sequence[int]], str] | None = None

    __repr__ = format_record

    @property
    def makespan_ns(self) -> int:
        """From the start of the run to the end of its last node."""
        return int(self.finish_ns.max())

    def ledger(self, own: Bool | None = None) -> Ledger:
        """Return where each nanosecond of its ranks went; given (T,) which of the times are told, that of those alone."""
        run = TimedRun(
            self.trace,
            self.times,
            self.finish_ns,
            self.groups,
            origin_ns=self.origin_ns,
            is_recording=self.is_recording,
            joins=self.joins,
            delays=self.delays and self.delays(),
        )
        return build_ledger(run, own)

    def device_parts(self, account: Ledger) -> DeviceParts | None:
        """Return where the time of each device went, given that of its ranks; None where no rank has several."""
        return compute_device_parts(self.trace, self.times, account, self.ledger)


def build_recorded_side(trace: Trace, times: NodeTimes) -> Side:
    """Return a recording as a side; it begins with the first node of any rank.

    Raises:
        TraceError: No node has a time.
    """
    known = np.flatnonzero(times.first != NONE)
    spans = times.spans(trace, known)
    if not len(spans.row):
        raise TraceError(
            "The files of this job hold no times.",
            hint="Simulate it and keep the run (chakra-studio simulate FILES --preset NAME --out RUN), then name the run.",
        )
    origin = int(spans.start_ns.min())
    return Side(trace, times, times.finishes(trace, origin), origin, is_recording=True)


def compute_durations(side: Side, rank: int, rows: Int64) -> Int64:
    """Return how long nodes of a rank ran, -1 where they have no times."""
    first = int(side.times.first[rank])
    if first == NONE:
        return np.full(len(rows), NONE, np.int64)
    start, end = side.times.start_ns[first + rows], side.times.end_ns[first + rows]
    return np.where(start >= 0, end - start, NONE)
