"""Build a network of nodes and rails as single links, equal in both directions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from studio.sim.extensions import Link, LinkGraph


@dataclass(frozen=True, slots=True)
class Speed:
    """Bandwidth and latency of a link."""

    bytes_per_ns: float
    latency_ns: float


def build_rail_optimized(nodes: int, npus_per_node: int, *, inside: Speed, rail: Speed) -> LinkGraph:
    """Return nodes with a switch each, and a switch ("rail") for all NPUs of equal place in their nodes.

    An NPU reaches one of another place in another node through its own node's switch or that of the other (Wang et
    al., Rail-only: A Low-Cost High-Performance Network for Training LLMs, HOTI 2024). NPUs are numbered node
    after node; then come the switches of the nodes, then those of the rails.

    Example:
        >>> graph = build_rail_optimized(4, 8, inside=Speed(450.0, 900.0), rail=Speed(50.0, 1000.0))
        >>> graph.npus, graph.switches, len(graph.links)
        (32, 12, 128)
    """
    npus = nodes * npus_per_node
    pairs = []
    for npu in range(npus):
        node, place = divmod(npu, npus_per_node)
        pairs += [(npu, npus + node, inside), (npu, npus + nodes + place, rail)]
    return LinkGraph(npus, nodes + npus_per_node, tuple(_iterate_both_ways(pairs)))


def _iterate_both_ways(pairs: Iterable[tuple[int, int, Speed]]) -> Iterable[Link]:
    for end, other, speed in pairs:
        yield Link(end, other, speed.bytes_per_ns, speed.latency_ns)
        yield Link(other, end, speed.bytes_per_ns, speed.latency_ns)
