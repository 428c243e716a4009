"""Two simulations of equal ranks whose one setting differs: the sentence names that setting's part of the time first."""

from __future__ import annotations

from functools import cache

import pytest

from studio.analysis.compare.runs import compare
from studio.analysis.compare.words import describe_comparison, list_causes
from studio.sim import simulate
from studio.sim.compared import build_side
from studio.sim.models import with_model
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.result import SimResult
from studio.sim.setting_edits import with_settings
from studio.trace import Trace
from tests.handmade import collective, node, trace_of

NPUS = 16
"""Two nodes of 8."""


@cache
def job(size: int, hidden: bool) -> Trace:
    """Equal ranks of four layers; the reduction of a layer is hidden behind the compute of the next one, or is not."""
    made, before = [], ()
    for at in range(1, 9, 2):
        made.append(node(at, "COMP", *before, num_ops=2 * 10**11, tensor_size=10**8))
        made.append(collective(at + 1, "ALL_REDUCE", size, at))
        before = (at if hidden else at + 1,)
    return trace_of([made] * NPUS)


@cache
def simulated(size: int, hidden: bool, *changes: str) -> SimResult:
    parts = with_settings(with_model(preset("hgx-h100", NPUS).parts, "full"), changes)
    return simulate(job(size, hidden), interpret(parts).config)


@pytest.mark.parametrize("hidden", [False, True], ids=["one after the other", "hidden behind compute"])
@pytest.mark.parametrize(
    ("size", "change", "part"),
    [
        (1 << 27, "bandwidth[0]=225", "transfer"),
        (1 << 27, "bandwidth[1]=25", "transfer"),
        # Smaller ones take as long inside a node, or another algorithm.
        (1 << 24, "bandwidth[1]=25", "transfer"),
        (1 << 12, "latency[0]=5000", "latency"),
        (1 << 12, "latency[1]=5000", "latency"),
        (1 << 20, "peak-perf=400", "compute"),
        (1 << 27, "peak-perf=400", "compute"),
    ],
)
def test_the_part_of_the_setting_that_differs_is_the_largest(size: int, change: str, part: str, hidden: bool):
    found = compare(build_side(simulated(size, hidden)), build_side(simulated(size, hidden, change)))
    assert found.difference_ns > 0
    named, difference = list_causes(found.waterfall("busiest"))[0]
    assert (named, difference > 0) == (part, True)
    assert f"slower than A: {part} +" in describe_comparison(found)
    # What is said of the parts adds up to the difference.
    assert sum(each for _, each in list_causes(found.waterfall("busiest"))) == found.difference_ns
