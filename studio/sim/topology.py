"""Hops and message delays of the analytical networks.

The rules are those of ASTRA-sim's analytical backends. Every formula is evaluated in double precision and
truncated once, where it enters the clock.
"""

from __future__ import annotations

from studio.sim.config import Dimension, Topology


def hops(dim: Dimension, src: int, dst: int) -> int:
    """Return the links a message crosses between two coordinates of a dimension.

    Fully connected one, switch two (up and down), ring the shorter way round.

    Example:
        >>> hops(Dimension("ring", 8, 50.0), 1, 7), hops(Dimension("switch", 8, 50.0), 1, 7)
        (2, 2)
    """
    if dim.kind == "fully_connected":
        return 1
    if dim.kind == "switch":
        return 2
    distance = abs(src - dst)
    return min(distance, dim.size - distance)


def delay_ns(topology: Topology, src: int, dst: int, size_bytes: int) -> int:
    """Return the time of a message without contention: hops × latency + size / bandwidth, truncated once.

    Only the lowest dimension in which the two NPUs differ counts; other differences are free.

    Example:
        >>> link = Dimension("ring", 4, 50 * 2**30 / 10**9, 500.0)
        >>> delay_ns(Topology((link,)), 0, 1, 65536)
        1720
    """
    for dim, a, b in zip(topology.dims, topology.address(src), topology.address(dst), strict=True):
        if a != b:
            return int(hops(dim, a, b) * dim.latency_ns + size_bytes / dim.bytes_per_ns)
    raise ValueError(f"NPU {src} sends to itself")


def link_count(dim: Dimension) -> int:
    """Return the directed links of a one-dimensional network.

    Fully connected: one per pair of NPUs and direction, numbered source × size + destination. Switch: an up
    link per NPU, then a down link per NPU. Ring: a link to the next NPU per NPU, then one to the previous.

    Example:
        >>> link_count(Dimension("switch", 8, 50.0)), link_count(Dimension("fully_connected", 8, 50.0))
        (16, 64)
    """
    return dim.size * dim.size if dim.kind == "fully_connected" else 2 * dim.size
