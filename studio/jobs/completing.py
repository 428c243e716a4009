"""Completed and scaled jobs: new jobs, made of a recorded one, that record their origin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from studio.completion.clues import Known, collect_facts
from studio.completion.complete import choose_mesh, complete_on
from studio.completion.layout import Layout, parse_layout_file
from studio.completion.mesh import Mesh, parse_layout
from studio.completion.rules import Layers
from studio.completion.scale import refuse_missing, scale_mesh
from studio.completion.spread import NO_SPREAD, Spread
from studio.errors import TraceError
from studio.generation.recipe import Growth, scale_job
from studio.jobs.checking import start_check
from studio.session import Session
from studio.store.job_infos import JobInfo
from studio.store.tasks import Report, Task, TaskCancelled, Tasks, submit
from studio.trace import Finding, Trace

Verb = Literal["complete", "scale"]
_DONE: Mapping[Verb, str] = {"complete": "completed", "scale": "scaled"}
_NAME_LENGTH = 180
_ALL_TELL = 64
"""Ranks up to which each is asked what it tells about the mesh."""


@dataclass(frozen=True, slots=True)
class Completing:
    """What a job is to be completed to.

    Attributes:
        layout: The mesh of its ranks, such as `tp=4,dp=8`.
        spread: How durations of copies differ from those recorded.
        damaged: Whether a job of which something could not be read is completed.
        file: Name and text of a file whose comm groups count (`completion.layout`); None for none. Its dimensions do not.
    """

    layout: str
    spread: Spread = NO_SPREAD
    damaged: bool = False
    file: tuple[str, str] | None = None

    def given(self) -> Layout:
        """Return what is said of the layout.

        Raises:
            ConfigError: It is none.
        """
        sizes = tuple(parse_layout(self.layout))
        return replace(parse_layout_file(*self.file), sizes=sizes) if self.file else Layout(sizes)


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a job is to be scaled to.

    Attributes:
        layout: The mesh of its ranks as it is.
        ranks: Ranks of the larger job.
        pp, ep, tp: Its pipeline stages, ranks along its expert and its tensor dimension; None keeps those there are.
        strong: Whether more replicas share the batch.
        layers: Whether more stages share the layers of the model, or each has as many as before.
    """

    layout: str
    ranks: int
    pp: int | None = None
    ep: int | None = None
    tp: int | None = None
    strong: bool = False
    layers: Layers = "divided"

    def mesh(self, before: Mesh) -> Mesh:
        """Return the mesh of the larger job.

        Raises:
            ConfigError: The numbers do not fit the one before.
        """
        return scale_mesh(before, ranks=self.ranks, pp=self.pp, ep=self.ep, tp=self.tp)


@dataclass(frozen=True, slots=True)
class Source:
    """The job that a completed or scaled one was made from; it may be gone by now.

    Attributes:
        job: Its id.
        verb: What was done.
    """

    job: str
    verb: Verb


@dataclass(frozen=True, slots=True)
class _Order:
    """A job to be made of another.

    Attributes:
        info: The other job.
        verb: How.
        wanted: Tells it from others made of that job.
        name: What to call it.
        make: Makes it.
    """

    info: JobInfo
    verb: Verb
    wanted: Completing | Scaling
    name: str
    make: Callable[[Trace], Trace]


def start_completing(tasks: Tasks, session: Session, job: str, wanted: Completing) -> Task:
    """Queue the completion of a job; the task's result is the new job's id.

    Raises:
        StudioError: There is no such job.
    """
    info = session.workspace.info(job)
    name = _name_job(info.name, "completed")
    return _start(
        tasks, session, _Order(info, "complete", wanted, name, lambda trace: complete_trace(trace, wanted))
    )


def start_scaling(tasks: Tasks, session: Session, job: str, wanted: Scaling) -> Task:
    """Queue the scaling of a job; the task's result is the new job's id.

    Raises:
        StudioError: There is no such job.
    """
    return _start(tasks, session, _build_scaling_order(session, job, wanted))


def make_scaled(tasks: Tasks, session: Session, job: str, wanted: Scaling, report: Report) -> str:
    """Scale a job within a task that goes on with it; returns the new job's id, that of an identical earlier one if there is.

    Raises:
        ConfigError, TraceError: As of `scale_trace`.
    """
    return _carry_out(tasks, session, _build_scaling_order(session, job, wanted), report)


def _build_scaling_order(session: Session, job: str, wanted: Scaling) -> _Order:
    info = session.workspace.info(job)
    times, rest = divmod(wanted.ranks, max(info.summary.ranks, 1))
    name = _name_job(info.name, f"scaled ×{times:,}" if not rest else f"scaled to {wanted.ranks:,} ranks")
    return _Order(info, "scale", wanted, name, lambda trace: scale_trace(trace, wanted))


def complete_trace(trace: Trace, wanted: Completing) -> Trace:
    """Return a job with every missing rank.

    Raises:
        ConfigError: The layout does not fit what is known.
        TraceError: Something of the job could not be read, no rank of some pipeline stage is known, or ranks would wait for ever.
    """
    lost = find_unreadable(trace)
    if lost is not None and not wanted.damaged:
        raise TraceError(
            f"Copies would repeat what could not be read: {lost.message}",
            hint="Record the rank again, or allow damaged ranks under Advanced.",
        )
    given = wanted.given()
    known = collect_facts(trace, given)
    mesh = choose_mesh(known, given, None, first=True)
    return complete_on(known, mesh, wanted.spread, axes=given.axes)


def scale_trace(trace: Trace, wanted: Scaling) -> Trace:
    """Return a job on more replicas, pipeline stages, tensor-parallel ranks or ranks for its experts.

    Raises:
        ConfigError: The numbers do not fit the job's mesh, or sizes do not divide.
        TraceError: Ranks are missing.
    """
    mesh = choose_mesh(collect_layout_facts(trace), wanted.layout, None, first=True)
    refuse_missing(trace, mesh)
    growth = Growth(
        None, wanted.ranks, wanted.pp, wanted.ep, wanted.tp, strong=wanted.strong, layers=wanted.layers
    )
    return scale_job(trace, mesh, growth)[0]


def collect_layout_facts(trace: Trace, given: Layout | None = None) -> Known:
    """Return the clues of a job about its mesh; of large jobs only from ranks that stand for others.

    Args:
        trace: The job.
        given: A layout that lists members of comm groups which the job does not list.

    Raises:
        ConfigError: A group's members fit no mesh; names them.
    """
    if len(trace.ranks) <= _ALL_TELL:
        return collect_facts(trace, given)
    # Ranks that share a graph have the same roles, and the groups of one tell where dimensions begin and end.
    first = {rank.graph: rank for rank in reversed(trace.ranks)}
    chosen = sorted(first.values(), key=lambda rank: rank.number)
    every = -(-len(chosen) // _ALL_TELL)
    return collect_facts(replace(trace, ranks=tuple(chosen[::every])), given)


def find_unreadable(trace: Trace) -> Finding | None:
    """Return the first finding on what could not be read of a job; None where all was read."""
    return next((finding for finding in trace.findings if finding.level == "error"), None)


def parse_source(info: JobInfo) -> Source | None:
    """Return what a completed or scaled job was made from; None for other jobs."""
    kind, _, rest = info.fingerprint.partition(":")
    verb = next((verb for verb in _DONE if verb == kind), None)
    return Source(rest.partition(":")[0], verb) if verb else None


def _start(tasks: Tasks, session: Session, order: _Order) -> Task:
    def work(report: Report) -> str:
        return _carry_out(tasks, session, order, report)

    return submit(tasks, order.verb, order.info.name, work, job=order.info.id)


def _carry_out(tasks: Tasks, session: Session, order: _Order, report: Report) -> str:
    """Store the new job, and have it checked."""
    job_id = _make(session, order, report)
    start_check(tasks, session, job_id)
    return job_id


def _make(session: Session, order: _Order, report: Report) -> str:
    """Store the new job and return its id; an identical earlier one is reused."""
    details = hashlib.blake2b(repr(order.wanted).encode(), digest_size=8).hexdigest()
    mark = f"{order.verb}:{order.info.id}:{details}"
    known = session.workspace.find(mark)
    if known:
        return known.id
    report.running(0, 3, phase="reading")
    trace = session.trace(order.info.id)
    report.running(1, 3, phase="copying ranks")
    whole = order.make(trace)
    report.running(2, 3, phase="storing")

    def tick(done: int, total: int) -> None:
        report.running(done, total, phase="storing", unit="graphs")

    source = f"{order.info.name}, {_DONE[order.verb]}"
    job_id = session.workspace.save(whole, order.name, source=source, fingerprint=mark, tick=tick)
    if not report.finish(job_id):
        session.workspace.delete(job_id)
        raise TaskCancelled
    return job_id


def _name_job(name: str, done: str) -> str:
    """Return what to call a job made of another.

    Example:
        >>> _name_job(_name_job("llama", "completed"), "scaled ×8")
        'llama (completed, scaled ×8)'
    """
    short = name[:_NAME_LENGTH]
    return f"{short[:-1]}, {done})" if short.endswith(" (completed)") else f"{short} ({done})"
