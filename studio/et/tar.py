"""Read what a tar holds as it comes: forward only, a piece in memory at a time, and on behind what is damaged.

Not with tarfile's own reader: it loads long names and extended headers whole, so a small archive can fill the memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK_BYTES = 512
_PIECE_BYTES = 1 << 18
_LONG_NAME_BYTES = 1 << 16
_LOOKED_BEHIND_BYTES = 1 << 20
"""So far behind its end another archive is looked for: more than any tool pads it with."""
_SUM = slice(148, 156)
"""Where a member's header has its checksum ..."""
_BASE_256 = (0o200, 0o377)
"""... which begins with one of these where it is written in base 256 ..."""
_OCTAL = b"01234567" + b" \t\n\v\f\r\x1c\x1d\x1e\x1f" + b"_+-oO"
"""... and else has only characters that Python takes for an octal number, up to the first zero byte."""
_EXTENDED = 482
"""Where the header of a sparse file says whether another block of its map follows ..."""
_EXTENDED_AGAIN = 504
"""... and where such a block says so."""
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
"""Kinds of headers that say more of the member behind them."""
_WITHOUT_BODY = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link to none of the files before it",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
}


@dataclass(frozen=True, slots=True)
class Member:
    """A file or folder in a tar.

    Attributes:
        name: Its path as it is written there; bytes that are no UTF-8 as surrogates.
        size_bytes: How long its content is.
        is_folder: Whether it is one.
        problem: What it is instead of a plain file or a folder, empty for these.
        target: Of a hard link the name of the member whose content it has, too; else empty.
        body: Its content; what is not taken of it is skipped.
    """

    name: str
    size_bytes: int
    is_folder: bool
    problem: str
    target: str
    body: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes in a tar that belong to no member.

    Attributes:
        size_bytes: How many, zeros at their end left out.
        is_behind_end: Whether they come behind the mark that ends the tar, rather than where a header is damaged.
        is_whole: Whether these are all, and not the first of them.
    """

    size_bytes: int
    is_behind_end: bool
    is_whole: bool = True


class TarReader:
    """A tar that is read forward.

    Attributes:
        is_ended: Whether the mark at its end was read.
        member: The name of the last member that was begun.
        member_bytes: How long its content is.
        done_bytes: How much of that has come.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.is_ended = False
        self.member = ""
        self.member_bytes = self.done_bytes = 0
        self._pieces = pieces
        self._buffer = b""

    def read(self) -> Iterator[Member | Gap]:
        """Yield members and what lies between them, also those of archives that were appended to the first.

        Raises:
            EOFError: It is cut off.
        """
        extra: dict[str, str] = {}
        problem = ""
        gap_bytes = zeros = 0
        is_gap_behind = False
        while block := self._take_block():
            info = _parse_header(block)
            if info is None:
                if not block.strip(b"\0"):
                    zeros += len(block)
                    self.is_ended = True
                elif len(block) == BLOCK_BYTES or self.is_ended:
                    is_gap_behind = is_gap_behind if gap_bytes else self.is_ended
                    gap_bytes, zeros = gap_bytes + zeros + len(block), 0
                else:
                    raise EOFError("it ends within a header")
                if (is_gap_behind or not gap_bytes) and gap_bytes + zeros > _LOOKED_BEHIND_BYTES:
                    break
                continue
            if gap_bytes:
                yield Gap(gap_bytes, is_gap_behind)
            gap_bytes = zeros = 0
            self.is_ended = False
            if info.type in _NAMES:
                more, wrong = self._read_names(info)
                extra, problem = extra | more, problem or wrong
                continue
            member = self._build_member(info, block, extra, problem)
            yield member
            for _ in member.body:
                pass
            extra, problem = {}, ""
        if gap_bytes:
            yield Gap(gap_bytes, is_gap_behind, is_whole=not block)

    def _take(self, most: int) -> bytes:
        """Return between one and `most` bytes; none at the end."""
        if not self._buffer:
            self._buffer = next(self._pieces, b"")
        given, self._buffer = self._buffer[:most], self._buffer[most:]
        return given

    def _take_block(self) -> bytes:
        """Return the next block, shorter only at the end."""
        block = self._take(BLOCK_BYTES)
        while block and len(block) < BLOCK_BYTES and (more := self._take(BLOCK_BYTES - len(block))):
            block += more
        return block

    def _iterate_content(self, size_bytes: int) -> Iterator[bytes]:
        """Yield the content of the member that was begun."""
        for piece in self._iterate_body(size_bytes):
            self.done_bytes += len(piece)
            yield piece

    def _iterate_body(self, size_bytes: int) -> Iterator[bytes]:
        """Yield so many bytes, then skip what pads them."""
        left = size_bytes
        while left:
            piece = self._take(min(left, _PIECE_BYTES))
            if not piece:
                raise EOFError(f"it ends {left:,} bytes too early")
            left -= len(piece)
            yield piece
        padding = -size_bytes % BLOCK_BYTES
        while padding and (piece := self._take(padding)):
            padding -= len(piece)

    def _read_names(self, info: tarfile.TarInfo) -> tuple[dict[str, str], str]:
        """Return what a header says of the member behind it, and what is wrong with that, empty where nothing is."""
        is_needed = info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE)
        if not 0 <= info.size <= _LONG_NAME_BYTES:
            wrong = f"behind a name or extended header that claims {info.size:,} bytes, of which at most {_LONG_NAME_BYTES:,} are read"
            try:
                for _ in self._iterate_body(max(info.size, 0)):
                    pass
            except EOFError:
                raise EOFError(f"a name or extended header claims {info.size:,} bytes") from None
            return {}, wrong if is_needed else ""
        body = b"".join(self._iterate_body(info.size))
        try:
            return _parse_names(info.type, body), ""
        except ValueError as error:
            return {}, f"behind an extended header that cannot be read ({error})"

    def _build_member(
        self, info: tarfile.TarInfo, block: bytes, extra: dict[str, str], problem: str
    ) -> Member:
        name = extra.get("GNU.sparse.name") or extra.get("path", info.name)
        size_bytes = info.size
        try:
            size_bytes = int(extra.get("size", size_bytes))
        except ValueError:
            problem = problem or f"of the size {extra['size'][:40]!r}"
        if size_bytes < 0:
            problem, size_bytes = problem or f"of the size {size_bytes:,}", 0
        if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in extra):
            problem = problem or "a sparse file"
        is_extended = info.type == tarfile.GNUTYPE_SPARSE and block[_EXTENDED]
        while is_extended and len(block := self._take_block()) == BLOCK_BYTES:
            is_extended = block[_EXTENDED_AGAIN]
        if info.type == tarfile.DIRTYPE or info.type in _WITHOUT_BODY:
            problem, size_bytes = problem or _WITHOUT_BODY.get(info.type, ""), 0
        elif info.type not in (*_FILES, tarfile.GNUTYPE_SPARSE):
            problem = problem or f"of the unknown kind {info.type!r}"
        is_folder = info.type == tarfile.DIRTYPE or (info.type in _FILES and name.endswith("/"))
        self.member, self.member_bytes, self.done_bytes = name, size_bytes, 0
        target = extra.get("linkpath", info.linkname) if info.type == tarfile.LNKTYPE else ""
        return Member(name, size_bytes, is_folder, problem, target, self._iterate_content(size_bytes))


def is_tar(block: bytes) -> bool:
    """Tell whether a file that begins so is a tar; 512 bytes are needed."""
    return _parse_header(block[:BLOCK_BYTES]) is not None


def _parse_header(block: bytes) -> tarfile.TarInfo | None:
    """Return what a block says as the header of a member, None where it is none."""
    if len(block) < BLOCK_BYTES or not _may_have_sum(block) or not block.strip(b"\0"):
        return None
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return None


def _may_have_sum(block: bytes) -> bool:
    """Whether a block has a number where a tar has its checksum, as hardly any other file does: `tarfile` takes far longer to say so."""
    field = block[_SUM]
    return field[0] in _BASE_256 or not field.partition(b"\0")[0].translate(None, _OCTAL)


def _parse_names(kind: bytes, body: bytes) -> dict[str, str]:
    """Return the name, size and target that a GNU long name or a pax header gives the member behind it."""
    if kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
        field = "path" if kind == tarfile.GNUTYPE_LONGNAME else "linkpath"
        return {field: body.rstrip(b"\0").decode("utf-8", "surrogateescape")}
    if kind != tarfile.XHDTYPE:
        return {}
    extra: dict[str, str] = {}
    while body.strip(b"\0"):
        length, _, _ = body.partition(b" ")
        end = int(length)
        if not len(length) < end <= len(body):
            raise ValueError("one of its records has a wrong length")
        key, _, value = body[len(length) + 1 : end].rstrip(b"\n").partition(b"=")
        extra[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        body = body[end:]
    return extra
