"""Ranks in few rows, from ledgers of made-up ranks."""

from __future__ import annotations

import numpy as np

from studio.analysis.collectives.arrivals import Arrivals
from studio.analysis.job.ledger import PARTS, Ledger
from studio.analysis.job.rank_rows import build_rank_rows
from studio.analysis.job.stretches import Stretches
from studio.figures.rank_bars import draw_rank_bars

_COMPUTE, _WAITING = PARTS.index("compute"), PARTS.index("waiting")


def account(computing: list[int], end: int) -> Ledger:
    """Ranks that compute for so long, and then wait for the others until the end."""
    ranks = len(computing)
    every = np.arange(ranks)
    stretches = Stretches(
        np.arange(ranks + 1) * 2,
        np.array([[0, work] for work in computing]).ravel(),
        np.array([[work, end] for work in computing]).ravel(),
        np.array([_COMPUTE, _WAITING] * ranks, np.uint8),
    )
    nothing = np.zeros(0, np.int64)
    joined = Arrivals(nothing, nothing, (), None)
    finish = np.full(ranks, end)
    return Ledger(every.tolist(), every, finish, every, stretches, True, nothing, every, nothing, joined)


def test_the_rank_that_waits_least_stands_first_and_equal_ranks_share_a_row() -> None:
    """Ranks 1 and 2 are alike; rank 3 is the one the others wait for."""
    rows = build_rank_rows(account([60, 50, 50, 90], 100), most=12)
    assert [row.label for row in rows] == ["rank 3", "rank 0", "ranks 1–2"]
    assert [row.ns[_WAITING] for row in rows] == [10, 40, 50]
    assert all(row.ns.sum() == 100 for row in rows)


def test_a_rank_that_others_wait_for_stands_before_one_that_waits_less() -> None:
    """Rank 2 waits as long as rank 1, and somebody waits for it."""
    rows = build_rank_rows(account([60, 50, 50, 90], 100), most=12, waited_for_ns=np.array([0, 0, 30, 0]))
    assert [row.label for row in rows] == ["rank 2", "rank 3", "rank 0", "rank 1"]


def test_ranks_in_the_middle_share_a_row_with_their_mean() -> None:
    """Of nine ranks in five rows, two at each end stay and the five others make one mean."""
    rows = build_rank_rows(account([10 * rank for rank in range(1, 10)], 100), most=5)
    assert [row.label for row in rows] == ["rank 8", "rank 7", "mean of 5 others", "rank 1", "rank 0"]
    assert rows[2].ns[_COMPUTE] == 50
    assert rows[2].ranks == (2, 3, 4, 5, 6)
    figure = draw_rank_bars(rows, dark=False, links=["/timeline?rank=8", "", "", "", ""])
    assert sorted(len(bar.x) for bar in figure.data) == [5, 5]
    assert figure.data[0].customdata[0][-1] == "/timeline?rank=8"
    assert "compute 90 ns, 90.0 % of the finish" in figure.data[0].customdata[0][0]
