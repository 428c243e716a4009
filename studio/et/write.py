"""Write a trace: `<job>.<rank>.et` for every rank, and the comm groups beside them."""

from __future__ import annotations

import errno
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from studio.errors import StudioError, TraceError
from studio.et import encode, groups
from studio.et.copies import write_table
from studio.et.format import Copy
from studio.et.reading_meter import Progress
from studio.files import describe_full_disk, is_full
from studio.trace import Rank, Trace, get_assumed_source
from studio.units import format_bytes

_NAME = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,199}")


def write(
    trace: Trace, folder: Path | str, name: str, *, compress: bool = False, progress: Progress | None = None
) -> list[Path]:
    """Write every rank of a trace, and its listed comm groups.

    All files are written aside and then renamed, so that an error leaves none of them, and never half of one.

    Args:
        trace: What to write.
        folder: Where to; made where it is not there.
        name: The files become `<name>.<rank>.et` and `<name>.json`.
        compress: Whether to write `.et.gz`.
        progress: Told the nodes written.

    Returns:
        The files, in order of rank, the comm groups last.

    Raises:
        TraceError: `name` cannot be part of a file name.

    Example:
        >>> import studio, tempfile
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [file.name for file in studio.write(trace, folder, "copy")][-2:]
        ['copy.7.et', 'copy.json']
    """
    name = make_file_stem(name)
    target = Path(folder)
    ending = ".et.gz" if compress else ".et"
    paths = {rank.number: target / f"{name}.{rank.number}{ending}" for rank in trace.ranks}
    written = list(paths.values())
    done, total = 0, sum(len(trace.graph_of(rank)) for rank in trace.ranks)
    with write_together() as put:
        for graph, ranks in _group_by_graph(trace).items():
            files = encode.GraphFiles(trace.graphs[graph], keep=len(ranks) > 1)
            for rank in ranks:
                put(
                    paths[rank.number],
                    pack_pieces(_report_pieces(files, rank, progress, (done, total)), compress),
                )
                done += len(files.graph)
        if groups.collect_listed_groups(trace):
            path = target / f"{name}.json"
            put(path, [groups.write(trace).encode()])
            written.append(path)
    return written


def _group_by_graph(trace: Trace) -> dict[int, list[Rank]]:
    """Return the ranks of each graph that has any."""
    by_graph: dict[int, list[Rank]] = {}
    for rank in trace.ranks:
        by_graph.setdefault(rank.graph, []).append(rank)
    return by_graph


def write_with_copies(
    trace: Trace, folder: Path | str, name: str, *, compress: bool = False, progress: Progress | None = None
) -> list[Path]:
    """Write one trace for each graph, the table of all other ranks, and the comm groups.

    All files are written aside and then renamed, so that an error leaves none of them.

    Args:
        trace: What to write.
        folder: Where to; made where it is not there.
        name: The files become `<name>.<rank>.et`, `<name>.copies.json` and `<name>.json`.
        compress: Whether to write `.et.gz`.
        progress: Told the nodes written.

    Returns:
        The files.

    Raises:
        TraceError: `name` cannot be part of a file name.
    """
    name = make_file_stem(name)
    target = Path(folder)
    first: dict[int, Rank] = {}
    rows: list[Copy] = []
    # Graphs are written from ranks that were recorded, as far as there are any.
    for rank in sorted(trace.ranks, key=lambda rank: (get_assumed_source(rank) is not None, rank.number)):
        like = first.setdefault(rank.graph, rank)
        if like is not rank:
            rows.append(Copy(rank.number, like.number, rank.slots, get_assumed_source(rank)))
    done, total = 0, sum(len(trace.graphs[graph]) for graph in first)
    contents: dict[Path, Iterable[bytes]] = {}
    for rank in first.values():
        path = target / f"{name}.{rank.number}.et{'.gz' if compress else ''}"
        contents[path] = iterate_rank_file(
            trace, rank, compress=compress, progress=progress, nodes=(done, total)
        )
        done += len(trace.graph_of(rank))
    if rows:
        contents[target / f"{name}.copies.json"] = [write_table(rows).encode()]
    if groups.collect_listed_groups(trace):
        contents[target / f"{name}.json"] = [groups.write(trace).encode()]
    with write_together() as put:
        for path, pieces in contents.items():
            put(path, pieces)
    return list(contents)


def make_file_stem(name: str) -> str:
    """Return a name that the files of a job can begin with.

    Raises:
        TraceError: It cannot be part of a file name.
    """
    if not _NAME.fullmatch(name):
        raise TraceError(
            f"{name!r} cannot be the name of a job's files.",
            hint="Use up to 200 letters, digits and signs, without slashes and not starting with a dot.",
        )
    return name


def iterate_rank_file(
    trace: Trace, rank: Rank, *, compress: bool, progress: Progress | None, nodes: tuple[int, int]
) -> Iterator[bytes]:
    """Yield the file of a rank in pieces.

    Args:
        trace: The job.
        rank: The rank.
        compress: Whether it is a `.et.gz`.
        progress: Told the nodes written.
        nodes: Nodes written before of other ranks, and of all ranks together.
    """
    files = encode.GraphFiles(trace.graph_of(rank), keep=False)
    return pack_pieces(_report_pieces(files, rank, progress, nodes), compress)


def _report_pieces(
    files: encode.GraphFiles, rank: Rank, progress: Progress | None, nodes: tuple[int, int]
) -> Iterator[bytes]:
    """Yield the file of a rank in pieces and report the nodes written so far."""
    before, total = nodes
    count = len(files.graph)
    for index, piece in enumerate(files.write(rank)):
        yield piece
        # The first piece is the metadata.
        if progress and (index or not count):
            progress("writing", before + min(index * encode.NODES_AT_ONCE, count), total)


@contextmanager
def write_together() -> Iterator[Callable[[Path, Iterable[bytes]], None]]:
    """Yield a function that writes files aside, into folders that it makes where they are not there.

    The files are renamed together at the end. After an error all are removed, and with them the folders that were made.
    Devices and pipes are written at once.
    """
    asides: dict[Path, Path] = {}
    made_folders: list[Path] = []
    whole = False

    def put(path: Path, pieces: Iterable[bytes]) -> None:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if path.exists() and not path.is_file():
            # A device or pipe takes what is written; a file in its place would break it for every program.
            with path.open("wb", buffering=0) as stream:
                for piece in pieces:
                    _write_whole(stream, piece, path)
            return
        made_folders.extend(_make_folder(path.parent))
        asides[path] = path.with_name(f".{secrets.token_hex(8)}.new")
        with asides[path].open("wb") as stream:
            stream.writelines(pieces)

    try:
        yield put
        for path, aside in asides.items():
            aside.replace(path)
        whole = True
    except OSError as error:
        if not is_full(error) or not asides:
            raise
        written = sum(aside.stat().st_size for aside in asides.values() if aside.exists())
        folder = next(iter(asides)).parent
        full = describe_full_disk(
            folder, needed=f"more than {format_bytes(written)}", removed_bytes=written, error=error
        )
        raise StudioError(
            f"Nothing was written: {full}.",
            hint="Free some space, or name a folder on another disk.",
        ) from error
    finally:
        for aside in asides.values():
            aside.unlink(missing_ok=True)
        for folder in [] if whole else reversed(made_folders):
            with suppress(OSError):  # somebody else has put something there
                folder.rmdir()


def _write_whole(stream: FileIO, piece: bytes, path: Path) -> None:
    """Write a piece into a device or pipe, which takes as much at once as it likes; errors name the path."""
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[stream.write(rest) or 0 :]
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _make_folder(path: Path) -> list[Path]:
    """Make a folder and those above it; returns the ones that were not there, the outermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


def pack_pieces(pieces: Iterable[bytes], compress: bool) -> Iterator[bytes]:
    """Yield pieces of a file as they are, or as a gzip stream."""
    return compress_pieces(pieces) if compress else iter(pieces)


def compress_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a gzip stream, which bears no time: equal contents give equal files."""
    packer = zlib.compressobj(wbits=31)
    yield from map(packer.compress, pieces)
    yield packer.flush()
