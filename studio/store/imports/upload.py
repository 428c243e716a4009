"""Uploads: announce files, append chunks, cancel."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from studio import units
from studio.et import archive
from studio.files import is_full, open_private
from studio.store.imports.model import (
    Announced,
    ByteStream,
    Import,
    ImportRefusedError,
    Registry,
    State,
    build_disk_full_error,
    build_fixed_files_error,
    build_unknown_import_error,
    build_unwritable_error,
)
from studio.store.imports.store import (
    RESUMABLE,
    add_import,
    can_resume,
    cancel_event,
    get_announced_file,
    get_file_lock,
    get_import,
    import_ids,
    infer_status,
    is_mine,
    load_state,
    lock_imports,
    measure_size,
    read_owned_state,
    remove_half_made,
    remove_import,
    reopen_upload,
    save_state,
)
from studio.store.tasks import cancel
from studio.units import format_counted

FILES_AT_MOST = 100_000


PATH_AT_MOST = 4096


_PIECE_BYTES = 1 << 18


_SPARE_BYTES = 512 << 20


def create_import(registry: Registry, files: Sequence[Announced], *, name: str = "") -> Import:
    """Create an import, or return the unfinished import of the same files.

    Raises:
        ImportRefusedError: No file, too many, two of one path, or no room for them.
    """
    _check_files(files)
    fingerprint = _compute_fingerprint(files)
    with lock_imports(registry):
        remove_half_made(registry)
        for import_id in import_ids(registry):
            state = load_state(registry, import_id)
            if state.fingerprint == fingerprint and can_resume(registry, state):
                # All files are wanted again, including cancelled ones.
                reopen_upload(registry, import_id, replace(state, dropped=()))
                return get_import(registry, import_id)
        size_bytes = sum(file.size_bytes for file in files)
        _check_room(registry, size_bytes)
        import_id = secrets.token_hex(8)
        state = State(
            name=name.strip()[:200] or _name_of([file.path for file in files]),
            created=registry.tasks.now(),
            owner=registry.tasks.token,
            fingerprint=fingerprint,
            status="uploading",
            files_total=len(files),
            size_bytes=size_bytes,
        )
        add_import(registry, import_id, tuple(files), state)
    return get_import(registry, import_id)


def append_chunk(
    registry: Registry, import_id: str, file_id: str, offset: int, stream: ByteStream, length: int
) -> int:
    """Append bytes to a file of an import; bytes received before a broken connection are kept.

    Returns:
        How many bytes of the file are here now.

    Raises:
        ImportRefusedError: "conflict" when `offset` is not where the file ends (`received` says where), "cut" when
            the stream ended early, "too-large" beyond the announced size, "disk-full", "missing".
    """
    file = get_announced_file(registry, import_id, file_id)
    _claim_for_upload(registry, import_id, file_id)
    path = registry.root / import_id / "files" / file_id
    with get_file_lock(registry, import_id, file_id):
        received = measure_size(path)
        if offset != received:
            raise ImportRefusedError(
                "conflict",
                f"{file.path}: a chunk starts at byte {offset:,}, but the file here ends at {received:,}.",
                hint="Go on from there.",
                received=received,
            )
        if offset + length > file.size_bytes:
            raise ImportRefusedError(
                "too-large",
                f"{file.path}: {format_counted(offset + length, 'byte')} would be here, but {file.size_bytes:,} were announced.",
                hint="The file changed while it was uploaded; drop it again.",
                received=received,
            )
        received = _copy(registry, import_id, stream, path, file, length)
    registry.touched[import_id] = registry.tasks.now()
    if received < offset + length:
        message = f"{file.path}: the connection ended at byte {received:,}, {offset + length - received:,} too early."
        raise ImportRefusedError("cut", message, hint="Go on from there.", received=received)
    return received


def append_files(
    registry: Registry, import_id: str, file_ids: Sequence[str], stream: ByteStream, length: int
) -> dict[str, int]:
    """Append several whole files from one stream; one request per file would be slower.

    What is already here of a file is skipped, so the same request can simply be sent again.

    Returns:
        How many bytes of each file are here now.

    Raises:
        ImportRefusedError: "invalid" when the files' announced sizes do not add up to `length`, "cut" when the stream
            ended early, and as `append_chunk` does.
    """
    files = {file_id: get_announced_file(registry, import_id, file_id) for file_id in file_ids}
    expected = sum(file.size_bytes for file in files.values())
    if expected != length:
        message = f"{format_counted(length, 'byte')} came for {len(files):,} files of {expected:,} bytes."
        raise ImportRefusedError(
            "invalid", message, hint="A file changed while it was uploaded; drop it again."
        )
    received: dict[str, int] = {}
    for file_id, file in files.items():
        here = min(measure_size(registry.root / import_id / "files" / file_id), file.size_bytes)
        left = here
        while left and (piece := _take(stream, min(left, _PIECE_BYTES))):
            left -= len(piece)
        received[file_id] = append_chunk(registry, import_id, file_id, here, stream, file.size_bytes - here)
    return received


def _copy(
    registry: Registry, import_id: str, stream: ByteStream, path: Path, file: Announced, length: int
) -> int:
    cancel = cancel_event(registry, import_id)
    left = length
    try:
        with open_private(path, "ab") as out:
            while left and (piece := _take(stream, min(left, _PIECE_BYTES))):
                if cancel.is_set():
                    raise build_unknown_import_error(import_id)
                left -= out.write(piece)
    except FileNotFoundError as error:
        raise build_unknown_import_error(import_id) from error
    except OSError as error:
        raise (
            build_disk_full_error(registry.root, file.path, length)
            if is_full(error)
            else build_unwritable_error(file.path, error)
        ) from error
    return measure_size(path)


def _take(stream: ByteStream, most: int) -> bytes:
    try:
        return stream.read(most)
    except OSError:
        # The connection broke; the bytes received are kept.
        return b""


def cancel_file(registry: Registry, import_id: str, file_id: str) -> None:
    """Remove a file from an import and delete its bytes."""
    get_announced_file(registry, import_id, file_id)
    with lock_imports(registry):
        state = read_owned_state(registry, import_id)
        if infer_status(registry, state) not in RESUMABLE:
            raise build_fixed_files_error(state)
        errors = {key: problem for key, problem in state.file_errors.items() if key != file_id}
        dropped = tuple(sorted({*state.dropped, file_id}))
        save_state(
            registry,
            import_id,
            replace(state, owner=registry.tasks.token, dropped=dropped, file_errors=errors),
        )
    with get_file_lock(registry, import_id, file_id):
        (registry.root / import_id / "files" / file_id).unlink(missing_ok=True)


def cancel_import(registry: Registry, import_id: str) -> Import | None:
    """Cancel an import: one being read can be retried, any other is deleted.

    Returns:
        The import that was stopped, None when it is gone.
    """
    with lock_imports(registry):
        state = read_owned_state(registry, import_id)
        status = infer_status(registry, state)
        cancel_event(registry, import_id).set()
        if status in ("queued", "reading"):
            cancel(registry.tasks, registry.reading.get(import_id, ""))
            return get_import(registry, import_id)
    for key in [key for key in registry.writers if key[0] == import_id]:
        with registry.writers[key]:
            del registry.writers[key]
    with lock_imports(registry):
        remove_import(registry, import_id)
    return None


def _claim_for_upload(registry: Registry, import_id: str, file_id: str) -> None:
    state = load_state(registry, import_id)
    if state.status != "uploading" or not is_mine(registry, state):
        with lock_imports(registry):
            state = read_owned_state(registry, import_id)
            if infer_status(registry, state) not in RESUMABLE:
                raise build_fixed_files_error(state)
            reopen_upload(registry, import_id, state)
    if file_id in state.dropped:
        raise ImportRefusedError("missing", "This file was cancelled.", hint="Drop it again to import it.")


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
            message = f"{file.path[:200]!r} ({format_counted(file.size_bytes, 'byte')}): a path of 1 to {PATH_AT_MOST:,} characters and a size of at least 0 are wanted."
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
            f"The files take {units.format_bytes(size_bytes)}, but the disk of {registry.root} has only "
            f"{units.format_bytes(free_bytes)} left ({units.format_bytes(_SPARE_BYTES)} are kept free).",
            hint="Free some space, dismiss old imports, or choose another disk with --workspace DIR.",
        )


def _compute_fingerprint(files: Collection[Announced]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        digest.update(msgspec.json.encode((file.path, file.size_bytes, float(file.modified or 0))))
    return digest.hexdigest()


def _name_of(paths: Sequence[str]) -> str:
    """Choose the job's name from its files.

    Example:
        >>> _name_of(["gpt/gpt.0.et", "gpt/gpt.1.et"]), _name_of(["run.0.et", "run.1.et"]), _name_of(["a.zip"])
        ('gpt', 'run', 'a')
    """
    folders = {path.split("/")[0] if "/" in path else "" for path in paths}
    if len(folders) == 1 and (folder := folders.pop()):
        return folder[:200]
    stems = Counter(_strip_endings(path.rsplit("/", 1)[-1]) for path in paths if not archive.is_litter(path))
    return stems.most_common(1)[0][0][:200] if stems else paths[0][:200]


def _strip_endings(name: str) -> str:
    return re.sub(r"([._-]\d+)?(\.(et|zip|tar|tgz|gz|xz|bz2|json))*$", "", name) or name
