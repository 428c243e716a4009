from __future__ import annotations

import gzip
import json

import pytest

from studio.errors import ConfigError
from studio.sim.astra import from_parts, read, write_config
from studio.sim.models import config_with_model
from studio.sim.parts import interpret
from studio.sim.presets import PRESETS, preset

VENDOR = {
    "hgx-h100-8": "vendor_hgx_h100_8gpu",
    "hgx-h100-16": "vendor_hgx_h100_16gpu",
    "hgx-h100-32": "vendor_hgx_h100_32gpu",
    "dgx-v100-4": "vendor_dgx_v100_4gpu",
    "tpu-v3-8": "vendor_tpu_v3_8",
    "tpu-v3-32-ring": "vendor_tpu_v3_32_ring",
    "tpu-v3-32-torus": "vendor_tpu_v3_32_2dtorus",
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_system_with_a_source_that_survives_its_files(name, tmp_path):
    """A preset has no finding of its own, names where it comes from, and can be exported and read again."""
    one = preset(name)
    result = interpret(one.parts)
    assert result.findings == ()
    assert len(one.source) > 40
    assert read(write_config(one.config, tmp_path)).config == one.config


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("hgx-h100-8", [8]), ("hgx-h100-32", [8, 4]), ("torus-8x8", [8, 8]), ("switch-600-37", [8, 8])],
)
def test_presets_have_the_sizes_they_are_named_for(name, sizes):
    assert [dim.size for dim in preset(name).config.topology.dims] == sizes


def test_the_rails_join_what_they_say():
    """An NPU has a link to its node's switch and one to its rail; a rail joins one NPU of each node."""
    links = preset("hgx-h100-32-rails").config.links
    assert (links.npus, links.switches) == (32, 4 + 8)
    assert [link.target for link in links.links if link.source == 13] == [32 + 1, 36 + 5]
    assert [link.target for link in links.links if link.source == 36 + 5] == [5, 13, 21, 29]
    assert {link.bytes_per_ns for link in links.links} == {450.0, 50.0}


def test_bandwidths_are_the_networks_gb():
    """62 GB/s in the network's GB of 2^30 bytes; memory keeps GB of 10^9."""
    config = preset("torus-8x8").config
    assert config.topology.dims[0].bytes_per_ns == 62 * 2**30 / 10**9
    assert config.local_memory_bytes_per_ns == 700


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(
        ConfigError, match=r"preset is 'hgx-h100-64'; allowed: hgx-h100-8, .*switch-600-37"
    ) as caught:
        preset("hgx-h100-64")
    assert caught.value.hint.startswith("The nearest is 'hgx-h100-")


@pytest.mark.parametrize("name", VENDOR)
def test_vendor_presets_equal_the_configurations_shipped_for_them(name, shared):
    """Golden records of these families carry the vendor's numbers."""
    with gzip.open(shared / "oracle" / "astra_sim_public.jsonl.gz", "rt") as lines:
        record = next(one for one in map(json.loads, lines) if one["family"] == VENDOR[name])
    reference = config_with_model(preset(name).config, "astra-sim")
    assert from_parts(record["network"], record["system"]) == reference
