"""Open jobs and runs, and everything computed from them, in one cache.

Everything is made once, kept in one cache that is bounded by bytes, and known by the job and run it is of: their
content never changes. What another studio deletes is gone at once.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

import msgspec

from studio.analysis.job.device_parts import DeviceParts
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.measures import EDITION, Measures, measure
from studio.analysis.job.memory import MemoryUse, compute_memory_use
from studio.analysis.job.nodes import NodeIndex
from studio.analysis.job.occupancy import Occupancy
from studio.analysis.job.step_spans import StepSpans, step_spans
from studio.analysis.job.summary import Summary
from studio.analysis.path.slack import compute_slack
from studio.analysis.path.whole import WholePath, build_whole_path
from studio.analysis.timeline.calls import find_calls
from studio.analysis.timeline.counters import Series, count_in_flight, sum_memory_held
from studio.analysis.timeline.differences import Ghost
from studio.analysis.timeline.gantt import Gantt
from studio.comparing import (
    RECORDED,
    Compared,
    Lineup,
    build_compared_recording,
    build_lineup,
    build_simulated_side,
    compute_side_use,
    note_program_change,
)
from studio.decoding import build_decoder
from studio.doctor import Change, Examination, repair, run_checks
from studio.doctor.checks import Progress
from studio.doctor.diagnosis import LEVELS
from studio.doctor.stored import read_stored_examination, read_stored_levels, to_store
from studio.errors import StudioError, TraceError
from studio.machine_memory import read_machine_bytes
from studio.sim.load import compute_network_load
from studio.sim.result import compute_ledger
from studio.store.awaited import Awaited
from studio.store.cache import Cache
from studio.store.runs import Run
from studio.store.tasks import Problem
from studio.store.workspace import Workspace
from studio.timeline import NodeTimes, read_recorded_times, recorded
from studio.trace import Int64, Level, Trace

T = TypeVar("T")
P = ParamSpec("P")

SHARE_OF_MEMORY: Final = 4
"""The cache takes at most one part in so many of the machine's memory."""
_UNKNOWN_MEMORY_BYTES = 4 << 30

_measures = build_decoder(Measures)

Sides = tuple[tuple[str, str], ...]
"""Jobs and runs; "" stands for the job itself."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Memory use of a session's cache.

    Attributes:
        budget_bytes: What it may take.
        used_bytes: What it takes, estimated.
        entries: Things in it.
    """

    budget_bytes: int
    used_bytes: int
    entries: int


class Session:
    """A workspace with its open jobs and runs.

    Attributes:
        workspace: Where jobs and runs are.
        awaited: What somebody waits for just now.
        examinations_made: How many jobs were examined so far.
        unexamined: Why jobs could not be examined, or were not to the end.
        answers_made: How often advice was found so far.
        unadvised: Why there is no advice for runs, by job and run.
        rounds_ended: How often several jobs were measured, or counted again, in one background task so far.
        unmeasured: Why runs could not be measured, by job and run.
        uncounted: Why jobs could not be counted again.
    """

    def __init__(self, workspace: Workspace, *, budget_bytes: int | None = None) -> None:
        """Open nothing yet.

        Args:
            workspace: Where jobs and runs are.
            budget_bytes: What may be kept in memory, a quarter of the machine's for None.
        """
        self.workspace = workspace
        self.awaited = Awaited()
        if budget_bytes is None:
            budget_bytes = (
                read_machine_bytes() or SHARE_OF_MEMORY * _UNKNOWN_MEMORY_BYTES
            ) // SHARE_OF_MEMORY
        self._cache: Cache[tuple[Sides, Hashable]] = Cache(budget_bytes)
        self.examinations_made = 0
        self.unexamined: dict[str, Problem] = {}
        self.answers_made = 0
        self.unadvised: dict[tuple[str, str], Problem] = {}
        self.rounds_ended = 0
        self.unmeasured: dict[tuple[str, str | None], Problem] = {}
        self.uncounted: dict[str, Problem] = {}

    @property
    def use(self) -> CacheUse:
        """How full the cache is."""
        return CacheUse(self._cache.budget_bytes, self._cache.used_bytes, len(self._cache))

    def keep(self, sides: Sides, what: Hashable, make: Callable[[], T]) -> T:
        """Return a value computed from jobs and runs, from the cache if it is there.

        Args:
            sides: The jobs and runs.
            what: Tells it from all else that is worked out of them.
            make: Makes it.

        Raises:
            StudioError: There is no such job or run.
        """
        for job, run in sides:
            try:
                self.workspace.require(job, run)
            except StudioError:
                self._cache.forget(lambda key, gone=(job, run): _is_of(key[0], *gone))  # type: ignore[misc]
                raise
        return self._cache.get((sides, what), make)

    def keep_of_job(self, what: Hashable, job: str, make: Callable[[], T], run: str = "") -> T:
        """Return a value computed from a job or one of its runs; see `keep`."""
        return self.keep(((job, run),), what, make)

    def kept_of_job(self, what: Hashable, job: str, run: str = "") -> Any | None:
        """Return what `keep_of_job` has made, None where it has not, or has dropped it."""
        return self.get_kept(((job, run),), what)

    def get_kept(self, sides: Sides, what: Hashable) -> Any | None:
        """Return the value that `keep` made; None where it made none or dropped it."""
        return self._cache.peek((sides, what))

    # -----------------------------------------------------------------------------------------------
    # Jobs and runs

    def trace(self, job: str) -> Trace:
        """Return an open job.

        Raises:
            StudioError: There is no such job, or its files are damaged.
        """
        return self.keep_of_job("trace", job, lambda: self.workspace.load(job))

    def summary(self, job: str) -> Summary:
        """Return the numbers of a job; those that were stored when they meant something else are counted again, and stored.

        Raises:
            StudioError: There is no such job, or its files are damaged.
        """
        info = self.workspace.info(job)
        if not info.has_old_summary:
            return info.summary
        return self.keep_of_job(
            "summary", job, lambda: self.workspace.renew_summary(job, self.trace(job)).summary
        )

    def run(self, job: str, run: str) -> Run:
        """Return an open run; all runs of a job share its trace.

        Raises:
            StudioError: There is no such job or run, or its files are damaged.
        """
        return self.keep_of_job("run", job, lambda: self.workspace.load_run(job, run, self.trace(job)), run)

    def times(self, job: str, run: str) -> NodeTimes:
        """Return when the nodes of a job ran, in a run or, for "", as recorded."""

        def make() -> NodeTimes:
            return self.run(job, run).result.node_times() if run else read_recorded_times(self.trace(job))

        return self.keep_of_job("times", job, make, run)

    # -----------------------------------------------------------------------------------------------
    # What pages show of them

    def node_index(self, job: str, run: str = "") -> NodeIndex:
        """Return the searchable list of a job's nodes, with the times of a run or, for "", those recorded."""

        def make() -> NodeIndex:
            if not run:
                return NodeIndex(self.trace(job))
            return NodeIndex(self.trace(job), self.times(job, run), like=self.node_index(job))

        return self.keep_of_job("nodes", job, make, run)

    def examination(self, job: str, *, progress: Progress | None = None) -> Examination:
        """Return the findings of a job: those that are stored with it, or else made and stored now.

        Args:
            job: Its id.
            progress: Told what is going on where they are made; may raise to stop.
        """

        def make() -> Examination:
            stored = read_stored_examination(self.workspace.load_examination(job))
            if stored is not None:
                return stored
            examination = run_checks(self.trace(job), progress=progress)
            with contextlib.suppress(
                StudioError
            ):  # A full disk or a folder that cannot be written: kept in memory alone.
                self.workspace.save_examination(job, to_store(examination))
            self.examinations_made += 1
            return examination

        return self.keep_of_job("examination", job, make)

    def examination_made(self, job: str) -> Examination | None:
        """Return the findings of a job if they are known already, else None."""
        known = self._get_examination(job)
        if known is None and read_stored_levels(self.workspace.load_examination(job)) is not None:
            known = self.examination(job)
        return known

    def levels_found(self, job: str) -> Mapping[Level, int] | None:
        """Return how many findings of each level a job has; None where it was not examined."""
        known = self._get_examination(job)
        if known is not None:
            return {level: known.count(level) for level in LEVELS}
        return read_stored_levels(self.workspace.load_examination(job))

    def _get_examination(self, job: str) -> Examination | None:
        known: Examination | None = self.kept_of_job("examination", job)
        return known

    def repair_preview(self, job: str, code: str) -> tuple[Change, ...]:
        """Return what a repair would change in a job."""
        return self.keep_of_job(("repair", code), job, lambda: repair(self.trace(job), code).changes)

    def gantt(self, job: str, run: str) -> Gantt:
        """Return the drawable timeline of a run of a job, or of its recording for "".

        Raises:
            StudioError: There is no such job or run, or its files are damaged.
            TraceError: The job holds no times.
        """

        def make() -> Gantt:
            return build_simulated_gantt(self.run(job, run)) if run else build_recorded_gantt(self.trace(job))

        return self.keep_of_job("gantt", job, make, run)

    def ghost(self, job: str, run: str, other: str) -> Gantt:
        """Return a run's lanes filled with the times of another run; `RECORDED` names the recording.

        Raises:
            StudioError: There is no such job or run, or its files are damaged.
            TraceError: One of them holds no times.
        """
        name = "" if other == RECORDED else other

        def make() -> Gantt:
            shown = self.gantt(job, name)
            times = self.times(job, name)
            return Ghost(
                self.gantt(job, run),
                times,
                origin_ns=shown.origin_ns,
                account=lambda: shown.account,
                calls=shown.calls,
            )

        return self.keep(((job, run), (job, name)), "ghost", make)

    def memory(self, job: str, run: str) -> list[MemoryUse]:
        """Return the memory of each device of each rank in a run, or in the recording for "".

        Raises:
            StudioError: There is no such job or run, or its files are damaged.
            TraceError: The job holds no times.
        """
        return self.keep_of_job(
            "memory", job, lambda: compute_memory_use(self.trace(job), self.times(job, run)), run
        )

    def counters(self, job: str, run: str) -> tuple[Series, ...]:
        """Return the counters of a run, or of the recording for "".

        Raises:
            StudioError: There is no such job or run, or its files are damaged.
            TraceError: The job holds no times.
        """

        def make() -> tuple[Series, ...]:
            shown = self.gantt(job, run)
            load = compute_network_load(self.run(job, run).result, shown) if run else ()
            end_ns = shown.origin_ns + shown.span_ns
            return (
                count_in_flight(shown)
                + load
                + sum_memory_held(self.memory(job, run), end_ns, shown.origin_ns)
            )

        return self.keep_of_job("counters", job, make, run)

    # -----------------------------------------------------------------------------------------------
    # Runs side by side; here `RECORDED` names a recording, as in addresses

    def load_side(self, job: str, run: str) -> Compared:
        """Return a run of a job as a side of a comparison.

        Raises:
            StudioError: There is no such job or run, its files are damaged, or the job holds no times.
        """
        info = self.workspace.info(job)
        if run != RECORDED:
            side = build_simulated_side(
                self.run(job, run), self.workspace.run_info(job, run), info.summary, info.name
            )
            return note_program_change(side, info.hypothetical)
        if not info.summary.timed_nodes:
            raise TraceError(
                f"{info.name}: The files of this job hold no times.",
                hint="Simulate it and keep the run (chakra-studio simulate FILES --preset NAME --out RUN), then name the run.",
            )
        side = build_compared_recording(
            self.trace(job), f"{info.name} · recorded", info.summary, job, self.times(job, "")
        )
        return note_program_change(side, info.hypothetical)

    def lineup(self, sides: Sequence[tuple[str, str]]) -> Lineup:
        """Compare runs, given by job and run id, with the first.

        Raises:
            StudioError: There is no such job or run, its files are damaged, or the job holds no times.
        """
        of = tuple((job, "" if run == RECORDED else run) for job, run in sides)
        return self.keep(of, "lineup", lambda: build_lineup([self.load_side(job, run) for job, run in sides]))

    def rank_use(self, job: str, run: str) -> tuple[Ledger, Occupancy]:
        """Return where the time of each rank went, and the activity over time, of a run or, for "", the recording.

        Raises:
            StudioError: There is no such job or run, its files are damaged, or the job holds no times.
        """
        return self.keep_of_job(
            "use", job, lambda: compute_side_use(self.load_side(job, run or RECORDED).side), run
        )

    def device_parts(self, job: str, run: str) -> DeviceParts | None:
        """Return where the time of each device of a run or, for "", of the recording went; None where no rank has several.

        Raises:
            StudioError: There is no such job or run, its files are damaged, or the job holds no times.
        """

        def make() -> DeviceParts | None:
            return self.load_side(job, run or RECORDED).side.device_parts(self.rank_use(job, run)[0])

        return self.keep_of_job("device parts", job, make, run)

    def step_spans(self, job: str, run: str) -> StepSpans | None:
        """Return the step times of a run or, for "", of the recording; None where no node tells its step.

        Raises:
            StudioError: There is no such job or run, or its files are damaged.
        """
        return self.keep_of_job("steps", job, lambda: step_spans(self.trace(job), self.times(job, run)), run)

    def measures(self, job: str, run: str) -> Measures:
        """Return the measures of a run or, for "", of the recording, stored with it or made now.

        Raises:
            StudioError: There is no such job or run, or its files are damaged.
        """
        measures = self.measures_made(job, run)
        if measures is None:
            timed = bool(run) or self.workspace.info(job).summary.timed_nodes > 0
            measures = (
                measure(self.rank_use(job, run)[0], self.step_spans(job, run), self.device_parts(job, run))
                if timed
                else Measures()
            )
            with contextlib.suppress(
                StudioError
            ):  # A full disk or a folder that cannot be written: made again when it is asked for.
                self.workspace.save_measures(job, run, measures)
        return measures

    def measures_made(self, job: str, run: str) -> Measures | None:
        """Return what is stored of the measures of a run or, for "", the recording; reads no trace."""
        raw = self.workspace.load_measures(job, run)
        try:
            known = None if raw is None else _measures(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return known if known is not None and known.edition == EDITION else None

    def whole_path(self, job: str, run: str) -> WholePath:
        """Return the critical path through all ranks of a run or, for "", the recording.

        Raises:
            StudioError: There is no such job or run, its files are damaged, or the job holds no times.
        """

        def make() -> WholePath:
            return build_whole_path(self.load_side(job, run or RECORDED).side, self.rank_use(job, run)[0])

        return self.keep_of_job("path", job, make, run)

    def slack(self, job: str, run: str) -> Int64:
        """Return the slack of each node of a run or, for "", the recording, by the entries of its `times`.

        Raises:
            StudioError: There is no such job or run, its files are damaged, or the job holds no times.
        """

        def make() -> Int64:
            side = self.load_side(job, run or RECORDED).side
            return compute_slack(side.trace, side.times, self.rank_use(job, run)[0])

        return self.keep_of_job("slack", job, make, run)


def keep_result(make: Callable[P, T]) -> Callable[P, T]:
    """Decorator: cache a function of a session and a job in the session.

    The function takes a session, the id of a job and whatever else it depends on, or one request with both. What is
    called `run` is a run of the job.
    """
    names = list(inspect.signature(make).parameters)
    place = names.index("run") if "run" in names else None

    @wraps(make)
    def get(*args: P.args, **kwargs: P.kwargs) -> T:
        first, *rest = cast("tuple[Any, ...]", args)
        if isinstance(first, Session):
            session, job, run = first, str(rest[0]), "" if place is None else args[place]
        else:
            session, job, run = first.session, first.job, getattr(first, "run", "")
        what = (make.__module__, make.__qualname__, *args, *kwargs.items())
        return session.keep(((job, str(run or "")),), what, lambda: make(*args, **kwargs))

    return get


def build_recorded_gantt(trace: Trace) -> Gantt:
    """Return the drawable timeline of a job's recording.

    Raises:
        TraceError: It holds no times.
    """
    timeline = recorded(trace)
    if not len(timeline):
        raise TraceError(
            "The files of this job hold no times.",
            hint="Simulate it and keep the run (chakra-studio simulate FILES --preset NAME --out RUN), then name the run.",
        )
    origin_ns = int(timeline.start_ns.min())
    return Gantt(trace, timeline, origin_ns=origin_ns, calls=find_calls(trace))


def build_simulated_gantt(run: Run) -> Gantt:
    """Return the drawable timeline of a run; only simulated ranks are laid out, equal ranks share theirs."""
    result = run.result
    ranks = result.trace.ranks
    stands_for = [ranks[place].number for place in result.representative.tolist()]
    timeline = result.timeline(sorted(set(stands_for)))
    return Gantt(result.trace, timeline, stands_for=stands_for, account=lambda: compute_ledger(result))


def _is_of(sides: Sides, job: str, run: str) -> bool:
    return any(other == job and run in ("", its) for other, its in sides)
