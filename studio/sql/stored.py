"""Make the lists of jobs and runs: of their entries in the workspace alone, so that a thousand jobs are listed at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from studio.analysis.job.completeness import infer_completeness
from studio.analysis.job.summary import Summary, summarise
from studio.arrow import convert_optional_numbers, convert_optional_texts
from studio.sql.arrow_columns import build_table, clean_utf8
from studio.sql.columns import BY_NAME, Table
from studio.sql.sources import JobSource
from studio.store.job_infos import JobInfo
from studio.store.run_infos import RunInfo
from studio.trace import NONE

if TYPE_CHECKING:
    import pyarrow as pa


def build_jobs_table(infos: Sequence[JobInfo], read: Sequence[JobSource]) -> pa.Table:
    """Return jobs of the workspace, and those that were read from files."""
    rows = [_build_stored_row(info) for info in infos]
    rows += [
        {"job": job.label, "name": job.label, "source": job.label, **_build_trace_row(job)} for job in read
    ]
    return _build_table(BY_NAME["jobs"], rows)


def _build_stored_row(info: JobInfo) -> dict[str, Any]:
    return {
        "job": info.id,
        "name": info.name,
        "created": info.created,
        "source": info.source,
        "world": info.world,
        "errors": info.errors,
        "warnings": info.warnings,
        "runs": info.runs,
        "stored_bytes": info.stored_bytes,
        "runs_bytes": info.runs_bytes,
        **_build_summary_columns(info.summary),
    }


def _build_trace_row(job: JobSource) -> dict[str, Any]:
    trace = job.trace()
    levels = [finding.level for finding in trace.findings]
    whole = infer_completeness(trace)
    world = 0 if whole.is_whole else NONE if whole.is_open else whole.world
    counts = {"world": world, "errors": levels.count("error"), "warnings": levels.count("warning"), "runs": 0}
    return counts | _build_summary_columns(summarise(trace))


def _build_summary_columns(summary: Summary) -> dict[str, Any]:
    return {
        "ranks": summary.ranks,
        "graphs": summary.graphs,
        "nodes": summary.nodes,
        "timed_nodes": summary.timed_nodes,
        "control_dependencies": summary.control_dependencies,
        "data_dependencies": summary.data_dependencies,
        "operations": summary.operations,
        "comm_bytes": sum(share.bytes for share in summary.collectives),
        "recorded_ns": summary.end_ns - summary.start_ns if summary.timed_nodes else None,
        "duration_ns": summary.duration_ns,
        "schema": ", ".join(summary.schema),
    }


def build_runs_table(infos: Sequence[RunInfo]) -> pa.Table:
    """Return runs of the workspace."""
    return _build_table(BY_NAME["runs"], [_run(info) for info in infos])


def _run(info: RunInfo) -> dict[str, Any]:
    means: Mapping[str, float] = info.summary.means
    parts = {name: means.get(name) for name in (column.name for column in BY_NAME["runs"].columns)}
    return {
        **{name: value for name, value in parts.items() if value is not None},
        "exposed_ns": means.get("exposed_communication_ns"),
        "communication_ns": None,
        "job": info.job,
        "run": info.id,
        "name": info.name,
        "created": info.created,
        "model": info.model,
        "mode": info.mode,
        "congestion": info.congestion,
        "npus": info.npus,
        "simulated": info.simulated,
        "makespan_ns": info.makespan_ns,
        "first_finish_ns": info.summary.first_finish_ns,
        "events": info.summary.events,
        "spent_s": info.spent_s,
        "stored_bytes": info.stored_bytes,
        "doubts": len(info.doubts),
        "assumed": info.assumed or None,
        "system": json.dumps(msgspec.to_builtins(info.tables, str_keys=True)),
        "trace_hash": info.trace_hash,
        "config_hash": info.config_hash,
        "version": info.version,
    }


def _build_table(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as columns of the types that the table of columns gives."""
    columns = {}
    for column in table.columns:
        values = [row.get(column.name) for row in rows]
        if column.type == "VARCHAR":
            columns[column.name] = convert_optional_texts(
                [None if value is None else clean_utf8(value) for value in values]
            )
        else:
            # Dates travel as seconds; the view makes them times of the calendar.
            whole = column.type == "BIGINT"
            fitting = [_fit_integer(value) if whole else value for value in values]
            columns[column.name] = convert_optional_numbers(fitting, whole=whole)
    return build_table(**columns)


def _fit_integer(value: int | None) -> int | None:
    """Return a whole number if 64 bits hold it: sums over ranks of what files claim may be larger."""
    return value if value is not None and -(2**63) <= value < 2**63 else None
