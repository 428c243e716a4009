"""What a cost model tells of the time of communication is in the account of every page."""

from __future__ import annotations

import numpy as np

import studio
from studio.sim.compared import build_side
from studio.sim.result import compute_ledger
from tests.handmade import collective, node, trace_of

MIB = 1 << 20


def test_a_side_of_a_comparison_has_the_account_of_its_run():
    """Rank 7 comes late: the others wait, all pay the launch, and four groups on one port queue."""
    groups = dict.fromkeys("abcd", range(8))
    ranks = [
        [
            node(1, "COMP", micros=50 if rank == 7 else 10),
            *(collective(2 + nth, "ALL_REDUCE", 64 * MIB, 1, group=name) for nth, name in enumerate(groups)),
        ]
        for rank in range(8)
    ]
    result = studio.simulate(trace_of(ranks, groups), studio.preset("hgx-h100").config)
    found, times = compute_ledger(result), compute_ledger(result).totals()
    assert np.array_equal(build_side(result).ledger().ns(), found.ns())
    assert times.of("waiting").tolist() == [40_000] * 7 + [0]
    for part in ("latency", "queueing", "transfer"):
        assert times.of(part).min() > 0, part
    assert (found.ns().sum(axis=1) == result.finish_ns).all()
