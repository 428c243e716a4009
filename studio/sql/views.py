"""Make the tables that queries name: what they are made of is handed to DuckDB once, and joined there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from studio.sql.arrow_columns import clean_utf8
from studio.sql.columns import BY_NAME
from studio.sql.graphs import (
    build_attributes_table,
    build_dependencies_table,
    build_nodes_table,
    build_ranks_table,
    build_slots_table,
)
from studio.sql.joins import NEEDS, OF_JOB, RANK, SPANS
from studio.sql.sources import JobSource, RunSource, Sources
from studio.sql.stored import build_jobs_table, build_runs_table
from studio.store.job_infos import JobInfo
from studio.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

    from studio.analysis.job.ledger import Ledger

_OF_TRACES: Mapping[str, Callable[[Trace], pa.Table]] = {
    "ranks": build_ranks_table,
    "slots": build_slots_table,
    "nodes": build_nodes_table,
    "attributes": build_attributes_table,
    "dependencies": build_dependencies_table,
}
_PART_COLUMNS = tuple(column.name for column in BY_NAME["ranks"].columns if column.name.endswith("_ns"))
"""Columns of `ranks` that need times."""
_NO_LINKS = "its network has no links that messages wait for"
_NO_TIMES = "the files hold no times"


class _Connection(Protocol):
    """What makes tables of Arrow known to DuckDB, and views."""

    def register(self, name: str, table: pa.Table) -> None: ...

    def execute(self, query: str) -> None: ...


class Views:
    """The tables of a connection, each made when it is asked for first.

    Attributes:
        names: Names of those that are there.
        notes: What a user should know of each of them, such as jobs without times.
    """

    def __init__(self, connection: _Connection, sources: Sources) -> None:
        self._connection = connection
        self._sources = sources
        self._parts: set[str] = set()
        self.names: set[str] = set()
        self.notes: dict[str, list[str]] = {}

    def make(self, name: str) -> None:
        """Make a table, if it is not there.

        Raises:
            StudioError: What it is made of cannot be read.
        """
        if name in self.names:
            return
        # Without rows, and with the columns, where nothing named has some.
        text = " UNION ALL ".join(self._iterate_queries(name)) or _build_empty_query(name)
        self._connection.execute(f"CREATE VIEW {name} AS {text}")
        self.names.add(name)

    @cached_property
    def _jobs(self) -> list[JobInfo]:
        """The jobs of the workspace that are listed."""
        return self._sources.job_infos()

    def _iterate_queries(self, name: str) -> Iterator[str]:
        """Yield the queries whose rows a table has."""
        if BY_NAME[name].of == "workspace":
            yield self._build_list_query(name)
        elif name in OF_JOB:
            for job in self._sources.jobs:
                parts = self._put_job_parts(name, job)
                yield from (text.format(job=_quote(job.label), **parts) for text in OF_JOB[name])
        else:
            yield from self._iterate_run_queries(name)

    def _build_list_query(self, name: str) -> str:
        if name == "runs":
            self._put("_runs", lambda: build_runs_table(self._sources.run_infos(self._jobs)))
        else:
            read = [job for job in self._sources.jobs if job.info is None]
            self._put("_jobs", lambda: build_jobs_table(self._sources.count_again(self._jobs), read))
        # Seconds since the epoch become times of the calendar.
        return f"SELECT * REPLACE (make_timestamp((created * 1000000)::BIGINT) AS created) FROM _{name}"

    def _put_job_parts(self, name: str, job: JobSource) -> dict[str, str]:
        """Make what a table needs of a job; returns how it is called, by part."""
        number = self._sources.jobs.index(job)
        parts = {part: f"_{part}_{number}" for part in NEEDS[name]}
        for part, called in parts.items():
            self._put(called, lambda part=part: job.keep(part, lambda: _OF_TRACES[part](job.trace())))  # type: ignore[misc]
        return parts

    def _iterate_run_queries(self, name: str) -> Iterator[str]:
        # Only runs need the analyses behind it.
        from studio.sql.times import has_times

        timed = set[str]()
        for number, run in enumerate(self._sources.runs):
            if not has_times(run):
                if name != "ranks":
                    self._note(name, f"{run.job.label}: {_NO_TIMES}, so {name} has no rows of it.")
                continue
            timed.add(run.job.label)
            if name == "spans":
                yield from self._build_span_queries(number, run)
            elif name == "ranks":
                yield self._build_rank_query(number, run)
            elif self._put_run_table(f"_{name}_of_{number}", name, run):
                own = ", ".join(column.name for column in BY_NAME[name].columns[2:])
                yield f"SELECT {_format_labels(run)}, {own} FROM _{name}_of_{number}"
            else:
                self._note(name, f"{run.job.label}, {run.label}: {_NO_LINKS}, so {name} has no rows of it.")
        if name == "ranks":
            yield from (
                self._build_untimed_query(job) for job in self._sources.jobs if job.label not in timed
            )

    def _put_run_table(self, called: str, name: str, run: RunSource) -> bool:
        """Make a table of a run; returns whether there is one."""
        from studio.sql.times import build_collectives_table, build_exposed_table, build_links_table

        if name == "links":
            links = run.keep("links", lambda: build_links_table(run))
            if links is None:
                return False
            self._put(called, lambda: links)
        elif name == "collectives":
            self._put(called, lambda: run.keep("collectives", lambda: build_collectives_table(run.side())))
        else:
            self._put(
                called, lambda: run.keep("exposed", lambda: build_exposed_table(run.side(), _get_ledger(run)))
            )
        return True

    def _build_span_queries(self, number: int, run: RunSource) -> list[str]:
        from studio.sql.times import build_timed_table, build_times_table

        own = {part: f"_{part}_of_{number}" for part in ("timed", "times")}
        self._put(own["timed"], lambda: run.keep("timed", lambda: build_timed_table(run.side())))
        self._put(own["times"], lambda: run.keep("times", lambda: build_times_table(run.side())))
        lane = {"lane": "lane", "lane_name": "NULL"}
        if run.result is None:
            lane = {"lane": "recorded_lane", "lane_name": "n.lane_name"}
        labels = {"job": _quote(run.job.label), "run": _quote(run.label)}
        parts = self._put_job_parts("spans", run.job)
        return [text.format(**labels, **parts, **own, **lane) for text in SPANS]

    def _build_rank_query(self, number: int, run: RunSource) -> str:
        from studio.sql.times import build_parts_table

        called, ranks = f"_ranks_of_{number}", self._put_job_parts("ranks", run.job)["ranks"]
        self._put(called, lambda: run.keep("parts", lambda: build_parts_table(_get_ledger(run))))
        figures = ", ".join(f"p.{column}" for column in _PART_COLUMNS)
        joined = f"{ranks} r LEFT JOIN {called} p ON p.place = r.place"
        return f"SELECT {_format_labels(run)}, {RANK}, {figures} FROM {joined}"

    def _build_untimed_query(self, job: JobSource) -> str:
        ranks = self._put_job_parts("ranks", job)["ranks"]
        figures = ", ".join(f"NULL::BIGINT AS {column}" for column in _PART_COLUMNS)
        return f"SELECT {_quote(job.label)} AS job, NULL::VARCHAR AS run, {RANK}, {figures} FROM {ranks} r"

    def _note(self, name: str, text: str) -> None:
        self.notes.setdefault(name, []).append(text)

    def _put(self, name: str, make: Callable[[], pa.Table]) -> None:
        """Hand an Arrow table to DuckDB under a name, once."""
        if name not in self._parts:
            self._connection.register(name, make())
            self._parts.add(name)


def _get_ledger(run: RunSource) -> Ledger:
    """Return where the time of the ranks of a run went."""

    def make() -> Ledger:
        return run.side().side.ledger()

    known: Ledger = run.keep("account", make)
    return known


def _format_labels(run: RunSource) -> str:
    return f"{_quote(run.job.label)} AS job, {_quote(run.label)} AS run"


def _build_empty_query(name: str) -> str:
    """Return a query without rows and with the columns of a table."""
    columns = ", ".join(f"NULL::{column.type} AS {column.name}" for column in BY_NAME[name].columns)
    return f"SELECT {columns} WHERE false"


def _quote(text: str) -> str:
    """Return a text as a constant of SQL."""
    return "'" + clean_utf8(text).replace("'", "''") + "'"
