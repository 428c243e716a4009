"""Store arrays as Arrow files, with a checksum that is compared each time a file is opened.

A bit that flipped on the disk is an error so, instead of another answer.

Arrays are opened from a private copy: a file that is cut, overwritten or removed afterwards changes nothing for who
has it open. A mapping of the file itself would end the process (SIGBUS) once somebody cuts the file.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray
from zlib_ng.zlib_ng import crc32

from studio.arrow import from_arrow, to_arrow
from studio.files import open_file, open_private
from studio.store.durable_files import ODD_CONTENT, Damaged
from studio.units import format_counted

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE_BYTES = 1 << 20
_ALIGNED_BYTES = 64
_WORTH_THREADS_BYTES = 16 << 20
_IN_MEMORY_BYTES = 1 << 30
"""Larger files of arrays are copied into a file without a name, whose pages the system can drop, not into memory."""


class Checksum(msgspec.Struct, frozen=True):
    """Size and CRC-32 of a file."""

    size_bytes: int
    crc32: str


Columns = Iterable[tuple[str, NDArray[np.generic]]]
"""Named arrays, of any lengths."""


def write_columns(path: Path, batches: Iterable[Columns], *, durable: bool = True) -> Checksum:
    """Write arrays as Arrow: one record batch per element of `batches`, one list column per array.

    Booleans become bytes, so that reading needs no copy.

    Args:
        path: Where to.
        batches: Named arrays; as many of them, and of the same types, in each.
        durable: Whether to wait until they are on the disk; else somebody does so later, with `sync_file`.

    Returns:
        What `read_columns` wants to see again.
    """
    import pyarrow as pa

    with open_private(path) as stream:
        summing = _Summing(stream)
        writer: pa.RecordBatchFileWriter | None = None
        for columns in batches:
            batch = _build_batch(columns)
            writer = writer or pa.ipc.new_file(summing, batch.schema)
            writer.write_batch(batch)
        writer = writer or pa.ipc.new_file(summing, pa.schema([]))
        writer.close()
        stream.flush()
        if durable:
            os.fsync(stream.fileno())
        return Checksum(stream.tell(), f"{summing.crc32:08x}")


class _Summing:
    """An output stream for Arrow that computes a checksum."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self.crc32 = 0
        self.tell = stream.tell
        self.flush = stream.flush
        self._stream = stream

    def write(self, piece: bytes) -> int:
        self.crc32 = crc32(piece, self.crc32)
        return self._stream.write(piece)

    def close(self) -> None:
        """Do nothing; the opener closes the stream."""


def read_columns(path: Path, checksum: Checksum | None = None) -> list[dict[str, NDArray[np.generic]]]:
    """Read the arrays of every record batch from a private copy of the file.

    Raises:
        Damaged: The file is not the one of the checksum.
    """
    [batches] = read_several([(path, checksum)])
    return batches


def read_several(files: Sequence[tuple[Path, Checksum | None]]) -> list[list[dict[str, NDArray[np.generic]]]]:
    """Read the arrays of every record batch of some files, as `read_columns` does of one; several files at a time."""
    import pyarrow as pa

    batches = []
    for (path, _), copy in zip(files, _copy_files(files), strict=True):
        try:
            batches.append(read_arrays(copy))
        except (pa.ArrowException, *ODD_CONTENT) as error:
            raise Damaged(f"{path.name}: {error}") from error
    return batches


def read_arrays(content: pa.Buffer) -> list[dict[str, NDArray[np.generic]]]:
    """Return the arrays of every record batch of a file's content, without a copy."""
    import pyarrow as pa

    batches = []
    with pa.ipc.open_file(content) as reader:
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            batch.validate()
            named = zip(batch.schema.names, batch.columns, strict=True)
            batches.append({name: from_arrow(column.values) for name, column in named})
    return batches


def _copy_files(files: Sequence[tuple[Path, Checksum | None]]) -> list[pa.Buffer]:
    """Copy files into memory that no other process can change, and verify their checksums."""
    import pyarrow as pa

    # Not all are open at a time: there may be more than a process may have.
    sizes = [path.stat().st_size for path, _ in files]
    for (path, checksum), size in zip(files, sizes, strict=True):
        if checksum and size != checksum.size_bytes:
            raise Damaged(
                f"{path.name}: it has {format_counted(size, 'byte')} instead of {checksum.size_bytes:,}"
            )
    places = [0]
    for size in sizes:
        places.append(places[-1] + size + -size % _ALIGNED_BYTES)
    room = _allocate(places[-1], files[0][0].parent) if files else memoryview(b"")
    rooms = [room[place : place + size] for place, size in zip(places, sizes, strict=False)]
    several = len(files) > 1 and places[-1] > _WORTH_THREADS_BYTES
    with ThreadPoolExecutor(2) as pool:
        for _ in (pool.map if several else map)(_copy, files, rooms):
            pass
    return [pa.py_buffer(own.toreadonly()) for own in rooms]


def _copy(file: tuple[Path, Checksum | None], room: memoryview) -> None:
    """Copy a file into a room of its size, and verify its checksum."""
    path, checksum = file
    checked = done = 0
    with open_file(path) as stream:
        while done < len(room) and (count := stream.readinto(room[done : done + _PIECE_BYTES])):
            checked = crc32(room[done : done + count], checked)
            done += count
    if done < len(room):
        raise Damaged(f"{path.name}: it was cut while it was read")
    if checksum and f"{checked:08x}" != checksum.crc32:
        raise Damaged(f"{path.name}: its checksum does not match")


def _allocate(size: int, folder: Path) -> memoryview:
    """Allocate memory for content of files; for much of it, an unnamed temporary file mapped into memory."""
    import pyarrow as pa

    if size > _IN_MEMORY_BYTES and hasattr(os, "posix_fallocate"):
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as stream:
            # Reserve space now: a page fault on a full disk would end the process.
            os.posix_fallocate(stream.fileno(), 0, size)
            return memoryview(mmap.mmap(stream.fileno(), size))
    return memoryview(pa.allocate_buffer(size)).cast("B")


def _build_batch(columns: Columns) -> pa.RecordBatch:
    import pyarrow as pa

    lists, names = [], []
    for name, array in columns:
        flat = np.ascontiguousarray(array).reshape(-1)
        flat = flat.view(np.uint8) if flat.dtype == np.bool_ else flat
        offsets = to_arrow(np.array([0, len(flat)], np.int64))
        lists.append(pa.LargeListArray.from_arrays(offsets, to_arrow(flat)))
        names.append(name)
    return pa.RecordBatch.from_arrays(lists, names)
