"""Open files as the user gives them: walk folders, unpack archives, decompress gzip."""

from __future__ import annotations

import codecs
import io
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from zlib_ng import zlib_ng

from studio.errors import TraceError, TraceFormatError
from studio.et import archive
from studio.et.collector import pause_collector
from studio.et.format import HEAD_BYTES
from studio.et.packed import DamagedGzipError, Inflater
from studio.et.reading_meter import Progress
from studio.files import (
    SpecialFileError,
    describe_bad_path,
    open_file,
    open_handle,
    read_start,
    read_start_and_size,
    suggest_remedy,
)
from studio.trace import Finding
from studio.units import format_counted

_GZIP = b"\x1f\x8b"
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LEAST_TEXT = 8
"""Characters that have to look like text behind a byte order mark."""
_LEAST_GZIP = 18
"""Bytes of the shortest gzip stream."""
_LONGEST_INFLATED = 64 << 30
_MAPPED_FROM = 256 << 10
_RATIO, _RATIO_FROM = 250, 256 << 20
_KEPT_BYTES = 64 << 20
"""So much of the starts of files is kept until they are read; files beyond it are opened again."""


@dataclass(slots=True)
class Start:
    """What was read of a file when it was opened first, so that it is not opened again for every question about it.

    Attributes:
        content: Its first bytes, `HEAD_BYTES` at most: all of a small file. Empty where they are not kept.
        sizes: Its bytes, as they are and about how many uncompressed, where `content` was all of it; else None.
    """

    content: bytes = b""
    sizes: tuple[int, int] | None = None

    @property
    def whole(self) -> bytes:
        """All of the file; empty where that is not kept, or there is nothing in it."""
        return self.content if self.sizes else b""

    def take(self) -> bytes:
        """Return all of the file, if that is kept, and keep nothing any more."""
        whole, self.content = self.whole, b""
        return whole


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a job.

    Attributes:
        name: Its name relative to what the user gave; untrusted text.
        place: Where it lies; a text where there may be thousands, of which a path each takes as long as opening them.
        named: Whether the user named this very file, rather than a folder or archive around it.
        problem: Why it cannot be opened at all, empty where it can.
        is_lost: Whether that is damage of an archive of which other files can be opened.
        start: What was read of it so far.
    """

    name: str
    place: Path | str
    named: bool = False
    problem: str = ""
    is_lost: bool = False
    start: Start = field(default_factory=Start, compare=False, repr=False)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return Path(self.place)


@contextmanager
def open_sources(paths: Sequence[Path | str], progress: Progress | None = None) -> Iterator[list[SourceFile]]:
    """Yield the files behind `paths`; members of archives exist only inside the `with`.

    Args:
        paths: Files, folders or archives.
        progress: Told how many of very many files were looked at; may raise to stop.

    Raises:
        TraceError: A path does not exist, or no path can be called so.
        TraceFormatError: An archive is refused.
    """
    with tempfile.TemporaryDirectory(prefix="chakra-studio-") as scratch:
        files: list[SourceFile] = []
        for name, path in label_paths([_check_path(given) for given in paths]):
            # Not is_dir() of the path, which raises where a name is too long.
            sources = walk(path, name) if os.path.isdir(path) else [_check_named(path, name)]  # noqa: PTH112
            if not sources:
                raise TraceFormatError(
                    f"{path}: the folder is empty.", hint="Expected files such as job.0.et, job.1.et, …"
                )
            files += sources
        yield unpack_archives(report_looking(files, "opening", progress), Path(scratch))


_REPORTED_FROM, _REPORTED_EVERY = 5_000, 256
"""From so many files on how many were looked at is reported, and after how many each time."""


def report_looking(
    files: Sequence[SourceFile], phase: str, progress: Progress | None
) -> Iterable[SourceFile]:
    """Yield files, and report how many were taken where they are very many, as below the root of a disk.

    Args:
        files: The files.
        phase: What is done with them.
        progress: Told how many were taken; may raise to stop.
    """
    if progress is None or len(files) < _REPORTED_FROM:
        yield from files
        return
    for index, file in enumerate(files):
        if index % _REPORTED_EVERY == 0:
            progress(phase, index, len(files))
        yield file
    progress(phase, len(files), len(files))


def _check_path(given: Path | str) -> Path:
    """Return what was given as a path.

    Raises:
        TraceError: None can be called so.
    """
    if bad := describe_bad_path(os.fspath(given)):
        raise TraceError(bad[0], hint=bad[1])
    return Path(given)


def label_paths(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return each path once with a short name: its last part, or as much as makes it unique."""
    # Not resolve(): a link is called what the user calls it.
    whole = {Path(os.path.abspath(path)): path for path in paths}  # noqa: PTH100
    names = [path.name or "traces" for path in whole]
    if len(set(names)) < len(names):
        common = os.path.commonpath([path.parent for path in whole])
        names = [path.relative_to(common).as_posix() for path in whole]
    return list(zip(names, whole.values(), strict=True))


@pause_collector()
def unpack_archives(files: Iterable[SourceFile], scratch: Path) -> list[SourceFile]:
    """Return `files` with every archive replaced by its members, unpacked below `scratch`."""
    result: list[SourceFile] = []
    kept_room, room = _KEPT_BYTES, archive.Room()
    refusal: TraceFormatError | OSError | None = None
    for index, file in enumerate(files):
        if file.problem:
            result.append(file)
            continue
        try:
            _look_at(file)
        except OSError as error:
            # The other files may be a whole job.
            refusal = error
            result.append(replace(file, problem=f"cannot be read: {error.strerror or error}"))
            continue
        kept = len(file.start.content)
        if not archive.is_archive(file.place, file.start.content):
            if kept > kept_room:
                file.start.take()
            else:
                kept_room -= kept
            result.append(file)
            continue
        file.start.take()
        target = scratch / str(index)
        target.mkdir(parents=True)
        try:
            members = archive.unpack(file.path, target, name=file.name, room=room)
        except TraceFormatError as error:
            # The other files may be a whole job.
            refusal = error
            result.append(refuse_archive(file, error))
            continue
        result += name_members(file.name, members)
    if refusal and len(result) == 1:
        raise refusal
    return result


def refuse_archive(file: SourceFile, error: TraceFormatError) -> SourceFile:
    """Return an archive of which nothing could be unpacked, with the reason."""
    return replace(file, problem=error.message.removeprefix(f"{file.name}:").strip().rstrip("."))


def name_members(name: str, members: Sequence[archive.Unpacked]) -> list[SourceFile]:
    """Return what came out of an archive, and what did not, as files; `name` is that of the archive."""
    return [
        SourceFile(
            archive.join_name(name, member.name), member.path, problem=member.problem, is_lost=member.is_lost
        )
        for member in members
    ]


def _check_named(path: Path, name: str) -> SourceFile:
    """Return a file that the user named, once it has shown itself to be one."""
    try:
        os.close(open_handle(path))
    except SpecialFileError as error:
        raise TraceFormatError(
            f"{path}: {error.strerror}.", hint="Copy its content into a file, and open that."
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TraceError(f"{path}: no such file or folder.", hint="Check the spelling.") from error
    except PermissionError:
        # Said where it is read, and the others are read without it.
        pass
    except OSError as error:
        raise TraceError(
            f"{str(path)[:200]}: {error.strerror or error}.", hint=suggest_remedy(error)
        ) from error
    return SourceFile(name, path, named=True)


@pause_collector()
def walk(folder: Path, name: str) -> list[SourceFile]:
    """Return the files below a folder by name, hidden ones left out; links to nothing have a problem."""
    # Not rglob: a path for each file and its comparison take longer than all else for ten thousands of files.
    files: list[SourceFile] = []
    waiting = [_list_entries(folder)]
    names = [name]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            names.pop()
        elif _is_folder(entry):
            names.append(f"{names[-1]}/{entry.name}")
            waiting.append(_list_entries(entry.path))
        elif _is_file(entry):
            # As a path would have it: of the folder "." there is nothing to name.
            files.append(SourceFile(f"{names[-1]}/{entry.name}", entry.path.removeprefix("./")))
        elif _is_link_to_nothing(entry):
            files.append(SourceFile(f"{names[-1]}/{entry.name}", entry.path, problem=_NOWHERE))
    return files


def _list_entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Return what is in a folder by name, hidden entries left out; nothing where it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return iter(())
    return iter(sorted(shown, key=lambda entry: entry.name))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, and no link to one, which may lead back to where it came from."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a plain file, or a link to one; mostly the folder says so, and the file is not asked."""
    try:
        return entry.is_file()
    except OSError:
        return False


_NOWHERE = "a link to a file that is not there"


def _is_link_to_nothing(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a link to nothing, or round in a circle."""
    try:
        return entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110 - a path for each takes long
    except OSError:
        return False


def _look_at(file: SourceFile) -> None:
    """Read the start of a file, all of a small one."""
    content, size = read_start_and_size(file.place, HEAD_BYTES)
    file.start.content = content
    file.start.sizes = (
        (size, _estimate_inflated_bytes(size, content[:2], content[-4:])) if size == len(content) else None
    )


def read_head(file: SourceFile, most: int = HEAD_BYTES) -> bytes:
    """Return the decompressed start of a file, `most` bytes of it, as far as it can be read; of broken gzip the raw start."""
    raw = file.start.whole or (file.start.content if most <= HEAD_BYTES else b"")
    raw = raw or read_start(file.place, most)
    start = b""
    # It ends within the stream, or before.
    with suppress(EOFError, DamagedGzipError):
        pieces = Inflater(io.BytesIO(raw), "gz").inflate(most) if raw.startswith(_GZIP) else iter(())
        while len(start) < most and (piece := next(pieces, b"")):
            start += piece
    start = _convert_to_utf8(start[:most] or raw)
    return start[_measure_mark(start) :]


def measure_file(file: SourceFile) -> tuple[int, int]:
    """Return how large a file is, and about how large uncompressed, from the end of its gzip stream."""
    if file.start.sizes:
        return file.start.sizes
    handle = open_handle(file.place)
    try:
        size = os.fstat(handle).st_size
        begin = os.read(handle, 2)
        if size < _LEAST_GZIP or begin != _GZIP:
            return size, size
        os.lseek(handle, -4, os.SEEK_END)
        return size, _estimate_inflated_bytes(size, begin, os.read(handle, 4))
    finally:
        os.close(handle)


def _estimate_inflated_bytes(size: int, begin: bytes, end: bytes) -> int:
    """Return about how large a file is uncompressed, by its first two bytes and the last four."""
    if size < _LEAST_GZIP or begin != _GZIP:
        return size
    return min(int.from_bytes(end, "little"), _RATIO * size)


def load(file: SourceFile) -> tuple[bytes | memoryview, tuple[Finding, ...]]:
    """Return the decompressed content of a file, and findings about reading it.

    Raises:
        TraceFormatError: The gzip stream is broken from the start or inflates beyond reason.
    """
    content, findings = _read_content(file)
    if bytes(content[:2]) in _WIDE_MARKS:
        content = _convert_to_utf8(bytes(content))
    marked = _measure_mark(bytes(content[: 2 * _LEAST_TEXT]))
    return content[marked:] if marked else content, findings


def _measure_mark(start: bytes) -> int:
    """Return the length of the byte order mark that some editors and shells write before text in UTF-8.

    Example:
        >>> [_measure_mark(codecs.BOM_UTF8 + text) for text in (b"{}", b"issue,sys->id", bytes(9))], _measure_mark(b"{}")
        ([3, 3, 0], 0)
    """
    mark = codecs.BOM_UTF8
    return len(mark) if start.startswith(mark) and _begins_text(start[len(mark) :].decode("latin-1")) else 0


def _begins_text(start: str) -> bool:
    """Whether this starts JSON, or lines of words: a file of something else may begin with the bytes of a mark."""
    first = start[:_LEAST_TEXT]
    return first.lstrip()[:1] in ("{", "[") or (
        first[:1].isalnum()
        and first.isascii()
        and all(sign.isprintable() or sign.isspace() for sign in first)
    )


def _convert_to_utf8(content: bytes) -> bytes:
    """Return text in UTF-16, as some shells write what a program prints, in UTF-8; anything else as it is.

    Example:
        >>> _convert_to_utf8('[{"é": 1}]'.encode("utf-16")).decode(), _convert_to_utf8("issue,sys".encode("utf-16")), _convert_to_utf8(b"[]")
        ('[{"é": 1}]', b'issue,sys', b'[]')
    """
    if content[:2] not in _WIDE_MARKS or not _begins_text(
        content[: 2 * _LEAST_TEXT].decode("utf-16", "replace")
    ):
        return content
    # Of a start that ends within a character all the others.
    return content.decode("utf-16", "ignore").encode("utf-8", "replace")


def mark_content(file: SourceFile, loaded: bytes | memoryview | None = None) -> str:
    """Return a fast checksum of a file as it lies there; it need not resist attacks.

    Args:
        file: The file.
        loaded: Its content, where it was loaded: if that is the file as it is, it is not read again.
    """
    # What is going to be read, whatever became of the file meanwhile.
    if whole := file.start.whole:
        return f"{len(whole)}.{zlib_ng.crc32(whole):08x}"
    size, checksum = 0, 0
    if (
        isinstance(loaded, memoryview)
        and isinstance(loaded.obj, mmap.mmap)
        and len(loaded) == len(loaded.obj)
    ):
        return f"{len(loaded)}.{zlib_ng.crc32(loaded):08x}"
    with open_file(file.path) as stream:
        while piece := stream.read(1 << 20):
            size, checksum = size + len(piece), zlib_ng.crc32(piece, checksum)
    return f"{size}.{checksum:08x}"


def _read_content(file: SourceFile) -> tuple[bytes | memoryview, tuple[Finding, ...]]:
    content = file.start.take() or read_start(file.place, _MAPPED_FROM)
    if len(content) < _MAPPED_FROM:
        # Reading a small file takes less than mapping it.
        return _inflate(io.BytesIO(content), file.name) if content.startswith(_GZIP) else (content, ())
    with open_file(file.path) as stream:
        if stream.read(2) == _GZIP:
            stream.seek(0)
            return _inflate(stream, file.name)
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)), ()


def _inflate(stream: BinaryIO, name: str) -> tuple[memoryview, tuple[Finding, ...]]:
    """Decompress gzip, also several members in a row; keep what comes before damage."""
    content, problem = bytearray(), ""
    inflater = Inflater(stream, "gz")
    try:
        for piece in inflater.inflate(1 << 24):
            content += piece
            _refuse_bomb(name, stream.tell(), len(content))
    except EOFError:
        problem = "ends early"
    except DamagedGzipError as error:
        problem = f"is damaged ({error})"
    whole = memoryview(content).toreadonly()
    if inflater.behind_bytes:
        message = f"{name}: {format_counted(inflater.behind_bytes, 'byte')} behind the gzip stream, ignored."
        return whole, (Finding("warning", "damaged-gzip", message, file=name, offset=len(content)),)
    if not problem:
        return whole, ()
    if not content:
        raise TraceFormatError(f"{name}: the gzip stream {problem}.", hint="Copy the file again.")
    message = f"{name}: the gzip stream {problem} after {len(content):,} inflated bytes."
    hint = "What comes before was read. Copy the file again."
    return whole, (Finding("error", "damaged-gzip", message, hint, file=name, offset=len(content)),)


def _refuse_bomb(name: str, compressed: int, inflated: int) -> None:
    if inflated > _LONGEST_INFLATED or (inflated > _RATIO_FROM and inflated > _RATIO * compressed):
        raise TraceFormatError(
            f"{name}: inflates to more than {inflated >> 20:,} MiB from {max(compressed >> 20, 1):,} MiB.",
            hint="This looks like a decompression bomb. If it is a real trace, decompress it first.",
        )
