"""The few numbers that jobs are compared by over time: step time, shares of the finish, imbalance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from studio.analysis.job.device_parts import DeviceParts
from studio.analysis.job.ledger import AFTER_FINISH, MADE_OF, PARTS, Ledger, PartTimes
from studio.analysis.job.step_spans import StepSpans
from studio.notebook import format_record
from studio.trace import Float64

EDITION: Final = 3
"""Raised when a measure means something else than before; what is kept of an older edition is measured again."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The few numbers by which runs are compared over time.

    Attributes:
        ranks: Ranks that have times.
        finish_ns: When the last of them finished; None where no node has a time.
        step_ns: The median over steps and ranks; None where no node tells its step.
        steps: How many steps there are.
        shares: The mean rank's share of the finish in each part of its time, in `exposed` and in `idle`, where ranks have
            several devices the mean device's; parts without time are left out.
        imbalance: The longest compute of a rank over the mean of all: 1 is even. None where nothing computes.
        edition: `EDITION` of these numbers.
    """

    ranks: int = 0
    finish_ns: int | None = None
    step_ns: int | None = None
    steps: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    imbalance: float | None = None
    edition: int = EDITION

    __repr__ = format_record

    @property
    def exposed(self) -> float | None:
        """The share of exposed communication; None where no node has a time."""
        return None if self.finish_ns is None else self.shares.get("exposed", 0.0)

    @property
    def idle(self) -> float | None:
        """The share of idle time; None where no node has a time."""
        return None if self.finish_ns is None else self.shares.get("idle", 0.0)

    @property
    def pace_ns(self) -> int | None:
        """The step time, or the finish where no node tells its step."""
        return self.finish_ns if self.step_ns is None else self.step_ns


def share_of_finish(times: PartTimes, key: str, finish_ns: int) -> float:
    """Return the mean rank's share of the finish in a part, or in what is made of parts."""
    if key == AFTER_FINISH:
        return float(times.after_finish_ns.mean()) / max(finish_ns, 1)
    column = times.of(*MADE_OF[key]) if key in MADE_OF else times.of(key)  # type: ignore[arg-type]
    return float(column.mean()) / max(finish_ns, 1)


def compute_imbalance(compute_ns: Float64) -> float | None:
    """Return the longest compute of a rank over the mean of all; None where nothing computes."""
    mean = float(compute_ns.mean())
    return float(compute_ns.max()) / mean if mean > 0 else None


def measure(account: Ledger, steps: StepSpans | None, devices: DeviceParts | None = None) -> Measures:
    """Return the measures of a run.

    Args:
        account: Where the time of its ranks went.
        steps: Its steps, where there are some.
        devices: Where the time of its devices went, where ranks have several.
    """
    times, finish = account.totals(), account.makespan_ns
    keys = (*PARTS, AFTER_FINISH, "exposed", "idle")
    share_of = times if devices is None else devices.times
    shares = {key: share_of_finish(share_of, key, finish) for key in keys}
    return Measures(
        ranks=len(account),
        finish_ns=finish,
        step_ns=None if steps is None else steps.typical_ns,
        steps=0 if steps is None else len(steps.steps),
        shares={key: share for key, share in shares.items() if share},
        imbalance=compute_imbalance(times.of("compute", "overlapped").astype(float)),
    )
