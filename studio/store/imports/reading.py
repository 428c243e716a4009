"""The reading of imports, one at a time, in a thread of the studio."""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from studio.errors import StudioError
from studio.et import archive
from studio.et.format import NpusNeededError
from studio.et.job import RanksNeededError
from studio.et.source import SourceFile
from studio.store.imports.model import (
    Import,
    ImportCancelled,
    ImportFile,
    ImportRefusedError,
    Phase,
    Problem,
    Registry,
    State,
    disk_full,
    incomplete,
    is_full,
)
from studio.store.imports.store import (
    RESUMABLE,
    cancel_event,
    exclusive,
    get_import,
    is_mine,
    list_files,
    load_state,
    owned_state,
    save_state,
    status_of,
    tidy,
    write_json,
)

_PROGRESS_EVERY_S = 0.2


_CLOSE_S = 5


_LOG = logging.getLogger(__name__)


class Progress:
    """What a reader sees of the import it works for.

    Call it to report: `progress("reading", 12, 64, "12 of 64 ranks")`. It raises ImportCancelled once the user has
    cancelled, so a reader that reports often enough needs nothing else.

    Attributes:
        name: A name for the job, made from the files' paths.
        ranks: Ranks the user entered, by `SourceFile.name`; see RanksNeededError.
        npus: The number of NPUs the user entered; see NpusNeededError.
    """

    def __init__(self, folder: Path, state: State, cancel: threading.Event) -> None:
        self.name = state.name
        self.ranks: Mapping[str, int] = dict(state.ranks)
        self.npus = state.npus
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
            write_json(self._folder / "progress.json", self._shown, durable=False)

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


def open_registry(workspace: Path, read_job: ReadJob, *, now: Callable[[], float] = time.time) -> Registry:
    """Open the imports of a workspace and start the thread that reads them, one at a time."""
    root = workspace / "imports"
    studios = root / ".studios"
    studios.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    alive = FileLock(studios / f"{token}.lock", thread_local=False)
    alive.acquire(timeout=10)
    registry = Registry(root, token, now, alive, FileLock(root / ".lock", timeout=60, thread_local=False))
    with exclusive(registry):
        tidy(registry)
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


def start(
    registry: Registry, import_id: str, *, ranks: Mapping[str, int] | None = None, npus: int | None = None
) -> Import:
    """Queue an import for reading; one that failed, was cancelled or was interrupted is tried again.

    Args:
        registry: The open imports.
        import_id: Which.
        ranks: Ranks the user entered, by the names RanksNeededError asked for.
        npus: The number of NPUs the user entered where NpusNeededError asked for it.

    Raises:
        ImportRefusedError: A file has not arrived completely, or another studio works on it.
    """
    with exclusive(registry):
        state = owned_state(registry, import_id)
        if status_of(registry, state) not in RESUMABLE:
            return get_import(registry, import_id)
        files = [file for file in list_files(registry, import_id) if file.status != "cancelled"]
        missing = [file for file in files if file.received_bytes < file.size_bytes]
        if missing or not files:
            raise incomplete(missing, len(files))
        registry.cancels[import_id] = threading.Event()
        (registry.root / import_id / "progress.json").unlink(missing_ok=True)
        ready = replace(state, owner=registry.token, status="queued", error=None, warnings=(), details="")
        said = replace(ready, ranks={**state.ranks, **(ranks or {})}, npus=npus or state.npus)
        save_state(registry, import_id, replace(said, file_errors={}))
    registry.queue.put(import_id)
    return get_import(registry, import_id)


def run_import(registry: Registry, import_id: str, read_job: ReadJob) -> None:
    """Read a queued import now, in this thread; how it ends is in its state, never raised."""
    with exclusive(registry):
        try:
            state = load_state(registry, import_id)
        except ImportRefusedError:
            return
        if state.status != "queued" or not is_mine(registry, state):
            return
        state = replace(state, status="reading")
        save_state(registry, import_id, state)
    folder = registry.root / import_id
    progress = Progress(folder, state, cancel_event(registry, import_id))
    ended = _attempt(registry, import_id, state, progress, read_job)
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    ended = replace(ended, warnings=tuple(progress.warnings), file_errors=progress.file_errors)
    with exclusive(registry):
        closing = registry.token in registry.gone and ended.status != "done"
        if closing or not is_mine(registry, load_state(registry, import_id)):
            return
        save_state(registry, import_id, ended)
    if ended.status == "done":
        # After the state: a kill in between leaves files to tidy up, never an import without its files.
        shutil.rmtree(folder / "files", ignore_errors=True)


def _attempt(
    registry: Registry, import_id: str, state: State, progress: Progress, read_job: ReadJob
) -> State:
    try:
        job = read_job(_sources(registry, import_id, progress), progress)
    except (ImportCancelled, archive.UnpackCancelled):
        return replace(state, status="cancelled")
    except RanksNeededError as error:
        return replace(state, status="failed", error=Problem(error.message, error.hint, error.names))
    except NpusNeededError as error:
        problem = Problem(error.message, error.hint, npus_for=error.names)
        return replace(state, status="failed", error=problem)
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


def _failed_inside(state: State, error: Exception) -> State:
    if isinstance(error, OSError) and is_full(error):
        full = disk_full(state.name, state.size_bytes)
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
