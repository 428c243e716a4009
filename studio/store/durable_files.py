"""Write files that survive a power cut, and tell damage to them when they are read.

JSON files that are sealed end with a checksum of their own; files written before there were checksums open as they always did.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

import msgspec
from zlib_ng.zlib_ng import crc32

from studio.errors import ConfigError
from studio.files import describe_full_disk, is_full, open_private, read_file
from studio.units import format_bytes

_T = TypeVar("_T")
ODD_CONTENT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
"""What damaged files that still decode raise on their way into arrays."""


class Damaged(Exception):  # noqa: N818 (what it is about becomes a TraceError where its name is known)
    """Stored files are missing or damaged."""


@contextlib.contextmanager
def convert_damage() -> Iterator[None]:
    """Convert errors from damaged stored files to `Damaged`."""
    import pyarrow as pa

    try:
        yield
    except (OSError, msgspec.MsgspecError, pa.ArrowException, *ODD_CONTENT) as error:
        raise Damaged(str(error)) from error


def write_file(path: Path, content: bytes) -> None:
    """Write a file and sync it to disk."""
    with open_private(path) as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_file(path: Path) -> None:
    """Wait until what was written into a file is on the disk."""
    # Some systems want to have it opened for writing.
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a power cut."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_SEALED = b'{"sealed":true,'
_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"}\Z')


def write_sealed(path: Path, value: Any) -> None:
    """Write a value as JSON with a checksum as its last field."""
    body = _SEALED + msgspec.json.encode(value)[1:-1]
    write_file(path, body + b',"crc32":"%08x"}' % crc32(body))


def read_sealed(path: Path) -> bytes:
    """Read JSON and verify its checksum; files of older versions have none.

    Raises:
        OSError: It cannot be read.
        Damaged: It is not as it was written.
    """
    raw = read_file(path)
    seal = _SEAL.search(raw)
    # Two marks, so that a flipped bit in one does not look like a file without checksum.
    if (seal or raw.startswith(_SEALED)) and not (
        seal and int(seal[1], 16) == crc32(memoryview(raw)[: seal.start()])
    ):
        raise Damaged(f"{path.name}: its checksum does not match")
    return raw


def decode_sealed(path: Path, decode: Callable[[bytes], _T]) -> _T:
    """Decode JSON and verify its checksum.

    Raises:
        OSError: It cannot be read.
        Damaged: It is not as it was written.
    """
    raw = read_sealed(path)
    try:
        return decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Damaged(f"{path.name}: {error}") from error


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Replace a JSON file atomically."""
    aside = path.with_suffix(f".{secrets.token_hex(4)}.new")
    try:
        with open_private(aside) as file:
            file.write(msgspec.json.encode(value))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def write_atomically(path: Path, option: str) -> Iterator[TextIO]:
    """Write a text file atomically: it appears when the block ends without an error.

    Its folder is made where it is not there.

    Args:
        path: The file.
        option: What the user calls it, for messages.

    Raises:
        ConfigError: It cannot be written.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        # A device or pipe takes what is written; a file in its place would break it for every program.
        with path.open("w", encoding="utf-8") as stream:
            yield stream
        return
    aside = path.with_name(f".{path.name}.part")
    written = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("w", encoding="utf-8", newline="\n") as stream:
                yield stream
            aside.replace(path)
        except BaseException:
            written = aside.stat().st_size if aside.exists() else 0
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        if is_full(error):
            full = describe_full_disk(
                path.parent, needed=f"more than {format_bytes(written)}", removed_bytes=written, error=error
            )
            raise ConfigError(
                f"{option} {path}: {full}.",
                hint="Free some space, or name a file on another disk.",
            ) from error
        raise ConfigError(
            f"{option} {path}: cannot be written: {error.strerror}",
            hint="Name a file in a folder that you may write to.",
        ) from error


def escape_name(text: str) -> str:
    r"""Escape bytes of a file name that are not UTF-8.

    Example:
        >>> escape_name("job\udcff.0.et")
        'job\\udcff.0.et'
    """
    return text.encode("utf-8", "backslashreplace").decode()
