"""Logs of NCCL's Inspector: as a job with lanes, and as measured collectives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import studio
from studio.analysis.job.completeness import infer_completeness
from studio.calibration.reading.files import read_tables
from studio.calibration.reading.given import Given
from studio.cli import main
from studio.errors import TraceFormatError
from studio.trace import list_node_attributes
from tests.inspector_logs import DUMPED_US, four_ranks, record, write_logs


def test_processes_are_the_ranks_of_one_job_whatever_their_files_are_called(tmp_path: Path):
    trace = studio.read(write_logs(tmp_path / "logs", four_ranks()))
    assert [rank.number for rank in trace.ranks] == [0, 1, 2, 3]
    assert [group.ranks for group in trace.groups] == [(0, 1, 2, 3)]
    assert not [one for one in studio.examine(trace) if one.level == "error"]
    graph = trace.graph_of(1)
    told = {attr.name: attr.value for attr in list_node_attributes(graph, 2, trace.known_rank(1).slots)}
    # Of a reduce-scatter NCCL counts what a rank gets, Chakra what it gives.
    assert (graph.strings[int(graph.name[2])], told["comm_size"]) == ("ReduceScatter", 4 << 16)


def test_the_log_of_one_process_tells_how_many_ranks_there_are(tmp_path: Path):
    trace = studio.read(write_logs(tmp_path / "logs", four_ranks()[2:3]))
    assert (infer_completeness(trace).known, infer_completeness(trace).world) == ((2,), 4)
    assert [(group.ranks, group.inferred) for group in trace.groups] == [((0, 1, 2, 3), False)]


def test_lanes_hold_what_was_measured_and_do_not_overlap(tmp_path: Path):
    """Lines of one dump carry its time; a communicator does one collective after the other."""
    trace = studio.read(write_logs(tmp_path / "logs", four_ranks()))
    graph = trace.graph_of(0)
    ends = graph.start_ns + graph.duration_ns
    assert (graph.start_ns[1:] >= ends[:-1]).all()
    assert int(ends[-1]) == DUMPED_US * 1000
    assert graph.duration_ns.tolist()[:3] == [16_000, 32_000, 48_000]
    assert "times-bounded" in {finding.code for finding in trace.findings}


def test_times_that_the_recorder_wrote_count(tmp_path: Path):
    """The verbose example of the Inspector's README: the call on the host takes 5 µs, the kernels run for 41 ms after it."""
    called = {"coll_start_ts": 1752867229235059, "coll_stop_ts": 1752867229235064}
    ran = {"channel_id": 0, "kernel_start_ts": 1752867229235181, "kernel_stop_ts": 1752867229275811}
    lines = [
        record(
            0,
            1231,
            "ReduceScatter",
            took_us=41057,
            ranks=2,
            event_trace_ts={**called, "kernel_events": events},
        )
        for events in ([ran], [])
    ]
    trace = studio.read(write_logs(tmp_path / "logs", [lines]))
    graph = trace.graph_of(0)
    ends = graph.start_ns + graph.duration_ns
    # Without times of kernels it is known to have begun after the call.
    assert sorted(ends.tolist()) == [1752867229275811_000, (1752867229235064 + 41057) * 1000]
    assert "times-bounded" not in {finding.code for finding in trace.findings}


def test_a_line_before_those_of_a_communicator_speaks_for_all_of_them(tmp_path: Path):
    """Version 4.3 of the layout, by the README and json.cc of NVIDIA/nccl, ext-profiler/inspector."""
    logs = four_ranks()
    for rank, records in enumerate(logs):
        stats = {"coll_records": len(records), "coll_dropped_since_last_dump": rank, "proxy_records": 1}
        marker = {key: records[0][key] for key in ("header", "metadata")} | {"dump_stats": stats}
        logs[rank] = [
            marker,
            *({"coll_perf": each["coll_perf"]} for each in records),
            {"proxy_trace": {"rank": rank}},
        ]
    trace = studio.read(write_logs(tmp_path / "new", logs))
    before = studio.read(write_logs(tmp_path / "old", four_ranks()))
    assert [(g.start_ns.tolist(), g.duration_ns.tolist()) for g in trace.graphs] == [
        (g.start_ns.tolist(), g.duration_ns.tolist()) for g in before.graphs
    ]
    assert [group.ranks for group in trace.groups] == [(0, 1, 2, 3)]
    said = [finding.message for finding in trace.findings if finding.code == "left-out"]
    assert sum("overwrote" in each for each in said) == 3
    assert sum("proxies" in each for each in said) == 4


@pytest.mark.parametrize("together", [False, True])
def test_calibrate_takes_them_with_the_shape_they_tell(tmp_path: Path, together: bool):
    """The shortest member counts, sizes are those of the whole buffer, and GPUs of a node come from the communicator."""
    folder = write_logs(tmp_path / "logs", four_ranks())
    if together:
        whole = "".join(path.read_text() for path in sorted(folder.iterdir()))
        folder = tmp_path / "all.jsonl"
        folder.write_text(whole)
    tables = {table.collective: table for table in read_tables([folder]).tables}
    assert {(table.gpus_per_node, table.nodes) for table in tables.values()} == {(2, 2)}
    assert tables["all_reduce"].size_bytes.tolist() == [1 << 16, 1 << 20, 1 << 24]
    assert tables["all_gather"].size_bytes.tolist() == [4 << 16, 4 << 20, 4 << 24]
    assert tables["reduce_scatter"].size_bytes.tolist() == [4 << 16, 4 << 20, 4 << 24]
    assert tables["all_gather"].time_us.tolist() == [32.0, 228.0, 3374.0]
    [other, *_] = read_tables([folder], Given(gpus_per_node=4)).tables
    assert (other.gpus_per_node, other.nodes) == (4, 1)


def test_algorithm_and_protocol_are_those_of_the_log(tmp_path: Path):
    logs = [[record(rank, 1, ranks=2, nodes=1, coll_algo="RING", coll_proto="LL128")] for rank in range(2)]
    [table] = read_tables([write_logs(tmp_path / "logs", logs)]).tables
    assert table.choices == ("ring LL128",)


def test_validate_holds_a_system_against_a_log(tmp_path: Path):
    folder = write_logs(tmp_path / "logs", four_ranks())
    result = CliRunner().invoke(main, ["validate", str(folder), "--preset", "hgx-h100", "--json"])
    assert result.exit_code == 0, result.output
    assert "all_gather" in result.stdout


def test_damaged_lines_and_messages_are_counted(tmp_path: Path):
    good = json.dumps(record(0, 1, ranks=2))
    message = json.dumps({**record(0, 1, ranks=2), "coll_perf": None, "p2p_perf": {"p2p": "Send"}})
    wrong = json.dumps(record(0, 1, ranks=2, size=-4))
    file = tmp_path / "x.log"
    file.write_text(f"{good}\n{message}\n{wrong}\n{good[:40]}\n")
    trace = studio.read(file)
    said = " ".join(finding.message for finding in trace.findings)
    assert len(trace.graph_of(0)) == 1
    for words in (
        "messages, left out: 1",
        "time out of range, left out: 1",
        "lines that are no record, left out: 1",
    ):
        assert words in said
    file.write_text(f"{message}\n{wrong}\n")
    with pytest.raises(TraceFormatError, match="no collective with a time; messages: 1"):
        studio.read(file)
