"""What the doctor finds: each check on a job in which the answer can be seen, and nothing where nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import studio
from studio.doctor import CHECKS, REPAIRS, Diagnosis, NodeAt, examine, repair, run_checks, scale
from studio.doctor.cycles import find_removal
from studio.doctor.diagnosis import Case, GraphCase
from studio.trace import Finding, Trace
from tests.conftest import ROOT
from tests.doctor.broken_jobs import BROKEN, comp, healthy, kernels, shared, started, with_metadata, with_type
from tests.examples import examples
from tests.handmade import at, collective, node, trace_of
from tests.strategies import traces


def found(trace: Trace, code: str) -> Diagnosis:
    """The one finding of a check."""
    [one] = [one for one in examine(trace) if one.code == code]
    return one


def codes(trace: Trace) -> set[str]:
    return {one.code for one in examine(trace)}


def evidence(one: Diagnosis) -> dict[str, str]:
    return dict(one.evidence)


def test_a_healthy_job_has_no_findings_and_says_what_was_looked_for():
    examined = run_checks(healthy())
    assert examined.diagnoses == ()
    assert examined.passed == CHECKS


@pytest.mark.parametrize(
    ("code", "check"),
    [
        ("unknown-collective", "comm-untyped"),
        ("unknown-collective", "size-missing"),
        ("unattributed", "unlinked"),
        ("unlinked", "unlinked"),
    ],
)
def test_what_only_the_reader_found_is_listed_and_not_among_what_was_not_found(code, check):
    said = Finding("info", code, "a: 3 of them.")
    examined = run_checks(replace(healthy(), findings=(said,)))
    assert [diagnosis.code for diagnosis in examined.diagnoses] == [code]
    assert examined.diagnoses[0].title.startswith("From reading the files: ")
    assert check not in {one.code for one in examined.passed}


def test_what_is_lost_of_the_files_comes_before_what_may_follow_from_it():
    said = Finding("error", "damaged-file", "a: the file ends inside a record.")
    first, *others = examine(replace(BROKEN["dangling"](), findings=(said,)))
    assert (first.code, [one.code for one in others if one.level == "error"]) == (
        "damaged-file",
        ["dangling"],
    )
    assert "may follow" in first.consequence
    [alone] = examine(replace(healthy(), findings=(said,)))
    assert "may follow" not in alone.consequence


def test_what_a_check_tells_in_more_detail_is_not_repeated():
    said = Finding("info", "unattributed", "a: 3 of them.")
    trace = trace_of([[comp(1, is_cpu_op=False, unattributed=True), comp(2, 1)]])
    assert [one.code for one in examine(replace(trace, findings=(said,)))] == ["unlinked"]


def test_every_check_has_a_job_in_which_it_finds_something():
    assert set(BROKEN) == {check.code for check in CHECKS}
    assert set(REPAIRS) <= set(BROKEN)


@pytest.mark.parametrize("code", BROKEN)
def test_a_check_finds_what_it_is_for(code: str):
    """With level, ranks or nodes, a consequence in words, and the repair if there is one."""
    one = found(BROKEN[code](), code)
    assert one.message.endswith((".", "…"))
    assert one.consequence
    assert one.count >= 1
    assert one.ranks
    # The ranks of that job disagree whatever the order.
    is_repairable = code in REPAIRS and code != "collectives-disagree"
    assert one.repair == (code if is_repairable else None)


@pytest.mark.parametrize("waits", [(2, 1), (1,)], ids=["a cycle", "a node that waits for itself"])
def test_an_order_is_not_offered_where_a_cycle_has_none(waits: tuple[int, ...]):
    """Opening it comes first; ranks without one can still be put in order."""
    first, *others = waits
    closed = [comp(1, first), *(comp(2, other) for other in others), comp(5, 6), comp(6)]
    one = found(trace_of([closed]), "forward")
    assert (one.repair, one.advice) == (
        None,
        "Open the cycle first: nodes that wait for each other have no order.",
    )
    trace = trace_of([closed, [comp(1, 2), comp(2)]])
    assert found(trace, "forward").repair == "forward"
    assert len(found(repair(trace, "forward").trace, "forward").ranks) == 1


def test_the_worst_is_told_first():
    trace = trace_of([[comp(1, 2), comp(2), comp(3, 3), collective(4, "ALL_REDUCE", 0, 3), comp(5, 4)]])
    levels = [one.level for one in examine(trace)]
    assert levels == ["error", "warning", "info"]


@pytest.mark.parametrize(
    ("code", "level", "message"),
    [
        ("missing-rank", "error", "Rank 1 is missing, according to the other rank numbers."),
        (
            "dangling",
            "error",
            "1 node of rank 0 waits for nodes that are not in the trace: node 2 (n2) of rank 0 waits for node 99.",
        ),
        (
            "cycle",
            "error",
            (
                "3 nodes of rank 0 wait for each other in 1 cycle. Removing 1 dependency (the fewest that open all "
                "cycles) fixes it: node 1 (n1) waits for node 3 (n3)."
            ),
        ),
        ("duplicate-id", "error", "1 node of rank 0 has the id of an earlier node: node 1 (n1)."),
        (
            "collectives-disagree",
            "error",
            (
                "This job will hang in a simulator at collective 1 of group tp0, because rank 1 has ALL_GATHER of 32 B "
                "(node 2) where rank 0 has ALL_REDUCE of 32 B (node 2)."
            ),
        ),
        ("group-outsider", "error", "Nodes of rank 2 name group tp0, whose members are ranks 0–1."),
        (
            "receive-unmatched",
            "error",
            "1 receive of rank 0 is never sent: rank 0's receive from rank 1 (64 bytes, tag 0, node 2 (n2)).",
        ),
        (
            "send-unmatched",
            "warning",
            "1 send of rank 0 is never received: rank 0's send to rank 1 (64 bytes, tag 0, node 2 (n2)).",
        ),
        (
            "uneven-all-to-all",
            "info",
            (
                "Members of the group of all ranks bring different sizes to the same all-to-alls: in collective 0 of the "
                "group of all ranks 20 B to 44 B."
            ),
        ),
        (
            "stream-order",
            "warning",
            (
                "1 kernel of rank 0 does not wait for the previous kernel on the same stream: node 12 (n12) comes after node 11 "
                "(n11)."
            ),
        ),
        (
            "clock-skew",
            "warning",
            "The clock of rank 1 differs from that of rank 0: rank 1 is 1.00 ms ahead of it.",
        ),
        (
            "comm-trailing",
            "info",
            "No computation of rank 0 waits for any communication; the first is node 3 (n3) of rank 0.",
        ),
        (
            "forward",
            "info",
            "1 node of rank 0 waits for nodes later in the file: node 1 (n1) waits for node 2 (n2).",
        ),
    ],
)
def test_findings_name_what_where_and_how_bad(code: str, level: str, message: str):
    one = found(BROKEN[code](), code)
    assert (one.level, one.message) == (level, message)


def test_ranks_that_share_a_graph_are_one_finding_that_counts_each():
    one = found(shared(8), "self-loop")
    assert one.ranks == tuple(range(8))
    assert one.count == 8
    assert one.nodes == (NodeAt(0, 1),)


def test_what_the_reader_noticed_is_in_the_same_list():
    """But for what the checks find in the trace as it is now."""
    trace = replace(
        healthy(),
        findings=(
            Finding("error", "damaged-file", "a.et: cut off.", "Copy it again.", 0, "a.et", 100),
            Finding("warning", "dangling-dependency", "a.et: 3."),
        ),
    )
    [one] = examine(trace)
    assert (one.code, one.level, one.advice) == ("damaged-file", "error", "Copy it again.")
    assert evidence(one) == {"file": "a.et", "at byte": "100"}


def test_what_the_reader_says_of_many_files_is_told_once():
    told = tuple(Finding("info", "clock", f"{number}.et: moved.", rank=number) for number in range(7))
    [one] = examine(replace(healthy(), findings=told))
    assert (one.message, one.ranks, one.count) == ("0.et: moved.", tuple(range(7)), 7)
    assert [value for what, value in one.evidence if what == "also"] == [f"{n}.et: moved." for n in (1, 2)]
    assert evidence(one)["and"] == "4 more"


def test_the_linker_says_itself_why_nothing_was_linked():
    trace = with_metadata(healthy(), link_host_operations=9, link_device_operations=5, link_linked=0)
    told = replace(trace, findings=(Finding("error", "nothing-linked", "No ids.", "Record anew."),))
    assert [one.code for one in examine(told)] == ["nothing-linked"]


# ---------------------------------------------------------------------------------------------------
# Circles


def test_a_circle_is_opened_by_the_dependency_that_two_circles_share():
    """1 → 2 → 3 → 1 and 2 → 3 → 4 → 2: without 3 on 2 there is none."""
    trace = trace_of([[comp(1, 3), comp(2, 1, 4), comp(3, 2), comp(4, 3), comp(5, 4)]])
    one = found(trace, "cycle")
    assert evidence(one)["to remove"] == "1 (exact)"
    assert evidence(one)["remove"] == "node 3 (n3) waits for node 2 (n2)"
    assert evidence(one)["nodes that wait behind"] == "1"


def test_of_equal_choices_the_one_that_recorded_times_contradict_is_removed():
    trace = started(trace_of([[comp(1, 2), comp(2, 1)]]), [500, 100])
    assert evidence(found(trace, "cycle"))["remove"] == "node 2 (n2) waits for node 1 (n1)"
    trace = started(trace_of([[comp(1, 2), comp(2, 1)]]), [100, 500])
    assert evidence(found(trace, "cycle"))["remove"] == "node 1 (n1) waits for node 2 (n2)"


def test_a_large_circle_is_opened_by_a_heuristic_that_says_so():
    """Of twenty nodes of which neighbours wait for each other nineteen dependencies go, as it happens the fewest."""
    nodes = [comp(n, *(other for other in (n - 1, n + 1) if 1 <= other <= 20)) for n in range(1, 21)]
    one = found(trace_of([nodes]), "cycle")
    assert evidence(one)["to remove"] == "19 (heuristic)"
    assert "fewer may be enough" in one.message


def test_a_large_circle_that_one_dependency_opens_is_opened_by_it():
    """No set is smaller than one."""
    nodes = [comp(1, 40), *(comp(n, n - 1) for n in range(2, 41))]
    assert evidence(found(trace_of([nodes]), "cycle"))["to remove"] == "1 (exact)"


def test_exact_removal_is_as_small_as_any():
    """Against trying all sets of dependencies of random small graphs."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        count = int(rng.integers(2, 6))
        waits = [
            [int(other) for other in range(1, count + 1) if other != number and rng.random() < 0.45]
            for number in range(1, count + 1)
        ]
        graph = trace_of([[comp(at + 1, *deps) for at, deps in enumerate(waits)]]).graphs[0]
        case = GraphCase(0, graph, (0,))
        cut = find_removal(case)
        assert cut.exact
        assert len(cut.of) == _fewest(count, [(a, b - 1) for a, deps in enumerate(waits) for b in deps])


def _fewest(count: int, pairs: list[tuple[int, int]]) -> int:
    best = len(pairs)
    for chosen in range(1 << len(pairs)):
        if (chosen).bit_count() < best:
            left = [pair for at, pair in enumerate(pairs) if not chosen >> at & 1]
            if _acyclic(count, left):
                best = (chosen).bit_count()
    return best


def _acyclic(count: int, pairs: list[tuple[int, int]]) -> bool:
    left = set(range(count))
    while left:
        free = {n for n in left if not any(a == n and b in left for a, b in pairs)}
        if not free:
            return False
        left -= free
    return True


# ---------------------------------------------------------------------------------------------------
# Streams


def test_order_through_other_nodes_counts():
    """A kernel behind a launch that waited for the kernel before is in order."""
    nodes = [
        comp(1, is_cpu_op=True),
        comp(2, 11, is_cpu_op=True),
        comp(11, 1, is_cpu_op=False, stream=7),
        comp(12, 2, is_cpu_op=False, stream=7),
    ]
    assert "stream-order" not in codes(started(trace_of([nodes]), [0, 20, 10, 30]))
    assert "stream-order" not in codes(kernels((), (11,), (12,)))


def test_without_start_times_the_order_is_that_of_launch():
    trace = kernels((), (), ())
    bare = replace(trace, graphs=(replace(trace.graphs[0], start_ns=np.full(6, -1, np.int64)),))
    one = found(bare, "stream-order")
    assert one.count == 2
    assert evidence(one)["order taken from"] == "the order of launch, as no start times are recorded"


def test_collectives_without_times_on_one_stream_need_an_order():
    """Only recorded times show that two of them are one kernel; no times are no equal ones."""
    sums = [collective(number, "ALL_REDUCE", 64, is_cpu_op=False, stream=7) for number in (1, 2)]
    assert found(trace_of([sums]), "stream-order").count == 1
    assert "stream-order" not in codes(started(trace_of([sums]), [10, 10]))
    assert found(started(trace_of([sums]), [10, 20]), "stream-order").count == 1


def test_two_streams_need_no_order_between_them():
    nodes = [comp(1, stream=7), comp(2, stream=8)]
    assert "stream-order" not in codes(started(trace_of([nodes]), [0, 10]))


# ---------------------------------------------------------------------------------------------------
# Collectives


def one_more() -> Trace:
    """Three ranks, of which one leaves out the second all-reduce."""
    full = [collective(1, "ALL_REDUCE", 64), collective(2, "ALL_REDUCE", 64, 1)]
    return trace_of([full, full, full[:1]])


def test_what_collectives_differ_in_is_told():
    differ = "they differ in"
    assert (
        evidence(found(one_more(), "collectives-disagree"))[differ]
        == "number: 1 collective and 2 collectives"
    )
    # What is lacking in the middle lets all after it differ in size: what matters is that it is lacking.
    lacking = trace_of(
        [
            [collective(size, "ALL_REDUCE", size, *[size - 1] * (size - 1 in row)) for size in row]
            for row in ((1, 2, 3), (1, 2, 3), (1, 3))
        ]
    )
    told = found(lacking, "collectives-disagree")
    assert evidence(told)[differ] == "number: 2 collectives and 3 collectives"
    assert "rank 2 has ALL_REDUCE of 3 B (node 3) where rank 0 has ALL_REDUCE of 2 B (node 2)" in told.message
    sizes = trace_of([[collective(1, "ALL_REDUCE", size)] for size in (64, 64, 32)])
    assert evidence(found(sizes, "collectives-disagree"))[differ] == "size"
    a, b = ("ALL_REDUCE", 64), ("ALL_GATHER", 32)
    order = trace_of([[collective(1, *x), collective(2, *y, 1)] for x, y in ((a, b), (a, b), (b, a))])
    assert evidence(found(order, "collectives-disagree"))[differ] == "order"
    members = trace_of(
        [[comp(9), collective(1, "ALL_REDUCE", 64, group="g")]] * 2 + [[comp(9)]], {"g": [0, 1, 2]}
    )
    assert evidence(found(members, "collectives-disagree"))[differ].startswith("membership")


def test_an_order_that_no_dependencies_fix_is_a_warning():
    a, b = ("ALL_REDUCE", 64), ("ALL_GATHER", 32)
    trace = trace_of([[collective(1, *x), collective(2, *y)] for x, y in ((a, b), (b, a))])
    one = found(trace, "collectives-disagree")
    assert one.level == "warning"
    assert "This job may hang" in one.message


def test_an_order_in_which_a_recorded_job_ran_is_no_warning():
    """By their numbers they agree; what has no dependencies other simulators may begin the other way round."""
    a, b = ("ALL_REDUCE", 64, 0), ("ALL_GATHER", 32, 1)
    ranks = [
        [collective(1, *x[:2], comm_seq=x[2]), collective(2, *y[:2], comm_seq=y[2])]
        for x, y in ((a, b), (b, a))
    ]
    assert found(trace_of(ranks), "collectives-disagree").level == "warning"
    one = found(started(trace_of(ranks), [0, 10], [10, 0]), "collectives-disagree")
    assert one.level == "info"
    assert "The job ran in an order in which they agree" in one.message
    numbered = [
        [collective(1, *x[:2], comm_seq=0), collective(2, *y[:2], comm_seq=1)] for x, y in ((a, b), (b, a))
    ]
    assert found(started(trace_of(numbered), [0, 10], [0, 10]), "collectives-disagree").level == "error"


def test_sizes_of_all_to_alls_give_the_worst_ratio():
    one = found(BROKEN["uneven-all-to-all"](), "uneven-all-to-all")
    assert evidence(one)["max / mean there"] == "1.375"


def test_a_receive_names_the_nearest_send():
    send = node(1, "COMM_SEND", comm_dst=1, comm_size=64, comm_tag=4)
    receive = node(1, "COMM_RECV", comm_src=0, comm_size=64, comm_tag=5)
    one = found(trace_of([[send], [receive]]), "receive-unmatched")
    assert one.message.endswith("nearest is rank 0's send to rank 1 (64 bytes, tag 4, node 1 (n1)).")


# ---------------------------------------------------------------------------------------------------
# Numbers


def test_ranks_are_also_missed_by_the_world_the_files_tell_of():
    one = found(with_metadata(healthy(), world_size=4), "missing-rank")
    assert one.ranks == (2, 3)
    assert "a world of 4 ranks" in one.message


def test_a_message_without_its_other_end_is_no_message_to_the_own_rank():
    """Both ends of a pipeline's message say nothing of each other: that is told, and nothing is made up about them."""
    sends = [comp(1), node(2, "COMM_SEND", 1, comm_size=8, comm_tag=0), comp(3, 2)]
    receives = [comp(1), node(2, "COMM_RECV", 1, comm_size=8, comm_tag=0), comp(3, 2)]
    trace = trace_of([sends, receives])
    both = [one for one in examine(trace) if one.code == "peer-missing"]
    assert [(one.ranks, one.count) for one in both] == [((0,), 1), ((1,), 1)]
    assert "does not say where it goes (comm_dst is not recorded)" in both[0].message
    assert "does not say where it comes from (comm_src" in both[1].message
    assert not codes(trace) & {"self-message", "send-unmatched", "receive-unmatched", "foreign-message"}
    # A receive of another size is still missed there.
    for size, told in ((8, {"peer-missing"}), (9, {"peer-missing", "receive-unmatched"})):
        receive = node(2, "COMM_RECV", 1, comm_src=0, comm_size=size, comm_tag=0)
        assert codes(trace_of([sends, [comp(1), receive, comp(3, 2)]])) == told


def test_roots_and_marks_of_pytorch_have_no_duration_by_nature():
    names = [
        "[pytorch|profiler|execution_trace|process]",
        "[pytorch|profiler|execution_trace|thread]",
        "ProfilerStep#2",
        "## process_group:init ##",
    ]
    marks = [node(at, "COMP", name=name, is_cpu_op=True) for at, name in enumerate(names, start=1)]
    assert "duration-missing" not in codes(trace_of([[*marks, comp(9, is_cpu_op=True)]]))
    one = found(
        trace_of([[*marks, comp(9, is_cpu_op=True), node(10, "COMP", name="aten::mm", is_cpu_op=True)]]),
        "duration-missing",
    )
    assert (one.count, one.nodes) == (1, (NodeAt(0, 5),))


def test_durations_of_the_processor_do_not_matter_where_there_are_kernels():
    nodes = [node(1, "COMP", is_cpu_op=True), comp(2, 1, is_cpu_op=False)]
    assert "duration-missing" not in codes(trace_of([nodes]))
    assert found(trace_of([nodes[:1]]), "duration-missing").level == "warning"


def test_a_pair_of_which_nothing_is_linked_is_told_and_no_error_of_the_job():
    trace = with_metadata(healthy(), link_host_operations=100, link_device_operations=50, link_linked=0)
    one = found(trace, "unlinked")
    assert one.level == "warning"
    assert (
        one.message
        == "No operator of the execution trace of ranks 0–1 could be linked with its device trace."
    )


def test_clocks_of_groups_are_joined_through_the_ranks_they_share():
    """0 and 1 share a group, 1 and 2 another: rank 2 is compared with rank 0 through rank 1."""
    late_ns = (0, 200_000, 500_000)
    ranks = []
    for rank in range(3):
        names = [name for name, members in (("a", (0, 1)), ("b", (1, 2))) if rank in members]
        calls = [
            collective(10 * at + n, "BARRIER", 0, group=name)
            for at, name in enumerate(names)
            for n in range(1, 5)
        ]
        ranks.append([*calls, comp(99, mark=rank)])
    trace = trace_of(ranks, {"a": [0, 1], "b": [1, 2]})
    starts = [
        [*(1_000 * n + late for n in range(len(graph) - 1)), 0]
        for graph, late in zip(trace.graphs, (late_ns[0], late_ns[1], late_ns[2] + 4_000), strict=True)
    ]
    one = found(started(trace, *starts), "clock-skew")
    assert one.ranks == (1, 2)
    assert evidence(one)["largest offset"] == "+500,000 ns (rank 2)"


@settings(deadline=None, max_examples=examples(50))
@given(traces())
def test_an_examination_never_raises(trace: Trace):
    """Whatever a file may hold: every finding is complete, and names nodes that are there."""
    sizes = {rank.number: len(trace.graph_of(rank)) for rank in trace.ranks}
    for one in examine(trace):
        assert one.message
        assert one.title
        assert all(at.rank in sizes and 0 <= at.row < sizes[at.rank] for at in one.nodes)


def test_graphs_that_no_rank_runs_are_left_out():
    trace = BROKEN["self-loop"]()
    both = replace(
        trace, graphs=(*healthy().graphs, *trace.graphs), ranks=(replace(trace.ranks[0], graph=0),)
    )
    assert len(Case(both).graphs) == 1


def test_every_check_and_repair_is_in_the_documentation_word_for_word():
    text = " ".join((ROOT / "docs" / "doctor.md").read_text().split())
    for check in CHECKS:
        assert f"**{check.title}** (`{check.code}`). {check.consequence}" in text
        assert check.advice in text
    for one in REPAIRS.values():
        assert f"**{one.title}** (`{one.code}`). {one.consequence}" in text


def test_units_are_seen_by_the_names_that_take_most_time_where_there_are_very_many():
    """The ranks of a job that names every node by itself have more names than are worth comparing."""
    names = scale._NAMES + 100
    ranks = [
        [node(n, "COMP", name=f"layer {n}", micros=factor * (n + 1)) for n in range(names)]
        for factor in (1, 1000)
    ]
    assert evidence(found(trace_of(ranks), "duration-units"))["names compared"] == f"{scale._NAMES:,}"


def test_a_rank_that_names_another_root_is_told_with_what_most_name():
    def job(*roots: int, kind: str = "BROADCAST") -> Trace:
        last = collective(2, "ALL_REDUCE", 8, 1)
        return trace_of([[collective(1, kind, 64, comm_root=root), last] for root in roots])

    assert "collectives-disagree" not in codes(job(1, 1, 1))
    one = found(job(1, 1, 0), "collectives-disagree")
    assert (one.level, one.ranks) == ("error", (0, 2))
    assert "rank 2 has BROADCAST of 64 B (node 1) with the root 0" in one.message
    assert "with the root 1" in one.message
    assert evidence(one)["they differ in"] == "root"
    # An all-reduce has none, whatever is written.
    assert "collectives-disagree" not in codes(job(0, 1, kind="ALL_REDUCE"))


def test_two_common_collectives_are_enough_to_tell_clocks_apart():
    ranks = [
        [collective(n, "ALL_REDUCE", 64, *([n - 1] if n > 1 else []), rank_mark=rank) for n in (1, 2)]
        for rank in (0, 1)
    ]
    trace = started(trace_of(ranks), [1_000, 20_000], [1_001_000, 1_020_000])
    assert "clock-skew" in {one.code for one in examine(trace)}


def _timed_in(factor: float, *, kernels: bool) -> list[Any]:
    """Operators, one of which calls the others and is as long everywhere, time between them, and kernels."""
    made = [
        at(0, 500, node(1, "COMP", name="step", is_cpu_op=True)),
        at(600, 900, node(2, "COMP", name="host gap", is_cpu_op=True, gap="program")),
    ]
    for number, name in enumerate(("copy", "mm", "add"), start=3):
        one = at(1000 * number, round(4000 * factor), node(number, "COMP", name=name, is_cpu_op=True))
        one.ctrl_deps.append(1)
        made.append(one)
    if kernels:
        longest = at(9000, 700, node(8, "COMP", name="ncclDevKernel_AllReduce", is_cpu_op=False))
        made += [at(8000, round(9000 * factor), node(7, "COMP", name="gemm", is_cpu_op=False)), longest]
        made.append(at(8500, round(6000 * factor), node(9, "COMP", name="relu", is_cpu_op=False)))
    return made


@pytest.mark.parametrize("kernels", [True, False], ids=["of kernels", "of operators"])
def test_units_are_compared_by_what_was_recorded_and_not_by_what_was_derived(kernels):
    """Time between operators, and what is left of an operator that calls others, are no thousandth of what they were."""
    trace = trace_of([_timed_in(factor, kernels=kernels) for factor in (1, 1, 0.001)])
    one = found(trace, "duration-units")
    assert one.ranks == (2,)
    name, short, long = ("gemm", "9.00 µs", "9.00 ms") if kernels else ("copy", "4.00 µs", "4.00 ms")
    assert (
        f"milliseconds were read as microseconds: {name} {short} instead of {long} in the median"
        in one.message
    )
    assert evidence(one)["names compared"] == ("2" if kernels else "3")
    assert "nothing but to wait" in one.consequence


@pytest.mark.parametrize("names", [1, 2])
@pytest.mark.parametrize(
    ("factors", "level"),
    [((1, 0.001), "warning"), ((1, 1), "warning"), ((1000, 1000), "error"), ((1, 1000), "error")],
    ids=["late", "all waited for", "whole file", "lengths alone"],
)
def test_the_unit_of_a_recording_is_an_error_where_collectives_show_it_too(names, factors, level):
    """A rank that is late finds the others waiting, and is recorded for as long; of one name it was a warning whatever showed it."""
    stretch, wait = factors

    def recorded(times: float, stretched: float, waits: float) -> list[Any]:
        work = [
            at(round(9000 * number * stretched), round(4000 * times), node(1 + number, "COMP", name=name))
            for number, name in enumerate(("gemm", "relu")[:names])
        ]
        last = collective(9, "ALL_REDUCE", 64, names)
        return [*work, at(round(5_000_000 * stretched), round(3000 * waits), last)]

    trace = trace_of([recorded(1000, stretch, wait), *(recorded(1, 1, 1) for _ in range(2))])
    one = found(trace, "duration-units")
    assert (one.level, one.ranks, evidence(one)["names compared"]) == (level, (0,), str(names))


@pytest.mark.parametrize("factor", [1, 1000])
def test_a_unit_is_told_by_messages_alone_and_whatever_a_few_calls_waited_for_the_processor(factor):
    """Ranks of a pipeline have no collectives; one call of three that took forty times as long makes the mean fourteen times as long."""

    def recorded(rank: int, times: float, waits: float) -> list[Any]:
        work = []
        for number, name in enumerate(("gemm", "relu", "add")):
            for turn in range(3):
                took = 4000 * (40 if (turn, times) == (2, 1) else 1)
                one = node(1 + 3 * number + turn, "COMP", name=name)
                work.append(at(9_000_000 * (3 * number + turn), round(took * times), one))
        peer = {"comm_dst": 1} if rank == 0 else {"comm_src": 0}
        last = node(20, "COMM_SEND" if rank == 0 else "COMM_RECV", comm_size=64, comm_tag=0, **peer)
        return [*work, at(99_000_000, round(3000 * waits), last)]

    trace = trace_of([recorded(0, 1, 1), recorded(1, 1000, factor), recorded(2, 1, 1)])
    one = found(trace, "duration-units")
    assert (one.level, one.ranks) == ("error" if factor > 1 else "warning", (1,))
    assert "4.00 s instead of 4.00 ms in the median" in one.message


def test_a_rank_that_takes_a_thousand_times_as_long_is_late_everywhere():
    one = found(BROKEN["duration-units"](), "duration-units")
    assert (
        "long as that of the same name on other ranks, as if nanoseconds were read as microseconds"
        in one.message
    )
    assert "late everywhere" in one.consequence


def test_a_file_that_is_a_copy_of_another_ranks_is_told_where_ranks_disagree():
    """Its nodes name the groups of that rank; the ranks that miss it are told why, before what else follows."""
    groups = {"a": (0, 1), "b": (2, 3)}
    names = ("a", "a", "b", "a")
    trace = trace_of(
        [[comp(1), collective(2, "ALL_REDUCE", 64, 1, group=name), comp(3, 2)] for name in names], groups
    )
    copy = "The file of rank 3 is a copy of that of rank 0: both hold the same in every node, groups and messages alike."
    first, *_ = examine(trace)
    assert first.code == "group-outsider"
    assert first.message.endswith(copy)
    assert first.advice == "Put the file of that rank in its place."
    assert found(trace, "collectives-disagree").advice == f"{copy} Put the file of that rank in its place."
    # A rank that holds something else names the wrong group.
    other = trace_of(
        [
            [comp(1), collective(2, "ALL_REDUCE", 64 + at // 3, 1, group=name), comp(3, 2)]
            for at, name in enumerate(names)
        ],
        groups,
    )
    assert "copy" not in found(other, "group-outsider").message


def gathered(*sizes: int, recorded: bool = False) -> Trace:
    """Ranks that gather, each the size given."""
    return trace_of(
        [
            [at(10, 5, comp(1)) if recorded else comp(1), collective(2, "ALL_GATHER", size, 1), comp(3, 2)]
            for size in sizes
        ]
    )


def test_sizes_that_would_read_alike_are_told_to_the_byte():
    trace = trace_of([[collective(1, "ALL_REDUCE", size)] for size in (1 << 20, (1 << 20) + 1)])
    assert "ALL_REDUCE of 1,048,577 B" in found(trace, "collectives-disagree").message
    assert "ALL_REDUCE of 1,048,576 B" in found(trace, "collectives-disagree").message


def test_sizes_that_the_full_model_takes_do_not_hang_there():
    """Of a recording, which ran with them, they are no error; another collective of another size hangs."""
    one = found(gathered(1024, 2048), "collectives-disagree")
    assert (one.level, one.ranks, one.repair) == ("error", (0, 1), None)
    assert "hang" not in one.message + one.consequence
    assert one.consequence.startswith("The model full takes the largest of them.")
    system = studio.preset("hgx-h100", npus=2)
    assert studio.simulate(gathered(1024, 2048), system, native=False).makespan_ns > 0
    assert found(gathered(1024, 2048, recorded=True), "collectives-disagree").level == "warning"
    both = [
        [collective(1, kind, n) for kind, n in (("ALL_GATHER", size), ("ALL_REDUCE", size))]
        for size in (64, 65)
    ]
    both = [[one, collective(2, "ALL_REDUCE", 64 + rank, 1)] for rank, (one, _) in enumerate(both)]
    assert "will hang" in found(trace_of(both), "collectives-disagree").message


@pytest.mark.parametrize(("key", "code"), [("comm_size", "size-missing"), ("comm_type", "comm-untyped")])
def test_what_a_collective_lacks_is_told_once(key: str, code: str):
    whole = {"comm_type": 0, "comm_size": 64}
    lacking = {name: value for name, value in whole.items() if name != key}
    trace = trace_of([[comp(1), node(2, "COMM_COLL", 1, **one), comp(3, 2)] for one in (whole, lacking)])
    assert codes(trace) == {code}


def test_a_root_outside_the_group_is_told_as_a_simulation_refuses_it():
    trace = trace_of([[collective(1, "BROADCAST", 64, group="a", root=5)] * 1] * 2, {"a": (0, 1)})
    one = found(trace, "collectives-disagree")
    assert (one.level, one.repair) == ("error", None)
    assert "names the root 5, which is none of the members (ranks 0–1)" in one.message


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ({}, "peer-missing"),
        ({"comm_dst": 0}, "self-message"),
        ({"comm_dst": 9}, "peer-outside"),
        ({"comm_src": 1, "comm_dst": 2}, "foreign-message"),
    ],
)
@pytest.mark.parametrize("receives", [False, True])
def test_a_message_that_names_a_wrong_rank_is_told_once_and_given_the_rank_that_misses_it(
    ends: dict[str, int], code: str, receives: bool
):
    wrong = {
        {"comm_src": "comm_dst", "comm_dst": "comm_src"}[key] if receives else key: rank
        for key, rank in ends.items()
    }
    right = {"comm_dst": 0} if receives else {"comm_src": 0}
    kinds = ("COMM_RECV", "COMM_SEND") if receives else ("COMM_SEND", "COMM_RECV")
    nodes = [
        [comp(1), node(2, kind, 1, comm_size=64, comm_tag=3, **own), comp(3, 2)]
        for kind, own in zip(kinds, (wrong, right), strict=True)
    ]
    trace = trace_of([nodes[0], [comp(1)], nodes[1]])
    assert codes(trace) == {code}
    repaired = repair(trace, code).trace
    assert codes(repaired) == {f"repaired-{code}"}
    assert [len(repaired.graph_of(rank)) for rank in repaired.ranks] == [3, 1, 3]
    assert studio.simulate(repaired, studio.preset("hgx-h100", npus=3), native=False).makespan_ns > 0


def test_ranks_that_may_not_have_been_recorded_are_no_wrong_ends():
    trace = trace_of([[at(10, 5, node(1, "COMM_SEND", comm_dst=9, comm_size=64, comm_tag=3))]])
    assert codes(trace) == {"missing-rank"}


def test_of_some_ranks_of_a_job_messages_to_the_others_name_no_wrong_rank():
    """Rank 0 of a pipeline opened alone, and its first two ranks of four."""
    stages = [
        [
            *([node(1, "COMM_RECV", comm_src=stage - 1, comm_size=64, comm_tag=3)] if stage else [comp(1)]),
            comp(2, 1),
            *(
                [
                    node(3, "COMM_SEND", 2, comm_dst=stage + 1, comm_size=64, comm_tag=3),
                    node(4, "COMM_RECV", 3, comm_src=stage + 1, comm_size=64, comm_tag=4),
                ]
                if stage < 3
                else []
            ),
            *([node(5, "COMM_SEND", 2, comm_dst=stage - 1, comm_size=64, comm_tag=4)] if stage else []),
        ]
        for stage in range(4)
    ]
    for count in (1, 2):
        trace = trace_of(stages[:count])
        assert "peer-outside" not in codes(trace)
        assert found(trace, "missing-rank").level == "warning"


@pytest.mark.parametrize(("number", "level"), [(99, "error"), (-3, "error"), (0, "warning")])
def test_types_that_a_simulation_refuses_are_errors(number: int, level: str):
    assert found(with_type(number), "type-unknown").level == level


def test_a_missing_rank_is_told_with_its_file_that_was_left_out():
    """What is wrong is the file; that of a rank that is there is no matter of the missing one."""
    left = [
        Finding("warning", "ignored-file", f"job.{rank}.et: an empty file, left out.", file=f"job.{rank}.et")
        for rank in (0, 1)
    ]
    one = found(replace(BROKEN["missing-rank"](), findings=tuple(left)), "missing-rank")
    assert one.message.endswith(
        "according to the other rank numbers. A file there is: job.1.et: an empty file, left out."
    )
    assert one.advice.startswith("Put the file of that rank in the place of the one that was left out")


def test_a_compressed_file_that_ends_early_is_told_once():
    left = (
        Finding("error", "damaged-gzip", "a.gz: the gzip stream ends early.", file="a.gz"),
        Finding("error", "damaged-file", "a.gz: cut off at byte 9.", file="a.gz"),
        Finding("error", "damaged-file", "b.et: cut off at byte 7.", file="b.et"),
    )
    told = [one.message for one in examine(replace(healthy(), findings=left))]
    assert told == [
        "a.gz: the gzip stream ends early. In its content: cut off at byte 9.",
        "b.et: cut off at byte 7.",
    ]


@pytest.mark.parametrize("recorded", [False, True])
def test_what_one_gives_another_in_an_all_to_all_is_what_that_one_takes(recorded: bool):
    """In the order of the group, whichever ranks have which place; sums alone tell nothing."""

    def job(*taken: int) -> Trace:
        lists = {2: ([1, 3], [1, 5]), 0: ([5, 7], list(taken))}
        return trace_of(
            {
                rank: [
                    at(10, 5, comp(1)) if recorded else comp(1),
                    collective(
                        2, "ALL_TO_ALL", sum(given), 1, group="a", split_bytes_in=given, split_bytes_out=took
                    ),
                    comp(3, 2),
                ]
                for rank, (given, took) in sorted(lists.items())
            }
            | {1: [comp(1)]},
            {"a": (2, 0)},
        )

    assert codes(job(3, 7)) == {"uneven-all-to-all"}
    one = found(job(4, 6), "collectives-disagree")
    assert (one.level, one.ranks, one.count, one.repair) == (
        "warning" if recorded else "error",
        (0, 2),
        2,
        None,
    )
    assert "rank 2 gives rank 0 3 B (node 2 (n2)), and that takes 4 B from it (node 2 (n2))" in one.message


@pytest.mark.parametrize(("wrong", "rank"), [("comm_src", 2), ("comm_dst", 0)])
def test_of_a_message_that_names_another_rank_of_the_job_the_one_half_left_is_the_other(
    wrong: str, rank: int
):
    """Tag and size are those of one send and one receive alone: where two are left it is not known which is meant."""

    def job(*halves: Any) -> Trace:
        nodes = [[comp(1), *(one for at, one in halves if at == number), comp(3, 1)] for number in range(4)]
        return trace_of(nodes)

    ends = {"comm_src": 0, "comm_dst": 2}
    send, receive = (
        node(2, kind, 1, comm_size=64, comm_tag=3, **{far: 1 if far == wrong else ends[far]})
        for kind, far in (("COMM_SEND", "comm_dst"), ("COMM_RECV", "comm_src"))
    )
    trace = job((0, send), (2, receive))
    said = found(trace, "receive-unmatched").message
    assert "rank 2's receive from rank" in said
    assert "nearest is rank 0's send to rank" in said
    done = repair(trace, "receive-unmatched")
    assert done.changes[0].first == (f"rank {rank}: node 2 (n2): {wrong} 1 became {ends[wrong]}",)
    assert codes(done.trace) == {"repaired-receive-unmatched", "comm-trailing"}
    if wrong == "comm_src":
        another = job((0, send), (2, receive), (3, send))
        assert "nearest" not in found(another, "receive-unmatched").message


def test_files_of_two_ranks_that_were_exchanged_are_told():
    groups = {"a": (0, 1), "b": (2, 3), "x": (0, 2), "y": (1, 3)}
    own = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]

    def job(*order: int) -> Trace:
        return trace_of(
            [
                [
                    collective(at + 1, "ALL_REDUCE", 64, *([1] if at else []), group=name)
                    for at, name in enumerate(own[rank])
                ]
                for rank in order
            ],
            groups,
        )

    assert codes(job(0, 1, 2, 3)) == set()
    first, *_ = examine(job(3, 1, 2, 0))
    assert first.message.endswith(
        "The files of ranks 0 and 3 are exchanged: each names the groups of the other."
    )
    assert first.advice == "Put the file of that rank in its place."
