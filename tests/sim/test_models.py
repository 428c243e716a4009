"""The choice of a model: what it sets, what it leaves alone, and what runs of several models are not said to be."""

from __future__ import annotations

from dataclasses import replace

import pytest

import studio
from studio.analysis.compare.words import describe_comparison
from studio.errors import ConfigError
from studio.sim import simulate
from studio.sim.check import check
from studio.sim.compute import compute_times
from studio.sim.doubts import doubts_of
from studio.sim.models import FULL, apply_model, get_model, label_system_model, with_model
from studio.sim.parts import EXTENDED, interpret
from studio.sim.presets import PRESETS, preset
from studio.sim.setting_edits import with_mode, with_value
from studio.sim.settings import BY_KEY
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled
from tests.recordings import read_recording

EIGHT = "hgx-h100-8"


def test_presets_are_of_the_full_model_unless_another_is_asked_for():
    for name, one in PRESETS.items():
        assert one.config.model == "full", name
        assert one.config.extensions.communication_slots == FULL["communication-slots"]
    with pytest.raises(ConfigError, match="links is there"):
        with_model(preset("hgx-h100-32-rails").parts, "astra-sim")


def test_without_costs_the_latency_of_a_link_is_that_of_their_hops():
    full = preset("dgx-superpod-a100", npus=16).parts
    assert full.network["latency"] == [0, 0]
    config = interpret(full).config
    hops = [config.costs.value(f"hop LL {place}") for place in ("inside", "between")]
    assert hops[1] > hops[0] > 100
    assert with_model(full, "astra-sim").network["latency"] == hops
    assert [dim.latency_ns for dim in apply_model(config, "astra-sim").topology.dims] == hops


@pytest.mark.parametrize("name", [name for name, one in PRESETS.items() if one.config.links is None])
def test_astra_sim_is_what_the_full_model_was_made_of(name):
    """There and back: the tables, and the configuration that is made of one, are those of the reference."""
    plain = preset(name).under("astra-sim")
    full = with_model(plain, "full")
    assert (label_system_model(plain), label_system_model(full)) == ("astra-sim unaware", "full")
    assert with_model(full, "astra-sim") == plain
    assert with_model(full, "full") == full
    assert apply_model(interpret(full).config, "astra-sim") == interpret(plain).config
    assert apply_model(interpret(plain).config, "full") == interpret(full).config


def test_rates_in_gb_stay_the_same_rates_under_the_model_of_astra_sim():
    parts = with_model(preset("hgx-h100-16").parts, "full")
    parts = replace(parts, network={**parts.network, "bandwidth-unit": "GB/s", "bandwidth": [450, 50]})
    plain = with_model(parts, "astra-sim")
    assert "bandwidth-unit" not in plain.network
    rates = [dim.bytes_per_ns for dim in interpret(plain).config.topology.dims]
    assert rates == pytest.approx([450, 50], rel=1e-15)


def test_settings_that_a_system_has_stay_in_the_full_model():
    parts = with_value(
        with_mode(preset(EIGHT).under("astra-sim"), "extended"), BY_KEY["communication-slots"], 3
    )
    assert with_model(parts, "full").system[EXTENDED] == {**FULL, "communication-slots": 3}
    assert get_model(parts) == "extended"


def test_the_library_takes_a_model():
    trace = trace_of([[collective(1, "ALL_REDUCE", 1 << 20)]] * 8)
    config = preset(EIGHT).config
    reference = simulate(trace, config, model="astra-sim", native=compiled())
    assert reference.config.model == "astra-sim"
    assert (
        reference.makespan_ns
        == simulate(
            trace, interpret(with_model(preset(EIGHT).parts, "astra-sim")).config, native=compiled()
        ).makespan_ns
    )
    assert simulate(trace, config, native=compiled()).config.model == "full"


@pytest.mark.parametrize(
    ("nodes", "groups"),
    [
        ([collective(1, "BROADCAST", 1 << 20)], None),
        ([collective(1, "ALL_REDUCE", 1 << 20, group="tensor parallel")], {"tensor parallel": range(8)}),
        ([node(1, "METADATA"), collective(2, "BARRIER", 0, 1)], None),
        ([collective(1, "REDUCE", 1 << 20), collective(2, "GATHER", 1 << 12, 1)], None),
    ],
    ids=["broadcast", "named group", "metadata and barrier", "reduce and gather"],
)
def test_what_astra_sim_refuses_simulates_at_the_first_try(nodes, groups):
    result = simulate(trace_of([nodes] * 8, groups), preset(EIGHT).config, native=compiled())
    assert result.makespan_ns > 1000


@pytest.mark.parametrize("job", ["ddp_mlp_4r", "dp2tp2_mlp_4r", "dlrm_4r", "fsdp_gpt_2r", "pp_2r"])
def test_a_linked_pytorch_job_simulates_at_the_first_try(job, shared):
    """Without an option or a repair, on a preset of its size."""
    trace = read_recording(shared / "traces" / "torch" / job)
    config = preset("hgx-h100", npus=len(trace.ranks)).config
    assert [finding.message for finding in check(trace, config) if finding.level == "error"] == []
    result = simulate(trace, config)
    assert result.config.model == "full"
    assert [doubt for doubt in doubts_of(result) if doubt.impossible] == []


def test_an_uneven_all_to_all_simulates_at_the_first_try():
    ranks = [[collective(1, "ALL_TO_ALL", (rank + 1) << 16)] for rank in range(8)]
    assert simulate(trace_of(ranks), preset(EIGHT).config, native=compiled()).makespan_ns > 1000


# ---------------------------------------------------------------------------------------------------
# Compute


def test_a_recorded_duration_is_kept_and_the_roofline_serves_nodes_without_one():
    """Of 1,000 operations on 1,000,000 bytes at 3,350 bytes per ns the roofline makes 298 ns."""
    nodes = [
        node(1, "COMP", micros=5, num_ops=1000, tensor_size=1_000_000),
        node(2, "COMP", 1, num_ops=1000, tensor_size=1_000_000),
        node(3, "COMP", 2, micros=7),
        node(4, "COMP", 3),
    ]
    trace, config = trace_of([nodes] * 8), preset(EIGHT).config

    def took(config, model=None):
        result = simulate(trace, config, model=model, native=compiled())
        ticks, rows, ends = result.events_of(0)
        return [int(ticks[(rows == row) & ends][0] - ticks[(rows == row) & ~ends][0]) for row in range(4)]

    assert took(config) == [5000, 298, 7000, 1]
    kept = compute_times(trace, config)
    assert (kept.recorded, kept.roofline, kept.unknown) == (16, 8, 8)
    assert kept.words == (
        "compute: recorded on 50 % of nodes, roofline on 25 %, no time known (1 ns each) on 25 %, "
        "at peak rates: hardware takes longer"
    )
    anew = replace(config, extensions=replace(config.extensions, compute_times="roofline"))
    assert took(anew) == [298, 298, 7000, 1]
    assert compute_times(trace, anew).roofline == 16
    with pytest.raises(studio.TraceError, match="num_ops' is missing"):
        took(config, "astra-sim")


def test_compute_of_a_job_without_a_gpu_is_said_to_be_that_of_processors():
    operator = node(1, "COMP", name="aten::mm", micros=5, is_cpu_op=True)
    on_processors = trace_of([[operator, collective(2, "ALL_REDUCE", 1 << 20, 1)]] * 8)
    config = preset(EIGHT).config
    times = compute_times(on_processors, config)
    assert (times.all, times.processor) == (0, 8)
    assert times.words == "compute: recorded on processors (CPU), since no operation of a GPU was recorded"
    assert simulate(on_processors, config, native=compiled()).makespan_ns > 5_000

    kernel = node(3, "COMP", name="gemm", micros=5, is_cpu_op=False)
    with_gpu = compute_times(trace_of([[operator, kernel]] * 8), config)
    assert (with_gpu.recorded, with_gpu.processor) == (8, 0)


# ---------------------------------------------------------------------------------------------------
# Never ranked


def test_runs_of_different_models_are_shown_with_both_times_and_not_ranked():
    trace = trace_of([[collective(1, "ALL_REDUCE", 1 << 30)]] * 8)
    config = preset(EIGHT).config
    full, reference = (
        simulate(trace, config, model=model, native=compiled()) for model in ("full", "astra-sim")
    )
    assert full.makespan_ns != reference.makespan_ns
    sentence = describe_comparison(studio.compare(full, reference))
    assert "faster than" not in sentence
    assert "%" not in sentence
    assert "different models (full; astra-sim unaware)" in sentence
    slower = simulate(trace, preset("hgx-a100-8").config, native=compiled())
    assert "slower" in describe_comparison(studio.compare(full, slower))


def test_files_of_the_full_model_say_so(tmp_path):
    """The reference has no key for its two programs, so the table that it does not read holds it."""
    for name in (EIGHT, "hgx-h100-32-rails"):
        config = preset(name).config
        files = studio.write_config(config, tmp_path / name)
        assert studio.read_config(files.system, files.network).config == config
    assert studio.read_config(files.system, files.network, congestion="unaware").config.model == "extended"


def test_a_preset_stands_for_its_system_and_what_is_none_is_refused():
    trace = trace_of([[collective(1, "ALL_REDUCE", 1 << 20)]] * 8)
    system = preset("hgx-h100", 8)
    assert simulate(trace, system).makespan_ns == simulate(trace, system.config).makespan_ns
    for wrong in ("hgx-h100", None):
        with pytest.raises(ConfigError, match="allowed: a SystemConfig or a preset"):
            simulate(trace, wrong)
    for npus in ("8", 8.0, True):
        with pytest.raises(ConfigError, match="allowed: a whole number of NPUs"):
            preset("hgx-h100", npus)
