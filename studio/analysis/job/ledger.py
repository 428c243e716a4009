"""Where each nanosecond of every rank went: the one account that pages, reports and commands quote.

From the beginning of the run to a rank's finish each moment belongs to exactly one *part*, the first that holds:

- `overlapped`: compute or a copy is under way, and communication too; a half of a message that waits for the other is none, so that
  work behind a receive that was posted early hides nothing;
- `compute`; `copy` (between memories: memcpy, memset, loads and stores of remote memory);
- communication is under way and neither of these. The earliest issued of what is under way decides: `waiting` until the
  last member of its collective has begun; then `queueing` and `latency`, where a simulation tells them apart, and `transfer`,
  which is all the rest. Of a recording the rest is `communication`, since nothing tells it apart;
- nothing but halves of messages is under way whose other halves have not begun: `bubble` (another pipeline stage). A receive that
  was posted early so explains no time in which a collective holds up its rank. Some recordings note a receive only from the moment
  its message begins; the time right before, in which nothing was under way, is a bubble too: the rank waited for the sender;
- nothing is under way before a collective that all members of a recording begin at the same moment, and one of them was ready later:
  `waiting` until then, since such a recorder notes a collective only once all members are there;
- `host`: nothing is on the device, and the processor is busy or the device waits to be given work;
- `stall`: nothing is under way at all; the device may have been given its work long before and not have begun it, or nothing of the
  host is recorded. Of a recording also what lies before the first that was recorded of a rank (`Ledger.before_ns`), of which nothing
  is known: no conclusion names it as a stall.

Exposed communication is waiting, queueing, latency, transfer and communication; idle is bubble, host and stall. A rank that
ends before the last one has `after_finish` beside its parts. So parts add up to the finish of their rank, and with
`after_finish` to that of the run, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from studio.analysis.collectives.arrivals import Arrivals
from studio.analysis.job.own_time import OwnPieces
from studio.analysis.job.stretches import Stretches
from studio.notebook import build_html_table, format_record
from studio.trace import NONE, Bool, Float64, Int64, UInt8
from studio.units import format_ns

Part = Literal[
    "overlapped",
    "compute",
    "copy",
    "waiting",
    "bubble",
    "queueing",
    "latency",
    "transfer",
    "communication",
    "host",
    "stall",
]
PARTS: tuple[Part, ...] = get_args(Part)
EXPOSED: tuple[Part, ...] = ("waiting", "queueing", "latency", "transfer", "communication")
IDLE: tuple[Part, ...] = ("bubble", "host", "stall")
WORK: tuple[Part, ...] = ("compute", "overlapped", "copy")
MADE_OF: dict[str, tuple[Part, ...]] = {"exposed": EXPOSED, "idle": IDLE}
"""What sums of parts consist of."""
NOT_TOLD_APART: tuple[Part, ...] = ("queueing", "latency", "transfer")
"""Parts of a simulation that a recording has as `communication`."""
AFTER_FINISH = "after_finish"
PART_CODES = {part: code for code, part in enumerate(PARTS)}


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays of communication that a simulation reports; the rest of a node's time is transfer.

    T times, as in the `NodeTimes` they go with; 0 for what does not communicate.

    Attributes:
        waiting_ns: (T,) until all had come that it waits for; counted first.
        latency_ns: (T,) launch, protocol and hops; counted next.
        queueing_ns: (T,) how long its bytes stood behind others; counted then.
    """

    waiting_ns: Int64
    latency_ns: Int64
    queueing_ns: Int64


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where each nanosecond of the ranks with times went.

    K ranks, L distinct courses: ranks that were simulated as one share theirs.

    Attributes:
        numbers: (K,) the ranks' numbers.
        places: (K,) their places in the trace.
        finish_ns: (K,) how long each took from the beginning of the run.
        course: (K,) index into the lines of `stretches`.
        stretches: What each course did when, in ns after the beginning; kinds are indices into `PARTS`.
        is_recording: Whether communication is told apart into waiting and the rest only.
        owner: As the stretches: the communication whose time a stretch is, an index into the `NodeTimes` of the run; -1
            for stretches of other parts. A stretch is cut where its owner changes.
        first, begun_ns: As `NodeTimes` has times: when all participants of a node had begun it, on the clock of its
            rank; -1 where that is unknown or nobody else takes part.
        arrivals: Who began each collective and message last.
        origin_ns: When the run began, on the clock of its nodes.
        kinds: For each graph of the job (N,) the kinds of work of its nodes, as `infer_work_kinds` tells them.
        unseen: As the stretches: whether it is waiting before a collective was noted, with nothing under way.
        pieces: For each graph of a recording when its calls ran themselves, see `own_time`; () of simulations.
    """

    numbers: list[int]
    places: Int64
    finish_ns: Int64
    course: Int64
    stretches: Stretches
    is_recording: bool
    owner: Int64
    first: Int64
    begun_ns: Int64
    arrivals: Arrivals
    origin_ns: int = 0
    kinds: tuple[UInt8, ...] = ()
    unseen: Bool = field(default_factory=lambda: np.zeros(0, np.bool_))
    pieces: tuple[OwnPieces, ...] = ()

    __repr__ = format_record

    def __len__(self) -> int:
        return len(self.numbers)

    def _repr_html_(self) -> str:
        """Return a row for each rank."""
        ns = self.ns()
        used = [code for code in range(len(PARTS)) if ns[:, code].any()]
        rows = zip(
            self.numbers,
            *(map(format_ns, column.tolist()) for column in (self.finish_ns, *ns[:, used].T)),
            strict=True,
        )
        return build_html_table(
            "Where the time of each rank goes", ["rank", "finish", *(PARTS[code] for code in used)], rows
        )

    @property
    def makespan_ns(self) -> int:
        """When the last rank finished."""
        return int(self.finish_ns.max(initial=0))

    @property
    def after_finish_ns(self) -> Int64:
        """(K,) how long each rank was done before the last one."""
        after: Int64 = self.makespan_ns - self.finish_ns
        return after

    @property
    def before_ns(self) -> Int64:
        """(K,) how long after the run had begun the recording of each rank began, in which it counts as stalled; 0 of simulations."""
        lines = len(self.stretches)
        before = np.zeros(lines, np.int64)
        if self.is_recording:
            first = self.stretches.bounds[:-1]
            some = np.flatnonzero(self.stretches.bounds[1:] > first)
            at = first[some]
            stalls = (self.stretches.kind[at] == PART_CODES["stall"]) & (self.stretches.start[at] == 0)
            before[some[stalls]] = self.stretches.end[at[stalls]]
        return np.asarray(before[self.course], np.int64)

    def ns(self, start_ns: int = 0, end_ns: int | None = None) -> Int64:
        """Return (K, parts) the time in each of `PARTS` within a window, by default the whole run."""
        until = self.makespan_ns if end_ns is None else end_ns
        sums: Int64 = self.stretches.sums(start_ns, until, len(PARTS))[self.course]
        within = np.clip(self.finish_ns, start_ns, max(until, start_ns)) - start_ns
        assert (sums.sum(axis=1) == within).all(), "every nanosecond belongs to one part"
        return sums

    def within(self, windows: Int64) -> Int64:
        """Return (K, parts) the time in each of `PARTS` within a window of each rank's own, (K, 2) from where to where."""
        until = [self.stretches.until(self.course, windows[:, side], len(PARTS)) for side in (0, 1)]
        ends = np.clip(self.finish_ns[:, None], 0, windows)
        assert (until[1] - until[0]).sum(axis=1).tolist() == (ends[:, 1] - ends[:, 0]).tolist(), "as `ns`"
        sums: Int64 = until[1] - until[0]
        return sums

    def totals(self, start_ns: int = 0, end_ns: int | None = None) -> PartTimes:
        """Return the time of each rank in each part within a window, by the names of the parts, with sums such as idle."""
        until = self.makespan_ns if end_ns is None else end_ns
        after = until - np.clip(self.finish_ns, start_ns, max(until, start_ns))
        return PartTimes(self.ns(start_ns, end_ns), after, self.is_recording)

    def unseen_ns(self, start_ns: int = 0, end_ns: int | None = None) -> Int64:
        """Return (K,) for how long each rank waited in a window with nothing under way, see `unseen`."""
        until = self.makespan_ns if end_ns is None else end_ns
        chosen = np.flatnonzero(self.unseen)
        low, high = (
            np.clip(column[chosen], start_ns, until) for column in (self.stretches.start, self.stretches.end)
        )
        line = np.searchsorted(self.stretches.bounds, chosen, side="right") - 1
        total = np.zeros(len(self.stretches), np.int64)
        np.add.at(total, line, high - low)
        return np.asarray(total[self.course], np.int64)

    def unseen_at(self, place: int, row: int) -> int:
        """Return for how many ns a rank, by its place in the trace, waited for the last member before a node was noted, see `unseen`."""
        first = int(self.first[place])
        of_node = self.unseen & (self.owner == first + row) if first != NONE else np.zeros(0, np.bool_)
        return int((self.stretches.end - self.stretches.start)[of_node].sum()) if of_node.any() else 0

    def shares(self, edges_ns: Float64) -> Float64:
        """Return (parts, B) the share of the ranks in each of `PARTS` in the bins between B + 1 edges."""
        weight = np.bincount(self.course, minlength=len(self.stretches)).astype(np.float64)
        return self.stretches.shares(edges_ns, len(PARTS), weight)


@dataclass(frozen=True, slots=True)
class PartTimes:
    """Time of ranks by part.

    K ranks.

    Attributes:
        ns: (K, parts) time in each of `PARTS`.
        after_finish_ns: (K,) how long each was done before the last one.
        is_recording: Whether only waiting was told apart from the rest of communication.
    """

    ns: Int64
    after_finish_ns: Int64
    is_recording: bool = False

    __repr__ = format_record

    def of(self, *parts: Part) -> Int64:
        """Return (K,) the time in some parts."""
        total: Int64 = self.ns[:, [PART_CODES[part] for part in parts]].sum(axis=1)
        return total

    @property
    def exposed_ns(self) -> Int64:
        """(K,) exposed communication."""
        return self.of(*EXPOSED)

    @property
    def idle_ns(self) -> Int64:
        """(K,) idle time."""
        return self.of(*IDLE)

    @property
    def communicating_ns(self) -> Int64:
        """(K,) some communication was under way, hidden by work or not, bubbles included."""
        return self.of("overlapped", "bubble", *EXPOSED)

    def figures(self) -> dict[str, Int64]:
        """Return what the finish of the run is made of, in short: work, exposed communication, idle, and after the finish.

        Work and after the finish are left out where they are nothing, but for `compute`.
        """
        by_name: dict[str, Int64] = {part: self.of(part) for part in WORK}
        by_name["exposed"], by_name["idle"], by_name[AFTER_FINISH] = (
            self.exposed_ns,
            self.idle_ns,
            self.after_finish_ns,
        )
        always = ("compute", "exposed", "idle")
        return {name: column for name, column in by_name.items() if name in always or column.any()}

    def columns(self) -> dict[str, Int64]:
        """Return every part, what is made of them and `after_finish`, as they are called in tables and JSON.

        Parts that this kind of run does not tell apart are left out: a recording has `communication` in place of
        queueing, latency and transfer.
        """
        absent: tuple[Part, ...] = NOT_TOLD_APART if self.is_recording else ("communication",)
        by_name: dict[str, Int64] = {f"{part}_ns": self.of(part) for part in PARTS if part not in absent}
        by_name["communication_ns" if not self.is_recording else "communicating_ns"] = self.communicating_ns
        by_name["exposed_communication_ns"], by_name["idle_ns"] = self.exposed_ns, self.idle_ns
        by_name["after_finish_ns"] = self.after_finish_ns
        return by_name
