"""Launches and queues of a recording in words."""

from __future__ import annotations

from collections.abc import Sequence

from studio.analysis.job.launches import Launches, Queue
from studio.trace import NONE, label_stream
from studio.units import format_count, format_counted, format_ns

DELAY = (
    "From the end of the call that launched an operation of a device to the begin of the operation; nothing where it began "
    "during the call. Of a call that launched several, such as a graph, to the begin of the first. A long delay is no harm while "
    "the queue is full: the operation waits for those before it. HTA's launch delay is the same, in whole microseconds."
)
QUEUE = (
    "Operations that were launched on a stream and have not ended; HTA counts until they begin. While it is empty the device "
    "waits for the host. Operations whose launch was not recorded are left out. The queue is told of from the first launch on, to "
    "the end of the last operation launched."
)


_WHOLE = 0.99
"""The part of a recording from which on a queue is said to be of all of it."""


def describe_launches(launches: Launches) -> list[str]:
    r"""Return sentences about the launches of a recording: their delay, and how their work compares with it.

    Example:
        >>> from studio.analysis.job.launches import Delays
        >>> delays = Delays(4, 4, 0, 1_000, 34_000, 34_000, 1, 1)
        >>> print(*describe_launches(Launches(delays, 2_000, 0, {}, ())), sep="\n")
        launch delay: median 1.00 µs, 99 % within 34.0 µs, longest 34.0 µs, over 4 launches
        work that waited longer than it took: 25 % of launches; work shorter than its call (median 2.00 µs): 25 %
    """
    every = launches.all
    what = format_counted(every.count, "launch", "launches")
    if every.operations != every.count:
        what += f" of {format_count(every.operations)} operations"
    delay = (
        f"launch delay: median {format_ns(every.median_ns)}, 99 % within {format_ns(every.p99_ns)}, "
        f"longest {format_ns(every.most_ns)}, over {what}"
    )
    compared = (
        f"work that waited longer than it took: {_format_percent(every.late, every.count)} of launches; "
        f"work shorter than its call (median {format_ns(launches.call_ns)}): {_format_percent(every.short, every.count)}"
    )
    lines = [delay, compared]
    if launches.unknown:
        lines.append(
            f"launched outside of the recording and left out: {format_counted(launches.unknown, 'operation')}"
        )
    return lines


def describe_stream(queue: Queue, queues: Sequence[Queue]) -> str:
    """Return which stream a queue is of, with the device where queues of its rank are of several; "" where that is not recorded."""
    if queue.stream == NONE:
        return ""
    devices = {other.device for other in queues if other.rank == queue.rank}
    return f"stream {label_stream(queue.stream, queue.device if len(devices) > 1 else NONE)}"


def describe_queue(queue: Queue, queues: Sequence[Queue] = ()) -> str:
    """Return a sentence about a queue.

    Args:
        queue: The queue.
        queues: All of the job, which tell whether its rank has several devices.

    Example:
        >>> import numpy as np
        >>> nothing = np.zeros(0)
        >>> describe_queue(Queue(0, 0, 7, 3, 0.84, 3, 0.45, 2, 0.59, nothing.astype(np.int64), nothing))
        'queue of rank 0, stream 7: 0.8 operations on average, 3 at most, empty for 59 % of the time'

    Before the first launch there is no queue, which is said where it is a part of the recording:
        >>> late = Queue(0, 0, 7, 3, 0.84, 3, 0.45, 2, 0.0, np.array([219_000_000, 379_000_000]), np.ones(1), 379_000_000)
        >>> describe_queue(late)
        'queue of rank 0, stream 7: 0.8 operations on average, 3 at most, empty for 0 % of the time from the first launch on (160 ms of 379 ms)'
    """
    window_ns, recorded_ns = queue.window_ns, queue.recorded_ns
    window = ""
    if window_ns < _WHOLE * recorded_ns:
        window = f" from the first launch on ({format_ns(window_ns)} of {format_ns(recorded_ns)})"
    stream = describe_stream(queue, queues)
    return (
        f"queue of rank {queue.rank}{stream and ', '}{stream}: {queue.mean:,.1f} operations on average, {queue.most:,} at most, "
        f"empty for {100 * queue.empty:.0f} % of the time{window}"
    )


def _format_percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.0f} %"
