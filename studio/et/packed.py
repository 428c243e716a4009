"""Inflate gzip, bzip2 and xz a piece at a time, and keep apart what lies behind them."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from typing import IO, Literal, Protocol

from zlib_ng import zlib_ng

Packing = Literal["gz", "bz2", "xz"]

# Typed there as an exception instead of as its class.
DamagedGzipError: type[Exception] = zlib_ng.error  # type: ignore[assignment]
PIECE_BYTES = 1 << 18
_READ_BYTES = 1 << 16
"""Bytes that are read at once: what follows a stream is copied each time, and a file can be made of tiny ones."""
_XZ_MEMORY_BYTES = 256 << 20


class _Decoder(Protocol):
    """What inflates one stream, as those of `bz2` and `lzma` do."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _ZlibDecoder(Protocol):
    """What inflates one stream of gzip."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    def copy(self) -> _ZlibDecoder: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipDecoder:
    """The decompressor of `zlib`, to be used as those of `bz2` and `lzma` are, which gives all that comes before damage."""

    def __init__(self) -> None:
        # Typed there without `copy`.
        self._inner: _ZlibDecoder = zlib_ng.decompressobj(wbits=31)  # type: ignore[assignment]
        self._tail = b""
        self._is_full = False
        self._damage: Exception | None = None

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        # What did not fit into the last piece may be inside, with all that was packed taken.
        return not (self._is_full or self._tail or self._damage)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if self._damage:
            raise self._damage
        packed = self._tail + data
        before = self._inner.copy()
        try:
            piece = self._inner.decompress(packed, max_length)
            self._tail = self._inner.unconsumed_tail
        except DamagedGzipError as error:
            piece = self._inflate_up_to_damage(before, packed, max_length)
            self._damage = error if len(piece) < max_length else None
        self._is_full = len(piece) == max_length
        return piece

    def _inflate_up_to_damage(self, inner: _ZlibDecoder, packed: bytes, most: int) -> bytes:
        """Inflate half of what is packed, then half of the rest, and so on: what meets damage gives nothing of all that came before it."""
        content = b""
        end = len(packed)
        while end > 1 and len(content) < most:
            trial = inner.copy()
            try:
                piece = trial.decompress(packed[: end // 2], most - len(content))
            except DamagedGzipError:
                end //= 2
                continue
            content += piece
            packed = trial.unconsumed_tail + packed[end // 2 :]
            end += len(trial.unconsumed_tail) - end // 2
            inner = trial
        self._inner, self._tail = inner, packed
        return content


# lzma.LZMAFile takes no memory limit, and a few bytes of header can ask for 4 GiB.
_PACKINGS: dict[Packing, tuple[bytes, Callable[[], _Decoder]]] = {
    "gz": (b"\x1f\x8b", _GzipDecoder),
    "bz2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)),
}
MAGIC: dict[Packing, bytes] = {packing: magic for packing, (magic, _) in _PACKINGS.items()}
"""How each begins."""


class Inflater:
    """Streams of one packing, one after another.

    Attributes:
        behind_bytes: How many bytes came behind the last stream that are no stream, but for zeros that only pad it.
    """

    def __init__(self, raw: IO[bytes], packing: Packing) -> None:
        self.behind_bytes = 0
        self._raw = raw
        self._magic, self._new_decoder = _PACKINGS[packing]

    def inflate(self, most: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield what the streams inflate to, never more than a piece at once.

        Args:
            most: Bytes of a piece.

        Raises:
            EOFError: The last one is cut off.
        """
        decoder = self._new_decoder()
        packed = b""
        while True:
            if decoder.eof:
                packed = self._find_next(decoder.unused_data)
                if not packed.startswith(self._magic):
                    self.behind_bytes = len(packed) + sum(
                        map(len, iter(lambda: self._raw.read(_READ_BYTES), b""))
                    )
                    return
                decoder = self._new_decoder()
            elif decoder.needs_input and not (packed := self._raw.read(_READ_BYTES)):
                raise EOFError("it ends within the compressed data")
            if piece := decoder.decompress(packed, most):
                yield piece
            packed = b""

    def _find_next(self, packed: bytes) -> bytes:
        """Return what comes behind a stream and the zeros that pad it, enough to tell what it is; none at the end."""
        while (len(packed := packed.lstrip(b"\0")) < len(self._magic)) and (
            more := self._raw.read(_READ_BYTES)
        ):
            packed += more
        return packed
