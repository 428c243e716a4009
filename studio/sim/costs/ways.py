"""The ways to carry out a collective, and the terms that each one's time is a sum of.

A way is an algorithm with a protocol. Its time is

    (host^4 + own^4)^(1/4) + latency
    own    = launch + (waits^p + moving^p)^(1/p)
    waits  = base + steps × hop
    moving = the larger of (bytes inside the node / rate, bytes between nodes / rate)

Steps and bytes overlap, as a pipeline does: with p = 1 they would follow each other, with a large p the longer one hides
the other (`OVERLAP`). The host's time from call to call passes beside the collective: it is seen where the collective is
shorter. Waits and moving are sums of parameters of the machine, each multiplied by something that follows
from group and size, so that a fit needs no more than these factors. The hops of a machine hold the latency of its network; what a
network states beyond that is added, once for each step that waits for the one before, and nothing hides it. Bytes are those of the busiest member's port, in one
direction:

| algorithm | steps | inside a node | between nodes, of all members of a node |
|---|---|---|---|
| ring | n − 1, all-reduce 2 (n − 1), of which N − 1 (twice) between nodes | (n − 1)/n, all-reduce twice | the same |
| tree | 2 (g − 1) and 2 log₂ N between nodes | twice the buffer | the buffer on two nodes, else twice |
| NVLS, behind a switch | 1 | the buffer | none |
| NVLS-tree | 1 and 2 log₂ N | the buffer | as tree |
| direct | one a peer | (g − 1)/n, all-reduce twice | (n − g)/n, all-reduce twice |

n ranks on N nodes of g. A tree of NCCL is two trees with half of the buffer each; a node that has two children in one of
them has none in the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from studio.sim.costs.shapes import (
    BEHIND_A_SWITCH,
    Float64,
    GroupShape,
    Ports,
    Wiring,
    compute_rate_between,
    compute_rate_inside,
)

RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Collectives that libraries carry out by rings; all others are messages from rank to rank."""
OVERLAP: Mapping[str, float] = {"LL": 1.5, "LL128": 1.5, "Simple": 2.0, "NVLS": 1.5, "direct": 2.0}
"""How far waits and moving bytes overlap, by what a way's rates are named after; found by leaving tables out."""
HOST_OVERLAP = 4.0
"""How far a collective and the host's work for the next call overlap: nearly the longer of both. Found by leaving tables out."""
_RAMP_NS = 1000.0
_LL_NETWORK = 39.0
"""Bytes per ns of a host's LL to other nodes, which goes by its memory (NVIDIA/nccl, src/graph/tuning.cc)."""
_PART_BYTES = 16.0 * 1024 * 1024
_CHANNEL_RATE = 25.0
"""Bytes per ns of a port that one channel of messages keeps busy: one NVLink of Ampere or Hopper."""
_SETTLE_BYTES = 24 * 1024.0


@dataclass(frozen=True, slots=True)
class Way:
    """An algorithm with a protocol, for one collective and group. Bytes are per byte of the whole buffer.

    Attributes:
        algorithm: ring, tree, direct, NVLS or NVLS-tree.
        protocol: LL, LL128 or Simple; NVLS and NVLS-tree have Simple only.
        steps_inside: Hops inside nodes, one after the other.
        steps_between: Hops between nodes.
        inside: Bytes through the busiest port inside a node.
        between: Bytes through the busiest port between nodes.
        own: Bytes of a rank's own part, which it copies or reduces besides.
    """

    algorithm: str
    protocol: str
    steps_inside: float
    steps_between: float
    inside: float
    between: float
    own: float = 0.0

    @property
    def name(self) -> str:
        """Algorithm and protocol, such as `ring LL`; NVLS and NVLS-tree have no choice of protocol."""
        return self.algorithm if self.algorithm.startswith("NVLS") else f"{self.algorithm} {self.protocol}"

    @property
    def rates(self) -> str:
        """Whose rates it reaches: NVLS has its own, and so have direct messages of large sizes."""
        if self.algorithm.startswith("NVLS"):
            return "NVLS"
        return "direct" if self.algorithm == "direct" and self.protocol == "Simple" else self.protocol


def list_ways(kind: str, shape: GroupShape) -> tuple[Way, ...]:
    """Return the ways to carry out a collective in a group; `kind` is one that libraries have."""
    n, g, nodes = shape.ranks, shape.per_node, shape.nodes
    if kind not in RINGS:
        return _list_direct(kind, shape)
    rounds = 2 if kind == "all_reduce" else 1
    part = rounds * (n - 1) / n if kind in ("all_reduce", "all_gather", "reduce_scatter") else 1.0
    crossing = rounds * (nodes - 1)
    inside = part if g > 1 else 0.0
    between = part / g if nodes > 1 else 0.0
    steps = rounds * (n - 1) - crossing
    listed = [
        Way("ring", protocol, steps, crossing, inside, between, 1 / n)
        for protocol in ("LL", "LL128", "Simple")
    ]
    if kind == "all_reduce":
        levels = 2 * math.log2(nodes)
        tree = 0.0 if nodes == 1 else (1.0 if nodes == 2 else 2.0) / g
        listed += [
            Way("tree", protocol, 2 * (g - 1), levels, 2.0 if g > 1 else 0.0, tree)
            for protocol in ("LL", "LL128", "Simple")
        ]
        if g > 1:
            name = "NVLS" if nodes == 1 else "NVLS-tree"
            listed.append(Way(name, "Simple", 1, levels, 1.0, tree))
    if kind in ("all_reduce", "all_gather", "reduce_scatter"):
        listed += _list_direct(kind, shape, rounds)
    return tuple(listed)


def _list_direct(kind: str, shape: GroupShape, rounds: int = 1) -> tuple[Way, ...]:
    """Return messages from rank to rank: to all others (in rounds), of or to the root, or of two ranks."""
    n, g = shape.ranks, shape.per_node
    if kind == "send_recv":
        crosses = shape.nodes > 1
        inside, between = float(g > 1 or not crosses), float(crosses)
        steps, crossing = (0.0 if crosses else 1.0), float(crosses)
        own = 0.0
    else:
        inside, between = rounds * (g - 1) / n, rounds * (n - g) / n
        steps, crossing = float(rounds * (g - 1)), float(rounds * (n - g))
        own = 1 / n
    return tuple(
        Way("direct", protocol, steps, crossing, inside, between, own) for protocol in ("LL", "Simple")
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a way's time: launch, waits, and the bytes on the ports inside of nodes and between them.

    A term is a parameter's name and its factor per size. Efficiencies divide: their factors count for 1 / parameter.

    A port may be faster than what one collective can use of it: the links to the peers that are members, the channels of a message,
    one NIC. While it moves as fast as that lets it, the rest of the port is free.

    Attributes:
        latency_ns: Latencies of the network, which no parameter changes and nothing hides.
        launch: Terms of the launch.
        waits: Terms of protocol and hops.
        inside: Terms of bytes on ports inside nodes.
        between: Terms of bytes on ports between nodes; none where nothing goes there.
        inside_share: Share of the port inside the node that it has while its bytes pass there; 0 where none do.
        between_share: The same between nodes; above 1 where it uses NICs of NPUs that are no members.
    """

    latency_ns: float
    launch: tuple[tuple[str, Float64], ...]
    waits: tuple[tuple[str, Float64], ...]
    inside: tuple[tuple[str, Float64], ...]
    between: tuple[tuple[str, Float64], ...]
    inside_share: Float64
    between_share: float


def compute_terms(  # noqa: PLR0913 (all that a time follows from)
    way: Way,
    kind: str,
    buffer: Float64,
    shape: GroupShape,
    ports: Ports,
    wiring: Wiring = BEHIND_A_SWITCH,
    *,
    shared: bool = False,
    channels: int = 0,
) -> Terms:
    """Return the terms of a way's time.

    Args:
        way: The way.
        kind: The collective, which has a launch of its own.
        buffer: (S,) bytes of the whole buffer.
        shape: The group.
        ports: The network.
        wiring: How a node is built.
        shared: Whether ports inside a node share paths, as those of PCIe do.
        channels: Channels that messages from rank to rank share; 0 where they set no limit.
    """
    ones = np.ones(len(buffer))
    inside: list[tuple[str, Float64]] = []
    between: list[tuple[str, Float64]] = []
    inside_share, between_share = np.zeros(len(buffer)), 0.0
    # What goes to a NIC behind PCIe leaves through the port that the messages to neighbours take.
    through = way.inside + (way.between if shared and way.algorithm == "direct" and way.inside else 0.0)
    if through:
        rates = _compute_message_rates(buffer, shape, channels) if kind == "send_recv" else np.inf
        rate = compute_rate_inside(ports, shape.per_node, wiring.peers)
        time = buffer * through / np.minimum(rate, rates)
        inside_share = ones * np.minimum(rate, rates) / ports.inside
        inside = _list_moving_terms(f"{way.rates} inside", time)
        if shared:
            lines = 2.0 if way.protocol == "LL" else 1.0  # LL sends two bytes for one.
            inside += [(name, share * lines * time) for name, share in compute_sharing(kind, shape).items()]
    if way.own and way.protocol == "Simple":
        inside.append((f"copy {kind}", buffer * way.own / ports.inside))
    if way.between:
        rate = compute_rate_between(ports, shape.per_node, wiring.nics)
        between_share = rate / ports.between
        if way.protocol == "LL":
            rate = min(rate, _LL_NETWORK / min(shape.per_node, wiring.per_host or shape.per_node))
        between = _list_moving_terms(
            f"{way.rates} between", buffer * way.between / rate, _compute_fillings(way)
        )
    latency = way.steps_inside * ports.inside_ns + way.steps_between * ports.between_ns
    if way.algorithm == "direct":
        latency = ports.between_ns if way.steps_between else ports.inside_ns
    return Terms(
        latency,
        ((f"launch {kind}", ones),),
        tuple(_list_waits(way, buffer)),
        tuple(inside),
        tuple(between),
        inside_share,
        between_share,
    )


def _compute_message_rates(buffer: Float64, shape: GroupShape, channels: int) -> Float64:
    """Return what the channels of a message between two members carry together, in bytes per ns of a port, by size.

    A message of a group of n ranks begins with an n-th of the channels, so that there are enough for all peers, and gets twice as many
    while a channel's part is above 16 MiB. Over several nodes parts are far smaller, so that all channels are used (NVIDIA/nccl,
    src/enqueue.cc, `addP2pToPlan`).
    """
    if not channels or shape.nodes > 1:
        return np.full(len(buffer), np.inf)
    least = 2 ** math.floor(math.log2(max(channels / shape.ranks, 1)))
    doubled = np.ceil(np.log2(np.maximum(buffer / (least * _PART_BYTES), 1)))
    return np.asarray(np.minimum(least * 2**doubled, channels) * _CHANNEL_RATE)


def _list_waits(way: Way, buffer: Float64) -> list[tuple[str, Float64]]:
    ones = np.ones(len(buffer))
    if way.algorithm == "direct":
        terms_of_way = [(f"base direct {way.protocol}", ones)]
        hop = "direct"
    else:
        base = "NVLS" if way.algorithm.startswith("NVLS") else way.protocol
        terms_of_way = [] if base == "LL" else [(f"base {base}", ones)]
        hop = way.protocol
    if way.protocol == "LL":
        turn = (buffer / _SETTLE_BYTES) ** 2
        terms_of_way.append(("settle LL", turn / (1 + turn)))
    if way.steps_inside and not way.algorithm.startswith("NVLS"):
        terms_of_way.append((f"hop {hop} inside", way.steps_inside * ones))
    if way.steps_between:
        terms_of_way.append(("base between", ones))
        tree = "tree " if way.algorithm in ("tree", "NVLS-tree") else ""
        terms_of_way.append((f"hop {tree}{hop} between", way.steps_between * ones))
    return terms_of_way


def _compute_fillings(way: Way) -> float:
    """Return how often the pipe between nodes is filled, in units of two nodes.

    LL and LL128 carry sizes of which a channel's part is about one chunk: each level of a tree passes all of it on, and fills its own
    pipe. Simple cuts large sizes into chunks that follow each other through all levels, and the best number of chunks grows as the root
    of the levels. Each step of a ring passes on a part: as many fillings, each by the square root of its share. Messages to other ranks
    are under way together.
    """
    if way.algorithm in ("tree", "NVLS-tree"):
        levels = way.steps_between / 2
        return math.sqrt(levels) if way.protocol == "Simple" else levels
    return math.sqrt(way.steps_between) if way.algorithm == "ring" else 1.0


def _list_moving_terms(rate: str, time: Float64, fillings: float = 1.0) -> list[tuple[str, Float64]]:
    """Return the terms of bytes that take `time` at the full rate: slower by an efficiency, and by filling the pipe."""
    return [(f"efficiency {rate}", time), (f"ramp {rate}", fillings * np.sqrt(time * _RAMP_NS))]


def compute_sharing(kind: str, shape: GroupShape) -> dict[str, float]:
    """Return how far bytes on paths of PCIe are slowed by others there: the parameters, with their factors.

    Without peer access both directions go through the same memory; a broadcast or reduce of two has one direction only. More
    than two GPUs lie behind more than one switch, and share what joins the switches.
    """
    factors = {}
    if shape.per_node > 2 or kind not in ("broadcast", "reduce", "gather", "scatter"):
        factors["shared both ways"] = 1.0
    if shape.per_node > 2:
        factors["shared between switches"] = 1 - 2 / shape.per_node
    return factors


def combine(waits: Float64, moving: Float64, overlap: Float64 | float) -> Float64:
    """Return how long waits and moving bytes take together.

    Example:
        >>> combine(np.array([3.0]), np.array([4.0]), 2.0), combine(np.array([3.0]), np.array([4.0]), 1.0)
        (array([5.]), array([7.]))
    """
    most = np.maximum(np.maximum(waits, moving), 1e-9)
    return np.asarray(
        most * ((waits / most) ** overlap + (moving / most) ** overlap) ** (1 / np.asarray(overlap))
    )
