"""Give the operators of a recorded job the durations that another GPU would take.

The rule: a call reached a share of the roofline of the GPU it was recorded on, and reaches the same share of the
roofline of the new one, for its own data type. Its device operations are scaled alike. What has no formula is scaled by
memory bandwidth, the rule that holds for what moves more than it computes, and is counted apart. Operators on the
processor, launches, gaps between them, idle times of streams, copies from and to the host or another GPU, and communication
keep their times: the first are not the GPU's, and the links in between neither its roofline nor its memory tells; they
bound what a faster one gains. What the host waits for the device is no time of its own:
it ends when the device is done.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from studio.errors import ConfigError
from studio.notebook import format_record
from studio.operators.calls import Calls, Part, collect_calls
from studio.operators.roofline import Gpu, compute_roofline_ns
from studio.trace import DEVICE_NAME, Attribute, Float64, Graph, Int64, Rank, Trace, ValueKind
from studio.units import format_ns

RECORDED_ON = "recomputed_from_device"
"""Metadata of a rank whose durations were recomputed: the GPU it was recorded on, in place of which another is named."""
ACROSS_MAKERS = 0.40
"""How far compute time that was recomputed for a GPU of another maker was from that recorded there, at most, of the pairs in
docs/accuracy.md."""


@dataclass(frozen=True, slots=True)
class Retargeting:
    """What became of a job's compute time.

    Attributes:
        gpu, recorded_gpu: The new GPU, and that of the recording.
        recorded_ns: Compute time of all ranks, as recorded.
        new_ns: The same on the new GPU.
        by_formula_ns: The part of `recorded_ns` whose work has a formula.
        by_bandwidth_ns: The part scaled by memory bandwidth, for lack of one.
        nodes_by_bandwidth: Device operations it is of.
        over_roofline_ns: The part of `by_formula_ns` of calls that took less than the roofline says, such as those
            whose operands were in a cache; they are scaled all the same.
        kept_ns: Device time that is kept: communication, and copies from and to the host or another GPU.
        peer_ns: The part of `kept_ns` of copies from or to another GPU.
    """

    gpu: str
    recorded_gpu: str
    recorded_ns: int
    new_ns: int
    by_formula_ns: int
    by_bandwidth_ns: int
    nodes_by_bandwidth: int
    over_roofline_ns: int
    kept_ns: int
    peer_ns: int = 0

    __repr__ = format_record

    @property
    def words(self) -> str:
        """The result in a line.

        Example:
            >>> Retargeting("NVIDIA B200", "NVIDIA H100", 100, 50, 92, 8, 3, 0, 0).words
            'durations recomputed for NVIDIA B200 from NVIDIA H100: 92 % of compute time by rooflines of operators, 8 % by memory bandwidth alone, host gaps kept'
        """
        share = 100 * self.by_formula_ns / max(self.recorded_ns, 1)
        formula, rest = _format_percents(share)
        return (
            f"durations recomputed for {self.gpu} from {self.recorded_gpu}: {formula} of compute time by rooflines of operators, "
            f"{rest} by memory bandwidth alone, host gaps kept{self._peer_words}{self._error_words}"
        )

    @property
    def _peer_words(self) -> str:
        """What became of copies between GPUs, where there are any."""
        if not self.peer_ns:
            return ""
        return (
            f", copies between GPUs kept too ({format_ns(self.peer_ns)}; the link between them is not told)"
        )

    @property
    def _error_words(self) -> str:
        """How far such a result was from a recording, where the GPUs are of two makers."""
        if self.gpu.split()[0] == self.recorded_gpu.split()[0]:
            return ""
        return f"; between makers of GPUs this was off by up to {100 * ACROSS_MAKERS:.0f} % on a recorded pair (docs/accuracy.md)"


def _format_percents(share: float) -> tuple[str, str]:
    """Return a share and what is left of it; neither all nor nothing unless it is."""
    if share in (0.0, 100.0) or 1 <= share <= 99:
        return f"{share:.0f} %", f"{100 - round(share)} %"
    if 0.005 <= share <= 99.995:
        return f"{share:.2f} %", f"{100 - share:.2f} %"
    return ("over 99.99 %", "under 0.01 %") if share > 50 else ("under 0.01 %", "over 99.99 %")


def retarget_durations(trace: Trace, gpu: Gpu, recorded_gpu: Gpu) -> tuple[Trace, Retargeting]:
    """Return a job with the durations that another GPU would take, and what became of its compute time.

    Starts stay those of the recording, by which a replay is compared with it.

    Args:
        trace: A recording of a job on GPUs.
        gpu: The GPU to recompute for.
        recorded_gpu: The GPU it was recorded on.

    Raises:
        ConfigError: No operation of a device was recorded.
    """
    ranks = Counter(rank.graph for rank in trace.ranks)
    each = {index: collect_calls(trace.graphs[index]) for index in ranks}
    if not any(calls.on_device for calls in each.values()):
        raise ConfigError(
            f"The job cannot be recomputed for {gpu.name}: no operation of a device was recorded",
            hint="Record the device too: torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True).",
        )
    totals: Counter[str] = Counter()
    graphs = list(trace.graphs)
    for index, calls in each.items():
        if calls.on_device:
            graphs[index], counts = _retarget_graph(trace.graphs[index], calls, gpu, recorded_gpu)
            totals.update({key: value * ranks[index] for key, value in counts.items()})
    new_trace = replace(
        trace, graphs=tuple(graphs), ranks=tuple(_mark_rank(rank, gpu.name) for rank in trace.ranks)
    )
    return new_trace, Retargeting(gpu.name, recorded_gpu.name, **totals)


def _mark_rank(rank: Rank, name: str) -> Rank:
    """Return a rank whose durations are now those of the GPU of this name, with what it was recorded on."""
    metadata = {entry.name: entry.value for entry in rank.metadata}
    kept = tuple(entry for entry in rank.metadata if entry.name not in (DEVICE_NAME, RECORDED_ON))
    recorded = str(metadata.get(RECORDED_ON) or metadata.get(DEVICE_NAME) or "")
    now = Attribute(DEVICE_NAME, ValueKind.STRING, name)
    return replace(rank, metadata=(*kept, now, Attribute(RECORDED_ON, ValueKind.STRING, recorded)))


def compute_scales(calls: Calls, gpu: Gpu, recorded_gpu: Gpu) -> tuple[Float64, Float64]:
    """Return the factor (C,) on the time of each call, NaN where its work is not known, and its roofline (C,) as recorded."""
    work = (calls.flop, calls.bytes, calls.type, calls.types)
    before, after = compute_roofline_ns(recorded_gpu, *work), compute_roofline_ns(gpu, *work)
    factor = np.where(before > 0, after / np.where(before > 0, before, 1.0), np.nan)
    return factor, before


def _retarget_graph(graph: Graph, calls: Calls, gpu: Gpu, recorded_gpu: Gpu) -> tuple[Graph, dict[str, int]]:
    """Return a graph with new durations, and the parts of its compute time."""
    bandwidth = recorded_gpu.memory_bytes_per_ns / gpu.memory_bytes_per_ns
    factor, roof = compute_scales(calls, gpu, recorded_gpu)
    compute = np.flatnonzero(calls.part == Part.COMPUTE)
    call = calls.call[compute]
    scale = np.where(call >= 0, np.append(factor, np.nan)[call], np.nan)
    by_formula = np.isfinite(scale)
    scale = np.where(by_formula, scale, bandwidth)
    duration = graph.duration_ns.copy()
    own: Int64 = duration[compute]
    # A node that took time takes some: the time of a recorded operation is never rounded to nothing.
    duration[compute] = np.where(own > 0, np.maximum(np.rint(own * scale).astype(np.int64), 1), 0)
    spent = np.bincount(call[call >= 0], own[call >= 0], len(calls.row))
    fast = np.append(spent < roof, False)[call] & by_formula
    rest = own[~by_formula]
    return replace(graph, duration_ns=duration), {
        "recorded_ns": int(own.sum()),
        "new_ns": int(duration[compute].sum()),
        "by_formula_ns": int(own[by_formula].sum()),
        "by_bandwidth_ns": int(rest.sum()),
        "nodes_by_bandwidth": len(rest),
        "over_roofline_ns": int(own[fast].sum()),
        "kept_ns": int(graph.duration_ns[calls.part >= Part.HOST_LINK].sum()),
        "peer_ns": int(graph.duration_ns[calls.part == Part.PEER_LINK].sum()),
    }
