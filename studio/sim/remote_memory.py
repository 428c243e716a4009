"""The remote memory of a job whose system names none: an assumption, and said to be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from studio.sim.config import RemoteMemory
from studio.sim.parts import Parts
from studio.sim.settings import BY_KEY
from studio.trace import Finding, NodeType, Trace

ASSUMED: Mapping[str, object] = {
    "memory-type": "PER_NPU_MEMORY_EXPANSION",
    **{key: BY_KEY[key].start for key in ("remote-mem-latency", "remote-mem-bw")},
}
FINDING = Finding(
    "warning",
    "remote-memory-assumed",
    "Remote memory of 64 GB/s and 1,000 ns per NPU assumed, a PCIe 5.0 slot of 16 lanes: the job has memory nodes.",
)


def with_memory_for(parts: Parts, trace: Trace) -> Parts:
    """Return a system with an assumed remote memory where the job loads or stores and the system has none."""
    if parts.memory is not None or not needs_memory(trace):
        return parts
    return replace(parts, memory=ASSUMED)


def build_assumed_memory() -> RemoteMemory:
    """Return what `ASSUMED` says as part of a system's configuration."""
    return RemoteMemory("per_npu", int(ASSUMED["remote-mem-latency"]), float(ASSUMED["remote-mem-bw"]))  # type: ignore[call-overload, arg-type]  # numbers


def needs_memory(trace: Trace) -> bool:
    """Return whether a job loads from a remote memory or stores there."""
    kinds = (NodeType.MEM_LOAD, NodeType.MEM_STORE)
    return any(np.isin(graph.type, kinds).any() for graph in trace.graphs)
