"""The nodes of a pipeline stage, added in the order of its program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from studio.generation.efficiency import FITTED, Efficiency, Work
from studio.operators.roofline import Gpu, require_peak
from studio.trace import CollectiveType

OWN, BEFORE, AFTER, RING_BEFORE, RING_NEXT = -1, -2, -3, -4, -5
"""Stand for a rank, for its peers in the stage before and after, and for its neighbours in a context parallel ring, until the ranks
of a stage are made."""
_TO_HOST, _FROM_HOST = 1, 2
"""Streams of copies; all else that a device does is in the one that nobody names."""
_IN_PASSES = ("tp", "cp", "ep")
"""Comm groups whose collectives are part of a pass; those of replicas are launched ahead, or once a step."""
BACKWARD = (".bwd", "grad")
"""How the names of a backward pass's nodes end."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast compute nodes run; without it they have no durations, and the simulated system's roofline times them.

    Attributes:
        gpu: The GPU.
        efficiency: What is reached of it.
    """

    gpu: Gpu
    efficiency: Efficiency = FITTED

    def __post_init__(self) -> None:
        """Refuse a GPU of which too little is known.

        Raises:
            ConfigError: The GPU has no peak for bf16.
        """
        require_peak(self.gpu, "bf16")

    @property
    def at_peak(self) -> bool:
        """Whether all of the GPU's roofline is reached, so that the machine that has it times nodes alike."""
        return self.efficiency == Efficiency()

    def micros(self, work: Work) -> float:
        """Return the time of a compute node in microseconds."""
        return self.efficiency.time_ns(work, self.gpu) / 1e3

    @property
    def source(self) -> str:
        """Where durations are from, in words."""
        return f"durations of {self.gpu.name}: {self.efficiency.describe_source(self.gpu)}"


def describe_times(speed: Speed | None) -> str:
    """Return where the durations of a job's compute nodes are from, in words."""
    return speed.source if speed else "no durations: a simulated system's roofline times it"


def build_work(name: str, flop: int, moved: int, kernels: int, *, aligned: bool, dtype: str = "bf16") -> Work:
    """Return the work of a node: operations, bytes and kernels; the end of its name tells a backward pass."""
    return Work(flop, moved, kernels, aligned, name.endswith(BACKWARD), dtype)


class Program:
    """The nodes of a rank. What one reads comes as data dependencies, the order of a stream as control dependencies.

    Attributes:
        nodes: The nodes so far, as `studio.et.build` takes them.
        last: The last node of each stream.
        sent: Sends that the next compute node waits for: stages send before they go on, as Megatron-LM does without interleaving; and what
            it needs back from host memory.
        launched: Collectives of the pass at work that the host launches before the next compute node.
        passed: Messages that went round a context parallel ring so far.
    """

    def __init__(self, speed: Speed | None) -> None:
        self.speed = speed
        self.nodes: list[dict[str, Any]] = []
        self.last: dict[str, int] = {}
        self.sent: list[int] = []
        self.launched = 0
        self.passed = 0

    def compute(  # noqa: PLR0913 (all that a node is)
        self,
        name: str,
        after: Sequence[int],
        flop: int,
        moved: int,
        kind: str,
        *,
        kernels: int = 1,
        aligned: bool = True,
        dtype: str = "bf16",
    ) -> int:
        """Append a compute node and return its id.

        Args:
            name: Its name.
            after: The nodes it reads from; 0 is for what is there from the start.
            flop: Its operations.
            moved: Bytes it reads and writes.
            kind: What it is, `matmul`, `attention` or `other`.
            kernels: Kernels that the host launches for it.
            aligned: Whether all sizes of its matrix products suit tensor cores.
            dtype: Data type of what they multiply.
        """
        attrs = {"is_cpu_op": False, "num_ops": flop, "tensor_size": moved, "op_type": kind}
        node = self._add(name, "COMP_NODE", "compute", after, attrs)
        if self.speed is not None:
            work = build_work(name, flop, moved, kernels + self.launched, aligned=aligned, dtype=dtype)
            self.nodes[-1]["duration_micros"] = self.speed.micros(work)
        self.launched = 0
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
        if attrs["pg_name"] in _IN_PASSES:
            self.launched += 1
        return self._add(name, "COMM_COLL_NODE", stream, after, attrs)

    def copy(self, name: str, after: Sequence[int], size: int, gbytes: float, *, to_host: bool) -> int:
        """Append a copy between the device and host memory, which goes on beside what is computed; returns its id.

        Args:
            name: Its name.
            after: The nodes that make what is copied, or that it waits for.
            size: Its bytes.
            gbytes: GB/s of the link.
            to_host: Whether it goes to the host, in a stream of its own, as what comes from there.
        """
        stream = _TO_HOST if to_host else _FROM_HOST
        attrs = {
            "is_cpu_op": False,
            "num_ops": 0,
            "tensor_size": size,
            "op_type": "copy",
            "device_kind": "memcpy",
            "stream": stream,
        }
        node = self._add(name, "COMP_NODE", f"copy.{stream}", after, attrs)
        # The simulated system knows no link to the host, so that copies have durations whatever times the rest.
        self.nodes[-1]["duration_micros"] = size / gbytes / 1e3
        return node

    def on_host(self, name: str, after: Sequence[int], flop: int, moved: int, gbytes: float) -> int:
        """Append what the host computes, as long as its memory takes; returns its id."""
        attrs = {"is_cpu_op": True, "num_ops": flop, "tensor_size": moved, "op_type": "other"}
        node = self._add(name, "COMP_NODE", "host", after, attrs)
        self.nodes[-1]["duration_micros"] = moved / gbytes / 1e3
        return node

    def transfer(
        self, name: str, ends: tuple[int, int], tag: int, after: Sequence[int], size: int, way: str = ""
    ) -> int:
        """Append one end of a transfer to or from a neighbouring stage, and return its id.

        Args:
            name: Its name.
            ends: Who sends and who receives.
            tag: Its tag.
            after: The nodes it reads from.
            size: Its bytes.
            way: The pass it is of, where receives of one need not wait for those of another.
        """
        sends = ends[0] == OWN
        attrs = {
            "is_cpu_op": False,
            "comm_size": size,
            "comm_src": ends[0],
            "comm_dst": ends[1],
            "comm_tag": tag,
            "pg_name": "pp",
        }
        # A stream for each peer, direction and pass: a receive is posted early, and none waits behind one of another peer.
        stream = f"pp.{ends}.{way}"
        node = self._add(name, "COMM_SEND_NODE" if sends else "COMM_RECV_NODE", stream, after, attrs)
        if sends:
            self.sent.append(node)
        return node

    def pass_on(self, name: str, after: Sequence[int], size: int) -> int:
        """Append both ends of what goes round a context parallel ring by one rank; returns the id of the receive.

        Args:
            name: Its name.
            after: The nodes that make what the rank sends.
            size: Bytes that it sends, and receives.
        """
        self.passed += 1
        received = 0
        for word, ends in (("send", (OWN, RING_NEXT)), ("recv", (RING_BEFORE, OWN))):
            attrs = {
                "is_cpu_op": False,
                "comm_size": size,
                "comm_src": ends[0],
                "comm_dst": ends[1],
                "comm_tag": self.passed,
                "pg_name": "cp",
            }
            kind = f"COMM_{word.upper()}_NODE"
            received = self._add(f"{name}.{word}", kind, f"cp.{word}", after if word == "send" else [], attrs)
        return received

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
