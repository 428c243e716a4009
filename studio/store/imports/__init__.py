"""Imports of uploaded files, stored on disk so that they survive restarts.

Layout below the workspace folder:

    imports/.lock                 held while any state.json is changed
    imports/<id>/plan.json        the files announced; written once
    imports/<id>/state.json       where the import stands; replaced as a whole, never edited
    imports/<id>/progress.json    how far the reading is; may be lost
    imports/<id>/files/000001     what has arrived; its size is the offset to go on from
    imports/<id>/unpacked/        archives' members while they are read

The paths users give are data in plan.json and never reach the file system. An import belongs to the studio whose
token its state names, see `studio.store.tasks`; when that studio is gone the import counts as interrupted, and any
studio may take it over.
"""

from __future__ import annotations

from studio.et.format import NpusNeededError
from studio.et.job_builder import RanksNeededError
from studio.store.imports.model import (
    Announced,
    ByteStream,
    FileStatus,
    Import,
    ImportFile,
    ImportRefusedError,
    Phase,
    Progress,
    ReadJob,
    Reason,
    Registry,
    Status,
)
from studio.store.imports.reading import open_registry, start
from studio.store.imports.store import get_import, list_files, list_imports
from studio.store.imports.upload import (
    FILES_AT_MOST,
    PATH_AT_MOST,
    append_chunk,
    append_files,
    cancel_file,
    cancel_import,
    create_import,
)

__all__ = [
    "FILES_AT_MOST",
    "PATH_AT_MOST",
    "Announced",
    "ByteStream",
    "FileStatus",
    "Import",
    "ImportFile",
    "ImportRefusedError",
    "NpusNeededError",
    "Phase",
    "Progress",
    "RanksNeededError",
    "ReadJob",
    "Reason",
    "Registry",
    "Status",
    "append_chunk",
    "append_files",
    "cancel_file",
    "cancel_import",
    "create_import",
    "get_import",
    "list_files",
    "list_imports",
    "open_registry",
    "start",
]
