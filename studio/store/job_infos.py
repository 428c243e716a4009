"""What a list of jobs shows: `job.json`, which says all of a job but its trace."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import msgspec

from studio.analysis.job.completeness import infer_completeness
from studio.analysis.job.summary import EDITION, Summary, summarise
from studio.decoding import build_decoder
from studio.errors import StudioError
from studio.notebook import format_record
from studio.store.shelf import Stored
from studio.trace import NONE, Trace

LAYOUT = 2
_OF_ONE_FILE = 1
"""Layout of jobs with all graphs in one file, which older studios open as well."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as lists show it.

    Attributes:
        id: Its folder and its part in addresses.
        name: What the user calls it; untrusted text.
        created: When it was imported, seconds since the epoch.
        source: What it was imported from: paths, each in a line of its own, or words.
        stored_bytes: Space it takes in the workspace.
        summary: The job in a few numbers.
        errors, warnings: Findings of the reader at these levels.
        fingerprint: Tells the files it was imported from, so that opening them again finds it; may be empty.
        world: Ranks that the whole job has where some are missing; -1 where how many is unknown, 0 where all are there.
        runs: Simulations of it that are kept.
        runs_bytes: Space they take beside the job's own.
        layout: Version of the folder's layout.
        recorded: When its files were written, seconds since the epoch; 0 where that is not known.
        source_bytes: Bytes of the files it was imported from, as they were; 0 where that is not known.
        hypothetical: What was changed of another job to make this one, in a few words; "" for a job that somebody has.
        edition: `EDITION` of the summary; 0 is of studios that noted none.
    """

    id: str
    name: str
    created: float
    source: str
    stored_bytes: int
    summary: Summary
    errors: int
    warnings: int
    fingerprint: str = ""
    world: int = 0
    runs: int = 0
    runs_bytes: int = 0
    layout: int = _OF_ONE_FILE
    recorded: float = 0.0
    source_bytes: int = 0
    hypothetical: str = ""
    edition: int = 0

    __repr__ = format_record

    @property
    def has_old_summary(self) -> bool:
        """Whether numbers of the summary may mean something else than they do now."""
        return self.edition < EDITION


def decode_info(raw: bytes, job_id: str) -> JobInfo:
    """Return the list entry of a job, its runs not counted yet.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: What is stored is damaged, or a newer studio writes other fields.
    """
    return replace(_info(raw), id=job_id)


def refuse_newer(raw: bytes, job_id: str) -> None:
    """Raise an error if a newer studio has written a job.

    Raises:
        StudioError: It has.
        msgspec.MsgspecError, UnicodeDecodeError: What is stored is damaged.
    """
    known = _layout(raw)
    if known.layout > LAYOUT:
        raise StudioError(
            f"Job {known.name or job_id!r} was imported by a newer Chakra Studio.",
            hint="Update Chakra Studio, or import the traces again.",
        )


def describe_job(trace: Trace, job_id: str, name: str, size: int, stored: Stored | None) -> JobInfo:
    """Count what the list entry of a new job shows.

    Args:
        trace: The job.
        job_id: Its id.
        name: What to call it.
        size: Bytes that it takes in the workspace.
        stored: Its graphs, where they were stored as they were read.
    """
    levels = [finding.level for finding in trace.findings]
    job = infer_completeness(trace)
    return JobInfo(
        id=job_id,
        name=name,
        created=time.time(),
        source="",
        stored_bytes=size,
        summary=summarise(trace, stored.figures if stored else None),
        errors=levels.count("error"),
        warnings=levels.count("warning"),
        world=0 if job.is_whole else NONE if job.is_open else job.world,
        layout=LAYOUT if stored else _OF_ONE_FILE,
        edition=EDITION,
    )


class _Layout(msgspec.Struct):
    """The fields that every version of job.json has."""

    name: str = ""
    layout: int = _OF_ONE_FILE


_layout = build_decoder(_Layout)
_info = build_decoder(JobInfo)
