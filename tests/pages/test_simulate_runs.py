"""What the Simulate page tells of a run and of several."""

from __future__ import annotations

from dataclasses import replace

import studio
from studio.pages._simulate_live import _IDEAL
from studio.pages._simulate_runs import _dimensions, _figures
from studio.sim.presets import preset
from studio.sim.result import breakdown_of
from tests.handmade import collective, node, trace_of

MIB = 1 << 20


def texts(part):
    """All words of a part of a page, in order."""
    if part is None:
        return ""
    if isinstance(part, str):
        return part
    if isinstance(part, list | tuple):
        return " ".join(texts(one) for one in part)
    return texts(getattr(part, "children", None))


def simulated(graphs, congestion="unaware", **system):
    parts = preset("hgx-h100-8").parts
    parts = replace(parts, system={**parts.system, "roofline-enabled": 0, **system}, congestion=congestion)
    return studio.simulate(trace_of(graphs), studio.sim.parts.imported(parts).config, native=False)


def test_shares_are_of_the_finish_and_those_ahead_wait_for_the_last():
    """Seven ranks work 10 us and one 40 us: 13.75 us in the mean are 34.4 % of the finish, 65.6 % are waiting."""
    found = simulated([[node(1, "COMP", micros=micros)] for micros in [10] * 7 + [40]])
    said = texts(_figures(found, breakdown_of(found), range(8)))
    assert "34.4 % of the finish" in said
    assert "waiting for the last rank ? 26.2 us · 65.6 % of the finish" in said.replace("µ", "u")
    even = simulated([[node(1, "COMP", micros=10)]] * 8)
    assert "waiting" not in texts(_figures(even, breakdown_of(even), range(8)))


def test_a_dimension_that_carried_more_than_it_could_is_told_with_the_way_out():
    nodes = [collective(at, "ALL_REDUCE", 64 * MIB) for at in range(1, 9)]
    many = {"active-chunks-per-dimension": 8, "preferred-dataset-splits": 8}
    said = texts(_dimensions(simulated([nodes] * 8, **many)))
    assert "More than dimension 0 could carry" in said, said
    assert "try congestion aware" in said
    assert "More than" not in texts(_dimensions(simulated([nodes] * 8, "aware", **many)))
    assert "congestion aware" in _IDEAL
