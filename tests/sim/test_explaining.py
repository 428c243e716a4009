"""The explanation of a collective against the simulator's own charge, and a formula worked out by hand."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.commands import explain as explain_command
from studio.errors import ConfigError
from studio.sim.costs.model import KINDS
from studio.sim.explaining import Term, WayTime, assume_members, explain
from studio.sim.parts import interpret
from studio.sim.setting_edits import with_settings
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
        assert found.way.total_ns <= found.total_ns * (1 + 1e-9)


def test_a_simulated_collective_takes_what_is_explained() -> None:
    """One all-reduce alone on the system ends when the explanation says."""
    trace = trace_of([[collective(1, "ALL_REDUCE", 3 << 20)]] * 16)
    assert studio.simulate(trace, H100).makespan_ns == round(
        explain(H100, "all_reduce", 3 << 20, range(16)).total_ns
    )


def test_the_choice_changes_at_the_crossovers() -> None:
    """Before and after each crossover the ways that it names are taken."""
    found = explain(H100, "all_reduce", 1 << 20, range(16))
    crossovers = found.crossovers
    assert crossovers
    for crossover in crossovers:
        sizes = (int(crossover.size) - 1, int(crossover.size))
        near = [explain(H100, "all_reduce", size, range(16)) for size in sizes]
        assert [one.way.name for one in near] == [crossover.before, crossover.after]


@pytest.mark.parametrize(
    ("kind", "ranks", "said"),
    [
        ("all_redce", range(8), "allowed: all_reduce"),
        ("all_reduce", [0], "has 1 rank; allowed: two or more different"),
        ("all_reduce", [0, 0], "has rank 0 twice; allowed: two or more different"),
        ("send_recv", range(8), "a message has 8 ranks; allowed: two, its sender and its receiver"),
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


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("gather", 1 / 2),
        ("scatter", 1 / 2),
        ("all_to_all", 1 / 2),
        ("reduce", 1),
        ("broadcast", 1),
        ("all_reduce", 1),
    ],
)
def test_the_bus_bandwidth_is_that_of_nccl_tests(kind: str, factor: float) -> None:
    """Of two ranks half of what is gathered moves; a gather was told to reach 570 GB/s over a port of 450 GB/s."""
    explained = explain(H100, kind, 4 << 30, range(2))
    assert explained.bus_bytes_per_ns == pytest.approx(factor * explained.algorithm_bytes_per_ns)
    assert explained.bus_bytes_per_ns < 450


def test_a_block_is_as_far_from_what_was_fitted_as_the_whole() -> None:
    """Reduce-scatter-blocks have the costs of reduce-scatters, and were called extrapolated where these are not."""
    for kind in ("REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK"):
        system = studio.preset("hgx-h100", npus=8)
        result = studio.simulate(trace_of([[collective(1, kind, 64 << 20)]] * 8), system)
        assert not any("extrapolated" in doubt.message for doubt in studio.doubts_of(result, system)), kind


def test_why_a_slower_way_is_taken_is_said() -> None:
    config = studio.preset("hgx-b200", npus=8).config
    slower = explain(config, "all_reduce", 5 << 20, range(8))
    taken, quickest = slower.way, min(slower.ways, key=lambda way: way.total_ns)
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


def _time_ns(system: str, npus: int, kind: str, size: int, ranks=None, settings=()) -> float:
    config = interpret(with_settings(studio.preset(system, npus=npus).parts, settings)).config
    return explain(config, kind, size, ranks or assume_members(kind, npus)).total_ns


@pytest.mark.parametrize(
    ("system", "link"), [("mi300x", 64), ("mi325x", 64), ("mi355x", 76.8), ("gh200", 150), ("dgx-v100", 50)]
)
def test_two_gpus_of_a_node_without_a_switch_have_the_links_between_them(system: str, link: float) -> None:
    """In GB/s, of the data sheets that the presets name; three GPUs have those of two pairs."""
    size = 1 << 30
    alone = size / _time_ns(system, 4, "send_recv", size, [0, 1])
    assert 0.6 * link < alone <= link
    for ranks, links in (([0, 1], 1), ([0, 1, 2], 2)):
        share = 2 * (len(ranks) - 1) / len(ranks)
        assert share * size / _time_ns(system, 4, "all_reduce", size, ranks) <= links * link


def test_a_nic_keeps_its_rate_where_a_node_has_fewer() -> None:
    size = 1 << 28
    for system in ("hgx-h100", "mi250x"):
        every = {
            nics: [
                _time_ns(system, 16, kind, size, settings=[f"costs.nics={nics}"])
                for kind in ("send_recv", "all_to_all")
            ]
            for nics in (1, 2, 4, 8)
        }
        assert len({round(message) for message, _ in every.values()}) == 1
        exchanges = [exchange for _, exchange in every.values()]
        assert exchanges == sorted(exchanges, reverse=True)
        assert exchanges[0] / exchanges[2] == pytest.approx(4, rel=0.1)


def test_a_rack_has_the_memory_of_all_its_hosts_for_small_messages_to_others() -> None:
    """By LL, through the memory of 18 hosts: 15 % more bytes, by Simple, do not take an eighth of the time."""
    small, large = (_time_ns("gb200-nvl72", 144, "all_to_all", size) for size in (2 << 20, 2_400_000))
    assert small < 1.5 * large


def test_more_gpus_do_not_make_an_exchange_over_pcie_faster() -> None:
    for system in ("rtx-pro-6000", "l40s"):
        times = [_time_ns(system, npus, "all_to_all", 1 << 30) for npus in (4, 8, 16, 32)]
        assert times == sorted(times)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_another_node_does_not_make_a_broadcast_faster(kind: str) -> None:
    for system in ("hgx-h100", "hgx-b200", "dgx-v100"):
        for size in (1 << 20, 64 << 20):
            times = [_time_ns(system, 8 * nodes, kind, size) for nodes in (2, 3, 4, 5, 6, 8, 16, 32, 48)]
            assert all(later > 0.95 * earlier for earlier, later in pairwise(times))
