"""What the finish of a run grew by, shared out by where the time of a rank went."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from studio.analysis.compare.sides import Side
from studio.analysis.job.ledger import AFTER_FINISH, IDLE, NOT_TOLD_APART, PART_CODES, PARTS, PartTimes
from studio.columns import group_places
from studio.notebook import format_record
from studio.trace import NONE, Int64

STEPS: tuple[str, ...] = (*PARTS, AFTER_FINISH)
"""The steps of a waterfall: the parts of a rank's time, and what follows until the last rank's finish."""
Basis = Literal["busiest", "mean"]


@dataclass(frozen=True, slots=True)
class Step:
    """A part of both makespans.

    Attributes:
        part: Which of `STEPS`.
        a_ns, b_ns: What it takes of each.
        share: Its difference as a part of that of the finish, None where the finishes are equal.
    """

    part: str
    a_ns: int
    b_ns: int
    share: float | None

    __repr__ = format_record

    @property
    def difference_ns(self) -> int:
        """What it adds from A's makespan to B's."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The steps from A's makespan to B's; they add up exactly.

    Attributes:
        basis: `busiest`: the rank that waits and idles least in both runs, of several devices these in the mean; `mean`: all
            ranks, or devices, in the mean, rounded so that the sum stays exact.
        rank: The number of the rank looked at, -1 for the mean.
        a_ns, b_ns: The finishes.
        steps: All of `STEPS`, in that order.
        before_ns: What of the stalls of A and of B lies before recordings began, where nothing is known of a rank.
    """

    basis: Basis
    rank: int
    a_ns: int
    b_ns: int
    steps: tuple[Step, ...]
    before_ns: tuple[int, int] = (0, 0)

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Use:
    """Where the time of one side goes.

    K ranks with times; D devices, where ranks have several, else these ranks.

    Attributes:
        places: (K,) their places in the trace.
        ns: (K, 12) time in each of `STEPS`, of ranks with several devices that of these in the mean; every row adds up to the
            finish of the run.
        device_ns: (D, 12) the same of devices.
        times: That of devices by name.
        before_ns: (K,) what of their stalls lies before their recordings began.
        device_before_ns: (D,) the same of devices.
    """

    places: Int64
    ns: Int64
    device_ns: Int64
    times: PartTimes
    before_ns: Int64
    device_before_ns: Int64

    @property
    def has_devices(self) -> bool:
        """Whether ranks have several devices."""
        return len(self.device_ns) > len(self.ns)

    def busiest(self) -> Int64:
        """Return the indices of the ranks that wait and idle least, several where they lose the same."""
        lost = self.ns[:, [STEPS.index(step) for step in ("waiting", *IDLE, AFTER_FINISH)]].sum(axis=1)
        return np.flatnonzero(lost == lost.min()) if len(lost) else np.zeros(0, np.int64)

    def mean(self) -> Int64:
        """Return (12,) the mean over devices."""
        return _compute_mean_row(self.device_ns)


def _compute_mean_row(ns: Int64) -> Int64:
    """Return (12,) the mean of rows (N, 12) in whole ns, rounded so that the sum is exact."""
    total: Int64 = ns.sum(axis=0)
    count = max(len(ns), 1)
    whole, rest = total // count, total % count
    lacking = (int(total.sum()) // count) - int(whole.sum())
    whole[np.argsort(-rest, kind="stable")[:lacking]] += 1
    return whole


def compute_uses(a: Side, b: Side) -> tuple[Use, Use]:
    """Return where the time of both sides goes, in parts that both tell apart."""
    plain = a.is_recording or b.is_recording
    return _compute_use(a, plain=plain), _compute_use(b, plain=plain)


def _compute_use(side: Side, *, plain: bool) -> Use:
    account = side.ledger()
    devices = side.device_parts(account)
    times = account.totals() if devices is None else devices.times
    if plain:
        # A recording tells only waiting from the rest of communication: so does what is compared with it.
        ns, rest = times.ns.copy(), [PART_CODES[part] for part in NOT_TOLD_APART]
        ns[:, PART_CODES["communication"]] += ns[:, rest].sum(axis=1)
        ns[:, rest] = 0
        times = replace(times, ns=ns, is_recording=True)
    ns = of_ranks = np.column_stack([times.ns, times.after_finish_ns])
    before = account.before_ns
    if devices is not None:
        of_ranks = np.stack([_compute_mean_row(ns[places]) for _, places in group_places(devices.owner)])
        before = before[devices.owner]
    return Use(account.places, of_ranks, ns, times, account.before_ns, before)


def compute_share(difference: float, grew: int) -> float | None:
    """Return which share of the difference of the finishes a difference is; None where the finishes are equal."""
    return difference / grew if grew else None


def find_busiest(a: Side, b: Side, parts: tuple[Use, Use]) -> tuple[int, int]:
    """Return the numbers of the ranks that wait least in A and in B: the same one where ranks that lose the same allow it."""
    numbers = [
        [side.trace.ranks[place].number for place in use.places[use.busiest()].tolist()]
        for side, use in zip((a, b), parts, strict=True)
    ]
    both = set(numbers[1])
    common = next((number for number in numbers[0] if number in both), None)
    if common is not None:
        return common, common
    first, second = (ranks[0] if ranks else NONE for ranks in numbers)
    return first, second


def _get_row(side: Side, use: Use, number: int) -> Int64:
    """Return (12,) where the time of a rank goes, by its number."""
    row: Int64 = use.ns[_find_index(side, use, number)]
    return row


def _find_index(side: Side, use: Use, number: int) -> int:
    """Return which of the ranks with times has a number."""
    return next(
        index for index, at in enumerate(use.places.tolist()) if side.trace.ranks[at].number == number
    )


def build_waterfall(a: Side, b: Side, parts: tuple[Use, Use], basis: Basis, rank: int) -> Waterfall:
    """Return the steps from the finish of A to that of B.

    Args:
        a: What is compared with.
        b: What is compared.
        parts: Where the time of both goes.
        basis: Whether the steps are means, or those of one rank.
        rank: Number of that rank.
    """
    if basis == "mean":
        rank, columns = NONE, [use.mean() for use in parts]
        before = [int(use.device_before_ns.sum()) // max(len(use.device_before_ns), 1) for use in parts]
    else:
        columns = [_get_row(side, use, rank) for side, use in zip((a, b), parts, strict=True)]
        before = [
            int(use.before_ns[_find_index(side, use, rank)]) for side, use in zip((a, b), parts, strict=True)
        ]
    grew = b.makespan_ns - a.makespan_ns
    steps = (
        Step(part, before, after, compute_share(after - before, grew))
        for part, before, after in zip(STEPS, *(column.tolist() for column in columns), strict=True)
    )
    unknown = (before[0], before[1])
    return Waterfall(basis, rank, a.makespan_ns, b.makespan_ns, tuple(steps), unknown)
