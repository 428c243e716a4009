"""Imports: files on their way into the workspace, kept on disk so that they survive restarts.

Layout below the workspace folder:

    imports/.lock                 held while any state.json is changed
    imports/.studios/<token>.lock held by each running studio for as long as it lives
    imports/<id>/plan.json        the files announced; written once
    imports/<id>/state.json       where the import stands; replaced as a whole, never edited
    imports/<id>/progress.json    how far the reading is; may be lost
    imports/<id>/files/000001     what has arrived; its size is the offset to go on from
    imports/<id>/unpacked/        archives' members while they are read

The paths users give are data in plan.json and never reach the file system. An import belongs to the studio whose
token its state names; when that studio is gone, its lock is free, so nothing has to be written for an import to
count as interrupted, and any studio may take it over.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import secrets
import shutil
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, Protocol, TypeVar

import msgspec
from filelock import FileLock, Timeout

from studio import units
from studio.errors import StudioError
from studio.et import archive
from studio.et.source import SourceFile

Status = Literal["uploading", "queued", "reading", "done", "failed", "cancelled", "interrupted"]
FileStatus = Literal["waiting", "uploading", "done", "cancelled", "failed"]
Reason = Literal["missing", "conflict", "invalid", "too-large", "disk-full", "cut"]

FILES_AT_MOST = 100_000
PATH_AT_MOST = 4096
_ID = re.compile(r"[0-9a-f]{16}")
_FILE_ID = re.compile(r"[0-9]{6}")
_PIECE_BYTES = 1 << 18
_SPARE_BYTES = 512 << 20
_PROGRESS_EVERY_S = 0.2
_KEEP_DONE_S = 7 * 86_400
_KEEP_UNBORN_S = 3600
_CLOSE_S = 5
_RESUMABLE: frozenset[Status] = frozenset(("uploading", "interrupted", "failed", "cancelled"))
_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class ImportRefusedError(StudioError):
    """A request about an import that cannot be granted.

    Attributes:
        reason: Why, for the caller to act on.
        received: Where the file's upload goes on, for the reasons "conflict" and "cut" of a chunk.
    """

    def __init__(self, reason: Reason, message: str, *, hint: str = "", received: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.received = received


class RanksNeededError(StudioError):
    """Raised by a reader that cannot tell the rank of some files; the user is asked, then it is called again.

    Attributes:
        names: `SourceFile.name` of each such file.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"Neither the metadata nor the name of {len(names):,} of the files tells its rank.",
            hint="Enter the rank of each file, or rename them to <name>.<rank>.et.",
        )
        self.names = tuple(names)


class ImportCancelled(Exception):  # noqa: N818 (a wish fulfilled is no error)
    """Raised by `Progress` inside a reader once the user has cancelled the import."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, to be shown in place; `ranks_for` names the files whose rank the user is asked for."""

    message: str
    hint: str = ""
    ranks_for: tuple[str, ...] = ()


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
    """How far the reading of an import is; `message`, where given, is shown instead of the numbers."""

    phase: str
    done: int
    total: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class ImportFile:
    """One file of an import, as it stands."""

    id: str
    path: str
    size_bytes: int
    received_bytes: int
    status: FileStatus
    error: Problem | None = None


@dataclass(frozen=True, slots=True)
class Import:
    """An import, as it stands.

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


class ByteStream(Protocol):
    """Anything bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """Give at most `size` bytes; none at the end."""


@dataclass(frozen=True, slots=True)
class _State:
    """What state.json holds."""

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
    ranks: dict[str, int] = field(default_factory=dict)
    details: str = ""


class Progress:
    """What a reader sees of the import it works for.

    Call it to report: `progress("reading", 12, 64, "12 of 64 ranks")`. It raises ImportCancelled once the user has
    cancelled, so a reader that reports often enough needs nothing else.

    Attributes:
        name: A name for the job, made from the files' paths.
        ranks: Ranks the user entered, by `SourceFile.name`; see RanksNeededError.
    """

    def __init__(self, folder: Path, state: _State, cancel: threading.Event) -> None:
        self.name = state.name
        self.ranks: Mapping[str, int] = dict(state.ranks)
        self.warnings: list[str] = []
        self.file_errors: dict[str, Problem] = {}
        self.upload_of: dict[Path, str] = {}
        self._folder = folder
        self._cancel = cancel
        self._shown = Phase("", 0, 0)
        self._written_s = 0.0

    def __call__(self, phase: str, done: int, total: int, message: str = "") -> None:
        """Show how far the reading is."""
        self.check()
        now_s = time.monotonic()
        if phase == self._shown.phase and done < total and now_s - self._written_s < _PROGRESS_EVERY_S:
            return
        self._shown, self._written_s = Phase(phase, done, total, message), now_s
        with contextlib.suppress(OSError):
            _write(self._folder / "progress.json", self._shown, durable=False)

    def cancelled(self) -> bool:
        """Tell whether the user has cancelled the import."""
        return self._cancel.is_set()

    def check(self) -> None:
        """Raise ImportCancelled if the user has cancelled the import."""
        if self._cancel.is_set():
            raise ImportCancelled

    def warn(self, message: str) -> None:
        """Add a sentence that is shown with the finished import."""
        self.warnings.append(message)

    def file_failed(self, file: SourceFile, error: StudioError) -> None:
        """Show an error beside one file of the import and go on."""
        if upload := self.upload_of.get(file.path):
            self.file_errors.setdefault(upload, Problem(error.message, error.hint))


ReadJob = Callable[[list[SourceFile], Progress], str]
"""Makes a job of files, archives already unpacked, and returns its id."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The imports of a workspace as one running studio sees them; opened by `open_registry`.

    Attributes:
        root: The folder of all imports.
        token: Names this studio in the states of its imports.
        now: The clock, seconds since the epoch.

    The others are the inside of this module.
    """

    root: Path
    token: str
    now: Callable[[], float]
    alive: FileLock
    lock: FileLock
    mutex: threading.RLock = field(default_factory=threading.RLock)
    writers: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    plans: dict[str, tuple[Announced, ...]] = field(default_factory=dict)
    cancels: dict[str, threading.Event] = field(default_factory=dict)
    touched: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    queue: SimpleQueue[str | None] = field(default_factory=SimpleQueue)
    workers: list[threading.Thread] = field(default_factory=list)


def open_registry(workspace: Path, read_job: ReadJob, *, now: Callable[[], float] = time.time) -> Registry:
    """Open the imports of a workspace and start the thread that reads them, one at a time."""
    root = workspace / "imports"
    studios = root / ".studios"
    studios.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    alive = FileLock(studios / f"{token}.lock", thread_local=False)
    alive.acquire(timeout=10)
    registry = Registry(root, token, now, alive, FileLock(root / ".lock", timeout=60, thread_local=False))
    with _exclusive(registry):
        _tidy(registry)
    worker = threading.Thread(target=_work, args=(registry, read_job), name="imports", daemon=True)
    registry.workers.append(worker)
    worker.start()
    return registry


def close_registry(registry: Registry) -> None:
    """Stop reading; what is not finished counts as interrupted from now on."""
    registry.gone.add(registry.token)
    registry.queue.put(None)
    for cancel in list(registry.cancels.values()):
        cancel.set()
    for worker in registry.workers:
        worker.join(_CLOSE_S)
    registry.alive.release()
    (registry.root / ".studios" / f"{registry.token}.lock").unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------
# Uploading


def create_import(registry: Registry, files: Sequence[Announced], *, name: str = "") -> Import:
    """Announce files, or find the unfinished import of exactly these files, to go on with it.

    Raises:
        ImportRefusedError: No file, too many, two of one path, or no room for them.
    """
    _check_files(files)
    fingerprint = _fingerprint(files)
    with _exclusive(registry):
        for import_id in _ids(registry):
            state = _load(registry, import_id)
            if state.fingerprint == fingerprint and _resumable(registry, state):
                # All of it is wanted again, the files once cancelled too.
                _reopen(registry, import_id, replace(state, dropped=()))
                return get_import(registry, import_id)
        size_bytes = sum(file.size_bytes for file in files)
        _check_room(registry, size_bytes)
        import_id = secrets.token_hex(8)
        folder = registry.root / import_id
        (folder / "files").mkdir(parents=True)
        _write(folder / "plan.json", tuple(files))
        _save(
            registry,
            import_id,
            _State(
                name=name.strip()[:200] or _name_of([file.path for file in files]),
                created=registry.now(),
                owner=registry.token,
                fingerprint=fingerprint,
                status="uploading",
                files_total=len(files),
                size_bytes=size_bytes,
            ),
        )
    return get_import(registry, import_id)


def append_chunk(
    registry: Registry, import_id: str, file_id: str, offset: int, stream: ByteStream, length: int
) -> int:
    """Append bytes to a file of an import; what arrives before the stream breaks is kept.

    Returns:
        How many bytes of the file are here now.

    Raises:
        ImportRefusedError: "conflict" when `offset` is not where the file ends (`received` says where), "cut" when
            the stream ended early, "too-large" beyond the announced size, "disk-full", "missing".
    """
    file = _announced(registry, import_id, file_id)
    _claim_for_upload(registry, import_id, file_id)
    path = registry.root / import_id / "files" / file_id
    with _writer(registry, import_id, file_id):
        received = _size_of(path)
        if offset != received:
            raise ImportRefusedError(
                "conflict",
                f"{file.path}: a chunk starts at byte {offset:,}, but {received:,} bytes are here.",
                hint="Go on from there.",
                received=received,
            )
        if offset + length > file.size_bytes:
            raise ImportRefusedError(
                "too-large",
                f"{file.path}: {offset + length:,} bytes would be here, but {file.size_bytes:,} were announced.",
                hint="The file changed while it was uploaded; drop it again.",
                received=received,
            )
        received = _copy(registry, import_id, stream, path, file, length)
    registry.touched[import_id] = registry.now()
    if received < offset + length:
        message = f"{file.path}: the connection ended at byte {received:,}, {offset + length - received:,} too early."
        raise ImportRefusedError("cut", message, hint="Go on from there.", received=received)
    return received


def append_files(
    registry: Registry, import_id: str, file_ids: Sequence[str], stream: ByteStream, length: int
) -> dict[str, int]:
    """Append whole files that follow each other in one stream: a request for each of a thousand would take longer.

    What is already here of a file is skipped, so the same request can simply be sent again.

    Returns:
        How many bytes of each file are here now.

    Raises:
        ImportRefusedError: "invalid" when the files' announced sizes do not add up to `length`, "cut" when the stream
            ended early, and as `append_chunk` does.
    """
    files = {file_id: _announced(registry, import_id, file_id) for file_id in file_ids}
    expected = sum(file.size_bytes for file in files.values())
    if expected != length:
        message = f"{length:,} bytes came for {len(files):,} files of {expected:,} bytes."
        raise ImportRefusedError(
            "invalid", message, hint="A file changed while it was uploaded; drop it again."
        )
    received: dict[str, int] = {}
    for file_id, file in files.items():
        here = min(_size_of(registry.root / import_id / "files" / file_id), file.size_bytes)
        left = here
        while left and (piece := _take(stream, min(left, _PIECE_BYTES))):
            left -= len(piece)
        received[file_id] = append_chunk(registry, import_id, file_id, here, stream, file.size_bytes - here)
    return received


def _copy(
    registry: Registry, import_id: str, stream: ByteStream, path: Path, file: Announced, length: int
) -> int:
    cancel = _cancel_event(registry, import_id)
    left = length
    try:
        with path.open("ab") as out:
            while left and (piece := _take(stream, min(left, _PIECE_BYTES))):
                if cancel.is_set():
                    raise _missing(import_id)
                left -= out.write(piece)
    except FileNotFoundError as error:
        raise _missing(import_id) from error
    except OSError as error:
        raise _disk_full(file.path, length) if _is_full(error) else _unwritable(file.path, error) from error
    return _size_of(path)


def _take(stream: ByteStream, most: int) -> bytes:
    try:
        return stream.read(most)
    except OSError:
        # The connection broke; what came before stands.
        return b""


def cancel_file(registry: Registry, import_id: str, file_id: str) -> None:
    """Leave one file out of an import and delete what has arrived of it."""
    _announced(registry, import_id, file_id)
    with _exclusive(registry):
        state = _owned(registry, import_id)
        if _status(registry, state) not in _RESUMABLE:
            raise _busy(state)
        errors = {key: problem for key, problem in state.file_errors.items() if key != file_id}
        dropped = tuple(sorted({*state.dropped, file_id}))
        _save(registry, import_id, replace(state, owner=registry.token, dropped=dropped, file_errors=errors))
    with _writer(registry, import_id, file_id):
        (registry.root / import_id / "files" / file_id).unlink(missing_ok=True)


def cancel_import(registry: Registry, import_id: str) -> Import | None:
    """Stop an import that is being read, so that it can be retried; delete any other.

    Returns:
        The import that was stopped, None when it is gone.
    """
    with _exclusive(registry):
        state = _owned(registry, import_id)
        status = _status(registry, state)
        _cancel_event(registry, import_id).set()
        if status == "queued":
            _save(registry, import_id, replace(state, status="cancelled"))
        if status in ("queued", "reading"):
            return get_import(registry, import_id)
    for key in [key for key in registry.writers if key[0] == import_id]:
        with registry.writers[key]:
            del registry.writers[key]
    with _exclusive(registry):
        _remove(registry, import_id)
    return None


# ---------------------------------------------------------------------------------------------------
# Looking


def list_imports(registry: Registry) -> list[Import]:
    """Give all imports of the workspace, the newest first."""
    found = []
    for import_id in _ids(registry):
        with contextlib.suppress(ImportRefusedError):
            found.append(get_import(registry, import_id))
    return sorted(found, key=lambda one: -one.created)


def get_import(registry: Registry, import_id: str) -> Import:
    """Give one import as it stands.

    Raises:
        ImportRefusedError: There is none of this id.
    """
    state = _load(registry, import_id)
    status = _status(registry, state)
    folder = registry.root / import_id
    # What is read or done has arrived; counting 100,000 files at every look would be waste.
    arrived = status in ("queued", "reading", "done")
    touched = registry.touched.get(import_id, state.created)
    size_bytes = state.size_bytes - _dropped_bytes(registry, import_id, state)
    return Import(
        id=import_id,
        name=state.name,
        created=state.created,
        status=status,
        files_total=state.files_total - len(state.dropped),
        size_bytes=size_bytes,
        received_bytes=size_bytes if arrived else sum(_sizes(folder / "files").values()),
        progress=_read(folder / "progress.json", Phase) if status == "reading" else None,
        job=state.job,
        error=state.error,
        warnings=state.warnings,
        idle_s=max(0.0, registry.now() - touched)
        if status == "uploading" and _mine(registry, state)
        else None,
    )


def list_files(registry: Registry, import_id: str) -> list[ImportFile]:
    """Give the files of an import as they stand, in the order they were announced."""
    state = _load(registry, import_id)
    plan = _plan(registry, import_id)
    sizes = _sizes(registry.root / import_id / "files")
    dropped = set(state.dropped)
    files = []
    for index, file in enumerate(plan, start=1):
        file_id = f"{index:06d}"
        received = file.size_bytes if state.status == "done" else sizes.get(file_id, 0)
        status: FileStatus = "done" if received >= file.size_bytes else "uploading" if received else "waiting"
        if file_id in dropped:
            status, received = "cancelled", 0
        elif file_id in state.file_errors:
            status = "failed"
        files.append(
            ImportFile(file_id, file.path, file.size_bytes, received, status, state.file_errors.get(file_id))
        )
    return files


# ---------------------------------------------------------------------------------------------------
# Reading


def start(registry: Registry, import_id: str, *, ranks: Mapping[str, int] | None = None) -> Import:
    """Queue an import for reading; one that failed, was cancelled or was interrupted is tried again.

    Args:
        registry: The open imports.
        import_id: Which.
        ranks: Ranks the user entered, by the names RanksNeededError asked for.

    Raises:
        ImportRefusedError: A file has not arrived completely, or another studio works on it.
    """
    with _exclusive(registry):
        state = _owned(registry, import_id)
        if _status(registry, state) not in _RESUMABLE:
            return get_import(registry, import_id)
        files = [file for file in list_files(registry, import_id) if file.status != "cancelled"]
        missing = [file for file in files if file.received_bytes < file.size_bytes]
        if missing or not files:
            raise _incomplete(missing, len(files))
        registry.cancels[import_id] = threading.Event()
        (registry.root / import_id / "progress.json").unlink(missing_ok=True)
        ready = replace(state, owner=registry.token, status="queued", error=None, warnings=(), details="")
        _save(registry, import_id, replace(ready, file_errors={}, ranks={**state.ranks, **(ranks or {})}))
    registry.queue.put(import_id)
    return get_import(registry, import_id)


def run_import(registry: Registry, import_id: str, read_job: ReadJob) -> None:
    """Read a queued import now, in this thread; how it ends is in its state, never raised."""
    with _exclusive(registry):
        try:
            state = _load(registry, import_id)
        except ImportRefusedError:
            return
        if state.status != "queued" or not _mine(registry, state):
            return
        state = replace(state, status="reading")
        _save(registry, import_id, state)
    folder = registry.root / import_id
    progress = Progress(folder, state, _cancel_event(registry, import_id))
    ended = _attempt(registry, import_id, state, progress, read_job)
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    ended = replace(ended, warnings=tuple(progress.warnings), file_errors=progress.file_errors)
    with _exclusive(registry):
        closing = registry.token in registry.gone and ended.status != "done"
        if closing or not _mine(registry, _load(registry, import_id)):
            return
        _save(registry, import_id, ended)
    if ended.status == "done":
        # After the state: a kill in between leaves files to tidy up, never an import without its files.
        shutil.rmtree(folder / "files", ignore_errors=True)


def _attempt(
    registry: Registry, import_id: str, state: _State, progress: Progress, read_job: ReadJob
) -> _State:
    try:
        job = read_job(_sources(registry, import_id, progress), progress)
    except (ImportCancelled, archive.UnpackCancelled):
        return replace(state, status="cancelled")
    except RanksNeededError as error:
        return replace(state, status="failed", error=Problem(error.message, error.hint, error.names))
    except StudioError as error:
        return replace(state, status="failed", error=Problem(error.message, error.hint))
    except MemoryError:
        problem = Problem(
            "The memory is not enough for this job.", "Close other programs, or open fewer ranks."
        )
        return replace(state, status="failed", error=problem)
    except Exception as error:  # noqa: BLE001 (a reader's bug must not end the thread that serves all imports)
        return _failed_inside(state, error)
    return replace(state, status="done", job=job)


def _failed_inside(state: _State, error: Exception) -> _State:
    if isinstance(error, OSError) and _is_full(error):
        full = _disk_full(state.name, state.size_bytes)
        return replace(state, status="failed", error=Problem(full.message, full.hint))
    _LOG.error("import of %r failed", state.name, exc_info=error)
    problem = Problem(
        f"{state.name}: an internal error of the studio ({type(error).__name__}); the files themselves may be fine.",
        'Try again; if it stays, report it with the text under "details" in the import\'s state.json.',
    )
    return replace(state, status="failed", error=problem, details="".join(traceback.format_exception(error)))


def _sources(registry: Registry, import_id: str, progress: Progress) -> list[SourceFile]:
    """The files of an import for a reader, archives unpacked and what file managers leave behind left out."""
    folder = registry.root / import_id
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    uploads = [file for file in list_files(registry, import_id) if file.status != "cancelled"]
    sources: list[SourceFile] = []
    for index, file in enumerate(uploads):
        path = folder / "files" / file.id
        if file.size_bytes == 0:
            path.touch()
        if archive.is_litter(file.path):
            continue
        if not archive.is_archive(path):
            found = [SourceFile(file.path, path, named=True)]
        else:
            progress("unpacking", index, len(uploads), f"unpacking {file.path}")
            found = _members(file, path, folder / "unpacked" / file.id, progress)
        sources += found
        progress.upload_of |= {one.path: file.id for one in found}
    if not sources:
        raise StudioError(
            "There is no file to read.", hint="Drop trace files, a folder or an archive of them."
        )
    return sources


def _members(file: ImportFile, path: Path, into: Path, progress: Progress) -> list[SourceFile]:
    try:
        members = archive.unpack(path, into, name=file.path, cancelled=progress.cancelled)
    except StudioError as error:
        progress.file_errors[file.id] = Problem(error.message, error.hint)
        raise
    return [SourceFile(f"{file.path}/{member.name}", member.path) for member in members]


def _work(registry: Registry, read_job: ReadJob) -> None:
    while (import_id := registry.queue.get()) is not None:
        try:
            run_import(registry, import_id, read_job)
        except (OSError, StudioError):
            # Its folder was deleted by hand, or the disk is full: the import counts as interrupted later on.
            _LOG.exception("import %s could not be finished", import_id)


# ---------------------------------------------------------------------------------------------------
# Whose it is


@contextlib.contextmanager
def _exclusive(registry: Registry) -> Iterator[None]:
    """Hold all imports of the workspace, against other threads and other studios."""
    with registry.mutex, registry.lock:
        yield


def _runs(registry: Registry, token: str) -> bool:
    """Tell whether the studio of this token still runs: the lock of a dead one is free, whatever killed it."""
    if token in registry.gone or not _ID.fullmatch(token):
        return False
    if token == registry.token:
        return True
    path = registry.root / ".studios" / f"{token}.lock"
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    path.unlink(missing_ok=True)
    registry.gone.add(token)
    return False


def _mine(registry: Registry, state: _State) -> bool:
    return state.owner == registry.token


def _status(registry: Registry, state: _State) -> Status:
    unfinished = state.status in ("uploading", "queued", "reading")
    return "interrupted" if unfinished and not _runs(registry, state.owner) else state.status


def _resumable(registry: Registry, state: _State) -> bool:
    status = _status(registry, state)
    return status in _RESUMABLE and (status != "uploading" or _mine(registry, state))


def _owned(registry: Registry, import_id: str) -> _State:
    """The state of an import this studio may change.

    Raises:
        ImportRefusedError: There is none, or another running studio works on it.
    """
    state = _load(registry, import_id)
    if _status(registry, state) in ("uploading", "queued", "reading") and not _mine(registry, state):
        raise ImportRefusedError(
            "conflict",
            f"{state.name} is being imported by another studio that uses this workspace.",
            hint="Go on there, or close that studio first.",
        )
    return state


def _claim_for_upload(registry: Registry, import_id: str, file_id: str) -> None:
    state = _load(registry, import_id)
    if state.status != "uploading" or not _mine(registry, state):
        with _exclusive(registry):
            state = _owned(registry, import_id)
            if _status(registry, state) not in _RESUMABLE:
                raise _busy(state)
            _reopen(registry, import_id, state)
    if file_id in state.dropped:
        raise ImportRefusedError("missing", "This file was cancelled.", hint="Drop it again to import it.")


def _reopen(registry: Registry, import_id: str, state: _State) -> None:
    registry.cancels[import_id] = threading.Event()
    registry.touched[import_id] = registry.now()
    reopened = replace(state, owner=registry.token, status="uploading", error=None, file_errors={})
    _save(registry, import_id, reopened)


def _cancel_event(registry: Registry, import_id: str) -> threading.Event:
    return registry.cancels.setdefault(import_id, threading.Event())


def _writer(registry: Registry, import_id: str, file_id: str) -> threading.Lock:
    return registry.writers.setdefault((import_id, file_id), threading.Lock())


# ---------------------------------------------------------------------------------------------------
# On disk


def _ids(registry: Registry) -> list[str]:
    return sorted(entry.name for entry in os.scandir(registry.root) if _ID.fullmatch(entry.name))


def _load(registry: Registry, import_id: str) -> _State:
    if not _ID.fullmatch(import_id):
        raise _missing(import_id)
    path = registry.root / import_id / "state.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_State)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(import_id) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = Problem(f"{path}: the state of this import cannot be read: {error}.", "Dismiss it.")
        return _State(import_id, path.stat().st_mtime, "", "", "failed", 0, 0, error=problem)


def _save(registry: Registry, import_id: str, state: _State) -> None:
    _write(registry.root / import_id / "state.json", state)


def _write(path: Path, value: object, *, durable: bool = True) -> None:
    """Replace a JSON file as a whole, so that whoever reads it sees the old or the new one."""
    aside = path.with_suffix(f".{secrets.token_hex(4)}.new")
    try:
        with aside.open("wb") as file:
            file.write(msgspec.json.encode(value))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and _is_full(error):
            raise _disk_full(path.parent.name, 0) from error
        raise


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _plan(registry: Registry, import_id: str) -> tuple[Announced, ...]:
    if import_id not in registry.plans:
        plan = _read(registry.root / import_id / "plan.json", tuple[Announced, ...])
        registry.plans[import_id] = plan or ()
    return registry.plans[import_id]


def _announced(registry: Registry, import_id: str, file_id: str) -> Announced:
    plan = _plan(registry, import_id) if _ID.fullmatch(import_id) else ()
    if not _FILE_ID.fullmatch(file_id) or not 1 <= int(file_id) <= len(plan):
        raise ImportRefusedError(
            "missing", "There is no such file in this import.", hint="Drop the files again."
        )
    return plan[int(file_id) - 1]


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sizes(folder: Path) -> dict[str, int]:
    try:
        return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    except FileNotFoundError:
        return {}


def _dropped_bytes(registry: Registry, import_id: str, state: _State) -> int:
    if not state.dropped:
        return 0
    plan = _plan(registry, import_id)
    return sum(plan[int(file_id) - 1].size_bytes for file_id in state.dropped if int(file_id) <= len(plan))


def _remove(registry: Registry, import_id: str) -> None:
    # Renamed first: a kill while deleting leaves a name that no list shows.
    aside = registry.root / f".gone-{import_id}-{secrets.token_hex(4)}"
    (registry.root / import_id).rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    for forget in (registry.plans, registry.cancels, registry.touched):
        forget.pop(import_id, None)


def _tidy(registry: Registry) -> None:
    """Delete what killed studios left half made or half deleted, and imports finished long ago."""
    for entry in list(os.scandir(registry.root)):
        if entry.name.startswith(".gone-"):
            shutil.rmtree(entry.path, ignore_errors=True)
    for import_id in _ids(registry):
        folder = registry.root / import_id
        try:
            state = _load(registry, import_id)
        except ImportRefusedError:
            if registry.now() - folder.stat().st_mtime > _KEEP_UNBORN_S:
                _remove(registry, import_id)
            continue
        if state.status == "done":
            shutil.rmtree(folder / "files", ignore_errors=True)
            if registry.now() - state.created > _KEEP_DONE_S:
                _remove(registry, import_id)
    for lock in list((registry.root / ".studios").glob("*.lock")):
        _runs(registry, lock.stem)


# ---------------------------------------------------------------------------------------------------
# Checks and refusals


def _check_files(files: Sequence[Announced]) -> None:
    if not files:
        raise ImportRefusedError(
            "invalid", "No file was given.", hint="Drop trace files, a folder or an archive."
        )
    if len(files) > FILES_AT_MOST:
        message = f"{len(files):,} files were given; at most {FILES_AT_MOST:,} are imported at once."
        raise ImportRefusedError("too-large", message, hint="Drop fewer, or an archive of them.")
    seen: set[str] = set()
    for file in files:
        if not file.path or len(file.path) > PATH_AT_MOST or file.size_bytes < 0:
            message = f"{file.path[:200]!r} ({file.size_bytes} bytes): a path of 1 to {PATH_AT_MOST:,} characters and a size of at least 0 are wanted."
            raise ImportRefusedError("invalid", message, hint="Rename the file.")
        if file.path in seen:
            message = f"Two of the files are called {file.path!r}."
            raise ImportRefusedError("invalid", message, hint="Rename one, or drop the folder around them.")
        seen.add(file.path)


def _check_room(registry: Registry, size_bytes: int) -> None:
    free_bytes = shutil.disk_usage(registry.root).free
    if size_bytes + _SPARE_BYTES > free_bytes:
        raise ImportRefusedError(
            "disk-full",
            f"The files take {units.format_bytes(size_bytes)}, but the disk of the workspace has only "
            f"{units.format_bytes(free_bytes)} left ({units.format_bytes(_SPARE_BYTES)} are kept free).",
            hint="Free some space, dismiss old imports, or choose another disk with --workspace DIR.",
        )


def _fingerprint(files: Collection[Announced]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda one: one.path):
        digest.update(msgspec.json.encode((file.path, file.size_bytes, float(file.modified or 0))))
    return digest.hexdigest()


def _name_of(paths: Sequence[str]) -> str:
    """A name for the job of these files.

    Example:
        >>> _name_of(["gpt/gpt.0.et", "gpt/gpt.1.et"]), _name_of(["run.0.et", "run.1.et"]), _name_of(["a.zip"])
        ('gpt', 'run', 'a')
    """
    folders = {path.split("/")[0] if "/" in path else "" for path in paths}
    if len(folders) == 1 and (folder := folders.pop()):
        return folder[:200]
    stems = Counter(_stem(path.rsplit("/", 1)[-1]) for path in paths if not archive.is_litter(path))
    return stems.most_common(1)[0][0][:200] if stems else paths[0][:200]


def _stem(name: str) -> str:
    return re.sub(r"([._-]\d+)?(\.(et|zip|tar|tgz|gz|xz|bz2|json))*$", "", name) or name


def _incomplete(missing: Sequence[ImportFile], total: int) -> ImportRefusedError:
    first = missing[0] if missing else None
    place = f": {first.path} has {first.received_bytes:,} of {first.size_bytes:,} bytes" if first else ""
    return ImportRefusedError(
        "invalid",
        f"{len(missing):,} of {total:,} files have not arrived completely{place}.",
        hint="Drop the same files again to go on, or cancel the files that are missing.",
    )


def _missing(import_id: str) -> ImportRefusedError:
    message = f"There is no import {import_id[:40]!r}; it may have been dismissed."
    return ImportRefusedError("missing", message, hint="Drop the files again.")


def _busy(state: _State) -> ImportRefusedError:
    message = f"{state.name} is {state.status}; its files can no longer be changed."
    return ImportRefusedError("conflict", message, hint="Cancel the import first.")


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _disk_full(what: str, size_bytes: int) -> ImportRefusedError:
    size = f" ({units.format_bytes(size_bytes)} more were to be written)" if size_bytes else ""
    return ImportRefusedError(
        "disk-full",
        f"{what}: the disk of the workspace is full{size}.",
        hint="Free some space, dismiss old imports, or choose another disk with --workspace DIR.",
    )


def _unwritable(what: str, error: OSError) -> StudioError:
    return StudioError(
        f"{what}: cannot be written to the workspace: {error.strerror or error}.",
        hint="Check the permissions of the workspace folder, or choose another with --workspace DIR.",
    )
