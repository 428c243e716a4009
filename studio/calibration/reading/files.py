"""Measured tables from files of any kind that holds some; content decides which kind a file is."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from studio.calibration.reading.benchmarks import is_benchmark, read_benchmarks
from studio.calibration.reading.csv_tables import is_csv, read_csv_tables
from studio.calibration.reading.given import Given, Tables
from studio.calibration.reading.lines import decode
from studio.calibration.reading.recorded import read_recorded
from studio.calibration.tables import MeasuredTable
from studio.errors import TraceFormatError
from studio.et import Progress, discover, read_job
from studio.et.job_files import recognise
from studio.et.source import SourceFile, open_sources, read_head
from studio.files import open_file
from studio.units import format_counted

_LARGEST = 64 << 20
_LARGEST_TEXT = "64 MiB"
_EXPECTED = "Expected the output of nccl-tests or rccl-tests, a CSV file with columns for size and time, or a recorded job."


def read_tables(
    paths: Sequence[Path | str], given: Given | None = None, *, progress: Progress | None = None
) -> Tables:
    """Read the measured tables of files, folders and archives.

    Args:
        paths: Outputs of nccl-tests and rccl-tests, CSV files, and recorded jobs, in any mixture.
        given: What tables do not say themselves.
        progress: Told how far reading a recorded job is.

    Raises:
        StudioError: A file holds no tables, or wrong values, or does not say what the tables are of.
    """
    facts = given or Given()
    parts: list[Tables] = []
    recordings: list[SourceFile] = []
    unknown: list[str] = []
    with open_sources(paths) as files:
        for file in files:
            tables, known = _read_tables(file, facts)
            if tables is not None:
                parts.append(tables)
            elif known:
                recordings.append(file)
            elif file.named:
                raise TraceFormatError(f"{file.name}: no measured times.", hint=_EXPECTED)
            else:
                unknown.append(file.name)
        if recordings:
            parts += [
                read_recorded(job.name, read_job(job, progress=progress), facts)
                for job in discover(recordings)
            ]
    if not parts:
        raise TraceFormatError(f"{_format_first(unknown)}: no measured times.", hint=_EXPECTED)
    notes = [note for tables in parts for note in tables.notes]
    if unknown:
        notes.append(
            f"{format_counted(len(unknown), 'file')} without measured times left out: {_format_first(unknown)}."
        )
    return Tables(join_tables(parts).tables, tuple(notes))


def join_tables(parts: Sequence[Tables]) -> Tables:
    """Return tables that were read one after another as one set, each with a name that no other has."""
    tables = [table for part in parts for table in part.tables]
    return Tables(tuple(_with_own_names(tables)), tuple(note for part in parts for note in part.notes))


def is_text(start: bytes) -> bool:
    """Whether a file that begins so is a text, as far as that tells."""
    return b"\0" not in start or start.startswith((b"\xff\xfe", b"\xfe\xff"))


def _format_first(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")


def _read_tables(file: SourceFile, given: Given) -> tuple[Tables | None, bool]:
    """Return the tables of a file, and whether it may be part of a recorded job instead."""
    if file.problem:
        raise TraceFormatError(f"{file.name}: {file.problem}.", hint="Copy the file again, or leave it out.")
    reader = _choose_reader(decode(read_head(file)))
    # Long warnings of libraries may stand before a table.
    if reader is None and recognise(read_head(file)) is not None:
        return None, True
    if reader is None and not is_text(read_head(file)):
        return None, False
    text = decode(_read_content(file))
    reader = reader or _choose_reader(text)
    return (None, False) if reader is None else (reader(file.name, text, given), False)


def _choose_reader(text: str) -> Callable[[str, str, Given], Tables] | None:
    if is_benchmark(text):
        return read_benchmarks
    return read_csv_tables if is_csv(text) else None


def _read_content(file: SourceFile) -> bytes:
    try:
        with open_file(file.path) as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            with gzip.open(raw) if packed else raw as stream:
                data: bytes = stream.read(_LARGEST + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceFormatError(
            f"{file.name}: damaged gzip: {error}.", hint="Make or copy the file again."
        ) from error
    if len(data) > _LARGEST:
        raise TraceFormatError(
            f"{file.name}: more than {_LARGEST_TEXT}; allowed: {_LARGEST_TEXT} of text",
            hint="Cut the log down to its tables, or give a file for each.",
        )
    return data


def _with_own_names(tables: Sequence[MeasuredTable]) -> list[MeasuredTable]:
    """Return the tables, each with a name that no other has."""
    seen: Counter[str] = Counter()
    used = {table.table_id for table in tables}
    named = []
    for table in tables:
        name = table.table_id
        seen[name] += 1
        if seen[name] > 1:
            name = next(free for number in count(seen[name]) if (free := f"{name}_{number}") not in used)
            used.add(name)
        named.append(table if name == table.table_id else replace(table, table_id=name))
    return named
