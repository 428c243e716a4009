"""Unpack archives (zip, tar, tar.gz, tar.bz2, tar.xz) without trusting them.

Members are written under names made here (`000001`, `000002`, …) and carry the path they had in the archive as plain
data. So no name of an archive ever reaches the file system; members whose names try to are left out all the same. The
declared sizes are believed nowhere: limits are checked while inflating.

One bad member loses no other: what cannot be had of an archive, be it that a member is no plain file or that the archive is cut
off, is listed with the reason beside what came out of it.
"""

from __future__ import annotations

import copy
import errno
import lzma
import re
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import IO, Literal

from studio.errors import StudioError, TraceFormatError
from studio.et.packed import MAGIC, PIECE_BYTES, DamagedGzipError, Inflater, Packing
from studio.et.tar import BLOCK_BYTES, Gap, Member, TarReader, is_tar
from studio.files import PRIVATE_FOLDER, describe_full_disk, is_full, open_file, open_private, read_start
from studio.units import format_bytes, format_counted

Kind = Literal["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"]

_NAME_AT_MOST = 4096
"""Characters of a path in an archive, as many as Linux takes for one."""
_SHOWN = 200
"""Characters of it that a message shows."""
_TARS: dict[Kind, Packing] = {"tar.gz": "gz", "tar.bz2": "bz2", "tar.xz": "xz"}
# A directory entry of a zip is 46 bytes and a name; zipfile loads all of them at once, whatever the file claims.
_ZIP_DIRECTORY_BYTES_PER_MEMBER = 256
_ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}
_COPY_AGAIN = "Copy or download it again; a transfer may have been cut short."
_UNPACK_YOURSELF = "If the archive is yours, unpack it yourself and open the folder."
_NAME_THE_FOLDER = "Open the folder or the archive of the traces itself."
_DRIVE = re.compile(r"[A-Za-z]:")
_LITTER = {".ds_store", "thumbs.db", "desktop.ini"}
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    DamagedGzipError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    struct.error,
    NotImplementedError,
    ValueError,
    OverflowError,
    RuntimeError,
)
_DAMAGE_AND_SYSTEM = (*_DAMAGE, OSError)


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


@dataclass(slots=True)
class Room:
    """What archives that are opened at once may still hold together; each takes of it what came out of it.

    Attributes:
        members: Files and folders.
        total_bytes: Size of everything unpacked.
        is_full: Whether one did not fit any more: no other is begun then, since it would be unpacked in vain.
    """

    members: int = DEFAULT.members
    total_bytes: int = DEFAULT.total_bytes
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Unpacked:
    """One file that came out of an archive, or one that did not.

    Attributes:
        name: Its path in the archive, `/` between the parts; text to show, never a path to open. Empty for what is no member.
        path: Where its bytes are; of what did not come out there is nothing, but for an archive that was not unpacked.
        size_bytes: How many they are.
        problem: Why it did not come out, or was not unpacked; empty for every file that can be read.
        is_lost: Whether damage is why.
    """

    name: str
    path: Path
    size_bytes: int
    problem: str = ""
    is_lost: bool = False


@dataclass(slots=True)
class _Work:
    """What one call of `unpack` has used of its limits so far."""

    into: Path
    limits: Limits
    room: Room
    cancelled: Callable[[], bool]
    written: dict[Path, None] = field(default_factory=dict)
    named: int = 0
    members: int = 0
    total_bytes: int = 0
    declared_bytes: int = 0
    free_bytes: int = 0


@dataclass(slots=True)
class _Source:
    """One archive being read, its name for messages, and why the first of its members was refused."""

    name: str
    size_bytes: int
    most_bytes: int
    ratio: int
    out_bytes: int = 0
    refusal: TraceFormatError | None = None


class _SharedLimitError(TraceFormatError):
    """What an archive and those in it may hold together is reached: one of them cannot be left out for that."""


class _RatioError(TraceFormatError):
    """An archive unpacks to far more than it is."""


class _MemberRefusedError(Exception):
    """A member that is left out: what it is, and what to do about it."""

    def __init__(
        self, what: str, hint: str = "Only plain files are unpacked. Open the trace files themselves."
    ) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


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
    head = read_start(path, BLOCK_BYTES) if start is None else start
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"):
        return "zip"
    if is_tar(head):
        return "tar"
    for kind, packing in _TARS.items():
        if head.startswith(MAGIC[packing]) and is_tar(_read_first_block(path, packing)):
            return kind
    return None


def join_name(archive: str, member: str) -> str:
    """Return what to call a member of an archive, beside other files; that of no member is the archive.

    Example:
        >>> join_name("job.tar", "rank.0.et"), join_name("job.tar", "")
        ('job.tar/rank.0.et', 'job.tar')
    """
    return f"{archive}/{member}" if member else archive


def unpack(
    path: Path,
    into: Path,
    *,
    name: str = "",
    limits: Limits = DEFAULT,
    room: Room | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Unpacked]:
    """Unpack an archive, and the archives directly inside it, into a folder.

    Memory stays flat. What cannot be had of it is listed with the reason, where something else can; else nothing is left.

    Args:
        path: The archive.
        into: Folder for the files; made where missing.
        name: What messages call the archive; by default its file name.
        limits: How much may come out.
        room: How much may come out of all archives that are opened at once.
        cancelled: Asked between pieces.

    Returns:
        The files in archive order, without folders and without what file managers leave behind.

    Raises:
        TraceFormatError: No archive, over a limit, or nothing in it can be unpacked.
        StudioError: The disk is full.
        UnpackCancelled: `cancelled` said so.
    """
    shown = name or path.name
    room = room or Room(limits.members, limits.total_bytes)
    if room.is_full:
        raise TraceFormatError(
            f"{shown}: not unpacked, as the archives before it are as much as is opened at once.",
            hint=_NAME_THE_FOLDER,
        )
    is_new = not into.exists()
    into.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    work = _Work(into, limits, room, cancelled)
    try:
        files = _unpack_one(work, path, shown, depth=0)
    except BaseException as error:
        for file in work.written:
            file.unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):
                into.rmdir()
        if isinstance(error, OSError) and is_full(error):
            raise _build_disk_error(work, shown, error) from error
        raise
    room.members -= work.members
    room.total_bytes -= work.total_bytes
    return files


def _unpack_one(work: _Work, path: Path, name: str, *, depth: int) -> list[Unpacked]:
    kind = infer_kind(path)
    if kind is None:
        raise TraceFormatError(
            f"{name} is not an archive.", hint="zip, tar, tar.gz, tar.bz2 and tar.xz are unpacked."
        )
    ratio = work.limits.tight_ratio if kind in ("tar.bz2", "tar.xz") else work.limits.ratio
    size_bytes = max(path.stat().st_size, 1)
    source = _Source(name, size_bytes, max(work.limits.ratio_from_bytes, ratio * size_bytes), ratio)
    try:
        members = _unpack_zip(work, source, path) if kind == "zip" else _unpack_tar(work, source, path, kind)
    except _DAMAGE_AND_SYSTEM as error:
        if not _is_damage(error):
            raise
        raise TraceFormatError(
            f"{name}: the {kind} archive is damaged: {_explain(error)}.",
            hint=_COPY_AGAIN,
        ) from error
    files: list[Unpacked] = []
    for file in _drop_doubles(work, members):
        if file.problem or not infer_kind(file.path):
            files.append(file)
        else:
            files += _unpack_nested(work, source, file, depth)
    if all(file.problem for file in files):
        raise source.refusal or TraceFormatError(
            f"{name}: the archive holds no file.", hint="Pack the trace files into it."
        )
    return files


def _drop_doubles(work: _Work, files: list[Unpacked]) -> list[Unpacked]:
    """Leave out members of a name that comes again, as whoever unpacks them in order has the last of them in the end."""
    last = {file.name: place for place, file in enumerate(files) if not file.problem}
    kept = []
    for place, file in enumerate(files):
        if file.problem or last[file.name] == place:
            kept.append(file)
            continue
        _remove(work, file.path)
        kept.append(
            replace(file, problem="an earlier member of this name, which comes again and then counts")
        )
    return kept


def _unpack_nested(work: _Work, source: _Source, file: Unpacked, depth: int) -> list[Unpacked]:
    """Return what is in an archive in an archive, or that archive where nothing of it can be had."""
    name = f"{source.name}/{file.name}"
    written = len(work.written)
    try:
        if depth:
            raise TraceFormatError(
                f"{name}: an archive in an archive in an archive; one level is unpacked.",
                hint="Unpack the outer archive first and open what is inside.",
            )
        inner = _unpack_one(work, file.path, name, depth=1)
    except _SharedLimitError:
        raise
    except TraceFormatError as error:
        # The other members may be a whole job.
        for half in list(work.written)[written:]:
            half.unlink(missing_ok=True)
        source.refusal = source.refusal or error
        return [replace(file, problem=error.message.removeprefix(f"{name}:").strip().rstrip("."))]
    _remove(work, file.path)
    return [replace(member, name=join_name(file.name, member.name)) for member in inner]


def _remove(work: _Work, path: Path) -> None:
    path.unlink(missing_ok=True)
    del work.written[path]


def _is_damage(error: BaseException) -> bool:
    """Whether an error tells that an archive is damaged, rather than what the system could not do."""
    # bz2 tells damage by an OSError without number; zipfile seeks to where a damaged directory points (EINVAL).
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL)


def _leave_out(
    work: _Work, source: _Source, member: str, what: str, hint: str = "", *, is_lost: bool = False
) -> Unpacked:
    """Return what stands for a member, or for what is none ("",), that is left out."""
    shown = _show(member)
    place = f"{source.name}: member {shown!r} is " if member else f"{source.name}: "
    source.refusal = source.refusal or TraceFormatError(f"{place}{what}.", hint=hint or _COPY_AGAIN)
    return Unpacked(shown, _make_place(work), 0, what, is_lost)


def _show(member: str) -> str:
    """Return the path of a member as text, bytes that are none as escapes; very long ones are cut."""
    text = member.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text if len(text) <= _NAME_AT_MOST else f"{text[:_SHOWN]}…"


def _make_place(work: _Work) -> Path:
    """Return a path that no other member has."""
    work.named += 1
    return work.into / f"{work.named:06d}"


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
    with _BoundedFile(path, bound_bytes) as raw, _open_zip(source, raw) as archive:
        work.declared_bytes += sum(info.file_size for info in archive.infolist())
        for info in archive.infolist():
            # orig_filename: zipfile cuts `filename` at a NUL and may swap separators, and so hides both tricks.
            try:
                shown = _admit(work, source, info.orig_filename)
                if shown is None or info.is_dir():
                    continue
                _check_zip_member(source, info)
                files.append(_store(work, source, shown, iterate_member_pieces(archive, info)))
            except _MemberRefusedError as refused:
                files.append(_leave_out(work, source, info.orig_filename, refused.what, refused.hint))
            except _RatioError:
                what = f"one with which the archive {_describe_ratio(source)}"
                files.append(_leave_out(work, source, info.orig_filename, what, _UNPACK_YOURSELF))
            except _DAMAGE_AND_SYSTEM as error:
                if not _is_damage(error):
                    raise
                what = f"damaged ({_explain(error)})"
                files.append(_leave_out(work, source, info.orig_filename, what, is_lost=True))
    return files


def _open_zip(source: _Source, raw: BufferedReader) -> zipfile.ZipFile:
    """Open a zip.

    Raises:
        TraceFormatError: What its end tells is not there.
    """
    try:
        return zipfile.ZipFile(raw)
    except zipfile.BadZipFile as error:
        # Of what is wrong with a directory that is there it says more.
        if "not a zip file" not in str(error):
            raise
        raise TraceFormatError(
            f"{source.name}: the zip archive is damaged: it is cut off, as the list of its files is missing, which stands at the end.",
            hint=f"{_COPY_AGAIN} Else zip -FF CUT.zip --out WHOLE.zip makes one of the files before the cut.",
        ) from error


def _check_zip_member(source: _Source, info: zipfile.ZipInfo) -> None:
    """See that a member can be read.

    Raises:
        _MemberRefusedError: It cannot.
    """
    if info.flag_bits & 0x1:
        raise _MemberRefusedError("encrypted", "Pack the archive again without a password.")
    if info.compress_type not in _ZIP_METHODS:
        method = zipfile.compressor_names.get(info.compress_type, "unknown")  # type: ignore[attr-defined]
        raise _MemberRefusedError(
            f"packed with method {info.compress_type} ({method}); stored, deflate and bzip2 are read",
            "Pack the archive again with the default method (deflate).",
        )
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise _MemberRefusedError("a symbolic link" if stat.S_ISLNK(mode) else "not a plain file")
    # zipfile gives no more of a member than the directory says.
    if source.out_bytes + info.file_size > source.most_bytes:
        raise _MemberRefusedError(
            f"one of {info.file_size:,} bytes, with which the archive {_describe_ratio(source)}",
            _UNPACK_YOURSELF,
        )


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
        for piece in Inflater(stream, "bz2").inflate():
            checksum = zlib.crc32(piece, checksum)
            yield piece
    if checksum != info.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {info.filename!r}")


def _iterate_pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


def _unpack_tar(work: _Work, source: _Source, path: Path, kind: Kind) -> list[Unpacked]:
    files: list[Unpacked] = []
    stored: dict[str, Path] = {}
    with open_file(path) as raw:
        inflater = Inflater(raw, _TARS[kind]) if kind in _TARS else None
        pieces = inflater.inflate() if inflater else _iterate_pieces(raw)
        reader = TarReader(_count_pieces(work, source, pieces))
        try:
            for part in reader.read():
                if isinstance(part, Gap):
                    files.append(_tell_gap(work, source, part, _show(reader.member)))
                else:
                    taken = _take_member(work, source, part, stored)
                    files += taken
                    stored |= {file.name: file.path for file in taken if not file.problem}
        except (*_DAMAGE_AND_SYSTEM, _RatioError) as error:
            if not _is_damage(error):
                raise
            if all(file.problem for file in files):
                if isinstance(error, EOFError) and reader.done_bytes < reader.member_bytes:
                    words = f"it is cut off within {_show(reader.member)!r}, and no file before that is whole"
                    raise EOFError(words) from error
                raise
            return [*files, *_tell_break(work, source, reader, error)]
    if not reader.is_ended:
        rest = f"whatever came behind {_show(reader.member)}, where the archive ends without its mark, as one does that is cut off"
        files.append(_leave_out(work, source, "", rest, is_lost=True))
    if inflater and inflater.behind_bytes:
        count = format_counted(inflater.behind_bytes, "byte")
        files.append(_leave_out(work, source, "", f"{count} behind the end of the compressed data"))
    return files


def _take_member(work: _Work, source: _Source, member: Member, stored: Mapping[str, Path]) -> list[Unpacked]:
    """Store a member of a tar, or list it as left out; nothing of folders and of what file managers leave.

    A hard link has the content of a file before it: tar writes so whatever was one file of several names on the disk.

    Args:
        work: What is unpacked.
        source: The archive.
        member: The member.
        stored: Where the files before it are, by name.
    """
    try:
        shown = _admit(work, source, member.name)
        if shown is None or member.is_folder:
            return []
        if member.target and (path := stored.get(_show("/".join(_split_path(member.target))))) is not None:
            with open_file(path) as content:
                return [_store(work, source, shown, _iterate_pieces(content))]
        if member.problem:
            raise _MemberRefusedError(member.problem)
        return [_store(work, source, shown, member.body, charge=False)]
    except _MemberRefusedError as refused:
        return [_leave_out(work, source, member.name, refused.what, refused.hint)]


def _read_first_block(path: Path | str, packing: Packing) -> bytes:
    block = b""
    try:
        with open_file(Path(path)) as raw:
            for piece in Inflater(raw, packing).inflate(BLOCK_BYTES):
                block += piece
                if len(block) >= BLOCK_BYTES:
                    break
    except _DAMAGE_AND_SYSTEM:
        # What comes before is enough, or there is not enough.
        pass
    return block


def _tell_gap(work: _Work, source: _Source, gap: Gap, last: str) -> Unpacked:
    """Return what stands for bytes of a tar that belong to no member; `last` is the member before them."""
    count = format_counted(gap.size_bytes, "byte") + ("" if gap.is_whole else " or more")
    if gap.is_behind_end:
        return _leave_out(work, source, "", f"{count} behind the end of the archive")
    what = f"{count} behind {last}, where the header of a member is damaged"
    return _leave_out(work, source, "", what, is_lost=True)


def _tell_break(work: _Work, source: _Source, reader: TarReader, error: Exception) -> list[Unpacked]:
    """Return what stands for the member within which a tar ends, and for what came behind it."""
    if isinstance(error, _RatioError):
        what, after = f"given up, as it {_describe_ratio(source)}", ""
    else:
        what = "cut off" if isinstance(error, EOFError) else f"damaged ({_explain(error)})"
        after = f" after {reader.done_bytes:,} of {format_counted(reader.member_bytes, 'byte')}"
    if reader.is_ended:
        if isinstance(error, EOFError):
            return [
                _leave_out(
                    work, source, "", "the end of the compressed data behind the last file: it is cut off"
                )
            ]
        end = f"the end of the compressed data: it is {what}, so that any of the files may be wrong"
        return [_leave_out(work, source, "", end, is_lost=True)]
    within = reader.done_bytes < reader.member_bytes and not is_litter(reader.member)
    doubt = ", and what came shortly before may be wrong" if what.startswith("damaged") else ""
    rest = f"whatever came behind {_show(reader.member)}, where the archive is {what}{doubt}"
    return [
        *([_leave_out(work, source, reader.member, f"{what}{after}", is_lost=True)] if within else ()),
        _leave_out(work, source, "", rest, is_lost=True),
    ]


def _explain(error: BaseException) -> str:
    """Return what an error says, without the words that zlib puts before it."""
    return re.sub(r"^Error -?\d+ while [a-z ]+: ", "", str(error)) or type(error).__name__


def _admit(work: _Work, source: _Source, member: str) -> str | None:
    """Count a member and return the path to show for it; None for a folder's own entry or litter.

    Raises:
        _MemberRefusedError: The path leads out of the archive's folder, or is none.
        TraceFormatError: It is one too many.
    """
    work.members += 1
    if work.members > work.limits.members:
        raise _SharedLimitError(
            f"{source.name} holds more than {work.limits.members:,} members.",
            hint="Pack fewer files into one archive, or open the unpacked folder.",
        )
    if work.members > work.room.members:
        raise _build_room_error(work, source, f"{DEFAULT.members:,} files and folders")
    if len(member) > _NAME_AT_MOST:
        raise _MemberRefusedError(f"named by {len(member):,} characters, at most {_NAME_AT_MOST:,} are read")
    shown = _check_path(member)
    return None if not shown or member.endswith(("/", "\\")) or is_litter(shown) else shown


def _check_path(member: str) -> str:
    if "\0" in member:
        raise _MemberRefusedError("named with a NUL character")
    if member.startswith(("/", "\\")) or _DRIVE.match(member):
        raise _MemberRefusedError("an absolute path")
    parts = _split_path(member)
    if ".." in parts:
        raise _MemberRefusedError("a path that leads out of the archive (..)")
    return _show("/".join(parts))


def _split_path(member: str) -> list[str]:
    # Archives written on Windows may have backslashes between folders; taken as that, they hide nothing.
    return [part for part in member.replace("\\", "/").split("/") if part not in ("", ".")]


def _store(
    work: _Work, source: _Source, shown: str, pieces: Iterator[bytes], *, charge: bool = True
) -> Unpacked:
    disk = _make_place(work)
    size_bytes = 0
    try:
        with open_private(disk, "xb") as file:
            work.written[disk] = None
            for piece in pieces:
                if charge:
                    _charge(work, source, len(piece))
                size_bytes += file.write(piece)
    except BaseException:
        if disk in work.written:
            _remove(work, disk)
        raise
    return Unpacked(shown, disk, size_bytes)


def _count_pieces(work: _Work, source: _Source, pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        _charge(work, source, len(piece))
        yield piece


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
    if work.total_bytes > work.room.total_bytes:
        raise _build_room_error(work, source, format_bytes(DEFAULT.total_bytes))
    if source.out_bytes > source.most_bytes:
        raise _RatioError(f"{source.name} {_describe_ratio(source)}.", hint=_UNPACK_YOURSELF)
    work.free_bytes -= count
    if work.free_bytes < limits.spare_bytes:
        work.free_bytes = shutil.disk_usage(work.into).free - count
        if work.free_bytes < limits.spare_bytes:
            raise _build_disk_error(work, source.name)


def _describe_ratio(source: _Source) -> str:
    return (
        f"unpacks to more than {source.ratio:,} times its size ({source.size_bytes:,} bytes); archives built "
        "to fill a disk do that"
    )


def _build_room_error(work: _Work, source: _Source, most: str) -> TraceFormatError:
    """Return the error for an archive that does not fit beside those before it, after which no other is tried."""
    work.room.is_full = True
    return _SharedLimitError(
        f"{source.name}: not unpacked, as all archives opened at once would come to more than {most}.",
        hint=_NAME_THE_FOLDER,
    )


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
