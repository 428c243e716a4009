"""Generated jobs on more ranks: what `generate` makes with these numbers, whatever the layout, and its batch as said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import studio
from studio.errors import ConfigError
from studio.generation.recipe import Growth, find_unchanged_recipe, infer_mesh, read_recipe, scale_job
from studio.trace import Trace
from tests.test_cli import run

MIXTRAL, LLAMA = "mixtral-8x7b", "llama3-8b"


def scaled(job: Trace, **wanted: object) -> Trace:
    return scale_job(job, infer_mesh(job), Growth(**wanted))[0]  # type: ignore[arg-type]


def bare(job: Trace) -> Trace:
    """What a job is, but for the words of its metadata and finding, which say whether the batch was given."""
    return replace(job, ranks=tuple(replace(rank, metadata=()) for rank in job.ranks), findings=())


@pytest.mark.parametrize(
    ("model", "small", "wanted", "large"),
    [
        # Weights that replicas share are gathered in parts of 64 bytes here: all of them are divided.
        (MIXTRAL, {"ranks": 8, "ep": 4, "zero": 1, "batch": 8}, {"dp": 8}, {"ranks": 32, "batch": 32}),
        (MIXTRAL, {"ranks": 4, "ep": 4, "batch": 4}, {"dp": 2}, {"ranks": 8, "batch": 8}),
        (MIXTRAL, {"ranks": 4, "ep": 2, "batch": 4}, {"ep": 4}, {"ranks": 8, "ep": 4, "batch": 8}),
        (LLAMA, {"ranks": 4, "zero": 3, "batch": 4}, {"ranks": 8}, {"ranks": 8, "batch": 8}),
        (LLAMA, {"ranks": 2, "batch": 8}, {"dp": 4, "strong": True}, {"ranks": 4}),
        (LLAMA, {"ranks": 4, "tp": 2, "pp": 2, "batch": 4}, {"dp": 2}, {"ranks": 8, "batch": 8}),
        (LLAMA, {"ranks": 4, "pp": 2, "batch": 4}, {"pp": 4}, {"ranks": 8, "pp": 4}),
        # Dimensions that the job has not stand where the recipe has them.
        (LLAMA, {"ranks": 2, "tp": 2, "batch": 4}, {"pp": 2}, {"ranks": 4, "pp": 2}),
        (LLAMA, {"ranks": 1, "batch": 4}, {"pp": 2, "dp": 2}, {"ranks": 4, "pp": 2, "batch": 8}),
        (MIXTRAL, {"ranks": 2, "batch": 4}, {"ep": 2}, {"ranks": 4, "ep": 2, "batch": 8}),
        (LLAMA, {"ranks": 4, "cp": 2, "batch": 2}, {"dp": 4}, {"ranks": 8, "batch": 4}),
        (LLAMA, {"ranks": 4, "tp": 2, "batch": 4}, {"tp": 4, "dp": 4}, {"ranks": 16, "tp": 4, "batch": 8}),
        ("resnet50", {"ranks": 2, "batch": 64}, {"dp": 4}, {"ranks": 4, "batch": 128}),
        ("vit-b16", {"ranks": 2, "batch": 64}, {"dp": 4, "strong": True}, {"ranks": 4}),
    ],
)
def test_a_larger_job_is_the_one_that_is_generated(model, small, wanted, large):
    made = scaled(studio.generate(model, **small), **wanted)
    assert bare(made) == bare(studio.generate(model, **{**small, **large}))


@pytest.mark.parametrize(
    ("small", "wanted", "large"),
    [
        ({"ranks": 4, "tp": 2, "batch": 8}, {"dp": 4}, {"ranks": 8, "batch": 16}),
        ({"ranks": 2, "batch": 8, "micro_batches": 2}, {"dp": 4, "strong": True}, {"ranks": 4, "micro_batches": 1}),
        ({"ranks": 2, "tp": 2}, {"tp": 4}, {"ranks": 4, "tp": 4}),
        ({"ranks": 4, "pp": 2, "context": "64..4096"}, {"pp": 4}, {"ranks": 8, "pp": 4}),
        ({"ranks": 4, "phase": "disaggregated", "prefill_ranks": 2, "batch": 4}, {"ranks": 8},
         {"ranks": 8, "prefill_ranks": 4, "batch": 8}),
    ],
)  # fmt: skip
def test_larger_steps_of_inference_are_those_that_are_generated(small, wanted, large):
    made = scaled(studio.generate_inference(LLAMA, **small), **wanted)
    assert bare(made) == bare(studio.generate_inference(LLAMA, **{**small, **large}))


def test_more_ranks_for_the_experts_of_inference_keep_what_each_decodes():
    small = studio.generate_inference(MIXTRAL, ranks=4, ep=2, batch=8)
    large = studio.generate_inference(MIXTRAL, ranks=8, ep=4, batch=16)
    assert infer_mesh(small).layout == "ep=2,dp=2"
    assert bare(scaled(small, ep=4)) == bare(large)


def test_what_prompts_and_tokens_share_is_scaled_by_replicas_alone():
    job = studio.generate_inference(LLAMA, ranks=4, phase="disaggregated", prefill_ranks=2)
    with pytest.raises(ConfigError, match="prompts are read on ranks of their own"):
        scaled(job, pp=4)


def test_slow_ranks_stay_in_their_place_and_a_deeper_model_says_so():
    given = {"tp": 2, "gpu": "h100", "batch": 4}
    job = studio.generate("gpt3-125m", ranks=4, pp=2, slow_rank="3:2", **given)
    made = scaled(job, dp=2)
    assert bare(made) == bare(
        studio.generate("gpt3-125m", ranks=8, pp=2, slow_rank="5:2", **{**given, "batch": 8})
    )
    # The rank in the same place of the replica that was there before.
    recipe = read_recipe(made)
    assert recipe is not None
    assert recipe.given["slow_rank"] == "5:2"
    deeper = scaled(studio.generate("gpt3-125m", ranks=4, pp=2, **given), pp=4, layers="kept")
    said = next(item.value for item in deeper.ranks[0].metadata if item.name == "generated_by")
    assert "gpt3-125m of 24 layers" in str(said)
    assert find_unchanged_recipe(deeper) is not None


def test_a_job_that_was_changed_is_scaled_by_what_its_nodes_tell():
    job = studio.generate("gpt3-125m", ranks=2, batch=2)
    graph = job.graphs[0]
    changed = replace(job, graphs=(replace(graph, duration_ns=graph.duration_ns + 5),))
    assert find_unchanged_recipe(job) is not None
    assert find_unchanged_recipe(changed) is None
    made, after, rules = scale_job(changed, infer_mesh(changed), Growth(dp=4))
    assert (after.layout, len(made.ranks)) == ("dp=4", 4)
    assert "is made anew" not in [rule.change for rule in rules]
    with pytest.raises(ConfigError, match="changed after it was generated"):
        scaled(changed, tp=2)


def test_a_dimension_that_a_changed_job_lacks_is_not_made():
    job = studio.generate("gpt3-125m", ranks=2, batch=2)
    grown = scale_job(job, infer_mesh(job), Growth(pp=2))
    assert grown[1].layout == "dp=2,pp=2"
    assert [rule.change for rule in grown[2]] == ["is made anew"]
    graph = job.graphs[0]
    changed = replace(job, graphs=(replace(graph, duration_ns=graph.duration_ns + 5),))
    with pytest.raises(ConfigError, match="of one rank along the pipeline dimension"):
        scaled(changed, pp=2)


def test_files_keep_what_was_said(tmp_path):
    given = ["--model", "dlrm-dcnv2", "--batch", 64]
    assert run("generate", "dlrm", *given, "--ranks", 2, "-o", tmp_path / "two").exit_code == 0
    done = run("scale", tmp_path / "two", "-o", tmp_path / "four", "--ranks", 4, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [rule["change"] for rule in told["rules"]] == ["is made anew", "grows with the replicas"]
    given[-1] = 128
    assert run("generate", "dlrm", *given, "--ranks", 4, "-o", tmp_path / "wanted").exit_code == 0
    assert bare(studio.read(tmp_path / "four")) == bare(studio.read(tmp_path / "wanted"))


def test_files_in_the_order_of_their_names_are_still_what_was_generated(tmp_path):
    """Of twelve stages rank 10 is read before rank 2, so that its graph has another number than in the recipe."""
    given = ["--model", "gpt3-125m", "--ranks", 12, "--pp", 12, "--batch", 12]
    assert run("generate", "llm", *given, "-o", tmp_path / "job").exit_code == 0
    job = studio.read(tmp_path / "job")
    assert job.ranks[10].graph != 10
    assert find_unchanged_recipe(job) is not None
    swapped = [replace(rank, graph=(rank.graph + 1) % 12, slots=rank.slots) for rank in job.ranks]
    assert find_unchanged_recipe(replace(job, ranks=tuple(swapped))) is None


def test_one_of_a_thing_has_no_plural(tmp_path):
    job = tmp_path / "one"
    done = run("generate", "inference", "--model", LLAMA, "--ranks", 1, "-o", job)
    assert "decode of 1 sequence: 1 new token, 4,097 in the KV cache" in done.stdout
    assert "1 → 2 ranks, dp=1 → dp=2" in run("scale", job, "-o", tmp_path / "two", "--dp", 2).stdout
    assert "1 → 1 rank, dp=1 → dp=1" in run("scale", job, "-o", tmp_path / "same", "--dp", 1).stdout
