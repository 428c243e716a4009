"""ASTRA-sim's files into the form and out of it."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from studio.errors import ConfigError
from studio.runs import Tables
from studio.sim import astra
from studio.sim.network import EXTENDED_NETWORK_KEYS, NETWORK_KEYS
from studio.sim.parts import CUSTOM, MEMORY_KEYS, PER_NODE_CUSTOM, SYSTEM_IGNORED, SYSTEM_KEYS

_MANY = 8
_CALLED = {
    "network": "network.yml",
    "system": "system.json",
    "memory": "remote_memory.json",
    "groups": "comm_group.json",
}


def imported_files(tables: Tables, files: Mapping[str, bytes]) -> tuple[Tables, tuple[str, ...]]:
    """Return a system with the tables of files in place of its own, and what was taken for what.

    Args:
        tables: The system so far.
        files: Contents by name; which file of ASTRA-sim's each is, is told by its keys.

    Raises:
        ConfigError: A file is none of ASTRA-sim's, or two are the same one.
    """
    if len(files) > _MANY:
        raise ConfigError(f"{len(files)} files were chosen; allowed: one of each kind", hint="Choose fewer.")
    taken: dict[str, str] = {}
    notes = []
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            table = _read(Path(folder), name, content)
            part = kind_of(table)
            if not part:
                keys = ", ".join(list(table)[:5]) or "no keys"
                raise ConfigError(
                    f"{name}: none of ASTRA-sim's files; it has {keys}",
                    hint="network.yml, system.json, comm_group.json and remote_memory.json can be imported.",
                )
            if part in taken:
                raise ConfigError(f"{name} and {taken[part]} are both {_CALLED[part]}; allowed: one")
            _refuse_traces(name, table)
            taken[part] = name
            tables = replace(tables, **{part: table}, names={**tables.names, part: name})  # type: ignore[arg-type]  # one of the tables
            notes.append(f"{name}: taken for {_CALLED[part]}.")
    return tables, tuple(notes)


def kind_of(table: Mapping[str, object]) -> str:
    """Return which of the tables a file holds; empty where it is none.

    Example:
        >>> kind_of({"topology": ["Ring"], "bandwidth": [50]}), kind_of({"1": [0, 1]}), kind_of({"memory-type": "X"})
        ('network', 'groups', 'memory')
        >>> kind_of({"scheduling-policy": "LIFO"}), kind_of({"name": "a"})
        ('system', '')
    """
    counts = {
        "network": sum(key in NETWORK_KEYS or key in EXTENDED_NETWORK_KEYS for key in table),
        "memory": sum(key in MEMORY_KEYS for key in table),
        "system": sum(key in SYSTEM_KEYS or key in SYSTEM_IGNORED for key in table),
    }
    best = max(counts, key=lambda part: counts[part])
    if counts[best]:
        return best
    return "groups" if all(isinstance(ranks, list) for ranks in table.values()) else ""


def _read(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Read a file as the command does; messages speak of the name it was chosen by."""
    path = folder / "chosen"
    path.write_bytes(content)
    key = "network" if content.lstrip()[:1] != b"{" else "comm_groups"
    given = {"system": None, "network": None, "comm_groups": None, "remote_memory": None, key: path}
    try:
        found = astra.load_given(**given)
    except ConfigError as error:
        raise ConfigError(error.message.replace(str(path), name), hint=error.hint) from error
    table: dict[str, Any] = found["network" if key == "network" else "groups"]
    return table


def _refuse_traces(name: str, table: Mapping[str, object]) -> None:
    key = next((key for key in (*CUSTOM, PER_NODE_CUSTOM) if key in table), None)
    if key:
        raise ConfigError(
            f"{name}: {key} names traces, which the page cannot take",
            hint="chakra-studio simulate --system does; or take the key out.",
        )


def exported(tables: Tables) -> bytes:
    """Return a system as a zip of ASTRA-sim's files, values as they were written."""
    with tempfile.TemporaryDirectory() as folder:
        files = astra.save(tables.parts, folder)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(folder).iterdir()):
                archive.write(path, path.name)
            words = [*files.options, f"--congestion={files.congestion}"]
            archive.writestr("options.txt", "\n".join(words) + "\n")
        return stream.getvalue()
