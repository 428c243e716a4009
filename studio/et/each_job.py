"""Read several jobs, of which one that cannot be read loses no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from studio.errors import TraceFormatError
from studio.et.job_files import JobFiles, LeftOut, share_left_out

Made = TypeVar("Made")


def read_each(
    jobs: Sequence[JobFiles],
    read: Callable[[JobFiles], Made],
    refused: Callable[[JobFiles, TraceFormatError], object] = lambda _job, _error: None,
) -> list[Made]:
    """Return what is made of each job that can be read; the files of others are listed with the nearest, as left out.

    Args:
        jobs: The jobs; those of few files are read first, as a bad file that is no part of another job is one by itself.
        read: Reads a job.
        refused: Told of a job that cannot be read, where others can be.

    Raises:
        TraceFormatError: None of them can be read.
    """
    waiting = dict(sorted(enumerate(jobs), key=lambda item: len(item[1].ranks)))
    known, results = dict(waiting), dict[int, Made]()
    failed: list[tuple[JobFiles, TraceFormatError]] = []
    while waiting:
        index = next(iter(waiting))
        job = waiting.pop(index)
        try:
            results[index] = read(job)
        except TraceFormatError as error:
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


def _leave_out(name: str, error: TraceFormatError) -> LeftOut:
    return LeftOut(name, error.message.removeprefix(f"{name}: ").strip().rstrip("."), lost=True)
