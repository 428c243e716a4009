"""Logs of NCCL's Inspector, written by hand from its public source (NVIDIA/nccl, ext-profiler/inspector)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DUMPED_US = 1_748_030_377_748_202


def record(
    rank: int,
    serial: int,
    coll: str = "AllReduce",
    *,
    size: int = 1 << 20,
    took_us: float = 100,
    ranks: int = 4,
    communicator: str = "0x7f8c496ae9f661",
    dumped_us: int = DUMPED_US,
    nodes: int = 2,
    **more: Any,
) -> dict[str, Any]:
    """A line of a log."""
    return {
        "header": {"id": communicator, "rank": rank, "n_ranks": ranks, "nnodes": nodes},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": dumped_us,
            "hostname": f"node-{rank // 2}",
            "pid": 1000 + rank,
        },
        "coll_perf": {
            "coll": coll,
            "coll_sn": serial,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": took_us,
            "coll_algobw_gbs": 1.0,
            "coll_busbw_gbs": 1.0,
            **more,
        },
    }


def write_logs(folder: Path, logs: Sequence[Sequence[dict[str, Any]]]) -> Path:
    """Write a log for each process, named by host and process as the Inspector does."""
    folder.mkdir(exist_ok=True)
    for records in logs:
        told = records[0]["metadata"]
        lines = "".join(f"{json.dumps(each)}\n" for each in records)
        (folder / f"{told['hostname']}-pid{told['pid']}.log").write_text(lines)
    return folder


def four_ranks() -> list[list[dict[str, Any]]]:
    """Four processes on two nodes: all-reduces, all-gathers and reduce-scatters of three sizes, rank 2 early."""
    logs = []
    for rank in range(4):
        records = []
        for serial, size in enumerate((1 << 16, 1 << 20, 1 << 24)):
            late = 500 if rank == 2 else 0
            for coll, factor in (("AllReduce", 1), ("AllGather", 2), ("ReduceScatter", 3)):
                records.append(
                    record(rank, serial, coll, size=size, took_us=factor * (10 + size // 10_000) + late)
                )
        logs.append(records)
    return logs
