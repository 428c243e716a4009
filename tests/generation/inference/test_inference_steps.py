"""Steps of inference: graphs add up to closed forms, whatever the layout; times are those of the roofline."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import studio
from studio.doctor import examine
from studio.errors import ConfigError
from studio.et.write import write_with_copies
from studio.generation.inference.batches import Piece, advance_batch, parse_lengths, sum_load
from studio.generation.inference.counts import (
    Precision,
    cache_bytes,
    compute_experts_met,
    count_layer_weights,
    count_step_flop,
)
from studio.generation.inference.deployment import StepWish, build_steps
from studio.generation.inference.disaggregated import build_roles, iterate_transfers
from studio.generation.inference.fitting import propose_steps
from studio.generation.inference.generate import count_step_volumes, describe, generate_inference
from studio.generation.inference.job import make_steps
from studio.generation.inference.memory import count_cache_bytes, count_stage_memory, count_weight_bytes
from studio.generation.inference.options import build_asked_steps
from studio.generation.inference.passes import StepPasses
from studio.generation.models import Model, find_model
from studio.generation.program import Program
from studio.generation.transformer import (
    count_active_parameters,
    count_attention_flop,
    count_flop_per_sequence,
    count_parameters,
    list_down_products,
)
from studio.sim import simulate
from studio.sim.systems.gpus import find_gpu
from studio.trace import GENERATED, CollectiveType, NodeType, read_int_column
from tests.examples import examples

LLAMA = Model("llama", 4, 64, 8, 4, 8, 176, 104, 32)
QWEN = replace(LLAMA, name="qwen", qkv_bias=True, qk_norm=True, tied=True, head_size=16)
MIXTRAL = replace(LLAMA, name="mixtral", experts=8, experts_per_token=2, expert_width=48)
SHARED = replace(
    MIXTRAL, name="shared", shared_width=64, shared_gate=True, dense_layers=1, experts_per_token=3
)
LATENT = replace(
    SHARED, name="latent", kv_heads=8, query_rank=24, kv_rank=16, rope_size=4, value_size=6, head_size=8
)
SMALL = replace(LLAMA, name="small", layers=2, hidden=32)


@st.composite
def wishes(draw):
    """Draw a model and steps of it."""
    model = draw(st.sampled_from([LLAMA, QWEN, MIXTRAL, SHARED, LATENT]))
    tp, dp = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 2))
    pp = draw(st.sampled_from([1, 2, 4]))
    phase, micro = draw(st.sampled_from(["prefill", "decode", "mixed"])), draw(st.integers(1, 2))
    draft = 0 if phase == "prefill" else draw(st.integers(0, 2))
    return model, StepWish(
        tp * pp * dp, phase, tp, pp, batch=micro * dp * draw(st.integers(1, 3)),
        context=draw(st.sampled_from(["7", "1..30"])),
        prompt=None if phase == "decode" else "6" if model.experts else "5..9",
        cached=0 if phase == "decode" else draw(st.integers(0, 3)), draft=draft,
        draft_model=SMALL if draft and draw(st.booleans()) else None, micro_batches=micro,
        steps=draw(st.integers(1, 2)), precision=draw(st.sampled_from([Precision(), Precision("fp8", "fp8")])),
        seed=draw(st.integers(1, 3)), ep=dp if model.experts else 1,
        expert_skew=draw(st.sampled_from([0.0, 0.8])) if model.experts else 0.0,
    )  # fmt: skip


def done_again(model, layout, tokens):
    """Return the operations of all tensor parallel ranks but one in what each of them does for all tokens: route, compress."""
    compressing = model.layers * 2 * tokens * sum(product.size for product in list_down_products(model))
    width = model.experts + model.shared_gate if model.experts else 0
    routing = (model.layers - model.dense_layers) * 2 * tokens * model.hidden * width
    return (layout.tp - 1) * (compressing + routing)


@given(wishes())
@settings(max_examples=examples(30))
def test_graphs_add_up_to_the_closed_forms(drawn):
    """Operations of products and attention, and the bytes of each collective: summed over ranks they are the formulas'."""
    model, wish = drawn
    steps = build_steps(model, wish)
    trace = make_steps(steps, "test")
    uses = Counter(rank.graph for rank in trace.ranks)
    flop, volumes = 0, Counter()
    for index, graph in enumerate(trace.graphs):
        kinds = [graph.strings[text] for text in graph.attrs.value[graph.rows_with("op_type")[1]].tolist()]
        values = read_int_column(graph, "num_ops")[1].tolist()
        flop += uses[index] * sum(value for value, kind in zip(values, kinds, strict=True) if kind != "other")
        rows, sizes = read_int_column(graph, "comm_size")
        collective = dict(
            zip(*(column.tolist() for column in read_int_column(graph, "comm_type")), strict=True)
        )
        for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
            kind = NodeType(int(graph.type[row])).name.removeprefix("COMM_")
            name = CollectiveType(collective[row]).name if row in collective else kind
            group = "ep" if name == "ALL_TO_ALL" else "tp" if row in collective else "pp"
            volumes[group, name, "count"] += uses[index]
            volumes[group, name, "bytes"] += uses[index] * size
    expected = 0
    for number in range(steps.steps):
        for batch in (advance_batch(first, number) for micro in steps.batches for first in micro):
            expected += count_step_flop(model, sum_load(batch), steps.layout.vocabulary(model))
            expected += done_again(model, steps.layout, sum_load(batch).tokens)
            for drafted in steps.draft.batches(batch) if steps.draft else ():
                expected += count_step_flop(SMALL, sum_load(drafted), steps.draft.layout.vocabulary(SMALL))
    assert flop == expected
    told = Counter()
    for (group, kind), (count, size) in count_step_volumes(steps).items():
        told[group, kind, "count"], told[group, kind, "bytes"] = count, size
    assert volumes == told


@given(st.integers(1, 4_096), st.integers(1, 8))
@settings(max_examples=10)
def test_a_prefill_is_the_forward_third_of_training_without_what_causality_saves(length, sequences):
    """Of training's count attention is in full and every token has logits; here each token sees those up to itself."""
    batch = (Piece(sequences, length, 0, logits=length),)
    third = sequences * count_flop_per_sequence(LLAMA, length, LLAMA.vocabulary) // 3
    full = LLAMA.layers * count_attention_flop(LLAMA, sequences, length)
    saved = full * (length - 1) // (2 * length)
    assert count_step_flop(LLAMA, sum_load(batch), LLAMA.vocabulary) == third - saved


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5))
@settings(max_examples=10)
def test_a_prompt_costs_the_same_in_chunks_and_token_by_token(chunks):
    whole = (Piece(1, sum(chunks), 0, 0),)
    read, parts = 0, []
    for chunk in chunks:
        parts.append(Piece(1, chunk, read, 0))
        read += chunk
    assert count_step_flop(LLAMA, sum_load(tuple(parts)), 104) == count_step_flop(LLAMA, sum_load(whole), 104)
    assert sum(sum_load((Piece(1, 1, place, 0),)).pairs for place in range(read)) == sum_load(whole).pairs


def test_a_decoded_token_costs_twice_the_matrices_and_its_attention():
    """Pope et al.: 2 operations a parameter; here without the embedding, which is a look-up, and the norms."""
    model = find_model("llama3-70b")
    matrices = model.layers * count_layer_weights(model) + model.hidden * model.vocabulary
    looked_up = model.vocabulary * model.hidden + (2 * model.layers + 1) * model.hidden
    assert matrices == count_parameters(model) - looked_up
    assert (
        count_step_flop(model, sum_load((Piece(1, 1, 0),)), model.vocabulary) - 2 * matrices == 4 * 80 * 8_192
    )
    more = count_step_flop(model, sum_load((Piece(1, 1, 1_000),)), model.vocabulary)
    assert (
        more - count_step_flop(model, sum_load((Piece(1, 1, 0),)), model.vocabulary) == 4 * 80 * 8_192 * 1_000
    )


def test_the_cache_of_a_token_is_that_of_the_published_formula():
    """2 · layers · heads of keys and values · head size · bytes: 800 KB for OPT-13B in Kwon et al., section 3."""
    assert (
        cache_bytes(Model("opt-13b", 40, 5_120, 40, 40, 128, 20_480, 50_272, 2_048), Precision()) == 819_200
    )
    model = find_model("llama3-70b")
    assert cache_bytes(model, Precision()) == 2 * 80 * 8 * 128 * 2
    assert cache_bytes(model, Precision(cache="fp8")) == 2 * 80 * 8 * 128
    steps = build_steps(model, StepWish(8, tp=4, pp=2, batch=4, context="99"))
    held = [count_stage_memory(steps, stage)["kv_cache"] for stage in (0, 1)]
    assert 4 * sum(held) == 4 * 100 * cache_bytes(model, Precision())
    assert held == [count_cache_bytes(model, steps.layout, stage, Precision(), 400) for stage in (0, 1)]


def test_a_token_reads_the_experts_that_it_goes_to():
    """2 of Mixtral's 8 experts for one sequence, all but a hundredth of one for 32; a rank of 4 has a quarter."""
    model = find_model("mixtral-8x7b")
    one = build_steps(model, StepWish(1)).layout
    assert compute_experts_met(model, one, 0, 0) == pytest.approx(2)
    assert compute_experts_met(model, replace(one, sequence=32), 0, 0) == pytest.approx(8 * (1 - 0.75**32))
    spread = replace(one, dp=4, ep=4, sequence=8, expert_skew=0.5)
    every = sum(compute_experts_met(model, spread, 3, place) for place in range(4))
    assert 2 < every < compute_experts_met(model, replace(one, sequence=32), 0, 0)
    active = (
        sum(count_layer_weights(model, layer) for layer in range(model.layers))
        + model.hidden * model.vocabulary
    )
    looked_up = model.vocabulary * model.hidden + (2 * model.layers + 1) * model.hidden
    assert active == count_active_parameters(model) - looked_up
    trace = generate_inference(model, ranks=1, context=100)
    least = 2 * active / 3_350
    finish = max(simulate(trace, studio.preset("hgx-h100", npus=1).config).finish_ns)
    assert finish == pytest.approx(least, rel=0.01)


def test_latent_attention_caches_and_reads_what_is_compressed():
    """DeepSeek-V2, table 1: (rank + rotary) · layers elements a token; decoding attends to them in every head."""
    model = find_model("deepseek-v3")
    assert cache_bytes(model, Precision()) == 61 * (512 + 64) * 2
    steps = build_steps(model, StepWish(32, tp=2, ep=16, batch=32, context="999"))
    assert count_stage_memory(steps, 0)["kv_cache"] == 2 * 1_000 * cache_bytes(model, Precision())
    decode = count_step_flop(model, sum_load((Piece(1, 1, 1_000),)), 1) - count_step_flop(
        model, sum_load((Piece(1, 1, 0),)), 1
    )
    assert decode == 61 * 1_000 * 2 * 128 * (512 + 64 + 512)
    prompt = sum_load((Piece(1, 100, 0),))
    pairs = 100 * 101 // 2
    unattended = replace(prompt, reading=replace(prompt.reading, pairs=0))
    attended = count_step_flop(model, prompt, 1) - count_step_flop(model, unattended, 1)
    assert attended == 61 * pairs * 2 * 128 * (128 + 64 + 128)


def test_both_forms_of_latent_attention_by_hand():
    """Three sequences decode behind 9 tokens, a prompt of 5 is read behind 7: the nodes of attention of one of two ranks, 4 of 8 heads.

    Heads have queries and keys of 8 and 4 rotary elements, values of 6; a token is compressed to 16 and 4. FLOP are twice the products:

    - The cache gets 8 tokens of 20 elements, read and written in 2 bytes each.
    - Keys and values of the prompt's 12 tokens are made by a matrix of 16 × 4 · (8 + 6); 12 · 16 elements are read, 12 · 56 written.
    - The prompt has 5 · 7 + 15 = 50 pairs of 4 · (12 + 6) products each; it reads queries of 5 · 48 and writes results of 5 · 24
      elements, and reads keys and values of 12 · (48 + 24).
    - Queries of 3 · 4 heads are multiplied by the half of the matrix that makes keys, 4 · 8 × 16: 12 · 8 elements in, 12 · 16 out.
    - 3 · 10 pairs of 4 · (16 + 4 + 16) products: 12 queries of 20 are read, 12 results of 16 written, 30 tokens of 20 read of the cache.
    - The other half, 4 · 16 × 6, makes 12 · 6 elements of 12 · 16.
    """
    layout = build_steps(LATENT, StepWish(2, tp=2)).layout
    load = sum_load((Piece(3, 1, 9), Piece(1, 5, 7)))
    passes = StepPasses(Program(None), LATENT, replace(layout, sequence=load.tokens), 0, load=load)
    passes.attention_forward("step0.mb0.layer0", 0, 0, 0)
    made = {
        node["name"].removeprefix("step0.mb0.layer0.attn."): (
            node["attrs"]["num_ops"],
            node["attrs"]["tensor_size"],
        )
        for node in passes.program.nodes
        if node["type"] == "COMP_NODE"
    }
    assert made["cache.fwd"] == (8 * 20, 8 * 20 * 4)
    assert made["kv_up.fwd"] == (2 * 12 * 16 * 56, 2 * (12 * 16 + 16 * 56 + 12 * 56))
    assert made["core.fwd"] == (2 * 50 * 4 * 18, 2 * (5 * 48 + 5 * 24 + 12 * 72))
    assert made["q_absorb.fwd"] == (2 * 12 * 8 * 16, 2 * (12 * 8 + 4 * 8 * 16 + 12 * 16))
    assert made["latent.fwd"] == (2 * 30 * 4 * 36, 2 * (12 * 20 + 12 * 16 + 30 * 20))
    assert made["v_absorb.fwd"] == (2 * 12 * 16 * 6, 2 * (12 * 16 + 4 * 16 * 6 + 12 * 6))
    # A step that only decodes expands nothing, a prompt absorbs nothing; a cache in fp8 is read in half the bytes.
    for piece, absent in (
        (Piece(3, 1, 9), {"kv_up", "core"}),
        (Piece(1, 5, 7), {"q_absorb", "latent", "v_absorb"}),
    ):
        own = sum_load((piece,))
        alone = StepPasses(Program(None), LATENT, replace(layout, sequence=own.tokens), 0, load=own)
        alone.attention_forward("layer0", 0, 0, 0)
        names = {node["name"].split(".")[2] for node in alone.program.nodes}
        assert not names & absent
    small = StepPasses(
        Program(None), LATENT, replace(layout, sequence=8), 0, load=load, precision=Precision(cache="fp8")
    )
    small.attention_forward("layer0", 0, 0, 0)
    [moved] = [node["attrs"]["tensor_size"] for node in small.program.nodes if "latent" in node["name"]]
    assert moved == 2 * (12 * 20 + 12 * 16) + 30 * 20


def test_weights_of_ranks_are_the_parameters():
    model = find_model("llama3-8b")
    layout = build_steps(model, StepWish(8, tp=8)).layout
    norms = (2 * model.layers + 1) * model.hidden
    assert 8 * count_weight_bytes(model, layout, 0, Precision()) == 2 * (count_parameters(model) + 7 * norms)
    matrices = model.layers * count_layer_weights(model)
    saved = count_weight_bytes(model, layout, 0, Precision()) - count_weight_bytes(
        model, layout, 0, Precision("fp8")
    )
    assert saved == matrices // 8


@pytest.mark.parametrize(("name", "ranks", "launch_us"), [("llama3-8b", 1, 0), ("llama3-70b", 8, 161)])
def test_a_decode_step_of_one_sequence_takes_the_time_of_its_weights_and_cache(name, ranks, launch_us):
    """Bytes of weights and cache by the bandwidth of the memory, and of 8 ranks 10 to 25 µs for each small all-reduce."""
    model = find_model(name)
    trace = generate_inference(model, ranks=ranks, tp=ranks, context=4_096)
    config = studio.preset("hgx-h100", npus=ranks).config
    weights = 2 * (model.layers * count_layer_weights(model) + model.vocabulary * model.hidden) // ranks
    cache = 4_097 * cache_bytes(model, Precision()) // ranks
    least = (weights + cache) / config.local_memory_bytes_per_ns
    rest = max(simulate(trace, config).finish_ns) - least
    # Activations of one token are a few hundredths of a percent.
    assert launch_us * 10_000 <= rest <= launch_us * 25_000 + 0.002 * least


@pytest.mark.parametrize(
    "options",
    [
        {"ranks": 8, "tp": 2, "pp": 2, "batch": 8, "context": "1..30", "steps": 3, "micro_batches": 2},
        {"ranks": 4, "tp": 4, "phase": "prefill", "prompt": 20, "cached": 4},
        {"ranks": 4, "tp": 4, "phase": "mixed", "batch": 3, "context": 9, "dtype": "fp8"},
        {"ranks": 2, "tp": 2, "batch": 3, "context": 9, "draft": 2, "draft_model": SMALL},
        {
            "ranks": 4,
            "tp": 2,
            "pp": 2,
            "batch": 3,
            "context": 9,
            "steps": 2,
            "draft": 2,
            "draft_model": SMALL,
        },
        {"ranks": 4, "tp": 2, "ep": 2, "batch": 8, "context": 9, "model": SHARED},
        {"ranks": 2, "tp": 2, "phase": "mixed", "cached": 5, "context": 9, "model": LATENT},
    ],
)
def test_a_job_is_in_order_and_simulates_as_it_is_written(tmp_path, options):
    options = dict(options)
    trace = generate_inference(options.pop("model", LLAMA), **options)
    assert {found.code for found in examine(trace)} <= {"duration-estimated", "generated"}
    write_with_copies(trace, tmp_path, "steps")
    again = studio.read(tmp_path)
    assert [rank.slots for rank in again.ranks] == [rank.slots for rank in trace.ranks]
    assert again.groups == trace.groups
    assert all(any(item.name == GENERATED for item in rank.metadata) for rank in again.ranks)
    config = studio.preset("hgx-h100", npus=options["ranks"]).config
    assert list(simulate(again, config).finish_ns) == list(simulate(trace, config).finish_ns)


def test_lengths_are_drawn_by_seed_and_kept_in_bounds():
    for text, least, most in (("5..9", 5, 9), ("lognormal:20:1.5", 1, 64), ("7", 7, 7)):
        drawn = parse_lengths(text, "--context", 64).draw(50, seed=1)
        assert drawn == parse_lengths(text, "--context", 64).draw(50, seed=1)
        assert least <= min(drawn)
        assert max(drawn) <= most
    assert len(set(drawn)) == 1


@pytest.mark.parametrize(
    ("wish", "said", "hint"),
    [
        (StepWish(8, tp=3), "--tp is 3", "2 or 4"),
        (StepWish(8, tp=8), "4 heads of keys and values", "4"),
        (StepWish(4, batch=6), "--batch is 6", "4 or 8"),
        (StepWish(1, phase="train"), "allowed: prefill, decode, mixed", ""),
        (StepWish(1, context="many"), "--context is 'many'", ""),
        (StepWish(1, context="9..2"), "--context is '9..2'", ""),
        (StepWish(1, phase="prefill", prompt="0"), "--prompt is 0", ""),
        (StepWish(1, prompt="8"), "reads no prompt", "mixed"),
        (StepWish(1, phase="prefill", draft=2), "--draft", "decode"),
        (StepWish(2, draft_model=SMALL), "--draft-model is given without --draft", "Give --draft"),
        (StepWish(1, steps=0), "--steps is 0", ""),
        (StepWish(2, ep=2), "--ep is 2, but llama has no experts", "a model with experts"),
    ],
)
def test_what_no_step_can_be_is_refused_with_the_nearest_that_can(wish, said, hint):
    with pytest.raises(ConfigError) as caught:
        build_steps(LLAMA, wish)
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_context_beyond_the_models_is_refused():
    llama = find_model("llama3-8b")
    assert build_steps(llama, StepWish(1, context="8191"))
    for wish in (StepWish(1, context="8192"), StepWish(1, "prefill", prompt="8000", cached=200)):
        with pytest.raises(ConfigError, match=r"longest here: (8,191|7,992)"):
            build_steps(llama, wish)
    assert build_steps(find_model("llama3.1-8b"), StepWish(1, context="100000"))
    with pytest.raises(ConfigError, match="allowed: bf16, fp8"):
        Precision("int4")


def test_memory_that_does_not_fit_says_of_what_it_is_and_what_would_fit():
    model, gpu = find_model("llama3-70b"), find_gpu("h100")
    told = describe(model, StepWish(2, tp=2, batch=32, context="4096"), gpu)
    held = told["memory"]
    assert told["unfit"].startswith(
        "does not fit on 80 GB: 92 GB, of which weights 70.6 GB, KV cache 21.5 GB"
    )
    assert held["total"] == pytest.approx(92e9, rel=0.001)
    assert told["remedies"][0].startswith("--tp 4 with --ranks 4 (")
    assert any(remedy.startswith("--dtype fp8") for remedy in told["remedies"])
    assert describe(model, StepWish(4, tp=4, batch=32, context="4096"), gpu)["unfit"] == ""


@pytest.mark.parametrize(
    ("model", "ranks", "options", "parts"),
    [
        ("llama3-70b", 8, {"tp": 2, "batch": 512}, ("",)),
        ("mixtral-8x22b", 8, {"tp": 4, "batch": 64, "context": 8_192}, ("",)),
        # Neither degree nor type alone is enough.
        ("llama3-70b", 2, {"phase": "disaggregated", "prefill_ranks": 1, "prompts": 24}, ("prefill",)),
        ("llama3-70b", 8, {"phase": "disaggregated", "prefill_ranks": 2, "tp": 2, "prompts": 8, "batch": 255}, ("prefill", "decode")),
    ],
)  # fmt: skip
def test_every_remedy_makes_steps_fit_and_the_next_larger_batch_does_not(model, ranks, options, parts):
    def told(given, ranks=ranks):
        asked = build_asked_steps(model, ranks, given)
        return describe(asked.model, asked.wish, find_gpu("h100"))

    for part in parts:
        found = told(options)[part] if part else told(options)
        assert found["unfit"]
        assert found["remedies"]
        for remedy in found["remedies"]:
            words = remedy.partition(" (")[0].replace(" and ", " ").replace(" with ", " ").split()
            change = {
                name[2:].replace("-", "_"): value for name, value in zip(*[iter(words)] * 2, strict=True)
            }
            change = {name: int(value) if value.isdecimal() else value for name, value in change.items()}
            more = change.pop("ranks", ranks)
            after = told({**options, **change}, more)
            assert (after[part] if part else after)["unfit"] == "", remedy
            if "batch" in change:
                replicas = (ranks - options.get("prefill_ranks", 0)) // options.get("tp", 1)
                larger = told({**options, **change, "batch": change["batch"] + replicas})
                assert (larger[part] if part else larger)["unfit"]


@pytest.mark.parametrize(
    ("model", "ranks", "options", "proposed"),
    [
        ("llama3-8b", 8, {}, {}),
        ("llama3-70b", 8, {"batch": 32}, {"tp": 2}),
        ("llama3-70b", 8, {"batch": 32, "tp": 1}, {"pp": 2}),
        ("llama3.1-405b", 16, {}, {"tp": 8, "pp": 2}),
        ("llama3.1-405b", 2, {}, {}),
    ],
)
def test_the_smallest_layout_that_fits_is_proposed(model, ranks, options, proposed):
    asked, gpu = build_asked_steps(model, ranks, options), find_gpu("h100")
    assert propose_steps(asked.model, asked.wish, gpu.memory_gbytes * 1e9, options) == proposed
    if proposed:
        chosen = build_asked_steps(model, ranks, {**options, **proposed})
        assert describe(chosen.model, chosen.wish, gpu)["unfit"] == ""
        assert describe(asked.model, asked.wish, gpu)["unfit"]


@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        (8, {"prefill_ranks": 4, "prefill_tp": 2, "tp": 4, "prompts": 4, "steps": 2}),
        (6, {"prefill_ranks": 4, "prefill_tp": 4, "tp": 1, "dtype": "fp8"}),
        (4, {"prefill_ranks": 1, "cached": 5}),
    ],
)
def test_the_cache_goes_from_prefill_to_decode_once(tmp_path, ranks, options):
    """What is sent is the cache of the prompts, on whatever ranks heads lie; it is read back as it is written."""
    given = {"phase": "disaggregated", "batch": 6, "context": 9, "prompt": 20, **options}
    trace = generate_inference(LLAMA, ranks=ranks, **given)
    assert {found.level for found in examine(trace)} == {"info"}
    sent = received = 0
    for rank in trace.ranks:
        graph = trace.graphs[rank.graph]
        rows, sizes = read_int_column(graph, "comm_size")
        kinds = graph.type[rows]
        sent += int(sizes[kinds == NodeType.COMM_SEND].sum())
        received += int(sizes[kinds == NodeType.COMM_RECV].sum())
    asked = build_asked_steps(LLAMA, ranks, given)
    prompts = asked.wish.prompts or asked.wish.prefill_ranks // asked.wish.prefill_tp
    assert sent == received == prompts * (20 + asked.wish.cached) * cache_bytes(LLAMA, asked.wish.precision)
    told = describe(LLAMA, asked.wish)
    assert told["kv_transfer"]["bytes"] == sent
    assert told["joined_sequences"] == 6 + prompts
    write_with_copies(trace, tmp_path, "roles")
    again = studio.read(tmp_path)
    assert [rank.slots for rank in again.ranks] == [rank.slots for rank in trace.ranks]
    config = studio.preset("hgx-h100", npus=ranks).config
    assert list(simulate(again, config).finish_ns) == list(simulate(trace, config).finish_ns)


@pytest.mark.parametrize(("prefill", "decode"), [(1, 4), (2, 1), (2, 2)])
def test_ranks_that_decode_are_sent_all_that_latent_attention_caches(prefill, decode):
    """Each holds it whole, whatever its heads: as many copies as ranks decode, each sent by one rank."""
    given = {
        "phase": "disaggregated",
        "prefill_ranks": prefill,
        "prefill_tp": prefill,
        "tp": decode,
        "prompts": 1,
    }
    given |= {"prompt": 20, "context": 9}
    asked = build_asked_steps(LATENT, prefill + decode, given)
    sent = list(iterate_transfers(build_roles(LATENT, asked.wish)))
    assert [(target, size) for _, target, size in sent] == [
        (prefill + place, 20 * (16 + 4) * 2) for place in range(decode)
    ]
    assert len({source for source, _, _ in sent}) == min(prefill, decode)
    assert describe(LATENT, asked.wish)["kv_transfer"]["bytes"] == decode * 20 * cache_bytes(
        LATENT, Precision()
    )
    trace = generate_inference(LATENT, ranks=prefill + decode, **given)
    assert {found.level for found in examine(trace)} == {"info"}


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (StepWish(4, "disaggregated"), "--prefill-ranks is 0 of 4"),
        (StepWish(4, "disaggregated", prefill_ranks=4), "--prefill-ranks is 4 of 4"),
        (StepWish(4, "disaggregated", pp=2, prefill_ranks=2), "--pp is 2"),
        (StepWish(4, prefill_ranks=2), "--phase is decode"),
    ],
)
def test_roles_that_cannot_be_are_refused(wish, said):
    with pytest.raises(ConfigError, match=said):
        describe(LLAMA, wish)
