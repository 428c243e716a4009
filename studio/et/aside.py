"""Put values aside in files until they are wanted again: their arrays are mapped then, and take no memory until they are used.

A file holds a pickle, with the content of arrays behind it, each at a place that suits a processor. The files lie in a folder
that nobody else writes to, and are read by the program that wrote them, or by processes of it.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.errors import StudioError
from studio.files import describe_full_disk, is_full, open_file, open_private
from studio.narrow import narrow
from studio.units import format_bytes

_ALIGNED_BYTES = 64
_LONG_BYTES = 1 << 16
"""Shorter arrays are written as they are."""
_LOOKED_AT = 64
_FULL_HINT = (
    "Free some space, or use another disk: the environment variable TMPDIR names it for commands, "
    "--workspace DIR for the studio."
)


def put_aside(path: Path, value: Any, *, small: bool = False, narrowed: bool = False) -> None:
    """Write a value that can be pickled into a new file.

    Args:
        path: The file.
        value: The value.
        small: Whether to write less of long arrays: one that repeats another is not written, one of a single value is that value.
        narrowed: Whether to write whole numbers as narrow as they can be besides; they take memory once they are taken up.

    Raises:
        StudioError: The disk is full.
        OSError: The file cannot be written.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = io.BytesIO()
    pickler = _Packer(head, protocol=5, buffer_callback=buffers.append)
    pickler.small, pickler.narrowed = small or narrowed, narrowed
    pickler.dump(value)
    pieces = [memoryview(head.getvalue()), *(buffer.raw() for buffer in buffers)]
    sizes = struct.pack(f"<{1 + len(pieces)}q", len(pieces), *map(len, pieces))
    try:
        with open_private(path) as stream:
            place = stream.write(sizes)
            for piece in pieces:
                place += stream.write(bytes(-place % _ALIGNED_BYTES))
                place += stream.write(piece)
    except OSError as error:
        if not is_full(error):
            raise
        full = describe_full_disk(
            path.parent, needed=f"about {format_bytes(sum(map(len, pieces)))}", removed_bytes=0, error=error
        )
        raise StudioError(f"{full}.", hint=_FULL_HINT) from error


def take_up(path: Path) -> Any:
    """Return a value that was put aside, with arrays that cannot be written to, and remove its file.

    Raises:
        OSError: The file cannot be read.
    """
    with open_file(path) as stream:
        # Where a file that is mapped cannot be removed, it is read.
        mapped = os.name == "posix"
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if mapped else stream.read())
    with suppress(OSError):
        path.unlink()
    [count] = struct.unpack_from("<q", data)
    place = 8 * (1 + count)
    pieces = []
    for size in struct.unpack_from(f"<{count}q", data, 8):
        place += -place % _ALIGNED_BYTES
        pieces.append(data[place : place + size])
        place += size
    return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301 (written by `put_aside`)


class _Packer(pickle.Pickler):
    """A pickler that writes less of long arrays, see `put_aside`."""

    small = narrowed = False

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._met: dict[tuple[str, tuple[int, ...], bytes], list[NDArray[Any]]] = {}

    def reducer_override(self, value: Any) -> Any:
        """Return how an array is made again, if that takes less than its content."""
        if not self.small or type(value) is not np.ndarray or value.nbytes < _LONG_BYTES:
            return NotImplemented
        if value.dtype.kind not in "iub":
            return NotImplemented
        # A few of its items tell nearly all arrays apart, so that few are looked at as a whole.
        some = value.reshape(-1)[:: value.size // _LOOKED_AT]
        alike = self._met.setdefault((value.dtype.str, value.shape, some.tobytes()), [])
        for other in alike:
            if np.array_equal(value, other):
                return _return_same, (other,)
        alike.append(value)
        if (some == some[0]).all() and (value == some[0]).all():
            return _repeat_value, (some[0], value.shape)
        kept = narrow(value) if self.narrowed else value
        return (_widen_array, (kept, value.dtype)) if kept.itemsize < value.itemsize else NotImplemented


def _return_same(array: NDArray[Any]) -> NDArray[Any]:
    return array


def _repeat_value(value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.broadcast_to(value, shape)


def _widen_array(array: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    wide = array.astype(kind)
    wide.flags.writeable = False
    return wide
