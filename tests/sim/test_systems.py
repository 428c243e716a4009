"""System files: families of machines, their sizes, and what a mistake in one is answered with."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

import studio
from studio.errors import ConfigError
from studio.sim.astra import read_yaml
from studio.sim.costs import CostModel, GroupShape, Ports
from studio.sim.parts import interpret
from studio.sim.setting_edits import with_settings
from studio.sim.systems import FOLDER, SYSTEMS, find_system, read_system, write_system
from studio.sim.systems.errors import describe_measured_errors
from tests.handmade import collective, trace_of

FAMILIES = [name for name, system in SYSTEMS.items() if system.family is not None]
ASKED = {
    "V100": ("dgx-v100", "dgx-2"),
    "A100": ("hgx-a100", "dgx-superpod-a100"),
    "H100 and H200": ("hgx-h100", "hgx-h200"),
    "GH200": ("gh200",),
    "Blackwell": ("hgx-b200", "gb200-nvl72", "hgx-b300", "gb300-nvl72"),
    "AMD": ("mi250x", "mi300x", "mi325x", "mi355x"),
    "PCIe": ("l40s", "rtx-2080ti", "rtx-pro-6000"),
    "others": ("tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "trainium2"),
}
SYSTEM = {
    "name": "mine",
    "title": "My machine",
    "source": "measured",
    "family": {"node": 8, "nics": 4},
    "network": {
        "bandwidth-unit": "GB/s",
        "topology": ["Switch", "Switch"],
        "bandwidth": [300, 12.5],
        "latency": [0, 0],
    },
    "system": {"local-mem-bw": 2039},
    "sources": {"network": "data sheet"},
}


def changed(**tables) -> dict[str, object]:
    """Return the machine with other tables; None takes one out."""
    return {key: value for key, value in {**SYSTEM, **tables}.items() if value is not None}


def written(tmp_path, table) -> str:
    path = tmp_path / "mine.yml"
    import yaml

    path.write_text(yaml.safe_dump(table), encoding="utf-8")
    return str(path)


def numbers_of(table: object, key: str = "") -> Iterator[str]:
    """Yield the dotted key of every number in a table."""
    if isinstance(table, Mapping):
        for name, value in table.items():
            yield from numbers_of(value, f"{key}.{name}" if key else str(name))
    elif isinstance(table, list):
        for index, value in enumerate(table):
            yield from numbers_of(value, f"{key}[{index}]")
    elif isinstance(table, int | float) and not isinstance(table, bool):
        yield key


def has_source(key: str, sources: Mapping[str, str]) -> bool:
    return any(key == known or key.startswith((f"{known}.", f"{known}[")) for known in sources)


def test_built_in_systems_are_what_their_files_say_as_those_of_users_are_read():
    """Without repeated keys, which only the slower reader notices."""
    for name, system in SYSTEMS.items():
        assert system == read_system(FOLDER / f"{name}.yml", f"preset {name}")


@pytest.mark.parametrize(("name", "most"), [("tpu-v3", 1.2), ("tpu-v5e", 1.02)])
def test_collectives_fill_both_directions_of_both_axes_of_a_torus(name, most):
    """Each part leaves over four links; only one direction was busy at a time, and all took twice as long."""
    system = studio.preset(name, npus=64)
    rate = 4 * system.config.topology.dims[0].bytes_per_ns
    for kind, rounds in (("REDUCE_SCATTER", 1), ("ALL_REDUCE", 2)):
        took = studio.simulate(trace_of([[collective(1, kind, 1 << 30)]] * 64), system).makespan_ns
        least = rounds * (1 << 30) * 63 / 64 / rate
        assert least < took < most * least, kind


def test_instances_of_trainium_exchange_over_their_switch():
    trace = trace_of([[collective(1, "ALL_TO_ALL", 1 << 30)]] * 64)
    system = studio.preset("trainium2", npus=64)
    assert studio.doubts_of(studio.simulate(trace, system), system) == ()
    # An instance alone has no switch.
    assert len(studio.preset("trainium2", npus=16).config.algorithms["all_to_all"]) == 2


def test_a_size_beyond_the_largest_is_refused_with_the_largest():
    with pytest.raises(ConfigError, match="1,048,576 at most"):
        studio.preset("hgx-h100", npus=2_000_000)


def test_every_machine_that_was_asked_for_is_there():
    assert {name for names in ASKED.values() for name in names} <= set(FAMILIES)
    assert all(SYSTEMS[name].gpu is not None for name in FAMILIES)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_number_of_a_system_has_a_source(name):
    """Numbers without are named; so is a source of no number. A calibration says itself what it is from."""
    table = {key: value for key, value in read_yaml(FOLDER / f"{name}.yml").items() if key != "calibration"}
    sources = SYSTEMS[name].sources
    keys = list(numbers_of(table))
    assert [key for key in keys if not has_source(key, sources)] == []
    assert [
        known for known in sources if not any(has_source(key, [known]) for key in keys) and known != "costs"
    ] == []
    assert all(len(text) > 5 for text in sources.values())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_a_system_in_every_size_it_comes_in(name):
    system = SYSTEMS[name]
    for npus in (1, 2, 4, 8, 13, 16, 24, 64, 72, 1024):
        if not system.fits(npus):
            assert npus > system.family.most
            continue
        for model in ("full", "astra-sim"):
            parts = system.parts(npus, model)
            dims = interpret(parts).config.topology.dims
            assert math.prod(dim.size for dim in dims) == npus
            assert len(parts.network["bandwidth"]) == len(dims)


def test_rates_of_a_few_by_hand():
    """450 GB/s is half of what NVLink 4 carries both ways; 400 Gb/s are 50 GB/s. DGX-1: 4 × 12.5 GB/s for 8 GPUs."""
    assert SYSTEMS["hgx-h100"].parts(64).network["bandwidth"] == [900 / 2, 400 / 8]
    assert SYSTEMS["dgx-v100"].parts(16).network["bandwidth"] == [300 / 2, 4 * 100 / 8 / 8]
    assert SYSTEMS["mi300x"].parts(8).network["bandwidth"] == [7 * 128 / 2]
    assert SYSTEMS["tpu-v5p"].parts(64).network["bandwidth"] == [4800 / 8 / 6] * 3
    assert SYSTEMS["tpu-v5p"].parts(64).network["npus_count"] == [4, 4, 4]
    assert SYSTEMS["trainium2"].parts(64).network["npus_count"] == [4, 4, 4]
    assert SYSTEMS["gb200-nvl72"].parts(144).network["npus_count"] == [72, 2]


def test_gpus_by_hand():
    """Peak dense BF16 is half of the data sheet's figure with sparsity: 1,979 on an H100, 36 PFLOP/s on 8 B200."""
    assert SYSTEMS["hgx-h100"].gpu.tera_flops["bf16"] == pytest.approx(1979 / 2, rel=1e-3)
    assert SYSTEMS["hgx-b200"].gpu.tera_flops["bf16"] == 36000 / 2 / 8
    assert SYSTEMS["hgx-h200"].gpu.memory_bytes_per_ns == 4800
    assert SYSTEMS["mi250x"].gpu.tera_flops["fp16"] == 383 / 2


def test_nodes_that_are_not_whole_share_their_nics(tmp_path):
    """4 NICs of 25 GB/s for 8 NPUs are 12.5 each; 6 of them get 100 / 6, and 2 no more than a NIC each."""
    system = read_system(written(tmp_path, SYSTEM))
    rates = {npus: system.parts(npus).network["bandwidth"] for npus in (16, 12, 26)}
    assert rates == {16: [300, 12.5], 12: [300, pytest.approx(100 / 6)], 26: [300, 25]}
    assert system.parts(26).network["npus_count"] == [2, 13]


def test_bandwidth_is_a_number_per_dimension_that_a_setting_changes():
    parts = with_settings(SYSTEMS["hgx-h100"].parts(16), ["bandwidth=[900, 100]"])
    assert [dim.bytes_per_ns for dim in interpret(parts).config.topology.dims] == [900, 100]


def test_what_is_not_measured_says_so():
    assert describe_measured_errors(SYSTEMS["mi250x"]) == "from the data sheet; not measured"
    assert describe_measured_errors(SYSTEMS["torus-8x8"]) == "messages on links; not measured"


def test_a_system_file_is_read_and_written(tmp_path):
    path = tmp_path / "again.yml"
    path.write_text(write_system(SYSTEM), encoding="utf-8")
    system, npus = find_system(str(path))
    assert (system.name, npus, system.place) == ("mine", None, str(path))
    assert read_yaml(path) == SYSTEM


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed(title=None), "title is missing; allowed: a text"),
        (changed(nettwork={}), "nettwork is {}; allowed: these keys: name, title"),
        (changed(family={"node": 0}), r"family: node is 0; allowed: a whole number from 1"),
        (changed(family={"node": 8, "torus": 2}), "both node and torus are there; allowed: one of them"),
        (changed(family={"node": 8, "size": 3}), r"family: size is 3; allowed: these keys: node, torus"),
        (changed(family={"torus": 3}), r"network: topology is \['Switch', 'Switch'\]; allowed: 3 entries"),
        (
            changed(network={**SYSTEM["network"], "bandwidth": [300]}),
            r"network: bandwidth is \[300\]; allowed: 2 entries",
        ),
        (changed(sources={"network": 3}), "sources: network is 3; allowed: a text"),
        (
            changed(gpu={"name": "x", "tera-flops": {"int3": 1}}),
            "gpu: tera-flops: int3 is 1; allowed: these keys: fp64",
        ),
        (changed(gpu={"name": "x", "memory-size": "much"}), "gpu: memory-bandwidth is missing"),
    ],
)
def test_a_mistake_in_a_system_file_names_file_key_value_and_what_is_allowed(tmp_path, table, message):
    path = written(tmp_path, table)
    with pytest.raises(ConfigError, match=message) as caught:
        read_system(path)
    assert caught.value.message.startswith(path)


def test_eight_h100_by_default_take_what_they_were_measured_to_take():
    """16.4 µs for 1 KiB and 4.25 ms for 1 GiB (there by NVLS) on AWS p5; 5.14 ms by ASTRA-sim's authors with a ring."""
    model, ports = CostModel.from_table(SYSTEMS["hgx-h100"].costs), Ports(450, 0, 50, 0, 8)
    sizes, eight = np.array([2.0**10, 2.0**30]), GroupShape(8, 8, 1)
    charge = model.charge("all_reduce", sizes, eight, ports)
    assert charge.total_ns.tolist() == pytest.approx([16_430, 4_250_000], rel=0.1)
    assert charge.choices[charge.choice[1]] == "NVLS"
    ring = replace(model, algorithm="ring").charge("all_reduce", sizes, eight, ports)
    assert ring.total_ns[1] == pytest.approx(5_140_000, rel=0.1)
