"""The heatmap of collectives that an address asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.analysis.collectives.heat import SORTS, Heat, Look, Shown, align_lines, build_heat
from studio.analysis.collectives.imbalance import (
    GROUPINGS,
    METRICS,
    UNTIMED,
    Metric,
    build_matrix,
    build_rows,
    compute_own_means,
    compute_ratios,
)
from studio.analysis.collectives.members import Members, collect_members
from studio.analysis.collectives.times import CollectiveTimes, compute_collective_times
from studio.analysis.collectives.waits import CollectiveWaits
from studio.analysis.job.blame import compute_collective_waits
from studio.analysis.job.late_ranks import Late, Lateness, find_late_ranks
from studio.errors import TraceError
from studio.session import Session, keep_result
from studio.views.address import choose_shown_run

_UNEVEN = 1.005


@dataclass(frozen=True, slots=True)
class HeatmapRequest:
    """A heatmap as an address asks for it, with defaults for what it leaves open.

    Attributes:
        session, job: What is open, and the id of the job.
        run: Id of the run, "" for the recording, None where no times are known.
        look: What of the collectives is shown.
        relative: Whether by the mean of each rank's group.
        log: Whether colours follow the logarithm.
    """

    session: Session
    job: str
    run: str | None
    look: Look
    relative: bool
    log: bool


@keep_result
def collect_run_members(session: Session, job: str, run: str | None) -> Members:
    """Return the collectives of a job in a run, as recorded for "", without times for None."""
    trace = session.trace(job)
    if run is None:
        return collect_members(trace)
    groups = session.run(job, run).result.config.groups if run else None
    return collect_members(trace, session.times(job, run), groups)


@keep_result
def collect_times(session: Session, job: str, run: str) -> CollectiveTimes:
    """Return every collective of a job in a run, as recorded for ""."""
    groups = session.run(job, run).result.config.groups if run else None
    return compute_collective_times(session.trace(job), session.times(job, run), groups)


@keep_result
def compute_lateness(session: Session, job: str, run: str) -> Lateness:
    """Return what tells why ranks of a run came last to collectives."""
    return Lateness(session.trace(job), session.times(job, run), session.rank_use(job, run)[0])


@keep_result
def collect_waits(session: Session, job: str, run: str) -> CollectiveWaits:
    """Return whom ranks waited for in the collectives of a run."""
    account = session.rank_use(job, run)[0]
    return compute_collective_waits(session.trace(job), account, collect_times(session, job, run))


@keep_result
def list_late_ranks(session: Session, job: str, run: str, most: int) -> list[Late]:
    """Return the ranks that came last to collectives, those waited for longest first, so many at most."""
    waits = collect_waits(session, job, run)
    return find_late_ranks(
        compute_lateness(session, job, run), collect_times(session, job, run), waits, most=most
    )


def settle(session: Session, job: str, view: Mapping[str, Any]) -> HeatmapRequest:
    """Read a request from an address, with defaults: the most telling metric, relative to the means of groups if they are uneven."""
    run = choose_shown_run(session, job, view)
    members = collect_run_members(session, job, run)
    natural = _choose_metric(session, job, run)
    metric = natural[0]
    asked = view.get("metric")
    if asked in METRICS and (members.timed or asked in UNTIMED):
        metric = asked
    uneven = metric != "size" or (natural[0] == "size" and natural[1])
    relative = view.get("rel") == "1" if "rel" in view else uneven and metric == "size"
    look = Look(
        metric,
        view["by"] if view.get("by") in GROUPINGS else "none",
        view.get("fold") == "1",
        str(view.get("only") or ""),
        view["sort"] if view.get("sort") in SORTS else "max",
        "load" if view.get("order") == "load" else "number",
    )
    scale = view.get("scale")
    return HeatmapRequest(
        session, job, run, look, relative, scale == "log" if scale in ("log", "linear") else not relative
    )


@keep_result
def _choose_metric(session: Session, job: str, run: str | None) -> tuple[Metric, bool]:
    """Return the default metric of a job, and whether its sizes are uneven."""
    members = collect_run_members(session, job, run)
    if not len(members):
        return "size", False
    rows = build_rows(members)
    sizes = build_matrix(members, rows, "size")
    if bool((compute_ratios(sizes, compute_own_means(members, rows, sizes)) > _UNEVEN).any()):
        return "size", True
    if not members.timed:
        return "size", False
    waiting = build_matrix(members, rows, "waiting")
    return ("waiting", False) if bool((waiting[~np.isnan(waiting)] > 0).any()) else ("duration", False)


def build_shown_heatmap(session: Session, job: str, view: Mapping[str, str]) -> Shown:
    """Return the heatmap that an address asks for; with `like`, in the order of rows of another one.

    Raises:
        StudioError: There is no such job or run.
    """
    asked = settle(session, job, view)
    heat = _build_heat(session, job, asked.run, asked.look)
    if view.get("like"):
        other = parse_other_view(view["like"])
        rest = {key: value for key, value in view.items() if key not in ("run", "like")}
        held = settle(session, other["job"], {**rest, **_format_look(asked), **other})
        heat = align_lines(heat, _build_heat(session, held.job, held.run, held.look))
    return Shown(session.trace(job), heat, asked.look, asked.relative, find_origin(session, job, asked.run))


@keep_result
def find_origin(session: Session, job: str, run: str | None) -> int:
    """Return the origin of times on the Timeline: the first start of a recording, or the beginning of a run."""
    if run != "":
        return 0
    start = session.times(job, run).start_ns
    known = start[start >= 0]
    return int(known.min()) if len(known) else 0


def _format_look(asked: HeatmapRequest) -> dict[str, str]:
    return {"metric": asked.look.metric, "rel": "1" if asked.relative else "0"}


def parse_other_view(text: str) -> dict[str, str]:
    """Parse the job and run to compare with, written `job/run`.

    Raises:
        TraceError: It is written otherwise.
    """
    job, _, run = text.partition("/")
    if not job:
        raise TraceError(
            f"The other job {text[:60]!r} cannot be read.",
            hint="It is written as the job's id, a slash, and a run's id.",
        )
    return {"job": job, "run": run} if run else {"job": job}


@keep_result
def _build_heat(session: Session, job: str, run: str | None, look: Look) -> Heat:
    return build_heat(collect_run_members(session, job, run), look)


def to_parameters(asked: HeatmapRequest) -> dict[str, str]:
    """Return a request as parameters of an address."""
    look = asked.look
    return {
        "metric": look.metric,
        "by": look.by,
        "fold": "1" if look.fold else "0",
        "sort": look.sort,
        "order": look.ranks,
        "rel": "1" if asked.relative else "0",
        "scale": "log" if asked.log else "linear",
    }
