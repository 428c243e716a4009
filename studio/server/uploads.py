"""The upload routes: files come in chunks straight to disk, and can be resumed, cancelled and watched.

Every answer is JSON; refusals are `{"error": {"message", "hint"}}`, with `received` where an upload may go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from flask import Blueprint, Response, request
from werkzeug.exceptions import ClientDisconnected, HTTPException

from studio.decoding import build_decoder
from studio.errors import StudioError
from studio.files import is_full
from studio.store import imports
from studio.store.imports import Announced, Import, ImportFile, ImportRefusedError, Registry
from studio.store.tasks import Problem

_T = TypeVar("_T")

CHUNK_BYTES = 8 << 20
_JSON_AT_MOST = 16 << 20
_FILES_PER_REQUEST = 100
_STATUS: dict[imports.Reason, int] = {
    "missing": 404,
    "conflict": 409,
    "invalid": 400,
    "too-large": 413,
    "disk-full": 507,
    "cut": 400,
}


class _File(msgspec.Struct, frozen=True):
    path: str
    size: int
    modified: float | None = None


class _NewImport(msgspec.Struct, frozen=True):
    files: list[_File]
    name: str = ""


class _Start(msgspec.Struct, frozen=True):
    ranks: dict[str, int] = {}
    npus: int | None = None


_new_import = build_decoder(_NewImport)
_start = build_decoder(_Start)


class _Body:
    """The request's body as a stream that ends where the client disconnects."""

    def read(self, size: int, /) -> bytes:
        try:
            return request.stream.read(size)
        except ClientDisconnected:
            return b""


def build_uploads_blueprint(registry: Registry) -> Blueprint:
    """Make the routes below /api/imports for the open imports of a workspace."""
    routes = Blueprint("uploads", __name__, url_prefix="/api/imports")
    routes.register_error_handler(StudioError, _handle_studio_error)
    routes.register_error_handler(HTTPException, _handle_http_error)
    routes.register_error_handler(OSError, _handle_disk_error)

    @routes.get("")
    def list_imports() -> Response:
        return _build_response(
            {"imports": [_convert_import(entry) for entry in imports.list_imports(registry)]}
        )

    @routes.post("")
    def create_import() -> Response:
        wanted = _decode_body(_new_import)
        files = [Announced(file.path, file.size, file.modified) for file in wanted.files]
        entry = imports.create_import(registry, files, name=wanted.name)
        return _build_response(_convert_with_files(registry, entry) | {"chunk_bytes": CHUNK_BYTES}, 201)

    @routes.get("/<import_id>")
    def get_import(import_id: str) -> Response:
        entry = imports.get_import(registry, import_id)
        with_files = request.args.get("files", "1") != "0"
        return _build_response(_convert_with_files(registry, entry) if with_files else _convert_import(entry))

    @routes.put("/<import_id>/files/<file_id>")
    def put_chunk(import_id: str, file_id: str) -> Response:
        offset, length = _parse_chunk_place()
        return _build_response(
            {"received": imports.append_chunk(registry, import_id, file_id, offset, _Body(), length)}
        )

    @routes.put("/<import_id>/files")
    def put_files(import_id: str) -> Response:
        file_ids = request.args.get("ids", "").split(",")
        if len(file_ids) > _FILES_PER_REQUEST:
            message = f"{len(file_ids):,} files in one request; at most {_FILES_PER_REQUEST} are taken."
            raise ImportRefusedError("too-large", message, hint="Send them in several requests.")
        length = _read_length()
        return _build_response(
            {"received": imports.append_files(registry, import_id, file_ids, _Body(), length)}
        )

    @routes.delete("/<import_id>/files/<file_id>")
    def cancel_file(import_id: str, file_id: str) -> Response:
        imports.cancel_file(registry, import_id, file_id)
        return _build_response(_convert_import(imports.get_import(registry, import_id)))

    @routes.post("/<import_id>/start")
    @routes.post("/<import_id>/retry", endpoint="retry")
    def start(import_id: str) -> Response:
        asked = _decode_body(_start)
        started = imports.start(registry, import_id, ranks=asked.ranks, npus=asked.npus)
        return _build_response(_convert_import(started), 202)

    @routes.delete("/<import_id>")
    def cancel_import(import_id: str) -> Response:
        left = imports.cancel_import(registry, import_id)
        return _build_response(_convert_import(left) if left else {"id": import_id, "status": "gone"})

    return routes


def _decode_body(decode: Callable[[bytes], _T]) -> _T:
    # Only application/json: a form of a foreign site cannot send that without asking first.
    if request.mimetype != "application/json":
        mimetype = request.mimetype or "nothing"
        raise ImportRefusedError(
            "invalid",
            f"The body is {mimetype}; application/json is expected.",
            hint="Send it with the header Content-Type: application/json.",
        )
    request.max_content_length = _JSON_AT_MOST
    try:
        return decode(request.get_data(cache=False))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ImportRefusedError(
            "invalid", f"The body is not valid: {error}.", hint="Correct the body, and send it again."
        ) from error


def _parse_chunk_place() -> tuple[int, int]:
    """Return offset and length of the chunk in this request.

    Raises:
        ImportRefusedError: The offset is not a whole number of at least 0.
        LengthRequired: The request does not say how long it is.
    """
    length = _read_length()
    text = request.args.get("offset", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        message = f"The offset {text[:40]!r} is not a whole number of bytes."
        raise ImportRefusedError("invalid", message, hint="Send ?offset=N, N at least 0.")
    return int(text), length


def _read_length() -> int:
    length = request.content_length
    if length is None:
        raise _LengthRequired
    # The announced sizes bound what is taken; a limit meant for forms must not.
    request.max_content_length = length
    return length


class _LengthRequired(HTTPException):
    code = 411
    description = "A chunk needs a Content-Length."


def _convert_with_files(registry: Registry, entry: Import) -> dict[str, Any]:
    return _convert_import(entry) | {
        "files": [_convert_file(file) for file in imports.list_files(registry, entry.id)]
    }


def _convert_import(entry: Import) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": entry.name,
        "created": entry.created,
        "status": entry.status,
        "files_total": entry.files_total,
        "size": entry.size_bytes,
        "received": entry.received_bytes,
        "progress": entry.progress,
        "job": entry.job,
        "error": _convert_problem(entry.error),
        "warnings": entry.warnings,
        "idle_s": entry.idle_s,
        "files_used": entry.files_used,
        "files_left_out": entry.files_left_out,
    }


def _convert_file(file: ImportFile) -> dict[str, Any]:
    return {
        "id": file.id,
        "path": file.path,
        "size": file.size_bytes,
        "received": file.received_bytes,
        "status": file.status,
        "error": _convert_problem(file.error),
        "role": file.role,
    }


def _convert_problem(problem: Problem | None) -> dict[str, Any] | None:
    if problem is None:
        return None
    return {
        "message": problem.message,
        "hint": problem.hint,
        "ranks_for": problem.ranks_for,
        "npus_for": problem.npus_for,
    }


def _build_response(value: object, status: int = 200) -> Response:
    response = Response(msgspec.json.encode(value), status=status, mimetype="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response


def _build_error_response(status: int, message: str, hint: str = "", received: int | None = None) -> Response:
    body: dict[str, Any] = {"error": {"message": message, "hint": hint}}
    return _build_response(body if received is None else body | {"received": received}, status)


def _handle_studio_error(error: StudioError) -> Response:
    if isinstance(error, ImportRefusedError):
        return _build_error_response(_STATUS[error.reason], error.message, error.hint, error.received)
    return _build_error_response(500, error.message, error.hint)


def _handle_http_error(error: HTTPException) -> Response:
    return _build_error_response(error.code or 500, error.description or error.name)


def _handle_disk_error(error: OSError) -> Response:
    full = is_full(error)
    place = f" ({error.filename})" if error.filename else ""
    message = f"The workspace cannot be written: {error.strerror or error}{place}."
    return _build_error_response(
        507 if full else 500, message, "Check the disk of the workspace folder and its permissions."
    )
