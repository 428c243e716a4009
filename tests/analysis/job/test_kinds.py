"""Which nodes are kernels of communication libraries."""

from __future__ import annotations

import numpy as np
import pytest

from studio.analysis.job import kinds
from studio.trace import strings
from tests.handmade import node, trace_of


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1 << 20])
def test_kernels_of_communication_libraries_are_found_wherever_their_names_lie(piece, monkeypatch):
    """Texts are looked through piece by piece; a name that lies on two of them is found as well."""
    monkeypatch.setattr(strings, "_PIECE_BYTES", piece)
    names = ["a" * 9, "ncclDevKernel_Generic(x)", "RCCLKernel", "gemm"]
    [graph] = trace_of([[node(number, "COMP", name=name) for number, name in enumerate(names)]]).graphs
    assert kinds.is_library_kernel(graph).tolist() == [False, True, True, False]
    [other] = trace_of([[node(0, "COMP", name="gemm"), node(1, "COMP", name="cc", note="l")]]).graphs
    assert not np.any(kinds.is_library_kernel(other))


def test_what_the_runtime_of_xla_does_around_its_operations_is_no_compute():
    """It waits for devices, and was counted as compute beside what they communicated."""
    names = [
        "PjitFunction(f)", "CommonPjRtLoadedExecutable::Execute (jit_f)", "Wait for LaunchOnDevice completion",
        "ParseArguments", "end: dot.4", "dot.4", "wrapped_slice", "broadcast_add_fusion.2.clone",
    ]  # fmt: skip
    nodes = [node(number, "COMP", name=name, is_cpu_op=True) for number, name in enumerate(names)]
    [graph] = trace_of([nodes]).graphs
    assert kinds.computes_on_processor(graph).tolist() == [False] * 5 + [True] * 3
    [pytorch] = trace_of([[node(0, "COMP", name="aten::mm"), node(1, "COMP", name="AddmmBackward0")]]).graphs
    assert kinds.computes_on_processor(pytorch).all()
