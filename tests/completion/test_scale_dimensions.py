"""Jobs on more pipeline stages, on more ranks for their experts, and with the batch shared by more replicas."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import studio
from studio.completion import complete
from studio.completion.scale import RULES, scale
from studio.doctor import examine
from studio.errors import ConfigError, TraceError
from studio.trace import NodeType, Trace, read_int_column
from tests.completion.pipelines import pipelined
from tests.completion.test_complete import exchanged, finish_ns
from tests.handmade import collective, node, trace_of
from tests.test_cli import refused, run


def types(trace: Trace) -> list[Counter[int]]:
    return [Counter(trace.graph_of(rank).type.tolist()) for rank in trace.ranks]


def errors(trace: Trace) -> list[str]:
    return [finding.message for finding in examine(trace) if finding.level == "error"]


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("stages", [2, 3])
def test_more_stages_with_as_many_layers_each_are_the_deeper_job(stages: int, one_by_one: bool):
    small = pipelined(stages, 3, dp=2, one_by_one=one_by_one)
    large = pipelined(2 * stages, 3, dp=2, one_by_one=one_by_one)
    made = scale(small, pp=2 * stages, layout=f"dp=2,pp={stages}", layers="kept")
    assert types(made) == types(large)
    assert exchanged(made) == exchanged(large)
    assert finish_ns(made) == finish_ns(large)
    assert not errors(made)


def test_more_stages_share_the_layers(shared, tmp_path):
    folder = shared / "traces" / "stg_scale" / "llama_8r_dp2tp2pp2.tar.xz"
    done = run("scale", folder, "-o", tmp_path / "job", "--pp", 4, "--dp", 4, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["world_size"], told["before"]) == (32, "dp=2,tp=2,pp=2")
    assert {rule["case"] for rule in told["rules"]} == {"dp", "weak", "pp", "divided"}
    small, made = studio.read(folder), studio.read(tmp_path / "job")
    # Of two layers a stage keeps one; matrix products of layers are as many in all, of four times as many replicas' half.
    by_layer = Counter(name for graph in made.graphs for name in graph.strings if ".mha.q@0" in name)
    assert {name.split(".mha")[0] for name in by_layer} == {
        f"mb{k}.transformer.{layer}" for k in range(4) for layer in (0, 2)
    }
    assert operations(made) == pytest.approx(2 * operations(small), rel=0.01)
    assert not errors(made)
    assert finish_ns(made) > 0


def test_layers_and_replicas_of_a_recorded_job_grow_together():
    made = scale(studio.read(studio.sample_path("transformer_8r")), pp=4, dp=4, strong=True)
    assert len(made.ranks) == 32
    assert not errors(made)
    assert [finding.code for finding in made.findings] == ["scaled"]


def operations(trace: Trace) -> int:
    return sum(int(read_int_column(trace.graph_of(rank), "num_ops")[1].sum()) for rank in trace.ranks)


def test_replicas_that_share_the_batch_have_fewer_micro_batches(tmp_path):
    made = scale(pipelined(2, 4, dp=2), dp=4, layout="dp=2,pp=2", strong=True)
    whole = pipelined(2, 2, dp=4)
    assert types(made) == types(whole)
    assert exchanged(made) == exchanged(whole)
    assert finish_ns(made) == finish_ns(whole)
    with pytest.raises(ConfigError, match="3 micro-batches of a replica cannot be shared by 2 times as many"):
        scale(pipelined(2, 3, dp=2), dp=4, layout="dp=2,pp=2", strong=True)
    nameless = trace_of([[collective(1, "ALL_REDUCE", 64, group="dp")]] * 2, groups={"dp": [0, 1]})
    with pytest.raises(ConfigError, match="no node of the job names a micro-batch"):
        scale(nameless, dp=4, strong=True)
    studio.write(pipelined(2, 4, dp=2), tmp_path / "in", "job")
    said = run(
        "scale", tmp_path / "in", "-o", tmp_path / "out", "--dp", 4, "--strong", "--layout", "dp=2,pp=2"
    ).stdout
    assert "micro-batches of a replica: their number is divided" in said
    assert "weak scaling" not in said


def routed(tokens: list[int], *, weights: int = 640) -> Trace:
    """Ranks that send tokens to experts and get some back, and sum up the gradients of all weights."""
    ranks = [
        [
            collective(1, "ALL_TO_ALL", 100 * count, group="ep"),
            node(2, "COMP", 1, name="expert.fc1", micros=count, num_ops=1000 * count),
            collective(3, "ALL_TO_ALL", 100 * count, 2, group="ep"),
            collective(4, "ALL_REDUCE", 4096, 3, group="ep"),
            node(5, "COMP", 4, name="optimizer.expert.adam", micros=8, num_ops=weights),
        ]
        for count in tokens
    ]
    return trace_of(ranks, groups={"ep": list(range(len(tokens)))})


def test_experts_on_more_ranks_get_as_many_tokens_each_and_are_fewer():
    made = scale(routed([10, 20, 10, 40]), ep=8)
    for rank in made.ranks:
        graph = made.graph_of(rank)
        assert read_int_column(graph, "comm_size")[1].tolist() == [2000, 2000, 4096]
        assert read_int_column(graph, "num_ops")[1].tolist() == [20_000, 320]
        assert graph.duration_ns[graph.type == NodeType.COMP].tolist() == [20_000, 4_000]
    assert [len(group.ranks) for group in made.groups] == [8]
    [finding] = [finding for finding in made.findings if finding.code == "scaled"]
    assert "tokens are taken to be routed evenly" in finding.message
    assert finish_ns(made) > 0
    with pytest.raises(
        ConfigError, match=r"num_ops of node 5 .* is 81, which 2 times as many ranks of experts cannot"
    ):
        scale(routed([10, 20], weights=81), ep=4)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"pp": 3}, ConfigError, "pp is 3; allowed: a multiple of 2"),
        ({"ep": 4}, ConfigError, "of one rank along the expert dimension"),
        ({"pp": 4}, ConfigError, "1 layers of a pipeline stage cannot be shared by 2 times as many"),
    ],
)
def test_what_cannot_grow_is_refused_with_numbers(options, error, says: str):
    with pytest.raises(error, match=says):
        scale(pipelined(2, 2, dp=2), layout="dp=2,pp=2", **options)


def test_stages_that_names_do_not_tell_apart_are_refused():
    bare = trace_of(
        [
            [node(1, "COMP", micros=1), node(2, "COMM_SEND", 1, comm_dst=1, comm_size=8, comm_tag=0), node(3, "COMM_RECV", comm_src=1, comm_size=8, comm_tag=1)],
            [node(1, "COMM_RECV", comm_src=0, comm_size=8, comm_tag=0), node(2, "COMP", 1, micros=1), node(3, "COMM_SEND", 2, comm_dst=0, comm_size=8, comm_tag=1)],
        ]
    )  # fmt: skip
    with pytest.raises(ConfigError, match="no node of the job names the number of a layer"):
        scale(bare, pp=4)
    with pytest.raises(TraceError, match="names of rank 0 do not tell the embedding from the layers"):
        scale(bare, pp=4, layers="kept")


def test_every_rule_names_its_source_or_reason_and_options_are_refused_together(tmp_path):
    assert all(rule.about and rule.change and rule.why for rule in RULES)
    studio.write(complete(pipelined(2, 1), layout="pp=2"), tmp_path / "in", "job")
    assert "Give one of --dp and --ranks, or --pp, --ep or --tp." in refused(
        "scale", tmp_path / "in", "-o", tmp_path / "out", "--strong", code=2
    )
