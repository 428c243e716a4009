"""Jobs completed from few recorded ranks: the same communication and time as the whole job."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.analysis.job.completeness import describe_assumed
from studio.analysis.job.spans import find_spans
from studio.completion import LayoutNeededError, Mesh, Spread, complete, list_layouts
from studio.completion.mesh import Clue, find_bounds
from studio.doctor import examine
from studio.errors import ConfigError, TraceError
from studio.et.write import write_with_copies
from studio.sim import simulate
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.trace import (
    Attribute,
    NodeType,
    Trace,
    ValueKind,
    compute_trace_digest,
    get_assumed_source,
    read_int_column,
)
from tests.handmade import collective, node, trace_of
from tests.test_cli import refused, run

STG = [
    ("gpt_8r_dp2tp4", "dp=2,tp=4"),
    ("llama_16r_tp4pp4_recompute", "tp=4,pp=4"),
    ("llama_32r_dp4tp4pp2", "dp=4,tp=4,pp=2"),
    ("llama_8r_dp8_fsdp", "dp=8"),
    ("llama_8r_tp8", "tp=8"),
]
RING = {kind: (Algorithm("ring"),) for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")}


def one_of_each_graph(trace: Trace) -> Trace:
    """The first rank of every graph: one per pipeline stage."""
    first = {rank.graph: rank for rank in reversed(trace.ranks)}
    return replace(trace, ranks=tuple(sorted(first.values(), key=lambda rank: rank.number)))


def exchanged(trace: Trace) -> Counter[tuple[object, ...]]:
    """How often each rank takes part in what: members of the group, type and bytes."""
    members = {group.name: tuple(sorted(group.ranks)) for group in trace.groups}
    found: Counter[tuple[object, ...]] = Counter()
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        kinds, sizes = (
            dict(zip(*read_int_column(graph, key), strict=True)) for key in ("comm_type", "comm_size")
        )
        slot_of = dict(zip(*(column.tolist() for column in graph.rows_with("pg_name")), strict=True))
        for row in np.flatnonzero(graph.type == NodeType.COMM_COLL).tolist():
            slot = int(graph.attrs.value[slot_of[row]])
            found[members[str(rank.slots[slot])], kinds[row], sizes[row]] += 1
    return found


def finish_ns(trace: Trace) -> int:
    network = Topology((Dimension("switch", len(trace.ranks), 100.0, 500.0),))
    return simulate(trace, SystemConfig(network, algorithms=RING).with_extensions()).makespan_ns


@pytest.mark.parametrize("listed", [True, False], ids=["groups listed", "no list of groups"])
@pytest.mark.parametrize(("name", "layout"), STG)
def test_one_rank_of_every_stage_gives_the_whole_job(shared, name: str, layout: str, listed: bool):
    whole = studio.read(shared / "traces" / "stg" / name)
    known = one_of_each_graph(whole)
    assert [mesh.layout for mesh in list_layouts(known)] == [layout]
    made = complete(known) if listed else complete(replace(known, groups=()), layout=layout)
    assert exchanged(made) == exchanged(whole)
    assert finish_ns(made) == finish_ns(whole)
    assert not [finding for finding in examine(made) if finding.level == "error"]


@pytest.mark.parametrize(
    ("name", "system"), [("b200_eager", "hgx-b200"), ("mi300_resnet_act_checkpoint", "mi300x")]
)
def test_public_traces_of_one_of_eight_become_jobs_of_eight(shared, tmp_path, name: str, system: str):
    path = shared / "traces" / "foreign" / f"{name}.json.gz"
    assert run("complete", path, "-o", tmp_path / "job").exit_code == 0
    job = studio.read(tmp_path / "job")
    assert describe_assumed(job) == "7 of 8 ranks assumed equal to rank 0"
    assert not [finding for finding in examine(job) if finding.level == "error"]
    done = run("simulate", tmp_path / "job")
    assert done.exit_code == 0, done.output
    assert f"Simulated on {system}, which has the recorded device" in done.output


def pipeline() -> Trace:
    """Four stages of two data-parallel ranks each; a broadcast in each group from its first rank."""
    ranks = []
    for number in range(8):
        stage = number // 2
        root = 2 * stage
        nodes = [collective(1, "BROADCAST", 64, group=f"dp{stage}", root_rank=root)]
        last = 1
        if stage:
            nodes.append(node(2, "COMM_RECV", 1, comm_src=number - 2, comm_size=8, comm_tag=0))
            last = 2
        nodes.append(node(3, "COMP", last, micros=5 if stage in (1, 2) else 3))
        if stage < 3:
            nodes.append(node(4, "COMM_SEND", 3, comm_dst=number + 2, comm_size=8, comm_tag=0))
        ranks.append(nodes)
    return trace_of(ranks, groups={f"dp{stage}": [2 * stage, 2 * stage + 1] for stage in range(4)})


def test_middle_stages_are_copies_of_another_and_roots_move_along():
    whole = pipeline()
    known = replace(whole, ranks=tuple(whole.ranks[number] for number in (0, 2, 6)))
    made = complete(known)
    assert len(made.ranks) == 8
    assert [get_assumed_source(rank) for rank in made.ranks] == [None, 0, None, 2, 2, 2, None, 6]
    assert exchanged(made) == exchanged(whole)
    roots = [read_int_column(made.graph_of(rank), "root_rank")[1].tolist() for rank in made.ranks]
    assert roots == [[2 * (number // 2)] for number in range(8)]
    [finding] = [finding for finding in made.findings if finding.code == "ranks-assumed"]
    assert (
        "2 of them are in pipeline stages that were never recorded: stage 2 is built from stage 1."
        in finding.message
    )


def test_a_stage_that_nobody_knows_is_named():
    whole = pipeline()
    with pytest.raises(TraceError, match="No rank of pipeline stage 3 of 4 is known") as caught:
        complete(replace(whole, ranks=(whole.ranks[0], whole.ranks[2])))
    assert "such as rank 6" in caught.value.hint


def alone(members: dict[str, list[int]]) -> Trace:
    nodes = [collective(1 + at, "ALL_REDUCE", 64, group=name) for at, name in enumerate(members)]
    return trace_of([nodes], groups=members)


@pytest.mark.parametrize(
    ("members", "layout", "says"),
    [
        ({"a": [0, 1, 2, 3], "b": [0, 1, 3]}, None, "group b of ranks 0, 1, 3"),
        ({"a": [0, 1, 2, 3], "b": [0, 1, 2]}, None, "ranks form no mesh"),
        ({"a": [0, 1, 2, 3]}, "tp=3", "layout tp=3 has 3 ranks; the job has 4"),
        ({"a": [0, 1, 2, 3], "b": [0, 1]}, "tp=4", "does not fit what is known"),
        ({"a": [0, 1]}, "tp=2,xx=2", "layout has 'xx=2'; allowed: dimension=size"),
    ],
)
def test_what_contradicts_itself_is_named(members, layout, says: str):
    with pytest.raises(ConfigError, match=says):
        complete(alone(members), layout=layout)


def test_ranks_are_taken_where_the_only_rank_says_no_other():
    """Readers give a lone rank a world of one; that contradicts nobody."""
    one = trace_of([[node(1, "COMP")]])

    def of_world(size: int) -> Trace:
        told = (Attribute("world_size", ValueKind.INT64, size),)
        return replace(one, ranks=(replace(one.ranks[0], metadata=told),))

    assert list_layouts(of_world(1), ranks=8)[0].world == 8
    with pytest.raises(ConfigError, match="as the files say"):
        list_layouts(of_world(2), ranks=8)


def test_where_nothing_tells_the_layout_it_is_asked_for(tmp_path):
    trace = trace_of([[collective(1, "ALL_REDUCE", 64, group="7")]])
    trace = replace(trace, groups=())
    with pytest.raises(LayoutNeededError, match="members of the comm groups 7 are not listed"):
        complete(trace)
    made = complete(trace, layout="dp=4")
    assert [group.ranks for group in made.groups] == [(0, 1, 2, 3)]
    studio.write(trace, tmp_path / "in", "job")
    message = refused("complete", tmp_path / "in", "-o", tmp_path / "out", code=2)
    assert "--layout tp=4,pp=2,dp=8" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("groups", "fitting"),
    [
        (["7"], ["tp=8,dp=2", "tp=4,dp=4", "tp=2,dp=8", "tp=16"]),
        (["dp", "x"], ["tp=8,dp=2", "tp=4,dp=4", "tp=2,dp=8"]),
        (["dp"], ["dp=16"]),
        (["dp", "ep", "tp"], ["tp=4,ep=2,dp=2", "tp=2,ep=4,dp=2", "tp=2,ep=2,dp=4"]),
    ],
)
def test_what_groups_known_by_name_only_may_be_is_listed_the_likeliest_first(groups, fitting):
    nodes = [collective(1 + at, "ALL_REDUCE", 64, group=name) for at, name in enumerate(groups)]
    trace = replace(trace_of([nodes]), groups=())
    assert [mesh.layout for mesh in list_layouts(trace, ranks=16)] == fitting
    with pytest.raises(LayoutNeededError) as caught:
        complete(trace, ranks=16)
    assert f"--layout {fitting[0]}" in caught.value.hint
    assert len(complete(trace, ranks=16, first=True).ranks) == 16


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("mesh_dp", "dp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
    ],
)
def test_what_a_process_group_is_described_as_names_its_dimension(description: str, name: str):
    [trace] = [alone({"5": [0, 1], "6": [0, 2]})]
    told = Attribute("process_groups", ValueKind.STRING, f'[{{"pg_name": "5", "pg_desc": "{description}"}}]')
    trace = replace(trace, ranks=(replace(trace.ranks[0], metadata=(told,)),))
    [mesh] = list_layouts(trace, ranks=4)
    assert mesh.axes[0].name == name
    assert f"described as '{description}'" in mesh.axes[0].evidence


def test_several_layouts_are_listed_and_the_first_is_taken_if_asked():
    send = node(1, "COMM_SEND", comm_dst=2, comm_size=8)
    trace = trace_of([[send, node(2, "COMM_RECV", comm_src=2, comm_size=8)]])
    with pytest.raises(LayoutNeededError) as caught:
        complete(trace)
    assert [mesh.layout for mesh in caught.value.meshes[:2]] == ["dp=2,pp=2", "dp=2,pp=4"]
    assert "--layout dp=2,pp=2" in caught.value.hint


def test_a_completed_job_is_the_same_bytes_every_time_and_read_back_as_it_was(tmp_path):
    whole = studio.read(studio.sample_path("transformer_8r"))
    made = complete(
        replace(whole, ranks=(whole.ranks[0], whole.ranks[4])), spread=Spread(imbalance=0.1, seed=3)
    )
    again = complete(
        replace(whole, ranks=(whole.ranks[0], whole.ranks[4])), spread=Spread(imbalance=0.1, seed=3)
    )
    written = [write_with_copies(job, tmp_path / str(at), "job") for at, job in enumerate((made, again))]
    assert [path.read_bytes() for path in written[0]] == [path.read_bytes() for path in written[1]]
    back = studio.read(tmp_path / "0")
    assert all(
        (back.graph_of(rank.number).duration_ns == made.graph_of(rank).duration_ns).all()
        for rank in made.ranks
    )
    plain = complete(replace(whole, ranks=(whole.ranks[0], whole.ranks[4])))
    assert len(write_with_copies(plain, tmp_path / "plain", "job")) == 4
    assert compute_trace_digest(studio.read(tmp_path / "plain")) == compute_trace_digest(plain)
    assert f"assumed       {describe_assumed(plain)}" in run("info", tmp_path / "plain").stdout


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('{"chakra_studio_copies": 1, "copies": [{"rank": 1, "like": 5, "slots": ["g"]}]}', "like rank 5, whose trace is not there"),
        ('{"chakra_studio_copies": 1, "copies": [{"rank": 0, "like": 0, "slots": ["g"]}]}', "there are two ranks 0"),
        ('{"chakra_studio_copies": 1, "copies": [{"rank": 1, "like": 0, "slots": []}]}', "has 0 comm groups and peers"),
        ('{"chakra_studio_copies": 1, "copies": [{"rank": 1, "like": 0, "slots": [7]}]}', "in another order than rank 0"),
        ('{"chakra_studio_copies": 2, "copies": []}', "of version 2; readable: 1"),
    ],
)  # fmt: skip
def test_damaged_tables_of_copies_are_told(tmp_path: Path, table: str, says: str):
    studio.write(trace_of([[collective(1, "ALL_REDUCE", 64, group="g")]]), tmp_path, "job")
    (tmp_path / "job.copies.json").write_text(table)
    assert says in run("info", tmp_path).output


def test_imbalance_moves_whole_ranks_and_jitter_single_nodes():
    whole = pipeline()
    known = replace(whole, ranks=tuple(whole.ranks[number] for number in (0, 2, 6)))
    times = {}
    for name, spread in (
        ("none", Spread()),
        ("imbalance", Spread(imbalance=0.2)),
        ("jitter", Spread(jitter=0.2)),
    ):
        made = complete(known, spread=spread)
        times[name] = [int(made.graph_of(rank).duration_ns.max()) for rank in made.ranks]
    assert [times["none"][number] for number in (0, 2, 6)] == [
        times["imbalance"][number] for number in (0, 2, 6)
    ]
    assert len({times["imbalance"][number] for number in (2, 3, 4, 5)}) == 4
    assert times["jitter"] != times["none"]
    with pytest.raises(ConfigError, match="jitter is -1"):
        Spread(jitter=-1)


def test_groups_tell_where_dimensions_begin():
    assert find_spans([0, 1, 4, 5, 16, 17, 20, 21]) == ((1, 2), (4, 2), (16, 2))
    assert find_bounds([Clue("a", ((4, 4),)), Clue("b", ((1, 2),))], 32) == [1, 2, 4, 16, 32]
    assert Mesh.of([("tp", 2), ("dp", 3)]).translate(5, source=4, target=0) == 1
