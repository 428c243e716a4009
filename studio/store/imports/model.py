"""Data of imports, and the errors of requests about them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from filelock import FileLock

from studio import units
from studio.errors import StudioError
from studio.et.seen import JobSeen, Picture
from studio.et.source import SourceFile
from studio.store.durable_files import write_json
from studio.store.tasks import Problem, Report, TaskCancelled, Tasks

_PROGRESS_EVERY_S = 0.2
_UNITS = {"unpacking": "files", "checking": "bytes", "reading": "bytes", "storing": "graphs"}
"""What the progress of a phase counts."""

Status = Literal["uploading", "queued", "reading", "done", "failed", "cancelled", "interrupted"]


FileStatus = Literal["waiting", "uploading", "done", "cancelled", "failed", "used", "left out"]


Reason = Literal["missing", "conflict", "invalid", "too-large", "disk-full", "cut"]


class ImportRefusedError(StudioError):
    """A request that an import's state does not allow.

    Attributes:
        reason: Why, for the caller to act on.
        received: Where the file's upload goes on, for the reasons "conflict" and "cut" of a chunk.
    """

    def __init__(self, reason: Reason, message: str, *, hint: str = "", received: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.received = received


@dataclass(frozen=True, slots=True)
class Announced:
    """A file the user wants to import.

    Attributes:
        path: Its path as the user sees it, `/` between the parts; untrusted text.
        size_bytes: Its size.
        modified: When it was last changed, in whatever unit the sender uses; only compared.
    """

    path: str
    size_bytes: int
    modified: float | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """Progress of reading an import; `message`, if given, is shown instead of the numbers, which count `unit`.

    `picture` is what is known of the job by then.
    """

    phase: str
    done: int
    total: int
    message: str = ""
    unit: str = ""
    picture: Picture | None = None


@dataclass(frozen=True, slots=True)
class ImportFile:
    """The state of one file of an import.

    Attributes:
        id: Made by the studio.
        path: As the user sees it.
        size_bytes: What was announced.
        received_bytes: How much of it is here.
        status: "used" and "left out" are known once the files were sorted, before any is read.
        error: Why it failed or is left out.
        role: What it is used as.
    """

    id: str
    path: str
    size_bytes: int
    received_bytes: int
    status: FileStatus
    error: Problem | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class Import:
    """The state of an import.

    Attributes:
        id: Made by the studio.
        name: A name for the job, made from the files' paths.
        created: Seconds since the epoch.
        status: "interrupted" means that the studio at work on it has gone.
        files_total, size_bytes: What was announced, cancelled files left out.
        received_bytes: How much of it is here.
        progress: While it is read.
        job: Id of the job it became.
        error: Why it failed.
        warnings: What the reader wants known.
        idle_s: Seconds since the last byte came, while this studio receives it.
        files_used, files_left_out: How its files were sorted, before any is read; None until then.
    """

    id: str
    name: str
    created: float
    status: Status
    files_total: int
    size_bytes: int
    received_bytes: int
    progress: Phase | None = None
    job: str | None = None
    error: Problem | None = None
    warnings: tuple[str, ...] = ()
    idle_s: float | None = None
    files_used: int | None = None
    files_left_out: int | None = None


class ByteStream(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """Give at most `size` bytes; none at the end."""


@dataclass(frozen=True, slots=True)
class State:
    """State of an import, as `state.json` keeps it."""

    name: str
    created: float
    owner: str
    fingerprint: str
    status: Status
    files_total: int
    size_bytes: int
    job: str | None = None
    error: Problem | None = None
    warnings: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    file_errors: dict[str, Problem] = field(default_factory=dict)
    left_out: dict[str, Problem] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    npus: int | None = None
    details: str = ""


class Progress:
    """Progress and cancellation of an import, for the reader.

    Call it to report: `progress("reading", 12, 64, "12 of 64 ranks")`. It raises TaskCancelled once the user has
    cancelled, so a reader that reports often enough needs nothing else.

    Attributes:
        name: A name for the job, made from the files' paths.
        ranks: Ranks the user entered, by `SourceFile.name`; see RanksNeededError.
        npus: The number of NPUs the user entered; see NpusNeededError.
        seen: Told of ranks as they are read; shown with the progress.
    """

    def __init__(self, folder: Path, state: State, report: Report) -> None:
        self.name = state.name
        self.ranks: Mapping[str, int] = dict(state.ranks)
        self.npus = state.npus
        self.warnings: list[str] = []
        self.file_errors: dict[str, Problem] = {}
        self.left_out: dict[str, Problem] = {}
        self.used: dict[str, str] = {}
        self.on_sorted: Callable[[], None] = lambda: None
        self.upload_of: dict[Path, str] = {}
        self.seen = JobSeen()
        self._folder = folder
        self._report = report
        self._shown = Phase("", 0, 0)
        self._written_s = 0.0

    def __call__(self, phase: str, done: int, total: int, message: str = "") -> None:
        """Report progress."""
        self.check()
        unit = _UNITS.get(phase, "")
        self._report.running(done, total, phase=phase, unit=unit)
        now_s = time.monotonic()
        if phase == self._shown.phase and done < total and now_s - self._written_s < _PROGRESS_EVERY_S:
            return
        # What is known of a job counts until the next one of the same import is read.
        picture = self.seen.picture()
        self._shown, self._written_s = Phase(phase, done, total, message, unit, picture), now_s
        with contextlib.suppress(OSError):
            write_json(self._folder / "progress.json", self._shown, durable=False)

    def is_cancelled(self) -> bool:
        """Whether the user cancelled the import."""
        return self._report.is_cancelled()

    def check(self) -> None:
        """Raise TaskCancelled if the user has cancelled the import."""
        if self._report.is_cancelled():
            raise TaskCancelled

    def warn(self, message: str) -> None:
        """Add a sentence that is shown with the finished import."""
        self.warnings.append(message)

    def files_sorted(self, used: Mapping[Path, str], left_out: Mapping[Path, str]) -> None:
        """Show what each file is used as, and which are no part of the job, and why, before any is read.

        Args:
            used: What files are used as, by path; of an archive each member counts.
            left_out: The reasons, by path, likewise.
        """
        roles, reasons = self._group_by_upload(used), self._group_by_upload(left_out)
        for upload, parts in roles.items():
            self.used[upload] = parts[0] if len(parts) == 1 else f"{len(parts):,} files"
        whole = Counter(self.upload_of.values())
        for upload, each in reasons.items():
            more = f" and {len(each) - 1:,} more" if len(each) > 1 else ""
            if len(each) == whole[upload]:
                self.left_out[upload] = Problem(f"{each[0]}{more}", "")
            else:
                self.warn(f"Left out: {each[0]}{more}.")
        self.on_sorted()

    def _group_by_upload(self, words: Mapping[Path, str]) -> dict[str, list[str]]:
        """Return what is said of files by the upload that each came with."""
        by_upload: dict[str, list[str]] = {}
        for path, word in words.items():
            if upload := self.upload_of.get(path):
                by_upload.setdefault(upload, []).append(word)
        return by_upload

    def file_failed(self, file: SourceFile, error: StudioError) -> None:
        """Show an error beside one file of the import and go on."""
        if upload := self.upload_of.get(file.path):
            self.file_errors.setdefault(upload, Problem(error.message, error.hint))


ReadJob = Callable[[list[SourceFile], Progress], str]
"""Makes a job of files, archives already unpacked, and returns its id."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The imports of a workspace, for one running studio; opened by `open_registry`.

    Attributes:
        root: The folder of all imports.
        tasks: What reads them, in the background.

    The others are the inside of this package.
    """

    root: Path
    tasks: Tasks
    read_job: ReadJob
    lock: FileLock
    mutex: threading.RLock = field(default_factory=threading.RLock)
    writers: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    plans: dict[str, tuple[Announced, ...]] = field(default_factory=dict)
    cancels: dict[str, threading.Event] = field(default_factory=dict)
    touched: dict[str, float] = field(default_factory=dict)
    reading: dict[str, str] = field(default_factory=dict)


def build_unknown_import_error(import_id: str) -> ImportRefusedError:
    """Return the error for an unknown import."""
    message = f"There is no import {import_id[:40]!r}; it may have been dismissed."
    return ImportRefusedError("missing", message, hint="Drop the files again.")


def build_fixed_files_error(state: State) -> ImportRefusedError:
    """Return the error for changing the files of an import that is being read or done."""
    message = f"{state.name} is {state.status}; its files can no longer be changed."
    return ImportRefusedError("conflict", message, hint="Cancel the import first.")


def build_incomplete_error(missing: Sequence[ImportFile], total: int) -> ImportRefusedError:
    """Return the error for reading an import before all files have arrived."""
    first = missing[0] if missing else None
    place = f": {first.path} has {first.received_bytes:,} of {first.size_bytes:,} bytes" if first else ""
    return ImportRefusedError(
        "invalid",
        f"{len(missing):,} of {total:,} files have not arrived completely{place}.",
        hint="Drop the same files again to go on, or cancel the files that are missing.",
    )


def build_disk_full_error(folder: Path, what: str, size_bytes: int) -> ImportRefusedError:
    """Return the error for a full disk: of which folder, and how many bytes could not be written, 0 if few."""
    size = units.format_bytes(size_bytes) if size_bytes else "a few bytes"
    return ImportRefusedError(
        "disk-full",
        f"{what}: the disk of {folder} is full: {size} more are needed. Nothing was removed: what has arrived is "
        "kept, and dropping the same files again goes on from there.",
        hint="Free some space, dismiss old imports, or choose another disk with --workspace DIR.",
    )


def build_unwritable_error(what: str, error: OSError) -> StudioError:
    """Return the error for a workspace that is not writable."""
    return StudioError(
        f"{what}: cannot be written to the workspace: {error.strerror or error}.",
        hint="Check the permissions of the workspace folder, or choose another with --workspace DIR.",
    )
