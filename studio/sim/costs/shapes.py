"""Where a group lies, what its ports can carry, and how sizes are counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from studio.analysis.collectives.nccl_tests import count_inputs

Float64 = npt.NDArray[np.float64]

AS_KIND: Mapping[str, str] = {"reduce_scatter_block": "reduce_scatter", "barrier": "all_reduce"}
"""Collectives that libraries carry out as another one; PyTorch's barrier is an all-reduce of one element."""
_BARRIER_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Where the members of a group lie.

    Attributes:
        ranks: Members.
        per_node: Most members in one node.
        nodes: Nodes that have members.
    """

    ranks: int
    per_node: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Ports:
    """Rates and latencies of the ports of one NPU, in one direction; from the dimensions of the network.

    Attributes:
        inside: Rate of its port inside the node, bytes per ns.
        inside_ns: Latency of a hop inside the node.
        between: Its share of the node's ports to other nodes, bytes per ns; 0 where there is one node.
        between_ns: Latency of a hop between nodes.
        per_node: NPUs of a node.
        switched: Whether a switch joins the NPUs of a node, which may add up what they send, and send to all at once.
    """

    inside: float
    inside_ns: float
    between: float = 0.0
    between_ns: float = 0.0
    per_node: int = 1
    switched: bool = True


@dataclass(frozen=True, slots=True)
class Wiring:
    """How a node is wired.

    Attributes:
        nics: NICs of a node; 0 stands for one an NPU.
        peers: NPUs that the links of an NPU inside the node are divided among, equally; 0 stands for a switch.
        per_host: NPUs of a host; 0 stands for all of a node.
    """

    nics: int = 0
    peers: int = 0
    per_host: int = 0


BEHIND_A_SWITCH = Wiring()


def compute_rate_inside(ports: Ports, used: int, peers: int = 0) -> float:
    """Return what an NPU can send to the other members of its node, `used` NPUs in all.

    In a node without a switch the links of an NPU are divided among its peers, and those to NPUs that are no members stay idle.

    Args:
        ports: The ports of an NPU.
        used: NPUs of the node that are members.
        peers: NPUs that the links of an NPU are divided among, equally; 0 stands for a switch, behind which each gets all.

    Example:
        >>> ports = Ports(448.0, 500.0, per_node=8)
        >>> compute_rate_inside(ports, 2, peers=7), compute_rate_inside(ports, 8, peers=7), compute_rate_inside(ports, 2)
        (64.0, 448.0, 448.0)
    """
    return ports.inside * min(1.0, max(used - 1, 1) / peers) if peers else ports.inside


def compute_rate_between(ports: Ports, used: int, nics: int = 0) -> float:
    """Return what each of `used` NPUs of a node can send to other nodes while the rest of the node is silent.

    An NPU sends through one NIC at a time; the NICs of a node are shared by the NPUs in use.

    Args:
        ports: The ports of an NPU.
        used: NPUs of the node that send.
        nics: NICs of a node; 0 stands for one an NPU.

    Example:
        >>> ports = Ports(300.0, 500.0, 12.5, 1000.0, per_node=8)
        >>> compute_rate_between(ports, 8, nics=4), compute_rate_between(ports, 2, nics=4), compute_rate_between(ports, 2)
        (12.5, 25.0, 12.5)
    """
    node = ports.between * ports.per_node
    return min(node / max(used, 1), node / (nics or ports.per_node))


def compute_buffer_bytes(kind: str, sizes: Float64, ranks: int) -> Float64:
    """Return the bytes of the whole buffer, as nccl-tests counts, of collectives whose sizes are Chakra's `comm_size`.

    The two differ where a rank's input is one part of the whole: in all-gathers and gathers. A barrier has no size.

    Example:
        >>> compute_buffer_bytes("all_gather", np.array([1024.0]), 8), compute_buffer_bytes("all_reduce", np.array([1024.0]), 8)
        (array([8192.]), array([1024.]))
    """
    if kind == "barrier":
        return np.full(len(sizes), _BARRIER_BYTES)
    return np.asarray(sizes, np.float64) * count_inputs(kind, ranks)


def compute_comm_sizes(kind: str, buffers: Float64, ranks: int) -> Float64:
    """Return `comm_size` of collectives whose whole buffers are given: the inverse of `compute_buffer_bytes`."""
    return np.asarray(buffers, np.float64) / count_inputs(kind, ranks)


def compute_buffer_factor(kind: str, ranks: int) -> float:
    """Return the bytes that a ring sends over each port, per byte of the whole buffer.

    Example:
        >>> compute_buffer_factor("all_reduce", 4), compute_buffer_factor("all_gather", 4), compute_buffer_factor("broadcast", 4)
        (1.5, 0.75, 1.0)
    """
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(kind, 1.0)
