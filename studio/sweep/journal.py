"""What a sweep has done so far, in a file beside its output: a kill loses no more than what was under way.

The first line says which sweep it is of; each further one is the result of a point. What a kill cut off at the end is dropped and simulated again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from studio.decoding import build_decoder
from studio.errors import StudioError
from studio.files import describe_full_disk, is_full, open_private, read_file
from studio.sweep.costs import Costs
from studio.sweep.running import Row
from studio.sweep.space import Space
from studio.sweep.systems import Base
from studio.trace import Trace, compute_trace_digest

_FORMAT = "chakra-studio sweep 1"
_SYNCED_EVERY_S = 0.2
_ROW = build_decoder(Row)


def compute_fingerprint(trace: Trace, base: Base, space: Space, costs: Costs | None) -> str:
    """Return a digest that identifies a sweep by its job, system, settings and costs, whichever points it takes."""
    plain = msgspec.json.encode([compute_trace_digest(trace), base, space.axes, costs], order="sorted")
    return hashlib.blake2b(plain, digest_size=16).hexdigest()


def name_journal(output: Path) -> Path:
    """Return where the journal of an output lies."""
    return output.with_name(f"{output.name}.part")


class Journal:
    """The results of a sweep so far, on disk.

    Attributes:
        path: The file.
        rows: What is done, by the number of the point.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """Open the journal of a sweep, or begin it.

        Raises:
            StudioError: There is one of another sweep, or it cannot be written.
        """
        self.path = path
        self.rows: dict[int, Row] = {}
        header = f"{_FORMAT} {identity}\n".encode()
        whole = 0
        if path.exists():
            data = read_file(path)
            if data.startswith(header):
                whole = self._take(data, len(header))
            elif data and not header.startswith(data):
                raise StudioError(
                    f"{path} holds partial results of another sweep.",
                    hint="Run that sweep again to end it, name another output, or delete the file.",
                )
        self._file: BinaryIO = open_private(path, "ab")
        self._synced_s = 0.0
        with self._word_errors():
            if whole:
                self._file.truncate(whole)
            else:
                self._file.truncate(0)
                self._file.write(header)
            self._sync()

    def _take(self, data: bytes, begin: int) -> int:
        """Read rows; returns where the last whole one ends."""
        for line in data[begin:].splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            try:
                row = _ROW(line)
            except msgspec.MsgspecError:
                break
            self.rows[row.index] = row
            begin += len(line)
        return begin

    def add(self, rows: Sequence[Row]) -> None:
        """Keep results: a kill of the process loses none that this returned for, one of the machine the last of them."""
        with self._word_errors():
            for row in rows:
                self.rows[row.index] = row
                self._file.write(msgspec.json.encode(row) + b"\n")
            self._file.flush()
            if time.monotonic() - self._synced_s > _SYNCED_EVERY_S:
                self._sync()

    @contextmanager
    def _word_errors(self) -> Iterator[None]:
        """Say which file could not be written, as the system does not, and what becomes of it where the disk is full."""
        try:
            yield
        except OSError as error:
            error.filename = error.filename or str(self.path)
            if not is_full(error):
                raise
            full = describe_full_disk(
                self.path.parent,
                needed="further results",
                kept=f"those so far are kept in {self.path.name}",
                error=error,
            )
            raise StudioError(
                f"{self.path}: {full}.",
                hint="Free some space, and run the same again: it goes on from there.",
            ) from error

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()

    def close(self) -> None:
        """Close the file; it stays."""
        try:
            with self._word_errors():
                self._sync()
        finally:
            # What could not be written a moment ago cannot be now.
            with suppress(OSError):
                self._file.close()

    def remove(self) -> None:
        """Close the file and delete it: the output holds all of it."""
        self.close()
        self.path.unlink(missing_ok=True)


def read_journal(path: Path) -> list[Row]:
    """Return the results of a journal that another thread or process is writing, in the order of points."""
    rows: dict[int, Row] = {}
    for line in read_file(path).splitlines(keepends=True)[1:]:
        if line.endswith(b"\n"):
            try:
                row = _ROW(line)
            except msgspec.MsgspecError:
                continue
            rows[row.index] = row
    return [rows[index] for index in sorted(rows)]
