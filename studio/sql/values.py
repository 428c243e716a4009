"""Ask traces and simulations that a program holds, as a notebook does."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from studio.errors import ConfigError
from studio.sql.database import TIME_S, Database, Limits
from studio.sql.sources import Sources, build_file_source, build_result_source, merge_sources
from studio.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

    from studio.sim.result import SimResult

ONE = "job"
"""What the column `job` says where one trace or simulation is asked, without a name."""


def query(
    question: str,
    runs: Trace | SimResult | Mapping[str, Trace | SimResult],
    *,
    time_s: float = TIME_S,
    memory_bytes: int | None = None,
) -> pa.Table:
    """Ask a trace or a simulation by SQL, as `chakra-studio sql` does; needs `chakra-studio[sql]`.

    The tables and their units are those of docs/sql.md, among them nodes, attributes, spans, collectives, exposed, ranks and
    links. A trace has the run `recorded`, a simulation `simulated`. What a table lacks is said as a warning.

    Args:
        question: A query in the SQL of DuckDB.
        runs: What it is asked of; several by the names that the column `job` has for them.
        time_s: Most seconds of the query.
        memory_bytes: Memory that the query may take; None for a quarter of the machine's.

    Returns:
        All rows; `.to_pandas()` makes a DataFrame of them.

    Raises:
        ConfigError: It is no query, names what there is not, or takes more than it may; or `runs` is no run.
        StudioError: DuckDB is not installed.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> question = "SELECT rank, comm_group, type, exposed_ns FROM exposed ORDER BY exposed_ns DESC LIMIT 1"
        >>> studio.query(question, trace).to_pylist()
        [{'rank': 6, 'comm_group': 'world', 'type': 'ALL_REDUCE', 'exposed_ns': 7457000}]
    """
    # A number that is none is above nothing.
    for key, most in (("time_s", time_s), ("memory_bytes", memory_bytes)):
        if most is not None and not most > 0:
            raise ConfigError(f"{key} is {most}; allowed: a number above 0", key=key)
    named = runs if isinstance(runs, Mapping) else {ONE: runs}
    sources = merge_sources([_build_source(str(name), run) for name, run in named.items()])
    with Database(sources, memory_bytes) as database:
        answer = database.ask(question, Limits(None, time_s, None))
    for note in answer.notes:
        warnings.warn(note, stacklevel=2)
    return answer.table


def _build_source(name: str, run: Any) -> Sources:
    from studio.sim.result import SimResult

    if isinstance(run, Trace):
        return build_file_source(name, (), lambda _files: run)
    if isinstance(run, SimResult):
        return build_result_source(name, run)
    raise ConfigError(
        f"{type(run).__name__} is no run; allowed: a trace, a simulation, or several of them by name",
        hint='For example studio.query("FROM ranks", {"now": trace, "faster": result}).',
    )
