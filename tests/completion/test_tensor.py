"""More tensor-parallel ranks: where shapes say how operators are divided, and where a job was generated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.analysis.job.completeness import completeness
from studio.completion.scale import scale
from studio.errors import ConfigError
from studio.operators.report import list_operators
from studio.trace import NodeType, Trace, dense_column
from tests.test_cli import refused, run


def products(trace: Trace, name: str) -> list[float]:
    return [row.flop for row in list_operators(trace).rows if row.operator == name]


def sizes(trace: Trace) -> list[int]:
    graph = trace.graph_of(0)
    return dense_column(graph, "comm_size", -1)[graph.type == NodeType.COMM_COLL].tolist()


def test_recorded_products_are_divided_as_their_shapes_say(shared: Path):
    """A perceptron of 128 × 512 and 512 × 128 on two tensor-parallel ranks and two replicas."""
    two = studio.read(shared / "traces/torch/dp2tp2_mlp_4r")
    four = scale(two, tp=4)
    assert completeness(four).world == 8
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
    with pytest.raises(ConfigError, match="shapes of 'aten::scaled_dot_product_attention'"):
        scale(studio.read(traces / "torch/ddp_gpt_2r"), tp=4, layout="tp=2")
    # A sum that no product makes, and products whose sums nobody makes.
    job = studio.read(traces / "torch/tp_mlp_2r")
    graph = job.graph_of(0)
    rows = np.flatnonzero(graph.type == NodeType.COMM_COLL).tolist()
    odd = replace(job, graphs=(with_size(graph, rows[0], 12_345), *job.graphs[1:]))
    with pytest.raises(
        ConfigError, match=r"no matrix product before the all-reduce .* makes its 12,345 bytes"
    ):
        scale(odd, tp=4, layout="tp=2")
    bare = studio.read(studio.sample_path("transformer_8r"))
    with pytest.raises(ConfigError, match="0 matrix products with recorded shapes"):
        scale(bare, tp=4)


def with_size(graph, row: int, size: int):
    at, where = graph.rows_with("comm_size")
    value = graph.attrs.value.copy()
    value[where[at == row]] = size
    return replace(graph, attrs=replace(graph.attrs, value=value))


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
