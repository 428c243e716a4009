"""Jobs on more replicas: the same as jobs that were made at that size."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import studio
from studio.completion import list_layouts
from studio.completion.mesh import Mesh
from studio.completion.rules import select_applying_rules, select_rules
from studio.completion.scale import scale, scale_mesh
from studio.errors import ConfigError, TraceError
from studio.trace import Trace, get_assumed_source, read_int_column
from tests.completion.test_complete import alone, exchanged, finish_ns
from tests.handmade import collective, trace_of
from tests.test_cli import refused, run


def operations(trace: Trace) -> int:
    return sum(int(read_int_column(trace.graph_of(rank), "num_ops")[1].sum()) for rank in trace.ranks)


@pytest.mark.parametrize(
    ("small", "large", "dp"),
    [
        ("llama_4r_dp2tp2_fsdp", "llama_16r_dp8tp2_fsdp", 8),
        ("llama_8r_dp2tp2pp2", "llama_16r_dp4tp2pp2", 4),
        ("llama_8r_dp2tp2pp2", "llama_32r_dp8tp2pp2", 8),
    ],
)
def test_the_smaller_job_scaled_is_the_larger_one(shared, tmp_path, small: str, large: str, dp: int):
    folder = shared / "traces" / "stg_scale"
    wanted = studio.read(folder / f"{large}.tar.xz")
    done = run("scale", folder / f"{small}.tar.xz", "-o", tmp_path / "job", "--dp", dp, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["world_size"] == len(wanted.ranks)
    made = studio.read(tmp_path / "job")
    assert len(made.graphs) == len({rank.graph for rank in wanted.ranks})
    assert made.node_count == wanted.node_count
    assert operations(made) == operations(wanted)
    assert exchanged(made) == exchanged(wanted)
    assert finish_ns(made) == finish_ns(wanted)


def test_many_replicas_share_the_graphs_of_few():
    whole = studio.read(studio.sample_path("transformer_8r"))
    made = scale(whole, ranks=256)
    assert (len(made.ranks), len(made.graphs)) == (256, len(whole.graphs))
    assert {len(group.ranks) for group in made.groups} == {2, 64, 256}


def test_replicas_of_a_job_without_any_do_not_communicate_and_that_is_said():
    made = scale(trace_of([[collective(1, "ALL_REDUCE", 64, group="tp")]] * 2, groups={"tp": [0, 1]}), dp=2)
    assert [group.ranks for group in made.groups] == [(0, 1), (2, 3)]
    [finding] = [finding for finding in made.findings if finding.code == "scaled"]
    assert (finding.level, "gradients are missing" in finding.message) == ("warning", True)


def test_replicas_that_are_added_join_the_groups_of_gradients():
    nodes = [collective(1, "ALL_TO_ALL", 64, group="ep"), collective(2, "ALL_REDUCE", 32, 1, group="dp")]
    made = scale(trace_of([nodes] * 2, groups={"ep": [0, 1], "dp": [0, 1]}), dp=2)
    assert sorted(group.ranks for group in made.groups) == [(0, 1), (0, 1, 2, 3), (2, 3)]
    [finding] = [finding for finding in made.findings if finding.code == "scaled"]
    assert finding.level == "info"


def test_what_cannot_be_scaled_is_refused_with_the_reason(tmp_path):
    two = {"dp": [0, 1]}
    sharded = trace_of([[collective(1, "ALL_GATHER", 64, group="dp")]] * 2, groups=two)
    with pytest.raises(ConfigError, match="dp is 3; allowed: a multiple of 2"):
        scale(sharded, dp=3)
    with pytest.raises(
        ConfigError,
        match=r"comm_size of node 1 .* is 64, which 128 times as many replicas cannot share evenly",
    ):
        scale(sharded, dp=256)
    with pytest.raises(TraceError, match="1 of 4 ranks are known"):
        scale(alone({"dp": [0, 1, 2, 3]}), dp=8)
    studio.write(replace(sharded), tmp_path / "in", "job")
    assert "a trace does not say how operators divide the context" in refused(
        "scale", tmp_path / "in", "-o", tmp_path / "out", "--cp", 4
    )
    assert "of one rank along the tensor dimension" in refused(
        "scale", tmp_path / "in", "-o", tmp_path / "out", "--tp", 4
    )
    assert "one of --dp and --ranks" in refused("scale", tmp_path / "in", "-o", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_rules_without_a_collective_to_apply_to_are_not_listed():
    def listed(trace: Trace) -> list[str]:
        before = next(iter(list_layouts(trace)))
        return [
            rule.about
            for rule in select_applying_rules(select_rules(before, scale_mesh(before, dp=8)), trace, before)
        ]

    # The second one has reduce-scatters along its tensor dimension alone.
    for name in ("transformer_8r", "transformer_32r"):
        assert listed(studio.read(studio.sample_path(name))) == [
            "all-reduce of the data dimension",
            "all other nodes",
        ]
    sharded = trace_of([[collective(1, "REDUCE_SCATTER_BLOCK", 64, group="dp")]] * 2, groups={"dp": [0, 1]})
    assert "reduce-scatter of the data dimension" in listed(sharded)


def test_rules_about_collectives_of_another_dimension_are_not_listed():
    """One replica gathers along its tensor dimension; only what exchanges gradients gets more members."""

    def listed(**groups: list[int]) -> list[str]:
        gathers = collective(1, "ALL_GATHER", 64, group="tp")
        nodes = [gathers] + [collective(2, "ALL_REDUCE", 32, 1, group="dp")] * ("dp" in groups)
        trace = trace_of([nodes] * 2, groups={"tp": [0, 1], **groups})
        before = Mesh.of([("tp", 2)])
        return [
            rule.about
            for rule in select_applying_rules(select_rules(before, scale_mesh(before, dp=2)), trace, before)
        ]

    assert listed() == ["all other nodes"]
    assert listed(dp=[0, 1]) == ["all-reduce of the data dimension", "all other nodes"]


def test_ranks_that_stay_as_they_were_recorded_are_not_assumed():
    whole = studio.read(studio.sample_path("transformer_8r"))
    larger = scale(whole, dp=4)
    # The second stage begins at rank 8 now; replicas that are added repeat the first ones of their stage.
    assert [get_assumed_source(rank) for rank in larger.ranks] == [None] * 4 + [0, 1, 2, 3] + [None] * 4 + [
        8,
        9,
        10,
        11,
    ]
    # What a rank's sizes were divided in was not recorded so, nor a stage with fewer layers.
    parts = [[collective(1, "ALL_GATHER", 64, group="fsdp")]] * 2
    divided = scale(trace_of(parts, groups={"fsdp": [0, 1]}), dp=4)
    assert [get_assumed_source(rank) for rank in divided.ranks] == [0, 1, 0, 1]
