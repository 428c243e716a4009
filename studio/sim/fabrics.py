"""Build networks of switches as single links.

Every function returns a `LinkGraph` with equal links in both directions; take links out of it, or slow some
down, for failures and oversubscription.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from studio.errors import ConfigError
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


def build_leaf_spine(npus: int, npus_per_leaf: int, spines: int, *, down: Speed, up: Speed) -> LinkGraph:
    """Return a fat tree of two levels: leaf switches of equal size, each with a link to every spine.

    It is oversubscribed by `npus_per_leaf` × `down` to `spines` × `up`. NPUs, then leaves, then spines.

    Example:
        >>> graph = build_leaf_spine(16, 4, 2, down=Speed(50.0, 500.0), up=Speed(50.0, 500.0))
        >>> graph.switches, len(graph.links)
        (6, 48)
    """
    if npus % npus_per_leaf:
        raise ConfigError(
            f"npus is {npus}; allowed: a multiple of npus_per_leaf, which is {npus_per_leaf}",
        )
    leaves = npus // npus_per_leaf
    pairs = [(npu, npus + npu // npus_per_leaf, down) for npu in range(npus)]
    pairs += [(npus + leaf, npus + leaves + spine, up) for leaf in range(leaves) for spine in range(spines)]
    return LinkGraph(npus, leaves + spines, tuple(_iterate_both_ways(pairs)))


def _iterate_both_ways(pairs: Iterable[tuple[int, int, Speed]]) -> Iterable[Link]:
    for end, other, speed in pairs:
        yield Link(end, other, speed.bytes_per_ns, speed.latency_ns)
        yield Link(other, end, speed.bytes_per_ns, speed.latency_ns)
