"""Where a faster link leads a library to a slower way: every place says why, in the words of `explain`."""

from __future__ import annotations

from pathlib import Path

import pytest

import studio
from studio.advice.advice import advise
from studio.advice.words import as_data, build_bars, format_advice
from studio.analysis.compare.words import describe_comparison
from studio.et import write
from studio.sim.choices import explain_choices, find_slower_ways
from studio.sim.explaining import explain
from studio.sim.parts import Parts, interpret
from studio.sim.setting_edits import with_settings
from studio.store import runs
from studio.store.workspace import Workspace
from tests.handmade import collective, trace_of
from tests.test_cli import run

TRACE = trace_of([[collective(1, "BROADCAST", 1 << 20)]] * 8)


def parts_of(rate: int) -> Parts:
    """One node of MI300X with ports of so many GB/s."""
    return with_settings(studio.preset("mi300x", npus=8).parts, (f"bandwidth=[{rate}]",))


def explained(rate: int) -> str:
    return explain(interpret(parts_of(rate)).config, "broadcast", 1 << 20, range(8)).not_quickest


def test_a_comparison_says_which_way_made_the_faster_network_slower() -> None:
    """At 448 GB/s RCCL takes LL, at 500 Simple, which takes twice as long."""
    slow, fast = (studio.simulate(TRACE, interpret(parts_of(rate)).config) for rate in (448, 500))
    assert fast.makespan_ns > 2 * slow.makespan_ns
    assert explained(448) == ""
    assert explained(500)
    words = describe_comparison(studio.compare(slow, fast))
    assert words.endswith(f"; BROADCAST of 1.00 MiB by 8 ranks: {explained(500)}")
    assert explain_choices(slow) == ""
    assert explain_choices(fast).endswith(explained(500))


def test_simulate_says_it_where_it_changes_the_answer(tmp_path: Path) -> None:
    write(TRACE, tmp_path, "job")
    setting = ("--preset", "mi300x", "--set")
    assert explained(500) in run("simulate", tmp_path, *setting, "bandwidth=[500]").stdout
    assert "is taken though" not in run("simulate", tmp_path, *setting, "bandwidth=[448]").stdout
    fast = studio.simulate(TRACE, interpret(parts_of(500)).config)
    assert [(found.level, found.code) for found in find_slower_ways(fast)] == [("info", "slower-way")]


def test_a_run_that_is_kept_has_what_simulate_said_instead_of_looking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_again(*_args: object) -> str:
        raise AssertionError("it was looked for already")

    write(TRACE, tmp_path / "job", "job")
    monkeypatch.setattr(runs, "explain_choices", look_again)
    given = ("--preset", "mi300x", "--set", "bandwidth=[500]")
    shown = run("simulate", tmp_path / "job", *given, "--out", "kept", "--workspace", tmp_path / "store")
    store = Workspace(tmp_path / "store")
    [info] = store.runs(store.jobs()[0].id)
    assert info.slower_way.endswith(explained(500))
    assert info.slower_way in shown.stdout


def test_advice_says_why_twice_the_bandwidth_takes_longer() -> None:
    advised = advise(TRACE, parts_of(448))
    [rate] = [each for each in advised.sensitivity if each.name.startswith("bandwidth")]
    assert rate.more_ns > advised.baseline.finish_ns
    assert rate.why.startswith(
        "twice as good, 1 of 1 collective is not carried out in the quickest way: BROADCAST"
    )
    assert rate.why.endswith(explained(896))
    assert as_data(advised)["sensitivity"][0]["why"] == rate.why
    assert f"  {rate.name}: {rate.why}" in list(format_advice(advised))
    assert any(bar.words.endswith(rate.why[1:]) for bar in build_bars(advised))


def test_nothing_is_said_where_no_library_chooses() -> None:
    assert (
        explain_choices(studio.simulate(TRACE, studio.preset("mi300x", npus=8).config, model="astra-sim"))
        == ""
    )
