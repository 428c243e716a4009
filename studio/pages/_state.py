"""What pages and callbacks work on: the workspace of this process, and the jobs it has open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import dash

from studio.analysis.breakdown import RankUse
from studio.analysis.counters import Series, in_flight
from studio.analysis.differences import Ghost
from studio.analysis.gantt import Gantt
from studio.analysis.nodes import NodeIndex
from studio.analysis.occupancy import Occupancy
from studio.comparing import Compared, Lineup, recording, side_use, simulation
from studio.comparing import lineup as compared_with_first
from studio.doctor import Change, Examination, repair
from studio.doctor import examination as examined
from studio.errors import StudioError, TraceError
from studio.sim.load import network_load
from studio.simulations import Simulations
from studio.store.imports import Registry
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.timeline import NodeTimes, recorded, recorded_times
from studio.trace import Rank, Trace
from studio.units import format_ns

T = TypeVar("T")
_KEPT = 4
_GANTT_BYTES = 1 << 30
RECORDED = "recorded"
"""What addresses call the times that the job's own files hold."""

_lock = threading.Lock()
_making: dict[tuple[str, str], threading.Lock] = {}
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


def node_index(job: str, run: str = "") -> NodeIndex:
    """Return the searchable list of a job's nodes, with the times of a run or, for "", those recorded.

    Raises:
        StudioError: There is no such job or run, or its files are damaged.
    """
    found, key = trace(job), f"{workspace().root}/{job}"
    if not run:
        return _kept(("nodes", key), lambda: NodeIndex(found))
    workspace().run_info(job, run)  # a run deleted by another studio is gone at once
    return _kept(
        ("nodes", f"{key}/{run}"), lambda: NodeIndex(found, times_of(job, run), like=node_index(job))
    )


def nodes_shown(job: str, run: str) -> NodeIndex:
    """Return the searchable list of a job's nodes as an address with this run shows it; it may name none.

    A run that is not there is told above the page: the nodes are, with what was recorded of them.
    """
    shown = shown_run(job, {"run": run}) or ""
    if shown:
        try:
            workspace().run_info(job, shown)
        except StudioError:
            shown = ""
    return node_index(job, shown)


def examination(job: str) -> Examination:
    """Return what is wrong with a job; found once while it is open."""
    found = trace(job)
    return _kept(("doctor", f"{workspace().root}/{job}"), lambda: examined(found))


def examined_already(job: str) -> Examination | None:
    """Return what is wrong with a job, where that was found before; looking would take its time."""
    with _lock:
        found = _cache.get(("doctor", f"{workspace().root}/{job}"))
    return found if isinstance(found, Examination) else None


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


def ghost(job: str, run: str, other: str) -> Gantt:
    """Return the lanes of a run of a job with the times of another in them; "recorded" names the recording.

    Raises:
        StudioError: There is no such job or run, or its files are damaged.
        TraceError: One of them holds no times.
    """
    shown, name = gantt(job, run), "" if other == RECORDED else other
    origin = gantt(job, name).origin_ns
    key = (f"ghost {run}", f"{workspace().root}/{job}/{name}")
    return _kept(key, lambda: Ghost(shown, times_of(job, name), origin_ns=origin))


def counters(job: str, run: str) -> tuple[Series, ...]:
    """Return what a run of a job, or its recording for "", has under way over time.

    Raises:
        StudioError: There is no such job or run, or its files are damaged.
        TraceError: The job holds no times.
    """
    shown = gantt(job, run)
    key = ("counters", f"{workspace().root}/{job}/{run}")

    def made() -> tuple[Series, ...]:
        return in_flight(shown) + (network_load(run_of(job, run).result, shown) if run else ())

    return _kept(key, made)


def has_runs(job: str) -> bool:
    """Return whether a job has been simulated and the outcome kept."""
    return workspace().info(job).runs > 0


def runs_of(job: str) -> list[dict[str, str]]:
    """Return what there is to see the times of a job in: its recording, then its runs, newest first."""
    recording = (
        [{"value": RECORDED, "label": "as recorded"}] if workspace().info(job).summary.timed_nodes else []
    )
    runs = [
        {"value": run.id, "label": f"{run.name} · {format_ns(run.makespan_ns)}"}
        for run in workspace().runs(job)
    ]
    return recording + runs


def shown_run(job: str, view: dict[str, Any]) -> str | None:
    """Return which run a view shows: an id, "" for the recording, None where the job has neither."""
    wanted = view.get("run")
    if wanted:
        return "" if wanted == RECORDED else str(wanted)
    if workspace().info(job).summary.timed_nodes:
        return ""
    runs = workspace().runs(job)
    return runs[0].id if runs else None


def run_note(job: str | None, view: dict[str, Any]) -> str:
    """Return which run the times of a list are of, "" where a view shows none."""
    if not job:
        return ""
    try:
        run = shown_run(job, view)
        if not run:
            return ""
        info, timed = workspace().run_info(job, run), workspace().info(job).summary.timed_nodes > 0
    except StudioError:
        return ""  # the page says what is wrong
    beside = "beside those recorded" if timed else "none were recorded"
    return f"Times of the run {info.name}, {format_ns(info.makespan_ns)} in all, {beside}"


def times_of(job: str, run: str) -> NodeTimes:
    """Return when the nodes of a job ran, in a run or, for "", as recorded.

    Raises:
        StudioError: There is no such job or run, or its files are damaged.
    """
    if run:
        result = run_of(job, run).result
        return _kept(("times", f"{workspace().root}/{job}/{run}"), result.node_times)
    found = trace(job)
    return _kept(("times", f"{workspace().root}/{job}/"), lambda: recorded_times(found))


def use_of(job: str, run: str) -> tuple[RankUse, Occupancy]:
    """Return where the time of each rank of a run, or of the recording for "", goes, and what ranks did over time.

    Raises:
        StudioError: There is no such job or run, its files are damaged, or the job holds no times.
    """
    key = ("use", f"{workspace().root}/{job}/{run}")
    return _kept(key, lambda: side_use(compared(job, run or RECORDED).side))


def lineup(sides: Sequence[tuple[str, str]]) -> Lineup:
    """Return runs compared with the first, each given by its job and its id, `RECORDED` for a recording.

    Raises:
        StudioError: There is no such job or run, its files are damaged, or the job holds no times.
    """
    root = workspace()
    for job, run in sides:
        if run == RECORDED:
            root.info(job)
        else:
            root.run_info(job, run)
    key = ",".join(f"{job}/{run}" for job, run in sides)

    def lined_up() -> Lineup:
        return compared_with_first([compared(job, run) for job, run in sides])

    return _kept(("lineup", f"{root.root}/{key}"), lined_up)


def compared(job: str, run: str) -> Compared:
    """Return a run of a job, or `RECORDED`, as pages and reports compare it.

    Raises:
        StudioError: There is no such job or run, its files are damaged, or the job holds no times.
    """
    info = workspace().info(job)
    if run != RECORDED:
        return simulation(run_of(job, run), workspace().run_info(job, run), info.summary, info.name)
    if not info.summary.timed_nodes:
        raise TraceError(f"{info.name}: its files hold no times.", hint="Simulate it, and compare the run.")
    return recording(trace(job), f"{info.name} · recorded", info.summary, job, times_of(job, ""))


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


def kept(what: str, job: str, make: Callable[[], T]) -> T:
    """Return what a page works out about a job; worked out once while it is looked at."""
    root = workspace()
    root.info(job)
    return _kept((what, f"{root.root}/{job}"), make)


def _kept(key: tuple[str, str], make: Callable[[], T]) -> T:
    """Return what is kept under a key; made once, however many callbacks of a page ask for it together."""
    with _lock:
        making = _making.setdefault(key, threading.Lock())
    with making:
        with _lock:
            if key in _cache:
                _cache.move_to_end(key)
                found: T = _cache[key]
                return found
        made = make()
        with _lock:
            _cache[key] = made
            while len(_cache) > 3 * _KEPT:
                gone, _ = _cache.popitem(last=False)
                _making.pop(gone, None)
    return made
