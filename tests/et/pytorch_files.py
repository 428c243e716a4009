"""PyTorch execution traces and Kineto traces put together by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = "[pytorch|profiler|execution_trace|process]"
THREAD = "[pytorch|profiler|execution_trace|thread]"


def tensor(identity: int, elements: int = 4, device: str = "cpu") -> list[Any]:
    """A tensor of 4-byte elements as recorders write it; its storage is 100 + identity."""
    return [identity, 100 + identity, 0, elements, 4, device]


def node(
    number: int,
    name: str,
    parent: int = 2,
    *,
    rf_id: int = 0,
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    **attrs: Any,
) -> dict[str, Any]:
    """A node of the layout since 1.0.2."""
    values = {
        "rf_id": rf_id,
        "fw_parent": 0,
        "seq_id": -1,
        "scope": 0,
        "tid": 1,
        "fw_tid": 0,
        "op_schema": "",
    } | attrs
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {"values": list(inputs), "shapes": [[] for _ in inputs], "types": ["x" for _ in inputs]},
        "outputs": {
            "values": list(outputs),
            "shapes": [[] for _ in outputs],
            "types": ["x" for _ in outputs],
        },
        "attrs": [
            {"name": key, "type": "string" if isinstance(value, str) else "uint64", "value": value}
            for key, value in values.items()
        ],
    }


def host_file(nodes: Sequence[dict[str, Any]], *, pid: int = 7, **head: Any) -> bytes:
    """An execution trace; the roots are added."""
    roots = [node(2, THREAD, 1), node(1, ROOT, 1, tid=0)]
    content = {
        "schema": "1.1.1-chakra.0.0.4",
        "pid": pid,
        "start_ts": 1,
        "nodes": [*roots, *nodes],
        "finish_ts": 2,
    }
    return json.dumps(content | head).encode()


def event(
    name: str,
    start_us: float,
    duration_us: float,
    cat: str = "cpu_op",
    *,
    tid: Any = 7,
    pid: Any = 7,
    **args: Any,
) -> dict[str, Any]:
    """A complete event; underlines in argument names stand for spaces."""
    named = {_ARGS.get(key, key): value for key, value in args.items()}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start_us,
        "dur": duration_us,
        "args": named,
    }


_ARGS = {
    "rf": "Record function id",
    "external": "External id",
    "collective": "Collective name",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "group": "Process Group Name",
    "group_ranks": "Process Group Ranks",
}


def kernel(
    name: str, start_us: float, duration_us: float, correlation: int, *, stream: int = 7, **args: Any
) -> dict[str, Any]:
    cat = args.pop("cat", "kernel")
    return event(
        name,
        start_us,
        duration_us,
        cat,
        pid=0,
        tid=stream,
        stream=stream,
        device=0,
        correlation=correlation,
        **args,
    )


def launch(
    start_us: float, correlation: int, name: str = "cudaLaunchKernel", duration_us: float = 2, **args: Any
) -> dict[str, Any]:
    return event(name, start_us, duration_us, "cuda_runtime", correlation=correlation, **args)


def device_file(events: Sequence[dict[str, Any]], **head: Any) -> bytes:
    """A Kineto trace."""
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events)} | head).encode()


def rank_files(folder: Path, number: int, host: bytes, device: bytes) -> list[Path]:
    """Write both files of a rank; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"pytorch_et_{number}.json", folder / f"kineto_{number}.json"]
    for path, content in zip(paths, (host, device), strict=True):
        path.write_bytes(content)
    return paths


def small_rank(number: int = 0, *, shift_us: float = 0, pid: int = 7) -> tuple[bytes, bytes]:
    """A rank of two: a matrix product on the device, an all-reduce of its result by NCCL, a copy back."""
    group = json.dumps([{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}])
    a, b = tensor(10, 256, "cuda:0"), tensor(11, 64, "cuda:0")
    host = host_file(
        [
            node(3, "## process_group:init ##", rf_id=1, inputs=[group]),
            node(4, "ProfilerStep#1", rf_id=2),
            node(5, "aten::mm", 4, rf_id=3, inputs=[a, a], outputs=[b]),
            node(6, "c10d::allreduce_", 4, rf_id=4, inputs=[[b], "<Object>", "<Object>"], outputs=[[b]]),
            node(
                7, "record_param_comms", 6, rf_id=5, inputs=[[b]], collective_name="allreduce", dtype="Float",
                in_msg_nelems=64, out_msg_nelems=64, pg_name="0", pg_size=2, global_rank_start=0, global_rank_stride=1,
            ),
            node(8, "nccl:all_reduce", 7, rf_id=6, inputs=[b]),
            node(9, "aten::item", 4, rf_id=7, inputs=[b]),
        ],
        pid=pid,
    )  # fmt: skip
    at = shift_us
    device = device_file(
        [
            event("ProfilerStep#1", at, 1000, "user_annotation", rf=2, pid=pid),
            event("aten::mm", at + 10, 30, rf=3, pid=pid),
            launch(at + 20, 501, pid=pid),
            kernel("gemm", at + 30, 200, 501),
            event("c10d::allreduce_", at + 60, 40, rf=4, pid=pid),
            event("record_param_comms", at + 62, 36, rf=5, pid=pid),
            event("nccl:all_reduce", at + 65, 30, "user_annotation", rf=6, pid=pid),
            launch(at + 70, 502, "cudaLaunchKernelExC", pid=pid),
            kernel(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at + 240, 100, 502, stream=20, collective="allreduce",
                in_elements=64, out_elements=64, dtype="Float", group="0", group_ranks="[0, 1]",
            ),
            event("aten::item", at + 120, 300, rf=7, pid=pid),
            launch(at + 130, 503, "cudaMemcpyAsync", pid=pid),
            kernel("Memcpy DtoH", at + 345, 5, 503, cat="gpu_memcpy", bytes=4),
            launch(at + 135, 504, "cudaStreamSynchronize", 280, pid=pid),
            event("Stream Sync", at + 136, 270, "cuda_sync", pid=0, tid=7, stream=7, correlation=504, device=0),
        ],
        distributedInfo={
            "backend": "nccl", "rank": number, "world_size": 2,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}],
        },
        baseTimeNanoseconds=1_700_000_000_000_000_000,
        host_name=f"node{number}",
    )  # fmt: skip
    return host, device


def one_of_eight() -> bytes:
    """The Kineto trace of rank 0 of 8 that train: a forward and a backward product, and an all-reduce of gradients."""
    members = list(range(8))
    return device_file(
        [
            event("ProfilerStep#1", 0, 1000, "user_annotation"),
            event("aten::mm", 10, 30),
            launch(20, 501),
            kernel("gemm_forward", 30, 200, 501),
            event("autograd::engine::evaluate_function: MmBackward0", 50, 60),
            launch(60, 502),
            kernel("gemm_backward", 235, 250, 502),
            event("record_param_comms", 120, 36),
            launch(125, 503, "cudaLaunchKernelExC"),
            kernel(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 490, 300, 503, stream=20, collective="allreduce",
                in_elements=1 << 22, out_elements=1 << 22, dtype="Float", group="0", group_ranks=str(members),
            ),
            launch(160, 504, "cudaDeviceSynchronize", 700),
        ],
        distributedInfo={
            "backend": "nccl", "rank": 0, "world_size": 8,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": members}],
        },
        deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
        baseTimeNanoseconds=1_700_000_000_000_000_000,
    )  # fmt: skip
