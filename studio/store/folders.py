"""Where jobs and runs lie in the workspace, and how they appear, change and go: by one rename each."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from studio.errors import StudioError
from studio.files import PRIVATE_FOLDER, describe_full_disk, is_full, sum_sizes_below
from studio.store.cache import measure
from studio.store.durable_files import write_sealed
from studio.units import format_bytes

_ABANDONED_S = 86_400
_PARTS = ("jobs", "tmp", "trash")
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")


class Folders:
    """The folders of a workspace, see `studio.store.workspace` for what is in them.

    Attributes:
        root: The folder of the workspace.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        with self.convert_errors("the workspace cannot be used"):
            _open_root(self.root)
            for part in _PARTS:
                (self.root / part).mkdir(PRIVATE_FOLDER, exist_ok=True)
            self._sweep()

    def list_jobs(self) -> list[str]:
        """Return the ids of all jobs."""
        with self.convert_errors("the jobs cannot be listed"):
            return _list_ids(self.root / "jobs")

    def list_runs(self, job_id: str) -> list[Path]:
        """Return the folders of all runs of a job, in the order of their names; none where there is no such job."""
        runs = self.locate(job_id) / "runs"
        try:
            return [runs / name for name in sorted(_list_ids(runs))]
        except OSError:
            return []

    def locate(self, job_id: str, run_id: str | None = None) -> Path:
        """Return the folder of a job, or of one of its runs; it need not exist.

        Raises:
            StudioError: An id has the wrong form, as one in an address may.
        """
        folder = self.root / "jobs" / job_id
        if not _ID.fullmatch(job_id) or folder.is_symlink():
            raise self.build_unknown_error(job_id)
        if run_id is None:
            return folder
        folder = folder / "runs" / run_id
        if not _ID.fullmatch(run_id) or folder.is_symlink():
            raise self.build_unknown_error(job_id, run_id)
        return folder

    def has_job(self, job_id: str) -> bool:
        """Whether there is a job of this id; fast."""
        return (self.locate(job_id) / "job.json").is_file()

    def name_aside(self, job_id: str) -> Path:
        """Return a new path on the same disk, for what is to replace something of a job, or is being removed."""
        return self.root / "tmp" / f"{job_id}.{secrets.token_hex(4)}"

    def replace_file(self, path: Path, value: Any, problem: str) -> None:
        """Write a file of a job or run anew; whoever reads it gets all of the old one or all of the new one.

        Args:
            path: The file, in the folder of a job or run.
            value: What is written, as JSON with a checksum.
            problem: What failed, for the message, where it cannot be written.

        Raises:
            FileNotFoundError: The folder is gone.
            StudioError: The workspace cannot be written.
        """
        aside = self.name_aside(path.parent.name)
        try:
            with self.convert_errors(problem):
                write_sealed(aside, value)
                aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

    def discard(self, job_id: str, run_id: str | None = None) -> None:
        """Move a job, or one of its runs, to the trash.

        Raises:
            StudioError: There is none, or the workspace cannot be written.
        """
        folder = self.locate(job_id, run_id)
        what = f"job {job_id}" if run_id is None else f"run {run_id}"
        try:
            with self.convert_errors(f"{what} cannot be deleted"):
                # Touch it before moving it to the trash, or a studio starting now would think it a day old.
                os.utime(folder)
                folder.rename(self._name_in_trash(job_id, run_id))
        except FileNotFoundError:
            raise self.build_unknown_error(job_id, run_id) from None

    def bring_back(self, job_id: str, run_id: str | None = None) -> None:
        """Move a job, or one of its runs, back from the trash.

        Raises:
            StudioError: It is not there, or the job of the run is gone.
        """
        folder = self.locate(job_id, run_id)
        try:
            self._name_in_trash(job_id, run_id).rename(folder)
        except OSError:
            raise self.build_unknown_error(job_id, run_id) from None

    def _name_in_trash(self, job_id: str, run_id: str | None) -> Path:
        return self.root / "trash" / (job_id if run_id is None else f"{job_id}.{run_id}")

    def build_unknown_error(self, job_id: str, run_id: str | None = None) -> StudioError:
        """Return the error that there is no such job, or that the job has no such run; it names the nearest."""
        if run_id is not None and self.has_job(job_id):
            near = difflib.get_close_matches(run_id[:80], [run.name for run in self.list_runs(job_id)], n=1)
            otherwise = f"`chakra-studio runs {job_id}` lists the runs of the job."
            message = f"Job {job_id} has no run {run_id[:80]!r}."
        else:
            near = difflib.get_close_matches(job_id[:80], self.list_jobs(), n=1)
            otherwise = "Open Home for the list of jobs."
            message = f"There is no job {job_id[:80]!r} in this workspace."
        return StudioError(message, hint=f"The nearest is {near[0]}." if near else otherwise)

    @contextlib.contextmanager
    def convert_errors(self, what: str, aside: Path | None = None, value: object = None) -> Iterator[None]:
        """Convert errors of writing to errors for the user, except missing files.

        Args:
            what: What failed, for the message.
            aside: Folder that is being written, and removed after an error.
            value: What is written there.
        """
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.root.is_dir():
                raise
            full = is_full(error)
            reason = error.strerror or str(error)
            if full:
                written = sum_sizes_below(aside) if aside else 0
                needed = max(measure(value).bytes, written)
                reason = describe_full_disk(
                    self.root, needed=f"about {format_bytes(needed)}", removed_bytes=written, error=error
                )
            place = "" if full else f"{self.root}: "
            raise StudioError(
                f"{place}{what}: {reason}.",
                hint="Free some space, or choose another disk with --workspace DIR."
                if full
                else "Choose another folder with --workspace DIR, or change its permissions.",
            ) from error

    def _sweep(self) -> None:
        """Delete old leftovers of killed studios; recent ones may belong to a running studio."""
        for path in [*(self.root / "tmp").iterdir(), *(self.root / "trash").iterdir()]:
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime <= _ABANDONED_S:
                    continue
                # Rename first, so that a half-deleted job cannot be restored.
                gone = path.rename(self.name_aside(path.name[:80]))
                if gone.is_dir() and not gone.is_symlink():
                    shutil.rmtree(gone)
                else:
                    gone.unlink()


def _open_root(root: Path) -> None:
    """Make the folder of a workspace, and keep other accounts of the machine out of it.

    A folder that holds other things as well, and one of somebody else, stays as open as it is; ours in it are closed.
    """
    is_ours = not root.exists() or not any(root.iterdir()) or all((root / part).is_dir() for part in _PARTS)
    root.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    now = root.stat()
    if is_ours and now.st_mode & 0o077 and hasattr(os, "geteuid") and now.st_uid == os.geteuid():
        root.chmod(PRIVATE_FOLDER)


def _list_ids(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if _ID.fullmatch(entry.name) and not entry.is_symlink()]
