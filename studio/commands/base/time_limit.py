"""A limit on how long a command may take."""

from __future__ import annotations

import time
from dataclasses import dataclass

from studio.errors import TraceError
from studio.et import Progress

SIMULATING = "simulating"
"""The phase in which nodes are counted, not bytes of files."""


@dataclass(slots=True)
class TimeLimit:
    """A time limit that stops reading or a simulation and records its progress.

    Attributes:
        started: When the clock began, by `time.monotonic`.
        seconds: How long it may take; None for ever.
        phase: What is being done; "" before anything was.
        done, total: How far it is: bytes read, or nodes completed, and of how many.
    """

    started: float
    seconds: float | None
    phase: str = ""
    done: int = 0
    total: int = 0

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and time.monotonic() - self.started > self.seconds

    def error(self) -> TraceError:
        """Return the error for a simulation that ran out of time."""
        share = 100 * self.done // max(self.total, 1)
        how_far = "it had not begun"
        if self.phase == SIMULATING and self.total:
            how_far = f"{share} % of its nodes were complete"
        elif self.phase and self.phase != SIMULATING:
            how_far = f"{self.phase} its files had come to {share} %"
        return TraceError(
            f"The simulation was stopped after the time limit of {self.seconds:g} s; {how_far}.",
            hint="Raise --time-limit, or leave it out.",
        )

    def watch(self, progress: Progress | None) -> Progress | None:
        """Return a progress callback that forwards its calls and raises when the time limit is over."""
        if self.seconds is None:
            return progress

        def tell(phase: str, done: int, total: int) -> None:
            self.phase, self.done, self.total = phase, done, total
            if self.is_over():
                raise self.error()
            if progress:
                progress(phase, done, total)

        return tell
