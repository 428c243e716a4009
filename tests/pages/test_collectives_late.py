"""For whom ranks wait, and what took longer there, on Collectives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from studio.analysis.collectives.heat import Look, Shown, build_heat
from studio.analysis.collectives.members import collect_members
from studio.analysis.collectives.times import compute_collective_times
from studio.analysis.job.late_ranks import Lateness, find_late_ranks
from studio.commands import collectives as command
from studio.pages.collectives import late, words
from tests.analysis.job.test_late_ranks import rank, side_of
from tests.pages.test_simulate_runs import texts

VIEW = {"job": "j"}


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three ranks, the last of which computes longer before the second all-reduce."""
    found = side_of(rank(5, 10, 6), rank(5, 20, 6), rank(5, 40, 2))
    times, lateness = (
        compute_collective_times(found.trace, found.times),
        Lateness(found.trace, found.times, found.ledger()),
    )
    monkeypatch.setattr(late, "get_session", lambda: SimpleNamespace(trace=lambda _job: found.trace))
    monkeypatch.setattr(late, "collect_times", lambda *_: times)
    monkeypatch.setattr(late, "compute_lateness", lambda *_: lateness)
    monkeypatch.setattr(
        late,
        "list_late_ranks",
        lambda _session, _job, _run, most: find_late_ranks(lateness, times, most=most),
    )
    return found


def addresses(part: Any) -> list[str]:
    if isinstance(part, list | tuple):
        return [one for each in part for one in addresses(each)]
    own = [part.href] if getattr(part, "href", None) else []
    return (
        own + addresses(getattr(part, "children", None) or [])
        if part is not None and not isinstance(part, str)
        else []
    )


def test_the_rank_that_came_last_stands_beside_the_heatmap_and_below_the_table(side: Any) -> None:
    beside, below = late.build_late_list("j", "", VIEW), late.build_late_table("j", "", VIEW)
    assert "rank 2 last to 1 of 1, waited for  42.0 µs longer there: gemm +25.0 µs · " in texts(beside)
    assert "rank 2  ·  node 1 of 1 42.0 µs 26.0 µs 26.0 µs gemm +25.0 µs" in texts(below)
    node = side.trace.graphs[-1].id[4]
    assert f"/nodes?job=j&rank=2&node={node}" in addresses(beside)
    assert f"/timeline?job=j&rank=2&node={node}" in addresses(below)


def test_an_uneven_row_of_waiting_says_for_whom_and_what_took_longer(side: Any) -> None:
    members = collect_members(side.trace, side.times)
    shown = Shown(
        side.trace, build_heat(members, Look(metric="waiting")), Look(metric="waiting"), relative=False
    )
    listed = words.build_worst_list(shown, "", VIEW, "")
    assert "came earlier by  26.0 µs  than  rank 2 : gemm +25.0 µs" in texts(listed)
    assert any("/timeline?job=j&rank=2&node=" in address for address in addresses(listed))
    sizes = Look(metric="size")
    shown = Shown(side.trace, build_heat(members, sizes), sizes, relative=False)
    assert "came earlier" not in texts(words.build_worst_list(shown, "", VIEW, ""))


def test_nothing_stands_there_where_nobody_came_last(side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "list_late_ranks", lambda *_: [])
    assert late.build_late_list("j", "", VIEW) is late.build_late_table("j", "", VIEW) is None


def test_the_command_tells_the_same(side: Any) -> None:
    times = compute_collective_times(side.trace, side.times)
    lateness = Lateness(side.trace, side.times, side.ledger())
    compared = SimpleNamespace(name="traces", side=side)
    listed = command.Listed(compared, times, [], None, find_late_ranks(lateness, times), 1)
    assert command.text(listed).endswith(
        "Who came last, and what took longer there:\n"
        "rank 2 came last to 1 of 1 collective: others waited 42.0 µs for it in collectives, no work hiding that; "
        "skew 26.0 µs in all, 26.0 µs at most; "
        "longer there than on the others: gemm +25.0 µs; longest at its node 5"
    )
    [told] = command.report(listed)["late"]
    assert (told["rank"], told["node"], told["waited_ns"], told["late_ns"]) == (2, "5", 42_000, 21_000)
    assert list(told["longer"]) == [{"name": "gemm", "part": "compute", "ns": 40_000, "others_ns": 15_000}]
