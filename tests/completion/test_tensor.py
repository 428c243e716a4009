"""More tensor-parallel ranks: where shapes say how operators are divided, and where a job was generated."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.analysis.job.completeness import infer_completeness
from studio.completion.factors import Factors
from studio.completion.scale import scale
from studio.completion.surgery import with_texts
from studio.errors import ConfigError
from studio.operators.report import list_operators
from studio.trace import NodeType, Trace, read_dense_column
from tests.test_cli import refused, run


def products(trace: Trace, name: str) -> list[float]:
    return [row.flop for row in list_operators(trace).rows if row.operator == name]


def sizes(trace: Trace) -> list[int]:
    graph = trace.graph_of(0)
    return read_dense_column(graph, "comm_size", -1)[graph.type == NodeType.COMM_COLL].tolist()


def test_recorded_products_are_divided_as_their_shapes_say(shared: Path):
    """A perceptron of 128 × 512 and 512 × 128 on two tensor-parallel ranks and two replicas."""
    two = studio.read(shared / "traces/torch/dp2tp2_mlp_4r")
    four = scale(two, tp=4)
    assert infer_completeness(four).world == 8
    # Twice as many ranks do half of each product.
    for name in ("aten::mm", "aten::addmm"):
        assert products(four, name) == products(two, name) != []
    # Sums of activations (16 × 128) stay; replicas have weights of 128 × 128 and their bias of 128, no more of 128 × 256.
    before, after = sizes(two), sizes(four)
    moved = {(one, other) for one, other in zip(before, after, strict=True) if one != other}
    assert moved == {(131_072, 65_536), (1024, 512)}
    assert before.count(8192) == after.count(8192) == 10
    # What touches no element stays.
    graph, larger = two.graph_of(0), four.graph_of(0)
    views = graph.name == graph.strings.find("aten::t")
    assert (graph.duration_ns[views] == larger.duration_ns[views]).all()
    gelu = graph.name == graph.strings.find("aten::gelu")
    assert np.allclose(larger.duration_ns[gelu], graph.duration_ns[gelu] / 2, atol=1)
    with pytest.raises(ConfigError, match="a divided size is 256, which 512 times as many ranks"):
        scale(two, tp=1024)


def test_what_shapes_do_not_tell_is_refused_with_the_operators(shared: Path, tmp_path):
    traces = shared / "traces"
    with pytest.raises(ConfigError, match="rank 0 exchanges 48 ALL_GATHER, 32 REDUCE_SCATTER along it"):
        scale(studio.read(traces / "stg/llama_8r_tp8"), tp=16)
    with pytest.raises(ConfigError, match="no matrix product before the all-reduce at node 1649"):
        scale(studio.read(traces / "torch/ddp_gpt_2r"), tp=4, layout="tp=2")
    bare = studio.read(studio.sample_path("transformer_8r"))
    with pytest.raises(ConfigError, match="0 matrix products with recorded shapes"):
        scale(bare, tp=4)


DATA = Path(__file__).parents[1] / "data"
COPIES = {
    "aten::clone",
    "aten::copy_",
    "aten::empty",
    "aten::empty_like",
    "aten::_unsafe_view",
    "aten::_reshape_alias",
}
"""Ways to the same keys for several heads: of a single head PyTorch needs no copy."""


def shapes(trace: Trace) -> Counter[tuple[str, str, str]]:
    """Count the operators of rank 0 by name and by shapes of inputs and outputs."""
    graph = trace.graph_of(0)
    names = [graph.strings[int(code)] for code in graph.name.tolist()]
    texts = [
        [graph.strings[int(code)] if code >= 0 else "" for code in row]
        for row in graph.io[:, [1, 4]].tolist()
    ]
    return Counter(
        (name, *both)
        for name, both in zip(names, texts, strict=True)
        if name.startswith("aten::") and name not in COPIES
    )


@pytest.mark.parametrize("kind", ["llama", "fused"])
def test_attention_on_four_ranks_has_the_shapes_recorded_on_four(kind: str):
    """Keys of fewer heads than queries, and queries, keys and values in one weight; perceptrons as wide as the model on four ranks."""
    two = studio.read(DATA / f"tp_{kind}_2r")
    four = scale(two, tp=4, layout="tp=2")
    recorded = shapes(studio.read(DATA / f"tp_{kind}_4r"))
    assert shapes(four) == recorded
    assert sum((shapes(two) - recorded).values()) > 100
    assert sizes(four) == sizes(two)
    # Attention of half the heads takes half the time; what touches no element stays.
    graph, larger = two.graph_of(0), four.graph_of(0)
    attention = graph.name == graph.strings.find("aten::_scaled_dot_product_flash_attention_for_cpu")
    assert attention.any()
    assert np.allclose(larger.duration_ns[attention], graph.duration_ns[attention] / 2, atol=1)
    views = graph.name == graph.strings.find("aten::transpose")
    assert (graph.duration_ns[views] == larger.duration_ns[views]).all()


@pytest.mark.parametrize(
    ("name", "new", "why"),
    [
        ("aten::transpose", "aten::mystery", "it is not known what 'aten::mystery' makes of a divided size"),
        (
            "aten::silu",
            "aten::_softmax",
            r"'aten::_softmax' \(node \d+\) needs all of a divided size \(256\)",
        ),
    ],
)
def test_operators_that_do_not_say_what_becomes_of_heads_are_refused(name: str, new: str, why: str):
    job = studio.read(DATA / "tp_llama_2r")
    graphs = []
    for graph in job.graphs:
        strings, code = with_texts(graph.strings, [new])
        renamed = np.where(graph.name == graph.strings.find(name), code, graph.name)
        graphs.append(replace(graph, strings=strings, name=renamed.astype(graph.name.dtype)))
    with pytest.raises(ConfigError, match=why):
        scale(replace(job, graphs=tuple(graphs)), tp=4, layout="tp=2")


def test_a_sum_over_heads_that_no_all_reduce_makes_whole_is_refused():
    job = studio.read(DATA / "tp_llama_2r")
    graphs = []
    for graph in job.graphs:
        kind = graph.type.copy()
        kind[np.flatnonzero(kind == NodeType.COMM_COLL)[0]] = NodeType.COMP
        graphs.append(replace(graph, type=kind))
    with pytest.raises(
        ConfigError, match=r"'aten::mm' of 96 × 64 by 64 × 128 .* no all-reduce sums its parts up"
    ):
        scale(replace(job, graphs=tuple(graphs)), tp=4, layout="tp=2")


def test_more_ranks_than_heads_are_refused():
    with pytest.raises(ConfigError, match="a divided size is 2, which 4 times as many ranks"):
        scale(studio.read(DATA / "tp_llama_2r"), tp=8, layout="tp=2")


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.data())
def test_regrouped_sizes_keep_their_numbers(numbers: list[int], data: st.DataObject):
    """However the factors of a shape are put together, views of views have the same factors."""
    factors = Factors()
    sizes = [factors.new(number) for number in numbers]
    cuts = data.draw(st.lists(st.integers(0, len(numbers)), max_size=3).map(sorted))
    groups = [numbers[a:b] for a, b in zip([0, *cuts], [*cuts, len(numbers)], strict=True)]
    merged = factors.regroup(sizes, [math.prod(group) for group in groups])
    assert merged is not None
    assert [factors.number(size) for size in merged] == [math.prod(group) for group in groups]
    back = factors.regroup(merged, numbers)
    assert back is not None
    assert [factors.split(size) for size in back] == [factors.split(size) for size in sizes]
    other = [factors.new(math.prod(group)) for group in groups]
    assert all(factors.equate(one, two) for one, two in zip(merged, other, strict=True))
    assert [factors.split(size) for size in other] == [factors.split(size) for size in merged]


def test_sizes_whose_factors_do_not_fit_stay_apart():
    factors = Factors()
    six = factors.new(6)
    assert factors.regroup([six], [4, 2]) is None
    assert factors.regroup([six], [2, 3]) is not None
    other = factors.new(6)
    assert factors.regroup([other], [3, 2]) is not None
    assert not factors.equate(six, other)
    assert [factors.value(factor) for factor in factors.split(six)] == [2, 3]
    assert not factors.equate(six, factors.new(7))


@pytest.mark.parametrize("options", [{"pp": 2, "gpu": "h100"}, {"zero": 1, "dp": 2}])
def test_a_generated_job_is_the_one_generated_with_as_many(tmp_path, options):
    given = [text for key, value in options.items() for text in (f"--{key}", value)]
    run("generate", "llm", "--model", "llama3-8b", "--ranks", 4, "--tp", 2, *given, "-o", tmp_path / "two")
    done = run("scale", tmp_path / "two", "-o", tmp_path / "four", "--tp", 4, "--json")
    assert done.exit_code == 0, done.output
    assert [rule["change"] for rule in json.loads(done.stdout)["rules"]] == ["is made anew"]
    run("generate", "llm", "--model", "llama3-8b", "--ranks", 8, "--tp", 4, *given, "-o", tmp_path / "wanted")
    assert studio.read(tmp_path / "four") == studio.read(tmp_path / "wanted")


def test_a_generated_job_that_was_changed_or_cannot_be_divided_so_is_refused(tmp_path):
    job = studio.generate("llama3-8b", ranks=4, tp=2)
    studio.write(job, tmp_path / "job", "job")
    said = refused("scale", tmp_path / "job", "-o", tmp_path / "out", "--tp", 3)
    assert "--tp is 3, which does not divide 32 heads" in said
    more = tmp_path / "more"
    assert run("scale", tmp_path / "job", "-o", more, "--tp", 4, "--dp", 4).exit_code == 0
    assert len(studio.read(more).ranks) == 16
    graph = job.graphs[0]
    changed = replace(job, graphs=(replace(graph, duration_ns=graph.duration_ns + 5),))
    studio.write(changed, tmp_path / "changed", "job")
    said = refused("scale", tmp_path / "changed", "-o", tmp_path / "out", "--tp", 4)
    assert "changed after it was generated" in said
