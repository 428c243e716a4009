"""The nodes of a pipeline stage, added in the order of its program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from studio.errors import ConfigError
from studio.operators.roofline import Gpu, peak
from studio.trace import CollectiveType

OWN, BEFORE, AFTER = -1, -2, -3
"""Stand for a rank, and for its peers in the stage before and after, until the ranks of a stage are made."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast compute nodes run; without it they have no durations, and the simulated system's roofline times them.

    Attributes:
        gpu: The GPU.
        compute: Share of its peak that matrix products reach.
        memory: Share of its memory's bandwidth that is reached.
    """

    gpu: Gpu
    compute: float = 1.0
    memory: float = 1.0

    def __post_init__(self) -> None:
        """Refuse shares that no GPU reaches.

        Raises:
            ConfigError: A share is not above 0 and at most 1, or the GPU has no peak for bf16.
        """
        for name, share in (("compute", self.compute), ("memory", self.memory)):
            if not 0 < share <= 1:
                raise ConfigError(f"--{name}-efficiency is {share:g}; allowed: above 0, at most 1.")
        if peak(self.gpu, "bf16") is None:
            raise ConfigError(f"{self.gpu.name} has no known peak for bf16.")

    def micros(self, flop: int, moved: int) -> float:
        """Return the time of a compute node in microseconds: the roofline, with the shares that are reached."""
        rate = peak(self.gpu, "bf16")
        assert rate is not None
        at_peak = flop / (rate * 1e6 * self.compute)
        return max(at_peak, moved / (self.gpu.memory_bytes_per_ns * 1e3 * self.memory), 0.001)


class Program:
    """The nodes of a rank. What one reads comes as data dependencies, the order of a stream as control dependencies.

    Attributes:
        nodes: The nodes so far, as `studio.et.build` takes them.
        last: The last node of each stream.
        sent: Sends that the next compute node waits for: stages send before they go on, as Megatron-LM does without interleaving.
    """

    def __init__(self, speed: Speed | None) -> None:
        self.speed = speed
        self.nodes: list[dict[str, Any]] = []
        self.last: dict[str, int] = {}
        self.sent: list[int] = []

    def compute(self, name: str, after: Sequence[int], flop: int, moved: int, kind: str) -> int:
        """Append a compute node and return its id.

        Args:
            name: Its name.
            after: The nodes it reads from; 0 is for what is there from the start.
            flop: Its operations.
            moved: Bytes it reads and writes.
            kind: What it is, `matmul`, `attention` or `other`.
        """
        attrs = {"is_cpu_op": False, "num_ops": flop, "tensor_size": moved, "op_type": kind}
        node = self._add(name, "COMP_NODE", "compute", after, attrs)
        if self.speed is not None:
            self.nodes[-1]["duration_micros"] = self.speed.micros(flop, moved)
        return node

    def collective(
        self, name: str, stream: str, kind: CollectiveType, after: Sequence[int], size: int
    ) -> int:
        """Append a collective of the comm group that the stream is named after, and return its id.

        Args:
            name: Its name.
            stream: Group and stream, such as `tp` or `dp.gather`.
            kind: The collective.
            after: The nodes it reads from.
            size: Bytes that the rank gives.
        """
        attrs = {
            "is_cpu_op": False,
            "comm_type": int(kind),
            "comm_size": size,
            "pg_name": stream.partition(".")[0],
        }
        return self._add(name, "COMM_COLL_NODE", stream, after, attrs)

    def transfer(self, name: str, ends: tuple[int, int], tag: int, after: Sequence[int], size: int) -> int:
        """Append one end of a transfer to or from a neighbouring stage, and return its id."""
        sends = ends[0] == OWN
        attrs = {
            "is_cpu_op": False,
            "comm_size": size,
            "comm_src": ends[0],
            "comm_dst": ends[1],
            "comm_tag": tag,
            "pg_name": "pp",
        }
        # A stream for each peer and direction: a receive is posted early, and none waits behind one of another peer.
        stream = f"pp.{ends}"
        node = self._add(name, "COMM_SEND_NODE" if sends else "COMM_RECV_NODE", stream, after, attrs)
        if sends:
            self.sent.append(node)
        return node

    def _add(self, name: str, kind: str, stream: str, after: Sequence[int], attrs: dict[str, Any]) -> int:
        node = len(self.nodes) + 1
        data = sorted({parent for parent in after if parent})
        previous = self.last.get(stream, 0)
        ctrl = [previous] if previous and previous not in data else []
        if stream == "compute":
            ctrl += [parent for parent in self.sent if parent not in data]
            self.sent = []
        self.nodes.append(
            {"id": node, "type": kind, "name": name, "data_deps": data, "ctrl_deps": ctrl, "attrs": attrs}
        )
        self.last[stream] = node
        return node
