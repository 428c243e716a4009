"""Read several jobs, of which one that cannot be read loses no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from studio.errors import TraceError, TraceFormatError
from studio.et.format import CONVERT_WITH_NPUS, NpusNeededError
from studio.et.job_builder import RanksNeededError
from studio.et.job_files import JobFiles, LeftOut, share_left_out

Made = TypeVar("Made")
UnreadError = TraceFormatError | TraceError
"""Why a job cannot be read."""


def read_each(
    jobs: Sequence[JobFiles],
    read: Callable[[JobFiles], Made],
    refused: Callable[[JobFiles, UnreadError], object] = lambda _job, _error: None,
    *,
    can_ask: bool = False,
) -> list[Made]:
    """Return what is made of each job that can be read; the files of others are listed with the nearest, as left out.

    Args:
        jobs: The jobs; those of few files are read first, as a bad file that is no part of another job is one by itself.
        read: Reads a job.
        refused: Told of a job that cannot be read, where others can be.
        can_ask: Whether somebody is there to say what a job leaves open: its NPUs, the ranks of its files.

    Raises:
        TraceFormatError, TraceError: None of them can be read.
        RanksNeededError, NpusNeededError: A job leaves it open, and somebody can be asked.
    """
    waiting = dict(sorted(enumerate(jobs), key=lambda item: len(item[1].ranks)))
    known, results = dict(waiting), dict[int, Made]()
    failed: list[tuple[JobFiles, UnreadError]] = []
    while waiting:
        index = next(iter(waiting))
        job = waiting.pop(index)
        try:
            results[index] = read(job)
        except (TraceFormatError, TraceError) as error:
            if can_ask and isinstance(error, (RanksNeededError, NpusNeededError)):
                raise
            failed.append((job, error))
            # Those that were read already are read again only where no other is left that could tell.
            others = waiting or {key: known[key] for key in results}
            lost = [_leave_out(name, error) for name in _list_names(job)]
            for key, more in zip(others, share_left_out(list(others.values()), lost), strict=True):
                if more:
                    results.pop(key, None)
                    waiting[key] = known[key] = replace(others[key], left_out=(*others[key].left_out, *more))
    if not results:
        raise failed[0][1]
    for job, reason in failed:
        refused(job, reason)
    return [results[index] for index in sorted(results)]


def _list_names(job: JobFiles) -> list[str]:
    return [file.name for file, _, _ in job.ranks]


def _leave_out(name: str, error: UnreadError) -> LeftOut:
    reason, hint = error.message, error.hint
    if isinstance(error, NpusNeededError):
        hint = f"Open what {CONVERT_WITH_NPUS} writes."
    if isinstance(error, RanksNeededError):
        reason = "its rank is unknown" if name in error.names else "the rank of files beside it is unknown"
    why = reason.removeprefix(f"{name}: ").strip().rstrip(".")
    return LeftOut(name, why, lost=True, hint=hint)
