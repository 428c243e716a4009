"""Which algorithm and protocol a communication library takes: by its own estimates, not by what is in fact the quickest.

NCCL estimates for every collective, group and size what each (algorithm, protocol) would take, from constants in its
source, and takes the least. Measured curves jump where it changes its mind (an all-gather on four A100 takes 22.5 µs at
1 MiB and 53 µs at 2 MiB), and the jumps lie where these estimates say. What a pair really costs is the machine's and
stands in `studio.sim.costs.parameters`.

Source: NVIDIA/nccl, src/graph/tuning.cc and src/graph/topo.h, snapshot 5067397 (2026-06). The constants of RCCL are those
of an early fork (ROCm/rccl src/graph/tuning.cc, 0023b9b), as a newer one was not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from studio.sim.costs.shapes import Float64, GroupShape, compute_buffer_factor

Per = Mapping[str, float]
"""A value per protocol."""

_TREE_SHARE: Mapping[str, tuple[float, ...]] = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    "LL128": (
        1,
        1,
        1,
        1,
        1,
        0.9,
        0.8,
        0.8,
        0.8,
        0.7,
        0.6,
        0.6,
        0.6,
        0.6,
        0.6,
        0.6,
        0.8,
        0.9,
        0.9,
        0.9,
        0.9,
        1,
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 1),
    ),
}
"""What a tree keeps of its bandwidth, by the power of two of size / 64 bytes."""
_NVLS_NS = 25_000.0
_NVLS_TREE_NS = 20_900.0
_NVLS_GPUS = 5
"""With fewer GPUs in a node NVLS brings nothing, and busbw is a ring's (NVIDIA/nccl issue 1455)."""
_POST_NS = 1_000.0
"""What the host takes to post a message to the network, three times as long for Simple: no step of a ring over several nodes counts
with less, not even one inside a node."""


@dataclass(frozen=True, slots=True)
class Hops:
    """Latencies of a hop in ns, by protocol."""

    tree: Per
    ring: Per


_NVLINK = Hops({"LL": 600, "LL128": 1250, "Simple": 4000}, {"LL": 600, "LL128": 1900, "Simple": 3400})
_PCIE = Hops({"LL": 1000, "LL128": 1900, "Simple": 4000}, {"LL": 1000, "LL128": 2500, "Simple": 5700})
_NETWORK = Hops({"LL": 5000, "LL128": 8500, "Simple": 14000}, {"LL": 2700, "LL128": 4000, "Simple": 14000})


@dataclass(frozen=True, slots=True)
class Library:
    """What a library believes of a generation of GPUs. Rates are bytes per ns.

    Attributes:
        channels: Channels it opens.
        link_share: The share of a data sheet's link rate that it counts with.
        ll: Cap of LL on the whole GPU.
        ll_network: The same between nodes: two nodes, more.
        ll128: Cap of a channel of LL128 on rings; 0 where LL128 is not used.
        ll128_tree: The same on trees: one node, two, more.
        simple_tree: Cap of a channel of Simple on trees: one node, two, more.
        nvls: Share of the links that NVLS counts with; 0 where there is none.
        nvls_tree: Cap of a channel of NVLS-tree: two nodes, more.
        inside: Hops inside a node.
        between: Hops between nodes.
        base: Latency before the first hop: trees, rings.
        searches: Whether it counts with the rate that it finds a path to have, and so with what is reached: paths over PCIe
            differ from board to board. NVLinks count with what is known of them.
        messages: Channels that messages from rank to rank share; 0 where it is not known that they limit them.
        long_ring: What the latency of a ring between nodes is multiplied by for large sizes (Simple).
    """

    channels: int
    link_share: float
    ll: float
    ll_network: tuple[float, float] = (39.0, 20.4)
    ll128: float = 0.0
    ll128_tree: tuple[float, float, float] = (0.0, 0.0, 0.0)
    simple_tree: tuple[float, float, float] = (24.0, 23.6, 17.8)
    nvls: float = 0.0
    nvls_tree: tuple[float, float] = (0.0, 0.0)
    inside: Hops = _NVLINK
    between: Hops = _NETWORK
    base: Hops = Hops(
        {"LL": 6800, "LL128": 14000, "Simple": 8400}, {"LL": 6600, "LL128": 14000, "Simple": 8400}
    )
    long_ring: float = 1.4
    searches: bool = False
    messages: int = 0

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols it has."""
        return ("LL", "LL128", "Simple") if self.ll128 else ("LL", "Simple")


LIBRARIES: Mapping[str, Library] = {
    "nccl-volta": Library(
        12, 0.8, 39.0, ll128=20, ll128_tree=(20, 20, 20), simple_tree=(26.5, 18.5, 10.0), long_ring=1.9
    ),
    "nccl-ampere": Library(24, 0.8, 87.7, ll128=20, ll128_tree=(20, 20, 20), messages=32),
    "nccl-hopper": Library(
        24,
        0.824,
        141.0,
        ll128=36.7,
        ll128_tree=(36.7, 36.7, 29.0),
        simple_tree=(38.7, 41.4, 36.0),
        nvls=0.85,
        nvls_tree=(57.7, 45.5),
        messages=32,
    ),
    "nccl-blackwell": Library(
        32,
        0.802,
        282.0,
        ll128=40,
        ll128_tree=(55.6, 31.7, 20.0),
        simple_tree=(70.0, 42.8, 24.0),
        nvls=0.74,
        nvls_tree=(96.0, 80.0),
    ),
    "nccl-pcie": Library(2, 0.76, 141.0, inside=_PCIE, searches=True),
    "rccl": Library(28, 0.8, 141.0),
}
"""Libraries by name, with the generation of GPUs where the constants differ by it."""


def estimate_ways(
    library: Library, kind: str, buffer: Float64, shape: GroupShape, inside: float, between: float
) -> dict[str, Float64]:
    """Return what a library believes each of its ways takes: ns per size, by `algorithm protocol`.

    Args:
        library: The library.
        kind: A collective that it has algorithms for: all-reduce, all-gather, reduce-scatter, broadcast, reduce.
        buffer: (S,) bytes of the whole buffer.
        shape: The group.
        inside: Rate of an NPU's port inside the node, bytes per ns.
        between: The same between nodes.
    """
    rate = inside * library.link_share
    if shape.nodes > 1:
        rate = min(rate, between * shape.per_node * 0.96)
    by_way = {
        f"ring {protocol}": _estimate_ring(library, kind, protocol, buffer, shape, rate)
        for protocol in library.protocols
    }
    if kind == "all_reduce":
        for protocol in library.protocols:
            by_way[f"tree {protocol}"] = _estimate_tree(library, protocol, buffer, shape, rate)
    return by_way | _estimate_nvls(library, kind, buffer, shape, inside, between)


def _estimate_ring(
    library: Library, kind: str, protocol: str, buffer: Float64, shape: GroupShape, rate: float
) -> Float64:
    cap = library.ll if shape.nodes == 1 else library.ll_network[min(shape.nodes, 3) - 2]
    reached = {
        "LL": min(cap, rate * 0.5),
        "LL128": min(rate * 0.92, library.channels * library.ll128),
        "Simple": rate,
    }[protocol]
    latency = library.base.ring[protocol]
    if kind in ("broadcast", "reduce"):
        latency += library.inside.ring[protocol]
    else:
        rounds = 2 if kind == "all_reduce" else 1
        between = rounds * (shape.nodes - 1)
        posted = 0.0 if shape.nodes == 1 else _POST_NS * (3 if protocol == "Simple" else 1)
        latency += (rounds * (shape.ranks - 1) - between) * max(library.inside.ring[protocol], posted)
        latency += between * library.between.ring[protocol]
    waits = np.full(len(buffer), float(latency))
    if protocol == "Simple" and shape.nodes > 1 and kind == "all_reduce":
        waits[buffer >= 64.0 * library.channels * shape.ranks] *= library.long_ring
    return waits + buffer * compute_buffer_factor(kind, shape.ranks) / reached


def _estimate_tree(
    library: Library, protocol: str, buffer: Float64, shape: GroupShape, rate: float
) -> Float64:
    place = min(shape.nodes, 3) - 1
    cap = library.ll if shape.nodes == 1 else library.ll_network[min(shape.nodes, 3) - 2]
    reached = {
        "LL": min(cap, rate / 3.8),
        "LL128": min(
            rate * (7 / 9 if shape.nodes == 1 else 15 / 16), library.channels * library.ll128_tree[place]
        ),
        "Simple": min(rate * 0.92, library.channels * library.simple_tree[place]),
    }[protocol]
    levels = int(np.log2(shape.nodes))
    latency = library.base.tree[protocol] + 2 * (shape.per_node - 1) * library.inside.tree[protocol]
    latency += 2 * levels * library.between.tree[protocol]
    shares = np.array(_TREE_SHARE[protocol])
    power = np.floor(np.log2(np.maximum(buffer / 64, 1))).astype(np.int64)
    share = shares[np.minimum(power, len(shares) - 1)]
    return latency + 2 * buffer / (reached * share)


def _estimate_nvls(
    library: Library, kind: str, buffer: Float64, shape: GroupShape, inside: float, between: float
) -> dict[str, Float64]:
    """Return NVLS on one node, and NVLS-tree, which all-reduces have, on more."""
    if not library.nvls or shape.per_node < _NVLS_GPUS or kind != "all_reduce":
        return {}
    reached = library.nvls * inside * library.link_share * (library.channels - 1) / library.channels
    if shape.nodes == 1:
        return {"NVLS": _NVLS_NS + buffer / reached}
    network = between * shape.per_node * 0.96 * (2 if shape.nodes == 2 else 1)
    cap = library.channels * library.nvls_tree[min(shape.nodes, 3) - 2]
    levels = int(np.log2(shape.nodes))
    return {"NVLS-tree": _NVLS_NS + 2 * levels * _NVLS_TREE_NS + buffer / min(reached, network, cap)}
