"""The command `generate`."""

import json
from dataclasses import fields

import pytest
from click.testing import CliRunner

import studio
from studio.cli import load_command
from studio.errors import ConfigError
from studio.generation.models import Model
from studio.generation.options import OPTIONS
from studio.generation.wish import Wish


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
        (
            ("--model", "llama3-8b", "--ranks", "1", "--gpu", "h100", "--memory-efficiency", "1e-320"),
            "at least 0.000001",
        ),
        (("--model", "llama3-8b", "--ranks", "1", "--gpu", "h101"), "h100"),
        (("--model", "llama3-8b", "--ranks", "1", "--jitter", "0.1"), "no --gpu"),
        (("--model", "llama3-8b", "--ranks", "1", "--gpu", "h100", "--jitter", "2"), "0 to 1"),
        (("--model", "llama3-8b", "--ranks", "1", "--gpu", "h100", "--slow-rank", "1:2"), "rank 1"),
        (("--model", "llama3-8b", "--ranks", "1", "--gpu", "h100", "--slow-rank", "0"), "3:1.5"),
        (("--model", "llama3-8b", "--ranks", "1", "--gpu", "h100", "--slow-rank", "0:-1"), "factor -1"),
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


def test_every_option_says_something_of_the_workload():
    attributes = {spec.name for kind in (Wish, Model) for spec in fields(kind)} | {
        "gpu", "compute_efficiency", "memory_efficiency", "gelu", "slow_rank", "jitter",
    }  # fmt: skip
    assert {option.key for option in OPTIONS} <= attributes
    assert {spec.name for spec in fields(Wish)} <= {option.key for option in OPTIONS} | {"ranks"}


def test_four_numbers_make_a_gpt():
    done = run("--layers", "2", "--hidden", "64", "--heads", "4", "--seq", "32", "--ranks", "1", "--json")
    told = json.loads(done.output)
    assert told["model"] == "gpt"
    assert told["parameters"] == 2 * (12 * 64 * 64 + 13 * 64) + (50_257 + 32) * 64 + 2 * 64


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(ConfigError) as caught:
        studio.generate("llama3-8b", ranks=8, micro_bach=2)
    assert "micro_batch" in (caught.value.hint or "")


def test_steps_of_inference_are_written_and_told(tmp_path):
    command = load_command("generate")
    given = [
        "inference",
        "--model",
        "llama3-70b",
        "--ranks",
        "8",
        "--tp",
        "8",
        "--phase",
        "mixed",
        "--batch",
        "4",
    ]
    done = CliRunner().invoke(
        command, [*given, "--context", "1024..2048", "--json", "-o", str(tmp_path / "job")]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["kv_bytes_per_token"] == 327_680
    assert told["sequences"] == 5
    assert len(studio.read(tmp_path / "job").ranks) == 8
    done = CliRunner().invoke(
        command, ["inference", "--model", "llama3-70b", "--ranks", "1", "--gpu", "h100"]
    )
    assert "does not fit on 80 GB: 142.5 GB, of which weights 141.1 GB, KV cache 1.3 GB" in done.output
    assert "--tp 2 with --ranks 2" in done.output
    for arguments in (("inference", "--zero", "1"), ("llm", "--phase", "decode")):
        assert (
            CliRunner().invoke(command, [*arguments, "--model", "llama3-8b", "--ranks", "1"]).exit_code == 2
        )


@pytest.mark.parametrize(
    ("arguments", "unfit", "remedy"),
    [
        (("--ranks", "8", "--recompute", "full"), "of which optimizer", "--zero 1"),
        (("--ranks", "8", "--zero", "3", "--batch", "32", "--micro-batch", "4"), "of which activations", "--recompute full"),
        (("--ranks", "8", "--tp", "8"), "", ""),
        (("--ranks", "1"), "does not fit on 80 GB", "--ranks"),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_what_would(arguments, unfit, remedy):
    told = json.loads(run("--model", "llama3-8b", *arguments, "--gpu", "h100", "--json").output)
    assert told["fits"] == (not unfit) == (told["memory"]["total"] <= 80e9)
    assert unfit in told["unfit"]
    assert remedy in " ".join(told["remedies"])
    for words in told["remedies"]:
        change, _, held = words.rpartition(" (")
        after = [*arguments, *change.replace(",", "").replace(" and ", " ").split()]
        again = json.loads(run("--model", "llama3-8b", *after, "--gpu", "h100", "--json").output)
        assert again["fits"], words
        assert again["memory"]["total"] / 1e9 == pytest.approx(float(held.split()[0]), abs=0.06)


def test_remedies_hold_for_a_batch_that_follows_the_ranks_and_for_experts():
    """The batch is that of the change, since nobody gave one; experts are divided where ranks hold the same ones."""
    for given in (
        ("--model", "qwen3-8b", "--ranks", "1", "--micro-batch", "4", "--zero", "1", "--dtype", "fp8"),
        ("--model", "mixtral-8x7b", "--ranks", "64", "--tp", "2", "--recompute", "full"),
    ):
        told = json.loads(run(*given, "--gpu", "h100", "--json").output)
        assert not told["fits"]
        for words in told["remedies"]:
            change = words.rpartition(" (")[0].replace(",", "").replace(" and ", " ").split()
            again = json.loads(run(*given, *change, "--gpu", "h100", "--json").output)
            assert again["fits"], words
    assert any(words.startswith("--ep ") for words in told["remedies"]), told["remedies"]
