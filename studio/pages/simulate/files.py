"""Import and export ASTRA-sim's files on the Simulate page."""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from studio.errors import ConfigError
from studio.et.archive import iterate_member_pieces
from studio.sim import astra
from studio.sim.models import with_model
from studio.sim.parts import (
    CUSTOM,
    EXTENDED,
    PER_NODE_CUSTOM,
    SYSTEM_IGNORED,
    SYSTEM_KEYS,
    Parts,
    is_extended,
)
from studio.sim.settings import BY_KEY, list_file_settings

_MANY = 8
_MOST_BYTES = 8 << 20
_CALLED = {
    "network": "network.yml",
    "system": "system.json",
    "memory": "remote_memory.json",
    "groups": "comm_group.json",
    "options": "options.txt",
}
_TELLING: Mapping[str, frozenset[str]] = {
    "network": frozenset(("topology", "npus_count")),
    "memory": frozenset(setting.key for setting in list_file_settings("memory")),
    # The keys L, o, g and G are too short to identify a file.
    "system": frozenset(key for key in (*SYSTEM_KEYS, *SYSTEM_IGNORED) if len(key) > 1),
}
_OPTION = re.compile(rb"--[a-z][a-z-]*(=.*)?")


def import_files(tables: Parts, files: Mapping[str, bytes]) -> tuple[Parts, tuple[str, ...]]:
    """Replace parts of a system by those in files, and say which file was read as which part.

    A zip stands for its files. One with both a network and a system is a whole system: if it has no memory or
    no comm groups, neither has the result.

    Args:
        tables: The system so far.
        files: Contents by name; the keys of each tell which of ASTRA-sim's files it is.

    Raises:
        ConfigError: A file is none of ASTRA-sim's, or two are the same one.
    """
    unpacked, zipped = _unpack(files)
    if len(unpacked) > _MANY:
        raise ConfigError(
            f"{len(unpacked)} files were chosen; allowed: one of each kind", hint="Choose fewer."
        )
    taken: dict[str, str] = {}
    notes = []
    system, congestion = tables, ""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in unpacked.items():
            part, changes = _read_part(Path(folder), name, content)
            if part in taken:
                raise ConfigError(f"{name} and {taken[part]} are both {_CALLED[part]}; allowed: one")
            taken[part] = name
            congestion = changes.get("congestion", congestion)
            system = replace(system, **changes, names={**system.names, part: name})
            notes.append(f"{name}: read as {_CALLED[part]}.")
    if zipped and {"network", "system"} <= taken.keys():
        absent: dict[str, Any] = {part: None for part in ("memory", "groups") if part not in taken}
        system = replace(system, **absent)
    return _apply_file_model(system, taken, congestion), tuple(notes)


def _apply_file_model(system: Parts, taken: Collection[str], congestion: str) -> Parts:
    """Return a system that files have become part of, under the model that a system file is of.

    Args:
        system: The system.
        taken: The parts that are of files.
        congestion: What they say of it; "" for nothing.
    """
    if "system" not in taken:
        return system
    if not congestion:
        system = replace(system, congestion="unaware")
    if is_extended(system) or "network" in taken or "links" in system.network:
        return system
    full = replace(system, system={**system.system, EXTENDED: {}})
    return replace(system, network=with_model(full, "astra-sim").network)


def _unpack(files: Mapping[str, bytes]) -> tuple[dict[str, bytes], bool]:
    """Replace zips by the files in them; also return whether there was a zip."""
    contents: dict[str, bytes] = {}
    zipped = False
    for name, content in files.items():
        if content[:2] == b"PK":
            zipped = True
            contents |= _read_zip(name, content)
        else:
            contents[name] = content
    return contents, zipped


def _read_zip(name: str, content: bytes) -> dict[str, bytes]:
    """Unpack a zip in memory; the size limit counts unpacked bytes, not what the zip declares."""
    contents: dict[str, bytes] = {}
    left = _MOST_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > _MANY:
                raise ConfigError(f"{name}: {len(members)} files in it; allowed: one of each kind")
            for member in members:
                pieces = []
                for piece in iterate_member_pieces(archive, member):
                    pieces.append(piece)
                    left -= len(piece)
                    if left < 0:
                        raise ConfigError(
                            f"{name}: more than {_MOST_BYTES:,} bytes when unpacked; allowed: up to that",
                            hint="Is this the right file?",
                        )
                contents[member.filename[:200]] = b"".join(pieces)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError) as error:
        raise ConfigError(f"{name}: not a readable zip", hint="Import a zip that Export wrote.") from error
    return contents


def _read_part(folder: Path, name: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return which part of a system a file holds, and its content."""
    if content.strip() and all(
        _OPTION.fullmatch(line.strip()) for line in content.splitlines() if line.strip()
    ):
        return "options", _parse_options(name, content)
    table = _read(folder, name, content)
    part = infer_kind(table)
    if not part:
        keys = ", ".join(list(table)[:5]) or "no keys"
        raise ConfigError(
            f"{name}: not one of ASTRA-sim's files; its keys are {keys}",
            hint="network.yml, system.json, comm_group.json and remote_memory.json can be imported, "
            "and the zip that Export makes.",
        )
    _refuse_traces(name, table)
    return part, astra.collect_system_fields(table) if part == "system" else {part: table}


def _parse_options(name: str, content: bytes) -> dict[str, Any]:
    """Parse command-line options, one per line, as `export_zip` writes them."""
    try:
        given = astra.parse_options([line.strip() for line in content.decode().splitlines() if line.strip()])
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name}: not UTF-8 text",
            hint="Options are text in UTF-8, one a line, such as --num-queues-per-dim=1.",
        ) from error
    except ConfigError as error:
        raise ConfigError(error.message.replace("command line", name), hint=error.hint) from error
    congestion = given.pop("congestion", None)
    allowed = BY_KEY["congestion"]
    if congestion is not None and congestion not in allowed.values:
        raise ConfigError(f"{name}: congestion is {congestion[:40]!r}; allowed: {allowed.allowed_words()}")
    parts: dict[str, Any] = {"options": {key: _parse_option(value) for key, value in given.items()}}
    return parts | ({"congestion": congestion} if congestion else {})


def _parse_option(value: str) -> object:
    """Parse the value of an option as JSON; typed by hand it may be a bare word."""
    try:
        read: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return read


def infer_kind(table: Mapping[str, object]) -> str:
    """Return which of the tables a file holds; empty where it is none.

    Example:
        >>> infer_kind({"topology": ["Ring"], "bandwidth": [50]}), infer_kind({"1": [0, 1]}), infer_kind({"memory-type": "X"})
        ('network', 'groups', 'memory')
        >>> infer_kind({"scheduling-policy": "LIFO"}), infer_kind({"name": "a"}), infer_kind({"links": [], "finish_ns": 1})
        ('system', '', '')
    """
    counts = {part: len(telling & table.keys()) for part, telling in _TELLING.items()}
    best = max(counts, key=lambda part: counts[part])
    if counts[best]:
        return best
    return "groups" if all(_are_ranks(ranks) for ranks in table.values()) else ""


def _are_ranks(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(rank, int | str) for rank in value)


def _read(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Read a file as the command `simulate` does; messages name it as the user chose it."""
    path = folder / "chosen"
    path.write_bytes(content)
    key = "network" if content.lstrip()[:1] != b"{" else "comm_groups"
    given = {"system": None, "network": None, "comm_groups": None, "remote_memory": None, key: path}
    try:
        tables = astra.load_given(**given)
    except ConfigError as error:
        raise ConfigError(error.message.replace(str(path), name), hint=error.hint) from error
    table: dict[str, Any] = tables["network" if key == "network" else "groups"]
    return table


def _refuse_traces(name: str, table: Mapping[str, object]) -> None:
    key = next((key for key in (*CUSTOM, PER_NODE_CUSTOM) if key in table), None)
    if key:
        raise ConfigError(
            f"{name}: {key} names traces, which this page cannot import",
            hint="chakra-studio simulate --system does; or remove the key.",
        )


def export_zip(tables: Parts) -> bytes:
    """Return a system as a zip of ASTRA-sim's files, with values as entered."""
    with tempfile.TemporaryDirectory() as folder:
        files = astra.save(tables, folder)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(folder).iterdir()):
                archive.write(path, path.name)
            words = [*files.options, f"--congestion={files.congestion}"]
            archive.writestr("options.txt", "\n".join(words) + "\n")
        return stream.getvalue()
