"""Two runs side by side: what is told of hand-made jobs, and what holds for any."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.analysis.compare.alignment import align, match_rows, simplify_name
from studio.analysis.compare.runs import compare
from studio.analysis.compare.sides import Carried, Side, build_recorded_side
from studio.analysis.compare.waterfall import STEPS, Step, Waterfall
from studio.analysis.compare.words import (
    describe_basis,
    describe_before,
    describe_comparison,
    explain_doubt,
    explain_mean,
    list_causes,
)
from studio.errors import TraceError
from studio.sim import simulate
from studio.sim.astra import from_parts
from studio.timeline import collect_node_times, recorded
from studio.units import parse_ns
from tests.examples import examples
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled


def timed(made, start: int, micros: int):
    """A node with a recorded start and duration, in µs; 0 in a file would say that nothing was recorded."""
    made.start_time_micros, made.duration_micros = 1 + start, micros
    return made


def side(ranks, groups=None, **more) -> Side:
    trace = trace_of(ranks, groups)
    made = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    return Side(trace, made.times, made.finish_ns, made.origin_ns, **more)


def two_ranks(compute: int, late: int):
    """Rank 0 computes, then both reduce for 10 µs; rank 1 has little to do and waits. Starts at 100 µs."""
    end = 100 + compute + late + 10

    def rank(micros: int):
        return [
            timed(node(1, "COMP", name="layer.0.fwd"), 100, micros),
            timed(collective(2, "ALL_REDUCE", 4096, 1, name="grad.0"), 100 + micros, end - 100 - micros),
        ]

    return side([rank(compute + late), rank(20)])


def steps(waterfall):
    return {one.part: one.difference_ns for one in waterfall.steps if one.difference_ns}


def test_a_straggler_is_compute_on_the_busiest_rank_and_waiting_on_the_others():
    """Rank 0 computes 30 µs longer: that alone explains the finish; in the mean half of it is rank 1 waiting."""
    found = compare(two_ranks(50, 0), two_ranks(50, 30))
    assert found.difference_ns == 30_000
    busiest = found.waterfall("busiest")
    assert (busiest.rank, busiest.a_ns, busiest.b_ns) == (0, 60_000, 90_000)
    assert steps(busiest) == {"compute": 30_000}
    assert steps(found.waterfall("mean")) == {"compute": 15_000, "waiting": 15_000}
    figures = {one.key: (one.a, one.b, one.share) for one in found.figures}
    assert figures["finish"] == (60_000, 90_000, 1.0)
    assert figures["compute"] == (35_000, 50_000, 0.5)
    assert figures["exposed"] == figures["communicating"] == (25_000, 40_000, 0.5)


def two_computing(first: int, second: int):
    """Two ranks that compute so many µs, wait for each other and reduce for 10 µs."""
    end = 100 + max(first, second) + 10
    return side(
        [
            [
                timed(node(1, "COMP"), 100, micros),
                timed(collective(2, "ALL_REDUCE", 4096, 1), 100 + micros, end - 100 - micros),
            ]
            for micros in (first, second)
        ]
    )


def test_two_ranks_are_not_subtracted_from_each_other():
    """Rank 0 is late in A, rank 1 in B: no rank computes 20 µs longer for the whole of the difference, so the mean is told."""
    found = compare(two_computing(80, 20), two_computing(50, 60))
    assert (found.busiest, [fall.basis for fall in found.waterfalls]) == ((0, 1), ["mean"])
    assert found.waterfall("busiest") is found.waterfall("mean")
    assert steps(found.waterfall("busiest")) == {"compute": 5_000, "waiting": -25_000}
    assert describe_comparison(found) == (
        "B is 20.0 µs (22.2 %) faster than A: waiting −25.0 µs and compute +5.00 µs, in the mean of all ranks."
    )
    assert explain_mean(found).startswith("Rank 0 waits least in A, rank 1 in B:")


def test_runs_of_other_work_are_doubted_first():
    """Neither few nodes of one program nor other numbers of ranks make one run quicker than the other."""
    other = side([[timed(node(at, "COMP", name=f"other{at}"), 10 * at, 10) for at in (1, 2, 3)]])
    found = compare(two_computing(80, 20), other)
    assert describe_comparison(found).startswith(
        "These are hardly runs of one program: 0 % of their nodes match, and A has 2 ranks, B 1. B is "
    )
    alone = side([[timed(node(1, "COMP"), 100, 80), timed(collective(2, "ALL_REDUCE", 4096, 1), 180, 10)]])
    assert describe_comparison(compare(two_computing(80, 80), alone)).startswith(
        "A has 2 ranks, B 1: not the same work. B "
    )
    assert explain_doubt(compare(two_computing(80, 20), two_computing(50, 60))) == ""


def test_of_ranks_that_wait_equally_little_the_one_that_waits_least_in_both_is_compared():
    found = compare(two_computing(50, 50), two_computing(50, 80))
    assert found.busiest == (1, 1)
    assert steps(found.waterfall("busiest")) == {"compute": 30_000}
    assert (explain_mean(found), describe_basis(found.waterfalls[0])) == (
        "",
        "on the rank that waits least (1)",
    )


def test_the_sentence_follows_the_basis():
    found = compare(two_ranks(50, 0), two_ranks(50, 30))
    assert describe_comparison(found) == "B is 30.0 µs (50 %) slower than A: compute +30.0 µs."
    assert describe_comparison(found, basis="mean") == (
        "B is 30.0 µs (50 %) slower than A: compute +15.0 µs and waiting +15.0 µs, in the mean of all ranks."
    )


@pytest.mark.parametrize(
    ("differences", "told"),
    [
        ((50, 30), "compute +50.0 µs and waiting +30.0 µs."),
        ((40, 30, 20, 10), ""),
        ((40, 30, 20, 10, -7), "+3.00 µs of other parts"),
        ((40, 30, 20, 1), "+1.00 µs"),
        ((600, 300, 3), ""),
    ],
    ids=["two", "four", "five", "one that is small", "one that is too small to be seen"],
)
def test_what_a_sentence_names_adds_up_to_the_difference(differences, told):
    found = compare(two_ranks(50, 0), two_ranks(50, 0))
    parts = ("compute", "waiting", "host", "stall", "bubble")
    changes = dict(zip(parts, differences, strict=False))
    fall = Waterfall(
        "busiest", 0, 0, 0, tuple(Step(part, 0, 1000 * changes.get(part, 0), None) for part in STEPS)
    )
    grew = 1000 * sum(differences)
    slower = replace(found.b, finish_ns=found.a.finish_ns + grew)
    words = describe_comparison(replace(found, b=slower, waterfalls=(fall,)))
    named = [parse_ns(one.replace("+", "").replace("−", "")) for one in re.findall(r"[+−][\d.]+ µs", words)]
    signs = [-1 if one.startswith("−") else 1 for one in re.findall(r"[+−][\d.]+ µs", words)]
    assert abs(sum(sign * ns for sign, ns in zip(signs, named, strict=True)) - grew) * 200 <= grew
    assert told in words


@pytest.mark.parametrize(
    ("overlapped", "told"),
    [(3, "compute +13.0 µs (overlapped included)."), (0, "compute +10.0 µs.")],
)
def test_a_sentence_says_where_a_part_is_more_than_its_step_of_the_waterfall(overlapped, told):
    found = compare(two_ranks(50, 0), two_ranks(50, 0))
    changes = {"compute": 10_000, "overlapped": 1000 * overlapped}
    fall = Waterfall("busiest", 0, 0, 0, tuple(Step(part, 0, changes.get(part, 0), None) for part in STEPS))
    slower = replace(found.b, finish_ns=found.a.finish_ns + sum(changes.values()))
    assert describe_comparison(replace(found, b=slower, waterfalls=(fall,))).endswith(told)


def test_time_before_recordings_began_is_no_reason_for_a_difference():
    """Rank 1 is recorded from 40 on in A, from 10 on in B, and computes 20 in both."""

    def late(begins):
        nodes = [node(1, "COMP", micros=50), node(1, "COMP", micros=20)]
        nodes[0].start_time_micros, nodes[1].start_time_micros = 100, 100 + begins
        trace = trace_of([[nodes[0]], [nodes[1]]])
        return build_recorded_side(trace, collect_node_times(trace, recorded(trace)))

    found = compare(late(40), late(10))
    fall = found.waterfall("mean")
    assert fall.before_ns == (20_000, 5_000)
    assert dict(list_causes(fall))["before"] == -15_000
    assert describe_before(fall).startswith(
        "Of stall 20.0 µs in A and 5.00 µs in B lie before a rank's recording began"
    )
    assert describe_before(replace(fall, before_ns=(100, 0))) == ""
    assert dict(list_causes(fall))["stall"] == 0
    assert describe_comparison(found, basis="mean").endswith(
        "and −15.0 µs before recordings began, of which nothing is known, in the mean of all ranks."
    )


def test_a_run_against_itself_differs_in_nothing():
    found = compare(two_ranks(50, 10), two_ranks(50, 10))
    assert found.difference_ns == 0
    assert [step.difference_ns for fall in found.waterfalls for step in fall.steps] == [0] * 2 * len(STEPS)
    assert {figure.difference for figure in found.figures} == {0}
    assert {figure.share for figure in found.figures} == {None}
    assert (found.alignment.by, found.alignment.share) == ("id", 1.0)
    assert (found.slower, found.faster, found.added, found.removed) == ((), (), (), ())
    assert {one.difference_ns for one in found.operations} == {0}


def test_nodes_that_changed_most_come_first_with_the_rank_where_they_did():
    found = compare(two_ranks(50, 0), two_ranks(50, 30))
    [compute, reduce] = found.slower
    assert (compute.rank_a, compute.row_a, compute.difference_ns) == (0, 0, 30_000)
    assert (reduce.rank_a, reduce.row_a, reduce.difference_ns) == (1, 1, 30_000)
    assert (compute.ranks, compute.total_ns, reduce.total_ns) == (2, 30_000, 30_000)
    assert found.faster == ()
    back = compare(two_ranks(50, 30), two_ranks(50, 0))
    assert [(one.rank_a, one.row_a, one.difference_ns) for one in back.faster] == [
        (0, 0, -30_000),
        (1, 1, -30_000),
    ]


def test_operations_tell_gaps_from_compute():
    """They are written as compute, and were called so where a difference is taken apart by operation."""
    nodes = [
        timed(node(1, "COMP", is_cpu_op=True, name="aten::mm"), 0, 5),
        timed(node(2, "COMP", 1, is_cpu_op=True, name="host gap", gap="program"), 5, 7),
    ]
    job = side([nodes])
    assert {(one.type, one.name) for one in compare(job, job).operations} == {
        ("COMP", "aten::mm"),
        ("host gap", "host gap"),
    }


def test_operations_add_up_over_ranks_and_numbers_in_names():
    found = compare(two_ranks(50, 0), two_ranks(50, 30))
    told = {(one.type, one.name): (one.count_a, one.count_b, one.a_ns, one.b_ns) for one in found.operations}
    assert told == {
        ("COMP", "layer.#.fwd"): (2, 2, 70_000, 100_000),
        ("COMM_COLL", "grad.#"): (2, 2, 50_000, 80_000),
    }


def layers(names, *, first_id: int = 1, size: int = 100):
    """A chain of layers: compute and a reduction each."""
    made, at, before = [], first_id, ()
    for index, name in enumerate(names):
        made.append(timed(node(at, "COMP", *before, name=f"{name}.fwd"), 20 * index, 10))
        made.append(
            timed(collective(at + 1, "ALL_REDUCE", size, at, name=f"{name}.reduce"), 20 * index + 10, 10)
        )
        at, before = at + 2, (at + 1,)
    return made


def test_a_layer_put_in_is_added_and_all_others_find_each_other():
    """The ids differ and the names are the same for all: only the order tells the layers apart."""
    a = side([layers(["block"] * 4)])
    b = side(
        [
            [
                *layers(["block"] * 2, first_id=11),
                timed(node(90, "COMP", 14, name="new"), 40, 7),
                *layers(["block"] * 2, first_id=91),
            ]
        ]
    )
    found = compare(a, b)
    assert found.alignment.by == "structure"
    [pairs] = found.alignment.pairs
    assert list(zip(pairs.row_a.tolist(), pairs.row_b.tolist(), strict=True)) == [
        (0, 0), (1, 1), (2, 2), (3, 3), (4, 5), (5, 6), (6, 7), (7, 8)
    ]  # fmt: skip
    assert [(one.row, one.ns) for one in found.added] == [(4, 7000)]
    assert (found.added_count, found.removed_count) == (1, 0)
    assert found.alignment.share == pytest.approx(16 / 17)
    assert found.alignment.partner(0, 4) == (0, 5)
    assert found.alignment.partner_back(0, 5) == (0, 4)
    assert found.alignment.partner_back(0, 4) is None


def test_names_and_sizes_may_differ_where_nothing_else_fits():
    """Another numbering and twice the batch: every layer is found again."""
    a = side([layers([f"mb0.layer{at}" for at in range(3)])])
    b = side([layers([f"mb7.layer{at + 3}" for at in range(3)], first_id=50, size=200)])
    assert compare(a, b).alignment.share == 1
    assert simplify_name("MB7.layer3@0x1F") == "mb#.layer#@#"


def test_comm_groups_are_known_by_their_role_not_by_their_name():
    """Two reductions of one name and size: the one in the pair of neighbours, and the one across."""

    def ranks(near: str, far: str, *, swapped: bool):
        order = (far, near) if swapped else (near, far)
        return [
            [collective(1, "ALL_REDUCE", 8, group=order[0] + str(n // 2 if order[0] == near else n % 2), name="r"),
             collective(2, "ALL_REDUCE", 8, group=order[1] + str(n // 2 if order[1] == near else n % 2), name="r")]
            for n in range(4)
        ]  # fmt: skip

    def groups(near, far):
        return {near + "0": [0, 1], near + "1": [2, 3], far + "0": [0, 2], far + "1": [1, 3]}

    a = trace_of(ranks("tp", "dp", swapped=False), groups("tp", "dp"))
    b = trace_of([[*one, node(3, "COMP")] for one in ranks("x", "y", swapped=True)], groups("x", "y"))
    [pairs, *_] = align(a, b).pairs
    assert list(zip(pairs.row_a.tolist(), pairs.row_b.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_ranks_that_only_one_side_has_are_told_apart_from_nodes_that_are():
    a, b = side([layers(["x"])] * 2), side([layers(["x"])] * 3)
    found = compare(a, b)
    assert (found.alignment.alone_a.tolist(), found.alignment.alone_b.tolist()) == ([], [2])
    assert (found.added_count, found.alignment.matched, found.alignment.nodes_b) == (0, 4, 6)


def test_dimensions_and_links_are_compared_by_name():
    def carried(names, busy):
        load = np.array([one / 100 for one in busy], float)
        return Carried(names, np.array([10 * one for one in busy]), np.array(busy, float), load)

    a = two_ranks(50, 0)
    a = Side(
        a.trace, a.times, a.finish_ns, a.origin_ns, None, carried(("0",), [5]), carried(("x", "y"), [1, 2])
    )
    b = two_ranks(50, 30)
    b = Side(
        b.trace,
        b.times,
        b.finish_ns,
        b.origin_ns,
        None,
        carried(("0", "1"), [35, 8]),
        carried(("y", "x"), [2, 9]),
    )
    found = compare(a, b)
    told = [(one.key, one.unit, one.a, one.b, one.share) for one in found.dimensions]
    assert told == [
        ("0", "ns", 5, 35, None), ("0", "bytes", 50, 350, None), ("0", "share", 0.05, 0.35, None),
        ("1", "ns", None, 8, None), ("1", "bytes", None, 80, None), ("1", "share", None, 0.08, None),
    ]  # fmt: skip
    assert [one.key for one in found.links if one.unit == "ns"] == ["x", "y"]


def test_a_receive_waits_for_its_send():
    """Rank 0 sends at 40 µs what rank 1 wanted from 10 µs on: 30 µs of the 35 are the bubble of a pipeline."""
    sends = [
        timed(node(1, "COMP"), 0, 40),
        timed(node(2, "COMM_SEND", 1, comm_dst=1, comm_tag=0, comm_size=8), 40, 5),
    ]
    receives = [
        timed(node(1, "COMP"), 0, 10),
        timed(node(2, "COMM_RECV", 1, comm_src=0, comm_tag=0, comm_size=8), 10, 35),
    ]
    a = side([sends, receives])
    found = compare(a, a).waterfall("mean")
    told = {step.part: step.a_ns for step in found.steps if step.a_ns}
    assert told == {"compute": 25_000, "transfer": 5_000, "bubble": 15_000}


def system(kind: str) -> tuple[dict[str, object], dict[str, object]]:
    """Eight NPUs in a topology of one dimension."""
    network = {"topology": [kind], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    settings = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 2,
        "all-reduce-implementation": ["ring" if kind == "Ring" else "halvingDoubling"],
    }
    return network, settings


def test_a_recording_against_a_simulation_and_two_systems():
    """Folded ranks, collectives and metadata of a simulation; every waterfall adds up."""
    trace = trace_of([[*layers(["x", "y"], size=1 << 20), node(9, "COMP", 4, micros=30)] for _ in range(8)])
    measured = build_recorded_side(trace, collect_node_times(trace, recorded(trace)))
    results = [simulate(trace, from_parts(*system(kind)), native=compiled()) for kind in ("Ring", "Switch")]
    sims = [Side(trace, one.node_times(), one.finish_ns) for one in results]
    for one, other in ((measured, sims[0]), (sims[0], sims[1]), (sims[1], measured)):
        found = compare(one, other)
        assert found.alignment.share == 1
        for fall in found.waterfalls:
            assert sum(step.a_ns for step in fall.steps) == one.makespan_ns
            assert fall.a_ns + sum(step.difference_ns for step in fall.steps) == other.makespan_ns
    assert found.b is measured


def test_a_job_without_times_is_refused():
    trace = trace_of([[node(1, "COMP")]])
    with pytest.raises(TraceError, match="hold no times"):
        build_recorded_side(trace, collect_node_times(trace, recorded(trace)))


SPANS = st.lists(
    st.tuples(
        st.integers(0, 50), st.integers(0, 30), st.sampled_from(["COMP", "ALL_REDUCE", "MEM_LOAD", "METADATA"]), st.booleans()
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


def any_side(ranks) -> Side:
    def made(at, start, micros, kind, cpu):
        if kind == "ALL_REDUCE":
            return timed(collective(at, kind, 8), start, micros)
        return timed(node(at, kind, is_cpu_op=cpu), start, micros)

    return side([[made(at, *one) for at, one in enumerate(rank)] for rank in ranks])


@settings(max_examples=examples(30), deadline=None)
@given(*[st.lists(SPANS, min_size=1, max_size=3)] * 2)
def test_whatever_ran_the_waterfall_adds_up_and_swapping_turns_every_sign(a, b):
    one, other = any_side(a), any_side(b)
    there, back = compare(one, other), compare(other, one)
    for basis in ("busiest", "mean"):
        fall, turned = there.waterfall(basis), back.waterfall(basis)
        assert tuple(step.part for step in fall.steps) == STEPS
        assert min(step.a_ns for step in fall.steps) >= 0
        assert sum(step.a_ns for step in fall.steps) == fall.a_ns == one.makespan_ns
        assert fall.a_ns + sum(step.difference_ns for step in fall.steps) == other.makespan_ns
        assert [step.difference_ns for step in fall.steps] == [-step.difference_ns for step in turned.steps]
    assert [figure.difference for figure in there.figures] == [-figure.difference for figure in back.figures]
    assert there.alignment.matched == back.alignment.matched
    assert {(x.type, x.name): x.difference_ns for x in there.operations} == {
        (x.type, x.name): -x.difference_ns for x in back.operations
    }


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.data())
def test_what_is_matched_is_of_one_type_and_every_row_once(names, data):
    """Of a job with nodes taken out, all that are left are found, each once."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    a = trace_of([[node(at, "COMP", name=name) for at, name in enumerate(names)]]).graphs[0]
    rest = [node(100 + at, "COMP", name=name) for at, name in enumerate(names) if kept[at]]
    b = trace_of([rest or [node(100, "MEM_LOAD", name="z")]]).graphs[0]
    rows_a, rows_b = match_rows(a, b)
    assert len(rows_a) == len(rest)
    assert len(set(rows_a.tolist())) == len(set(rows_b.tolist())) == len(rest)
    assert (a.type[rows_a] == b.type[rows_b]).all()
