"""Who came last to collectives, and what lasted longer there."""

from __future__ import annotations

from typing import Any

from studio.analysis.collectives.times import CollectiveTimes, compute_collective_times
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.late_ranks import (
    Late,
    Lateness,
    Longer,
    count_awaited,
    describe_late_rank,
    find_late_ranks,
)
from studio.timeline import collect_node_times, recorded
from tests.handmade import at, collective, node, trace_of


def side_of(*ranks: list[Any]) -> Any:
    trace = trace_of(list(ranks))
    return build_recorded_side(trace, collect_node_times(trace, recorded(trace)))


def found_of(side: Any) -> tuple[Lateness, CollectiveTimes, list[Late]]:
    lateness = Lateness(side.trace, side.times, side.ledger())
    times = compute_collective_times(side.trace, side.times, side.groups)
    return lateness, times, find_late_ranks(lateness, times)


def rank(first: int, gemm: int, cast: int, *, idle: int = 0) -> list[Any]:
    """A rank that meets the others at 10 µs, then computes, and communicates until 100."""
    begin = 10 + first + gemm + cast + idle
    return [
        at(1, 9, node(1, "COMP", name="load")),
        at(10, first, collective(2, "ALL_REDUCE", 8, 1)),
        at(10 + first, gemm, node(3, "COMP", 2, name="gemm")),
        at(10 + first + gemm, cast, node(4, "COMP", 3, name="cast")),
        at(begin, 100 - begin, collective(5, "ALL_REDUCE", 8, 4)),
    ]


def test_the_rank_that_came_last_is_named_with_what_lasted_longer_than_on_the_others() -> None:
    """Rank 2 computes 40 µs of gemm where the others compute 10 and 20, and its cast is shorter."""
    lateness, times, found = found_of(side_of(rank(5, 10, 6), rank(5, 20, 6), rank(5, 40, 2)))
    assert count_awaited(times) == 1
    [late] = found
    assert (late.rank, late.row, late.collectives, late.looked_at) == (2, 4, 1, 1)
    assert (late.waited_ns, late.skew_ns, late.longest_ns) == (42_000, 26_000, 26_000)
    assert late.late_ns == 57_000 - (31_000 + 41_000) // 2, "than the others in the mean"
    assert [(one.name, one.part, one.ns, one.others_ns) for one in late.longer] == [
        ("gemm", "compute", 40_000, 15_000)
    ]
    assert describe_late_rank(late, 1) == (
        "rank 2 came last to 1 of 1 collective: others waited 42.0 µs for it in collectives, no work hiding that; "
        "skew 26.0 µs in all, 26.0 µs at most; "
        "longer there than on the others: gemm +25.0 µs"
    )
    assert lateness.at(2, 4) == (21_000, late.longer)
    assert lateness.at(0, 4) is None, "it came first"


def test_what_lasted_longer_less_what_lasted_shorter_adds_up_to_how_much_later_it_came() -> None:
    lateness, _, _ = found_of(side_of(rank(5, 10, 6), rank(5, 20, 6, idle=1), rank(5, 40, 2, idle=9)))
    compared = lateness.compare_member(2, 4)
    assert compared is not None
    assert sum(float(ns[0] - ns[1]) for ns in compared.values()) == 66_000 - (31_000 + 42_000) / 2
    assert compared["stall", ""].tolist() == [9_000, 500]


def test_a_rank_is_looked_at_from_when_all_had_met_not_from_the_beginning() -> None:
    """Rank 1 loads longer, for which all have waited before: that does not count a second time."""
    slow = [
        at(1, 29, node(1, "COMP", name="load")),
        at(30, 5, collective(2, "ALL_REDUCE", 8, 1)),
        at(35, 10, node(3, "COMP", 2, name="gemm")),
        at(45, 5, collective(4, "ALL_REDUCE", 8, 3)),
    ]
    fast = [
        at(1, 9, node(1, "COMP", name="load")),
        at(10, 25, collective(2, "ALL_REDUCE", 8, 1)),
        at(35, 4, node(3, "COMP", 2, name="gemm")),
        at(39, 11, collective(4, "ALL_REDUCE", 8, 3)),
    ]
    lateness, times, [late] = found_of(side_of(fast, slow))
    assert late.rank == 1
    assert late.collectives == count_awaited(times) == 2
    first, second = lateness.at(1, 1), lateness.at(1, 3)
    assert first is not None
    assert [(one.name, one.more_ns) for one in first[1]] == [("load", 20_000)]
    assert second is not None
    assert [(one.name, one.more_ns) for one in second[1]] == [("gemm", 6_000)]


def test_one_rank_stands_for_itself_where_members_share_a_graph() -> None:
    """Rows are equal on all ranks: the last one is found by its rank, not by its row."""
    _, _, [late] = found_of(side_of(rank(5, 10, 6), rank(5, 11, 6), rank(5, 12, 6), rank(5, 40, 6)))
    assert (late.rank, [one.name for one in late.longer]) == (3, ["gemm"])


def test_nobody_comes_last_where_all_come_together() -> None:
    _, times, found = found_of(side_of(rank(5, 10, 6), rank(5, 10, 6)))
    assert count_awaited(times) == 0
    assert found == []


def test_waits_of_its_own_and_what_was_not_recorded_are_told_as_such() -> None:
    longer = (Longer("ring", "waiting", 12_000, 0), Longer("", "before", 1_000, 0))
    late = Late(0, 0, 9, 90_000, 90_000, 10_000, 8, 13_000, longer)
    assert late.cause() == "waiting for other ranks in ring +12.0 µs, not recorded yet +1.00 µs"
    assert "(of 8 of them): waiting" in describe_late_rank(late, 9)
