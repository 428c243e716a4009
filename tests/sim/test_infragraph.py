"""InfraGraph: infrastructures as networks of single links, and systems as infrastructures."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.errors import ConfigError
from studio.et.build import build_graph
from studio.sim.infragraph import Network, Wire, read_network
from studio.sim.links import link_graph
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.trace import Rank, Trace
from tests.infragraph_files import clos_fabric, cluster, edge


def read(tmp_path: Path, table: dict, **given: Wire) -> Network:
    path = tmp_path / "infra.yaml"
    path.write_text(yaml.safe_dump(table))
    return read_network(path, given)


def run(*arguments: object) -> dict:
    result = CliRunner().invoke(main, ["infragraph", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def all_reduce(ranks: int) -> Trace:
    attrs = {"comm_type": 0, "comm_size": 8 << 20, "is_cpu_op": False}
    graph, slots = build_graph([{"id": 1, "type": "COMM_COLL_NODE", "attrs": attrs}])
    return Trace((graph,), tuple(Rank(number, 0, slots) for number in range(ranks)))


def test_npus_switches_and_wires_between_them(tmp_path: Path):
    """A wire from an NPU to the switch between hosts is as slow as its slowest piece, and as late as all of them."""
    network = read(tmp_path, cluster())
    assert network.npus == tuple(f"host.{host}.xpu.{number}" for host in range(2) for number in range(4))
    assert network.switches == ("host.0.nvsw.0", "host.1.nvsw.0", "leaf.0.asic.0")
    assert network.per_node == 4
    assert sorted(network.links)[:2] == [(0, 8, 450.0, 500.0), (0, 10, 50.0, 1200.0)]
    assert len(network.links) == 16
    assert any("lead to no NPU" in note for note in network.notes)
    assert network.table()["npus_count"] == [4, 2]


def test_the_older_form_of_connections_says_the_same(tmp_path: Path):
    table = cluster()
    inner = table["infrastructure"]
    del inner["edges"]
    inner["connections"] = [
        f"host.{host}.nic.{number}.eth.leaf.0.port.{4 * host + number}"
        for host in range(2)
        for number in range(4)
    ]
    assert read(tmp_path, table).links == read(tmp_path, cluster()).links


def test_devices_in_devices(tmp_path: Path):
    table = cluster(1)
    host = table["infrastructure"]["devices"][0]
    card = {"name": "cx", "components": [{"name": "port", "choice": "port", "count": 1}, {"name": "bus", "choice": "custom", "count": 1}],
            "links": [{"name": "x", "physical": {"bandwidth": {"gigabytes_per_second": 64}}}],
            "edges": [{"ep1": {"component": "port[0]"}, "ep2": {"component": "bus[0]"}, "scheme": "one2one", "link": "x"}]}  # fmt: skip
    table["infrastructure"]["devices"].append(card)
    host["components"].append({"name": "cx", "choice": "device", "count": 1})
    host["edges"].append({"ep1": {"component": "nvsw[0]"}, "ep2": {"device": "cx[0]", "component": "bus[0]"}, "scheme": "one2one", "link": "pcie"})  # fmt: skip
    assert len(read(tmp_path, table).npus) == 4
    host["components"][-1]["name"] = "server"
    with pytest.raises(ConfigError, match=r"without end|more than"):
        read(tmp_path, table)


def test_the_fabric_of_infragraphs_own_examples(tmp_path: Path):
    path = tmp_path / "closfabric.yaml"
    path.write_text(yaml.safe_dump(clos_fabric()))
    with pytest.raises(ConfigError, match="links 'ic', 'nvlink', 'pcie' have no bandwidth") as caught:
        read_network(path)
    assert caught.value.hint.endswith("32: --link ic=32 --link nvlink=32 --link pcie=32")
    found = read_network(path, {name: Wire(300.0, 0.0) for name in ("nvlink", "pcie", "ic", "fabric")})
    assert (len(found.npus), len(found.switches), found.per_node) == (8, 15, 2)
    # Each host with both cards on its leaf, each leaf on every spine, at their rates in GB/s.
    between = Counter(rate for one, _, rate, _ in found.links if one >= 8 and rate < 300)
    assert between == {12.5: 8, 50.0: 12}
    assert any("56 components" in note for note in found.notes)


def test_components_of_inner_devices_behind_a_dot_and_edges_said_twice(tmp_path: Path):
    """As in Keysight/infragraph, yaml/dgx_cx5_qsfp_composed.yaml: cards in a server, joined twice by the same link."""
    table = cluster(1)
    host = table["infrastructure"]["devices"][0]
    card = {
        "name": "cx",
        "components": [{"name": "bus", "choice": "switch", "count": 2}],
        "links": [],
        "edges": [],
    }
    table["infrastructure"]["devices"].append(card)
    host["components"].append({"name": "cx", "choice": "device", "count": 2})
    plain = read(tmp_path, table)
    joined = edge((None, "xpu[0:4]"), (None, "cx[1].bus[0]"), "pcie", "many2many")
    host["edges"] += [joined, joined, edge((None, "cx[1].bus[0]"), (None, "xpu[0]"), "pcie")]
    assert len(read(tmp_path, table).links) == len(plain.links) + 4
    host["edges"][-1]["ep1"]["component"] = "cx[1]"
    with pytest.raises(ConfigError, match="'cx' is a device"):
        read(tmp_path, table)


@pytest.mark.parametrize("system", ["torus-8x8", "hgx-h100-rails-16", "hgx-h100-16"])
def test_a_system_written_and_read_again_has_the_same_links(tmp_path: Path, system: str):
    infra, network = tmp_path / "infra.yaml", tmp_path / "network.yml"
    told = run("--preset", system, "-o", infra)
    # As InfraGraph's package loads it: with nothing around it.
    assert {"name", "description", "devices", "instances"} <= set(yaml.safe_load(infra.read_text()))
    back = run(infra, "-o", network)
    assert [told[key] for key in ("npus", "switches", "links")] == [
        back[key] for key in ("npus", "switches", "links")
    ]
    config = interpret(preset(system).parts).config
    graph = config.links if config.links is not None else link_graph(config.topology)
    wanted = sorted((link.source, link.target, link.bytes_per_ns, link.latency_ns) for link in graph.links)
    made = yaml.safe_load(network.read_text())["links"]
    assert sorted(map(tuple, made)) == wanted


@pytest.mark.parametrize(
    ("system", "read_as"),
    [
        ("torus-8x8", [8, 8]),
        ("hgx-h100-16", [8, 2]),
        ("hgx-h100-rails-16", [8, 2]),
        ("hgx-h100-8", [8]),
        ("tpu-v4-64", [4, 16]),
    ],
)
def test_nodes_of_a_system_are_instances_so_that_its_dimensions_are_read_again(
    tmp_path: Path, system: str, read_as: list[int]
):
    """A third dimension has no place in an infrastructure, which is said."""
    infra, network = tmp_path / "infra.yaml", tmp_path / "network.yml"
    told = run("--preset", system, "-o", infra)
    run(infra, "-o", network)
    assert yaml.safe_load(network.read_text())["npus_count"] == read_as
    lost = [
        note for note in told["notes"] if note.startswith("Of the dimensions 4 × 4 × 4 nodes of 4 are kept")
    ]
    assert len(lost) == (system == "tpu-v4-64")
    written = yaml.safe_load(infra.read_text())
    if len(read_as) > 1:
        ends = [edge[key] for edge in written["edges"] for key in ("ep1", "ep2")]
        assert {end["instance"].partition("[")[0] for end in ends} <= {"node", "fabric"}
        assert written["instances"][0] == {"name": "node", "device": "node", "count": read_as[1]}


def test_a_job_is_simulated_on_the_network_that_was_read(tmp_path: Path):
    infra, network = tmp_path / "infra.json", tmp_path / "network.yml"
    infra.write_text(json.dumps(cluster()))
    told = run(infra, "-o", network)
    assert (told["npus"], told["switches"], told["links"]) == (8, 3, 16)
    studio.write(all_reduce(8), tmp_path / "job", "job")
    command = [
        "simulate",
        str(tmp_path / "job"),
        "--preset",
        "hgx-h100-8",
        "--network",
        str(network),
        "--model",
        "full",
        "--json",
    ]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    # At least what every NPU must send in a ring, over its fastest link.
    assert json.loads(result.stdout)["finish_ns"] >= 2 * 7 / 8 * (8 << 20) / 450


def test_rates_that_the_file_does_not_say_are_asked_for_and_taken(tmp_path: Path):
    table = cluster()
    table["infrastructure"]["links"] = [{"name": "eth"}]
    with pytest.raises(ConfigError, match="link 'eth' has no bandwidth") as caught:
        read(tmp_path, table)
    assert caught.value.hint == "Give GB/s, here 32: --link eth=32"
    network = read(tmp_path, table, eth=Wire(25.0, 2000.0))
    assert (0, 10, 25.0, 2200.0) in network.links
    infra = tmp_path / "infra.yaml"
    assert run(infra, "-o", tmp_path / "n.yml", "--link", "eth=25:2000")["links"] == 16


def _set(table: dict, path: tuple, value: object) -> dict:
    made = copy.deepcopy(table)
    inner = made["infrastructure"]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("instances",), 5, "no list 'instances'"),
        (("instances", 0, "device"), "nothing", "device 'nothing' is not in devices"),
        (("instances", 0, "count"), 0, "count is 0; allowed: 1 to"),
        (("devices", 0, "components", 0, "count"), 10**9, "count is 1000000000"),
        (("devices", 0, "components", 0, "choice"), "cpu", "no NPU; kinds of its components: cpu"),
        (("edges", 0, "link"), "gone", "link 'gone' is not there"),
        (("edges", 0, "scheme"), "ring", "scheme is 'ring'"),
        (("edges", 0, "ep1", "instance"), "guest[0]", "'guest' is not there"),
        (("edges", 0, "ep1", "instance"), "host[7]", "[7] chooses nothing"),
        (("edges", 0, "ep2", "component"), "port[0:99]", "goes beyond the 10 there are"),
        (("edges", 0, "ep2", "component"), "plug", "there is no component 'plug'"),
        (("edges", 0, "ep2"), None, "no object with a component"),
        (("edges",), [1], "edge 0 of the infrastructure: no object"),
        (("connections",), ["a.b"], "allowed: such as xpu.0.pcie.nic.0"),
        (("links",), [{}], "no list of objects with a name"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(tmp_path: Path, path: tuple, value: object, words: str):
    with pytest.raises(ConfigError, match=re.escape(words)):
        read(tmp_path, _set(cluster(), path, value))


def test_links_of_one_direction_cannot_be_written(tmp_path: Path):
    system = tmp_path / "one-way.yml"
    system.write_text(
        "name: one-way\ntitle: x\nsource: x\n"
        "network: {bandwidth-unit: GB/s, topology: [Ring], npus_count: [2], bandwidth: [50], latency: [0], switches: 0, "
        "links: [[0, 1, 50, 0], [1, 0, 25, 0]]}\nsystem: {}\nsources: {network: x}\n"
    )
    result = CliRunner().invoke(main, ["infragraph", "--preset", str(system), "-o", str(tmp_path / "x.yaml")])
    assert result.exit_code == 1
    assert "has none alike back" in result.output
    assert not (tmp_path / "x.yaml").exists()


def test_standard_input_and_output(tmp_path: Path):
    result = CliRunner().invoke(main, ["infragraph", "-", "-o", "-"], input=yaml.safe_dump(cluster()))
    assert result.exit_code == 0, result.output
    assert len(yaml.safe_load(result.stdout)["links"]) == 32
    assert "8 NPUs, 3 switches" in result.stderr
