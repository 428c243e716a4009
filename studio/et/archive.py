"""Unpack archives (zip, tar, tar.gz, tar.bz2, tar.xz) without trusting them.

Members are written under names made here (`000001`, `000002`, …) and carry the path they had in the archive as plain
data. So no name of an archive ever reaches the file system; names that try to are refused all the same, since an
archive that holds one was built to do harm or is damaged. The declared sizes are believed nowhere: limits are checked
while inflating.
"""

from __future__ import annotations

import bz2
import copy
import errno
import gzip
import lzma
import re
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import IO, Literal

from studio.errors import StudioError, TraceFormatError
from studio.files import PRIVATE_FOLDER, describe_full_disk, is_full, open_file, open_private, read_start
from studio.units import format_bytes

Kind = Literal["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"]

_PIECE_BYTES = 1 << 18
_BLOCK_BYTES = 512
_LONG_NAME_BYTES = 1 << 16
_NAME_AT_MOST = 4096
"""Characters of a path in an archive, as many as Linux takes for one."""
_SHOWN = 200
"""Characters of it that a message shows."""
_SUM = slice(148, 156)
"""Where a tar has the checksum of a member's header ..."""
_BASE_256 = (0o200, 0o377)
"""... which begins with one of these where it is written in base 256 ..."""
_OCTAL = b"01234567" + b" \t\n\v\f\r\x1c\x1d\x1e\x1f" + b"_+-oO"
"""... and else has only characters that Python takes for an octal number, up to the first zero byte."""
_PACKED: tuple[tuple[bytes, Kind], ...] = (
    (b"\x1f\x8b", "tar.gz"),
    (b"BZh", "tar.bz2"),
    (b"\xfd7zXZ\x00", "tar.xz"),
)
_XZ_MEMORY_BYTES = 256 << 20
# A directory entry of a zip is 46 bytes and a name; zipfile loads all of them at once, whatever the file claims.
_ZIP_DIRECTORY_BYTES_PER_MEMBER = 256
_ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}
_DRIVE = re.compile(r"[A-Za-z]:")
_LITTER = {".ds_store", "thumbs.db", "desktop.ini"}
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    gzip.BadGzipFile,
    struct.error,
    NotImplementedError,
    ValueError,
    OverflowError,
    RuntimeError,
)
_TAR_REFUSED = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an archive may unpack to.

    Attributes:
        members: Files and folders, nested archives included.
        total_bytes: Size of everything unpacked.
        ratio: Unpacked size over archive size, for zip and gzip.
        tight_ratio: The same for xz and bzip2, which pack equal ranks far tighter (256 equal ranks: 2200 to 1); xz
            never gets there, but bzip2 packs zeros 500,000 to 1.
        ratio_from_bytes: Unpacked size below which the ratio does not matter.
        spare_bytes: Disk space left free.
    """

    members: int = 100_000
    total_bytes: int = 64 << 30
    ratio: int = 200
    tight_ratio: int = 10_000
    ratio_from_bytes: int = 64 << 20
    spare_bytes: int = 512 << 20


DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class Unpacked:
    """One file that came out of an archive.

    Attributes:
        name: Its path in the archive, `/` between the parts; text to show, never a path to open.
        path: Where its bytes are.
        size_bytes: How many they are.
        problem: Why it is an archive that was not unpacked, empty for every other file.
    """

    name: str
    path: Path
    size_bytes: int
    problem: str = ""


@dataclass(slots=True)
class _Work:
    """What one call of `unpack` has used of its limits so far."""

    into: Path
    limits: Limits
    cancelled: Callable[[], bool]
    written: list[Path] = field(default_factory=list)
    members: int = 0
    total_bytes: int = 0
    declared_bytes: int = 0
    free_bytes: int = 0


@dataclass(slots=True)
class _Source:
    """One archive being read, its name for messages and the names it used."""

    name: str
    size_bytes: int
    ratio: int
    out_bytes: int = 0
    seen: dict[str, str] = field(default_factory=dict)


class _SharedLimitError(TraceFormatError):
    """What an archive and those in it may hold together is reached: one of them cannot be left out for that."""


class UnpackCancelled(Exception):  # noqa: N818 (a wish fulfilled is no error)
    """Raised when the caller's `cancelled` returns true; nothing is left on disk."""


def is_litter(path: str) -> bool:
    """Tell the files that file managers leave in folders and archives from the user's own.

    Example:
        >>> is_litter("__MACOSX/job/._rank.0.et"), is_litter("job/rank.0.et")
        (True, False)
    """
    parts = path.split("/")
    return "__MACOSX" in parts[:-1] or parts[-1].lower() in _LITTER or parts[-1].startswith("._")


def is_archive(path: Path | str, start: bytes | None = None) -> bool:
    """Tell whether `unpack` would take this file for an archive.

    Args:
        path: The file.
        start: Its first bytes where they were read before, 512 or all that there are.
    """
    return infer_kind(path, start) is not None


def infer_kind(path: Path | str, start: bytes | None = None) -> Kind | None:
    """Recognise an archive by its first bytes; None for every other file, a compressed single trace included."""
    head = read_start(path, _BLOCK_BYTES) if start is None else start
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"):
        return "zip"
    if _is_tar(head):
        return "tar"
    for magic, kind in _PACKED:
        if head.startswith(magic) and _is_tar(_read_first_block(path, kind)):
            return kind
    return None


def unpack(
    path: Path,
    into: Path,
    *,
    name: str = "",
    limits: Limits = DEFAULT,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Unpacked]:
    """Unpack an archive, and the archives directly inside it, into a folder.

    Memory stays flat. When anything fails, the files written so far are removed again. An inner archive that is refused is
    left as it is where the outer one holds other files.

    Args:
        path: The archive.
        into: Folder for the files; made where missing.
        name: What messages call the archive; by default its file name.
        limits: How much may come out.
        cancelled: Asked between pieces.

    Returns:
        The files in archive order, without folders and without what file managers leave behind.

    Raises:
        TraceFormatError: No archive, damaged, encrypted, over a limit, or a member that must not be unpacked.
        StudioError: The disk is full.
        UnpackCancelled: `cancelled` said so.
    """
    is_new = not into.exists()
    into.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    work = _Work(into, limits, cancelled)
    try:
        files = _unpack_one(work, path, name or path.name, depth=0)
        if not files:
            raise TraceFormatError(
                f"{name or path.name}: the archive holds no file.", hint="Pack the trace files into it."
            )
    except BaseException as error:
        for file in work.written:
            file.unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):
                into.rmdir()
        if isinstance(error, OSError) and is_full(error):
            raise _build_disk_error(work, name or path.name, error) from error
        raise
    return files


def _unpack_one(work: _Work, path: Path, name: str, *, depth: int) -> list[Unpacked]:
    kind = infer_kind(path)
    if kind is None:
        raise TraceFormatError(
            f"{name} is not an archive.", hint="zip, tar, tar.gz, tar.bz2 and tar.xz are unpacked."
        )
    ratio = work.limits.tight_ratio if kind in ("tar.bz2", "tar.xz") else work.limits.ratio
    source = _Source(name, max(path.stat().st_size, 1), ratio)
    try:
        if kind == "zip":
            members = _unpack_zip(work, source, path)
        else:
            members = _unpack_tar(work, source, path, kind)
    except (*_DAMAGE, OSError) as error:
        # bz2 tells damage by an OSError without number; zipfile seeks to where a damaged directory points (EINVAL).
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise TraceFormatError(
            f"{name}: the {kind} archive is damaged: {str(error) or type(error).__name__}.",
            hint="Copy or download it again; a transfer may have been cut short.",
        ) from error
    files: list[Unpacked] = []
    for file in members:
        if not infer_kind(file.path):
            files.append(file)
            continue
        inner = f"{name}/{file.name}"
        written = len(work.written)
        try:
            files += _unpack_nested(work, file, inner, depth)
        except TraceFormatError as error:
            if depth or len(members) == 1 or isinstance(error, _SharedLimitError):
                raise
            # The other members may be a whole job.
            for half in work.written[written:]:
                half.unlink(missing_ok=True)
            files.append(replace(file, problem=error.message.removeprefix(f"{inner}:").strip().rstrip(".")))
    return files


def _unpack_nested(work: _Work, file: Unpacked, name: str, depth: int) -> list[Unpacked]:
    if depth:
        raise TraceFormatError(
            f"{name} is an archive in an archive in an archive; one level is unpacked.",
            hint="Unpack the outer archive first and open what is inside.",
        )
    inner = _unpack_one(work, file.path, name, depth=1)
    file.path.unlink()
    return [Unpacked(f"{file.name}/{member.name}", member.path, member.size_bytes) for member in inner]


class _BoundedFile(BufferedReader):
    """A zip file whose directory is read up to a limit; zipfile would read all of it at once."""

    def __init__(self, path: Path, bound_bytes: int) -> None:
        super().__init__(open_file(path).detach())
        self.bound_bytes = bound_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self.bound_bytes:
            raise ValueError(f"its directory claims {size:,} bytes, at most {self.bound_bytes:,} are read")
        return super().read(size)


def _unpack_zip(work: _Work, source: _Source, path: Path) -> list[Unpacked]:
    bound_bytes = max(1 << 20, work.limits.members * _ZIP_DIRECTORY_BYTES_PER_MEMBER)
    files: list[Unpacked] = []
    with _BoundedFile(path, bound_bytes) as raw, zipfile.ZipFile(raw) as archive:
        work.declared_bytes += sum(info.file_size for info in archive.infolist())
        for info in archive.infolist():
            # orig_filename: zipfile cuts `filename` at a NUL and may swap separators, and so hides both tricks.
            shown = _admit(work, source, info.orig_filename)
            if shown is None or info.is_dir():
                continue
            _check_zip_member(source, info)
            files.append(_store(work, source, shown, iterate_member_pieces(archive, info)))
    return files


def _check_zip_member(source: _Source, info: zipfile.ZipInfo) -> None:
    place = f"{source.name}: member {info.filename!r}"
    if info.flag_bits & 0x1:
        raise TraceFormatError(f"{place} is encrypted.", hint="Pack the archive again without a password.")
    if info.compress_type not in _ZIP_METHODS:
        method = zipfile.compressor_names.get(info.compress_type, "unknown")  # type: ignore[attr-defined]
        raise TraceFormatError(
            f"{place} is packed with method {info.compress_type} ({method}); stored, deflate and bzip2 are read.",
            hint="Pack the archive again with the default method (deflate).",
        )
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "not a plain file"
        raise _refuse_member(source, info.filename, what)


def iterate_member_pieces(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the content of a file in a zip, never more than a piece at once.

    Raises:
        NotImplementedError: It is packed with a method that is not read.
        zipfile.BadZipFile: Its checksum does not match.
    """
    if info.compress_type not in _ZIP_METHODS:
        raise NotImplementedError(f"method {info.compress_type} is not read")
    if info.compress_type != zipfile.ZIP_BZIP2:
        with zipped.open(info) as stream:
            yield from _iterate_pieces(stream)
        return
    # zipfile hands bzip2 all packed bytes it has buffered and takes what comes out: from 4 KiB, gigabytes.
    packed = copy.copy(info)
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, info.compress_size
    del packed.CRC  # of what comes out
    checksum = 0
    with zipped.open(packed) as stream:
        for piece in _inflate(stream, bz2.BZ2Decompressor):
            checksum = zlib.crc32(piece, checksum)
            yield piece
    if checksum != info.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {info.filename!r}")


def _iterate_pieces(stream: IO[bytes] | gzip.GzipFile | bz2.BZ2File) -> Iterator[bytes]:
    while piece := stream.read(_PIECE_BYTES):
        yield piece


@dataclass(slots=True)
class _TarStream:
    """The decompressed bytes of a tar, read forward only and counted against the limits."""

    work: _Work
    source: _Source
    pieces: Iterator[bytes]
    buffer: bytes = b""

    def take(self, most: int) -> bytes:
        """Return between one and `most` bytes; none at the end."""
        if not self.buffer:
            self.buffer = next(self.pieces, b"")
            _charge(self.work, self.source, len(self.buffer))
        given, self.buffer = self.buffer[:most], self.buffer[most:]
        return given

    def body(self, size_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of one member, then skip its padding."""
        left = size_bytes
        while left:
            piece = self.take(min(left, _PIECE_BYTES))
            if not piece:
                raise EOFError(f"it ends {left:,} bytes before the end of a member")
            left -= len(piece)
            yield piece
        padding = -size_bytes % _BLOCK_BYTES
        while padding and (piece := self.take(padding)):
            padding -= len(piece)

    def block(self) -> bytes:
        """Return the next header block, shorter only at the end."""
        block = self.take(_BLOCK_BYTES)
        while block and len(block) < _BLOCK_BYTES and (more := self.take(_BLOCK_BYTES - len(block))):
            block += more
        return block


def _unpack_tar(work: _Work, source: _Source, path: Path, kind: Kind) -> list[Unpacked]:
    # Not tarfile's own reader: it loads long names and extended headers whole, so a small archive can fill the memory.
    files: list[Unpacked] = []
    extra: dict[str, str] = {}
    with open_file(path) as raw:
        stream = _TarStream(work, source, _decompress(raw, kind))
        while len(block := stream.block()) == _BLOCK_BYTES and block.strip(b"\0"):
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            if info.type in (
                tarfile.GNUTYPE_LONGNAME,
                tarfile.GNUTYPE_LONGLINK,
                tarfile.XHDTYPE,
                tarfile.XGLTYPE,
            ):
                extra |= _parse_tar_extra(info, _read_small_body(stream, info))
                continue
            file = _unpack_tar_member(stream, info, extra)
            files += [file] if file else []
            extra = {}
        if 0 < len(block) < _BLOCK_BYTES:
            raise EOFError("it ends within a header")
    return files


def _unpack_tar_member(stream: _TarStream, info: tarfile.TarInfo, extra: dict[str, str]) -> Unpacked | None:
    member = extra.get("path", info.name)
    size_bytes = int(extra.get("size", info.size))
    if size_bytes < 0:
        raise ValueError(f"a member has the size {size_bytes}")
    sparse = any(key.startswith("GNU.sparse") for key in extra)
    if info.type in _TAR_REFUSED or sparse:
        raise _refuse_member(stream.source, member, "a sparse file" if sparse else _TAR_REFUSED[info.type])
    shown = _admit(stream.work, stream.source, member)
    is_file = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE) and not member.endswith("/")
    if not is_file and info.type not in (tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.AREGTYPE):
        raise _refuse_member(stream.source, member, f"of the unknown kind {info.type!r}")
    body = stream.body(0 if info.type == tarfile.DIRTYPE else size_bytes)
    if shown is not None and is_file:
        return _store(stream.work, stream.source, shown, body, charge=False)
    for _ in body:
        pass
    return None


def _read_small_body(stream: _TarStream, info: tarfile.TarInfo) -> bytes:
    if not 0 <= info.size <= _LONG_NAME_BYTES:
        raise ValueError(
            f"a name or extended header claims {info.size:,} bytes, at most {_LONG_NAME_BYTES:,} are read"
        )
    return b"".join(stream.body(info.size))


def _parse_tar_extra(info: tarfile.TarInfo, body: bytes) -> dict[str, str]:
    """Name and size that a GNU long name or a pax header gives the member after it."""
    if info.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": body.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    if info.type != tarfile.XHDTYPE:
        return {}
    extra: dict[str, str] = {}
    while body.strip(b"\0"):
        length, _, _ = body.partition(b" ")
        end = int(length)
        if not len(length) < end <= len(body):
            raise ValueError("an extended header has a record of a wrong length")
        key, _, value = body[len(length) + 1 : end].rstrip(b"\n").partition(b"=")
        extra[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        body = body[end:]
    return extra


def _decompress(raw: IO[bytes], kind: Kind) -> Iterator[bytes]:
    if kind == "tar":
        return _iterate_pieces(raw)
    if kind == "tar.gz":
        return _iterate_pieces(gzip.GzipFile(fileobj=raw))
    if kind == "tar.bz2":
        return _iterate_pieces(bz2.BZ2File(raw))
    return _inflate_xz(raw)


def _inflate_xz(raw: IO[bytes]) -> Iterator[bytes]:
    # lzma.LZMAFile takes no memory limit, and a few bytes of header can ask for 4 GiB.
    return _inflate(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES))


def _inflate(
    raw: IO[bytes], new_decoder: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor]
) -> Iterator[bytes]:
    """Yield what compressed streams, one after another, inflate to; never more than a piece at once."""
    decoder = new_decoder()
    packed = b""
    while True:
        if decoder.eof:
            packed = (decoder.unused_data or raw.read(_PIECE_BYTES)).lstrip(b"\0")
            if not packed:
                return
            decoder = new_decoder()
        elif decoder.needs_input:
            packed = raw.read(_PIECE_BYTES)
            if not packed:
                raise EOFError("it ends within the compressed data")
        if piece := decoder.decompress(packed, _PIECE_BYTES):
            yield piece
        packed = b""


def _read_first_block(path: Path | str, kind: Kind) -> bytes:
    try:
        with open_file(Path(path)) as raw:
            # Of a stream that is cut soon no whole piece can be had.
            if kind == "tar.gz":
                return gzip.GzipFile(fileobj=raw).read(_BLOCK_BYTES)
            if kind == "tar.bz2":
                return bz2.BZ2File(raw).read(_BLOCK_BYTES)
            return next(_decompress(raw, kind), b"")[:_BLOCK_BYTES]
    except (*_DAMAGE, OSError):
        return b""


def _is_tar(block: bytes) -> bool:
    if len(block) < _BLOCK_BYTES or not _may_have_sum(block) or not block[:_BLOCK_BYTES].strip(b"\0"):
        return False
    try:
        tarfile.TarInfo.frombuf(block[:_BLOCK_BYTES], "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


def _may_have_sum(block: bytes) -> bool:
    """Whether a block has a number where a tar has its checksum, as hardly any other file does: `tarfile` takes far longer to say so."""
    field = block[_SUM]
    return field[0] in _BASE_256 or not field.partition(b"\0")[0].translate(None, _OCTAL)


def _admit(work: _Work, source: _Source, member: str) -> str | None:
    """Count a member and return the path to show for it; None for a folder's own entry or litter.

    Raises:
        TraceFormatError: The path leads out of the archive's folder, came before, or is one too many.
    """
    work.members += 1
    if work.members > work.limits.members:
        raise _SharedLimitError(
            f"{source.name} holds more than {work.limits.members:,} members.",
            hint="Pack fewer files into one archive, or open the unpacked folder.",
        )
    if len(member) > _NAME_AT_MOST:
        raise _refuse_member(
            source, member, f"named by {len(member):,} characters, at most {_NAME_AT_MOST:,} are read"
        )
    shown = _check_path(source, member)
    if not shown or member.endswith(("/", "\\")):
        return None
    key = unicodedata.normalize("NFC", shown).casefold()
    if key in source.seen:
        raise TraceFormatError(
            f"{source.name} holds {source.seen[key]!r} and {shown!r}: the same file on some systems.",
            hint="Rename one of them and pack the archive again.",
        )
    source.seen[key] = shown
    return None if is_litter(shown) else shown


def _check_path(source: _Source, member: str) -> str:
    # Archives written on Windows may have backslashes between folders; taken as that, they hide nothing.
    path = member.replace("\\", "/")
    if "\0" in path:
        raise _refuse_member(source, member, "named with a NUL character")
    if path.startswith("/") or _DRIVE.match(path):
        raise _refuse_member(source, member, "an absolute path")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refuse_member(source, member, "a path that leads out of the archive (..)")
    return "/".join(parts).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _refuse_member(source: _Source, member: str, what: str) -> TraceFormatError:
    return TraceFormatError(
        f"{source.name}: member {member[:_SHOWN]!r} is {what}; nothing of the archive was unpacked.",
        hint="Only plain files in folders of the archive are unpacked. Open the trace files themselves.",
    )


def _store(
    work: _Work, source: _Source, shown: str, pieces: Iterator[bytes], *, charge: bool = True
) -> Unpacked:
    disk = work.into / f"{len(work.written) + 1:06d}"
    size_bytes = 0
    with open_private(disk, "xb") as file:
        work.written.append(disk)
        for piece in pieces:
            if charge:
                _charge(work, source, len(piece))
            size_bytes += file.write(piece)
    return Unpacked(shown, disk, size_bytes)


def _charge(work: _Work, source: _Source, count: int) -> None:
    """Count decompressed bytes; raise at the first limit they exceed."""
    if work.cancelled():
        raise UnpackCancelled
    work.total_bytes += count
    source.out_bytes += count
    limits = work.limits
    if work.total_bytes > limits.total_bytes:
        raise _SharedLimitError(
            f"{source.name} unpacks to more than {limits.total_bytes:,} bytes.",
            hint="Open fewer ranks at once, or unpack it yourself and open the folder.",
        )
    if source.out_bytes > max(limits.ratio_from_bytes, source.ratio * source.size_bytes):
        raise TraceFormatError(
            f"{source.name} unpacks to more than {source.ratio:,} times its size ({source.size_bytes:,} bytes); "
            "archives built to fill a disk do that.",
            hint="If the archive is yours, unpack it yourself and open the folder.",
        )
    work.free_bytes -= count
    if work.free_bytes < limits.spare_bytes:
        work.free_bytes = shutil.disk_usage(work.into).free - count
        if work.free_bytes < limits.spare_bytes:
            raise _build_disk_error(work, source.name)


def _build_disk_error(work: _Work, name: str, error: OSError | None = None) -> StudioError:
    # Only a zip says how much will come out, and may lie: what has come out is the least.
    needed_bytes = max(min(work.declared_bytes, work.limits.total_bytes), work.total_bytes)
    full = describe_full_disk(
        work.into,
        needed=f"at least {format_bytes(needed_bytes + work.limits.spare_bytes)}",
        removed_bytes=work.total_bytes,
        error=error,
    )
    return StudioError(
        f"{name}: {full}.",
        hint="Free some space, or use another disk: the environment variable TMPDIR names it for commands, "
        "--workspace DIR for the studio.",
    )
