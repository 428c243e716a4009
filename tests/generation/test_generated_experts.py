"""Experts, latent attention, windows and context parallelism: graphs and closed forms agree, and ranks share all of a model."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import studio
from studio.analysis.job.memory import compute_memory_use
from studio.doctor import examine
from studio.errors import ConfigError
from studio.generation.job import make_job
from studio.generation.layout import SCHEDULES
from studio.generation.memory import count_stage_memory
from studio.generation.models import Model, find_model
from studio.generation.routing import compute_popularity, count_received_tokens, count_tokens_by_rank
from studio.generation.transformer import (
    build_stage_units,
    count_active_parameters,
    count_flop_per_sequence,
    count_parameters,
    count_step_flop,
)
from studio.generation.volumes import count_step_volumes
from studio.generation.wish import Wish, build_layout
from studio.sim import simulate
from tests.examples import examples
from tests.generated_sums import totals

LLAMA = Model("llama", 4, 64, 8, 4, 8, 176, 104, 48)
MIXTRAL = replace(LLAMA, name="mixtral", experts=8, experts_per_token=2, expert_width=96)
DEEPSEEK = replace(
    MIXTRAL, name="deepseek", kv_heads=8, shared_width=32, dense_layers=1, kv_rank=24, query_rank=40, rope_size=4,
    value_size=12,
)  # fmt: skip
GEMMA = replace(LLAMA, name="gemma", window=16, full_every=2, post_norms=True, tied=True)
MODELS = (LLAMA, MIXTRAL, DEEPSEEK, replace(DEEPSEEK, name="lite", query_rank=0, shared_gate=True), GEMMA)


@st.composite
def layouts(draw):
    """Draw a model and a layout of it."""
    model = draw(st.sampled_from(MODELS))
    tp, cp, dp, pp = (draw(st.sampled_from(degrees)) for degrees in ((1, 2), (1, 2, 4), (1, 2, 3), (1, 2)))
    ep = draw(st.sampled_from([n for n in (1, 2, 4) if cp * dp % n == 0])) if model.experts else 1
    zero = draw(st.integers(0, 3))
    shards = [n for n in range(2, cp * dp + 1) if cp * dp % n == 0 and n % ep == 0]
    wish = Wish(
        tp * cp * dp * pp, tp, pp, batch=2 * dp * draw(st.integers(1, 2)), cp=cp, ep=ep,
        cp_kind=draw(st.sampled_from(["ring", "all-to-all"])) if cp * tp <= model.kv_heads else "ring",
        zero=zero, shard=draw(st.sampled_from([None, *shards])) if zero else None, grad_overlap=draw(st.sampled_from([None, True])),
        schedule=draw(st.sampled_from(SCHEDULES if pp == 2 else ["1f1b", "gpipe"])),
        order=draw(st.sampled_from(["megatron", "tp-pp-dp"])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        attention=draw(st.sampled_from(["flash", "unfused"])),
        capacity_factor=draw(st.sampled_from([None, 1.3])) if model.experts else None,
        expert_skew=draw(st.sampled_from([0.0, 0.7])) if model.experts else 0.0,
    )  # fmt: skip
    return model, build_layout(model, wish)


@given(layouts())
@settings(max_examples=examples(40))
def test_graphs_add_up_to_the_closed_forms(drawn):
    """Operations, bytes of each collective, and parameters: summed over ranks they are the formulas', whatever the layout."""
    model, layout = drawn
    flop, volumes = totals(make_job(model, layout))
    assert flop == count_step_flop(model, layout)
    expected = Counter()
    for (group, kind), (count, size) in count_step_volumes(model, layout).items():
        expected[group, kind, "count"], expected[group, kind, "bytes"] = count, size
    assert volumes == expected
    units = [unit for stage in range(layout.pp) for unit in build_stage_units(model, layout, stage).values()]
    held = sum((layout.ep if unit.group == "edp" else 1) * layout.tp * unit.held(layout.tp) for unit in units)
    copied = layout.vocabulary(model) * model.hidden if model.tied and layout.pp > 1 else 0
    replicated = (layout.tp - 1) * sum(unit.replicated for unit in units)
    assert held - replicated - copied == count_parameters(model, layout.vocabulary(model))
    assert sum(count_stage_memory(model, layout, 0).values()) > 0


@pytest.mark.parametrize(
    ("model", "wish"),
    [
        (MIXTRAL, Wish(8, 2, ep=4, batch=8, zero=1)),
        (MIXTRAL, Wish(8, 1, 2, ep=4, expert_skew=1.0, batch=16, schedule="zb-h1", zero=2)),
        (DEEPSEEK, Wish(8, 2, 2, cp=2, ep=2, batch=4, zero=3, schedule="zb-h1")),
        (MIXTRAL, Wish(8, ep=2, batch=16, zero=2, shard=4)),
        (MIXTRAL, Wish(8, ep=4, batch=16, zero=3, shard=4)),
        (LLAMA, Wish(8, 1, 2, cp=4, batch=4)),
        (LLAMA, Wish(8, cp=4, cp_kind="all-to-all", batch=4)),
    ],
    ids=["tensor and expert", "skewed", "latent", "hybrid", "hybrid of whole experts", "ring", "ulysses"],
)
def test_a_job_is_in_order_and_simulates(model, wish):
    trace = make_job(model, build_layout(model, wish))
    found = [item for item in examine(trace) if item.level != "info" or item.code == "deadlock"]
    assert not [item.message for item in found if item.code != "uneven-all-to-all"]
    assert max(simulate(trace, studio.presets["hgx-h100-8"].config).finish_ns) > 0


@pytest.mark.parametrize(("ep", "shard", "share"), [(1, 4, 4), (2, 4, 2), (4, 4, 1), (2, 8, 4)])
def test_experts_are_divided_among_those_of_a_shard_group_that_hold_the_same(ep, shard, share):
    layout = build_layout(MIXTRAL, Wish(8, ep=ep, batch=8, zero=3, shard=shard))
    units = build_stage_units(MIXTRAL, layout, 0)
    experts = sum(unit.held(1) for unit in units.values() if unit.group == "edp")
    others = sum(unit.held(1) for unit in units.values() if unit.group == "dp")
    assert count_stage_memory(MIXTRAL, layout, 0)["optimizer"] == 12 * (others // shard + experts // share)
    groups = {group.name: group.ranks for group in make_job(MIXTRAL, layout).groups}
    # Ranks 0 to shard - 1 divide the dense weights; of these every ep-th has the experts of rank 0.
    assert groups.get("eshard0", (0,)) == (tuple(range(0, shard, ep)) if shard < 8 else (0,))
    assert groups.get("replica0", (0,)) == tuple(range(0, 8, shard))


def test_memory_of_experts_over_a_step_peaks_at_the_closed_form():
    layout = build_layout(DEEPSEEK, Wish(8, 1, 2, batch=8, ep=2, cp=2))
    trace = make_job(DEEPSEEK, layout)
    times = simulate(trace, studio.preset("hgx-h100", npus=8).config).node_times()
    for use, rank in zip(compute_memory_use(trace, times), trace.ranks, strict=True):
        assert use.peak_bytes == sum(count_stage_memory(DEEPSEEK, layout, rank.graph).values())


def test_groups_are_those_of_megatrons_order():
    """Tensor, context, expert within what holds the same weights: with tp 2, cp 2, dp 2 and ep 2 expert groups are those of cp."""
    trace = make_job(MIXTRAL, build_layout(MIXTRAL, Wish(8, 2, cp=2, ep=2, batch=4)))
    groups = {group.name: group.ranks for group in trace.groups}
    assert groups["tp1"] == (2, 3)
    assert groups["cp0"] == groups["ep0"] == (0, 2)
    assert groups["cp3"] == (5, 7)
    assert groups["dp1"] == (1, 3, 5, 7)
    assert groups["edp2"] == (2, 6)


def test_skewed_experts_get_more_on_one_rank_and_all_together_the_same():
    even = build_layout(MIXTRAL, Wish(4, ep=4, batch=4))
    skewed = replace(even, expert_skew=1.0)
    shares = [count_received_tokens(MIXTRAL, skewed, 0, place) for place in range(4)]
    assert sum(shares) == 4 * sum(count_tokens_by_rank(MIXTRAL, even, 0)) == 4 * 2 * 48
    assert max(shares) > 1.2 * 96
    assert count_step_flop(MIXTRAL, skewed) == count_step_flop(MIXTRAL, even)
    assert shares != [count_received_tokens(MIXTRAL, replace(skewed, seed=2), 0, place) for place in range(4)]
    wanted = compute_popularity(8, 2, 9.0, "x")
    assert max(wanted) == 1
    assert sum(wanted) == pytest.approx(2)
    trace = make_job(MIXTRAL, skewed)
    assert len(trace.graphs) == 4
    config = studio.preset("hgx-h100", npus=4).config
    finish = [max(simulate(make_job(MIXTRAL, layout), config).finish_ns) for layout in (even, skewed)]
    assert finish[0] < finish[1]


@pytest.mark.parametrize(
    ("name", "norms"), [("mixtral-8x7b", 2), ("deepseek-v2", 2.4), ("qwen3-30b-a3b", 2.125)]
)
def test_operations_of_a_token_are_six_for_each_active_parameter_of_a_matrix(name, norms):
    """As Chinchilla counts them, and attention over the sequence: 6 N + 6 l s (width of queries and of outputs).

    Norms take their widths in the model's, of a layer: two and those of compressed (2,048 of 5,120) or of each head (2 × 128 of 2,048).
    """
    model, length = find_model(name), 1_024
    matrices = count_active_parameters(model) - model.vocabulary * model.hidden
    matrices -= round((norms * model.layers + 1) * model.hidden)
    wide = model.heads * (model.head_size + model.rope_size) + model.heads * (
        model.value_size or model.head_size
    )
    attention = 6 * model.layers * length * wide
    assert count_flop_per_sequence(model, length, model.vocabulary) == length * (6 * matrices + attention)


def test_capacity_is_that_of_switch_transformers():
    """Capacity factor × tokens × chosen / experts of each expert, padded: 1.25 × 48 × 2 / 8 = 15 from each rank."""
    layout = build_layout(MIXTRAL, Wish(4, ep=4, batch=4, capacity_factor=1.25))
    assert count_tokens_by_rank(MIXTRAL, layout, 0) == (30, 30, 30, 30)


def test_all_to_alls_have_the_bytes_of_gshard_and_rings_those_of_ring_attention():
    mixtral = find_model("mixtral-8x7b")
    volumes = count_step_volumes(mixtral, build_layout(mixtral, Wish(8, ep=8, batch=8, sequence=4_096)))
    # Dispatch and combination in both passes, of each token two copies of 4,096 elements of 2 bytes, on 8 ranks.
    assert volumes["ep", "ALL_TO_ALL"] == (8 * 32 * 4, 8 * 32 * 4 * 4_096 * 2 * 4_096 * 2)
    llama = find_model("llama3-8b")
    layout = build_layout(llama, Wish(4, cp=4, batch=1))
    # 3 times keys and values in the forward pass; 3 times them and 4 times their gradients in the backward pass.
    each = 2 * 2_048 * 2 * 8 * 128
    assert volumes_of(llama, layout, "SEND") == (4 * 32 * 10, 4 * 32 * 10 * each)
    ulysses = volumes_of(llama, replace(layout, cp_kind="all-to-all"), "ALL_TO_ALL")
    assert ulysses == (4 * 32 * 8, 4 * 32 * 2 * 2 * 2_048 * (4_096 + 1_024 + 1_024 + 4_096))


def volumes_of(model, layout, kind):
    return count_step_volumes(model, layout)["cp", kind]


@pytest.mark.parametrize(
    ("model", "wish", "said", "hint"),
    [
        (MIXTRAL, Wish(8, ep=3), "--ep is 3", "2 or 4"),
        (MIXTRAL, Wish(8, ep=16), "--ep is 16", "8"),
        (MIXTRAL, Wish(8, ep=2, capacity_factor=0), "--capacity-factor is 0", "even share"),
        (LLAMA, Wish(8, ep=2), "--ep is 2, but", "a model with experts"),
        (LLAMA, Wish(8, expert_skew=1.0), "--expert-skew", ""),
        (LLAMA, Wish(8, cp=8, cp_kind="all-to-all"), "--cp is 8", "4"),
        (LLAMA, Wish(5, cp=5), "--seq is 48", "45 or 50"),
        (MIXTRAL, Wish(8, 2, sequence_parallel=False), "sequence parallelism", "no-sequence"),
    ],
)
def test_what_does_not_divide_names_the_nearest_that_does(model, wish, said, hint):
    with pytest.raises(ConfigError) as caught:
        build_layout(model, wish)
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"experts": 8}, "experts_per_token"),
        ({"experts": 8, "experts_per_token": 9}, "allowed: 1 to 8"),
        ({"experts": 8, "experts_per_token": 2}, "expert_width"),
        ({"expert_width": 8}, "no experts"),
        ({"query_rank": 8}, "no kv_rank"),
        ({"kv_rank": 8}, "kv_heads"),
    ],
)
def test_numbers_of_experts_that_contradict_each_other_are_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        replace(LLAMA, **changes)
