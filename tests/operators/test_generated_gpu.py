"""A job generated for a GPU keeps its durations on every system: what is said of it, and the command that makes it for another."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.errors import ConfigError
from studio.et import write
from studio.generation.inference.options import STEP_OPTIONS
from studio.generation.options import OPTIONS
from studio.generation.recipe import read_recipe
from studio.sim.generated import find_intended_gpu, generate_anew
from studio.sim.systems.gpus import find_gpu
from studio.trace import RECIPE, Trace

_SHAPE = {
    "layers": 1,
    "hidden": 64,
    "heads": 2,
    "vocabulary": 128,
    "sequence": 32,
    "feed_forward": 256,
    "gelu": True,
}


def _made(**said: Any) -> Trace:
    return studio.generate("custom", ranks=2, **_SHAPE, batch=2, **said)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    write(_made(gpu="h100", grad_overlap=False), folder, "job")
    return folder


def _invoke(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return str(result.output)


def test_gpu_of_generation() -> None:
    assert find_intended_gpu(_made(gpu="h100")) == find_gpu("h100")
    assert find_intended_gpu(_made()) is None
    assert find_intended_gpu(studio.read(studio.sample_path("transformer_8r"))) is None


def test_a_job_without_ranks_or_with_a_recipe_that_cannot_be_read_was_generated_for_none() -> None:
    made = _made(gpu="h100")
    first = made.ranks[0]
    broken = tuple(replace(item, value="[" * 9) if item.name == RECIPE else item for item in first.metadata)
    for trace in (Trace((), ()), replace(made, ranks=(replace(first, metadata=broken), *made.ranks[1:]))):
        assert find_intended_gpu(trace) is None
        assert read_recipe(trace) is None


def test_the_command_makes_the_same_job_for_the_other_gpu(job: Path, tmp_path: Path) -> None:
    """Options that are not called as their keys and switches included."""
    hint = generate_anew(studio.read(job), find_gpu("b200"))
    words = shlex.split(hint.partition(": ")[2].removesuffix("."))
    assert words[:3] == ["chakra-studio", "generate", "llm"]
    assert words[-2:] == ["-o", "JOB"]
    _invoke(*words[1:-1], tmp_path / "anew")
    before, after = read_recipe(studio.read(job)), read_recipe(studio.read(tmp_path / "anew"))
    assert before is not None
    assert after is not None
    assert {**before.given, "gpu": "b200"} == after.given


def test_options_are_called_as_their_keys() -> None:
    """Which the command relies on; the one that is not it knows."""
    odd = [
        option.key
        for option in (*OPTIONS, *STEP_OPTIONS)
        if option.names[0].partition("/")[0] != f"--{option.key.replace('_', '-')}"
    ]
    assert odd == ["sequence"]


def test_simulate_sweep_and_suite_warn(job: Path, tmp_path: Path) -> None:
    words = "The job was generated for NVIDIA H100 SXM5 80 GB: compute keeps those durations"
    said = _invoke("simulate", job, "--preset", "hgx-b200")
    assert f"{words}, which are not those of the system's NVIDIA B200" in said
    assert "--gpu b200" in said
    assert words not in _invoke("simulate", job, "--preset", "hgx-h100")
    said = _invoke("sweep", job, "--set", "preset=hgx-h100,hgx-b200,mi300x", "-o", tmp_path / "o.parquet")
    assert f"{words}, which are not those of the presets' NVIDIA B200 SXM 180 GB, AMD Instinct MI300X" in said
    suite = tmp_path / "suite.toml"
    suite.write_text(
        'name = "s"\nreference = "a"\n[jobs.one]\npath = "job"\n[systems.a]\npreset = "hgx-h100"\n[systems.b]\npreset = "hgx-b200"\n'
    )
    assert f"doubtful: one on b: {words}" in _invoke("suite", suite, "-o", tmp_path / "results")


def test_recomputing_a_generated_job_names_its_cure(job: Path) -> None:
    """No profiler would help: it is generated anew, or left to the roofline where it has no durations."""
    said = _invoke("simulate", job, "--preset", "hgx-b200", "--gpu", "b200", code=1)
    assert "it was generated for NVIDIA H100 SXM5 80 GB, not recorded" in said
    assert "Generate it anew with --gpu b200: chakra-studio generate llm" in said
    assert "torch.profiler" not in said
    with pytest.raises(ConfigError, match="it was generated, not recorded") as refused:
        studio.retarget(_made(), "b200", "h100")
    assert "roofline" in refused.value.hint


def test_a_recipe_that_does_not_read_is_none(job: Path) -> None:
    """Metadata is untrusted: what is no recipe names no GPU."""
    trace = studio.read(job)
    for text in ("", "[", "[1]", json.dumps({"given": [1]}), json.dumps({"given": {"gpu": ["h100"]}})):
        assert find_intended_gpu(_with_recipe(trace, text)) is None


def _with_recipe(trace: Trace, text: str) -> Trace:
    from dataclasses import replace

    first = trace.ranks[0]
    kept = tuple(
        replace(item, value=text) if item.name == "generated_from" else item for item in first.metadata
    )
    return replace(trace, ranks=(replace(first, metadata=kept), *trace.ranks[1:]))
