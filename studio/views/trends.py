"""The jobs of a workspace as points in time, by series: what Trends draws and `watch` prints; no trace is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from studio.analysis.job.measures import Measures
from studio.analysis.trends.series import name_series
from studio.comparing import RECORDED
from studio.errors import StudioError
from studio.session import Session
from studio.store.job_infos import JobInfo
from studio.trace import Level
from studio.units import format_counted


@dataclass(frozen=True, slots=True)
class Point:
    """A job as a point in time.

    Attributes:
        job: Its id.
        name: What it is called; untrusted text.
        series: The series it belongs to.
        when: When its files were written, or where that is not known, when it was imported: seconds since the epoch.
        run: The run its measures are of, "" for the recording; None where it has neither.
        ranks: Ranks of the job.
        measures: What was measured; None where nothing was yet.
        levels: Findings of the Doctor by level; None where it was not examined.
        damaged: How many losses the readers have told.
    """

    job: str
    name: str
    series: str
    when: float
    run: str | None
    ranks: int
    measures: Measures | None
    levels: Mapping[Level, int] | None
    damaged: int = 0

    @property
    def is_missing(self) -> bool:
        """Whether it was not measured yet though it could be, or not examined."""
        return (self.run is not None and self.measures is None) or self.levels is None


def list_points(session: Session, jobs: Iterable[JobInfo] | None = None) -> list[Point]:
    """Return all jobs of a workspace but hypothetical ones, or some, as points, the earliest first."""
    chosen = (info for info in session.workspace.jobs() if not info.hypothetical) if jobs is None else jobs
    return sorted((point_of(session, info) for info in chosen), key=lambda point: (point.when, point.job))


def point_of(session: Session, info: JobInfo) -> Point:
    """Return a job as a point: its recording, or where it has no times, its newest run."""
    run = choose_measured_run(session, info)
    return Point(
        info.id,
        info.name,
        name_series(info.name),
        _get_time(info),
        run,
        info.summary.ranks,
        None if run is None else session.measures_made(info.id, run),
        session.levels_found(info.id),
        info.errors,
    )


def choose_measured_run(session: Session, info: JobInfo) -> str | None:
    """Return the run a job is measured by: "" for its recording, else its newest run; None where it has neither."""
    if info.summary.timed_nodes:
        return ""
    try:
        runs = session.workspace.runs(info.id) if info.runs else []
    except StudioError:
        return None  # Deleted meanwhile.
    return runs[0].id if runs else None


def group_by_series(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return points by series: the one with most jobs first, then by name."""
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.series, []).append(point)
    return dict(sorted(by_name.items(), key=lambda item: (-len(item[1]), item[0])))


def list_previous_points(series: Sequence[Point]) -> list[Point | None]:
    """Return for each point of a series, the earliest first, the last one before it that holds times."""
    previous: list[Point | None] = []
    last: Point | None = None
    for point in series:
        previous.append(last)
        if point.measures is not None and point.measures.finish_ns is not None:
            last = point
    return previous


def point_before(session: Session, point: Point) -> Point | None:
    """Return the last point before one in its series that holds times; reads no more jobs than it has to."""
    earlier = [
        info
        for info in session.workspace.jobs()
        if not info.hypothetical
        and name_series(info.name) == point.series
        and (_get_time(info), info.id) < (point.when, point.job)
    ]
    for info in sorted(earlier, key=lambda info: (_get_time(info), info.id), reverse=True):
        candidate = point_of(session, info)
        if candidate.measures is not None and candidate.measures.finish_ns is not None:
            return candidate
    return None


def _get_time(info: JobInfo) -> float:
    return info.recorded or info.created


def describe_verdict(levels: Mapping[Level, int] | None) -> str:
    """Return what the Doctor says of a job in a few words.

    Example:
        >>> describe_verdict({"error": 1, "warning": 2, "info": 3}), describe_verdict({}), describe_verdict(None)
        ('1 error, 2 warnings', 'no problems', 'not checked')
    """
    if levels is None:
        return "not checked"
    counts = [format_counted(levels[level], level) for level in ("error", "warning") if levels.get(level)]
    return ", ".join(counts) or "no problems"


def build_trends_address(point: Point) -> dict[str, str]:
    """Return the view that opens a point's job at what was measured."""
    if not point.run:
        return {"job": point.job, **({"run": RECORDED} if point.run == "" else {})}
    return {"job": point.job, "run": point.run}
