"""`operators`, and `--gpu` of `simulate` and `complete`, on a Kineto trace of one matrix product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.jobs.simulations import Simulations, simulate_jobs
from studio.jobs.sweeps import Asked, start_sweep
from studio.pages.sweep import results
from studio.session import Session
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace
from tests.waiting import wait_until


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A call of aten::mm with its kernel, 100 µs after the launch, on an H100."""
    both = {"ph": "X", "pid": 1, "tid": 1}
    dims = {"Input Dims": [[512, 256], [256, 128]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    events: list[dict[str, Any]] = [
        {**both, "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 20, "args": {"External id": 5, "flops": 1 << 24, **dims}},
        {**both, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 5, "args": {"correlation": 9, "External id": 5}},
        {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": 12, "dur": 1000, "args": {"stream": 7, "device": 0, "correlation": 9, "External id": 5}},
    ]  # fmt: skip
    content = {"deviceProperties": [{"name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    path = tmp_path / "rank.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _invoke(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return str(result.output)


def test_operators_as_json_and_text(recording: Path) -> None:
    found = json.loads(_invoke("operators", recording, "--json"))
    assert found["coverage"] == 1.0
    assert found["uncovered"] == []
    [row] = found["rows"]
    assert (row["operator"], row["count"], row["time_ns"]) == ("aten::mm", 1, 1_000_000)
    assert row["flop"] == 2 * 512 * 256 * 128
    assert row["bytes"] == 2 * (512 * 256 + 256 * 128 + 512 * 128)
    assert row["told_flop"] == 1 << 24
    assert row["flop_per_s"] == row["flop"] / 1e-3
    said = _invoke("operators", recording)
    assert "100.0 % of it by formula" in said
    assert "16.8 MFLOP, 2 times as many by formula" in said


def test_more_than_the_memory_moves_is_not_believed(recording: Path) -> None:
    """229,376 bytes in 1 µs are 229 GB/s, in 50 ns 4.59 TB/s, of 3.35 that an H100 moves."""
    content = json.loads(recording.read_text(encoding="utf-8"))
    for micros, doubt in ((1, ""), (0.05, "not believed: above the 3.35 TB/s of the memory")):
        content["traceEvents"][-1]["dur"] = micros
        recording.write_text(json.dumps(content), encoding="utf-8")
        [row] = json.loads(_invoke("operators", recording, "--json"))["rows"]
        assert row["doubt"].startswith(doubt)
        assert bool(row["doubt"]) == bool(doubt) == ("not believed" in _invoke("operators", recording))


def test_kernels_without_a_recorded_call_have_a_line_of_their_own(recording: Path) -> None:
    """A second kernel of the same name whose launch came before the recording: 33.6 MFLOP in 2 ms, beside those of the call in 1 ms."""
    content = json.loads(recording.read_text(encoding="utf-8"))
    alone = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": 2000, "dur": 2000, "args": {"stream": 7, "device": 0, "correlation": 77}}  # fmt: skip
    content["traceEvents"].append(alone)
    recording.write_text(json.dumps(content), encoding="utf-8")
    lines = [line.split() for line in _invoke("operators", recording).splitlines()]
    [called] = [line for line in lines if line[:1] == ["aten::mm"] and line[1] == "1"]
    assert called[2:7] == ["1.00", "ms", "bf16", "33.6", "MFLOP"]
    [other] = [line for line in lines if line[:5] == ["and", "kernels", "without", "a", "recorded"]]
    assert other[6:9] == ["1", "2.00", "ms"]
    assert "16.8 MFLOP, 2 times as many by formula" in _invoke("operators", recording)
    [row] = json.loads(_invoke("operators", recording, "--json"))["rows"]
    assert (row["count"], row["time_ns"], row["by_name_count"], row["by_name_ns"]) == (
        1,
        3_000_000,
        1,
        2_000_000,
    )


def test_simulate_for_another_gpu(recording: Path) -> None:
    as_it_was = json.loads(_invoke("simulate", recording, "--json"))
    same = json.loads(_invoke("simulate", recording, "--gpu", "h100", "--json"))
    other = json.loads(_invoke("simulate", recording, "--gpu", "b200", "--json"))
    assert as_it_was["recomputed"] is None
    assert same["finish_ns"] == as_it_was["finish_ns"]
    # The call moves so much for what it computes that the memory bounds it on both.
    assert other["recomputed"]["new_ns"] == round(1_000_000 * 3350 / 7700)
    assert as_it_was["finish_ns"] - other["finish_ns"] == 1_000_000 - other["recomputed"]["new_ns"]
    said = _invoke("simulate", recording, "--gpu", "b200")
    assert "from NVIDIA H100 SXM5 80 GB: 100 % of compute time by rooflines of operators" in said
    refused = _invoke("simulate", recording, "--gpu", "b200", "--model", "astra-sim", code=1)
    assert "--gpu is given beside ASTRA-sim's model" in refused
    assert "--recorded-gpu is given without --gpu" in _invoke(
        "simulate", recording, "--recorded-gpu", "h100", code=1
    )


def test_simulate_warns_of_durations_of_another_gpu(recording: Path, tmp_path: Path) -> None:
    """A job of one rank and of two; not where the system has the recorded GPU, or the job is recomputed."""
    (tmp_path / "job").mkdir()
    for rank in range(2):
        content = json.loads(recording.read_text(encoding="utf-8")) | {
            "distributedInfo": {"rank": rank, "world_size": 2}
        }
        (tmp_path / "job" / f"rank{rank}.json").write_text(json.dumps(content), encoding="utf-8")
    for job in (recording, tmp_path / "job"):
        said = _invoke("simulate", job, "--preset", "mi300x")
        assert (
            "durations of NVIDIA H100 80GB HBM3, which are not those of the system's AMD Instinct MI300X"
            in said
        )
        assert "Add --gpu mi300x to recompute them." in said
        assert "Compute keeps" not in _invoke("simulate", job, "--preset", "mi300x", "--gpu", "mi300x")
        assert "Compute keeps" not in _invoke("simulate", job, "--preset", "hgx-h100")


def test_sweep_and_suite_warn_of_durations_of_another_gpu(recording: Path, tmp_path: Path) -> None:
    """Times of systems that keep what an H100 measured do not compare; not where each has its GPU's or recomputes."""
    out = tmp_path / "out.parquet"

    def sweep(*words: str) -> str:
        return _invoke("sweep", recording, "-o", out, "--set", *words)

    said = sweep("bandwidth[0]=100,200", "--preset", "mi300x")
    assert "H100 80GB HBM3, which are not those of the presets' AMD Instinct MI300X" in said
    assert "Add --set extended.recompute-for=mi300x to recompute them." in said
    said = sweep("preset=mi300x,hgx-h100,hgx-b200,no-such")
    assert "those of the presets' AMD Instinct MI300X" in said
    assert "H100 SXM5" not in said
    assert "Sweep one preset at a time." in said
    assert "Compute keeps" not in sweep("bandwidth[0]=100,200", "--preset", "hgx-h100")
    assert "Compute keeps" not in sweep("extended.recompute-for=none,mi300x", "--preset", "mi300x")
    systems = {"h100": "hgx-h100", "mi": "mi300x", "again": "mi300x"}
    tables = "".join(f'[systems.{name}]\npreset = "{preset}"\n' for name, preset in systems.items())
    suite = tmp_path / "suite.toml"
    suite.write_text(
        f'name = "s"\nreference = "h100"\n[jobs.one]\npath = "{recording.name}"\n{tables}gpu = "mi300x"\n'
    )
    told = _invoke("suite", suite, "-o", tmp_path / "results")
    assert "doubtful: one on mi: Compute keeps the durations of NVIDIA H100 80GB HBM3" in told
    assert told.count("doubtful") == 1
    assert 'gpu = "NAME"' in told


def test_a_sweep_on_the_page_keeps_what_is_doubtful_of_it(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path / "workspace")
    session, tasks = Session(workspace), open_tasks(workspace.root)
    for name, value in (
        ("get_session", session),
        ("get_workspace", workspace),
        ("get_simulations", Simulations(tasks, simulate_jobs(session))),
    ):
        monkeypatch.setattr(results, name, lambda value=value: value)
    try:
        job = workspace.save(studio.read(recording), "one")
        for preset, words in (
            ("hgx-h100", ""),
            ("mi300x", "Compute keeps the durations of NVIDIA H100 80GB HBM3"),
        ):
            kept = start_sweep(tasks, session, Asked(job, ("bandwidth[0]=100,200",), preset))
            assert kept.asked.doubt.startswith(words)
            assert bool(kept.asked.doubt) == bool(words)
            wait_until(lambda kept=kept: kept.is_whole)
            drawn = str(results.build_results(kept, kept.rows(), "bandwidth[0]", dark=False))
            assert ("Compute keeps" in drawn) == bool(words)
    finally:
        close_tasks(tasks)


def test_complete_for_another_gpu(recording: Path, tmp_path: Path) -> None:
    done = _invoke(
        "complete", recording, "-o", tmp_path / "job", "--ranks", "2", "--layout", "dp=2", "--gpu", "b200"
    )
    assert "durations recomputed for NVIDIA B200" in done
    found = json.loads(_invoke("operators", tmp_path / "job", "--json"))
    assert found["device"] == "NVIDIA B200 SXM 180 GB"
    assert found["time_ns"] == 2 * round(1_000_000 * 3350 / 7700)
