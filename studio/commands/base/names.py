"""Resolve names of jobs and runs given on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from studio.commands.base.prefix import build_missing_job_error, find_by_prefix
from studio.comparing import RECORDED, SIDES_AT_MOST, Compared, build_compared_recording, name_in_errors
from studio.errors import ConfigError
from studio.et import Progress, read
from studio.session import Session
from studio.store.job_infos import JobInfo
from studio.store.workspace import Workspace

_LISTED = 8


def find_job(workspace: Workspace, name: str) -> JobInfo:
    """Find a job by id or name.

    Raises:
        ConfigError: There is no such job, or several have the name.
    """
    jobs = workspace.jobs() if workspace.root.is_dir() else []
    matches = [job for job in jobs if job.id == name] or [job for job in jobs if job.name == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(job.id for job in matches[:_LISTED])
        raise ConfigError(
            f"JOB {name!r} is the name of {len(matches)} jobs: {ids}", hint="Name one of them by its id."
        )
    words = list(dict.fromkeys(word for job in jobs for word in (job.id, job.name)))
    near = [word for word in words if name and name.lower() in word.lower()]
    near = near or difflib.get_close_matches(name[:200], words, n=3)
    if near:
        hint = f"The nearest {'is' if len(near) == 1 else 'are'} {_format_names(near)}."
    elif jobs:
        hint = f"The jobs there are: {_format_names([job.id for job in jobs])}."
    else:
        hint = "It has no jobs yet: `chakra-studio simulate WORKLOAD … --out NAME` keeps a run, and the job with it."
    raise ConfigError(
        f"There is no job {name[:80]!r} in the workspace {workspace.root}, by id or by name", hint=hint
    )


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def find_runs(
    names: Sequence[str],
    workspace: Path | None = None,
    *,
    ranks: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    least: int = 2,
) -> list[Compared]:
    """Find runs by name, and recordings by path.

    A name is a path of traces, or, in the workspace: `job/run`, a run, a job (its recording, else its newest run);
    jobs and runs by id or by name.

    Args:
        names: `least` to `SIDES_AT_MOST`.
        workspace: Folder of imported jobs; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        progress: Told how far reading is.
        least: How many there have to be.

    Raises:
        ConfigError: Too few or too many names, or nothing is called so; names the nearest.
        StudioError: What is named cannot be read, or holds no times.
    """
    if not least <= len(names) <= SIDES_AT_MOST:
        raise ConfigError(
            f"{len(names)} runs are named; allowed: {least} to {SIDES_AT_MOST}",
            hint="`chakra-studio runs` lists the simulations that were kept.",
        )
    root = workspace or Workspace.default_root()

    @cache
    def open_session() -> Session | None:
        # One for all names, so that runs of one job share its trace.
        return Session(Workspace(root)) if root.is_dir() else None

    return [_find_run(name, open_session, ranks, progress) for name in names]


def _find_run(
    name: str,
    open_session: Callable[[], Session | None],
    ranks: Mapping[str, int] | None,
    progress: Progress | None,
) -> Compared:
    files: list[Path] = [Path(name)] if Path(name).exists() else find_by_prefix(name)
    if files:
        with name_in_errors(name):
            return build_compared_recording(read(files, ranks=ranks, progress=progress), name)
    session = open_session()
    if session is None:
        raise build_missing_job_error(name, "runs")
    return session.load_side(*find_stored_run(session.workspace, name))


def find_stored_run(store: Workspace, name: str) -> tuple[str, str]:
    """Find a run of the workspace by name; returns the ids of job and run."""
    named: dict[str, list[tuple[str, str]]] = {}
    for job in store.jobs():
        runs = store.runs(job.id) if job.runs else []
        timed = job.summary.timed_nodes > 0
        usual = RECORDED if timed or not runs else runs[0].id
        for word in dict.fromkeys((job.id, job.name)):
            named.setdefault(word, []).append((job.id, usual))
            named.setdefault(f"{word}/{RECORDED}", []).append((job.id, RECORDED))
            for run in runs:
                for label in dict.fromkeys((run.id, run.name)):
                    named.setdefault(f"{word}/{label}", []).append((job.id, run.id))
        for run in runs:
            for label in dict.fromkeys((run.id, run.name)):
                named.setdefault(label, []).append((job.id, run.id))
    fitting = list(dict.fromkeys(named.get(name, [])))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        choices = ", ".join(f"{job}/{run}" for job, run in fitting[:SIDES_AT_MOST])
        raise ConfigError(
            f"{name!r} names {len(fitting)} runs: {choices}", hint="Name one of them by its ids."
        )
    near = difflib.get_close_matches(name[:200], named, n=1)
    raise ConfigError(
        f"{name!r}: no file or folder, no files {name}.<rank>.et, no run or job of the workspace {store.root}",
        hint=f"The nearest is {near[0]}."
        if near
        else "`chakra-studio runs` lists the simulations that were kept.",
    )
