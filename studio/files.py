"""Open the files that a user or the workspace names: plain files alone, and new ones for their owner alone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final, Literal

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600
# Not waiting for the other end of a pipe, not becoming the terminal of whatever is opened.
_READ: Final = os.O_RDONLY | sum(
    getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)
_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class SpecialFileError(OSError):
    """What should be read is a pipe, a socket or a device, which may have no end and may never answer."""


def open_file(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open a plain file for reading, whatever it may have been when its folder was listed.

    Raises:
        SpecialFileError: It is a pipe, a socket or a device.
        OSError: It cannot be opened, or is a folder.
    """
    try:
        handle = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):
            # A socket in the file system, or a device without a driver, cannot even be opened.
            raise _special(path, path.stat().st_mode) from error
        raise
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise _special(path, mode)
        return os.fdopen(handle, "rb", buffering=buffering)
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path) -> bytes:
    """Return the content of a plain file.

    Raises:
        OSError: As `open_file`.
    """
    with open_file(path) as stream:
        return stream.read()


def _special(path: Path, mode: int) -> OSError:
    """Return the error that says what a path is instead of a plain file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = _KINDS.get(stat.S_IFMT(mode), "a special file")
    return SpecialFileError(
        errno.EINVAL, f"this is {kind}, not a file that can be read to its end", str(path)
    )


def open_private(path: Path, mode: Literal["wb", "xb", "ab"] = "wb") -> BinaryIO:
    """Open a file for writing; one that is made is its owner's alone."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, PRIVATE_FILE))


def make_private(folder: Path) -> None:
    """Take a folder and all that is in it from everyone but its owner."""
    for place, _, names in os.walk(folder):
        Path(place).chmod(PRIVATE_FOLDER)
        for name in names:
            Path(place, name).chmod(PRIVATE_FILE)
