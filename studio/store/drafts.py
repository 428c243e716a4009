"""Drafts of systems in the form: each edit is stored under its own id, so that addresses can name it.

    drafts/<id>.json   written once, never changed; thirty days after its last use the next start removes it

A draft may hold values that are not allowed: what has been typed is not lost by a reload.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from studio.decoding import build_decoder
from studio.errors import StudioError
from studio.files import PRIVATE_FOLDER, read_file
from studio.sim.parts import Parts
from studio.store.durable_files import write_json

_ID = re.compile(r"[0-9a-f]{16}")
_KEEP_S = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Draft:
    """A system being edited.

    Attributes:
        tables: The system.
        origin: What it began as: the name of a preset, or "imported files".
        before: Id of the draft it was made from, "" where it is the first: what undo goes back to.
        edited: The field that made it of the one before, "" where it was more than a field.
        notes: What the studio has set by itself and why.
    """

    tables: Parts
    origin: str
    before: str = ""
    edited: str = ""
    notes: tuple[str, ...] = ()


_draft = build_decoder(Draft)


def save_draft(workspace: Path, draft: Draft) -> str:
    """Keep a draft and return its id.

    Raises:
        StudioError: The workspace cannot be written.
    """
    name = hashlib.blake2b(msgspec.json.encode(draft), digest_size=8).hexdigest()
    path = workspace / "drafts" / f"{name}.json"
    if not path.exists():
        try:
            path.parent.mkdir(PRIVATE_FOLDER, exist_ok=True)
            write_json(path, draft, durable=False)
        except OSError as error:
            raise StudioError(
                f"{path}: cannot be written: {error.strerror}.",
                hint="Free some space, or choose another folder with --workspace DIR.",
            ) from error
    return name


def load_draft(workspace: Path, name: str) -> Draft:
    """Return a draft.

    Raises:
        StudioError: There is none of this id.
    """
    missing = StudioError(
        f"The system {name[:40]!r} of this address is not kept in this workspace.",
        hint="Start from a preset; addresses of systems hold for thirty days and within one workspace.",
    )
    if not _ID.fullmatch(name):
        raise missing
    path = workspace / "drafts" / f"{name}.json"
    try:
        draft = _draft(read_file(path))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        raise missing from None
    with contextlib.suppress(OSError):
        os.utime(path)
    return draft


def tidy_drafts(workspace: Path) -> None:
    """Remove drafts nobody has used for thirty days."""
    for path in (workspace / "drafts").glob("*.json"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _KEEP_S:
                path.unlink()
