"""Measured tables that are kept in the workspace, and system files that were calibrated to some."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from studio.calibration.reading.csv_tables import write_csv
from studio.calibration.reading.files import is_text, join_tables, read_tables
from studio.calibration.reading.given import Given, Tables
from studio.errors import ConfigError, StudioError
from studio.et.job_files import recognise
from studio.et.source import SourceFile, read_head
from studio.sim.systems import is_system_file, read_system
from studio.store.durable_files import write_atomically

_FOLDER = "measured"


@dataclass(frozen=True, slots=True)
class Added:
    """Tables and systems that were kept of uploaded files, and files that were refused.

    Attributes:
        tables: The name of the set of tables, "" where there was none.
        systems: Names of the system files that were kept.
        notes: What was noticed.
        refused: Why other files were not kept, an error for each.
    """

    tables: str
    systems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[StudioError, ...] = ()


class Shelf:
    """The measured tables and system files of a workspace, files in one folder of it."""

    def __init__(self, root: Path) -> None:
        self.folder = root / _FOLDER

    def tables(self) -> list[str]:
        """Return the names of kept tables."""
        return sorted(path.stem for path in self.folder.glob("*.csv"))

    def systems(self) -> list[str]:
        """Return the names of kept system files."""
        return sorted(path.stem for path in self.folder.glob("*.yml"))

    def read(self, name: str) -> Tables:
        """Read kept tables.

        Raises:
            StudioError: There are none of this name, or they cannot be read.
        """
        return read_tables([self._find_path(name, ".csv")])

    def system_path(self, name: str) -> Path:
        """Return the path of a kept system file.

        Raises:
            ConfigError: There is none of this name.
        """
        return self._find_path(name, ".yml")

    def keep(self, files: Mapping[str, bytes], given: Given) -> Added:
        """Keep files: measured tables as one set, system files each by its name; those that are neither are refused.

        Args:
            files: Contents by name.
            given: What tables do not say themselves.

        Raises:
            StudioError: The workspace cannot be written.
        """
        with TemporaryDirectory(prefix="chakra-studio-") as scratch:
            paths: list[Path] = []
            for name, content in files.items():
                # A recorded job is called as its folder is.
                folders = (
                    Path(scratch, f"recording {number}" if number else "recording") for number in count()
                )
                places = (folder / _clean_name(name, keep_ending=True) for folder in folders)
                path = next(place for place in places if place not in paths)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
                paths.append(path)
            systems, refused = _check_systems(path for path in paths if is_system_file(path))
            measured, read, bad = _read_readable([path for path in paths if not is_system_file(path)], given)
            for path in systems:
                self._write(f"{_clean_name(path.stem)}.yml", path.read_text(encoding="utf-8"))
        name = _clean_name(measured[0].stem) if measured else ""
        if name:
            self._write(f"{name}.csv", write_csv(read.tables))
        return Added(name, tuple(_clean_name(path.stem) for path in systems), read.notes, (*refused, *bad))

    def delete(self, name: str) -> None:
        """Delete kept tables."""
        self._find_path(name, ".csv").unlink()

    def _write(self, name: str, text: str) -> None:
        with write_atomically(self.folder / name, "the workspace") as stream:
            stream.write(text)

    def _find_path(self, name: str, ending: str) -> Path:
        path = self.folder / f"{_clean_name(name)}{ending}"
        if not name or not path.is_file():
            raise ConfigError(
                f"There are no measured tables {name[:80]!r} in the workspace"
                if ending == ".csv"
                else f"There is no system {name[:80]!r} in the workspace",
                hint="Choose the file again.",
            )
        return path


def _check_systems(paths: Iterable[Path]) -> tuple[list[Path], list[StudioError]]:
    """Return the system files that can be read, and why others cannot."""
    good, refused = [], []
    for path in paths:
        try:
            read_system(path, path.name)
        except StudioError as error:
            refused.append(error)
        else:
            good.append(path)
    return good, refused


def _read_readable(paths: Sequence[Path], given: Given) -> tuple[list[Path], Tables, list[StudioError]]:
    """Return the files that can be read, their tables, and why other files cannot.

    Each text is read by itself, once. Files of recorded jobs and archives, which may hold such files, are read together.
    """
    texts = [path for path in paths if _is_table(path)]
    others = [path for path in paths if path not in texts]
    good: list[Path] = []
    tables: list[Tables] = []
    refused: list[StudioError] = []

    def read(part: list[Path]) -> None:
        try:
            tables.append(read_tables(part, given))
            good.extend(part)
        except StudioError as error:
            recorded = [path for path in part if recognise(_read_start(path)) is not None]
            if recorded == part or len(part) == 1:
                refused.append(error)
                return
            for archive in part:
                if archive not in recorded:
                    read([archive])
            if recorded:
                read(recorded)

    for part in [*([path] for path in texts), others]:
        if part:
            read(part)
    return sorted(good, key=paths.index), join_tables(tables), refused


def _is_table(path: Path) -> bool:
    start = _read_start(path)
    return is_text(start) and recognise(start) is None


def _read_start(path: Path) -> bytes:
    return read_head(SourceFile(path.name, path))


def _clean_name(name: str, *, keep_ending: bool = False) -> str:
    """Return a name that is safe as a file's."""
    allowed = r"[^\w.-]+" if keep_ending else r"[^\w-]+"
    return re.sub(allowed, "_", name).strip("._")[:80] or "tables"
