"""Ranks of several devices: their time by device, and what the verdict says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import studio
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.job.device_parts import compute_device_parts
from studio.pages.overview.verdict import _compute_shares, describe_devices, describe_idle
from studio.timeline import read_recorded_times
from tests.et.pytorch_files import device_file, event, kernel, launch
from tests.test_cli import run


def test_shares_of_the_verdict_are_those_of_a_device(tmp_path: Path) -> None:
    """Two devices work for 100 µs each, half of it at the same time: the rank does for 150, a device for 100."""
    path = tmp_path / "both.json"
    one, other = kernel("k", 0, 100, 1), kernel("k", 50, 100, 2)
    other["args"]["device"] = 1
    path.write_bytes(device_file([event("aten::mm", 0, 150), launch(1, 1), launch(4, 2), one, other]))
    trace = studio.read(path)
    side = build_recorded_side(trace, read_recorded_times(trace))
    account = side.ledger()
    devices = compute_device_parts(trace, side.times, account)
    assert devices is not None
    assert account.totals().of("compute").tolist() == [150_000]
    assert devices.times.of("compute").tolist() == [100_000, 100_000]
    assert (devices.times.ns.sum(axis=1) == account.makespan_ns).all()
    shares = dict(_compute_shares(account, devices))
    assert shares["compute"] == pytest.approx(100_000 / account.makespan_ns)
    assert sum(shares.values()) == pytest.approx(1)
    words = "Rank 0 has 2 devices, and is at work here while any of them is; a device works for 100 µs, in the mean of all 2."
    assert describe_devices(devices).startswith(f"{words} Shares of the finish")
    assert run("breakdown", path).stdout.rstrip().endswith(words)


def test_a_rank_of_one_device_needs_no_word() -> None:
    trace = studio.read(studio.sample_path("imbalance_8r"))
    side = build_recorded_side(trace, read_recorded_times(trace))
    assert compute_device_parts(trace, side.times, side.ledger()) is None
    assert describe_devices(None) == ""


def test_a_jax_recording_tells_the_idle_of_a_device(shared: Path) -> None:
    """Eight devices work for 3.52 ms in the mean, at different times: 12.3 of 158 ms together."""
    trace = studio.read(shared / "traces" / "foreign" / "mi300_jax_conv.xplane.pb")
    side = build_recorded_side(trace, read_recorded_times(trace))
    account = side.ledger()
    devices = compute_device_parts(trace, side.times, account)
    assert devices is not None
    assert "a device works for 3.52 ms, in the mean of all 8." in devices.words()
    assert describe_idle(trace, account).startswith("For 92 % of the finish")
    assert describe_idle(trace, account, devices).startswith(
        "For 98 % of the finish a device has nothing to do"
    )
