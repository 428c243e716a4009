"""`chakra-studio compare`: what it takes for a run, what it says, and how it ends."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.et import write
from studio.sim import simulate
from studio.sim.models import with_model
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.trace import DEVICE_NAME, Attribute, ValueKind
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled


def invoke(*words, code=0):
    result = CliRunner().invoke(main, ["compare", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def job(extra: int = 0):
    """Two ranks: 50 µs of compute, on rank 1 some more, then an all-reduce that ends 10 µs later on both."""

    def rank(micros: int):
        first, second = node(1, "COMP", micros=micros, name="fwd"), collective(2, "ALL_REDUCE", 1 << 20, 1)
        first.start_time_micros = 100
        second.start_time_micros, second.duration_micros = 100 + micros, 60 + extra - micros
        return [first, second]

    return trace_of([rank(50), rank(50 + extra)])


def parts(bandwidth: float) -> Parts:
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [bandwidth], "latency": [500]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring"],
    }
    return Parts(network, system)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Traces of two days in folders, and a workspace with the first and two runs of it."""
    root = tmp_path_factory.mktemp("compare")
    write(job(), root / "monday", "llama")
    write(job(30), root / "tuesday", "llama")
    store = Workspace(root / "ws")
    trace = job()
    mine = store.save(trace, "llama on monday")
    for name, bandwidth in (("slow", 50), ("fast", 100)):
        result = simulate(trace, interpret(parts(bandwidth)).config, native=compiled())
        store.save_run(mine, Run(name, result, parts(bandwidth)))
    store.save(trace_of([[node(1, "COMP", num_ops=5, tensor_size=5)]]), "without times")
    return root


def test_two_days_are_told_in_a_sentence_and_a_waterfall_that_adds_up(place):
    text = invoke(place / "monday", place / "tuesday")
    assert "B is 30.0 µs (50 %) slower than A: compute +30.0 µs." in text
    assert re.search(r"finish on the rank that waits least \(1\)", text)
    assert re.search(r"together +60.0 µs +90.0 µs +\+30.0 µs +100.0 %", text)
    assert "4 nodes matched by rank and id, 100.0 % of both sides; 0 added, 0 removed" in text
    assert re.search(r"rank 1 fwd \(1\) +50.0 µs +80.0 µs +\+30.0 µs", text)


def test_jobs_of_one_rank_are_told_once_with_their_devices_and_what_one_side_has_by_name(tmp_path):
    """Rank 0 is the rank that waits least and the mean of all; two kernels of a name are a line."""

    def write_job(folder: str, device: str, kernels: list[tuple[str, int]]) -> Path:
        nodes = [node(1, "COMP", micros=50, name="fwd")]
        nodes += [
            node(i, "COMP", i - 1, micros=micros, name=name) for i, (name, micros) in enumerate(kernels, 2)
        ]
        begin = 100
        for one in nodes:
            one.start_time_micros = begin
            begin += one.duration_micros
        trace = trace_of([nodes])
        told = (Attribute(DEVICE_NAME, ValueKind.STRING, device),)
        ranks = tuple(replace(rank, metadata=(*rank.metadata, *told)) for rank in trace.ranks)
        write(replace(trace, ranks=ranks), tmp_path / folder, "job")
        return tmp_path / folder

    one = write_job("one", "NVIDIA H100", [("flash", 20), ("flash", 30), ("norm", 5)])
    other = write_job("other", "AMD Instinct MI300X", [("attn", 10)])
    said = invoke(one, other)
    assert said.count("together  ") == 1
    assert "  finish  " in said
    assert "waits least" not in said
    assert "mean of" not in said
    assert re.search(r"only in A +nodes +together\n +flash +2 +50.0 µs\n +norm +1 +5.00 µs\n", said)
    assert re.search(r"only in B +nodes +together\n +attn +1 +10.0 µs\n", said)
    assert re.search(r"device +NVIDIA H100 +AMD Instinct MI300X", said)
    found = json.loads(invoke(one, other, "--json"))
    assert found["comparisons"][0]["removed_by_name"] == [
        {"name": "flash", "count": 2, "total_ns": 50_000, "ranks": 1},
        {"name": "norm", "count": 1, "total_ns": 5_000, "ranks": 1},
    ]
    assert "device" in found["differing_settings"]


@pytest.mark.parametrize("name", ["fast", "llama on monday/fast", "id"])
def test_runs_go_by_name_and_id_and_differ_in_their_settings(place, name):
    store = Workspace(place / "ws")
    [mine] = [one.id for one in store.jobs() if one.name == "llama on monday"]
    [fast] = [one.id for one in store.runs(mine) if one.name == "fast"]
    named = f"{mine}/{fast}" if name == "id" else name
    told = json.loads(invoke(f"{mine}/recorded", "slow", named, "--workspace", place / "ws", "--json"))
    assert [one["run"] for one in told["sides"]] == ["recorded", told["sides"][1]["run"], fast]
    slow, fast_one = told["comparisons"]
    assert slow["matching"]["by"] == fast_one["matching"]["by"] == "id"
    assert "bandwidth_bytes_per_ns" in told["differing_settings"]
    assert told["sides"][2]["settings"]["bandwidth_bytes_per_ns"] == [100 * 2**30 / 10**9]
    assert told["sides"][2]["settings"]["latency_ns"] == [500]
    assert told["sides"][0]["settings"]["ALL_REDUCE_bytes"] == 2 << 20
    for one in told["comparisons"]:
        for fall in one["waterfalls"]:
            assert fall["a_ns"] + sum(step["difference_ns"] for step in fall["steps"]) == fall["b_ns"]
    assert slow["b"] == "B"
    assert fast_one["difference_ns"] < slow["difference_ns"]


def test_a_job_is_its_recording_and_dimensions_are_compared(place):
    text = invoke("llama on monday", "slow", "--workspace", place / "ws")
    assert "A  llama on monday · recorded" in text
    text = invoke("slow", "fast", "--workspace", place / "ws")
    assert re.search(r"dimension 0 +\d[^ ]* µs", text)
    assert re.search(r"settings that differ\n  bandwidth +50 GiB/s +100 GiB/s$", text)


@pytest.mark.parametrize(("percent", "code"), [(49.9, 3), (50, 0)])
def test_slower_than_allowed_ends_with_3(place, percent, code):
    words = (place / "monday", place / "tuesday", "--fail-if-slower", percent)
    assert "50 %" in invoke(*words, code=code)
    invoke(place / "tuesday", place / "monday", "--fail-if-slower", 0)


def test_errors_name_what_is_there(place):
    ws = ("--workspace", place / "ws")
    assert "The nearest is slow" in invoke("slaw", "fast", *ws, code=1)
    assert "without times: The files of this job hold no times." in invoke(
        "without times", "fast", *ws, code=1
    )
    assert "Name 2 to 8 runs to compare, not 1." in invoke("fast", code=2)
    assert "no workspace with runs" in invoke("a", "b", "--workspace", place / "nothing", code=1)
    store = Workspace(place / "ws")
    second = store.save(job(), "again")
    store.save_run(
        second, Run("fast", simulate(job(), interpret(parts(50)).config, native=compiled()), parts(50))
    )
    assert re.search(
        r"'fast' names 2 runs: .+/fast-\w+, .+/fast-\w+\nHint: Name one", invoke("fast", "slow", *ws, code=1)
    )
    store.delete(second)


def test_a_damaged_side_is_told_beside_the_verdict_of_the_gate(place, tmp_path):
    """The status says what was asked, 3, where both are so; without the gate it says that something is lost."""
    side = tmp_path / "tuesday"
    shutil.copytree(place / "tuesday", side)
    with (side / "llama.1.et").open("ab") as stream:
        stream.write(b"\xff\xff")
    words = (place / "monday", side, "--workspace", place / "ws")
    for more, code in (
        ((), 4),
        (("--fail-if-slower", 2), 3),
        (("--fail-if-slower", 99), 4),
        (("--allow-damaged",), 0),
    ):
        text = invoke(*words, *more, code=code)
        assert "Damaged input (damaged-file: 1)" in text
        assert ("Exit status 4" in text) is (code == 4)


def test_what_is_doubtful_about_runs_is_said_before_how_they_compare(tmp_path):
    """Kernels of unknown kind and size kept their recorded time on both networks, and the comparison did not say so."""
    unknown = node(1, "COMP", name="ncclDevKernel_Generic(x)", micros=300, is_cpu_op=False, stream=7)
    trace = trace_of([[unknown, collective(2, "ALL_REDUCE", 1 << 20, 1)]] * 2)
    store = Workspace(tmp_path / "ws")
    mine = store.save(trace, "left over")
    for name, bandwidth in (("slow", 50), ("fast", 100)):
        system = with_model(parts(bandwidth), "full")
        store.save_run(mine, Run(name, simulate(trace, interpret(system).config, native=compiled()), system))
    first, second, *_ = invoke("slow", "fast", "--workspace", tmp_path / "ws").splitlines()
    assert all(
        "2 communication kernels of unknown kind and size (300 µs a rank" in line for line in (first, second)
    )
    assert (first[:13], second[:13]) == ("DOUBTFUL in A", "DOUBTFUL in B")
    told = json.loads(invoke("slow", "fast", "--workspace", tmp_path / "ws", "--json"))
    assert [[one["code"] for one in side["doubts"]] for side in told["sides"]] == [
        ["unknown-communication"]
    ] * 2
