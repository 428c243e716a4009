"""Hops, message delays and bounds of the analytical networks.

The rules are those of ASTRA-sim's analytical backends. Every formula is evaluated in double precision and
truncated once, where it enters the clock.

The figures at the end (bisection, bandwidth per NPU, ideal all-reduce) are those of the network alone. They
hold where messages wait for each other; in the congestion-unaware network nothing waits, so it can beat them.
"""

from __future__ import annotations

from itertools import combinations

from studio.sim.config import Dimension, Topology
from studio.sim.extensions import LinkGraph

Network = Topology | LinkGraph

_FARTHEST_FROM = 64
"""NPUs from which the farthest one is looked for in a network of single links."""


def count_hops(dim: Dimension, src: int, dst: int) -> int:
    """Return the links a message crosses between two coordinates of a dimension.

    Fully connected one, switch two (up and down), ring the shorter way round.

    Example:
        >>> count_hops(Dimension("ring", 8, 50.0), 1, 7), count_hops(Dimension("switch", 8, 50.0), 1, 7)
        (2, 2)
    """
    if dim.kind == "fully_connected":
        return 1
    if dim.kind == "switch":
        return 2
    distance = abs(src - dst)
    return min(distance, dim.size - distance)


# ---------------------------------------------------------------------------------------------------
# Figures of a network


def compute_bisection_rate(network: Network) -> float:
    """Return the bandwidth, in one direction, between two halves of the network.

    Dally and Towles, Principles and Practices of Interconnection Networks (2004), section 3.3.1: the least
    bandwidth over all cuts into two halves as equal as can be. Of a product of dimensions the cuts taken
    are those across one dimension, which for even sizes hold the least one (a torus is cut across its
    longest ring). Per line of the dimension, n NPUs in a row, there cross in one direction: ring 2 links
    (of two NPUs 1), fully connected ⌊n/2⌋·⌈n/2⌉ links, switch the ports of ⌊n/2⌋ NPUs.

    Of single links the halves are the NPUs of the lower and of the upper numbers (least bisection of any
    graph is NP-hard); between them goes the maximum flow, in the direction of the smaller one.

    Example:
        >>> torus = Topology((Dimension("ring", 8, 62.0), Dimension("ring", 8, 62.0)))
        >>> compute_bisection_rate(torus)
        992.0
    """
    if isinstance(network, LinkGraph):
        return _compute_halves_rate(network)
    npus = network.npus
    return min(npus // dim.size * _count_crossing_links(dim) * link_rate(dim) for dim in network.dims)


def compute_npu_rate(network: Network) -> float:
    """Return the bandwidth at which one NPU can send, all its links together.

    A ring gives an NPU 2 links (of two NPUs 1), a fully connected dimension n - 1, a switch 1. Of single
    links it is that of the NPU with the least.

    Example:
        >>> node = Topology((Dimension("switch", 8, 400.0), Dimension("ring", 4, 50.0)))
        >>> compute_npu_rate(node)
        500.0
    """
    if isinstance(network, LinkGraph):
        return min(min(rates) for rates in _sum_npu_rates(network))
    return sum(count_ports(dim) * link_rate(dim) for dim in network.dims)


def bound_all_reduce_ns(network: Network, size_bytes: int) -> float:
    """Return a time that no all-reduce of all NPUs can beat where messages share the links.

    It is the larger of two bounds.

    Bandwidth. Take NPUs that differ in none of the dimensions K for one. Among the n of those, every byte
    of the result costs 2(n - 1) messages or more: until one of them has the result, each of the others has
    sent something that arrived, and from then on each of the others has to receive something (Patarasuk and
    Yuan, Bandwidth Optimal All-reduce Algorithms, JPDC 69(2), 2009, for n = N). Each crosses a link of K. So
    for every set K of dimensions the time is at least 2(n - 1) × size / bandwidth of all links of K together.
    Reductions are taken to happen in NPUs, not in switches.

    Latency. What the farthest NPU contributes has to come all the way: in every dimension the most hops
    times latency.

    Of single links: 2(N - 1) × size over what all NPUs can send, and over what they can receive; size over what
    the slowest NPU can send or receive, and over the bisection; the latency between NPUs far apart.

    Args:
        network: The network.
        size_bytes: What every NPU contributes.

    Example:
        >>> ring = Topology((Dimension("ring", 4, 50.0, 500.0),))
        >>> bound_all_reduce_ns(ring, 1_000_000)
        15000.0
    """
    if isinstance(network, LinkGraph):
        return _compute_ideal_of_links(network, size_bytes)
    npus = network.npus
    worst = 0.0
    for count in range(1, len(network.dims) + 1):
        for some in combinations(network.dims, count):
            members = Topology(some).npus
            together = npus * sum(count_ports(dim) * link_rate(dim) for dim in some)
            worst = max(worst, 2 * (members - 1) * size_bytes / together)
    return max(worst, sum(count_hops(dim, 0, dim.size // 2) * dim.latency_ns for dim in network.dims))


def link_rate(dim: Dimension) -> float:
    """Return what a link of a dimension gives messages, in bytes per ns."""
    return dim.bytes_per_ns * dim.efficiency


def count_ports(dim: Dimension) -> int:
    """Return the links on which an NPU sends in a dimension."""
    if dim.kind == "ring":
        return 1 if dim.size == 2 else 2
    return 1 if dim.kind == "switch" else dim.size - 1


def compute_port_rate(dim: Dimension) -> float:
    """Return what an NPU can send in a dimension, on all its links together."""
    return count_ports(dim) * link_rate(dim)


def _count_crossing_links(dim: Dimension) -> int:
    """Return the links from one half of a dimension to the other, in one direction."""
    half = dim.size // 2
    if dim.kind == "ring":
        return count_ports(dim)
    return half if dim.kind == "switch" else half * (dim.size - half)


def _sum_npu_rates(graph: LinkGraph) -> tuple[list[float], list[float]]:
    """Return what every NPU can send, and what it can receive."""
    out, into = [0.0] * graph.npus, [0.0] * graph.npus
    for link in graph.links:
        if link.source < graph.npus:
            out[link.source] += link.bytes_per_ns
        if link.target < graph.npus:
            into[link.target] += link.bytes_per_ns
    return out, into


def _compute_halves_rate(graph: LinkGraph) -> float:
    """Return what the links carry from one half of the NPUs to the other, in the direction that carries less."""
    half = graph.npus // 2
    if not half:
        return 0.0
    import networkx as nx

    network: nx.DiGraph[int | str] = nx.DiGraph()
    for link in graph.links:
        known = network.get_edge_data(link.source, link.target, {"capacity": 0.0})["capacity"]
        network.add_edge(link.source, link.target, capacity=known + link.bytes_per_ns)
    # An edge without a capacity is unlimited.
    network.add_edges_from(("lower", npu) for npu in range(half))
    network.add_edges_from((npu, "upper") for npu in range(half, graph.npus))
    upward = nx.maximum_flow_value(network, "lower", "upper")
    network.remove_nodes_from(("lower", "upper"))
    network.add_edges_from((npu, "lower") for npu in range(half))
    network.add_edges_from(("upper", npu) for npu in range(half, graph.npus))
    return float(min(upward, nx.maximum_flow_value(network, "upper", "lower")))


def _compute_ideal_of_links(graph: LinkGraph, size_bytes: int) -> float:
    out, into = _sum_npu_rates(graph)
    narrow = [*out, *into, _compute_halves_rate(graph)]
    if min(narrow) == 0:
        return float("inf")
    messages = 2 * (graph.npus - 1) * size_bytes
    bounds = [size_bytes / min(narrow), messages / sum(out), messages / sum(into)]
    return max(*bounds, _compute_farthest_ns(graph))


def _compute_farthest_ns(graph: LinkGraph) -> float:
    """Return the latency from NPUs to those farthest from them, the greatest of several NPUs."""
    from rustworkx import PyDiGraph, digraph_dijkstra_shortest_path_lengths

    network: PyDiGraph[None, float] = PyDiGraph()
    network.add_nodes_from([None] * (graph.npus + graph.switches))
    network.add_edges_from([(link.source, link.target, link.latency_ns) for link in graph.links])
    farthest = 0.0
    for npu in range(0, graph.npus, -(-graph.npus // _FARTHEST_FROM)):
        latency = digraph_dijkstra_shortest_path_lengths(network, npu, float)
        for other in range(graph.npus):
            if other != npu:
                farthest = max(farthest, latency[other] if other in latency else float("inf"))
    return farthest
