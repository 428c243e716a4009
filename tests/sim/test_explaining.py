"""The explanation of a collective against the simulator's own charge, and a formula worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.commands import explain as explain_command
from studio.errors import ConfigError
from studio.sim.costs.model import KINDS
from studio.sim.explaining import Term, WayTime, explain
from studio.sim.parts import interpret
from tests.handmade import collective, trace_of
from tests.test_cli import refused, run

H100 = studio.preset("hgx-h100", npus=16).config
H100_PARTS = studio.preset("hgx-h100", npus=16).under("astra-sim")


def worked_out(way: WayTime) -> float:
    """The formula of the docs, from the terms alone."""

    def added(terms: tuple[Term, ...]) -> float:
        return sum(term.ns for term in terms)

    waits, moving = added(way.waits), max(added(way.inside), added(way.between))
    own = added(way.launch) + (waits**way.overlap + moving**way.overlap) ** (1 / way.overlap)
    return (way.host.ns**4 + own**4) ** (1 / 4)


@given(
    st.sampled_from(KINDS), st.integers(1, 1 << 31), st.sampled_from([range(8), range(16), (0, 3), (1, 9)])
)
def test_terms_add_up_to_the_charge(kind: str, size: int, ranks: range | tuple[int, ...]) -> None:
    """Of every collective: each way by its terms, and the way that is taken by what the simulator charges."""
    if kind == "send_recv" and len(ranks) != 2:
        return
    found = explain(H100, kind, size, ranks)
    for way in found.ways:
        assert worked_out(way) == pytest.approx(way.total_ns, rel=1e-9)
    if not found.correction:
        assert found.ways[found.taken].total_ns <= found.total_ns * (1 + 1e-9)


def test_a_simulated_collective_takes_what_is_explained() -> None:
    """One all-reduce alone on the system ends when the explanation says."""
    trace = trace_of([[collective(1, "ALL_REDUCE", 3 << 20)]] * 16)
    assert studio.simulate(trace, H100).makespan_ns == round(
        explain(H100, "all_reduce", 3 << 20, range(16)).total_ns
    )


def test_the_choice_changes_at_the_crossovers() -> None:
    """Before and after each crossover the ways that it names are taken."""
    found = explain(H100, "all_reduce", 1 << 20, range(16))
    crossovers = found.crossovers()
    assert crossovers
    for crossover in crossovers:
        place = int(np.flatnonzero(found.sizes == crossover.size)[0])
        names = [found.ways[int(found.choice[at])].name for at in (place - 1, place)]
        assert names == [crossover.before, crossover.after]
        after = explain(H100, "all_reduce", int(crossover.size) + 1, range(16))
        assert after.ways[after.taken].name == crossover.after


@pytest.mark.parametrize(
    ("kind", "ranks", "said"),
    [
        ("all_redce", range(8), "allowed: all_reduce"),
        ("all_reduce", [0], "has 1 rank; allowed: two or more different"),
        ("all_reduce", [0, 0], "has rank 0 twice; allowed: two or more different"),
        ("all_reduce", [0, 16], "has rank 16; allowed: two or more different ranks of 0 to 15"),
    ],
)
def test_what_cannot_be_explained_is_refused(kind: str, ranks, said: str) -> None:
    """The message names what was found and what is allowed."""
    with pytest.raises(ConfigError, match=said):
        explain(H100, kind, 1 << 20, ranks)


def test_one_npu_is_told_to_have_nobody_to_communicate_with() -> None:
    with pytest.raises(ConfigError, match="one NPU, which has nobody") as caught:
        explain(studio.preset("hgx-h100", npus=1).config, "all_reduce", 1 << 20, range(1))
    assert "another system" in caught.value.hint


def test_a_system_without_costs_is_refused() -> None:
    """The reference's model sends message by message: no closed form."""
    with pytest.raises(ConfigError, match="one by one"):
        explain(interpret(H100_PARTS).config, "all_reduce", 1 << 20, range(8))


def test_the_command_prints_the_terms() -> None:
    """As JSON, with schema names and a part of the ranks; a list of ranks that is none is refused."""
    asked = ("explain", "ALL_GATHER", "1MiB", "--preset", "hgx-h100", "--npus", "16", "--json", "--ranks")
    printed = json.loads(run(*asked, "0-3,8").stdout)
    assert (printed["group"]["ranks"], printed["buffer_bytes"]) == (5, 5 << 20)
    assert printed["taken"] in [way["name"] for way in printed["ways"]]
    assert "such as 0-7,16" in refused(*asked, "0-x")


@pytest.mark.parametrize(
    ("collective", "size", "said"),
    [
        ("AllReduce", "1MiB", "nearest is 'all_reduce'"),
        ("barrier", "64MiB", "a barrier has none"),
        ("all_reduce", "0", "allowed: 1 byte and above"),
        ("all_reduce", "1.5", "no parts of a byte"),
    ],
)
def test_the_command_refuses_what_has_no_time(collective: str, size: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explain_command.run(explain_command.Request(collective, size, "hgx-h100"))
    assert said in str(caught.value)


def test_a_barrier_has_a_time_and_no_rate() -> None:
    request = explain_command.Request("barrier", "0", "hgx-h100")
    assert "busbw" not in explain_command.text(explain_command.run(request))


def test_why_a_slower_way_is_taken_is_said() -> None:
    config = studio.preset("hgx-b200", npus=8).config
    slower = explain(config, "all_reduce", 5 << 20, range(8))
    taken, quickest = slower.ways[slower.taken], min(slower.ways, key=lambda way: way.total_ns)
    assert taken.total_ns > quickest.total_ns
    assert slower.not_quickest.startswith(f"{taken.name} is taken though {quickest.name} would end sooner")
    assert (
        slower.not_quickest
        in run("explain", "all_reduce", "5MiB", "--preset", "hgx-b200", "--npus", "8").output
    )
    assert explain(config, "all_reduce", 1 << 20, range(8)).not_quickest == ""


def test_no_way_is_taken_that_takes_four_times_as_long_as_another():
    """RCCL's own estimates took LL for 4 MiB across two nodes of MI250X: 3.24 ms, where 8 MiB took 0.36."""
    system = studio.preset("mi250x", 16).config
    took = [explain(system, "all_reduce", size << 20, tuple(range(16))).total_ns for size in (1, 2, 4, 8)]
    assert took == sorted(took)
