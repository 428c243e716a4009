"""What changes of a job or of its system would save; every figure is that of a simulation of the changed one.

`advise` takes a job, and a system or none. Without a system the job is replayed: compute and communication take their recorded
times, and the replay is first held against the recording. Changes of the system then need one: that of the family of the
recorded GPU. What cannot be simulated is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable

from studio.advice.search import find_advice
from studio.advice.terms import Advice, Advised, Baseline, Change, Kind, Progress, Sensitivity
from studio.sim.parts import Parts
from studio.trace import Trace

__all__ = ["Advice", "Advised", "Baseline", "Change", "Kind", "Sensitivity", "advise"]


def advise(
    trace: Trace,
    system: Parts | None = None,
    *,
    progress: Progress | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Advised:
    """Return what changes of a job, or of its system, would save.

    Args:
        trace: The job.
        system: What it runs on; None, or a replay, replays the recording.
        progress: Told how many simulations are done.
        cancel: Asked between simulations whether to stop.

    Raises:
        TraceError: The job cannot be simulated, or holds no recorded times and no system is given.
        Cancelled: `cancel` said so.

    Example:
        >>> import studio
        >>> from studio.advice.advice import advise
        >>> found = advise(studio.read(studio.sample_path("imbalance_8r")))
        >>> found.baseline.finish_ns == found.baseline.recorded_ns
        True
    """
    return find_advice(trace, system, progress=progress, cancel=cancel)
