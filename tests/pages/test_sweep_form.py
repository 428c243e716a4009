"""The settings that Sweep begins with can be simulated, whatever the size of the job and the system."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from studio.errors import ConfigError
from studio.jobs.sweeps import Asked, Kept
from studio.pages.explain import form as explain_form
from studio.pages.sweep import form, results
from studio.sim.presets import PRESETS, preset
from studio.sim.replays import as_replay
from studio.sweep.space import parse_space
from studio.sweep.sweep import Sweep, refuse_impossible, run_sweep
from studio.sweep.systems import Base, build_parts_at
from studio.trace import Trace
from tests.handmade import node, recorded_on, trace_of


@pytest.mark.parametrize("ranks", [1, 2, 8, 16, 64])
def test_the_first_settings_fit_every_system(monkeypatch, ranks):
    trace = trace_of({rank: [node(1, "COMP")] for rank in range(ranks)})
    monkeypatch.setattr(form, "get_session", lambda: SimpleNamespace(trace=lambda _job: trace))
    fitting = [name for name, one in PRESETS.items() if one.system.fits(ranks)]
    assert len(fitting) > 10
    for name in fitting:
        space = parse_space(form.choose_first_settings("job", name).splitlines())
        build_parts_at(Base(name), space.point(0), ranks)
        assert ("bandwidth[1]" in space.keys) == (
            len(PRESETS[name].system.parts(ranks).network["npus_count"]) > 1
        )


def test_a_sweep_is_refused_only_where_no_point_has_a_system():
    """One value that can be is enough, wherever it stands."""
    for varied, fine in (
        (["preset=no-such,hgx-h100"], True),
        (["preset=no-such,neither"], False),
        (["bandwidth[1]=1..9000"], False),
        (["dp=3"], True),
    ):
        sweep = Sweep(parse_space(varied), Base("hgx-h100"))
        if fine:
            refuse_impossible(sweep, 8)
        else:
            with pytest.raises(ConfigError, match="allowed"):
                refuse_impossible(sweep, 8)


def eight_ranks_on(device: str) -> Trace:
    """A job of eight ranks that was recorded on a device."""
    return recorded_on(trace_of({rank: [node(1, "COMP")] for rank in range(8)}), device)


@pytest.mark.parametrize(
    ("preset_name", "varied", "unit"),
    [
        ("hgx-h100", (), "GB/s"),
        ("hgx-h100", ("preset=hgx-h100,hgx-a100",), "GB/s"),
        ("hgx-h100", ("bandwidth-unit=GB/s,GiB/s",), None),
        ("no-such", (), None),
    ],
)
def test_results_name_what_was_varied_and_units_that_hold_at_all_points(
    monkeypatch, preset_name, varied, unit
):
    monkeypatch.setattr(
        results, "get_session", lambda: SimpleNamespace(trace=lambda _job: eight_ranks_on(""))
    )
    asked = Asked("job", ("bandwidth[0]=100,200", "latency[0]=1,2", *varied), preset_name, draw=3)
    sweep = Kept("s", asked, Path())
    units = results.collect_units(sweep)
    assert (units.get("bandwidth[0]"), units["latency[0]"]) == (unit, "ns")
    words = results.describe_sweep(sweep)
    assert words.startswith(f"Varied on {preset_name}: bandwidth[0]=100,200; latency[0]=1,2")
    assert words.endswith(" · 3 points at random")


def kept(name: str, *, replay: bool):
    parts = preset("hgx-h100", 8).parts
    return SimpleNamespace(id=name, name=name, tables=as_replay(parts) if replay else parts)


@pytest.mark.parametrize(
    ("shown", "names", "first"),
    [
        (None, ["before advice", "advice: more bandwidth", "mine"], "run:mine"),
        ("advice: more bandwidth", ["advice: more bandwidth", "mine"], "run:advice: more bandwidth"),
        ("replay", ["replay", "mine"], "run:mine"),
        ("replay", ["replay"], "mi300x"),
        (None, ["before advice", "sweep point 1: latency[0]=5"], "mi300x"),
    ],
    ids=["not of advice", "the one that is shown", "no replay", "as proposed", "nothing of the user"],
)
def test_a_sweep_begins_with_a_system_of_the_user_else_with_that_of_the_recording(
    monkeypatch, shown, names, first
):
    runs = [kept(name, replay=name == "replay") for name in names]
    monkeypatch.setattr(form, "get_workspace", lambda: SimpleNamespace(runs=lambda _job: runs))
    trace = eight_ranks_on("AMD Instinct MI300X")
    monkeypatch.setattr(form, "get_session", lambda: SimpleNamespace(trace=lambda _job: trace))
    assert form.choose_first_system("job", shown) == first


@pytest.mark.parametrize(
    ("device", "run", "first"),
    [
        ("AMD Instinct MI300X", None, "mi300x"),
        ("AMD Instinct MI300X", "recorded", "mi300x"),
        ("a chip of its own", None, "hgx-h100"),
        ("AMD Instinct MI300X", "simulated", "run"),
    ],
)
def test_explain_begins_with_the_devices_of_the_recording(monkeypatch, device, run, first):
    trace = eight_ranks_on(device)
    monkeypatch.setattr(explain_form, "get_session", lambda: SimpleNamespace(trace=lambda _job: trace))
    assert explain_form.choose_first_system({"job": "job", "run": run}) == first


def test_the_network_of_a_replay_is_not_swept(tmp_path):
    replay = Base(tables=as_replay(preset("hgx-h100", 8).parts))
    for varied in (["bandwidth[0]=100,200"], ["extended.compute-slots=1,2", "costs.algorithm=ring,tree"]):
        with pytest.raises(ConfigError, match="the system is a replay"):
            refuse_impossible(Sweep(parse_space(varied), replay), 8)
        with pytest.raises(ConfigError, match="the system is a replay"):
            run_sweep(eight_ranks_on("H100"), Sweep(parse_space(varied), replay), tmp_path / "out")
    for varied in (
        ["extended.compute-slots=1,2"],
        ["bandwidth[0]=100,200", "model=full"],
        ["latency[0]=1,2", "extended.communication-times=simulated,recorded"],
        ["preset=hgx-h100", "latency[0]=1,2"],
    ):
        refuse_impossible(Sweep(parse_space(varied), replay), 8)
