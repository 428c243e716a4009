from __future__ import annotations

from dataclasses import replace

import pytest

from studio.sim.astra import from_parts
from studio.sim.check import check
from studio.sim.extensions import Extensions
from studio.sim.graph_checks import find_smallest_cycle
from studio.trace import CommGroup
from tests.handmade import collective, node, trace_of
from tests.work import count_calls

MIB = 1 << 20
RING2 = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 4,
    "local-mem-bw": 1600,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}


def system(npus: int = 2, memory=None, **changes):
    keys = {key.replace("_", "-"): value for key, value in changes.items()}
    return from_parts({**RING2, "npus_count": [npus]}, {**SYSTEM, **keys}, memory)


def findings(trace, config=None):
    return [(found.level, found.code, found.message) for found in check(trace, config or system())]


def only(trace, config=None):
    """The one finding there is."""
    [found] = findings(trace, config)
    return found


def compute(number, *deps, **more):
    return node(number, "COMP", *deps, micros=1, **more)


def test_a_job_that_fits_has_no_findings():
    nodes = [compute(1), collective(2, "ALL_REDUCE", MIB, 1)]
    assert findings(trace_of([nodes, nodes])) == []


# ---------------------------------------------------------------------------------------------------
# Dimensions that are not timed


def two_dimensions(**changes):
    """Four NPUs in each of two nodes: ranks 3 and 4 differ in both dimensions."""
    network = {
        "topology": ["Switch", "Ring"],
        "npus_count": [4, 2],
        "bandwidth": [400, 50],
        "latency": [500, 1000],
    }
    rings = {"all-reduce-implementation": ["ring", "ring"], "all-gather-implementation": ["ring", "ring"]}
    return from_parts(network, {**SYSTEM, **rings, **changes})


def test_groups_whose_neighbours_differ_in_several_dimensions_are_told():
    """Group 1 passes from rank 3 to 4; groups 2 and 3 stay inside one dimension, as all ranks do."""
    nodes = [collective(1, "ALL_REDUCE", MIB, group="1")]
    told = only(
        trace_of([[compute(1)]] * 2 + [nodes] * 4 + [[compute(1)]] * 2, {"1": [2, 3, 4, 5]}), two_dimensions()
    )
    assert told[:2] == ("warning", "group-dimensions")
    assert told[2] == (
        "Messages of group 1 (ranks 2–5) between ranks 3 and 4 cross dimensions 0 and 1 and are timed in dimension 0 "
        "alone, as in the reference: the time is too short."
    )
    quiet = [[collective(1, "ALL_REDUCE", MIB, group="2")], [compute(1)], [compute(1)], [compute(1)]] * 2
    assert findings(trace_of(quiet, {"2": [0, 4]}), two_dimensions()) == []
    assert findings(trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 8), two_dimensions()) == []


def test_an_algorithm_over_all_ranks_at_once_crosses_dimensions_too():
    trace = trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 8)
    single = two_dimensions(**{"all-reduce-implementation": ["oneRing"]})
    level, code, message = only(trace, single)
    assert (level, code) == ("warning", "group-dimensions")
    assert message.startswith("Messages of the group of all ranks between ranks 3 and 4 cross")


def test_sends_that_differ_in_several_dimensions_are_told_once():
    """Of 0 → 5, 1 → 6 and 2 → 6, the first two cross both dimensions; the aware network times both."""
    pairs = {0: 5, 1: 6, 2: 6}
    graphs = [
        [send(1, pairs[rank], MIB)] if rank in pairs else [compute(1), *receives(pairs, rank)]
        for rank in range(8)
    ]
    config = two_dimensions()
    level, code, message = only(trace_of(graphs), config)
    assert (level, code) == ("warning", "message-dimensions")
    assert message.startswith("Messages from rank 0 to rank 5 (and 1 more like it) cross dimensions 0 and 1")
    aware = replace(config, congestion="aware", extensions=Extensions())
    assert findings(trace_of(graphs), aware) == []


def receives(pairs, rank):
    sources = [source for source, target in pairs.items() if target == rank]
    return [receive(2 + at, source, MIB) for at, source in enumerate(sources)]


# ---------------------------------------------------------------------------------------------------
# Ranks


def test_ranks_and_npus_have_to_be_as_many():
    assert only(trace_of([[compute(1)]] * 2), system(4)) == (
        "error",
        "ranks-missing",
        "The trace has ranks 0–1, the system 4 NPUs: ranks 2–3 are missing.",
    )
    assert only(trace_of([[compute(1)]] * 3))[:2] == ("error", "ranks-beyond")
    assert "rank 1 is missing" in only(trace_of({0: [compute(1)]}))[2]


# ---------------------------------------------------------------------------------------------------
# Members of a group that disagree


def test_the_first_disagreement_is_named_with_ranks_nodes_and_position():
    """Seventeen equal collectives, then an all-gather where the others have an all-reduce."""
    same = [collective(at, "ALL_REDUCE", MIB, *([at - 1] if at else []), group="1") for at in range(17)]
    usual = [*same, collective(96, "ALL_REDUCE", 2 * MIB, 16, group="1")]
    odd = [*same, collective(118, "ALL_GATHER", 3 * MIB // 2, 16, group="1")]
    trace = trace_of([usual, usual, usual, odd], {"1": [0, 1, 2, 3]})
    assert only(trace, system(4)) == (
        "error",
        "collectives-disagree",
        (
            "collective 17 of group 1: rank 3 has ALL_GATHER of 1.50 MiB (node 118) "
            "where rank 0 has ALL_REDUCE of 2.00 MiB (node 96)"
        ),
    )


def test_a_rank_that_takes_no_part_is_a_disagreement():
    assert only(trace_of([[collective(3, "ALL_REDUCE", 8)], [compute(1)]]))[2] == (
        "collective 0 of the group of all ranks: rank 1 has none where rank 0 has ALL_REDUCE of 8 B (node 3)"
    )


def test_another_order_is_an_error_where_dependencies_fix_it_and_a_warning_where_not():
    """Chained, both ranks are bound to meet in the wrong order; free, times decide."""

    def both(*deps):
        one = [collective(1, "ALL_REDUCE", 8), collective(2, "ALL_GATHER", 64, *deps)]
        other = [collective(1, "ALL_GATHER", 64), collective(2, "ALL_REDUCE", 8, *deps)]
        return trace_of([one, other])

    assert only(both(1))[:2] == ("error", "collectives-disagree")
    level, code, message = only(both())
    assert (level, code) == ("warning", "collectives-disagree")
    assert "not fixed by dependencies" in message


def test_many_groups_that_disagree_are_counted():
    names = [str(at) for at in range(1, 21)]
    one = [collective(at, "ALL_REDUCE", 8, group=name) for at, name in enumerate(names)]
    other = [collective(at, "ALL_REDUCE", 9, group=name) for at, name in enumerate(names)]
    found = findings(trace_of([one, other], {name: [0, 1] for name in names}))
    assert len(found) == 9
    assert found[-1][2] == "12 more groups are like this."


def test_outsiders_and_unlisted_groups_are_named():
    nodes = [collective(1, "ALL_REDUCE", 8, group="1")]
    found = findings(trace_of([nodes, nodes], {"1": [0]}))
    assert ("error", "group-outsider", "Nodes of rank 1 name group 1, whose members are rank 0.") in found
    assert only(trace_of([nodes, nodes]))[:2] == ("warning", "group-unlisted")
    config = replace(system(), groups=(CommGroup("2", (0, 1)),))
    assert only(trace_of([nodes, nodes]), config)[:2] == ("error", "group-unlisted")


def test_groups_beyond_the_system_and_names_that_are_no_numbers():
    nodes = [collective(1, "ALL_REDUCE", 8, group="tp")]
    found = findings(trace_of([nodes, nodes], {"tp": [0, 1], "far": [0, 9]}))
    assert ("error", "group-beyond", "Group far names rank 9; the system has ranks 0 to 1.") in found
    [named] = [
        one for one in check(trace_of([nodes, nodes], {"tp": [0, 1]}), system()) if one.code == "group-name"
    ]
    assert named.message == "1 comm group has a name that is no whole number: 'tp'."
    assert named.hint.endswith("the extended mode (--model full) takes any text.")
    several = [collective(1, "ALL_REDUCE", 8, group="tp"), collective(2, "ALL_REDUCE", 8, 1, group="dp")]
    said = [
        one[2]
        for one in findings(trace_of([several] * 2, {"tp": [0, 1], "dp": [0, 1]}))
        if one[1] == "group-name"
    ]
    assert said == ["2 comm groups have names that are no whole numbers: 'tp', 'dp'."]


def test_ranks_that_would_number_a_common_collective_differently_are_named():
    """Ranks 0 and 1 begin four chunks of their group before the collective of all ranks; 2 and 3 none."""
    inside = [collective(1, "ALL_REDUCE", MIB, group="1"), collective(2, "ALL_REDUCE", MIB, 1)]
    outside = [compute(1), collective(2, "ALL_REDUCE", MIB, 1)]
    trace = trace_of([inside, inside, outside, outside], {"1": [0, 1]})
    level, code, message = only(trace, system(4))
    assert (level, code) == ("warning", "chunk-numbers")
    assert "rank 2 has begun 0 chunks of comm groups before it, rank 0 4." in message
    both = trace_of([inside] * 4, {"1": [0, 1, 2, 3]})
    assert findings(both, system(4)) == []


def test_a_thousand_ranks_of_one_graph_are_little_work():
    """Shared graphs are looked at once: far fewer function calls than there are nodes on all ranks."""
    layers = [collective(at, "ALL_REDUCE", MIB, *([at - 1] if at else []), group="1") for at in range(96)]
    template = trace_of([layers])
    [first] = template.ranks
    ranks = tuple(replace(first, number=at, slots=(str(1 + at // 8),)) for at in range(1024))
    groups = tuple(CommGroup(str(1 + at), tuple(range(8 * at, 8 * at + 8))) for at in range(128))
    trace = replace(template, ranks=ranks, groups=groups)
    calls, findings_made = count_calls(lambda: check(trace, system(1024)))
    assert findings_made == []
    assert calls < 1024 * 96


# ---------------------------------------------------------------------------------------------------
# Algorithms


def test_a_collective_without_algorithm_is_named():
    nodes = [collective(1, "ALL_TO_ALL", MIB)]
    level, code, message = only(trace_of([nodes, nodes]))
    assert (level, code) == ("error", "algorithm-missing")
    assert message == "the group of all ranks: ALL_TO_ALL is used, and all-to-all-implementation is not set"


@pytest.mark.parametrize("name", ["halvingDoubling", "doubleBinaryTree"])
def test_trees_and_halving_need_a_power_of_two(name):
    nodes = [collective(1, "ALL_REDUCE", MIB)]
    found = only(trace_of([nodes] * 6), system(6, all_reduce_implementation=[name]))
    assert found[1:] == (
        "algorithm-unfit",
        f"the group of all ranks: ALL_REDUCE by {name} over 6 ranks; allowed: a power of two",
    )
    assert findings(trace_of([nodes] * 8), system(8, all_reduce_implementation=[name])) == []


def test_a_smaller_group_counts_its_own_members():
    """Six of eight ranks: the algorithm would run over six."""
    inside = [collective(1, "ALL_REDUCE", MIB, group="1")]
    trace = trace_of([*[inside] * 6, [compute(1)], [compute(1)]], {"1": range(6)})
    assert only(trace, system(8, all_reduce_implementation=["halvingDoubling"]))[1] == "algorithm-unfit"


def test_a_tree_in_a_comm_group_is_told_before_the_run_that_would_refuse_it():
    inside = [collective(1, "ALL_REDUCE", MIB, group="1")]
    trace = trace_of([*[inside] * 4, *[[compute(1)]] * 4], {"1": range(4)})
    assert only(trace, system(8, all_reduce_implementation=["doubleBinaryTree"]))[1] == "algorithm-unfit"


def test_all_to_all_has_no_halving():
    nodes = [collective(1, "ALL_TO_ALL", MIB)]
    config = system(2, all_to_all_implementation=["halvingDoubling"])
    assert "ALL_TO_ALL has no halvingDoubling form" in only(trace_of([nodes, nodes]), config)[2]


def test_collectives_the_reference_does_not_know_are_named():
    nodes = [collective(1, "GATHER", MIB)]
    assert only(trace_of([nodes, nodes]))[:2] == ("error", "collective-unsupported")
    broadcast = [collective(1, "BROADCAST", MIB)]
    assert findings(trace_of([broadcast, broadcast])) == []


def test_a_collective_that_involves_no_dimension_never_completes():
    nodes = [collective(1, "ALL_REDUCE", MIB, involved_dim=[False, True])]
    assert only(trace_of([nodes, nodes]))[:2] == ("error", "no-dimension")


# ---------------------------------------------------------------------------------------------------
# Sends and receives


def send(number, target, size, *deps, **more):
    return node(number, "COMM_SEND", *deps, comm_dst=target, comm_size=size, **{"comm_tag": 0, **more})


def receive(number, source, size, *deps, **more):
    return node(number, "COMM_RECV", *deps, comm_src=source, comm_size=size, **{"comm_tag": 0, **more})


def test_a_receive_of_another_size_is_told_with_the_send_that_was_meant():
    first, second = findings(trace_of([[send(1, 1, 100)], [receive(7, 0, 101)]]))
    assert first == (
        "error",
        "receive-unmatched",
        (
            "rank 1's receive from rank 0 (101 bytes, tag 0, node 7 (n7)) is never sent; "
            "nearest is rank 0's send to rank 1 (100 bytes, tag 0, node 1 (n1))."
        ),
    )
    assert second[:2] == ("warning", "send-unmatched")


def test_a_send_to_itself_or_in_anothers_name_is_refused():
    itself = findings(trace_of([[send(1, 0, 8), receive(2, 0, 8)], [compute(1)]]))
    assert ("error", "self-message") in [one[:2] for one in itself]
    foreign = findings(trace_of([[send(1, 1, 8, comm_src=1)], [compute(1)]]))
    assert ("error", "foreign-message", "Rank 0 has a send whose comm_src is rank 1.") in foreign


# ---------------------------------------------------------------------------------------------------
# Graphs


def test_a_dangling_dependency_is_named():
    found = findings(trace_of([[compute(1), compute(2, 7)], [compute(1)]]))
    assert found == [
        ("error", "dangling", "rank 0: node 2 (n2) waits for node 7, which is not in the trace.")
    ]


def test_the_smallest_cycle_is_shown():
    """Nodes 2, 3, 4, 5 form a circle, and 4 and 3 a smaller one."""
    nodes = [compute(1), compute(2, 1, 5), compute(3, 2, 4), compute(4, 3), compute(5, 4)]
    trace = trace_of([nodes, nodes])
    assert sorted(find_smallest_cycle(trace.graphs[0])) == [2, 3]
    level, code, message = only(trace)
    assert (level, code) == ("error", "cycle")
    assert message.startswith("ranks 0–1: 2 nodes wait for each other in a circle: node ")


def test_a_node_that_waits_for_itself_is_a_cycle_and_no_root():
    found = findings(trace_of([[compute(1, 1)], [compute(1)]]))
    assert [one[1] for one in found] == ["no-root", "cycle"]


def test_ids_that_fall_along_dependencies_are_no_cycle():
    [graph] = trace_of([[compute(3), compute(2, 3), compute(1, 2)]]).graphs
    assert find_smallest_cycle(graph) == []


def test_an_empty_rank_is_named():
    assert only(trace_of([[], [compute(1)]]))[1:] == ("empty", "The trace of rank 0 is empty.")


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (node(2, "METADATA"), "metadata-node"),
        (node(2, "INVALID"), "invalid-node"),
        (node(2, "MEM_LOAD", tensor_size=8), "no-memory"),
        (node(2, "COMM_COLL", comm_type=0), "attribute-missing"),
        (node(2, "COMM_COLL", comm_size=8), "attribute-missing"),
        (collective(2, "ALL_GATHER", 0), "empty-all-gather"),
        (collective(2, "ALL_GATHER", 3), "tiny-all-gather"),
        (collective(2, "ALL_REDUCE", -3), "negative-size"),
        (collective(2, "ALL_REDUCE", 8, is_cpu_op=True), "comm-on-cpu"),
    ],
)
def test_nodes_that_cannot_be_simulated_are_named(made, code):
    nodes = [compute(1), made]
    assert only(trace_of([nodes, nodes]))[1] == code


def test_every_attribute_a_node_needs_is_asked_for():
    load = [node(1, "MEM_LOAD"), compute(2, num_ops=5), compute(3, is_cpu_op=True)]
    memory = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 1, "remote-mem-bw": 1}
    found = findings(trace_of([load, load]), system(2, memory, roofline_enabled=1, peak_perf=100))
    assert [one[2] for one in found] == [
        "ranks 0–1: node 2 (n2) has no tensor_size.",
        "ranks 0–1: node 1 (n1) has no tensor_size.",
    ]
    message = [node(1, "COMM_SEND"), node(2, "COMM_RECV")]
    codes = [
        one[2].split(" has no ")[1]
        for one in findings(trace_of([message, message]))
        if one[1] == "attribute-missing"
    ]
    assert codes == ["comm_dst.", "comm_size.", "comm_tag.", "comm_src.", "comm_size.", "comm_tag."]


def test_replaying_needs_durations_alone():
    """Every node takes its duration, so sizes, peers and agreement do not matter."""
    trace = trace_of(
        [[collective(1, "GATHER", 0, is_cpu_op=True), node(2, "MEM_LOAD")], [node(1, "COMM_RECV")]]
    )
    assert findings(trace, system(replay_only=1)) == []


def test_operations_without_durations_take_no_time_where_the_roofline_is_off():
    """A workload of a generator names operations, not durations: on a system without roofline the answer leaves them out."""
    given = [node(1, "COMP", num_ops=1_000, tensor_size=10), node(2, "COMP", 1)]
    assert [one[:2] for one in findings(trace_of([given, given]))] == [("warning", "compute-takes-no-time")]
    assert findings(trace_of([[*given, compute(3)], given])) == []
    assert findings(trace_of([[node(1, "COMP")], [node(1, "COMP")]])) == []
    roofed = system(2, roofline_enabled=1, peak_perf=100, local_mem_bw=100)
    assert findings(trace_of([given[:1], given[:1]]), roofed) == []
