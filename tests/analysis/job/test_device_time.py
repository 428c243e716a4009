"""On jobs with a device, work is what the raw recording says: an independent reading of the profiler's files."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import pytest

import studio
from studio.sim.compared import build_side

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")


def union_ns(events):
    """The time that some event is under way."""
    total, reach = 0, None
    for begin, end in sorted(events):
        if reach is None or begin > reach:
            total, reach = total + end - begin, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def device_work(path):
    """Start and end in ns of each kernel and copy of a Kineto file that is no communication, as written."""
    raw = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return [
        (Decimal(event["ts"]) * 1000, (Decimal(event["ts"]) + Decimal(event["dur"])) * 1000)
        for event in raw["traceEvents"]
        if event.get("cat") in DEVICE and event.get("ph") == "X" and "nccl" not in event["name"].lower()
    ]


@pytest.mark.parametrize(
    "name",
    [
        "public/hta/alexnet_trace.json.gz",
        "public/hta/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "public/hta/triton_example.json.gz",
        "torch_synthetic_device/mnist_1r",
        "torch_synthetic_device/ddp_mlp_4r",
    ],
)
def test_work_of_a_rank_is_the_union_of_its_raw_device_operations(name, shared):
    """To the nanosecond; times that have fractions of one are rounded at either end of an operation."""
    place = shared / "traces" / name
    trace = studio.read(place)
    account = build_side(trace).ledger()
    work = account.totals().of("compute", "copy", "overlapped").tolist()
    for number, ours in zip(account.numbers, work, strict=True):
        raw = device_work(place if place.is_file() else place / f"kineto_{number}.json.gz")
        assert raw
        rounded = sum(bool(begin % 1 or end % 1) for begin, end in raw)
        assert abs(ours - union_ns(raw)) <= rounded
