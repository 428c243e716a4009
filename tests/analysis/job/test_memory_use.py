"""Memory over time, held against the raw files of recordings and hand-drawn ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from click.testing import CliRunner

import studio
from studio.analysis.job.memory import BEFORE, HOST_MEMORY, Holder, MemoryUse, compute_memory_use
from studio.analysis.timeline.counters import sum_memory_held
from studio.cli import main
from studio.pages.simulate.recompute import show_unfit
from studio.sim.doubted_memory import describe_unfit
from studio.sim.presets import preset
from studio.sim.systems.gpus import find_gpu
from studio.timeline import read_recorded_times
from tests.et.pytorch_files import device_file, event, host_file, node, rank_files, tensor


def noted(
    at_us: float, size: int, total: int, address: int, *, device: int = 0, tid: int = 7
) -> dict[str, Any]:
    """An allocation as profilers write it; device -1 is the processor."""
    args = {"Addr": address, "Bytes": size, "Total Allocated": total, "Total Reserved": 4096}
    args |= {"Device Id": device, "Device Type": 0 if device < 0 else 1}
    head = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": tid}
    return head | {"ts": at_us, "args": args}


DRAWN = [
    event("aten::outer", 10, 40, external=1),
    event("aten::inner", 20, 10, external=2),
    event("aten::last", 60, 10, external=3),
    # 1,000 bytes were there before; 300 by inner, 200 by outer, of which 300 go between the operators; 50 more at last.
    noted(22, 300, 1300, 64),
    noted(35, 200, 1500, 128),
    noted(36, 8, 8, 64, device=-1),
    noted(55, -300, 1200, 64),
    noted(61, 50, 1250, 64),
    noted(5, -1, 1000, 512),
]


def of(path: Path) -> list[MemoryUse]:
    trace = studio.read(path)
    return compute_memory_use(trace, read_recorded_times(trace))


def test_the_peak_is_where_it_was_noted_and_held_by_who_allocated_it(tmp_path: Path) -> None:
    """What was freed before the peak is not in it, what was there before the recording is."""
    path = tmp_path / "kineto_0.json"
    path.write_bytes(device_file(DRAWN))
    host, device = of(path)
    assert (host.device, host.peak_bytes, host.before_bytes) == (HOST_MEMORY, 8, 0)
    assert (device.device, device.peak_bytes, device.reserved_bytes, device.noted) == (0, 1500, 4096, True)
    assert device.holders == (
        Holder(BEFORE, 1000, 0),
        Holder("aten::inner", 300, 1),
        Holder("aten::outer", 200, 1),
    )
    # The recording begins with the first operator, at 10 µs; the first free came before it.
    assert device.time_ns.tolist() == [0, 12_000, 25_000, 45_000, 51_000]
    assert device.bytes.tolist() == [1000, 1300, 1500, 1200, 1250]
    assert device.before_bytes == 1001
    assert device.peak_ns == 25_000


def test_memory_survives_chakra_files(tmp_path: Path) -> None:
    path = tmp_path / "kineto_0.json"
    path.write_bytes(device_file(DRAWN))
    studio.write(studio.read(path), tmp_path / "out", "job")
    [written] = (tmp_path / "out").glob("*.et")
    for before, after in zip(of(path), of(written), strict=True):
        assert (before.peak_bytes, before.holders) == (after.peak_bytes, after.holders)
        np.testing.assert_array_equal(before.bytes, after.bytes)


def test_the_counter_is_the_sum_of_all_ranks_devices(tmp_path: Path) -> None:
    path = tmp_path / "kineto_0.json"
    path.write_bytes(device_file(DRAWN))
    [device] = [use for use in of(path) if use.device == 0]
    [series] = sum_memory_held([device, device], 60_000)
    assert list(series.steps.changes(0, 60_000)) == [
        (0, 12_000, 2000.0),
        (12_000, 25_000, 2600.0),
        (25_000, 45_000, 3000.0),
        (45_000, 51_000, 2400.0),
        (51_000, 60_000, 2500.0),
    ]


def test_without_notes_storages_live_from_first_to_last_use(tmp_path: Path) -> None:
    """Storage 101 is taken in, 102 given out and taken by the last; 103 is reused after a pause, as another tensor."""
    a, b, c = tensor(1, 10), tensor(2, 100), tensor(3, 1000)
    nodes = [
        node(3, "aten::first", rf_id=1, inputs=[a], outputs=[c]),
        node(4, "aten::second", rf_id=2, inputs=[a, c], outputs=[b]),
        node(5, "aten::third", rf_id=3, inputs=[b], outputs=[]),
        node(6, "aten::fourth", rf_id=4, inputs=[b], outputs=[c]),
    ]
    names = ("aten::first", "aten::second", "aten::third", "aten::fourth")
    events = [event(name, 10 * at, 5, rf=at) for at, name in enumerate(names, 1)]
    rank_files(tmp_path, 0, host_file(nodes), device_file(events))
    [use] = of(tmp_path)
    assert (use.device, use.noted, use.reserved_bytes) == (HOST_MEMORY, False, -1)
    level = dict(zip(use.time_ns.tolist(), use.bytes.tolist(), strict=True))
    # a from 10 µs on; c is there when the first returns, until the second has; then b, until the fourth returns.
    assert level[0] == 40
    assert level[5_000] == 4040
    assert level[15_000] == 400
    assert (use.peak_bytes, use.peak_ns) == (4040, 5_000)
    assert use.holders == (Holder("aten::first", 4040, 2),)


def raw_totals(file: Path) -> dict[int, int]:
    """The highest total of each device, as the raw file tells it."""
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    peaks: dict[int, int] = {}
    for one in events:
        if one.get("name") == "[memory]":
            args = one["args"]
            device = -1 if args["Device Type"] == 0 else args["Device Id"]
            peaks[device] = max(peaks.get(device, 0), args["Total Allocated"])
    return peaks


def test_peaks_are_those_of_the_raw_files(shared: Path) -> None:
    """A recording on a processor and one on a GPU; every allocation is kept."""
    for name in ("torch/mnist_stack/kineto.json.gz", "foreign/h100_timesformer__1016002.json.gz"):
        file = shared / "traces" / name
        found = {use.device: use for use in of(file)}
        assert {device: use.peak_bytes for device, use in found.items()} == raw_totals(file)
        for use in found.values():
            assert sum(one.bytes for one in use.holders) == use.peak_bytes


def test_what_a_gpu_cannot_hold_is_told_with_both_sizes(shared: Path) -> None:
    """4.49 GB do not fit where there are 4; the command says so of a GPU by name only where it is true."""
    file = shared / "traces/foreign/h100_timesformer__1016002.json.gz"
    uses = of(file)
    small = type(
        "Small", (), {"name": "Small", "tera_flops": {}, "memory_bytes_per_ns": 1.0, "memory_gbytes": 4.0}
    )
    words = describe_unfit(uses, small())
    assert words.startswith("Does not fit: rank 0 holds 4.49 GB")
    assert words.endswith("Small has 4 GB.")
    assert describe_unfit(uses, find_gpu("rtx-2080ti")) == ""


def test_the_command_lists_peaks_and_warns(tmp_path: Path) -> None:
    path = tmp_path / "kineto_0.json"
    giga = 10**9
    path.write_bytes(device_file([*DRAWN[:3], noted(22, 12 * giga, 12 * giga, 64)]))
    done = CliRunner().invoke(main, ["memory", str(path), "--gpu", "rtx-2080ti", "--json", "--allow-damaged"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    [use] = told["memory"]
    assert (use["peak_bytes"], use["noted"]) == (12 * giga, True)
    assert use["holders"] == [{"operator": "aten::inner", "bytes": 12 * giga, "count": 1}]
    assert "12.0 GB" in told["unfit"]
    assert "RTX 2080 Ti" in told["unfit"]


def test_a_preset_whose_gpus_are_too_small_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "kineto_0.json"
    drawn = [*DRAWN[:3], noted(22, 12 * 10**9, 12 * 10**9, 64)]
    path.write_bytes(device_file(drawn, distributedInfo={"rank": 0, "world_size": 1}))
    for name, warns in (("rtx-2080ti", True), ("hgx-h100", False)):
        done = CliRunner().invoke(main, ["simulate", str(path), "--preset", name, "--json"])
        codes = [finding["code"] for finding in json.loads(done.stdout)["findings"]]
        assert ("does-not-fit" in codes) == warns
        # The form says so before anything is simulated.
        said = show_unfit(of(path), preset(name, 1).config, name)
        assert bool(said) == warns
        assert said is None or "rank 0 holds 12.0 GB" in said.children


def test_info_and_report_tell_the_peak(tmp_path: Path) -> None:
    path = tmp_path / "kineto_0.json"
    path.write_bytes(device_file(DRAWN))
    told = CliRunner().invoke(main, ["info", str(path), "--json", "--allow-damaged"])
    peaks = [
        {"rank": 0, "device": HOST_MEMORY, "peak_bytes": 8, "known": "noted"},
        {"rank": 0, "device": 0, "peak_bytes": 1500, "known": "noted"},
    ]
    assert json.loads(told.stdout)["memory"] == peaks
    said = CliRunner().invoke(main, ["info", str(path), "--allow-damaged"]).stdout
    assert "  memory peak   1.46 KiB on device 0 of rank 0, noted\n" in said
    made = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["report", str(path), "-o", str(made), "--allow-damaged"])
    assert done.exit_code == 0, done.output
    html = made.read_text(encoding="utf-8")
    assert "Memory at the peak" in html
    assert "before the recording 1,000 B; aten::inner 300 B; aten::outer 200 B" in html


def test_many_ranks_are_listed_by_the_highest_peaks_and_equal_ones_together() -> None:
    """A thousand ranks with the same peaks took thousands of lines."""
    from studio.commands.memory import Listed, text

    side = SimpleNamespace(name="job")

    def use_of(rank: int, peak: int) -> MemoryUse:
        nothing = np.zeros(0, np.int64)
        return MemoryUse(
            rank, 0, nothing, nothing, 0, peak, 7_000, -1, (Holder("aten::add", peak, 1),), noted=True
        )

    few = [use_of(rank, 1000) for rank in range(16)]
    assert text(Listed(side, few, "")).splitlines()[1::2] == [
        f"rank {rank}, device 0: 1,000 B at 7.00 µs" for rank in range(16)
    ]
    many = [use_of(rank, 100 * (1 + rank % 20)) for rank in range(1000)]
    lines = text(Listed(side, many, "")).splitlines()
    assert len(lines) == 2 + 2 * 16
    assert lines[1] == "50 ranks like 19, device 0: 1.95 KiB at 7.00 µs"
    assert lines[-1] == "and 200 more peaks of 100 B to 400 B; --json lists all"
