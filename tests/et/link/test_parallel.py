"""Jobs linked by several processes: the same result as by one, the same errors, and an end when it is stopped."""

from __future__ import annotations

import gzip
import json
import os
import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import studio
from studio.errors import StudioError
from studio.et import executors, job, kineto, workers
from studio.et.format import DevicePart, Reading
from studio.et.link import carried, fact_reader, parallel
from studio.et.link.draft import draft_rank
from studio.et.link.options import LinkOptions
from studio.et.link.pair import Pair
from tests.et.pytorch_files import rank_files, small_rank
from tests.examples import PROFILE
from tests.processes import unmarked


@pytest.fixture
def several(monkeypatch):
    """Every job is worth processes; lists the executors that were made."""
    made = []

    class Counted(executors.LocalProcesses):
        def __init__(self, size: int | None = None) -> None:
            super().__init__(2)
            made.append(self)

    monkeypatch.setattr(job, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(job, "count_processors", lambda: 2)
    monkeypatch.setattr(executors, "LocalProcesses", Counted)
    yield made
    assert all(worker.process.poll() is not None for executor in made for worker in executor.workers)


@pytest.fixture(scope="module")
def processes() -> Iterator[executors.LocalProcesses]:
    """Two processes for tests that are not about their beginning or end, which costs more than what they ask for."""
    with unmarked():
        pool = executors.LocalProcesses(2)
    with pool as executor:
        yield executor


def job_of(folder: Path, count: int = 3) -> Path:
    for number in range(count):
        rank_files(folder, number, *small_rank(number, shift_us=10 * number, pid=7 + number))
    return folder


def by_one(folder: Path, monkeypatch, **given: Any) -> studio.Trace:
    with monkeypatch.context() as patched:
        patched.setattr(job, "_WORTH_PROCESSES", 1 << 60)
        return studio.link(folder, **given)


@pytest.mark.integration
def test_several_processes_give_the_same_trace_and_findings(several, monkeypatch, tmp_path):
    folder = job_of(tmp_path / "run")
    calls: list[tuple[str, int, int]] = []
    trace = studio.link(folder, progress=lambda *call: calls.append(call))
    assert len(several) == 1
    other = by_one(folder, monkeypatch)
    assert trace == other
    assert trace.findings == other.findings
    assert [rank.metadata for rank in trace.ranks] == [rank.metadata for rank in other.ranks]
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert ("reading", size, size) in calls
    assert calls[-1] == ("linking", 3, 3)


def test_every_run_links_the_same_by_several_processes(processes, monkeypatch, shared):
    runs = ("torch_synthetic_device/ddp_mlp_4r", "torch/pp_2r")[: 2 if PROFILE == "nightly" else 1]
    for run in runs:
        folder = shared / "traces" / run
        trace, other = studio.link(folder, executor=processes), by_one(folder, monkeypatch)
        assert trace == other
        assert trace.findings == other.findings


@pytest.mark.parametrize("renamed", [False, True])
def test_kineto_traces_alone_are_linked_the_same_by_several_processes(
    processes, monkeypatch, tmp_path, renamed
):
    """Also where names tell other ranks than the files, which win. What all of them lack is said once."""
    folder = job_of(tmp_path / "run", 2)
    for path in folder.glob("pytorch_et_*"):
        path.unlink()
    if renamed:
        (folder / "kineto_0.json").rename(folder / "kineto_2.json")
    trace, other = studio.link(folder, executor=processes), by_one(folder, monkeypatch)
    assert trace == other
    assert trace.findings == other.findings
    assert [rank.number for rank in trace.ranks] == [0, 1]
    [lacking] = [finding for finding in trace.findings if finding.code == "no-host-trace"]
    assert (lacking.rank, ", 2 files: a Kineto trace without" in lacking.message) == (None, True)


def test_a_file_of_several_ranks_beside_others_is_linked_by_several_processes(
    processes, monkeypatch, tmp_path
):
    """It ended in a traceback, as a file was taken to be of one rank."""
    folder = job_of(tmp_path / "run")
    for path in folder.glob("pytorch_et_*"):
        path.unlink()
    first, second = (json.loads((folder / f"kineto_{rank}.json").read_bytes()) for rank in (0, 1))
    (folder / "kineto_1.json").unlink()
    merged = {"traceEvents": [*first["traceEvents"], *second["traceEvents"]]}
    (folder / "kineto_0.json").write_text(json.dumps(merged))
    trace, other = studio.link(folder, executor=processes), by_one(folder, monkeypatch)
    assert trace == other
    assert [rank.number for rank in trace.ranks] == [0, 1, 2]


def test_a_rank_given_against_the_file_is_said_by_several_processes_too(processes, monkeypatch, tmp_path):
    folder = job_of(tmp_path / "run", 2)
    for path in folder.glob("pytorch_et_*"):
        path.unlink()
    given = {"kineto_1.json": 5}
    trace = studio.link(folder, executor=processes, ranks=given)
    other = by_one(folder, monkeypatch, ranks=given)
    assert (trace, trace.findings) == (other, other.findings)
    assert [rank.number for rank in trace.ranks] == [0, 5]
    [said] = [finding for finding in trace.findings if finding.code == "rank-overridden"]
    assert (said.rank, "says that it is rank 1; taken as rank 5" in said.message) == (5, True)


def test_ranks_of_equal_recordings_share_a_graph_linked_by_several_processes(processes, tmp_path):
    """Ranks 0 and 1 do the same at the same times, ranks 2 and 4 something else at these times, rank 3 takes longer."""
    folder = tmp_path / "run"
    changed = {2: ("aten::mm", "aten::bmm"), 3: ('"dur": 300', '"dur": 310'), 4: ("aten::mm", "aten::bmm")}
    for number in range(5):
        rank_files(folder, number, *small_rank(number))
        (folder / f"pytorch_et_{number}.json").unlink()
        recorded = folder / f"kineto_{number}.json"
        recorded.write_text(recorded.read_text().replace(*changed.get(number, ("", ""))))
    trace = studio.link(folder, executor=processes)
    assert [rank.graph for rank in trace.ranks] == [0, 0, 1, 2, 1]


def test_the_kernel_is_compiled_for_long_recordings_of_several_ranks(monkeypatch, tmp_path):
    folder = job_of(tmp_path / "run", 2)
    compiled = []
    monkeypatch.setattr(parallel, "compile_kernel", lambda: compiled.append(True))
    with ThreadPoolExecutor(1) as executor:
        studio.link(folder, executor=executor)
        assert not compiled
        monkeypatch.setattr(parallel, "_WORTH_COMPILING_BYTES", 0)
        studio.link(folder, executor=executor)
    assert compiled == [True]


def test_files_whose_content_belies_their_names_are_compared_with_all(processes, monkeypatch, tmp_path):
    """Execution traces of two ranks changed places: their names pair them wrongly, their content does not."""
    folder = job_of(tmp_path / "run", 2)
    one, other = folder / "pytorch_et_0.json", folder / "pytorch_et_1.json"
    one.rename(folder / "aside")
    other.rename(one)
    (folder / "aside").rename(other)
    trace = studio.link(folder, executor=processes)
    assert trace == by_one(folder, monkeypatch)
    assert all(
        attr.value == 6 for rank in trace.ranks for attr in rank.metadata if attr.name == "link_linked"
    )


def test_an_error_of_another_process_is_that_of_the_file(processes, tmp_path):
    folder = job_of(tmp_path / "run")
    (folder / "kineto_1.json").write_text('{"traceEvents": 7, "schemaVersion": 1}')
    trace = studio.link(folder, executor=processes)
    [finding] = [finding for finding in trace.findings if finding.code == "unreadable-file"]
    assert "kineto_1.json: no list 'traceEvents'" in finding.message
    assert [rank.number for rank in trace.ranks] == [0, 1, 2]


@pytest.mark.integration
@pytest.mark.parametrize("phase", ["reading", "linking"])
def test_stopping_ends_the_processes(several, tmp_path, phase):
    class StopError(Exception):
        pass

    def stop(what: str, *_: int) -> None:
        if what == phase:
            raise StopError

    with pytest.raises(StopError):
        studio.link(job_of(tmp_path / "run"), progress=stop)


def test_a_process_that_dies_is_an_error_for_the_user():
    worker = workers.Worker()
    worker.process.kill()
    with pytest.raises(StudioError, match="ended early"):
        worker.ask(len, ((),))
    worker.close()


class Counting(ThreadPoolExecutor):
    """An executor that is not ours."""

    def __init__(self) -> None:
        super().__init__(1)
        self.calls: list[str] = []

    def submit(self, fn, /, *args, **kwargs):
        self.calls.append(fn.__name__)
        return super().submit(fn, *args, **kwargs)


def faults_of_repeated_memory() -> int:
    """Return how many pages the system had to clear for memory that is taken and given back, after the first time."""
    import resource

    size, faults = 20 << 20, []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        pieces = [b"x" * size for _ in range(4)]
        del pieces
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return sum(faults[1:])


@pytest.mark.integration
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_worker_keeps_the_memory_of_arrays_for_the_next_ones(monkeypatch):
    """Ranks are linked one after another in the same memory; who has set up the C library otherwise is heeded."""
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    with unmarked():
        worker = workers.Worker()
    try:
        assert worker.ask(faults_of_repeated_memory, ()) < 1_000
    finally:
        worker.close()
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.perturb=0")
    with unmarked():
        worker = workers.Worker()
    try:
        assert worker.ask(os.getenv, ("GLIBC_TUNABLES",)) == "glibc.malloc.perturb=0"
    finally:
        worker.close()


def test_shapes_that_every_step_repeats_are_worked_out_once(monkeypatch, shared):
    """Of a Kineto trace alone, whose events tell them anew each time."""
    worked_out: list[object] = []
    for module, name in ((fact_reader, "_infer_from_dims"), (carried, "_count_elements")):
        work = getattr(module, name)
        counted = lambda *given, work=work, **rest: worked_out.append(given) or work(*given, **rest)  # noqa: E731
        monkeypatch.setattr(module, name, counted)
    counts = []
    for repeated in (1, 3):
        raw = gzip.decompress(
            (shared / "traces/torch_synthetic_device/ddp_mlp_4r/kineto_0.json.gz").read_bytes()
        )
        content = json.loads(raw)
        events = content["traceEvents"]
        last = max(event["ts"] + event.get("dur", 0) for event in events)
        content["traceEvents"] = [
            {**event, "ts": event["ts"] + turn * last} for turn in range(repeated) for event in events
        ]
        [part] = kineto.read(Reading("kineto_0.json", json.dumps(content).encode()))
        assert isinstance(part, DevicePart)
        worked_out.clear()
        draft_rank(Pair(0, None, part.trace), LinkOptions())
        counts.append(len(worked_out))
    assert counts[0] == counts[1] > 0


def test_any_executor_reads_and_links(monkeypatch, tmp_path):
    folder = job_of(tmp_path / "run")
    with Counting() as executor:
        trace = studio.link(folder, executor=executor)
        assert executor.calls == ["draft_files"] * 3 + ["finish"] * 3
        assert trace == by_one(folder, monkeypatch)
        written = studio.write(trace, tmp_path / "et", "job")
        executor.calls.clear()
        assert studio.read(written, executor=executor) == studio.read(written)
        assert executor.calls == ["read_parts"] * 3


@pytest.mark.integration
def test_processes_of_this_machine_are_a_standard_executor():
    with executors.LocalProcesses(2) as executor:
        assert [executor.submit(divmod, 7, n).result() for n in (2, 3)] == [(3, 1), (2, 1)]
        assert list(executor.map(abs, [-1, -2, 3])) == [1, 2, 3]
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
        with pytest.raises(TimeoutError, match="of the work"):
            list(executors.call_in_order(executor, [(_late, ())], lambda: None))
    assert all(worker.process.poll() is not None for worker in executor.workers)


def _late() -> None:
    raise TimeoutError("of the work")


@pytest.mark.integration
def test_small_jobs_and_single_processors_stay_in_one_process(monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(executors, "LocalProcesses", refuse)
    assert len(studio.link(job_of(tmp_path / "run")).ranks) == 3
    monkeypatch.setattr(job, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(job, "count_processors", lambda: 1)
    assert len(studio.link(tmp_path / "run").ranks) == 3
