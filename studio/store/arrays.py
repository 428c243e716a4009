"""Store traces as Arrow and JSON files with checksums, written to survive a power cut.

trace.json      ranks, comm groups, findings, size and checksum of graphs.arrow
graphs.arrow    one record batch per distinct graph, one list column per array of the graph

Every file carries a checksum that is compared each time the file is opened, so a bit that flipped on the disk is an
error instead of another answer. JSON files end with their own; files written before there were checksums open as
they always did.

Arrays are opened from a private copy: a file that is cut, overwritten or removed afterwards changes nothing for who
has it open. A mapping of the file itself would end the process (SIGBUS) once somebody cuts the file.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import secrets
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from studio.arrow import from_arrow, to_arrow
from studio.decoding import decoder
from studio.errors import ConfigError
from studio.files import PRIVATE_FOLDER, is_full, open_file, open_private, read_file, tell_full
from studio.trace import (
    Attribute,
    CommGroup,
    Finding,
    Graph,
    Rank,
    Trace,
    ValueKind,
    arrays,
    graph_from_arrays,
)
from studio.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa


_T = TypeVar("_T")
_GRAPHS = "graphs.arrow"
_ARROW_MAGIC_BYTES = 8
_PIECE_BYTES = 1 << 20
_IN_MEMORY_BYTES = 1 << 30
"""Larger files of arrays are copied into a file without a name, whose pages the system can drop, not into memory."""

_ODD_CONTENT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
"""What damaged files that still decode raise on their way into arrays."""


class Damaged(Exception):  # noqa: N818 (what it is about becomes a TraceError where its name is known)
    """Stored files are missing or damaged."""


@contextlib.contextmanager
def convert_damage() -> Iterator[None]:
    """Convert errors from damaged stored files to `Damaged`."""
    import pyarrow as pa

    try:
        yield
    except (OSError, msgspec.MsgspecError, pa.ArrowException, *_ODD_CONTENT) as error:
        raise Damaged(str(error)) from error


# ---------------------------------------------------------------------------------------------------
# Files and arrays


def write_file(path: Path, content: bytes) -> None:
    """Write a file and sync it to disk."""
    with open_private(path) as stream:
        stream.write(content)
        stream.flush()
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
    write_file(path, body + b',"crc32":"%08x"}' % zlib.crc32(body))


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
        seal and int(seal[1], 16) == zlib.crc32(memoryview(raw)[: seal.start()])
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


class Checksum(msgspec.Struct, frozen=True):
    """Size and CRC-32 of a file."""

    size_bytes: int
    crc32: str


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


Columns = Iterable[tuple[str, NDArray[np.generic]]]
"""Named arrays, of any lengths."""


def write_columns(path: Path, batches: Iterable[Columns]) -> Checksum:
    """Write arrays as Arrow: one record batch per element of `batches`, one list column per array.

    Booleans become bytes, so that reading needs no copy.

    Returns:
        What `read_columns` wants to see again.
    """
    with ColumnsFile(path) as file:
        for columns in batches:
            file.add(columns)
        return file.finish()


class ColumnsFile:
    """A file of arrays that is written batch by batch, see `write_columns`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = open_private(path)
        self._summing = _Summing(self._stream)
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> ColumnsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._stream.close()

    def add(self, columns: Columns) -> tuple[int, pa.Schema]:
        """Write a batch; returns where it begins in the file, and its schema."""
        import pyarrow as pa

        batch = _batch(columns)
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._summing, batch.schema)
        start = self._stream.tell()
        self._writer.write_batch(batch)
        return start, batch.schema

    def flush(self) -> None:
        """Hand over to the system what was written, so that others can read it."""
        self._stream.flush()

    def finish(self) -> Checksum:
        """Write the end of the file and sync it to disk; returns what `read_columns` wants to see again."""
        import pyarrow as pa

        if self._writer is None:
            self._writer = pa.ipc.new_file(self._summing, pa.schema([]))
        self._writer.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        return Checksum(self._stream.tell(), f"{self._summing.crc32:08x}")


class _Summing:
    """An output stream for Arrow that computes a checksum."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self.crc32 = 0
        self.tell = stream.tell
        self.flush = stream.flush
        self._stream = stream

    def write(self, piece: bytes) -> int:
        self.crc32 = zlib.crc32(piece, self.crc32)
        return self._stream.write(piece)

    def close(self) -> None:
        """Do nothing; the opener closes the stream."""


def read_columns(path: Path, checksum: Checksum | None = None) -> list[dict[str, NDArray[np.generic]]]:
    """Read the arrays of every record batch from a private copy of the file.

    Raises:
        Damaged: The file is not the one of the checksum.
    """
    import pyarrow as pa

    batches = []
    try:
        with pa.ipc.open_file(_copy_of(path, checksum)) as reader:
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                batch.validate()
                named = zip(batch.schema.names, batch.columns, strict=True)
                batches.append({name: from_arrow(column.values) for name, column in named})
    except (pa.ArrowException, *_ODD_CONTENT) as error:
        raise Damaged(f"{path.name}: {error}") from error
    return batches


def _copy_of(path: Path, checksum: Checksum | None) -> pa.Buffer:
    """Copy a file into memory that no other process can change, and verify its checksum."""
    import pyarrow as pa

    with open_file(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if checksum and size != checksum.size_bytes:
            raise Damaged(f"{path.name}: it has {size:,} bytes instead of {checksum.size_bytes:,}")
        room = _allocate(size, path.parent)
        crc32 = done = 0
        while done < size and (count := stream.readinto(room[done : done + _PIECE_BYTES])):
            crc32 = zlib.crc32(room[done : done + count], crc32)
            done += count
    if done < size:
        raise Damaged(f"{path.name}: it was cut while it was read")
    if checksum and f"{crc32:08x}" != checksum.crc32:
        raise Damaged(f"{path.name}: its checksum does not match")
    return pa.py_buffer(room.toreadonly())


def _allocate(size: int, folder: Path) -> memoryview:
    """Allocate memory for a file's content; for a large file, an unnamed temporary file mapped into memory."""
    import pyarrow as pa

    if size > _IN_MEMORY_BYTES and hasattr(os, "posix_fallocate"):
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as stream:
            # Reserve space now: a page fault on a full disk would end the process.
            os.posix_fallocate(stream.fileno(), 0, size)
            return memoryview(mmap.mmap(stream.fileno(), size))
    return memoryview(pa.allocate_buffer(size)).cast("B")


def _batch(columns: Columns) -> pa.RecordBatch:
    import pyarrow as pa

    lists, names = [], []
    for name, array in columns:
        flat = np.ascontiguousarray(array).reshape(-1)
        flat = flat.view(np.uint8) if flat.dtype == np.bool_ else flat
        offsets = to_arrow(np.array([0, len(flat)], np.int64))
        lists.append(pa.LargeListArray.from_arrays(offsets, to_arrow(flat)))
        names.append(name)
    return pa.RecordBatch.from_arrays(lists, names)


# ---------------------------------------------------------------------------------------------------
# Traces


class _StoredAttribute(msgspec.Struct, array_like=True):
    name: str
    kind: int
    value: Any
    doc: str


class _StoredRank(msgspec.Struct, array_like=True):
    number: int
    graph: int
    slots: list[int | str]
    version: str
    metadata: list[_StoredAttribute]
    extra: bytes
    file: str


class _StoredTrace(msgspec.Struct):
    ranks: list[_StoredRank]
    groups: list[CommGroup]
    findings: list[Finding]
    graphs: Checksum | None = None


_stored_trace = decoder(_StoredTrace)


class GraphShelf:
    """The graphs of a job that is being read, stored as they come, so that they need not all be in memory.

    The file of a job's graphs is written graph by graph. Each is mapped from there once it is written: the file is this
    process's own until the job is complete, and nobody who opens the job has it mapped.

    Attributes:
        graphs: The graphs so far.
    """

    def __init__(self, folder: Path, storing: Callable[[], AbstractContextManager[None]]) -> None:
        """Prepare a shelf; nothing is written before it is used.

        Args:
            folder: Where to, made when it is needed.
            storing: Converts errors of writing.
        """
        self.graphs: list[Graph] = []
        self._folder, self._storing = folder, storing
        self._file: ColumnsFile | None = None

    @property
    def folder(self) -> Path:
        """A folder for temporary files beside it."""
        with self._storing():
            self._folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
        return self._folder

    def put(self, graph: Graph) -> Graph:
        """Store a graph and return it as it is mapped from the file."""
        folder = self.folder
        with self._storing():
            self._file = self._file or ColumnsFile(folder / _GRAPHS)
            start, schema = self._file.add(arrays(graph))
            self._file.flush()
            # Where a file that is mapped cannot be renamed, graphs stay in memory.
            stored = _mapped(self._file.path, start, schema) if os.name == "posix" else graph
        self.graphs.append(stored)
        return stored

    def hand_over(self, trace: Trace, folder: Path) -> Checksum | None:
        """Move the file to where a trace is being stored; None where it does not hold the trace's graphs, and these alone."""
        if self._file is None or list(map(id, trace.graphs)) != list(map(id, self.graphs)):
            return None
        checksum = self._file.finish()
        self._file.path.rename(folder / _GRAPHS)
        return checksum

    def close(self) -> None:
        """Close the file, and remove what is left."""
        if self._file is not None:
            self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _mapped(path: Path, start: int, schema: pa.Schema) -> Graph:
    """Map the graph that begins at a place of a file."""
    import pyarrow as pa

    first = start - start % mmap.ALLOCATIONGRANULARITY
    with open_file(path) as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ, offset=first)
    source = pa.BufferReader(pa.py_buffer(memoryview(mapped)[start - first :]))
    if not start:
        # The head of the file is written with the first batch.
        source.seek(_ARROW_MAGIC_BYTES)
        pa.ipc.read_message(source)
    batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
    named = zip(batch.schema.names, batch.columns, strict=True)
    return _graph({name: from_arrow(column.values) for name, column in named})


def write_trace(
    trace: Trace,
    folder: Path,
    tick: Callable[[int, int], None] | None = None,
    shelf: GraphShelf | None = None,
) -> None:
    """Write a trace to an existing folder.

    Args:
        trace: The trace.
        folder: Where to.
        tick: Told the graphs written and the graphs in all; may raise to stop.
        shelf: What may hold its graphs already.
    """

    def graphs() -> Iterator[Columns]:
        for done, graph in enumerate(trace.graphs, 1):
            yield arrays(graph)
            if tick:
                tick(done, len(trace.graphs))

    checksum = shelf.hand_over(trace, folder) if shelf else None
    if checksum is None:
        checksum = write_columns(folder / _GRAPHS, graphs())
    elif tick:
        tick(len(trace.graphs), len(trace.graphs))
    write_sealed(folder / "trace.json", _to_stored(trace, checksum))


def read_trace(folder: Path) -> Trace:
    """Read a trace from a folder.

    Raises:
        Damaged: It is not there, or not as it was stored.
    """
    with convert_damage():
        stored = decode_sealed(folder / "trace.json", _stored_trace)
        graphs = tuple(_graph(columns) for columns in read_columns(folder / _GRAPHS, stored.graphs))
        ranks = tuple(_rank(stored_rank, len(graphs)) for stored_rank in stored.ranks)
        return Trace(graphs, ranks, tuple(stored.groups), tuple(stored.findings))


def _graph(columns: dict[str, NDArray[np.generic]]) -> Graph:
    return graph_from_arrays({**columns, "attrs.slot": columns["attrs.slot"].view(np.bool_)})


def _to_stored(trace: Trace, checksum: Checksum) -> _StoredTrace:
    ranks = [
        _StoredRank(
            rank.number,
            rank.graph,
            list(rank.slots),
            rank.version,
            [_StoredAttribute(a.name, int(a.kind), _plain(a.value), a.doc) for a in rank.metadata],
            rank.extra,
            encodable(rank.file),
        )
        for rank in trace.ranks
    ]
    findings = [
        replace(finding, message=encodable(finding.message), file=encodable(finding.file))
        for finding in trace.findings
    ]
    return _StoredTrace(ranks, list(trace.groups), findings, checksum)


def encodable(text: str) -> str:
    r"""Escape bytes of a file name that are not UTF-8.

    Example:
        >>> encodable("job\udcff.0.et")
        'job\\udcff.0.et'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    """Convert a value to JSON without loss: floats and bytes become hex text."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    return value.hex() if isinstance(value, bytes) else value


def _rank(stored: _StoredRank, graphs: int) -> Rank:
    if not 0 <= stored.graph < graphs:
        raise ValueError(f"rank {stored.number} has no graph")
    metadata = tuple(
        Attribute(a.name, ValueKind(a.kind), _from_stored(ValueKind(a.kind), a.value), a.doc)
        for a in stored.metadata
    )
    return Rank(
        stored.number,
        stored.graph,
        tuple(stored.slots),
        stored.version,
        metadata,
        stored.extra,
        stored.file,
    )


def _from_stored(kind: ValueKind, value: Any) -> Any:
    if isinstance(value, list):
        return [_from_stored(kind, item) for item in value]
    if kind in (ValueKind.DOUBLE, ValueKind.DOUBLE_LIST, ValueKind.FLOAT, ValueKind.FLOAT_LIST):
        return struct.unpack(">d", bytes.fromhex(value))[0]
    return bytes.fromhex(value) if kind in (ValueKind.BYTES, ValueKind.BYTES_LIST) else value


@contextlib.contextmanager
def appearing(path: Path, option: str) -> Iterator[TextIO]:
    """Write a text file atomically: it appears when the block ends without an error.

    Its folder is made where it is not there.

    Args:
        path: The file.
        option: What the user calls it, for messages.

    Raises:
        ConfigError: It cannot be written.
    """
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
            full = tell_full(
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
