"""What the Ranks page says before anything is made."""

from __future__ import annotations

from dataclasses import replace

import pytest

import studio
from studio.analysis.job.completeness import infer_completeness
from studio.errors import ConfigError, TraceError
from studio.figures.mesh import build_assumed_cell
from studio.jobs.completing import Completing, Scaling, collect_layout_facts, complete_trace, scale_trace
from studio.pages.base.rank_words import name_known_rank
from studio.pages.ranks.form import (
    format_dimensions,
    format_file,
    parse_completing,
    parse_scaling,
    parse_whole_number,
)
from studio.views.ranks import (
    build_layout_mesh,
    describe_also_fitting,
    is_kept,
    list_layouts,
    plan_completion,
    plan_scaling,
)
from tests.completion.test_complete import alone, one_of_each_graph, pipeline
from tests.handmade import collective, node, trace_of
from tests.recordings import read_recording


def test_the_layout_of_groups_that_are_listed_is_known_and_what_else_fits_is_said():
    trace = alone({"a": [0, 1], "grads": [0, 2, 4, 6]})
    known = collect_layout_facts(trace)
    layouts = list_layouts(known)
    assert layouts.fitting[0].layout == "tp=2,dp=4"
    assert layouts.why == "the files do not say how many ranks the job has"
    assert infer_completeness(trace).is_open
    # One is named after what it exchanges, the other by its name.
    mesh = build_layout_mesh(known, "tp=2,dp=4")
    assert mesh.axes[0].evidence == "group a of ranks 0, 1 (1 all-reduce)"
    assert describe_also_fitting(known, mesh)[0] == "sp, cp, ep"
    renamed = build_layout_mesh(known, "cp=2,dp=4")
    assert renamed.axes[0].evidence.startswith("given; group a")


def test_members_that_are_not_listed_are_asked_for_the_likeliest_first(shared):
    whole = read_recording(shared / "traces" / "stg" / "llama_32r_dp4tp4pp2")
    layouts = list_layouts(collect_layout_facts(replace(one_of_each_graph(whole), groups=())))
    assert "are not listed" in layouts.why
    assert [mesh.layout for mesh in layouts.fitting] == [
        "tp=8,dp=2,pp=2",
        "tp=4,dp=4,pp=2",
        "tp=2,dp=8,pp=2",
    ]


def test_a_job_that_sends_to_ranks_that_are_not_here_is_not_whole():
    send = node(1, "COMM_SEND", comm_dst=2, comm_size=8)
    trace = trace_of([[send, node(2, "COMM_RECV", comm_src=2, comm_size=8)]])
    here = infer_completeness(trace)
    assert (here.is_whole, here.is_open) == (False, True)
    assert infer_completeness(trace_of([[node(1, "COMP")]])).is_whole


def test_what_would_be_made_is_made_and_forgotten():
    whole = pipeline()
    known = replace(whole, ranks=tuple(whole.ranks[number] for number in (0, 2, 6)))
    plan = plan_completion(known, Completing("dp=2,pp=4"))
    assert [plan.source(rank) for rank in range(8)] == [None, 0, None, 2, 2, 2, None, 6]
    assert plan.nodes == whole.node_count
    with pytest.raises(TraceError, match="No rank of pipeline stage 3 of 4"):
        plan_completion(replace(known, ranks=known.ranks[:2]), Completing("dp=2,pp=4"))
    # Too many to be tried at every letter that is typed: as the mesh says.
    many = alone({"dp": list(range(1 << 15))})
    far = plan_completion(many, Completing("dp=32768"))
    assert (far.graphs, far.source(0), far.source((1 << 15) - 1)) == (0, None, 0)


def test_scaling_says_whose_graph_a_rank_gets_and_what_does_not_divide():
    trace = trace_of([[collective(1, "ALL_GATHER", 64, group="dp")]] * 2, groups={"dp": [0, 1]})
    before, after = (
        build_layout_mesh(collect_layout_facts(trace), "dp=2"),
        build_layout_mesh(collect_layout_facts(trace), "dp=2"),
    )
    assert plan_scaling(trace, Scaling("dp=2", 2), before, after).source(1) == 1
    with pytest.raises(ConfigError, match="cannot share evenly"):
        plan_scaling(
            trace, Scaling("dp=2", 256), before, replace(before, axes=(replace(before.axes[0], size=256),))
        )


def test_the_form_says_what_is_no_number():
    fields = {"layout": "dp=4", "jitter": "0.1", "imbalance": "", "seed": "3"}
    wanted = parse_completing(fields)
    assert (wanted.spread.jitter, wanted.spread.imbalance, wanted.spread.seed) == (0.1, 0, 3)
    for name, text, says in (
        ("jitter", "much", "jitter is 'much'; allowed: 0 to 1"),
        ("imbalance", "7", "imbalance is 7; allowed: 0 to 1"),
        ("seed", "-1", "seed is '-1'; allowed: a whole number from 0"),
    ):
        with pytest.raises(ConfigError, match=says):
            parse_completing({**fields, name: text})
    assert parse_whole_number({"ranks": "16,384"}, "ranks") == 16384
    assert parse_whole_number({"ranks": " "}, "ranks") is None
    assert format_dimensions({"name-0": "tp", "size-0": " 4", "name-1": "dp", "size-1": "2"}) == "tp=4,dp=2"


def test_the_form_grows_the_dimensions_that_a_job_has():
    fields = {"layout": "dp=2,pp=2", "pp": "4", "strong": "strong", "layers": "kept"}
    assert parse_scaling(fields, 16) == Scaling("dp=2,pp=2", 16, pp=4, strong=True, layers="kept")
    # A number that is that of the job asks for nothing.
    assert parse_scaling({"layout": "dp=2,pp=2", "pp": "2"}, 8) == Scaling("dp=2,pp=2", 8)
    before = build_layout_mesh(collect_layout_facts(pipeline()), "dp=2,pp=4")
    wanted = Scaling("dp=2,pp=4", 16, pp=8, layers="kept")
    after = wanted.mesh(before)
    plan = plan_scaling(pipeline(), wanted, before, after)
    assert (after.world, plan.nodes > 0) == (16, True)
    kept = [after.stage(rank) for rank in range(16) if is_kept(before, after, rank)]
    assert sorted(set(kept)) == [0, 1, 2, 7]


def test_a_file_says_which_ranks_are_in_groups_known_by_name_only():
    trace = replace(alone({"a": [0, 1], "b": [0, 2]}), groups=())
    fields = {"layout": "tp=2,dp=2"}
    asked = parse_completing(
        {
            **fields,
            "file": format_file(
                "l.yml", "dimensions: [{name: dp, size: 2}, {name: tp, size: 2}]\ngroups: {b: tp}"
            ),
        }
    )
    # What stands in the form counts for dimensions, the file for groups.
    made = complete_trace(trace, asked)
    assert plan_completion(trace, asked).mesh.layout == "tp=2,dp=2"
    listed = {group.name: group.ranks for group in made.groups}
    assert sorted(ranks for name, ranks in listed.items() if name.startswith("b")) == [(0, 1), (2, 3)]
    with pytest.raises(ConfigError, match=r"l\.yml: dimensions is not there"):
        parse_completing({**fields, "file": format_file("l.yml", "groups: {}")}).given()


def test_a_generated_job_gets_as_many_tensor_ranks_as_are_typed():
    job = studio.generate("gpt3-125m", ranks=4, tp=2)
    asked = parse_scaling({"layout": "tp=2,dp=2", "tp": "4"}, 8)
    assert (asked.tp, asked.ranks, asked.pp) == (4, 8, None)
    assert scale_trace(job, asked) == studio.generate("gpt3-125m", ranks=8, tp=4)
    more = scale_trace(job, parse_scaling({"layout": "tp=2,dp=2", "tp": "4"}, 16))
    assert (len(more.ranks), len(more.graphs)) == (16, 1)


def test_ranks_of_a_job_that_is_no_recording_are_not_called_recorded():
    generated = studio.generate("gpt3-125m", ranks=2, tp=2)
    assert name_known_rank(generated) == "here"
    begun = node(1, "COMP", micros=5)
    begun.start_time_micros = 10
    assert name_known_rank(trace_of([[begun]])) == "recorded"
    assert build_assumed_cell(3, None, "here").title == "rank 3: here"
