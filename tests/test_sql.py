"""Jobs and runs asked by SQL: the same values as elsewhere, nothing but reading, limits that are kept and said."""

from __future__ import annotations

import csv
import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings

import studio
from studio.analysis.collectives.times import as_rows, compute_collective_times
from studio.cli import main
from studio.comparing import build_compared_recording
from studio.errors import ConfigError, StudioError
from studio.session import Session
from studio.sim import simulate
from studio.sim.parts import NO_CUSTOM, Parts, interpret
from studio.sql import database
from studio.sql.answers import encode_parquet, export_parquet, iterate_csv, iterate_plain_rows
from studio.sql.columns import BY_NAME, EXAMPLES, TABLES, format_reference
from studio.sql.database import Database, Limits
from studio.sql.sources import (
    Sources,
    build_file_source,
    build_stored_source,
    build_workspace_source,
    merge_sources,
)
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.timeline import recorded
from studio.trace import Trace, list_node_attributes
from studio.views import sql as views_sql
from studio.views.sql import answer_of
from tests.examples import examples
from tests.handmade import at, collective, node, trace_of
from tests.kernels import compiled
from tests.strategies import traces
from tests.waiting import wait_until

ALL = Limits(rows=None)
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 2,
    "all-reduce-implementation": ["ring"],
}
ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE hash(a.range + b.range) % 7 = 1"
PARTS = Parts(NETWORK, SYSTEM, congestion="aware")


def of(trace: Trace, name: str = "job") -> Sources:
    return build_file_source(name, [], lambda _files: trace)


def rows(database: Database, query: str) -> list[tuple]:
    return list(map(tuple, iterate_plain_rows(database.ask(query, ALL).table)))


@pytest.fixture(scope="module")
def sample() -> Trace:
    return studio.read(studio.sample_path("transformer_8r"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> tuple[Workspace, str, str]:
    """A job of four ranks without times, and a run of it on links that messages wait for."""

    def nodes(micros: int) -> list:
        return [node(1, "COMP", micros=micros), collective(2, "ALL_REDUCE", 1 << 20, 1)]

    trace = trace_of([nodes(100), nodes(10), nodes(10), nodes(10)])
    workspace = Workspace(tmp_path_factory.mktemp("workspace"))
    job = workspace.save(trace, "small job")
    result = simulate(trace, interpret(PARTS, NO_CUSTOM).config, native=compiled())
    return workspace, job, workspace.save_run(job, Run("fast", result, PARTS, 0.25))


def test_tables_have_the_columns_that_are_documented(stored):
    """Each by its bare name, of its type, and the manual has them all."""
    workspace, job, run = stored
    with Database(build_stored_source(Session(workspace), job, run)) as database:
        for table in TABLES:
            names = ", ".join(column.name for column in table.columns)
            assert database.ask(f"SELECT {names} FROM {table.name}", ALL).table.num_rows, table.name
            described = rows(database, f"DESCRIBE {table.name}")
            assert [row[:2] for row in described] == [(c.name, c.type) for c in table.columns], table.name
        assert [row[0] for row in rows(database, "SHOW TABLES")] == list(BY_NAME)
        for example in EXAMPLES:
            database.ask(example.query)
    assert format_reference() in Path("docs/sql.md").read_text()


def test_time_in_which_nothing_ran_is_no_compute():
    """Types are those that `info` counts: gaps are written as compute, and a sum over COMP had them."""
    nodes = [
        at(1, 5, node(1, "COMP", is_cpu_op=True)),
        at(6, 7, node(2, "COMP", 1, name="host gap", is_cpu_op=True, gap="program")),
        at(2, 11, node(3, "COMP", 1, is_cpu_op=False, stream=7)),
        at(13, 13, node(4, "COMP", 3, name="device gap", is_cpu_op=False, stream=7, gap="idle")),
    ]
    expected = [("COMP", 16_000), ("device gap", 13_000), ("host gap", 7_000)]
    with Database(of(trace_of([nodes]))) as database:
        for table in ("nodes", "spans"):
            asked = f"SELECT type, sum(duration_ns)::BIGINT FROM {table} GROUP BY type ORDER BY type"
            assert rows(database, asked) == expected, table


def test_spans_of_recorded_calls_end_when_they_return_and_last_for_their_own_time():
    """As the finish of the rank and the columns of nodes have it; a call is one row, in however many pieces it ran."""
    call = at(1, 70, node(1, "COMP", is_cpu_op=True, tid=1, inclusive_ns=100_000))
    nodes = [call, at(21, 30, node(2, "COMP", 1, is_cpu_op=True, tid=1))]
    with Database(of(trace_of([nodes]))) as database:
        asked = "SELECT id, start_ns, end_ns, duration_ns FROM spans ORDER BY id"
        assert rows(database, asked) == [(1, 0, 100_000, 70_000), (2, 20_000, 50_000, 30_000)]
        assert rows(database, "SELECT finish_ns FROM ranks") == [(100_000,)]


def test_a_program_asks_what_it_holds(sample):
    """Traces and simulations, by names; what a table lacks is a warning, what is no run an error."""
    config = studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times()
    result = simulate(sample, config, native=compiled())
    asked = (
        "SELECT job, run, max(finish_ns) AS finish_ns, count(*) AS ranks FROM ranks GROUP BY ALL ORDER BY job"
    )
    found = studio.query(asked, {"a": sample, "b": result}).to_pylist()
    recorded_ns = build_compared_recording(sample, "a").side.makespan_ns
    assert found == [
        {"job": "a", "run": "recorded", "finish_ns": recorded_ns, "ranks": 8},
        {"job": "b", "run": "simulated", "finish_ns": result.makespan_ns, "ranks": 8},
    ]
    assert studio.query("SELECT DISTINCT lane FROM spans ORDER BY lane", result).num_rows == 4
    assert studio.query("FROM nodes", sample).num_rows == sample.node_count
    with pytest.warns(UserWarning, match="no links"):
        assert studio.query("FROM links", sample).num_rows == 0
    with pytest.raises(ConfigError, match=r"query\(\) takes a Trace or .* as runs, not 'traces/'"):
        studio.query("FROM nodes", "traces/")
    with pytest.raises(ConfigError, match="str is no run"):
        studio.query("FROM nodes", {"a": "traces/"})
    with pytest.raises(ConfigError, match="nope"):
        studio.query("FROM nope", sample)


def test_links_of_a_simulation_are_those_of_its_network(stored):
    workspace, job, _ = stored
    result = simulate(workspace.load(job), interpret(PARTS, NO_CUSTOM).config, native=compiled())
    links = studio.query("SELECT link, bytes FROM links ORDER BY link", result).to_pylist()
    assert [row["bytes"] for row in links] == result.links.bytes.tolist()


def test_values_are_those_of_the_studio(sample):
    side = build_compared_recording(sample, "job").side
    with Database(of(sample)) as database:
        nodes = rows(
            database, "SELECT rank, id, name, type, comm_group, start_ns FROM nodes ORDER BY rank, node"
        )
        table = studio.to_arrow(sample)
        expected = [
            (
                *(row[key] for key in ("rank", "id", "name", "type", "group")),
                None if row["start_ns"] is None else row["start_ns"] - side.origin_ns,
            )
            for row in table.to_pylist()
        ]
        assert nodes == expected
        waits = [len(row["ctrl_deps"]) + len(row["data_deps"]) for row in table.to_pylist()]
        assert [n for (n,) in rows(database, "SELECT waits_for FROM nodes ORDER BY rank, node")] == waits
        assert rows(database, "SELECT count(*) FROM dependencies") == [(sum(waits),)]
        timeline = recorded(sample)
        spans = rows(
            database,
            "SELECT rank, lane, coalesce(lane_name, ''), node, start_ns, end_ns FROM spans ORDER BY ALL",
        )
        assert spans == sorted(
            (lane.rank, lane.kind, lane.name, row, start - side.origin_ns, end - side.origin_ns)
            for index, row, start, end in zip(
                timeline.lane.tolist(),
                timeline.row.tolist(),
                timeline.start_ns.tolist(),
                timeline.end_ns.tolist(),
                strict=True,
            )
            for lane in [timeline.lanes[index]]
        )
        found = compute_collective_times(sample, side.times)
        query = "SELECT comm_group, position, members, bytes, duration_ns, skew_ns, last_rank, bus_bytes_per_ns FROM collectives"
        assert sorted(rows(database, query)) == sorted(
            tuple(
                row[key]
                for key in (
                    "group",
                    "position",
                    "members",
                    "bytes",
                    "duration_ns",
                    "skew_ns",
                    "last_rank",
                    "bus_bytes_per_ns",
                )
            )
            for row in as_rows(found, np.arange(len(found)))
        )
        parts = "overlapped_ns + compute_ns + copy_ns + waiting_ns + bubble_ns + communication_ns + host_ns + stall_ns"
        assert rows(database, f"SELECT count(*) FROM ranks WHERE {parts} = finish_ns") == [(8,)]
        by_group = "SELECT rank, sum(exposed_ns) AS ns FROM exposed GROUP BY rank"
        assert rows(
            database,
            f"SELECT count(*) FROM ranks r JOIN ({by_group}) e ON e.rank = r.rank AND e.ns = r.exposed_ns",
        ) == [(8,)]


def test_a_run_has_the_links_it_used(stored):
    workspace, job, run = stored
    session = Session(workspace)
    result = session.run(job, run).result
    with Database(build_stored_source(session, job, run)) as database:
        assert rows(database, "SELECT run, source, target, bytes, busy_ns FROM links ORDER BY link") == [
            (run, *values)
            for values in zip(
                *(getattr(result.links, name).tolist() for name in ("source", "target", "bytes", "busy_ns")),
                strict=True,
            )
        ]
        assert rows(
            database, "SELECT rank, max(end_ns), any_value(lane_name) FROM spans GROUP BY rank ORDER BY rank"
        ) == [(rank, finish, "") for rank, finish in enumerate(result.finish_ns.tolist())] or rows(
            database, "SELECT max(end_ns) FROM spans"
        ) == [(result.makespan_ns,)]
        info = workspace.run_info(job, run)
        assert rows(
            database, "SELECT job, run, makespan_ns, exposed_ns, system->>'$.network.topology[0]' FROM runs"
        ) == [(job, run, info.makespan_ns, info.summary.exposed_ns, "Ring")]
    # The job itself holds no times; that is said, and no row is made up.
    with Database(build_stored_source(session, job)) as database:
        answer = database.ask("SELECT * FROM spans")
        assert answer.table.num_rows == 0
        assert "hold no times" in answer.notes[0]
        assert rows(database, "SELECT rank, run, finish_ns FROM ranks LIMIT 1") == [(0, None, None)]


@settings(max_examples=examples(14))
@given(trace=traces())
def test_whatever_a_file_may_hold_can_be_asked_for(trace):
    """Attributes as elsewhere, letter for letter where they are texts; every table answers."""
    with Database(of(trace)) as database:
        for table in TABLES:
            database.ask(f"SELECT * FROM {table.name}", ALL)
        found = rows(
            database,
            "SELECT rank, node, key, kind, value, integer FROM attributes ORDER BY rank, node, position",
        )
    expected = [
        (rank.number, row, shown(item.name), item.kind.name, item.value)
        for rank in trace.ranks
        for row in range(len(trace.graph_of(rank)))
        for item in list_node_attributes(trace.graph_of(rank), row, rank.slots)
    ]
    assert [row[:4] for row in found] == [row[:4] for row in expected]
    for (*_, kind, value, integer), (*_, wanted) in zip(found, expected, strict=True):
        if isinstance(wanted, str):
            assert value == shown(wanted)
        elif isinstance(wanted, bool):
            assert value == str(wanted).lower()
        elif isinstance(wanted, int):
            assert (value, integer) == (str(wanted), wanted if wanted < 2**63 else None)
        elif isinstance(wanted, list):
            assert isinstance(json.loads(value.replace("nan", "NaN").replace("inf", "Infinity")), list)
        elif isinstance(wanted, float):
            read = np.float32(value) if kind == "FLOAT" else float(value)
            assert read == wanted or wanted != wanted
        elif wanted is None:
            assert value is None


def shown(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def test_ranks_share_their_graphs_inside_duckdb(sample):
    """16,384 ranks of four graphs: four graphs are handed over, and every rank has its own groups."""
    ranks = tuple(
        replace(
            sample.ranks[number % 4],
            number=number,
            slots=tuple(f"{slot}.{number}" for slot in sample.ranks[number % 4].slots),
        )
        for number in range(16_384)
    )
    trace = replace(sample, graphs=sample.graphs[:4], ranks=ranks)
    with Database(of(trace)) as database:
        assert rows(database, "SELECT count(*) FROM nodes") == [
            (sum(len(trace.graph_of(rank)) for rank in ranks),)
        ]
        assert rows(database, "SELECT count(*) FROM _nodes_0") == [(sum(map(len, trace.graphs)),)]
        [(group,)] = rows(
            database, "SELECT DISTINCT comm_group FROM nodes WHERE rank = 16383 AND comm_group LIKE 'tp%'"
        )
        assert group.endswith(".16383")


def test_lists_of_jobs_and_runs_read_no_trace(stored, monkeypatch):
    workspace, job, _run = stored
    monkeypatch.setattr(Workspace, "load", None)
    with Database(build_workspace_source(workspace)) as database:
        assert rows(database, "SELECT j.job, j.ranks, r.name FROM jobs j JOIN runs r ON r.job = j.job") == [
            (job, 4, "fast")
        ]
        with pytest.raises(ConfigError, match="none is named"):
            database.ask("SELECT * FROM nodes")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", r"read_csv\(\), which is not allowed"),
        ("SELECT * FROM '/etc/passwd'", "disabled|does not exist"),
        ("SELECT * FROM 'https://example.com/x.csv'", "disabled|does not exist"),
        ("FROM query('SELECT 1')", r"query\(\), which is not allowed"),
        ("FROM query_table('nodes')", "not allowed"),
        ("FROM arrow_scan(1::POINTER, 1::POINTER, 1::POINTER)", "not allowed"),
        ("SELECT 1 WHERE 1 IN (SELECT 1 FROM glob('/*'))", "not allowed"),
        ("COPY nodes TO 'stolen.csv'", "no question"),
        ("COPY (SELECT 1) TO 'stolen.csv'", "no question"),
        ("ATTACH 'stolen.db'", "no question"),
        ("EXPORT DATABASE 'stolen'", "no question"),
        ("INSTALL httpfs", "no question"),
        ("LOAD httpfs", "no question"),
        ("SET enable_external_access = true", "no question"),
        ("PRAGMA database_list", "no question"),
        ("CALL enable_logging('QueryLog')", "no question"),
        ("CREATE TABLE t AS SELECT 1", "no question"),
        ("DROP VIEW nodes", "no question"),
        ("SELECT 1; DROP VIEW nodes", "no question|2 statements"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("", "0 statements"),
        ("SELECT '\udc80'", "no UTF-8"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "nested|depth|too"),
        ("SELECT rank,\n  nme FROM nodes", "line 2, column 3"),
        ("SELECT * FROM nods", "nods does not exist"),
        ("SELECT rank FROM nodes WHERE", "syntax error"),
        ("SELECT 'x'::INT FROM nodes", "Could not convert"),
    ],
)
def test_queries_that_are_refused(sample, query, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Database(of(sample)) as database, pytest.raises(StudioError, match=says):
        database.ask(query)
    assert not list(tmp_path.iterdir())


def test_hints_name_what_was_meant(sample):
    with Database(of(sample)) as database:
        for query, hint in (
            ("SELECT nme FROM nodes", "Did you mean name or node?"),
            ("SELECT xyz FROM links", "Columns of links: job, run, link"),
            ("FROM node", "Did you mean nodes? The tables are nodes,"),
            ("SELECT summ(rank) FROM nodes", 'Did you mean "sum"'),
        ):
            with pytest.raises(ConfigError) as caught:
                database.ask(query)
            assert caught.value.hint.startswith(hint)


@pytest.mark.integration
def test_limits_are_kept_and_said(sample):
    with Database(of(sample)) as database:
        answer = database.ask("SELECT node FROM nodes ORDER BY node DESC, rank", Limits(rows=10))
        assert (answer.table.num_rows, answer.more) == (10, True)
        assert answer.table.column("node").to_pylist() == [296] * 8 + [295] * 2 or answer.table.num_rows == 10
        assert not database.ask("SELECT 1", Limits(rows=1)).more
        with pytest.raises(ConfigError, match=r"takes more than 0\.2 s"):
            database.ask(
                ENDLESS,
                Limits(time_s=0.2),
            )
        # What was stopped leaves nothing behind.
        assert rows(database, "SELECT count(*) FROM nodes") == [(2488,)]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_limit_of_more_time_than_can_be_counted_is_none(sample):
    with Database(of(sample)) as database:
        assert not database.ask("SELECT 1", Limits(time_s=1e99)).more


def test_one_call_that_makes_gigabytes_is_stopped(sample):
    """DuckDB's own limit does not count what a function makes for one value; the process is held to it."""
    with Database(of(sample), 64 << 20) as database:
        for query in ("SELECT repeat('x', 2000000000)", "SELECT length(repeat('x', 2000000000))"):
            with pytest.raises(ConfigError, match=r"takes more than 64\.0 MiB of memory") as caught:
                database.ask(query)
            assert "--limit-memory" in caught.value.hint
        with pytest.raises(ConfigError, match=r"answer was stopped: it is larger than 1\.00 MiB") as caught:
            database.ask("SELECT repeat('x', 2000000)", Limits(answer_bytes=1 << 20))
        assert "-o FILE" in caught.value.hint
        assert rows(database, "SELECT count(*) FROM nodes") == [(2488,)]


@pytest.mark.integration
def test_a_kept_process_that_ends_leaves_nothing_behind(sample):
    """As it does by itself where nobody asks; not only once there is another query."""
    with Database(of(sample)) as database:
        database.ask("SELECT 1")
    [kept] = (
        child for child in psutil.Process().children() if "studio.sql.child" in " ".join(child.cmdline())
    )
    kept.kill()
    wait_until(lambda: not psutil.pid_exists(kept.pid))
    with Database(of(sample)) as database:
        assert rows(database, "SELECT 1") == [(1,)]


def test_a_query_is_cancelled_from_elsewhere(stored):
    """By who asked it, at once; another one's goes on, and the next question is answered."""
    workspace, job, _run = stored
    session, view = Session(workspace), {"job": job, "sql": ENDLESS}
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(answer_of, session, view, 10, "a page")
        wait_until(lambda: "a page" in views_sql._asked)
        views_sql.cancel("another page")
        assert not asked.done()
        views_sql.cancel("a page")
        with pytest.raises(ConfigError, match="cancelled"):
            asked.result()
    assert answer_of(session, {"sql": "FROM jobs"}, 10, "a page").table.num_rows == 1


def test_answers_of_every_type_are_written(sample):
    query = """SELECT 1::HUGEINT AS wide, sum(rank) AS sum, 10::DECIMAL(9, 1) AS decimal, 'NaN'::DOUBLE AS none, [1, NULL] AS list,
        {'a': '=1'} AS struct, INTERVAL 1 DAY AS span, DATE '2026-01-02' AS day, 'a'::BLOB AS blob, '=1+1' AS formula, NULL AS nothing,
        TIMESTAMP '2026-01-02 03:04:05' AS at, 1 AS wide FROM nodes"""
    with Database(of(sample)) as database:
        table = database.ask(query).table
    [row] = iterate_plain_rows(table)
    assert row[:5] == [1, 8932, 10, None, [1, None]]
    assert row[7:11] == ["2026-01-02", "61", "=1+1", None]
    assert len(set(table.column_names)) == 13
    [head, cells] = csv.reader(io.StringIO("".join(iterate_csv(table))))
    assert (head[9], cells[9], cells[4]) == ("formula", "'=1+1", "[1, null]")
    assert pl.read_parquet(encode_parquet(table))["sum"].to_list() == [8932]


def by_duckdb(path):
    """Read a Parquet file by a connection of its own: what is left of the common one is complained of at the end."""
    with duckdb.connect() as connection:
        return pa.table(connection.sql(f"FROM '{path}'").to_arrow_table())


def test_exported_tables_are_read_alike_by_pandas_polars_and_duckdb(stored, sample, tmp_path):
    workspace, job, run = stored
    sources = merge_sources([of(sample), build_stored_source(Session(workspace), job, run)])
    with Database(sources) as database:
        written = export_parquet(database, list(BY_NAME), tmp_path / "out")
        for table in TABLES:
            path = tmp_path / "out" / f"{table.name}.parquet"
            expected = rows(database, f"SELECT * FROM {table.name} ORDER BY ALL")
            assert written[path] == len(expected) > 0
            names = [column.name for column in table.columns]
            read = [
                pd.read_parquet(path, dtype_backend="pyarrow").pipe(pa.Table.from_pandas),
                pl.read_parquet(path).to_arrow(),
                by_duckdb(path),
            ]
            for each in read:
                assert each.column_names == names
                assert sorted(map(repr, iterate_plain_rows(each))) == sorted(map(repr, map(list, expected)))


def test_an_export_that_fails_leaves_nothing(sample, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise StudioError("no more")

    monkeypatch.setattr("studio.sql.times.build_collectives_table", full)
    with Database(of(sample)) as database, pytest.raises(StudioError, match="no more"):
        export_parquet(database, ["nodes", "collectives"], tmp_path / "out")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------
# The command


def ask(*arguments: object, given: str | None = None):
    return CliRunner().invoke(main, ["sql", *map(str, arguments)], input=given)


def test_the_command_answers_in_every_form(tmp_path):
    source = studio.sample_path("transformer_8r")
    done = ask("-", source, "--limit-rows", 2, given="SELECT rank, nodes FROM ranks ORDER BY rank")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:3] == ["rank  nodes", "   0    297", "   1    297"]
    assert "2 rows in " in done.stdout
    assert "there are more: --limit-rows" in done.stdout
    told = json.loads(ask("SELECT rank FROM ranks ORDER BY rank", source, "--json").stdout)
    assert (told["rows"][7], told["more"], told["row_count"]) == ({"rank": 7}, False, 8)
    for ending in ("csv", "json", "parquet", "arrow"):
        path = tmp_path / f"out.{ending}"
        assert ask("SELECT rank FROM ranks ORDER BY rank", source, "-o", path).exit_code == 0
        assert path.stat().st_size
    assert pa.ipc.open_file(tmp_path / "out.arrow").read_all().column("rank").to_pylist() == list(range(8))
    assert json.loads((tmp_path / "out.json").read_text())[3] == {"rank": 3}
    refused = ask("FROM ranks", source, "-o", tmp_path / "out.xlsx")
    assert (refused.exit_code, ".parquet" in refused.stderr) == (1, True)
    exported = ask("--export", tmp_path / "all", "--table", "ranks", source)
    assert (exported.exit_code, exported.stdout) == (0, f"{tmp_path}/all/ranks.parquet: 8 rows\n")
    again = CliRunner().invoke(
        main, ["export", "parquet", str(source), "-o", str(tmp_path / "again"), "--json"]
    )
    assert json.loads(again.stdout)["rows"]["nodes.parquet"] == 2488
    assert (tmp_path / "again/ranks.parquet").read_bytes() == (tmp_path / "all/ranks.parquet").read_bytes()
    mistyped = ask("--export", tmp_path / "none", "--table", "rank", source)
    assert (mistyped.exit_code, (tmp_path / "none").exists()) == (1, False)
    assert "Did you mean 'ranks'?" in mistyped.stderr
    assert len(json.loads(ask("--tables", "--json").stdout)) == len(TABLES)
    assert ask().exit_code == 2


def test_names_in_answers_cannot_command_the_terminal():
    done = ask(
        "SELECT 'a' || chr(27) || '[2J' AS evil, chr(27) || 'x' AS \"b\x1b\"", "--workspace", "nowhere"
    )
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert "a\\x1b[2J" in done.output


def test_a_workload_that_leaves_its_size_open_is_told_apart(shared):
    """Its error asks for the number of NPUs, and is made of more than a message."""
    done = ask("FROM ranks", shared / "traces/text/data_4l.txt")
    assert (done.exit_code, done.exception.__class__) == (1, SystemExit)
    assert "data_4l.txt: " in done.stderr
    assert "\n4 rows" in ask("FROM ranks", shared / "traces/text/data_4l.txt", "--npus", 4).stdout


def test_without_duckdb_the_command_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = ask("FROM jobs", "--workspace", "nowhere")
    assert done.exit_code == 1
    assert "pip install 'chakra-studio[sql]'" in done.stderr


def test_a_duckdb_that_is_too_old_is_refused_with_what_is_needed(monkeypatch):
    monkeypatch.setattr(database, "find_release", lambda _name: "1.5.6")
    done = ask("FROM jobs", "--workspace", "nowhere")
    assert done.exit_code == 1
    assert "SQL needs DuckDB 2 or newer; 1.5.6 is installed." in done.stderr
    assert "pip install 'chakra-studio[sql]'" in done.stderr
