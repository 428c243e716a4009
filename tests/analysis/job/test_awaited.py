"""Every page and command names the same rank as the one that others wait for most."""

from __future__ import annotations

from typing import Any

import studio
from studio.advice.advice import advise
from studio.analysis.collectives.size_classes import list_size_classes
from studio.analysis.collectives.times import compute_collective_times
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.awaited import find_most_awaited
from studio.analysis.job.blame import compute_blame, compute_collective_waits
from studio.analysis.job.group_times import build_group_filter
from studio.analysis.job.late_ranks import Lateness, find_late_ranks
from studio.pages.overview.verdict import _describe_blamed
from studio.timeline import read_recorded_times
from tests.analysis.job.test_late_ranks import side_of
from tests.handmade import at, collective, node


def rank(first: int, second: int, *, hides: int = 0) -> list[Any]:
    """A rank that begins one all-reduce of 30 µs at one moment and another at the other; work may go on behind the first."""
    return [
        at(1, first - 1, node(1, "COMP")),
        at(first, 100 - first, collective(2, "ALL_REDUCE", 8, 1)),
        *([at(first, hides, node(5, "COMP", 1))] if hides else []),
        at(100, second - 100, node(3, "COMP", 2)),
        at(second, 200 - second, collective(4, "ALL_REDUCE", 8, 3)),
    ]


def test_lists_of_collectives_name_the_rank_that_all_others_wait_for_most() -> None:
    """First members are 50 µs before rank 1 and 40 before rank 2; all members wait 55 µs for rank 1 and 80 for rank 2."""
    side = side_of(rank(10, 110), rank(60, 110), rank(55, 150))
    account = side.ledger()
    blame = compute_blame(side.trace, side.times, account)
    most = find_most_awaited(account, blame)
    assert most is not None
    assert (most.ranks, most.ns, most.total_ns) == ((2,), 80_000, 135_000)
    assert _describe_blamed(account, blame).startswith("59 % of all waiting is for rank 2: ")
    times = compute_collective_times(side.trace, side.times)
    waits = compute_collective_waits(side.trace, account, times)
    [one] = list_size_classes(side.trace, times, waits)
    assert (one.last_rank, one.last_share) == (2, most.share)
    late = find_late_ranks(Lateness(side.trace, side.times, account), times)
    assert [(each.rank, each.waited_ns, each.skew_ns) for each in late] == [
        (2, 80_000, 40_000),
        (1, 55_000, 50_000),
    ]


def test_what_work_hides_is_skew_and_no_waiting() -> None:
    """Rank 0 works on behind its wait for rank 1, so that rank 2, of which it came 40 µs before, is waited for most."""
    side = side_of(rank(10, 110, hides=50), rank(60, 110), rank(55, 150))
    account = side.ledger()
    times = compute_collective_times(side.trace, side.times)
    late = find_late_ranks(Lateness(side.trace, side.times, account), times)
    assert [(each.rank, each.waited_ns, each.skew_ns) for each in late] == [
        (2, 80_000, 40_000),
        (1, 5_000, 50_000),
    ]


def test_advice_names_the_rank_that_overview_names() -> None:
    """Of the sample that is out of balance: members came earlier than rank 5 by more, but communicated meanwhile."""
    trace = studio.read(studio.sample_path("imbalance_8r"))
    side = build_recorded_side(trace, read_recorded_times(trace))
    account = side.ledger()
    all_waits = find_most_awaited(account, compute_blame(trace, side.times, account))
    fits = build_group_filter(trace, {"ep0"})
    of_group = find_most_awaited(account, compute_blame(trace, side.times, account, wanted=fits))
    assert all_waits is not None
    assert of_group is not None
    assert all_waits.ranks == of_group.ranks == (2,)
    [even] = [
        each for each in advise(trace).worth_it if each.kind == "equal-arrivals" and each.group == "ep0"
    ]
    assert even.ranks == (2,)
    assert f"waits 11.0 ms in the mean, {100 * of_group.share:.0f} % of it for rank 2." in even.action
