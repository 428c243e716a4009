"""The workspace: a folder of jobs and runs, shared by the web app and the command line.

    jobs/<id>/job.json      name, dates, sizes, summary: all that a list of jobs shows
    jobs/<id>/trace.json    ranks, comm groups, findings
    jobs/<id>/graphs.arrow  one record batch per distinct graph, one list column per array of the graph; `graphs.<n>.arrow`
                            for each graph where they were made apart from each other
    jobs/<id>/measures.json what Trends compares the recording by; a run has its own
    jobs/<id>/runs/<run>/   a simulation of the job that was kept, see `studio.store.runs`
    tmp/<id>/               a job being written; renamed to jobs/<id> when it is complete
    tmp/<id>.<random>       a run being written, what replaces a file, or what is being removed
    trash/<id>/             a job that was deleted, with its runs, for a day
    trash/<id>.<run>/       a run that was deleted, likewise

Jobs and runs appear and disappear by one rename, so a kill at any moment leaves them whole or absent, and studios
that share the folder never see half of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from studio.analysis.job.summary import EDITION, summarise
from studio.errors import StudioError, TraceError
from studio.files import PRIVATE_FOLDER, describe_bad_path, make_private
from studio.notebook import format_parts
from studio.store.durable_files import Damaged, escape_name, read_sealed, sync_folder, write_sealed
from studio.store.folders import Folders
from studio.store.job_infos import JobInfo, decode_info, describe_job, refuse_newer
from studio.store.run_infos import RunInfo, read_info
from studio.store.shelf import GraphShelf
from studio.store.stored_traces import read_trace, write_trace
from studio.trace import Trace

if TYPE_CHECKING:
    from studio.store.runs import Run

NAME_AT_MOST = 200
_EXAMINATION = "examination.json"
_MEASURES = "measures.json"


class Workspace:
    """A folder of jobs, shared by the web app, the commands and notebooks.

    Example:
        The examples of its methods go on from this one.

        >>> import json, studio, tempfile
        >>> from studio.store.runs import Run
        >>> workspace = studio.Workspace(tempfile.mkdtemp())
        >>> trace = studio.generate("resnet50", ranks=2)
        >>> job_id = workspace.save(trace, "ResNet")
        >>> system = studio.preset("hgx-h100-2")
        >>> result = studio.simulate(trace, system.config)
        >>> run_id = workspace.save_run(job_id, Run("on H100", result, system.parts))
        >>> [(job.name, job.runs) for job in workspace.jobs()]
        [('ResNet', 1)]
    """

    def __repr__(self) -> str:
        return format_parts("Workspace", [repr(str(self.root))])

    def __init__(self, root: Path | str) -> None:
        if bad := describe_bad_path(os.fspath(root)):
            raise StudioError(bad[0], hint=bad[1])
        self.root = Path(root).expanduser().absolute()
        self._folders = Folders(self.root)

    @classmethod
    def default_root(cls) -> Path:
        """Return the platform's folder for the data of this user.

        Example:
            >>> studio.Workspace.default_root().name
            'chakra-studio'
        """
        import platformdirs

        return Path(platformdirs.user_data_dir("chakra-studio", appauthor=False))

    def jobs(self) -> list[JobInfo]:
        """Return all jobs, newest first. Folders that cannot be read are left out.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> {job_id, second} <= {job.id for job in workspace.jobs()}
            True
        """
        jobs = []
        for job_id in self._folders.list_jobs():
            with contextlib.suppress(OSError, Damaged, msgspec.MsgspecError, UnicodeDecodeError):
                raw = read_sealed(self.root / "jobs" / job_id / "job.json")
                jobs.append(self._count_runs(decode_info(raw, job_id)))
        return sorted(jobs, key=lambda job: (-job.created, job.id))

    def changed_ns(self) -> int:
        """Return when a job was last added or removed, by whatever process; asked often, so it looks at nothing else.

        Example:
            >>> before = workspace.changed_ns()
            >>> info = workspace.info(job_id)
            >>> workspace.changed_ns() == before
            True
        """
        with self._folders.convert_errors("the jobs cannot be listed"):
            return (self.root / "jobs").stat().st_mtime_ns

    def info(self, job_id: str) -> JobInfo:
        """Return the list entry of a job.

        Raises:
            StudioError: There is no such job (names the nearest one), or a newer studio has written it.
            TraceError: What is stored about it is damaged.

        Example:
            >>> info = workspace.info(job_id)
            >>> info.name, info.summary.ranks, info.runs
            ('ResNet', 2, 1)
        """
        try:
            with self._folders.convert_errors(f"job {job_id} cannot be read"):
                raw = read_sealed(self._folders.locate(job_id) / "job.json")
        except FileNotFoundError:
            raise self._folders.build_unknown_error(job_id) from None
        except Damaged as error:
            raise _build_damage_error(job_id, error) from error
        try:
            refuse_newer(raw, job_id)
            return self._count_runs(decode_info(raw, job_id))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _build_damage_error(job_id, error) from error

    def require(self, job_id: str, run_id: str = "") -> None:
        """Raise an error if the job, or the run, does not exist; fast.

        Raises:
            StudioError: There is none; names the nearest.

        Example:
            >>> workspace.require(job_id, run_id)
            >>> try:
            ...     workspace.require("resnet")
            ... except studio.StudioError as error:
            ...     print(error.message)
            There is no job 'resnet' in this workspace.
        """
        if not self._folders.has_job(job_id):
            raise self._folders.build_unknown_error(job_id)
        if run_id and not (self._folders.locate(job_id, run_id) / "run.json").is_file():
            raise self._folders.build_unknown_error(job_id, run_id)

    def load(self, job_id: str) -> Trace:
        """Open a job.

        Raises:
            StudioError: There is no such job, or a newer studio has written it.
            TraceError: Its files are damaged.

        Example:
            >>> workspace.load(job_id)
            Trace(2 ranks, 1 graph, 612 nodes, 1 comm group, 1 finding)
        """
        self.info(job_id)
        folder = self._folders.locate(job_id)
        try:
            return read_trace(folder)
        except Damaged as error:
            if not folder.is_dir():
                raise self._folders.build_unknown_error(job_id) from None
            raise _build_damage_error(job_id, error) from error

    def save(  # noqa: PLR0913 - all but the first two by name
        self,
        trace: Trace,
        name: str,
        *,
        source: str = "",
        fingerprint: str = "",
        tick: Callable[[int, int], None] | None = None,
        recorded: float = 0.0,
        shelf: GraphShelf | None = None,
        source_bytes: int = 0,
        hypothetical: str = "",
    ) -> str:
        """Store a job and return its id.

        Args:
            trace: The job.
            name: What to call it; cut to 200 characters.
            source: What it was imported from: paths, each in a line of its own, or words.
            fingerprint: Tells the files apart, see `find`.
            tick: Told the graphs written and the graphs in all; may raise to stop, leaving nothing behind.
            recorded: When its files were written, seconds since the epoch; 0 where that is not known.
            shelf: The one that its graphs were put onto as they were read, if they were.
            source_bytes: Bytes of the files it was imported from; 0 where there are none.
            hypothetical: What was changed of another job to make it, in a few words; "" for a job that somebody has.

        Raises:
            StudioError: The disk is full or the workspace cannot be written.

        Example:
            >>> second = workspace.save(trace, "Another name", source="generated")
            >>> second[:13], workspace.info(second).source
            ('another-name-', 'generated')
        """
        cleaned = _clean_name(name)
        job_id = f"{_build_slug(cleaned)}-{secrets.token_hex(3)}"
        aside = self.root / "tmp" / job_id
        try:
            with self._folders.convert_errors(f"{cleaned} cannot be stored", aside, trace):
                aside.mkdir(PRIVATE_FOLDER)
                handed = shelf.hand_over(trace, aside) if shelf else None
                write_trace(trace, aside, tick, handed.checksums if handed else None)
                size = sum(path.stat().st_size for path in aside.iterdir())
                info = describe_job(trace, job_id, cleaned, size, handed)
                info = replace(info, source=escape_name(source), fingerprint=fingerprint)
                info = replace(
                    info,
                    recorded=recorded,
                    source_bytes=source_bytes,
                    hypothetical=escape_name(hypothetical),
                )
                write_sealed(aside / "job.json", info)
                sync_folder(aside)
                aside.rename(self.root / "jobs" / job_id)
                sync_folder(self.root / "jobs")
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return job_id

    @contextlib.contextmanager
    def shelf(self, name: str) -> Iterator[GraphShelf]:
        """Yield a place for the graphs of a job that is about to be read, see `save`; gone with the block.

        It raises a StudioError where the disk is full or the workspace cannot be written.

        Example:
            >>> with workspace.shelf("second") as shelf:
            ...     second = workspace.save(trace, "second", shelf=shelf)
            >>> workspace.load(second).node_count
            612
        """
        folder = self.root / "tmp" / f"graphs-{secrets.token_hex(6)}"
        what = f"{_clean_name(name)} cannot be stored"
        shelf = GraphShelf(folder, lambda: self._folders.convert_errors(what, folder))
        try:
            yield shelf
        finally:
            shelf.close()

    def save_examination(self, job_id: str, value: Any) -> None:
        """Store what the examination of a job found, beside the job; see `load_examination`.

        Raises:
            StudioError: There is no such job, or the workspace cannot be written.

        Example:
            >>> workspace.save_examination(job_id, {"problems": 0})
            >>> json.loads(workspace.load_examination(job_id))["problems"]
            0
        """
        self.require(job_id)
        path = self._folders.locate(job_id) / _EXAMINATION
        try:
            self._folders.replace_file(path, value, f"the findings of {job_id} cannot be stored")
        except FileNotFoundError:
            raise self._folders.build_unknown_error(job_id) from None

    def load_examination(self, job_id: str) -> bytes | None:
        """Return the stored examination of a job as JSON; None where there is none, it is damaged, or there is no such job.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> workspace.load_examination(second) is None
            True
        """
        try:
            return read_sealed(self._folders.locate(job_id) / _EXAMINATION)
        except (OSError, Damaged, StudioError):
            return None

    def save_measures(self, job_id: str, run_id: str, value: Any) -> None:
        """Store the measures of a run of a job, or of its recording for "", beside it; see `load_measures`.

        Raises:
            StudioError: There is no such job or run, or the workspace cannot be written.

        Example:
            >>> workspace.save_measures(job_id, run_id, {"makespan_ns": 5})
            >>> json.loads(workspace.load_measures(job_id, run_id))["makespan_ns"]
            5
        """
        self.require(job_id, run_id)
        path = self._folders.locate(job_id, run_id or None) / _MEASURES
        try:
            self._folders.replace_file(path, value, f"the measures of {job_id} cannot be stored")
        except FileNotFoundError:
            raise self._folders.build_unknown_error(job_id, run_id or None) from None

    def load_measures(self, job_id: str, run_id: str = "") -> bytes | None:
        """Return the stored measures of a run as JSON; None where there are none, they are damaged, or there is no such run.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> workspace.save_measures(second, "", {"makespan_ns": 7})
            >>> json.loads(workspace.load_measures(second))["makespan_ns"], workspace.load_measures(second, "no-such-run")
            (7, None)
        """
        try:
            folder = self._folders.locate(job_id, run_id or None)
            return read_sealed(folder / _MEASURES)
        except (OSError, Damaged, StudioError):
            return None

    def find(self, fingerprint: str) -> JobInfo | None:
        """Find the newest job with this fingerprint.

        Example:
            >>> second = workspace.save(trace, "second", fingerprint="my-files")
            >>> workspace.find("my-files").id == second, workspace.find("other-files")
            (True, None)
        """
        return next((job for job in self.jobs() if fingerprint and job.fingerprint == fingerprint), None)

    def rename(self, job_id: str, name: str) -> JobInfo:
        """Rename a job.

        Raises:
            StudioError: There is no such job, or the name is empty.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> workspace.rename(second, "A better name").name
            'A better name'
        """
        info = replace(self.info(job_id), name=_clean_name(name))
        self._replace_info(info, f"{info.name} cannot be renamed")
        return info

    def renew_summary(self, job_id: str, trace: Trace) -> JobInfo:
        """Store the numbers of a job as they are counted now, and return its list entry.

        Where the workspace cannot be written, the entry has them all the same, and says that the stored ones are old.

        Raises:
            StudioError: There is no such job.

        Example:
            >>> workspace.renew_summary(job_id, trace).has_old_summary
            False
        """
        summary = summarise(trace)
        info = replace(self.info(job_id), summary=summary, edition=EDITION)
        try:
            self._replace_info(info, f"{info.name} cannot be counted again")
        except StudioError:
            return replace(self.info(job_id), summary=summary)
        return info

    def _replace_info(self, info: JobInfo, problem: str) -> None:
        try:
            self._folders.replace_file(self._folders.locate(info.id) / "job.json", info, problem)
        except FileNotFoundError:
            raise self._folders.build_unknown_error(info.id) from None

    def delete(self, job_id: str) -> None:
        """Delete a job. It can be restored for a day; a later start of a studio frees its space.

        Raises:
            StudioError: There is no such job.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> workspace.delete(second)
            >>> second in [job.id for job in workspace.jobs()]
            False
        """
        self._folders.discard(job_id)

    def restore(self, job_id: str) -> None:
        """Restore a deleted job.

        Raises:
            StudioError: It was not deleted, or longer ago than it is kept.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> workspace.delete(second)
            >>> workspace.restore(second)
            >>> workspace.info(second).name
            'second'
        """
        self._folders.bring_back(job_id)

    # -----------------------------------------------------------------------------------------------
    # Runs

    def runs(self, job_id: str) -> list[RunInfo]:
        """Return the runs of a job, newest first. Those that cannot be read are left out.

        Raises:
            StudioError: There is no such job.

        Example:
            >>> [run.name for run in workspace.runs(job_id)]
            ['on H100']
        """
        runs = []
        for folder in self._folders.list_runs(job_id):
            with contextlib.suppress(Damaged):
                runs.append(replace(read_info(folder), id=folder.name, job=job_id))
        if not self._folders.has_job(job_id):
            raise self._folders.build_unknown_error(job_id)
        return sorted(runs, key=lambda run: (-run.created, run.id))

    def run_info(self, job_id: str, run_id: str) -> RunInfo:
        """Return the list entry of a run.

        Raises:
            StudioError: There is no such job or run; names the nearest.
            TraceError: What is stored about it is damaged.

        Example:
            >>> workspace.run_info(job_id, run_id).makespan_ns == result.makespan_ns
            True
        """
        folder = self._folders.locate(job_id, run_id)
        try:
            return replace(read_info(folder), id=run_id, job=job_id)
        except Damaged as error:
            if not folder.is_dir():
                raise self._folders.build_unknown_error(job_id, run_id) from None
            raise _build_run_damage_error(run_id, error) from error

    def save_run(self, job_id: str, run: Run) -> str:
        """Store a simulation of a job and return the run's id.

        Raises:
            StudioError: There is no such job, the disk is full or the workspace cannot be written.
            ConfigError: The run's tables do not describe the system it was simulated on.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> again = workspace.save_run(second, Run("again", result, system.parts))
            >>> [run.name for run in workspace.runs(second)]
            ['again']
        """
        # Lists need none of the simulator behind it.
        from studio.store.runs import write_run

        job = self._folders.locate(job_id)
        name = _clean_name(run.name, "run")
        run_id = f"{_build_slug(name, 'run')}-{secrets.token_hex(3)}"
        aside = self._folders.name_aside(job_id)
        try:
            with self._folders.convert_errors(f"run {name} cannot be stored", aside, run.result):
                aside.mkdir(PRIVATE_FOLDER)
                write_run(run, aside, run_id=run_id, job_id=job_id, name=name)
                # Its algorithms are written as traces are, readable for all.
                make_private(aside)
                sync_folder(aside)
                (job / "runs").mkdir(PRIVATE_FOLDER, exist_ok=True)
                aside.rename(job / "runs" / run_id)
                sync_folder(job / "runs")
        except FileNotFoundError:
            raise self._folders.build_unknown_error(job_id) from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return run_id

    def load_run(self, job_id: str, run_id: str, trace: Trace | None = None) -> Run:
        """Open a run.

        Args:
            job_id: Its job.
            run_id: Which.
            trace: The trace of its job, where it is open already.

        Raises:
            StudioError: There is no such job or run, or a newer studio has written it.
            TraceError: Its files are damaged.

        Example:
            >>> run = workspace.load_run(job_id, run_id)
            >>> run.name, run.result.makespan_ns == result.makespan_ns
            ('on H100', True)
        """
        # Lists need none of the simulator behind it.
        from studio.store.runs import read_run

        info = self.run_info(job_id, run_id)
        folder = self._folders.locate(job_id, run_id)
        trace = trace or self.load(job_id)
        try:
            return read_run(folder, info, trace)
        except Damaged as error:
            if not folder.is_dir():
                raise self._folders.build_unknown_error(job_id, run_id) from None
            raise _build_run_damage_error(run_id, error) from error

    def rename_run(self, job_id: str, run_id: str, name: str) -> RunInfo:
        """Rename a run.

        Raises:
            StudioError: There is no such job or run, or the name is empty.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> again = workspace.save_run(second, Run("again", result, system.parts))
            >>> workspace.rename_run(second, again, "A better name").name
            'A better name'
        """
        info = replace(self.run_info(job_id, run_id), name=_clean_name(name, "run"))
        path = self._folders.locate(job_id, run_id) / "run.json"
        try:
            self._folders.replace_file(path, info, f"run {info.name} cannot be renamed")
        except FileNotFoundError:
            raise self._folders.build_unknown_error(job_id, run_id) from None
        return info

    def delete_run(self, job_id: str, run_id: str) -> None:
        """Delete a run. It can be restored for a day.

        Raises:
            StudioError: There is no such job or run.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> again = workspace.save_run(second, Run("again", result, system.parts))
            >>> workspace.delete_run(second, again)
            >>> workspace.runs(second)
            []
        """
        self._folders.discard(job_id, run_id)

    def restore_run(self, job_id: str, run_id: str) -> None:
        """Restore a deleted run.

        Raises:
            StudioError: It was not deleted, or longer ago than it is kept, or its job is gone.

        Example:
            >>> second = workspace.save(trace, "second")
            >>> again = workspace.save_run(second, Run("again", result, system.parts))
            >>> workspace.delete_run(second, again)
            >>> workspace.restore_run(second, again)
            >>> [run.name for run in workspace.runs(second)]
            ['again']
        """
        self._folders.bring_back(job_id, run_id)

    def _count_runs(self, info: JobInfo) -> JobInfo:
        """Add number and size of its runs to a job's list entry."""
        folders = self._folders.list_runs(info.id)
        sizes = [_get_size(path) for folder in folders for path in folder.rglob("*")]
        return replace(info, runs=len(folders), runs_bytes=sum(sizes))

    # -----------------------------------------------------------------------------------------------


def _build_damage_error(job_id: str, error: Exception) -> TraceError:
    return TraceError(
        f"Job {job_id}: its files in the workspace are damaged ({error}).",
        hint="Delete it and import it again.",
    )


def _build_run_damage_error(run_id: str, error: Exception) -> TraceError:
    return TraceError(
        f"Run {run_id}: its files in the workspace are damaged ({error}).",
        hint="Delete it and simulate again.",
    )


def _get_size(path: Path) -> int:
    """Return the size of a file, 0 if it was just deleted."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _build_slug(name: str, otherwise: str = "job") -> str:
    """Reduce a name to characters allowed in an address.

    Example:
        >>> _build_slug("Llama 70B / run 3")
        'llama-70b-run-3'
    """
    ascii_only = name.encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_only).strip("-")[:40].strip("-") or otherwise


def _clean_name(name: str, noun: str = "job") -> str:
    cleaned = " ".join("".join(c for c in name if c.isprintable() or c.isspace()).split())[:NAME_AT_MOST]
    if not cleaned:
        raise StudioError(f"A {noun} needs a name.", hint="Enter at least one visible character.")
    return cleaned
