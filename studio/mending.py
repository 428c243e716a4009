"""A mended job in the workspace: a job of its own that knows what it was made of and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studio.doctor import REPAIRS, repair_all
from studio.errors import StudioError
from studio.session import Session
from studio.store.workspace import JobInfo

_MARK = "repair"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a mended job was made of.

    Attributes:
        job: Id of the job that was mended; it may be gone by now.
        repairs: Codes of the repairs.
    """

    job: str
    repairs: tuple[str, ...]


def mend(session: Session, job: str, codes: Sequence[str]) -> str:
    """Store a job mended and return the id of the new one; where the same was done before, of that one.

    Raises:
        TraceError: There is no such repair.
        StudioError: There is no such job, nothing to mend, or the workspace cannot be written.
    """
    workspace = session.workspace
    info = workspace.info(job)
    wanted = [code for code in REPAIRS if code in codes]
    mark = f"{_MARK}:{job}:{','.join(wanted)}"
    known = workspace.find(mark)
    if known:
        return known.id
    repaired = repair_all(session.trace(job), codes)
    if not repaired.changes:
        raise StudioError(
            f"{info.name}: there is nothing to mend.", hint="Somebody may have mended it already."
        )
    name = f"{info.name[:180]} (mended)" if not info.name.endswith("(mended)") else info.name
    return workspace.save(repaired.trace, name, source=f"{info.name}, mended", fingerprint=mark)


def origin(info: JobInfo) -> Origin | None:
    """Return what a job was mended of, None where it was imported.

    Example:
        >>> origin_of_mark("repair:llama-1a2b3c:cycle,self-loop")
        Origin(job='llama-1a2b3c', repairs=('cycle', 'self-loop'))
    """
    return origin_of_mark(info.fingerprint)


def origin_of_mark(mark: str) -> Origin | None:
    """Return what the fingerprint of a job tells of its origin."""
    kind, _, rest = mark.partition(":")
    job, _, codes = rest.partition(":")
    return Origin(job, tuple(codes.split(","))) if kind == _MARK and job else None
