"""Layouts of PyTorch's files as people have them: one job each, whatever the folders and names."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

import studio
from studio.et import discover
from studio.et.format import HEAD_BYTES
from studio.et.ranks import index_ranks_by_file
from studio.et.source import SourceFile, open_sources
from studio.trace import Trace
from tests.et.pytorch_files import device_file, event, host_file, kernel, launch, node, small_rank

LAYOUTS = {
    "Megatron-LM": ("chakra/rank-{rank}.json", "pytorch_profile/rank-{rank}.json"),
    "a folder per kind": ("et/{rank}.json", "kineto/{rank}.json"),
    "a folder per rank": ("rank{rank}/et.json", "rank{rank}/kineto.json"),
    "a folder per bare number": ("{rank}/et.json", "{rank}/trace.json"),
    "dates and processes": ("et_{pid}_20261122.json", "node_{pid}.176382{rank}0011.pt.trace.json"),
    "a folder per machine": ("{host}/x_{pid}.json", "{host}/y.{pid}.pt.trace.json"),
}


def lay_out(folder: Path, host: str, device: str, ranks: int = 2) -> Path:
    for rank in range(ranks):
        pid = 25286 + 7 * rank
        given = {"rank": rank, "pid": pid, "host": ("alpha", "beta")[rank]}
        for pattern, content in zip(
            (host, device), small_rank(rank, shift_us=3 * rank, pid=pid), strict=True
        ):
            path = folder / pattern.format(**given)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def linked(trace: Trace) -> list[int]:
    return [attr.value for rank in trace.ranks for attr in rank.metadata if attr.name == "link_linked"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_opens_as_one_linked_job(tmp_path, layout):
    """Every operator is linked only where each host trace met the device trace of its own process."""
    folder = lay_out(tmp_path / "run", *LAYOUTS[layout])
    trace = studio.read(folder)
    assert [rank.number for rank in trace.ranks] == [0, 1]
    assert linked(trace) == [6, 6]
    assert [(group.name, group.ranks) for group in trace.groups] == [("0", (0, 1))]
    with open_sources([folder]) as files:
        assert [job.name for job in discover(files)] == ["run"]


@pytest.mark.parametrize("says_process", [True, False])
@pytest.mark.parametrize("name", ["{host}_{pid}_20261122.json", "{host}_20261122_{pid}.pt.trace.json"])
def test_files_that_are_called_alike_in_a_folder_per_kind_are_of_one_rank(tmp_path, name, says_process):
    """Where a host trace names no process, and its own name no rank: it is no job beside that of the device traces."""
    folder = lay_out(tmp_path / "run", f"et/{name}", f"kineto/{name}")
    for path in () if says_process else (folder / "et").iterdir():
        path.write_bytes(re.sub(rb'"pid": *[0-9]+, *', b"", path.read_bytes()))
    trace = studio.read(folder)
    assert [rank.number for rank in trace.ranks] == [0, 1]
    assert linked(trace) == [6, 6]


def test_numbers_that_cannot_be_ranks_are_none(tmp_path):
    """The host traces alone: their process ids are no ranks, so the user is asked."""
    folder = lay_out(tmp_path / "run", *LAYOUTS["dates and processes"])
    with open_sources([folder]) as files:
        assert {number for _, _, number in discover(files)[0].ranks} == {None}
    alone = tmp_path / "h100_qwen__1016005.json"
    alone.write_bytes(device_file([event("aten::mm", 10, 20)]))
    trace = studio.read(alone)
    assert [rank.number for rank in trace.ranks] == [0]
    assert "rank-assumed" in {finding.code for finding in trace.findings}


def test_captures_one_after_another_are_jobs_of_their_own(tmp_path):
    for turn in range(2):
        for rank in range(2):
            _, device = small_rank(rank, shift_us=1e9 * turn + rank, pid=500 + rank)
            (tmp_path / f"box_{500 + rank}.{17000 + turn}.pt.trace.json").write_bytes(device)
    with open_sources([tmp_path]) as files:
        jobs = discover(files)
        names = [[file.name[-19:-14] for file, _, _ in job.ranks] for job in jobs]
    assert names == [["17000", "17000"], ["17001", "17001"]]


@pytest.mark.parametrize("packed", [False, True])
def test_captures_of_large_jobs_are_told_apart_though_their_events_begin_late(tmp_path, packed):
    """Groups of a thousand ranks each are listed before the first event, and fill what is looked at to recognise a file."""
    groups = [{"pg_name": str(group), "pg_size": 2, "ranks": [0, 1, *range(9000)]} for group in range(30)]
    for turn in range(2):
        for rank in range(2):
            content = json.loads(small_rank(rank, shift_us=1e9 * turn + rank, pid=500 + rank)[1])
            content["distributedInfo"]["pg_config"] = groups
            events = content.pop("traceEvents")
            late = json.dumps(content | {"traceEvents": events}).encode()
            assert late.find(b'"ts"') > HEAD_BYTES
            path = tmp_path / f"box_{500 + rank}.{17000 + turn}.pt.trace.json"
            path.write_bytes(gzip.compress(late) if packed else late)
    with open_sources([tmp_path]) as files:
        names = [[file.name[-19:-14] for file, _, _ in job.ranks] for job in discover(files)]
    assert names == [["17000", "17000"], ["17001", "17001"]]


def solo(path: Path, begin_us: float, pid: int = 7000, collective: str = "") -> None:
    """The recording of a program on one GPU, or of one that communicates but does not say which rank it is."""
    events = [event("aten::mm", begin_us, 30, pid=pid), launch(begin_us + 20, 1, pid=pid)]
    events += [kernel("gemm", begin_us + 30, 200, 1)]
    events += [kernel(collective, begin_us + 300, 50, 2)] if collective else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(device_file(events))


def sort_files(folder: Path) -> list[list[tuple[str, int | None]]]:
    with open_sources([folder]) as files:
        return [[(file.path.name, number) for file, _, number in job.ranks] for job in discover(files)]


def test_recordings_of_programs_on_one_gpu_are_jobs_unless_they_communicate(tmp_path):
    """Named by `tensorboard_trace_handler`: two cycles of one process, and another process."""
    files = [("a_7000.1760017000.pt.trace.json", 0, 7000), ("a_7000.1760027000.pt.trace.json", 1e7, 7000)]
    files += [("a_8123.1760030000.pt.trace.json", 9e8, 8123)]
    for name, begin_us, pid in files:
        solo(tmp_path / "alone" / name, begin_us, pid)
        solo(tmp_path / "together" / name, begin_us, pid, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    assert sort_files(tmp_path / "alone") == [[(name, None)] for name, _, _ in files]
    with pytest.raises(
        studio.StudioError, match=r"3 jobs found, not one: a_7000\.1760017000\.pt\.trace, a_7000\.17600"
    ):
        studio.read(tmp_path / "alone")
    with pytest.raises(studio.StudioError, match="rank of 3 files is unknown"):
        studio.read(tmp_path / "together")


@pytest.mark.parametrize(
    "names", [("trace_step_100", "trace_step_200"), ("test_2", "test_7"), ("t_0", "t_1")]
)
def test_steps_of_one_process_are_jobs_and_no_ranks(tmp_path, names):
    for turn, name in enumerate(names):
        solo(tmp_path / f"{name}.json", 1e7 * turn)
    assert sort_files(tmp_path) == [[(f"{name}.json", None)] for name in names]
    with open_sources([tmp_path]) as files:
        assert [job.name for job in discover(files)] == list(names)


@pytest.mark.parametrize(("apart_us", "pids"), [(5, (1, 1)), (1e7, (7, 8))])
def test_numbers_in_names_are_ranks_where_no_process_wrote_two_files_in_turn(tmp_path, apart_us, pids):
    """Processes of containers have equal ids, at one time."""
    for rank, pid in enumerate(pids):
        solo(tmp_path / "run" / f"trace_{rank}.json", rank * apart_us, pid)
    assert sort_files(tmp_path / "run") == [[("trace_0.json", 0), ("trace_1.json", 1)]]


def test_recordings_of_programs_on_one_gpu_keep_their_execution_traces(tmp_path):
    for pid in (7000, 8123):
        solo(tmp_path / f"kineto_{pid}.json", 0, pid)
        (tmp_path / f"et_{pid}.json").write_bytes(host_file([node(5, "aten::mm", rf_id=3)], pid=pid))
    pairs = [[(f"{side}_{pid}.json", None) for side in ("et", "kineto")] for pid in (7000, 8123)]
    assert sort_files(tmp_path) == pairs


def test_ranks_are_given_by_the_path_as_typed(tmp_path, monkeypatch):
    folder = lay_out(tmp_path / "run", "a{rank}/x.json", "b{rank}/x.json")
    monkeypatch.chdir(tmp_path)
    files = [
        SourceFile("run/a0/x.json", folder / "a0/x.json"),
        SourceFile("run/a1/x.json", folder / "a1/x.json"),
    ]
    for typed in ("run/a1/x.json", "./run/a1/x.json", str(folder / "a1" / "x.json"), "a1/x.json"):
        assert index_ranks_by_file(files, {typed: 5}) == {"run/a1/x.json": 5}
    with pytest.raises(studio.StudioError, match="2 files have this name"):
        index_ranks_by_file(files, {"x.json": 5})
    shutil.rmtree(folder / "b0")
    shutil.rmtree(folder / "b1")
    trace = studio.read("run", ranks={"./run/a0/x.json": 1, "run/a1/x.json": 0})
    assert [(rank.number, rank.file) for rank in trace.ranks] == [(0, "run/a1/x.json"), (1, "run/a0/x.json")]
