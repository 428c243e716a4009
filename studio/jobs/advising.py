"""Keep the runs of advice in the workspace, so that each can be opened and compared with the run before the change.

A change of the system is a run of the job itself. A change of the job needs a job of its own: a copy whose nodes keep their ids,
so that both are compared node by node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from studio.advice.advice import Advice, Advised
from studio.advice.words import describe_saving, label_advice
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.trace import Trace, compute_trace_digest

_MARK = "advice"
PREFIX, BEFORE = "advice: ", "before advice"
"""What runs that were made for advice are called by: of a change, and of what it changes."""

Tell = Callable[[int, int], None]


def keep_advice(
    workspace: Workspace, job: str, trace: Trace, advised: Advised, *, tell: Tell | None = None
) -> Advised:
    """Store the runs of all advice that saves more than 1 %, of the best set, and of the baseline; return the advice with their ids.

    Args:
        workspace: Where to.
        job: The job the advice is for.
        trace: What it holds.
        advised: The advice.
        tell: Told how many runs are stored, and of how many.

    Raises:
        StudioError: There is no such job, the disk is full or the workspace cannot be written.
    """
    worth = list(advised.worth_it)
    total = 1 + len(worth) + (advised.combined is not None)
    base = keep_baseline(workspace, job, trace, advised)
    kept = []
    for done, item in enumerate(worth, start=1):
        if tell:
            tell(done, total)
        kept.append(replace(item, run=keep_run(workspace, job, trace, item)))
    if tell:
        tell(total - 1, total)
    combined = advised.combined
    if combined is not None:
        combined = replace(combined, run=keep_run(workspace, job, trace, combined))
    if tell:
        tell(total, total)
    return replace(
        advised,
        advice=(*kept, *(item for item in advised.advice if not item.is_worth_it)),
        combined=combined,
        baseline_run=f"{job}/{base}",
    )


def keep_baseline(workspace: Workspace, job: str, trace: Trace, advised: Advised) -> str:
    """Store the run that advice is measured against, and return its id.

    Raises:
        StudioError: There is no such job, the disk is full or the workspace cannot be written.
    """
    return workspace.save_run(job, _simulate_job(BEFORE, trace, advised.on))


def keep_run(workspace: Workspace, job: str, trace: Trace, item: Advice) -> str:
    """Store the run of one advice and return its id, as JOB/RUN.

    Args:
        workspace: Where to.
        job: The job the advice is for.
        trace: What it holds.
        item: The advice.

    Raises:
        StudioError: There is no such job, the disk is full or the workspace cannot be written.
    """
    changed = item.change.of_trace(trace)
    place = job
    if item.change.edits:
        place = _store_changed_job(workspace, job, changed, item)
    run = workspace.save_run(
        place, _simulate_job(f"{PREFIX}{label_advice(item)}", changed, item.change.of_parts(item.on))
    )
    return f"{place}/{run}"


def is_for_advice(name: str) -> bool:
    """Whether a run of this name was made for advice."""
    return name == BEFORE or name.startswith(PREFIX)


def _simulate_job(name: str, trace: Trace, parts: Parts) -> Run:
    return Run(name, simulate(trace, interpret(parts).config), parts)


def _store_changed_job(workspace: Workspace, job: str, trace: Trace, item: Advice) -> str:
    """Store the changed job, or return the one stored earlier for the same change."""
    mark = f"{_MARK}:{job}:{compute_trace_digest(trace)}"
    known = workspace.find(mark)
    if known:
        return known.id
    name, label = workspace.info(job).name, label_advice(item)
    return workspace.save(
        trace,
        f"{name[:120]} ({label[:70]})",
        source=f"{name}, changed: {item.action} {describe_saving(item)}",
        fingerprint=mark,
        hypothetical=label,
    )
