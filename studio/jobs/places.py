"""Folders that are watched: what lies in them, and its files opened; on this machine, or where fsspec reads."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from studio.errors import StudioError, TraceError
from studio.et.source import SourceFile, unpack_archives, walk
from studio.files import is_full, open_private

_PIECE_BYTES = 1 << 20
_NO_FOLDER = "Check the spelling. Folders of s3:// and the like begin with the first file that is put into them, hidden ones too."
_NO_CREDENTIALS = (
    "Name the account as the package for such addresses takes it: for s3:// by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or by AWS_PROFILE."
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells a file from a later version of it.

    Attributes:
        size_bytes: Its size.
        modified_ns: When its content changed, since the epoch; 0 where the place does not say.
        changed_ns: When anything of it changed, its name included; never set back by a copy that keeps dates.
        tag: What the place calls this version, "" for none.
    """

    size_bytes: int
    modified_ns: int
    changed_ns: int = 0
    tag: str = ""

    @property
    def key(self) -> tuple[int, int, str]:
        """What differs between two versions."""
        return self.size_bytes, self.modified_ns, self.tag


class Place(Protocol):
    """A folder that is watched.

    Attributes:
        name: What the user calls it, and what it is known by from one watch to the next.
    """

    name: str

    def stamps(self) -> dict[str, Stamp]:
        """Return the files by name, relative to the folder.

        Raises:
            StudioError: It cannot be listed.
        """

    def open_files(self, names: Sequence[str]) -> contextlib.AbstractContextManager[list[SourceFile]]:
        """Open some files; members of archives, and copies of files elsewhere, exist only inside the `with`.

        Raises:
            StudioError: A file cannot be had.
        """


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, folder: Path, apart_from: Path | None = None) -> None:
        """Take the folder.

        Args:
            folder: The folder.
            apart_from: A folder that does not count where it lies in it: that of the workspace, whose jobs have arrived.
        """
        self.folder = folder.absolute()
        self.name = str(self.folder)
        self._apart = None if apart_from is None else apart_from.resolve()

    def stamps(self) -> dict[str, Stamp]:
        """Return the files below the folder by name, hidden ones left out."""
        if not self.folder.is_dir():
            what = "a file, not a folder" if self.folder.exists() else "no such folder"
            raise TraceError(f"{self.folder}: {what}.", hint="Name the folder that traces are put into.")
        real, stamps = self.folder.resolve(), {}
        apart = ""
        if self._apart is not None and self._apart.is_relative_to(real):
            apart = f"./{self._apart.relative_to(real).as_posix()}/"
        for file in self._iterate_files(real):
            if file.problem or (apart and file.name.startswith(apart)):
                continue
            # What was just removed is not there.
            with contextlib.suppress(FileNotFoundError):
                status = file.path.stat()
                changed = max(status.st_mtime_ns, status.st_ctime_ns)
                stamps[file.name.removeprefix("./")] = Stamp(status.st_size, status.st_mtime_ns, changed)
        return stamps

    def _iterate_files(self, real: Path) -> Iterator[SourceFile]:
        """Yield the files below the folder, and below folders elsewhere that links in it lead to.

        A link to one of its own folders, such as `latest`, brings nothing new.
        """
        yield from walk(self.folder, ".")
        for entry in sorted(self.folder.iterdir()):
            is_shown = entry.is_symlink() and not entry.name.startswith(".")
            if is_shown and entry.is_dir():
                target = entry.resolve()
                if not target.is_relative_to(real) and not real.is_relative_to(target):
                    yield from walk(target, f"./{entry.name}")

    @contextlib.contextmanager
    def open_files(self, names: Sequence[str]) -> Iterator[list[SourceFile]]:
        """Yield the files, archives unpacked."""
        with tempfile.TemporaryDirectory(prefix="chakra-studio-") as scratch:
            yield unpack_archives([SourceFile(name, self.folder / name) for name in names], Path(scratch))


class RemoteFolder:
    """A folder that fsspec reads, such as `s3://bucket/traces`."""

    def __init__(self, url: str) -> None:
        """Find out who reads such addresses.

        Raises:
            StudioError: fsspec, or what it needs for these addresses, is not installed, or nothing reads them.
        """
        try:
            fsspec = importlib.import_module("fsspec.core")
        except ImportError as error:
            raise StudioError(
                f"{url}: folders on other machines are read by fsspec, which is not installed.",
                hint="pip install 'chakra-studio[remote]'",
            ) from error
        self.name = url.rstrip("/")
        try:
            self._system, self._root = fsspec.url_to_fs(self.name)
        except ImportError as error:
            # fsspec names its own package for the place; what is missing may be a package that one needs.
            missing = getattr(error.__cause__ or error, "name", None)
            what = f"{error} ({missing} is not installed)" if missing else str(error)
            raise StudioError(
                f"{url}: {what}.", hint="Install the package named beside Chakra Studio, with pip."
            ) from error
        except Exception as error:
            raise _build_unreachable_error(url, error) from error

    def stamps(self) -> dict[str, Stamp]:
        """Return the files below the folder by name, hidden ones left out."""
        try:
            self._system.invalidate_cache()
            if not self._system.isdir(self._root):
                raise TraceError(f"{self.name}: no such folder, or nothing lies in it.", hint=_NO_FOLDER)
            listed: Mapping[str, Mapping[str, Any]] = self._system.find(self._root, detail=True)
        except StudioError:
            raise
        except Exception as error:
            # Each kind of place has errors of its own.
            raise _build_unreachable_error(self.name, error) from error
        root = self._root.rstrip("/") + "/"
        stamps = {}
        for path, details in listed.items():
            name = path.removeprefix(root)
            if details.get("type", "file") == "file" and not any(
                part.startswith(".") for part in name.split("/")
            ):
                stamps[name] = _build_stamp(details)
        return dict(sorted(stamps.items()))

    @contextlib.contextmanager
    def open_files(self, names: Sequence[str]) -> Iterator[list[SourceFile]]:
        """Yield copies of the files, archives unpacked."""
        root = self._root.rstrip("/")
        with tempfile.TemporaryDirectory(prefix="chakra-studio-") as scratch:
            files = []
            for number, name in enumerate(names):
                # Numbered: names from elsewhere are no paths of this machine.
                path = Path(scratch, str(number))
                try:
                    self._copy(f"{root}/{name}", path)
                except Exception as error:
                    if isinstance(error, OSError) and is_full(error):
                        raise StudioError(
                            f"{scratch}: the disk is full, {name} cannot be copied.", hint="Free some space."
                        ) from error
                    raise _build_unreachable_error(f"{self.name}/{name}", error) from error
                files.append(SourceFile(name, path))
            members = Path(scratch, "unpacked")
            yield unpack_archives(files, members)

    def _copy(self, source: str, target: Path) -> None:
        with self._system.open(source, "rb") as stream, open_private(target) as copy:
            while piece := stream.read(_PIECE_BYTES):
                copy.write(piece)


def open_place(folder: str, apart_from: Path | None = None) -> Place:
    """Return a folder by its path or address.

    Args:
        folder: The path or address.
        apart_from: A folder of this machine that does not count where it lies in it.

    Raises:
        StudioError: It is not there, or nothing here reads such addresses.
    """
    return RemoteFolder(folder) if "://" in folder else LocalFolder(Path(folder), apart_from)


def _build_stamp(known: Mapping[str, Any]) -> Stamp:
    """Return the stamp of a file as its place describes it; each kind of place has words of its own."""
    words = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
    moment = next((known[word] for word in words if known.get(word) is not None), None)
    modified = _parse_moment_ns(moment)
    tag = next(
        (str(known[word]) for word in ("ETag", "etag", "md5Hash", "generation") if known.get(word)), ""
    )
    return Stamp(int(known.get("size") or 0), modified, modified, tag)


def _parse_moment_ns(moment: Any) -> int:
    if isinstance(moment, str):
        with contextlib.suppress(ValueError):
            moment = dt.datetime.fromisoformat(moment)
    if isinstance(moment, dt.datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        moment = moment.timestamp()
    return int(float(moment) * 1e9) if isinstance(moment, int | float) else 0


def _build_unreachable_error(name: str, error: Exception) -> StudioError:
    what = " ".join(str(error).split()) or type(error).__name__
    hint = (
        _NO_CREDENTIALS if "credentials" in what else "Check the address, and that this account may read it."
    )
    return StudioError(f"{name}: it cannot be read: {what.rstrip('.')}.", hint=hint)
