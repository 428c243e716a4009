"""What pages and callbacks work on: the workspace of this process, and the jobs it has open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import dash

from studio.analysis.gantt import Gantt
from studio.analysis.nodes import NodeIndex
from studio.doctor import Change, Examination, repair
from studio.doctor import examination as examined
from studio.errors import TraceError
from studio.imports import Registry
from studio.runs import Run
from studio.simulations import Simulations
from studio.timeline import recorded
from studio.trace import Rank, Trace
from studio.workspace import Workspace

T = TypeVar("T")
_KEPT = 4
_GANTT_BYTES = 1 << 30
_lock = threading.Lock()
_cache: OrderedDict[tuple[str, str], Any] = OrderedDict()
_gantts: OrderedDict[tuple[str, str], Gantt] = OrderedDict()


def workspace() -> Workspace:
    """Return the workspace this app serves."""
    found: Workspace = dash.get_app().server.config["WORKSPACE"]
    return found


def registry() -> Registry:
    """Return the imports of the workspace."""
    found: Registry = dash.get_app().server.config["IMPORTS"]
    return found


def simulations() -> Simulations:
    """Return the simulations that run in the background."""
    found: Simulations = dash.get_app().server.config["SIMULATIONS"]
    return found


def trace(job: str) -> Trace:
    """Return an open job; the last few stay open."""
    root = workspace()
    root.info(job)  # a job deleted by another studio is gone at once
    return _kept(("trace", f"{root.root}/{job}"), lambda: root.load(job))


def node_index(job: str) -> NodeIndex:
    """Return the searchable list of a job's nodes."""
    found = trace(job)
    return _kept(("nodes", f"{workspace().root}/{job}"), lambda: NodeIndex(found))


def examination(job: str) -> Examination:
    """Return what is wrong with a job; found once while it is open."""
    found = trace(job)
    return _kept(("doctor", f"{workspace().root}/{job}"), lambda: examined(found))


def repair_preview(job: str, code: str) -> tuple[Change, ...]:
    """Return what a repair would change in a job; worked out once while it is open."""
    found = trace(job)
    return _kept((f"repair {code}", f"{workspace().root}/{job}"), lambda: repair(found, code).changes)


def gantt(job: str, run: str) -> Gantt:
    """Return the drawable timeline of a run of a job, or of its recording for "".

    Raises:
        StudioError: There is no such job or run, or its files are damaged.
        TraceError: The job holds no times.
    """
    root = workspace()
    if run:
        root.run_info(job, run)  # the same for a run
    key = ("gantt", f"{root.root}/{job}/{run}")
    with _lock:
        found: Gantt | None = _gantts.get(key)
        if found is not None:
            _gantts.move_to_end(key)
    if found is None:
        found = _simulated(root, job, run) if run else _recorded(trace(job))
        with _lock:
            _gantts[key] = found
            while len(_gantts) > 1 and sum(one.nbytes for one in _gantts.values()) > _GANTT_BYTES:
                _gantts.popitem(last=False)
    elif not run:
        root.info(job)
    return found


def has_times(found: Trace) -> bool:
    """Return whether a job's own files say when nodes ran."""
    return any(bool((graph.start_ns >= 0).any()) for graph in found.graphs)


def has_runs(job: str) -> bool:
    """Return whether a job has been simulated and the outcome kept."""
    return workspace().info(job).runs > 0


def _recorded(found: Trace) -> Gantt:
    timeline = recorded(found)
    if not len(timeline):
        raise TraceError("The files of this job hold no times.", hint="Simulate it, and look at a run.")
    return Gantt(found, timeline, origin_ns=int(timeline.start_ns.min()))


def _simulated(root: Workspace, job: str, run: str) -> Gantt:
    """Return the timeline of a run; of ranks that are alike only the simulated one is laid out."""
    result = root.load_run(job, run).result
    ranks = result.trace.ranks
    stands_for = [ranks[at].number for at in result.representative.tolist()]
    timeline = result.timeline(sorted(set(stands_for)))
    return Gantt(result.trace, timeline, stands_for=stands_for)


def run_of(job: str, run: str) -> Run:
    """Return a run of a job; the last few stay open."""
    root = workspace()
    root.run_info(job, run)
    return _kept(("run", f"{root.root}/{job}/{run}"), lambda: root.load_run(job, run))


def rank_of(found: Trace, view: dict[str, Any]) -> Rank:
    """Return the rank the view is about, the first where it names none.

    Raises:
        TraceError: The job has no such rank.
    """
    wanted = view.get("rank")
    if wanted is None:
        return found.ranks[0]
    rank = found.rank(int(wanted)) if str(wanted).isdecimal() else None
    if rank is None:
        numbers = f"{found.ranks[0].number} to {found.ranks[-1].number}"
        raise TraceError(f"This job has no rank {str(wanted)[:20]!r}.", hint=f"Its ranks are {numbers}.")
    return rank


def _kept(key: tuple[str, str], make: Callable[[], T]) -> T:
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            found: T = _cache[key]
            return found
    made = make()
    with _lock:
        _cache[key] = made
        while len(_cache) > 2 * _KEPT:
            _cache.popitem(last=False)
    return made
