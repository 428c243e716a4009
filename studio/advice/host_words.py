"""Say what takes time of the host away, in words that fit what was recorded: the framework, the maker of the GPU, and when the time lies."""

from __future__ import annotations

import re

from studio.trace import WITH_STACK, Graph, Int64, Trace, list_recorded_devices
from studio.units import format_ns

_STARTING = 0.05
"""From this share of a rank's time on what lies before the first operation of its device is named."""
_TORCH = re.compile(rb"aten::|at::native::|autograd::|torch::|Torch-Compiled")
_XLA = re.compile(rb"PjRt|XLA|Thunk|jit_")
_MAKERS = (
    ("HIP graphs", re.compile(rb"Cijk_|ck_tile|__amd_rocclr|miopen|hip(?:Launch|Graph|Memcpy|Device)")),
    ("CUDA graphs", re.compile(rb"cutlass|sm\d\d_xmma|nvjet|cudnn::|cuda(?:Launch|Graph|Memcpy|Device)")),
)
"""What a maker calls graphs of kernels, and what its kernels and calls are named after; ROCm keeps names of CUDA, not the reverse."""
_DEVICES = (
    ("HIP graphs", re.compile(r"\b(?:AMD|Instinct|Radeon)\b")),
    ("CUDA graphs", re.compile(r"\b(?:NVIDIA|GeForce|Tesla)\b")),
)
_EITHER = "CUDA or HIP graphs"


def describe_remedy(trace: Trace, *, is_compiled: bool) -> str:
    """Return what takes time between operators away, without what the recording shows to be done already.

    Args:
        trace: The job.
        is_compiled: Whether a region of the program was recorded as compiled.
    """
    if not _is_found(_TORCH, trace) and _is_found(_XLA, trace):
        cure = "More of the program in one compiled call (jax.jit, several steps by lax.scan) takes it away, and calls that do not wait for results hide it."
    elif is_compiled:
        graphs = _label_kernel_graphs(trace)
        cure = f"The job is compiled already; {graphs} take most of what is left away{' on GPUs' if graphs == _EITHER else ''}."
    else:
        graphs = _label_kernel_graphs(trace)
        cure = f"torch.compile or{', on GPUs,' if graphs == _EITHER else ''} {graphs} take most of it away."
    if any(item.name == WITH_STACK for rank in trace.ranks for item in rank.metadata):
        return f"{cure} Python stacks were recorded, which adds to it: record again without them (with_stack) to see how much is the job's."
    return cure


def describe_start_gap(graph: Graph, rows: Int64, took_ns: Int64) -> str:
    """Return how much time of the host lies before the first operation of the device; empty where it is little.

    No change of how operators are launched takes that away, since none has been launched.

    Args:
        graph: The graph of a rank.
        rows: (R,) its nodes that are time of the host.
        took_ns: (R,) how long they took.
    """
    device, _ = graph.rows_with("stream")
    begun = graph.start_ns[device][graph.start_ns[device] >= 0]
    start = graph.start_ns[rows]
    if not len(begun):
        return ""
    before_ns = int(took_ns[(start >= 0) & (start < begun.min())].sum())
    if before_ns < _STARTING * int(took_ns.sum()):
        return ""
    return (
        f"{format_ns(before_ns)} of it lie before the first operation of the device, where nothing was launched yet: start-up or "
        "input, such as loading the first batch, which only loading ahead or a recording that begins later takes away. For the rest: "
    )


def _label_kernel_graphs(trace: Trace) -> str:
    """Return what the maker of the recorded GPU calls graphs of kernels; both where none is told."""
    devices = " ".join(list_recorded_devices(trace))
    named = [graphs for graphs, pattern in _DEVICES if pattern.search(devices)]
    names = named or [graphs for graphs, pattern in _MAKERS if _is_found(pattern, trace)][:1]
    return names[0] if len(names) == 1 else _EITHER


def _is_found(pattern: re.Pattern[bytes], trace: Trace) -> bool:
    return any(pattern.search(graph.strings.data.tobytes()) is not None for graph in trace.graphs)
