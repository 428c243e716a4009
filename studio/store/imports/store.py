"""Imports on disk: their owners and states."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from studio.decoding import build_decoder
from studio.files import PRIVATE_FOLDER, SpecialFileError, is_full, read_file
from studio.store.durable_files import sync_folder, write_json
from studio.store.imports.model import (
    Announced,
    FileStatus,
    Import,
    ImportFile,
    ImportRefusedError,
    Phase,
    Registry,
    State,
    Status,
    build_disk_full_error,
    build_unknown_import_error,
)
from studio.store.tasks import Problem, is_running

_ID = re.compile(r"[0-9a-f]{16}")


_FILE_ID = re.compile(r"[0-9]{6}")


_KEEP_DONE_S = 7 * 86_400


_NEW, _GONE = ".new-", ".gone-"
"""How folders begin that are being made or deleted."""


RESUMABLE: frozenset[Status] = frozenset(("uploading", "interrupted", "failed", "cancelled"))


_T = TypeVar("_T")
_state = build_decoder(State)
_phase = build_decoder(Phase)
_announced = build_decoder(tuple[Announced, ...])


def list_imports(registry: Registry) -> list[Import]:
    """Return all imports of the workspace, newest first."""
    imports = []
    for import_id in import_ids(registry):
        with contextlib.suppress(ImportRefusedError):
            imports.append(get_import(registry, import_id))
    return sorted(imports, key=lambda item: -item.created)


def get_import(registry: Registry, import_id: str) -> Import:
    """Return the state of an import.

    Raises:
        ImportRefusedError: There is none of this id.
    """
    state = load_state(registry, import_id)
    status = infer_status(registry, state)
    folder = registry.root / import_id
    # All files of an import being read or done have arrived; counting 100,000 files each time is slow.
    arrived = status in ("queued", "reading", "done")
    touched = registry.touched.get(import_id, state.created)
    size_bytes = state.size_bytes - _sum_dropped_bytes(registry, import_id, state)
    return Import(
        id=import_id,
        name=state.name,
        created=state.created,
        status=status,
        files_total=state.files_total - len(state.dropped),
        size_bytes=size_bytes,
        received_bytes=size_bytes if arrived else sum(_read_sizes(folder / "files").values()),
        progress=_read(folder / "progress.json", _phase) if status == "reading" else None,
        job=state.job,
        error=state.error,
        warnings=state.warnings,
        idle_s=max(0.0, registry.tasks.now() - touched)
        if status == "uploading" and is_mine(registry, state)
        else None,
        files_used=len(state.used) if state.used else None,
        files_left_out=len(state.left_out) if state.used else None,
    )


def list_files(registry: Registry, import_id: str) -> list[ImportFile]:
    """Return the files of an import in the order they were announced."""
    state = load_state(registry, import_id)
    plan = _read_plan(registry, import_id)
    sizes = _read_sizes(registry.root / import_id / "files")
    dropped, problems = set(state.dropped), {**state.left_out, **state.file_errors}
    files = []
    for index, file in enumerate(plan, start=1):
        file_id = f"{index:06d}"
        received = file.size_bytes if state.status == "done" else sizes.get(file_id, 0)
        status: FileStatus = "done" if received >= file.size_bytes else "uploading" if received else "waiting"
        if file_id in dropped:
            status, received = "cancelled", 0
        elif file_id in state.file_errors:
            status = "failed"
        elif file_id in state.left_out:
            status = "left out"
        elif file_id in state.used and state.status == "reading":
            status = "used"
        role, problem = state.used.get(file_id, ""), problems.get(file_id)
        files.append(ImportFile(file_id, file.path, file.size_bytes, received, status, problem, role))
    return files


@contextlib.contextmanager
def lock_imports(registry: Registry) -> Iterator[None]:
    """Lock the imports of the workspace against other threads and other studios."""
    with registry.mutex, registry.lock:
        yield


def is_mine(registry: Registry, state: State) -> bool:
    """Whether this studio owns the import."""
    return state.owner == registry.tasks.token


def infer_status(registry: Registry, state: State) -> Status:
    """Return an import's status; unfinished work of a studio that ended is interrupted."""
    unfinished = state.status in ("uploading", "queued", "reading")
    return "interrupted" if unfinished and not is_running(registry.tasks, state.owner) else state.status


def can_resume(registry: Registry, state: State) -> bool:
    """Whether this studio may continue the upload or start reading."""
    status = infer_status(registry, state)
    return status in RESUMABLE and (status != "uploading" or is_mine(registry, state))


def read_owned_state(registry: Registry, import_id: str) -> State:
    """Return the state of an import that this studio may change.

    Raises:
        ImportRefusedError: There is none, or another running studio works on it.
    """
    state = load_state(registry, import_id)
    if infer_status(registry, state) in ("uploading", "queued", "reading") and not is_mine(registry, state):
        raise ImportRefusedError(
            "conflict",
            f"{state.name} is being imported by another studio that uses this workspace.",
            hint="Go on there, or close that studio first.",
        )
    return state


def reopen_upload(registry: Registry, import_id: str, state: State) -> None:
    """Take over an unfinished import to continue its upload."""
    registry.cancels[import_id] = threading.Event()
    registry.touched[import_id] = registry.tasks.now()
    reopened = replace(
        state,
        owner=registry.tasks.token,
        status="uploading",
        error=None,
        file_errors={},
        left_out={},
        used={},
    )
    save_state(registry, import_id, reopened)


def cancel_event(registry: Registry, import_id: str) -> threading.Event:
    """Return the event that stops work on an import."""
    return registry.cancels.setdefault(import_id, threading.Event())


def get_file_lock(registry: Registry, import_id: str, file_id: str) -> threading.Lock:
    """Return the lock for writing a file."""
    return registry.writers.setdefault((import_id, file_id), threading.Lock())


def import_ids(registry: Registry) -> list[str]:
    """Return the ids of all imports."""
    return [name for name in _list_folders(registry) if not _is_half_made(registry.root / name)]


def _list_folders(registry: Registry) -> list[str]:
    return sorted(entry.name for entry in os.scandir(registry.root) if _ID.fullmatch(entry.name))


def _is_half_made(folder: Path) -> bool:
    return not ((folder / "plan.json").is_file() and (folder / "state.json").is_file())


def remove_half_made(registry: Registry) -> None:
    """Delete incomplete import folders; call it inside `lock_imports`, so that none is being created."""
    for entry in list(os.scandir(registry.root)):
        if entry.name.startswith((_NEW, _GONE)):
            shutil.rmtree(entry.path, ignore_errors=True)
    for name in _list_folders(registry):
        if _is_half_made(registry.root / name):
            remove_import(registry, name)


def add_import(registry: Registry, import_id: str, plan: tuple[Announced, ...], state: State) -> None:
    """Store a new import; call it inside `lock_imports`.

    Like a job it is written aside and appears by one rename, so a kill leaves a whole one or none.
    """
    aside = registry.root / f"{_NEW}{import_id}"
    try:
        for folder in (aside, aside / "files"):
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        store_json(aside / "plan.json", plan)
        store_json(aside / "state.json", state)
        sync_folder(aside)
        aside.rename(registry.root / import_id)
        sync_folder(registry.root)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def load_state(registry: Registry, import_id: str) -> State:
    """Read the state of an import; a damaged state counts as failed.

    Raises:
        ImportRefusedError: There is none of this id.
    """
    if not _ID.fullmatch(import_id):
        raise build_unknown_import_error(import_id)
    path = registry.root / import_id / "state.json"
    try:
        return _state(read_file(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise build_unknown_import_error(import_id) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, SpecialFileError) as error:
        problem = Problem(f"{path}: the state of this import cannot be read: {error}.", "Dismiss it.")
        return State(import_id, path.stat().st_mtime, "", "", "failed", 0, 0, error=problem)


def save_state(registry: Registry, import_id: str, state: State) -> None:
    """Save the state of an import; call it inside `lock_imports`."""
    store_json(registry.root / import_id / "state.json", state)


def store_json(path: Path, value: object) -> None:
    """Replace a JSON file; a full disk becomes an error for the user."""
    try:
        write_json(path, value)
    except OSError as error:
        if is_full(error):
            raise build_disk_full_error(path.parent, "the state of the import", 0) from error
        raise


def _read(path: Path, decode: Callable[[bytes], _T]) -> _T | None:
    try:
        return decode(read_file(path))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _read_plan(registry: Registry, import_id: str) -> tuple[Announced, ...]:
    if import_id not in registry.plans:
        plan = _read(registry.root / import_id / "plan.json", _announced)
        registry.plans[import_id] = plan or ()
    return registry.plans[import_id]


def get_announced_file(registry: Registry, import_id: str, file_id: str) -> Announced:
    """Return a file as it was announced.

    Raises:
        ImportRefusedError: The ids name none.
    """
    plan = _read_plan(registry, import_id) if _ID.fullmatch(import_id) else ()
    if not _FILE_ID.fullmatch(file_id) or not 1 <= int(file_id) <= len(plan):
        raise ImportRefusedError(
            "missing", "There is no such file in this import.", hint="Drop the files again."
        )
    return plan[int(file_id) - 1]


def measure_size(path: Path) -> int:
    """Return the size of a file, 0 if it is missing."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read_sizes(folder: Path) -> dict[str, int]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size for entry in entries}
    except FileNotFoundError:
        return {}


def _sum_dropped_bytes(registry: Registry, import_id: str, state: State) -> int:
    if not state.dropped:
        return 0
    plan = _read_plan(registry, import_id)
    return sum(plan[int(file_id) - 1].size_bytes for file_id in state.dropped if int(file_id) <= len(plan))


def remove_import(registry: Registry, import_id: str) -> None:
    """Delete an import and its files."""
    # Renamed first: a kill while deleting leaves a name that no list shows.
    aside = registry.root / f"{_GONE}{import_id}-{secrets.token_hex(4)}"
    (registry.root / import_id).rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    for forget in (registry.plans, registry.cancels, registry.touched):
        forget.pop(import_id, None)


def tidy(registry: Registry) -> None:
    """Delete leftovers of killed studios, and imports finished long ago."""
    remove_half_made(registry)
    for import_id in import_ids(registry):
        folder = registry.root / import_id
        state = load_state(registry, import_id)
        if state.status == "done":
            shutil.rmtree(folder / "files", ignore_errors=True)
            if registry.tasks.now() - state.created > _KEEP_DONE_S:
                remove_import(registry, import_id)
