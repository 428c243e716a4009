"""Named systems."""

import gzip
import json

import pytest

from studio.errors import ConfigError
from studio.sim import simulate
from studio.sim.astra import from_parts, read, write_config
from studio.sim.parts import interpret
from studio.sim.presets import PRESETS, describe_unevenness, infer_npu_count, preset
from studio.sim.setting_edits import with_settings
from tests.handmade import collective, trace_of
from tests.kernels import compiled

VENDOR = {
    "hgx-h100-8": "vendor_hgx_h100_8gpu",
    "hgx-h100-16": "vendor_hgx_h100_16gpu",
    "hgx-h100-32": "vendor_hgx_h100_32gpu",
    "tpu-v3-8": "vendor_tpu_v3_8",
    "tpu-v3-32-ring": "vendor_tpu_v3_32_ring",
    "tpu-v3-32-torus": "vendor_tpu_v3_32_2dtorus",
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_its_files(name, tmp_path):
    """A preset has no finding of its own under either model, and can be exported and read again."""
    one = preset(name)
    for model in ("full", "astra-sim"):
        result = interpret(one.under(model))
        assert result.findings == ()
        assert result.config.topology.npus == one.npus
        assert read(write_config(result.config, tmp_path / model)).config == result.config


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("hgx-h100-8", [8]), ("hgx-h100-32", [8, 4]), ("torus-8x8", [8, 8]), ("switch-600-37", [8, 8])],
)
def test_presets_have_the_sizes_they_are_named_for(name, sizes):
    assert name in PRESETS
    assert [dim.size for dim in preset(name).config.topology.dims] == sizes


def test_a_name_may_say_the_size_and_a_size_of_its_own_counts_more():
    assert (infer_npu_count("hgx-h100-64"), infer_npu_count("hgx-h100"), infer_npu_count("torus-8x8")) == (
        64,
        None,
        64,
    )
    assert preset("hgx-h100", npus=1024).config.topology.npus == 1024
    assert preset("hgx-h100").npus == 8
    with pytest.raises(
        ConfigError, match=r"2000 for the system dgx-superpod-a100; allowed: up to 1,120 NPUs"
    ):
        preset("dgx-superpod-a100-2000")


@pytest.mark.parametrize(
    ("name", "npus", "nodes"),
    [
        ("hgx-h100", 20, "4 nodes of 5 NPUs, where a machine has 3 nodes"),
        ("hgx-h100-rails", 17, "17 nodes of 1 NPU, where a machine has 3 nodes"),
        ("trainium2", 7, "7 nodes of 1 NPU, where a machine has 1 node"),
    ],
)
def test_a_size_that_fills_no_nodes_alike_is_said(name, npus, nodes):
    assert nodes in describe_unevenness(preset(name, npus).parts)


def test_a_size_that_fills_nodes_alike_and_one_that_was_changed_are_not_called_uneven():
    quiet = [("hgx-h100", 24), ("hgx-h100", 12), ("hgx-h100", 5), ("tpu-v4", 77), ("torus-8x8", 64)]
    for name, npus in quiet:
        assert describe_unevenness(preset(name, npus).parts) == ""
    assert describe_unevenness(with_settings(preset("hgx-h100", 20).parts, ["npus_count=[10,2]"])) == ""


def test_the_rails_join_what_they_say():
    """An NPU has a link to its node's switch and one to its rail; a rail joins one NPU of each node."""
    links = preset("hgx-h100-32-rails").config.links
    assert (links.npus, links.switches) == (32, 4 + 8)
    assert [link.target for link in links.links if link.source == 13] == [32 + 1, 36 + 5]
    assert [link.target for link in links.links if link.source == 36 + 5] == [5, 13, 21, 29]
    assert {link.bytes_per_ns for link in links.links} == {450.0, 50.0}
    assert preset("hgx-h100-rails", npus=64).config.links.switches == 8 + 8


def test_bandwidths_of_astra_sims_own_numbers_are_in_its_gb():
    """62 GB/s in the network's GB of 2^30 bytes; memory keeps GB of 10^9."""
    config = preset("torus-8x8").config
    assert config.topology.dims[0].bytes_per_ns == 62 * 2**30 / 10**9
    assert config.local_memory_bytes_per_ns == 700


def test_a_preset_takes_settings_as_the_command_does():
    """What another bandwidth would do is the first question: a program asks it without knowing a system's parts."""
    changed = preset("hgx-h100", 16, ["bandwidth[1]=25", "preferred-dataset-splits=2"])
    for model in ("full", "astra-sim"):
        assert changed.under(model) == with_settings(preset("hgx-h100", 16).under(model), changed.settings)
    assert [dim.bytes_per_ns for dim in changed.config.topology.dims] == [450, 25]
    assert preset("hgx-h100", 16, "bandwidth[1]=25").config.topology == changed.config.topology
    assert repr(changed) == "Preset(hgx-h100, 16 NPUs, bandwidth[1]=25, preferred-dataset-splits=2)"
    with pytest.raises(ConfigError, match="no such key") as caught:
        preset("hgx-h100", 16, ["bandwith[1]=25"])
    assert "bandwidth" in caught.value.hint
    with pytest.raises(ConfigError, match="above 0"):
        preset("hgx-h100", 16, ["bandwidth[1]=-1"])


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match=r"preset is 'hgx-h10'; allowed: dgx-2, .*hgx-h100") as caught:
        preset("hgx-h10")
    assert caught.value.hint.startswith("The nearest is 'hgx-h")
    assert "hgx-h10" not in PRESETS
    with pytest.raises(KeyError):
        PRESETS["hgx-h10"]


@pytest.mark.parametrize("name", VENDOR)
def test_vendor_presets_equal_the_configurations_shipped_for_them(name, shared):
    """Golden records of these families carry the vendor's numbers, which stay those of ASTRA-sim's model."""
    with gzip.open(shared / "oracle" / "astra_sim_public.jsonl.gz", "rt") as lines:
        record = next(one for one in map(json.loads, lines) if one["family"] == VENDOR[name])
    assert (
        from_parts(record["network"], record["system"]) == interpret(preset(name).under("astra-sim")).config
    )


@pytest.mark.parametrize(
    ("name", "npus", "links"), [("tpu-v4", 64, 6), ("tpu-v5e", 16, 4), ("tpu-v5p", 64, 6), ("tpu-v3", 64, 4)]
)
def test_collectives_of_a_torus_use_all_its_axes_and_both_directions(name, npus, links):
    """No less than all links of a chip can carry, and no more than two and a half times of it."""
    one = preset(name, npus)
    rate = links * one.config.topology.dims[0].bytes_per_ns
    for kind, sent in (("ALL_REDUCE", 2 * (npus - 1) / npus), ("ALL_GATHER", npus - 1)):
        job = trace_of([[collective(1, kind, 1 << 28)]] * npus)
        took = simulate(job, one.config, native=compiled()).makespan_ns
        assert 1 < took / (sent * (1 << 28) / rate) < 2.5
