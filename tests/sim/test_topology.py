"""Figures of networks: against their definitions, worked out by hand or by trying everything."""

from __future__ import annotations

from itertools import combinations

import pytest

from studio.errors import ConfigError
from studio.sim.config import Dimension, Topology
from studio.sim.extensions import Link, LinkGraph
from studio.sim.topology import bound_all_reduce_ns, compute_bisection_rate, compute_npu_rate


def one(kind, size, rate=10.0, latency=0.0, **more):
    return Topology((Dimension(kind, size, rate, latency, **more),))


@pytest.mark.parametrize(
    ("network", "bisection", "per_npu"),
    [
        (one("ring", 8), 20, 20),
        (one("ring", 7), 20, 20),
        (one("ring", 2), 10, 10),
        (one("fully_connected", 5), 60, 40),
        (one("switch", 8), 40, 10),
        (one("switch", 8, efficiency=0.5), 20, 5),
        (Topology((Dimension("ring", 4, 10.0), Dimension("ring", 8, 10.0))), 80, 40),
        (Topology((Dimension("switch", 8, 400.0), Dimension("ring", 4, 50.0))), 800, 500),
        (Topology((Dimension("switch", 8, 600.0), Dimension("switch", 8, 37.5))), 1200, 637.5),
    ],
)
def test_bisection_and_bandwidth_of_an_npu(network, bisection, per_npu):
    """Each figure is a handful of links times the bandwidth of one."""
    assert compute_bisection_rate(network) == bisection
    assert compute_npu_rate(network) == per_npu


def both_ways(pairs, rate=10.0, latency=0.0):
    return tuple(Link(a, b, rate, latency) for x, y in pairs for a, b in ((x, y), (y, x)))


def test_bisection_of_single_links_is_the_least_cut_between_the_halves():
    """Brute force over where the switches go: links from one side to the other."""
    links = (*both_ways([(0, 4), (1, 4), (2, 5), (3, 5)]), Link(4, 5, 7.0), Link(5, 4, 9.0), Link(0, 2, 1.0))
    graph = LinkGraph(4, 2, links)
    cuts = []
    for lower in ({0, 1}, {2, 3}):
        for count in range(3):
            for switches in combinations((4, 5), count):
                side = lower | set(switches)
                cuts.append(
                    sum(
                        link.bytes_per_ns for link in links if link.source in side and link.target not in side
                    )
                )
    assert compute_bisection_rate(graph) == min(cuts) == 8
    assert compute_npu_rate(graph) == 10


def test_ideal_all_reduce_of_one_dimension_is_the_textbooks():
    """2(n-1)/n × size over the bandwidth of an NPU, or the latency where that is more."""
    assert bound_all_reduce_ns(one("ring", 4), 8000) == 2 * 3 / 4 * 8000 / 20
    assert bound_all_reduce_ns(one("switch", 8), 8000) == 2 * 7 / 8 * 8000 / 10
    assert bound_all_reduce_ns(one("fully_connected", 5), 8000) == pytest.approx(2 * 4 / 5 * 8000 / 40)
    assert bound_all_reduce_ns(one("ring", 8, latency=100.0), 8) == 400


def test_ideal_all_reduce_sees_the_slow_dimension():
    """Between 4 nodes of 8 NPUs each byte crosses 6 times, on 32 × 2 links."""
    network = Topology((Dimension("switch", 8, 400.0), Dimension("ring", 4, 12.5)))
    assert bound_all_reduce_ns(network, 1 << 20) == 6 * (1 << 20) / (32 * 2 * 12.5)


def test_ideal_all_reduce_of_single_links():
    """A slow NPU bounds it; a network that does not hang together never ends."""
    star = both_ways([(npu, 4) for npu in range(4)])
    assert bound_all_reduce_ns(LinkGraph(4, 1, star), 8000) == 2 * 3 * 8000 / 40
    slow = (*star[1:], Link(0, 4, 1.0, 50.0))
    assert bound_all_reduce_ns(LinkGraph(4, 1, slow), 8000) == 8000
    assert bound_all_reduce_ns(LinkGraph(4, 1, slow), 8) == 50
    assert bound_all_reduce_ns(LinkGraph(4, 1, star[1:]), 8000) == float("inf")


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ((), "links is empty"),
        ((Link(0, 3, 1.0),), r"links\[0\] has target 3; allowed: NPUs from 0 to 1, switches from 2 to 2"),
    ],
)
def test_a_link_joins_devices_that_are_there(links, message):
    with pytest.raises(ConfigError, match=message):
        LinkGraph(2, 1, links)
