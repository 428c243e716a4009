"""Ranks of several devices: their time by device, and what the verdict says of it."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

import studio
from studio.analysis.compare.runs import compare
from studio.analysis.compare.sides import build_recorded_side
from studio.analysis.compare.words import explain_devices
from studio.analysis.job.measures import measure
from studio.comparing import Compared, build_compared_recording
from studio.pages.overview.verdict import _compute_shares, describe_devices, describe_idle
from studio.reporting import build_report
from studio.session import Session
from studio.store.workspace import Workspace
from studio.timeline import read_recorded_times
from tests.et.pytorch_files import device_file, event, kernel, launch
from tests.handmade import at, collective, node, trace_of
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
    devices = side.device_parts(account)
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
    assert side.device_parts(side.ledger()) is None
    assert describe_devices(None) == ""


def test_a_jax_recording_tells_the_idle_of_a_device(shared: Path) -> None:
    """Eight devices work for 3.52 ms in the mean, at different times: 12.3 of 158 ms together."""
    trace = studio.read(shared / "traces" / "foreign" / "mi300_jax_conv.xplane.pb")
    side = build_recorded_side(trace, read_recorded_times(trace))
    account = side.ledger()
    devices = side.device_parts(account)
    assert devices is not None
    assert "a device works for 3.52 ms, in the mean of all 8." in devices.words()
    assert describe_idle(trace, account).startswith("For 92 % of the finish")
    assert describe_idle(trace, account, devices).startswith(
        "For 98 % of the finish a device has nothing to do"
    )


def test_trends_compare_and_report_tell_the_time_of_a_device(tmp_path: Path) -> None:
    """Two devices that take turns are each at work for half of the time: so is the rank in the mean, as on Overview."""

    def record(name: str, length: int) -> Compared:
        path = tmp_path / name
        one, other = kernel("k", 0, length, 1), kernel("k", length, length, 2)
        other["args"]["device"] = 1
        path.write_bytes(
            device_file([event("aten::mm", 0, 2 * length), launch(1, 1), launch(4, 2), one, other])
        )
        trace = studio.read(path)
        return build_compared_recording(trace, name, times=read_recorded_times(trace))

    a, b = record("a.json", 100), record("b.json", 200)
    session = Session(Workspace(tmp_path / "store"))
    job = session.workspace.save(a.side.trace, "a")
    shares = session.measures(job, "").shares
    account = a.side.ledger()
    assert shares == pytest.approx(dict(measure(account, None, a.side.device_parts(account)).shares))
    assert shares["compute"] == pytest.approx(100_000 / a.side.makespan_ns)
    comparison = compare(a.side, b.side)
    [compute] = [figure for figure in comparison.figures if figure.key == "compute"]
    assert (compute.a, compute.b) == (100_000, 200_000)
    for basis in ("busiest", "mean"):
        steps = comparison.waterfall(basis).steps
        assert [(step.a_ns, step.b_ns) for step in steps if step.part == "compute"] == [(100_000, 200_000)]
        assert sum(step.b_ns for step in steps) == b.side.makespan_ns
    assert explain_devices(comparison).startswith("Ranks of A and B have several devices")
    assert "mean of a device" in repr(comparison._repr_html_())
    page = html.unescape(build_report([a, b]))
    assert "Ranks of A and B have several devices" in page
    assert "mean of a device" in page
    assert "mean of a rank" not in page


def test_waiting_for_other_ranks_is_told_of_each_device(tmp_path: Path) -> None:
    """What a device waits for lies on the same device of another rank, or on another one: it is looked for in all of them."""
    first = [
        at(1, 100, collective(1, "ALL_REDUCE", 1024, stream=7, device=0)),
        at(1, 100, node(2, "COMP", stream=8, device=1)),
    ]
    second = [
        at(1, 60, node(1, "COMP", stream=7, device=0)),
        at(61, 40, collective(2, "ALL_REDUCE", 1024, stream=8, device=1)),
    ]
    trace = trace_of([first, second])
    side = build_recorded_side(trace, read_recorded_times(trace))
    devices = side.device_parts(side.ledger())
    assert devices is not None
    assert devices.owner.tolist() == [0, 1, 0, 1]
    assert devices.times.of("waiting").tolist() == [60_000, 0, 0, 0]
    assert devices.times.of("communication").tolist() == [40_000, 0, 0, 40_000]
