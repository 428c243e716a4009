"""List the files of a job: those its ranks were read from, and those that were left out, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from studio.trace import Level, Trace

LEFT_OUT = ("ignored-file", "unreadable-file", "repeated-rank")
"""Codes of findings about files that are no part of the job."""


@dataclass(frozen=True, slots=True)
class UsedFile:
    """The file or files of a rank."""

    name: str
    rank: int


@dataclass(frozen=True, slots=True)
class LeftOutFile:
    """A file that was left out, "" where the finding counts several, and why."""

    name: str
    why: str
    level: Level


@dataclass(frozen=True, slots=True)
class JobFileList:
    """Files of a job, used ones by rank."""

    used: tuple[UsedFile, ...]
    left_out: tuple[LeftOutFile, ...]


def list_job_files(trace: Trace) -> JobFileList:
    """Return which files a job was read from and which were left out."""
    used = tuple(UsedFile(rank.file, rank.number) for rank in trace.ranks if rank.file)
    left_out = tuple(
        LeftOutFile(
            finding.file or "",
            finding.message.removeprefix(f"{finding.file}: ").removesuffix(".").removesuffix(", left out"),
            finding.level,
        )
        for finding in trace.findings
        if finding.code in LEFT_OUT
    )
    return JobFileList(used, left_out)
