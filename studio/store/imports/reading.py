"""Read imports as background tasks."""

from __future__ import annotations

import contextlib
import logging
import shutil
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from studio.errors import StudioError, TraceFormatError
from studio.et import archive
from studio.et.format import NpusNeededError
from studio.et.job_builder import RanksNeededError
from studio.et.source import SourceFile, name_members, refuse_archive
from studio.files import PRIVATE_FILE, PRIVATE_FOLDER, is_full
from studio.store.imports.model import (
    Import,
    ImportFile,
    ImportRefusedError,
    Progress,
    ReadJob,
    Registry,
    State,
    build_disk_full_error,
    build_incomplete_error,
)
from studio.store.imports.store import (
    RESUMABLE,
    get_import,
    infer_status,
    is_mine,
    list_files,
    load_state,
    lock_imports,
    read_owned_state,
    save_state,
    tidy,
)
from studio.store.tasks import KINDS, Problem, Report, Task, TaskCancelled, Tasks, submit

_LOG = logging.getLogger(__name__)


def open_registry(tasks: Tasks, read_job: ReadJob) -> Registry:
    """Open the imports of a workspace; tasks read them one at a time."""
    root = tasks.root.parent / "imports"
    root.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    registry = Registry(
        root, tasks, read_job, FileLock(root / ".lock", timeout=60, mode=PRIVATE_FILE, thread_local=False)
    )
    with lock_imports(registry):
        tidy(registry)

    def note(task: Task) -> None:
        """Mark an import as cancelled that was still queued."""
        import_id = str(task.details["import"])
        with lock_imports(registry), contextlib.suppress(ImportRefusedError):
            state = load_state(registry, import_id)
            if state.status == "queued" and registry.reading.get(import_id) == task.id:
                save_state(registry, import_id, replace(state, status="cancelled"))

    tasks.on_cancel["import"] = note
    return registry


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
    with lock_imports(registry):
        state = read_owned_state(registry, import_id)
        if infer_status(registry, state) not in RESUMABLE:
            return get_import(registry, import_id)
        files = [file for file in list_files(registry, import_id) if file.status != "cancelled"]
        missing = [file for file in files if file.received_bytes < file.size_bytes]
        if missing or not files:
            raise build_incomplete_error(missing, len(files))
        (registry.root / import_id / "progress.json").unlink(missing_ok=True)
        ready = replace(
            state, owner=registry.tasks.token, status="queued", error=None, warnings=(), details=""
        )
        queued = replace(ready, ranks={**state.ranks, **(ranks or {})}, npus=npus or state.npus)
        save_state(registry, import_id, replace(queued, file_errors={}, left_out={}, used={}))
        task = submit(
            registry.tasks,
            "import",
            state.name,
            lambda report: _read(registry, import_id, report),
            details={"import": import_id},
        )
        registry.reading[import_id] = task.id
    return get_import(registry, import_id)


def _read(registry: Registry, import_id: str, report: Report) -> str | None:
    """Read a queued import and save its outcome."""
    with lock_imports(registry):
        try:
            state = load_state(registry, import_id)
        except ImportRefusedError:
            raise TaskCancelled from None  # dismissed meanwhile
        if state.status != "queued" or not is_mine(registry, state):
            raise TaskCancelled
        state = replace(state, status="reading")
        save_state(registry, import_id, state)
    folder = registry.root / import_id
    progress = Progress(folder, state, report)
    progress.on_sorted = lambda: _save_sorted(registry, import_id, progress)
    ended = _attempt(registry, import_id, state, progress)
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    warnings = tuple(progress.warnings)
    ended = replace(ended, warnings=warnings, file_errors=progress.file_errors, left_out=progress.left_out)
    ended = replace(ended, used=progress.used)
    with lock_imports(registry):
        closing = registry.tasks.token in registry.tasks.gone and ended.status != "done"
        if closing or not is_mine(registry, load_state(registry, import_id)):
            raise TaskCancelled
        save_state(registry, import_id, ended)
    if ended.status == "cancelled":
        raise TaskCancelled
    if ended.status == "done":
        # After the state: a kill in between leaves files to tidy up, never an import without its files.
        shutil.rmtree(folder / "files", ignore_errors=True)
    elif ended.error:
        report.fail(ended.error)
    return ended.job


def _save_sorted(registry: Registry, import_id: str, progress: Progress) -> None:
    """Save which files are used and which left out, while they are still to be read."""
    with lock_imports(registry), contextlib.suppress(ImportRefusedError):
        state = load_state(registry, import_id)
        if is_mine(registry, state) and state.status == "reading":
            save_state(
                registry,
                import_id,
                replace(state, left_out=dict(progress.left_out), used=dict(progress.used)),
            )


def _attempt(registry: Registry, import_id: str, state: State, progress: Progress) -> State:
    try:
        job = registry.read_job(_collect_sources(registry, import_id, progress), progress)
    except (TaskCancelled, archive.UnpackCancelled):
        return replace(state, status="cancelled")
    except RanksNeededError as error:
        return replace(state, status="failed", error=Problem(error.message, error.hint, error.names))
    except NpusNeededError as error:
        problem = Problem(error.message, error.hint, npus_for=error.names)
        return replace(state, status="failed", error=problem)
    except StudioError as error:
        return replace(state, status="failed", error=Problem(error.message, error.hint))
    except MemoryError:
        return replace(state, status="failed", error=KINDS["import"].memory)
    except Exception as error:  # noqa: BLE001 (a reader's bug must not end the thread that serves all imports)
        return _record_failure(registry.root, state, error)
    return replace(state, status="done", job=job)


def _record_failure(folder: Path, state: State, error: Exception) -> State:
    if isinstance(error, OSError) and is_full(error):
        full = build_disk_full_error(folder, state.name, state.size_bytes)
        return replace(state, status="failed", error=Problem(full.message, full.hint))
    _LOG.error("import of %r failed", state.name, exc_info=error)
    problem = Problem(
        f"{state.name}: an internal error of the studio ({type(error).__name__}); the files themselves may be fine.",
        'Try again; if it stays, report it with the text under "details" in the import\'s state.json.',
    )
    return replace(state, status="failed", error=problem, details="".join(traceback.format_exception(error)))


def _collect_sources(registry: Registry, import_id: str, progress: Progress) -> list[SourceFile]:
    """Return the files of an import, with archives unpacked and files such as `.DS_Store` left out."""
    folder = registry.root / import_id
    shutil.rmtree(folder / "unpacked", ignore_errors=True)
    uploads = [file for file in list_files(registry, import_id) if file.status != "cancelled"]
    sources: list[SourceFile] = []
    room = archive.Room()
    for index, file in enumerate(uploads):
        path = folder / "files" / file.id
        if file.size_bytes == 0:
            path.touch(PRIVATE_FILE)
        if archive.is_litter(file.path):
            continue
        if not archive.is_archive(path):
            unpacked = [SourceFile(file.path, path, named=True)]
        else:
            progress("unpacking", index, len(uploads), f"unpacking {file.path}")
            unpacked = _unpack_members(
                file, path, folder / "unpacked" / file.id, progress, room, alone=len(uploads) == 1
            )
        sources += unpacked
        progress.upload_of |= {source.path: file.id for source in unpacked}
    if not sources:
        raise StudioError(
            "There is no file to read.", hint="Drop trace files, a folder or an archive of them."
        )
    return sources


def _unpack_members(
    file: ImportFile, path: Path, into: Path, progress: Progress, room: archive.Room, *, alone: bool
) -> list[SourceFile]:
    try:
        members = archive.unpack(path, into, name=file.path, room=room, cancelled=progress.is_cancelled)
    except TraceFormatError as error:
        if alone:
            progress.file_errors[file.id] = Problem(error.message, error.hint)
            raise
        # The other files may be a whole job.
        return [refuse_archive(SourceFile(file.path, path, named=True), error)]
    except StudioError as error:
        progress.file_errors[file.id] = Problem(error.message, error.hint)
        raise
    return name_members(file.path, members)
