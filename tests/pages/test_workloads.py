"""The form of the Workloads page: made of the table of options, with what is wrong at the field that it is about."""

from __future__ import annotations

import pytest

from studio.generation.options import BY_KEY, OPTIONS
from studio.jobs.generating import name_job
from studio.pages.workloads.asking import Filled, compute_counts, parse_form
from studio.pages.workloads.filling import copy_shape, list_placeholders
from studio.pages.workloads.form import (
    FOLDED,
    build_form,
    list_gpu_choices,
    list_model_choices,
    list_option_choices,
)
from studio.pages.workloads.results import (
    build_counts_drawing,
    build_drawing,
    build_facts,
    build_memory_section,
    build_times,
    build_verdict,
)
from studio.pages.workloads.texts import FIRST, KEYS, infer_kind, read_text, spell
from studio.sim.systems.gpus import SYSTEM_OF
from tests.pages.test_simulate_runs import find_all, texts


def filled(**said: str) -> Filled:
    found = parse_form({**FIRST, **said}, None)
    assert isinstance(found, Filled), found
    return found


def said_at(**said: str) -> dict[str, str]:
    """What is wrong with a form, by field."""
    found = parse_form({**FIRST, **said}, None)
    assert isinstance(found, dict)
    return {key: error.message for key, error in found.items()}


def test_every_option_has_a_field_under_its_heading_and_none_is_left_out():
    """A row more in the table is a field more."""
    shown = build_form(FIRST)
    fields = find_all(shown, "TextInput") + find_all(shown, "Select")
    assert sorted(one.id["workload"] for one in fields) == sorted(KEYS)
    assert {option.key for option in OPTIONS} < set(KEYS)
    folds = find_all(shown, "Fold")
    assert len(folds) == len(FOLDED)
    assert not any(fold.open for fold in folds)
    opened = [fold for fold in find_all(build_form({**FIRST, "zero": "1"}), "Fold") if fold.open]
    assert texts(opened[0]).startswith("Sharding and memory")
    assert len(opened) == 1
    assert [one["value"] for one in list_option_choices(BY_KEY["zero"])] == ["0", "1", "2", "3"]
    families = [group["group"] for group in list_model_choices("mine.json")]
    assert families[:2] == ["Your own", "GPT-3"]
    assert "Llama 3.1" in families
    assert {one["value"] for one in list_gpu_choices()} <= set(SYSTEM_OF)


def test_the_address_says_what_the_form_says():
    fields = {**FIRST, "model": "llama3-70b", "gpu": "", "stage_layers": "40, 40"}
    assert spell(fields) == "model=llama3-70b gpu= stage_layers=40,40"
    assert read_text(spell(fields)) == {**fields, "stage_layers": "40,40"}


def test_the_smallest_layout_that_fits_is_proposed_and_what_is_said_stays():
    first = filled()
    assert dict(first.proposed) == {"tp": 4}
    assert first.fits
    shown = dict(zip(KEYS, list_placeholders(first, KEYS), strict=True))
    assert (shown["tp"], shown["dp"], shown["sequence"], shown["zero"]) == (
        "4, proposed",
        "2",
        "8,192",
        "0 · nothing",
    )
    assert texts(build_verdict(first, compute_counts(first))).startswith(
        "tensor 4 × data 2  · proposed: tensor parallel 4"
    )
    assert not filled(tp="8").proposed
    assert filled(gpu="").memory_bytes is None
    assert "choose a GPU" in texts(build_times(filled(gpu=""), compute_counts(filled(gpu=""))))


def test_what_does_not_fit_is_said_with_what_would_make_it_fit():
    said = {"tp": "2", "pp": "1", "zero": "0", "recompute": "none"}
    tight = filled(**said)
    assert not tight.fits
    shown = build_verdict(tight, compute_counts(tight))
    held = tight.workload.peak_memory
    total, kept = sum(held.values()) / 1e9, held["activations"] / 1e9
    words = (
        f"Does not fit on 80 GB: {total:.1f} GB, of which optimizer 48.2 GB and activations {kept:.1f} GB."
    )
    assert words in texts(shown)
    buttons = find_all(shown, "Button")
    offered = [button.to_plotly_json()["props"]["data-of"] for button in buttons]
    assert offered == ["recompute=full", "zero=1", "tp=4", "pp=2"]
    assert filled(tp="2", pp="1", zero="0").proposed == {"recompute": "full"}
    for change in offered:
        key, _, value = change.partition("=")
        assert filled(**{**said, key: value}).fits
    alone = filled(ranks="1", dp="1")
    more, away = (
        dict(part.split("=") for part in button.to_plotly_json()["props"]["data-of"].split(" "))
        for button in find_all(build_verdict(alone, compute_counts(alone)), "Button")
    )
    assert (int(more["ranks"]) > 1, more["dp"]) == (True, "")
    assert away == {"offload": "optimizer"}
    assert filled(**more).fits
    assert filled(ranks="1", dp="1", **away).fits


@pytest.mark.parametrize(
    ("said", "field", "words"),
    [
        ({"tp": "3"}, "tp", "Tensor parallel is 3, which does not divide 32 heads"),
        ({"ranks": "12", "tp": "8"}, "ranks", "Ranks is 12, which tp × pp = 8 × 1 = 8 does not divide."),
        ({"ranks": "many"}, "ranks", "Ranks is 'many'; allowed: a whole number of at least 1."),
        ({"ranks": "99999999"}, "ranks", "Ranks is 99,999,999; allowed: 1 to 1,048,576."),
        ({"batch": "7", "tp": "4", "pp": "1"}, "batch", "Batch is 7, which 2 replicas × micro-batch 1 = 2 does not divide."),
        ({"sequence": "99", "tp": "8"}, "sequence", "Tokens of a sequence is 99, which tensor parallel 8 does not divide."),
        ({"stage_layers": "16,x"}, "stage_layers", "Layers of stages is '16,x'; allowed: whole numbers"),
        ({"stage_layers": "1,2", "pp": "2"}, "stage_layers", "Layers of stages names 2 numbers, 3 layers"),
        ({"compute_efficiency": "1.2"}, "compute_efficiency", "Compute efficiency is '1.2'; allowed: a number of at least 0.000001"),
        ({"jitter": "-1"}, "jitter", "Jitter is '-1'; allowed: a number of at least 0."),
        ({"model": "llama9"}, "model", "Model is 'llama9'; allowed: "),
        ({"model": "custom", "layers": "2"}, "model", "Model custom needs width, heads"),
        ({"model": "file"}, "model", "The config.json is not here any more."),
        ({"gpu": "tpu-v5e", "ranks": "512"}, "ranks", "tpu-v5e"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_its_field_in_the_words_of_the_form(said, field, words):
    wrong = said_at(**said)
    assert list(wrong) == [field]
    assert words in wrong[field]
    assert "--" not in wrong[field]


def test_a_model_of_numbers_begins_with_those_of_the_one_before_and_is_the_same():
    fields = {**FIRST, "model": "custom"}
    copied = copy_shape(fields, filled().workload.model)
    own = filled(**{"model": "custom", **copied})
    assert compute_counts(own)["parameters"] == compute_counts(filled())["parameters"]
    assert copy_shape({**fields, "layers": "2"}, filled().workload.model) == {}


def test_a_config_that_was_dropped_is_a_model():
    text = '{"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}'
    found = parse_form({**FIRST, "model": "file"}, {"name": "a/b/small.json", "text": text})
    assert isinstance(found, Filled)
    assert (found.workload.model.source, found.workload.model.layers) == ("small.json", 12)
    wrong = parse_form({**FIRST, "model": "file"}, {"name": "small.json", "text": "[]"})
    assert "model" in wrong


def test_counts_memory_and_the_mesh_are_those_of_closed_forms_and_the_time_is_simulated():
    first = filled()
    told = compute_counts(first)
    assert texts(build_facts(first, told)).split("Parameters")[1].split()[1:3] == ["8.03", "billion"]
    shown = texts(build_memory_section(first, told))
    assert "optimizer ? 24.1 GB 56.9 %" in shown
    assert (
        build_drawing(first.workload.layout)["sentence"] == "8 ranks: 4 along tensor (tp) × 2 along data (dp)"
    )
    timed = texts(build_times(first, told))
    assert "simulated on hgx-h100" in timed
    large = filled(model="llama3-405b", ranks="16384")
    assert "not simulated yet" in texts(build_times(large, compute_counts(large)))


@pytest.mark.parametrize(
    ("said", "facts_of", "name"),
    [
        (
            {"model": "llama3-70b", "kind": "inference", "tp": "8", "batch": "32", "zero": "3"},
            ("New tokens a step", "32", "23.0 GB"),
            "llama3-70b, decode, 8 × h100, tp=8",
        ),
        ({"model": "resnet50", "tp": "8"}, ("Samples a step", "256", "2.10 GB"), "resnet50, 8 × h100, dp=8"),
        ({"model": "dlrm-dcnv2", "gpu": ""}, ("Samples a step", "65,536"), "dlrm-dcnv2, 8 ranks, dp=8"),
    ],
)
def test_steps_of_inference_and_other_networks_have_forms_of_their_own(said, facts_of, name):
    """What another kind of job has no use for is not seen, and not taken."""
    found = filled(**said)
    told = compute_counts(found)
    shown = texts(build_facts(found, told))
    assert all(part in shown for part in facts_of), shown
    assert name_job(found.wanted) == name
    assert len(build_counts_drawing(told)["shapes"]) >= 8
    assert texts(build_memory_section(found, told)).startswith("Memory of an NPU, by part")
    hints = dict(zip(KEYS, list_placeholders(found, KEYS), strict=True))
    assert (hints["kind"], hints["dp"]) == ("training", told["layout"].partition("dp=")[2].partition(",")[0])
    trace = found.wanted.trace()
    assert len(trace.ranks) == 8
    if said.get("gpu") != "":
        assert "simulated on hgx-h100" in texts(build_times(found, told))
    kind = infer_kind({**FIRST, **said})
    seen = [
        field.children[1].id["workload-said"] for field in find_all(build_form({**FIRST, **said}), "Div")
        if f"wl-of-{kind}" in (field.className or "") and "wl-field" in field.className
    ]  # fmt: skip
    assert ("tp" in seen, "kv_dtype" in seen, "bucket_mb" in seen) == (
        kind == "inference", kind == "inference", kind == "network"
    )  # fmt: skip


def test_what_is_wrong_with_steps_is_said_at_its_field():
    steps = {"model": "llama3-70b", "kind": "inference"}
    assert "Context" in said_at(**steps, context="x")["context"]
    assert "decode" in said_at(**steps, phase="disaggregated")["phase"]
    proposed = filled(**steps, batch="32")
    assert (proposed.proposed, proposed.fits) == ({"tp": 2}, True)
    assert "proposed: tensor parallel 2, the smallest that fits" in texts(
        build_verdict(proposed, compute_counts(proposed))
    )
    assert dict(zip(KEYS, list_placeholders(proposed, KEYS), strict=True))["tp"] == "2, proposed"
    tight = filled(**steps, batch="32", tp="1", pp="1")
    assert not tight.fits
    shown = texts(build_verdict(tight, compute_counts(tight)))
    assert "Does not fit on 80 GB" in shown
    assert "It fits with: Tensor parallel 2 (" in shown
