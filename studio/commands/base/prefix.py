"""Resolve the common prefix of a job's files, as ASTRA-sim names them."""

from __future__ import annotations

import glob
from pathlib import Path

from studio.errors import ConfigError


def find_by_prefix(prefix: str) -> list[Path]:
    """Find the traces `<prefix>.<rank>.et` or `.et.gz`, and the comm groups `<prefix>.json` beside them."""
    base = Path(prefix)
    paths = []
    for path in sorted(base.parent.glob(f"{glob.escape(base.name)}.*")) if base.name else []:
        middle, *suffixes = path.name[len(base.name) + 1 :].split(".")
        if middle.isdecimal() and suffixes in (["et"], ["et", "gz"]):
            paths.append(path)
    groups = base.with_name(f"{base.name}.json") if base.name else base
    return [*paths, groups] if paths and groups.is_file() else paths


def build_missing_job_error(name: str, holds: str) -> ConfigError:
    """Return the error for a name that no files have, where there is no workspace either; `holds` says of what."""
    return ConfigError(
        f"{name!r}: no file or folder, no files {name}.<rank>.et, and no workspace with {holds}",
        hint="Name a folder of traces.",
    )
