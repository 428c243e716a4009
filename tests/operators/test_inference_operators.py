"""Operators of inference servers, with the arguments that their recordings have, by hand: what they compute and move."""

from __future__ import annotations

from typing import Any

import pytest

import studio
from studio.operators import list_operators
from tests.et.pytorch_files import device_file, event

HALF, FLOAT, INT = "c10::BFloat16", "float", "int"


def job(path, name: str, shapes: list[list[int]], types: list[str], values: list[str] | None) -> studio.Trace:
    """Return a job of one operator and its kernel of 10 µs."""
    told: dict[str, Any] = {"Input Dims": shapes, "Input type": types}
    if values:
        told["Concrete Inputs"] = values
    events = [
        event(name, 10, 20, external=1, **told),
        event("cudaLaunchKernel", 15, 5, cat="cuda_runtime", correlation=1),
        event("kernel", 40, 10, cat="kernel", pid=0, tid=7, correlation=1, stream=7, device=0),
    ]
    path.write_bytes(device_file(events))
    return studio.read(path)


CASES = {
    "a product whose weight is (m, k)": (
        "aiter::gemm_a16w16", [[512, 64], [96, 64], [], []], [HALF, HALF, "", "Scalar"], None,
        2 * 512 * 64 * 96, 2 * (512 * 64 + 96 * 64 + 512 * 96),
    ),
    "a normalisation with its result first": (
        "aiter::rmsnorm", [[512, 128], [512, 128], [128], []], [HALF] * 3 + ["Scalar"], None,
        5 * 512 * 128, 2 * 2 * 512 * 128,
    ),
    "a normalisation of a sum": (
        "aiter::add_rmsnorm", [[256, 64]] * 4 + [[64], []], [HALF] * 5 + ["Scalar"], None,
        6 * 256 * 64, 2 * 4 * 256 * 64,
    ),
    "a gate of two halves": (
        "sgl_kernel::silu_and_mul", [[256, 96], [256, 192]], [HALF] * 2, None,
        10 * 256 * 96, 2 * (256 * 192 + 256 * 96),
    ),
    "positions turned into queries and keys in place": (
        "sgl_kernel::rotary_embedding", [[256], [256, 512], [256, 128], [], [4096, 64], []],
        ["long int", HALF, HALF, "Scalar", HALF, "Scalar"], None,
        3 * 256 * (512 + 128), 8 * 256 + 2 * 2 * 256 * (512 + 128),
    ),
    "keys and values put into a cache": (
        "sglang::store_cache", [[32, 128], [32, 128], [9000, 128], [9000, 128], [32]], [HALF] * 4 + ["long int"], None,
        0, 4 * 2 * 32 * 128,
    ),
    "attention of (batch, length, heads, width)": (
        "aiter::fmha_v3_fwd", [[1, 64, 8, 16]] * 3 + [[]] * 5, [HALF] * 3 + ["Scalar"] * 5,
        ["", "", "", "0.", "0.25", "False", "-1", "-1"],
        2 * 8 * 64 * 64 * (16 + 16), 4 * 2 * 64 * 8 * 16,
    ),
    "padding that repeats the edges": (
        "aten::replication_pad3d", [[1, 4, 5, 6, 7], []], [HALF, "ScalarList"], ["", "[1, 1, 1, 1, 2, 0]"],
        0, 2 * 4 * (5 * 6 * 7 + 7 * 8 * 9),
    ),
    "all experts in use": (
        "vllm::outplace_fused_experts", [[100, 32], [8, 48, 32], [8, 32, 24], [100, 2], [100, 2]],
        [HALF, HALF, HALF, FLOAT, INT], None,
        2 * 200 * (48 * 32 + 32 * 24), 2 * 8 * (48 * 32 + 32 * 24) + 2 * 2 * 100 * 32 + 4 * 200,
    ),
    "fewer rows than experts": (
        "sglang::inplace_fused_experts", [[1, 32], [8, 48, 32], [8, 32, 24], [1, 2], [1, 2]],
        [HALF, HALF, HALF, FLOAT, INT], None,
        2 * 2 * (48 * 32 + 32 * 24), 2 * 2 * (48 * 32 + 32 * 24) + 2 * 2 * 32 + 4 * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_operator_of_an_inference_server_has_its_work(tmp_path, case):
    name, shapes, types, values, flop, moved = CASES[case]
    report = list_operators(job(tmp_path / "k_0.json", name, shapes, types, values))
    [row] = report.rows
    assert (row.operator, row.flop, row.bytes) == (name, flop, moved)


def test_experts_whose_weights_have_no_shape_are_told(tmp_path):
    trace = job(
        tmp_path / "k_0.json", "vllm::rocm_aiter_fused_moe", [[100, 32], [9], [9], [100, 2]], [HALF] * 4, None
    )
    [row] = list_operators(trace).uncovered
    assert "the shapes of the experts' weights" in row.why
