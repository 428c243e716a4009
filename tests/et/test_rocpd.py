"""Databases of rocprofv3 (rocpd): kernels, copies, calls, collectives and ranks; damaged and hostile ones."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import studio
from studio.analysis.job.completeness import infer_completeness
from studio.analysis.job.summary import summarise
from studio.errors import StudioError, TraceFormatError
from studio.trace import DEVICE_NAME, Trace, list_node_attributes
from tests.et.damaged_databases import read_damaged
from tests.rocpd_files import write_rocpd


def attributes(trace: Trace) -> dict[str, dict[str, object]]:
    """The attributes of each node by its name."""
    rank = trace.ranks[0]
    graph = trace.graph_of(rank)
    return {
        graph.strings[int(graph.name[row])]: {
            one.name: one.value for one in list_node_attributes(graph, row, rank.slots)
        }
        for row in range(len(graph))
    }


def ranks(trace: Trace) -> dict[int, str]:
    return {rank.number: Path(rank.file).name for rank in trace.ranks}


@pytest.mark.parametrize(("by_track", "timed"), [(False, False), (True, False), (True, True)])
def test_kernels_streams_launches_copies_and_collectives(tmp_path: Path, by_track: bool, timed: bool) -> None:
    trace = studio.read(write_rocpd(tmp_path / "42_results.db", by_track=by_track, timed=timed))
    nodes = attributes(trace)
    gemm = nodes["gemm"]
    assert (gemm["stream"], gemm["device"], gemm["launched_by"], gemm["launch_ns"]) == (
        3,
        0,
        "hipLaunchKernel",
        90,
    )
    assert nodes["MEMORY_COPY_HOST_TO_DEVICE"]["tensor_size"] == 4096
    assert nodes["__amd_rocclr_copyBuffer"]["device_kind"] == "memcpy"
    assert "step 1" in nodes
    # The second kernel says nothing of what it carries out; the call of RCCL around its launch does.
    assert [share.name for share in summarise(trace).collectives] == ["ALL_REDUCE"]
    devices = [item.value for item in trace.ranks[0].metadata if item.name == DEVICE_NAME]
    assert devices == ["MI300X"]
    said = " ".join(finding.message for finding in trace.findings)
    assert "ROCDECODE_API (1), hip_event (1), memory_allocate (1)" in said


def test_ranks_are_those_that_the_launcher_gave(tmp_path: Path) -> None:
    for rank in range(2):
        environment = {"RANK": str(1 - rank), "WORLD_SIZE": "4", "HOME": "/home/me"}
        write_rocpd(tmp_path / "job" / f"{40 + rank}_results.db", 40 + rank, rank, environment=environment)
    trace = studio.read(tmp_path / "job")
    assert ranks(trace) == {0: "41_results.db", 1: "40_results.db"}
    assert infer_completeness(trace).world == 4


def test_processes_of_a_machine_are_ranks_in_the_order_of_their_devices(tmp_path: Path) -> None:
    for gpu in range(2):
        write_rocpd(tmp_path / "job" / f"{41 - gpu}_results.db", 41 - gpu, gpu)
    trace = studio.read(tmp_path / "job")
    assert ranks(trace) == {0: "41_results.db", 1: "40_results.db"}
    assert "rank-assumed" in {finding.code for finding in trace.findings}


def test_programs_that_do_not_communicate_are_jobs_of_their_own(tmp_path: Path) -> None:
    for pid in (40, 41):
        write_rocpd(tmp_path / "job" / f"{pid}_results.db", pid, communicates=False)
    with pytest.raises(StudioError, match=r"2 jobs found, not one: 40_results\.db, 41_results\.db"):
        studio.read(tmp_path / "job")


def test_a_merged_database_has_the_ranks_of_all(tmp_path: Path) -> None:
    for rank in range(2):
        write_rocpd(tmp_path / "merged.db", 40 + rank, 1 - rank, ending=f"_{rank}a")
    trace = studio.read(tmp_path / "merged.db")
    assert [rank.number for rank in trace.ranks] == [0, 1]
    assert "rank-assumed" in {finding.code for finding in trace.findings}


def test_other_forms_of_the_same_recording_are_left_out(tmp_path: Path) -> None:
    write_rocpd(tmp_path / "job" / "42_results.db")
    content = {"rocprofiler-sdk-tool": [{"metadata": {"pid": 42}, "buffer_records": {}}]}
    (tmp_path / "job" / "42_results.json").write_text(json.dumps(content))
    trace = studio.read(tmp_path / "job")
    assert ranks(trace) == {0: "42_results.db"}
    assert any("42_results.json" in finding.message for finding in trace.findings)


def test_a_database_without_work_is_told(tmp_path: Path) -> None:
    path = write_rocpd(tmp_path / "42_results.db")
    with closing(sqlite3.connect(path)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_%'").fetchall()
        for (name,) in names:
            if "kernel_dispatch" in name or "memory_copy" in name:
                database.execute(f"DELETE FROM `{name}`")
        database.commit()
    with pytest.raises(TraceFormatError, match="nothing that ran on a device") as caught:
        studio.read(path)
    assert "--sys-trace" in caught.value.hint


def test_damaged_databases_are_a_trace_or_an_error_for_the_user(tmp_path: Path) -> None:
    whole = write_rocpd(tmp_path / "42_results.db").read_bytes()
    assert len(read_damaged(whole, tmp_path / "damaged.db")) > 1


def test_values_of_a_wrong_kind_are_counted(tmp_path: Path) -> None:
    path = write_rocpd(tmp_path / "42_results.db", ending="_a")
    with closing(sqlite3.connect(path)) as database:
        for start, end in ((b"x", 5), (9, 5), (2**62, 2**63 - 1)):
            row = (1, 1, "y", 2.5, b"q", None, start, end, "k", b"e")
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO rocpd_kernel_dispatch_a VALUES (NULL, {marks})", row)
        database.commit()
    said = " ".join(finding.message for finding in studio.read(path).findings)
    assert "events without a usable time, left out: 3" in said
