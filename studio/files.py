"""Open the files that a user or the workspace names: plain files alone, and new ones for their owner alone."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final, Literal

from studio.units import format_bytes

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


_FULL: Final = {
    errno.ENOSPC: "the disk of {} is full",
    errno.EDQUOT: "the quota for {} is used up",
    errno.EFBIG: "files in {} may not grow further (see ulimit -f)",
}


_TRIES, _PAUSE_S = 200, 0.01


@contextmanager
def make_scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder for temporary files, and remove it even where others still write into it.

    Processes that are stopped, or not waited for, may put a file there while it is removed. Once it is gone they fail.

    Args:
        prefix: How its name begins.
        parent: Where it is; None is the system's folder for temporary files.
    """
    # Every command reads files, and few need such a folder.
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        for _ in range(_TRIES):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(_PAUSE_S)


class SpecialFileError(OSError):
    """What should be read is a pipe, a socket or a device, which may have no end and may never answer."""


_WHAT_TO_DO: Final[Mapping[type[OSError], str]] = {
    SpecialFileError: "Copy its content into a file, and name that.",
    FileNotFoundError: "Check the spelling.",
    PermissionError: "Check who may read and write it.",
    IsADirectoryError: "Name a file, or remove the folder of this name.",
    NotADirectoryError: "A part of this path is a file, not a folder.",
    FileExistsError: "Choose another name, or remove what is there.",
}
_WHAT_TO_DO_BY_NUMBER: Final = {
    errno.ELOOP: "It is a symbolic link that leads back to itself: name the file that is meant.",
    errno.ENAMETOOLONG: "Use a shorter name.",
    errno.ENOSPC: "Make room there, or name a place on another disk.",
    errno.EDQUOT: "Make room there, or name a place on another disk.",
    errno.EROFS: "Name a place that can be written to.",
}


def suggest_remedy(error: OSError) -> str:
    """Return what helps where a file cannot be read or written; empty where the error says all there is to say.

    Example:
        >>> suggest_remedy(FileNotFoundError())
        'Check the spelling.'
    """
    return _WHAT_TO_DO.get(type(error)) or _WHAT_TO_DO_BY_NUMBER.get(error.errno or 0, "")


def describe_bad_path(text: str) -> tuple[str, str] | None:
    r"""Return why no file or folder can be called so, and what helps; None where one can.

    Example:
        >>> describe_bad_path(""), describe_bad_path("a\0b")[0], describe_bad_path("job.0.et")
        (('An empty path: no file or folder is named.', 'Name a file or folder; . is the current one.'), "'a\\x00b': no file or folder can be called so: a character of number 0 is in it.", None)
    """
    if not text:
        # A variable that is not set, which Python takes for the current folder.
        return "An empty path: no file or folder is named.", "Name a file or folder; . is the current one."
    try:
        os.lstat(text)
    except ValueError as error:
        # Which words Python has for that differs from version to version.
        what = "a character of number 0 is in it" if "\0" in text else str(error).removeprefix("lstat: ")
        return (
            f"{text[:200]!r}: no file or folder can be called so: {what}.",
            "Check where the name comes from.",
        )
    except OSError:
        # Said where it is opened.
        return None
    return None


def open_file(path: Path) -> BufferedReader:
    """Open a plain file for reading, whatever it may have been when its folder was listed.

    Raises:
        SpecialFileError: It is a pipe, a socket or a device.
        OSError: It cannot be opened, or is a folder.
    """
    handle = open_handle(path)
    try:
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def open_handle(path: Path | str) -> int:
    """Open a plain file as `open_file` does; of many small files the objects of Python take most of the time.

    Raises:
        OSError: As `open_file`.
    """
    return _open_measured(path)[0]


def _open_measured(path: Path | str) -> tuple[int, int]:
    """Open a plain file and return its handle and its size: the one place where what is no plain file is refused."""
    try:
        handle = os.open(path, _READ)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):
            # A socket in the file system, or a device without a driver, cannot even be opened.
            raise _build_special_error(path, os.stat(path).st_mode) from error  # noqa: PTH116 - a path or a text
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _build_special_error(path, status.st_mode)
    except BaseException:
        os.close(handle)
        raise
    return handle, status.st_size


def read_start(path: Path | str, count: int) -> bytes:
    """Return the first bytes of a plain file, fewer where it has no more.

    Raises:
        OSError: As `open_file`.
    """
    return read_start_and_size(path, count)[0]


def read_start_and_size(path: Path | str, count: int) -> tuple[bytes, int]:
    """Return the first bytes of a plain file, fewer where it has no more, and how many the system says it has.

    Raises:
        OSError: As `open_file`.
    """
    handle, size = _open_measured(path)
    try:
        # Room for more than the file has would take longer than reading it; some of the system's files have no size.
        return os.read(handle, min(count, size or count)), size
    except OSError as error:
        # Of what goes wrong while it is read, as on a disk that breaks, the system does not say where.
        error.filename = error.filename or str(path)
        raise
    finally:
        os.close(handle)


def read_file(path: Path) -> bytes:
    """Return the content of a plain file.

    Raises:
        OSError: As `open_file`.
    """
    with open_file(path) as stream:
        return stream.read()


def _build_special_error(path: Path | str, mode: int) -> OSError:
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


def is_full(error: OSError) -> bool:
    """Tell a full disk, or quota, from other trouble."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sum_sizes_below(folder: Path) -> int:
    """Return how many bytes the files below a folder have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def describe_full_disk(
    folder: Path, *, needed: str, removed_bytes: int = 0, kept: str = "", error: OSError | None = None
) -> str:
    """Return the sentence that a disk is full: the folder, the bytes needed, and what became of partial files.

    Args:
        folder: Where the files were to be; it need not be there any more.
        needed: How much they take, as far as is known.
        removed_bytes: How much of it had been written, and was removed again.
        kept: What of it is not removed, in words; empty where nothing is.
        error: What the system said; None where the room was measured.
    """
    number = error.errno if error is not None else None
    what = _FULL.get(number or errno.ENOSPC, _FULL[errno.ENOSPC]).format(folder)
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = format_bytes(shutil.disk_usage(existing).free)
    removed = kept or (
        f"the {format_bytes(removed_bytes)} written were removed again"
        if removed_bytes
        else "nothing is left of it"
    )
    return f"{what}: {needed} are needed, {free} are free; {removed}"


def make_private(folder: Path) -> None:
    """Take a folder and all that is in it from everyone but its owner."""
    for place, _, names in os.walk(folder):
        Path(place).chmod(PRIVATE_FOLDER)
        for name in names:
            Path(place, name).chmod(PRIVATE_FILE)
