"""What pages say of a background task."""

from __future__ import annotations

from studio.store.pace import describe_remaining
from studio.store.tasks import Task
from studio.units import format_bytes, format_count


def describe_progress(task: Task, now: float) -> str:
    """Describe the progress of a task in one sentence."""
    if task.error:
        return task.error.message
    if task.status != "running":
        return task.status
    if not task.total:
        return task.phase or "preparing"
    size = format_bytes if task.unit == "bytes" else format_count
    words = f"{task.phase} {100 * task.done // task.total} %".strip()
    words += f", {size(task.done)} of {size(task.total)}" + ("" if task.unit == "bytes" else f" {task.unit}")
    return ", ".join(filter(None, (words, describe_remaining(task.remaining_s(now)))))
