"""The cost model: how long a collective takes alone, and what it puts on the ports of its members.

A collective of a library such as NCCL is one kernel per rank, which begins to move data when all members have come. Its
time is the least over the (algorithm, protocol) pairs that the library has for it, of

    base + steps × hop + bytes on the busiest port / rate

The bytes are sent over ports: each NPU has one inside its node (dimension 0 of the network) and one between nodes (all
further dimensions). What the ports can carry comes from the network's dimensions, so that another bandwidth changes
every answer; what the library makes of it (bases, hops, efficiencies, caps) is the machine's and is fitted or taken
from sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from studio.errors import ConfigError

Float64 = npt.NDArray[np.float64]


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
    """What the ports of one NPU can do, in one direction; from the dimensions of the network.

    Attributes:
        inside: Rate of its port inside the node, bytes per ns.
        inside_ns: Latency of a hop inside the node.
        between: Its share of the node's ports to other nodes, bytes per ns; 0 where there is one node.
        between_ns: Latency of a hop between nodes.
        per_node: NPUs of a node.
    """

    inside: float
    inside_ns: float
    between: float = 0.0
    between_ns: float = 0.0
    per_node: int = 1


@dataclass(frozen=True, slots=True)
class Charge:
    """What collectives of one kind and group cost, one entry per size.

    S sizes.

    Attributes:
        total_ns: (S,) time from the last arrival of a member to the end, alone on the network.
        fixed_ns: (S,) the part of it in which no bytes move: launch and hops.
        inside_bytes: (S,) bytes that the busiest member sends through its port inside the node.
        between_bytes: (S,) bytes that the busiest member sends through its port between nodes.
        choice: (S,) which of `choices` was the quickest.
        choices: Names of algorithm and protocol, such as `ring Simple`.
        extrapolated: (S,) whether the size or group lies outside of what the model was fitted to.
    """

    total_ns: Float64
    fixed_ns: Float64
    inside_bytes: Float64
    between_bytes: Float64
    choice: npt.NDArray[np.int64]
    choices: tuple[str, ...]
    extrapolated: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CostModel:
    """The costs of a machine's collectives.

    Attributes:
        launch_ns: Time of a collective before any bytes move, by collective; "" is for those not listed.
        efficiency: Share of a port's rate that collectives reach.
    """

    launch_ns: Mapping[str, float] = field(default_factory=lambda: {"": 6000.0})
    efficiency: float = 0.9

    def charge(self, kind: str, sizes: Float64, shape: GroupShape, ports: Ports) -> Charge:
        """Return what collectives of a kind cost.

        Args:
            kind: A collective (`studio.sim.kinds`), or `send_recv` for a message between two ranks.
            sizes: (S,) `comm_size` as Chakra counts it: an all-gather's is one rank's part; an all-to-all's what a rank
                sends in all, its own part included.
            shape: The group.
            ports: The network.
        """
        n = shape.ranks
        share = (n - 1) / n if n > 1 else 0.0
        factor = {
            "all_reduce": 2 * share,
            "all_gather": n - 1.0,
            "reduce_scatter": share,
            "all_to_all": share,
        }.get(kind, 1.0)
        moved = sizes * (factor if n > 1 else 0.0)
        crosses = shape.nodes > 1
        inside = moved if shape.per_node > 1 else np.zeros_like(moved)
        between = moved / shape.per_node if crosses else np.zeros_like(moved)
        steps = 2 * (n - 1) if kind == "all_reduce" else n - 1
        hop = ports.between_ns if crosses else ports.inside_ns
        fixed = np.full(len(sizes), self.launch_ns.get(kind, self.launch_ns[""]) + steps * hop)
        time = inside / (ports.inside * self.efficiency)
        if crosses:
            time = np.maximum(time, between / (ports.between * self.efficiency))
        none = np.zeros(len(sizes), np.int64)
        return Charge(fixed + time, fixed, inside, between, none, ("ring Simple",), none > 0)

    @staticmethod
    def from_table(table: Mapping[str, object], named: str = "costs") -> CostModel:
        """Return the model that a table of a system file describes.

        Args:
            table: The keys under `costs:`.
            named: What messages call the table.

        Raises:
            ConfigError: A key is not known, or a value is not allowed.
        """
        known = ("launch_ns", "efficiency")
        for key in table:
            if key not in known:
                raise ConfigError(
                    f"{named}: {key} is no key of the cost model; allowed: {', '.join(known)}", key="costs"
                )
        return CostModel(**table)  # type: ignore[arg-type]

    def to_table(self) -> dict[str, object]:
        """Return the table that describes the model, as `from_table` reads it."""
        return {"launch_ns": dict(self.launch_ns), "efficiency": self.efficiency}
