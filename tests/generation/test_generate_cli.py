"""The command `generate`."""

import json

import pytest
from click.testing import CliRunner

import studio
from studio.cli import load_command
from studio.errors import ConfigError


def run(*arguments):
    return CliRunner().invoke(load_command("generate"), ["llm", *arguments])


def test_a_job_is_written_and_its_counts_are_printed(tmp_path):
    custom = ("--model", "custom", "--layers", "2", "--hidden", "64", "--heads", "4", "--feed-forward", "128")
    done = run(
        *custom, "--vocabulary", "96", "--seq", "32", "--ranks", "8", "--tp", "2", "--pp", "2", "--json",
        "-o", str(tmp_path / "job"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["parameters"] == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 96 * 64 + 64
    parts = ("parameters", "gradients", "optimizer", "activations", "buffers")
    assert told["memory"]["total"] == sum(told["memory"][part] for part in parts)
    trace = studio.read(tmp_path / "job")
    assert (len(trace.ranks), len(trace.graphs)) == (8, 2)
    assert {group.name for group in trace.groups} >= {"tp0", "dp0", "pp0"}
    names = set(trace.graphs[0].strings)
    assert {"step0.mb1.layer0.attn.qkv.fwd", "step0.mb0.layer0.mlp.fc2.wgrad", "step0.optimizer"} <= names


def test_counts_alone_need_no_folder():
    done = run("--model", "llama3-8b", "--ranks", "8", "--tp", "8")
    assert done.exit_code == 0
    assert "8,030,261,248 parameters" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "custom", "--ranks", "1"), "needs --layers"),
        (("--model", "llama3-8b", "--ranks", "1", "--compute-efficiency", "0.5"), "no --gpu"),
        (("--model", "llama3-8b", "--ranks", "1", "--gpu", "h100", "--compute-efficiency", "2"), "at most 1"),
        (("--model", "llama3-8b", "--ranks", "1", "--gpu", "h101"), "h100"),
    ],
)
def test_bad_numbers_are_refused(arguments, said):
    done = run(*arguments)
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--ranks", "1"),
        ("--model", "llama3-8b", "--ranks", "1", "--layers", "3"),
        ("--model", "llama3-8b", "--ranks", "1", "--stage-layers", "a"),
    ],
)
def test_contradicting_options_are_a_usage_error(arguments):
    assert run(*arguments).exit_code == 2
