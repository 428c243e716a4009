"""What the doctor repairs: exactly that, told exactly, and gone when the job is examined again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from studio.doctor import REPAIRS, examine, repair, repair_all
from studio.doctor.edit import list_entries, with_data_dependencies, without_dependencies, without_nodes
from studio.errors import TraceError
from studio.et import read, write
from studio.et.link.dep_kinds import DEP_KINDS
from studio.et.schema import load_schema
from studio.trace import Graph, Trace, compute_digest, list_node_attributes
from tests.doctor.broken_jobs import BROKEN, comp, healthy, kernels, shared, started
from tests.examples import examples
from tests.handmade import collective, node, trace_of
from tests.strategies import chakra_file, part_of, traces


def codes(trace: Trace) -> set[str]:
    return {one.code for one in examine(trace)}


def waits(graph: Graph, number: int) -> list[int]:
    """Ids the node of an id waits for."""
    row = int(np.flatnonzero(graph.id == number)[0])
    return [int(graph.id[other]) for other in (*graph.ctrl.of(row), *graph.data.of(row)) if other >= 0]


def broken(code: str) -> Trace:
    """A job in which the repair has something to do."""
    return disordered() if code == "collectives-disagree" else BROKEN[code]()


@pytest.mark.parametrize("code", REPAIRS)
def test_a_repair_takes_out_what_its_check_finds_and_leaves_the_job_as_it_was(code: str):
    trace = broken(code)
    before = [compute_digest(graph) for graph in trace.graphs]
    done = repair(trace, code)
    assert [compute_digest(graph) for graph in trace.graphs] == before
    assert code not in codes(done.trace)
    assert sum(change.count for change in done.changes) >= 1
    assert done.trace.findings[-1].code == f"repaired-{code}"


@pytest.mark.parametrize("code", REPAIRS)
def test_a_repaired_job_is_written_and_read_again(code: str, tmp_path):
    done = repair(broken(code), code)
    write(done.trace, tmp_path, "job")
    again = read(tmp_path)
    assert again.node_count == done.trace.node_count
    assert code not in codes(again)


@pytest.mark.parametrize("code", REPAIRS)
def test_a_healthy_job_is_given_back_as_it_is(code: str):
    trace = healthy()
    done = repair(trace, code)
    assert done.trace is trace
    assert done.changes == ()


WHERE_EVIDENT = {"foreign-message", "peer-missing", "peer-outside"}
"""Repairs that leave alone what they have no evidence of, which is still found."""


@settings(deadline=None, max_examples=examples(30))
@given(traces())
def test_whatever_a_file_holds_a_repair_ends_its_finding(trace: Trace):
    """Alone; and all together leave none that can be repaired. A circle keeps kernels and files from being put in order."""
    found = examine(trace)
    before = {one.code for one in found}
    repairable = set(REPAIRS) - {"collectives-disagree"}
    for code in before & repairable:
        offered = any(one.repair == code for one in found if one.code == code)
        assert (repair(trace, code).trace is not trace) >= offered
        left = examine(repair(trace, code).trace)
        assert not any(one.repair == code for one in left)
        if not (
            (code in ("forward", "stream-order") and before & {"cycle", "self-loop"}) or code in WHERE_EVIDENT
        ):
            assert code not in {one.code for one in left}
    left = examine(repair_all(trace).trace)
    assert not {one.repair for one in left} & repairable
    assert not {one.code for one in left} & (repairable - WHERE_EVIDENT)


def test_an_unknown_repair_is_refused_with_those_there_are():
    with pytest.raises(TraceError, match="no repair 'magic'") as error:
        repair(healthy(), "magic")
    assert "self-loop" in error.value.hint
    with pytest.raises(TraceError):
        repair_all(healthy(), ["self-loop", "magic"])


def test_ranks_go_on_sharing_a_graph_that_is_repaired():
    done = repair(shared(8), "self-loop")
    assert len(done.trace.graphs) == 1
    [change] = done.changes
    assert (change.what, change.count) == ("8 dependencies removed", 8)
    assert change.first == ("rank 0: node 2 (n2) waited for node 2 (n2)",)
    assert waits(done.trace.graphs[0], 2) == [1]


def test_nodes_written_twice_are_removed():
    """As where a file was joined to itself: numbered anew they would compute, reduce and send again."""
    twice = [comp(1), collective(2, "ALL_REDUCE", 64, 1), comp(3, 2)]
    other = node(3, "COMP", 2, micros=6)
    trace = trace_of([[*twice, *twice, other], twice])
    assert evidence_of(trace, "duplicate-id") == {"alike in everything": "3, written twice"}
    done = repair(trace, "duplicate-id")
    assert [change.what for change in done.changes] == ["3 copies of nodes removed", "1 node numbered anew"]
    assert done.trace.graphs[0].id.tolist() == [1, 2, 3, 4]
    assert codes(done.trace) == {"repaired-duplicate-id"}


def evidence_of(trace: Trace, code: str) -> dict[str, str]:
    return next(dict(one.evidence) for one in examine(trace) if one.code == code)


def test_dangling_dependencies_go_and_the_others_stay():
    done = repair(BROKEN["dangling"](), "dangling")
    assert waits(done.trace.graphs[0], 2) == [1]
    assert len(done.trace.graphs[0].data.dangling) == 0
    assert done.changes[0].first == ("rank 0: node 2 (n2) waited for node 99, which is missing",)


def test_repeated_ids_become_new_ones_and_dependencies_stay_with_the_first():
    graph = repair(BROKEN["duplicate-id"](), "duplicate-id").trace.graphs[0]
    assert graph.id.tolist() == [1, 3, 2]
    assert graph.data.of(2).tolist() == [0]
    high = trace_of([[comp(2**64 - 1), node(2**64 - 1, "COMP", micros=6)]])
    assert repair(high, "duplicate-id").trace.graphs[0].id.tolist() == [2**64 - 1, 0]


def test_only_the_rank_whose_message_is_lost_loses_its_node():
    """Two ranks that share a graph send to each other's neighbour; one finds a receive."""
    send = [comp(1), node(2, "COMM_SEND", 1, comm_dst=2, comm_size=8, comm_tag=0), comp(3, 2)]
    other = [comp(1), node(2, "COMM_SEND", 1, comm_dst=3, comm_size=8, comm_tag=0), comp(3, 2)]
    receive = [node(1, "COMM_RECV", comm_src=0, comm_size=8, comm_tag=0)]
    trace = trace_of([send, other, receive, [comp(1)]])
    assert trace.ranks[0].graph == trace.ranks[1].graph
    done = repair(trace, "send-unmatched").trace
    assert [len(done.graph_of(rank)) for rank in done.ranks] == [3, 2, 1, 1]
    assert waits(done.graph_of(done.ranks[1]), 3) == [1]


def test_what_waited_for_removed_nodes_waits_for_what_they_waited_for():
    """Through several that go, and without a node coming to wait for itself."""
    graph = trace_of([[comp(1), comp(2, 1), comp(3, 2), comp(4, 3), comp(5)]]).graphs[0]
    left = without_nodes(graph, np.array([1, 2]))
    assert left.id.tolist() == [1, 4, 5]
    assert waits(left, 4) == [1]
    circle = trace_of([[comp(1, 2), comp(2, 1)]]).graphs[0]
    assert waits(without_nodes(circle, np.array([1])), 1) == []


def test_nodes_keep_all_they_have_when_they_move():
    trace = trace_of(
        [[comp(1, 2, involved=[True, False]), collective(2, "ALL_REDUCE", 64, group="tp0", dims=[True])]],
        {"tp0": [0]},
    )
    done = repair(trace, "forward").trace
    before, after = trace.graphs[0], done.graphs[0]
    assert after.id.tolist() == [2, 1]
    slots = trace.ranks[0].slots
    assert list_node_attributes(after, 0, slots) == list_node_attributes(before, 1, slots)
    assert list_node_attributes(after, 1, slots) == list_node_attributes(before, 0, slots)


def disordered() -> Trace:
    """Three ranks with the same collectives, in another order on one of them, which nothing fixes."""
    a, b, c = ("ALL_REDUCE", 64), ("ALL_GATHER", 32), ("ALL_REDUCE", 64)
    orders = ((a, b, c), (a, b, c), (b, c, a))
    return trace_of(
        [[collective(n, *one, group="tp0") for n, one in enumerate(order, 1)] for order in orders],
        {"tp0": [0, 1, 2]},
    )


def test_collectives_in_no_fixed_order_are_put_in_that_of_most_ranks():
    [one] = [one for one in examine(disordered()) if one.code == "collectives-disagree"]
    assert (one.level, one.repair) == ("warning", "collectives-disagree")
    done = repair(disordered(), "collectives-disagree")
    assert done.changes[0].what == "6 dependencies added, 1 group put in order"
    assert "collectives-disagree" not in codes(done.trace)
    first, last = (done.trace.graph_of(done.trace.ranks[at]) for at in (0, 2))
    assert [waits(first, number) for number in (1, 2, 3)] == [[], [1], [2]]
    assert [waits(last, number) for number in (1, 2, 3)] == [[2], [], [1]]


def test_collectives_are_put_in_the_order_they_were_recorded_in():
    starts = [[0, 20, 40], [0, 40, 20]]
    done = repair(started(disordered(), *starts), "collectives-disagree")
    assert done.changes[0].first[0] == "rank 0: node 2 (n2) waits for node 1 (n1)"
    late = repair(started(disordered(), [0, 40, 20], [0, 40, 20]), "collectives-disagree")
    assert [waits(late.trace.graphs[0], number) for number in (1, 2, 3)] == [[], [3], [1]]


def test_collectives_whose_order_is_fixed_are_left_alone():
    """Which of the ranks is wrong nobody can know."""
    trace = BROKEN["collectives-disagree"]()
    [one] = [one for one in examine(trace) if one.code == "collectives-disagree"]
    assert one.repair is None
    assert repair(trace, "collectives-disagree").changes == ()


def test_an_order_that_one_rank_has_fixed_is_taken_by_the_others():
    """Chained like most it would wait in a circle."""
    a, b = ("ALL_REDUCE", 64), ("ALL_GATHER", 32)
    free = [collective(1, *a), collective(2, *b)]
    fixed = [collective(1, *b), collective(2, *a, 1)]
    done = repair(trace_of([free, free, fixed]), "collectives-disagree").trace
    assert not codes(done) & {"collectives-disagree", "cycle"}
    assert [waits(done.graph_of(rank), 1) for rank in done.ranks] == [[2], [2], []]


def test_an_order_that_dependencies_rule_out_everywhere_is_not_forced():
    """Three ranks fix parts of the order that no single one can have."""
    a, b, c = ("ALL_REDUCE", 64), ("ALL_GATHER", 32), ("ALL_TO_ALL", 16)
    ranks = [
        [collective(1, *x), collective(2, *y, 1), collective(3, *z)]
        for x, y, z in ((a, b, c), (b, c, a), (c, a, b))
    ]
    assert repair(trace_of(ranks), "collectives-disagree").changes == ()


def test_kernels_are_chained_along_their_stream():
    done = repair(kernels((), (), ()), "stream-order").trace
    assert waits(done.graphs[0], 12) == [2, 11]
    assert waits(done.graphs[0], 13) == [3, 12]


def test_an_order_that_would_close_a_circle_is_left_out():
    """The kernel that began first waits for the later one: that order stays, and is told no more of as wrong."""
    trace = kernels((12,), (), ())
    done = repair(trace, "stream-order")
    assert "cycle" not in codes(done.trace)
    assert waits(done.trace.graphs[0], 12) == [2]
    assert waits(done.trace.graphs[0], 13) == [3, 12]


def test_clocks_are_moved_by_the_median_of_matched_ends():
    trace = BROKEN["clock-skew"]()
    done = repair(trace, "clock-skew")
    assert done.changes[0].first == ("rank 1: 1.00 ms earlier",)
    first, second = done.trace.graphs
    assert (first.start_ns == second.start_ns).all()


def test_times_stay_positive_when_a_clock_is_moved_below_zero():
    trace = BROKEN["clock-skew"]()
    swapped = replace(trace, graphs=trace.graphs[::-1])
    done = repair(swapped, "clock-skew").trace
    assert (done.graphs[0].start_ns == done.graphs[1].start_ns).all()
    assert min(int(graph.start_ns.min()) for graph in done.graphs) >= 0


# ---------------------------------------------------------------------------------------------------
# Why nodes have their dependencies


def labelled() -> Graph:
    """Three nodes of which each says why it has its data dependencies."""
    made = []
    for number, deps, kinds in ((1, [], None), (2, [1, 2], [1, 64]), (3, [1, 2], [4, 8])):
        one = node(number, "COMP", *deps)
        if kinds:
            one.attr.add(name="list").int32_list.values.extend([7, 7])
            one.attr.add(name=DEP_KINDS).int32_list.values.extend(kinds)
        made.append(one.SerializeToString())
    assert load_schema()
    return part_of(chakra_file(made)).graph


def lists(graph: Graph) -> list[dict[str, object]]:
    return [{a.name: a.value for a in list_node_attributes(graph, row)} for row in range(len(graph))]


def test_the_reasons_of_dependencies_follow_them():
    graph, count = without_dependencies(labelled(), lambda one: one.rows == one.of)
    assert count == 1
    assert lists(graph) == [{}, {"list": [7, 7], DEP_KINDS: [1]}, {"list": [7, 7], DEP_KINDS: [4, 8]}]
    more = with_data_dependencies(graph, np.array([1]), np.array([2]), 8)
    assert lists(more)[1] == {"list": [7, 7], DEP_KINDS: [1, 8]}
    assert list_entries(more, more.data).kinds.tolist() == [1, 8, 4, 8]
    moved = without_nodes(more, np.array([0]))
    assert lists(moved)[1] == {"list": [7, 7], DEP_KINDS: [8]}


def half(number: int, kind: str, peer: int, size: int, **more: int):
    key = "comm_dst" if kind == "COMM_SEND" else "comm_src"
    return node(number, kind, comm_size=size, **{key: peer}, **more)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"size": 4, "comm_tag": 3}, "size 4 became 8"),
        ({"size": 8, "comm_tag": 5}, "tag 5 became 3"),
        ({"size": 8}, "tag 0 became 3"),
        ({"size": 2, "comm_tag": 1}, "tag 1 became 3, size 2 became 8"),
    ],
)
def test_a_receive_that_differs_from_its_send_is_corrected_not_removed(wrong, words, tmp_path):
    trace = trace_of(
        [[comp(1), half(2, "COMM_SEND", 1, 8, comm_tag=3)], [comp(1), half(2, "COMM_RECV", 0, **wrong)]]
    )
    done = repair(trace, "receive-unmatched")
    assert [change.what for change in done.changes] == ["1 receive corrected"]
    assert done.changes[0].first == (f"rank 1: node 2 (n2): {words}",)
    write(done.trace, tmp_path, "job")
    assert not codes(read(tmp_path)) & {"receive-unmatched", "send-unmatched"}


@pytest.mark.parametrize(
    ("wrong", "words"), [({"size": 16}, "size 8 became 16"), ({"comm_tag": 5}, "tag 3 became 5")]
)
def test_of_receives_that_are_alike_the_one_in_the_place_of_the_send_is_corrected(wrong, words):
    """Corrected the last one would wait for the first message, and the first for the second."""
    alike = {"size": 8, "comm_tag": 3}
    sends = [half(2 + at, "COMM_SEND", 1, **(alike | wrong if at == 0 else alike)) for at in range(3)]
    receives = [half(2 + at, "COMM_RECV", 0, **alike) for at in range(3)]
    done = repair(trace_of([sends, receives]), "receive-unmatched")
    assert done.changes[0].first == (f"rank 1: node 2 (n2): {words}",)
    assert not codes(done.trace) & {"receive-unmatched", "send-unmatched", "deadlock"}


def test_receives_without_any_send_are_still_removed():
    ranks = [
        [comp(1), half(2, "COMM_SEND", 1, 8, comm_tag=3)],
        [comp(1), half(2, "COMM_RECV", 0, 8, comm_tag=4), half(3, "COMM_RECV", 0, 9, comm_tag=9)],
    ]
    done = repair(trace_of(ranks), "receive-unmatched")
    assert [change.what for change in done.changes] == ["1 receive corrected", "1 receive removed"]
    assert "receive-unmatched" not in codes(done.trace)


def test_repairs_tell_how_far_they_are_and_can_be_stopped_within_one():
    told: list[tuple[str, int, int]] = []
    repair_all(BROKEN["cycle"](), ["cycle", "forward"], progress=lambda *how: told.append(how))
    assert told[0] == ("repairing", 0, 2)
    assert told[-1] == ("repairing", 1, 2)
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repair(BROKEN["clock-skew"](), "clock-skew", stop)
    assert calls == 1
