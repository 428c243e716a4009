"""Read a Chakra file from its beginning to its end in windows, plain or compressed, and never all of it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

from studio.errors import TraceError, TraceFormatError
from studio.et import chakra, wire
from studio.et import kernel as k
from studio.et.merged.records import CHUNK_BYTES, Chunk, iterate_chunks
from studio.files import SpecialFileError, open_file

_LARGEST_RECORD = 1 << 28
_HINT = "Copy or record the file again; a recording process that was killed leaves such a file."


class RecordStream:
    """The records of a file.

    Attributes:
        name: What the file is called.
        metadata: Its first record.
        ended: Whether all of it was read.
    """

    def __init__(self, path: Path) -> None:
        """Open a file and read its metadata.

        Raises:
            TraceError: There is no such file.
            TraceFormatError: It is no Chakra file.
        """
        self.name = path.name
        self.ended = False
        self._file, self._stream = _open_inflated(path)
        self._size = path.stat().st_size
        self._held, self._at, self._end_seen = b"", 0, False
        try:
            self.metadata = self._read_metadata()
        except BaseException:
            self.close()
            raise

    def _read_metadata(self) -> chakra.Metadata:
        """Read the first record."""
        self._read(CHUNK_BYTES)
        size, begin = k.varint(self._held, 0, min(len(self._held), 16))
        if begin > 0 and size <= _LARGEST_RECORD:
            while begin + size > len(self._held) and self._read(begin + size):
                pass
        if not chakra.sniff(self._held[: 1 << 16]):
            raise TraceFormatError(
                f"{self.name}: not a Chakra execution trace.",
                hint="Formats of other tools: `chakra-studio convert IN OUT.et` writes a Chakra file of them.",
            )
        metadata = chakra.read_metadata(self._held, self.name)
        self._drop(metadata.end)
        return metadata

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._file.close()

    def read(self) -> list[Chunk]:
        """Return the next records; none where the file has ended, which `ended` says then.

        Raises:
            TraceFormatError: The file is damaged; the message says where.
        """
        while not self.ended:
            end, damage, _ = wire.scan_records(self._held, 0, lambda _done: None, self._size)
            if damage and (damage != wire.DAMAGE[k.CUT_RECORD] or self._end_seen):
                self.close()
                raise TraceFormatError(
                    f"{self.name}: {damage} at byte {self._at + end:,} of the uncompressed file.", hint=_HINT
                )
            records = list(iterate_chunks(self._held, 0, end))
            self._drop(end)
            wanted = self._count_wanted()
            if not self._read(max(CHUNK_BYTES, wanted)) and not self._held:
                self.ended = True
                self.close()
            if records:
                return records
        return []

    def _count_wanted(self) -> int:
        """Return how many bytes the record takes that is held in part."""
        size, begin = k.varint(self._held, 0, min(len(self._held), 16))
        if begin < 0:
            return 0
        if not 0 <= size <= _LARGEST_RECORD:
            raise TraceFormatError(
                f"{self.name}: the record at byte {self._at:,} of the uncompressed file claims {size & (2**64 - 1):,} bytes; allowed: "
                f"up to {_LARGEST_RECORD:,}.",
                hint=_HINT,
            )
        return int(begin + size)

    def _drop(self, count: int) -> None:
        self._held = self._held[count:]
        self._at += count

    def _read(self, until: int) -> bool:
        """Read until so many bytes are held; returns whether there were any more."""
        wanted = until - len(self._held)
        if wanted <= 0 or self._end_seen:
            return False
        try:
            more = self._stream.read(wanted)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceFormatError(
                f"{self.name}: the gzip stream is damaged after {self._at + len(self._held):,} inflated bytes: {error}.",
                hint="Copy the file again.",
            ) from error
        self._end_seen = len(more) < wanted
        self._held += more
        return bool(more)


def _open_inflated(path: Path) -> tuple[IO[bytes], IO[bytes]]:
    """Return a file, and its content, inflated as it is read where it is compressed."""
    try:
        stream = open_file(path)
    except SpecialFileError as error:
        raise TraceFormatError(f"{path}: {error.strerror}.", hint="Copy its content into a file.") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TraceError(f"{path}: no such file.", hint="Check the spelling.") from error
    except IsADirectoryError as error:
        raise TraceError(
            f"{path}: a folder.", hint="A feeder takes the file of one rank; make one for each."
        ) from error
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    return stream, cast("IO[bytes]", gzip.GzipFile(fileobj=stream)) if packed else stream
