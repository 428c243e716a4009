"""The keys of network.yml that only the extended mode has: read, written, refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.errors import ConfigError
from studio.sim.astra import read, write_config
from studio.sim.config import Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions, Link, LinkGraph
from studio.sim.parts import Parts, interpret
from studio.sim.presets import preset
from studio.sim.setting_edits import with_settings

NETWORK = {"topology": ["Ring", "Switch"], "npus_count": [4, 2], "bandwidth": [50, 25], "latency": [500, 700]}
SYSTEM = {"scheduling-policy": "LIFO", "collective-optimization": "baseline", "preferred-dataset-splits": 4}
EXTENDED = {**SYSTEM, "extended": {}}


def topology_of(**keys):
    return interpret(Parts({**NETWORK, **keys}, EXTENDED)).config.topology


def test_a_gb_is_what_the_file_says():
    """GiB/s is the reference's GB; GB/s are 10^9 bytes; without a word it is the reference's."""
    rates = [
        topology_of(**({"bandwidth-unit": unit} if unit else {})).dims[0].bytes_per_ns
        for unit in ("GB/s", "GiB/s", None)
    ]
    assert rates == [50.0, 50 * 2**30 / 10**9, 50 * 2**30 / 10**9]


def test_efficiency_and_overhead_are_per_dimension():
    dims = topology_of(efficiency=[0.9, 1], **{"message-overhead": [0, 120.5]}).dims
    assert [(dim.efficiency, dim.message_overhead_ns) for dim in dims] == [(0.9, 0), (1, 120.5)]


RATES = st.sampled_from([62.0, 50 * 2**30 / 10**9, 450.0]) | st.floats(1e-3, 1e4)


@settings(deadline=None)
@given(st.data())
def test_files_hold_every_network(tmp_path_factory, data):
    """Whatever the rates: written and read again, the network is the same, links in their order."""
    links = None
    tuned = {"efficiency": 0.75, "message_overhead_ns": 12.5}
    if data.draw(st.booleans()):
        ends = st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] != pair[1])
        one = st.builds(lambda pair, rate, ns: Link(*pair, rate, ns), ends, RATES, st.floats(0, 1e6))
        links, tuned = LinkGraph(4, 2, tuple(data.draw(st.lists(one, min_size=1, max_size=9)))), {}
    dims = (Dimension("ring", 2, data.draw(RATES), 0.5, **tuned), Dimension("switch", 2, data.draw(RATES)))
    config = SystemConfig(Topology(dims), "aware", links=links, extensions=Extensions())
    found = read(write_config(config, tmp_path_factory.mktemp("files")))
    assert found.config == config
    assert [finding.code for finding in found.findings] == []


def test_settings_reach_the_keys():
    settings = ["efficiency=0.5,0.9", "efficiency[1]=0.8", "bandwidth-unit=GB/s"]
    parts = with_settings(Parts(NETWORK, EXTENDED), settings)
    dims = interpret(parts).config.topology.dims
    assert [(dim.bytes_per_ns, dim.efficiency) for dim in dims] == [(50, 0.5), (25, 0.8)]
    text = "links=[[0,8,50,500],[8,0,50,500]]"
    parts = with_settings(Parts(NETWORK, EXTENDED), [text, "switches=1", "bandwidth-unit=GB/s"])
    assert interpret(parts).config.links == LinkGraph(8, 1, (Link(0, 8, 50.0, 500), Link(8, 0, 50.0, 500)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"bandwidth-unit": "GBps"}, "bandwidth-unit is 'GBps'; allowed: GiB/s, GB/s"),
        ({"efficiency": [0.9]}, r"efficiency is \[0.9\]; allowed: 2 entries, as many as topology has"),
        ({"efficiency": [0.9, 1.5]}, r"efficiency\[1\] is 1.5; allowed: a number above 0 and at most 1"),
        ({"efficiency": [0.9, 0]}, r"efficiency\[1\] is 0; allowed: a number above 0 and at most 1"),
        (
            {"message-overhead": [-1, 0]},
            r"message-overhead\[0\] is -1; allowed: a number at least 0 and at most 1e\+18",
        ),
        (
            {"bandwidth": [int("9" * 401), 1]},
            r"bandwidth\[0\] is 9+…; allowed: a number above 0 and at most 1e\+18",
        ),
        ({"bandwidth": [1e99, 1]}, r"bandwidth\[0\] is 1e\+99; allowed: a number above 0 and at most 1e\+18"),
        (
            {"bandwidth": [0, 1]},
            r"bandwidth\[0\] is 0; allowed: a number above 0 and at most 1e\+18, in GiB/s",
        ),
        (
            {"bandwidth-unit": "GB/s", "bandwidth": [0, 1]},
            r"bandwidth\[0\] is 0; allowed: a number above 0 and at most 1e\+18, in GB/s",
        ),
        ({"switches": 2}, "switches is 2; allowed: only beside links"),
        ({"links": []}, r"links is \[\]; allowed: a list of \[source, target, bandwidth, latency"),
        ({"links": [[0, 1, 50]]}, r"links\[0\] is \[0, 1, 50\]; allowed: \[source, target,"),
        ({"links": [[0, 8, 50, 1]]}, r"links\[0\]\[1\] is 8; allowed: a whole number from 0 to 7"),
        ({"links": [[3, 3, 50, 1]]}, r"links\[0\] is \[3, 3, 50, 1\]; allowed: two devices that differ"),
        (
            {"links": [[0, 1, 0, 1]]},
            r"links\[0\]\[2\] is 0; allowed: a number above 0 and at most 1e\+18, in GiB/s",
        ),
        (
            {"links": [[0, 1, 5, "tbd"]]},
            r"links\[0\]\[3\] is 'tbd'; allowed: a number at least 0 and at most 1e\+18, in ns",
        ),
    ],
)
def test_what_is_not_allowed_is_named(keys, message):
    with pytest.raises(ConfigError, match=rf"network.yml: {message}"):
        topology_of(**keys)


@pytest.mark.parametrize(
    "keys", [{"bandwidth-unit": "GB/s"}, {"efficiency": [1, 1]}, {"links": [[0, 1, 5, 5]]}]
)
def test_the_compatible_mode_knows_none_of_them(keys):
    with pytest.raises(ConfigError, match=r"allowed: no such key in the compatible mode") as caught:
        interpret(Parts({**NETWORK, **keys}, SYSTEM))
    assert "--mode extended" in caught.value.hint


def test_a_list_for_more_dimensions_than_a_node_has_says_why_there_is_one():
    parts = preset("hgx-h100", 4).parts
    with pytest.raises(ConfigError, match="allowed: 1 entry, as many as topology has") as refused:
        interpret(with_settings(parts, ["bandwidth=[450,100]"]))
    assert refused.value.hint.endswith(
        "A preset whose ranks fit in one node has the dimensions inside of it alone."
    )
    with pytest.raises(ConfigError, match="the system has one dimension") as refused:
        with_settings(parts, ["bandwidth[1]=100"])
    assert refused.value.hint == "A preset whose ranks fit in one node has the dimensions inside of it alone."
