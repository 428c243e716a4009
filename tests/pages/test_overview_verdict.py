"""The verdict on Overview: whom ranks wait for, and how combinations of advice are named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import studio
from studio.advice.advice import advise
from studio.advice.words import describe_together
from studio.analysis.job.accounting import build_recorded_ledger
from studio.analysis.job.blame import compute_blame
from studio.analysis.job.rank_rows import build_rank_rows
from studio.pages.overview.verdict import (
    _compute_shares,
    _describe_blamed,
    _describe_differences,
    describe_awaited,
    describe_idle,
)
from studio.timeline import read_recorded_times, recorded
from studio.trace import STALLED
from tests.handmade import collective, node, trace_of
from tests.pages.test_simulate_runs import texts


def at(begins: int, made):
    """The same node with a start."""
    made.start_time_micros = begins
    return made


def test_rows_say_for_whom_they_wait_and_what_that_rank_did() -> None:
    """Ranks 0 and 1 wait 60 µs in an all-reduce for rank 2, which computes."""

    def rank(works: int) -> list:
        reduce = collective(2, "ALL_REDUCE", 8, 1)
        reduce.duration_micros = 110 - works
        return [at(10, node(1, "COMP", micros=works)), at(10 + works, reduce)]

    trace = trace_of([rank(40), rank(40), rank(100)])
    account = build_recorded_ledger(trace, recorded(trace), 10_000)
    found = compute_blame(trace, read_recorded_times(trace), account)
    rows = build_rank_rows(account, 8, found.of_culprits(len(account)))
    assert [row.label for row in rows] == ["rank 2", "ranks 0–1"]
    assert describe_awaited(rows, account, found) == ["", "100 % of it for rank 2, which meanwhile computed"]
    assert (
        _describe_blamed(account, found)
        == "100 % of all waiting is for rank 2: for 100 % of that time it computed. "
    )


def test_a_rank_that_was_recorded_later_is_not_said_to_stall_longest() -> None:
    """Rank 1 is recorded from 40 on; rank 0 waits 30 µs of 100 in a stall of its own."""
    nodes = [
        at(100, node(1, "COMP", micros=35)),
        at(165, node(2, "COMP", micros=35)),
        at(140, node(1, "COMP", micros=60)),
    ]
    trace = trace_of([nodes[:2], nodes[2:]])
    account = build_recorded_ledger(trace, recorded(trace), 100_000)
    assert account.before_ns.tolist() == [0, 40_000]
    assert [row.label for row in build_rank_rows(account, 8)] == ["rank 1", "rank 0"]
    said = texts(
        _describe_differences(
            build_rank_rows(account, 8),
            account,
            compute_blame(trace, read_recorded_times(trace), account),
            {"job": "a"},
        )
    )
    assert "Rank 0 waits or stalls longest: 30.0 µs more than" in said
    assert (
        "Stalls include the time before a rank's recording began, of which nothing is known: rank 1 40.0 µs. "
        in said
    )


def test_equal_ranks_that_others_wait_for_are_named_together() -> None:
    """Rank 0 waits for 2 and rank 1 for 3, which both compute: neither is to blame for half of it by itself."""

    def rank(works: int, group: str) -> list:
        reduce = collective(2, "ALL_REDUCE", 8, 1, group=group)
        reduce.duration_micros = 110 - works
        return [at(10, node(1, "COMP", micros=works)), at(10 + works, reduce)]

    groups = {"a": [0, 2], "b": [1, 3]}
    trace = trace_of([rank(40, "a"), rank(40, "b"), rank(100, "a"), rank(100, "b")], groups=groups)
    account = build_recorded_ledger(trace, recorded(trace), 10_000)
    found = compute_blame(trace, read_recorded_times(trace), account)
    said = "100 % of all waiting is for ranks 2–3: for 100 % of that time they computed. "
    assert _describe_blamed(account, found) == said
    # Where all are alike, nobody in particular is waited for.
    alike = replace(account, course=np.zeros(4, np.int64))
    assert _describe_blamed(alike, found) == ""


def test_what_keeps_a_device_idle_for_most_of_the_finish_is_said() -> None:
    """The host is busy for 60 of 90 µs, or for 20; without an accelerator it is what computes; without its calls nobody knows."""

    def said(*nodes) -> str:
        trace = trace_of([list(nodes)])
        return describe_idle(trace, build_recorded_ledger(trace, recorded(trace), 10_000))

    def host(micros: int):
        return at(10, node(1, "COMP", micros=micros, is_cpu_op=True))

    assert said(host(60), at(70, node(2, "COMP", micros=30))).startswith(
        "For 67 % of the finish the device has nothing to do because of the host"
    )
    assert said(host(20), at(30, node(2, "COMP", micros=30))) == ""
    assert said(host(60)) == ""
    gap = at(10, node(1, "COMP", micros=60, gap=STALLED))
    assert said(gap, at(70, node(2, "COMP", micros=30))).startswith("Nothing of the host was recorded")


def test_a_rank_that_has_finished_waits_for_nobody() -> None:
    """Rank 0 stands still for 30 of its 100 µs; rank 1 for none of 50, after which it is done."""
    first = [at(10, node(1, "COMP", micros=40)), at(80, node(2, "COMP", micros=30))]
    trace = trace_of([first, [at(10, node(1, "COMP", micros=50))]])
    account = build_recorded_ledger(trace, recorded(trace), 10_000)
    found = compute_blame(trace, read_recorded_times(trace), account)
    rows = build_rank_rows(account, 8, found.of_culprits(len(account)))
    said = texts(_describe_differences(rows, account, found, {"job": "j"}))
    assert (
        "Rank 0 waits or stalls longest: 30.0 µs more than the rank that does so least (30.0 % of the finish)."
        in said
    )
    shares = dict(_compute_shares(account))
    assert shares == {"compute": 0.6, "exposed": 0.0, "idle": 0.15, "after_finish": 0.25}
    assert sum(shares.values()) == 1


def test_a_combination_is_named_by_the_numbers_of_its_changes() -> None:
    """Of the sample that is out of balance; one that is not listed is spelt out, or nothing is said in short."""
    made = advise(studio.read(studio.sample_path("imbalance_8r")))
    assert made.combined is not None
    listed = made.worth_it[:6]
    words = describe_together(made.combined, listed)
    numbers = [int(word) for word in words.replace(" and ", ", ").removesuffix(" together").split(", ")]
    chosen = [listed[number - 1] for number in numbers]
    assert sorted(item.kind for item in chosen) == sorted(made.combined.parts)
    assert describe_together(made.combined, [item for item in listed if item is not chosen[0]]) == ""
    others = [item for item in listed if item is not chosen[0]]
    spelt = describe_together(made.combined, others, [chosen[0]])
    assert spelt.endswith(f" together with: {chosen[0].action}")
    assert all(item.action not in spelt for item in others)
    assert describe_together(made.combined, [], listed) == ""
    more = replace(made.combined, saving_ns=2 * sum(item.saving_ns for item in chosen))
    assert describe_together(more, listed).endswith(
        "together: more than one by one, as each alone leaves another wait as long"
    )
