"""Store traces as Arrow and JSON files with checksums, written to survive a power cut.

trace.json        ranks, comm groups, findings, sizes and checksums of the files of graphs
graphs.arrow      one record batch per distinct graph, one list column per array of the graph
graphs.<n>.arrow  instead of it: the same for one distinct graph each, where they were made apart from each other

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
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from zlib_ng.zlib_ng import crc32

from studio.arrow import from_arrow, to_arrow
from studio.decoding import build_decoder
from studio.errors import ConfigError
from studio.files import describe_full_disk, is_full, open_file, open_private, read_file
from studio.trace import (
    Attribute,
    CommGroup,
    Finding,
    Graph,
    Rank,
    Trace,
    ValueKind,
    assemble_graph,
    iterate_arrays,
)
from studio.units import format_bytes, format_counted

if TYPE_CHECKING:
    import pyarrow as pa


_T = TypeVar("_T")
_GRAPHS = "graphs.arrow"
_PIECE_BYTES = 1 << 20
_ALIGNED_BYTES = 64
_WORTH_THREADS_BYTES = 16 << 20
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
        except (pa.ArrowException, *_ODD_CONTENT) as error:
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
    each: list[Checksum] = []


_stored_trace = build_decoder(_StoredTrace)


def name_graph_file(index: int) -> str:
    """Return the name of the file of a graph that has a file of its own."""
    return f"graphs.{index}.arrow"


def write_trace(
    trace: Trace,
    folder: Path,
    tick: Callable[[int, int], None] | None = None,
    each: Sequence[Checksum] | None = None,
) -> None:
    """Write a trace to an existing folder.

    Args:
        trace: The trace.
        folder: Where to.
        tick: Told the graphs written and the graphs in all; may raise to stop.
        each: Checksums of the graphs, where each is there already in a file of its own.
    """

    def iterate_graphs() -> Iterator[Columns]:
        for done, graph in enumerate(trace.graphs, 1):
            yield iterate_arrays(graph)
            if tick:
                tick(done, len(trace.graphs))

    checksum = write_columns(folder / _GRAPHS, iterate_graphs()) if each is None else None
    if each is not None and tick:
        tick(len(trace.graphs), len(trace.graphs))
    write_sealed(folder / "trace.json", _to_stored(trace, checksum, each or ()))


def read_trace(folder: Path) -> Trace:
    """Read a trace from a folder.

    Raises:
        Damaged: It is not there, or not as it was stored.
    """
    with convert_damage():
        stored = decode_sealed(folder / "trace.json", _stored_trace)
        graphs = tuple(map(build_graph, _read_stored_graphs(folder, stored)))
        ranks = tuple(_build_rank(stored_rank, len(graphs)) for stored_rank in stored.ranks)
        return Trace(graphs, ranks, tuple(stored.groups), tuple(stored.findings))


def _read_stored_graphs(folder: Path, stored: _StoredTrace) -> list[dict[str, NDArray[np.generic]]]:
    if not stored.each:
        return read_columns(folder / _GRAPHS, stored.graphs)
    files = [(folder / name_graph_file(index), checksum) for index, checksum in enumerate(stored.each)]
    return [columns for batches in read_several(files) for columns in batches]


def build_graph(columns: dict[str, NDArray[np.generic]]) -> Graph:
    """Return the graph of stored arrays."""
    return assemble_graph({**columns, "attrs.slot": columns["attrs.slot"].view(np.bool_)})


def _to_stored(trace: Trace, checksum: Checksum | None, each: Sequence[Checksum]) -> _StoredTrace:
    ranks = [
        _StoredRank(
            rank.number,
            rank.graph,
            list(rank.slots),
            rank.version,
            [_StoredAttribute(a.name, int(a.kind), _convert_to_json(a.value), a.doc) for a in rank.metadata],
            rank.extra,
            escape_name(rank.file),
        )
        for rank in trace.ranks
    ]
    findings = [
        replace(finding, message=escape_name(finding.message), file=escape_name(finding.file))
        for finding in trace.findings
    ]
    return _StoredTrace(ranks, list(trace.groups), findings, checksum, list(each))


def escape_name(text: str) -> str:
    r"""Escape bytes of a file name that are not UTF-8.

    Example:
        >>> escape_name("job\udcff.0.et")
        'job\\udcff.0.et'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _convert_to_json(value: Any) -> Any:
    """Convert a value to JSON without loss: floats and bytes become hex text."""
    if isinstance(value, list):
        return [_convert_to_json(item) for item in value]
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    return value.hex() if isinstance(value, bytes) else value


def _build_rank(stored: _StoredRank, graphs: int) -> Rank:
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
