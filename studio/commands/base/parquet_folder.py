"""Write the tables of jobs and runs into a folder as Parquet, and say what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from studio.commands.base.options import suggest
from studio.commands.base.queried import find_sources
from studio.commands.base.terminal import escape_controls
from studio.errors import ConfigError
from studio.sql.answers import export_parquet
from studio.sql.columns import BY_NAME
from studio.sql.database import Database
from studio.trace import Finding
from studio.units import format_counted

if TYPE_CHECKING:
    from studio.et import JobSize, Progress


@dataclass(frozen=True, slots=True)
class Tables:
    """A folder of tables that was written.

    Attributes:
        folder: Where it is.
        rows: How many rows each file has.
        notes: What a user should know of them, such as jobs without times.
        given: What the readers of files noticed.
    """

    folder: Path
    rows: Mapping[Path, int]
    notes: tuple[str, ...]
    given: tuple[Finding, ...]


def write_tables(
    names: Sequence[str],
    folder: Path,
    tables: Sequence[str],
    workspace: Path | None,
    ranks: Mapping[str, int],
    progress: Progress | None = None,
    size: JobSize | None = None,
    memory_bytes: int | None = None,
) -> Tables:
    """Write tables into a folder, `<table>.parquet` each, whole or not at all.

    Args:
        names: Jobs and runs, as `queried.find_sources` takes them; without any, the lists of the workspace are written.
        folder: Where to.
        tables: Which; all where none is named.
        workspace: Folder of imported jobs; None is the user's.
        ranks: Rank numbers by file name, for files that do not tell theirs.
        progress: Told how far it is.
        size: NPUs and passes, where a workload leaves them open; None where nothing is said.
        memory_bytes: Memory that sorting may take; None for a quarter of the machine's.

    Raises:
        ConfigError: There is no such table, or nothing is called so.
        StudioError: A job or run cannot be read, or DuckDB is not installed.
    """
    for table in tables:
        if table not in BY_NAME:
            near = suggest(table, BY_NAME).strip()
            hint = f"{near[:1].upper()}{near[1:]}" or f"The tables are {', '.join(BY_NAME)}."
            raise ConfigError(f"There is no table {table[:80]!r}", hint=hint)
    findings: list[Finding] = []
    sources = find_sources(names, workspace, ranks, progress, findings, size)
    chosen = tables or [name for name, table in BY_NAME.items() if sources.jobs or table.of == "workspace"]
    with Database(sources, memory_bytes) as database:
        rows = export_parquet(database, list(dict.fromkeys(chosen)), folder, progress)
        notes = database.notes
    return Tables(folder, rows, notes, tuple(findings))


def report(tables: Tables) -> dict[str, Any]:
    """Return what was written as plain data."""
    rows = {path.name: count for path, count in tables.rows.items()}
    return {"folder": str(tables.folder), "rows": rows, "notes": list(tables.notes)}


def text(tables: Tables) -> str:
    """Say what was written."""
    lines = [f"{path}: {format_counted(count, 'row')}" for path, count in tables.rows.items()]
    return "\n".join(escape_controls(line) for line in [*lines, *(f"Note: {note}" for note in tables.notes)])
