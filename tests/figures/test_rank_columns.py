"""Columns of few ranks stay columns."""

from __future__ import annotations

import pytest

import studio
from studio.figures.ranks import draw_rank_times
from studio.sim.result import compute_ledger
from tests.handmade import node, trace_of


@pytest.mark.parametrize(("ranks", "domain"), [(1, (0, 1 / 6)), (3, (0, 0.5)), (6, None)])
def test_few_ranks_have_columns_as_wide_as_six_have(ranks, domain):
    trace = trace_of([[node(1, "COMP", micros=5)] for _ in range(ranks)])
    result = studio.simulate(trace, studio.preset("hgx-h100", npus=ranks).config)
    axis = draw_rank_times(compute_ledger(result), dark=False).layout.xaxis
    assert axis.domain == domain
