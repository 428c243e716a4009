from __future__ import annotations

from dataclasses import replace

import pytest

from studio.errors import ConfigError
from studio.sim.parts import interpret
from studio.sim.presets import PRESETS, preset
from studio.sim.problems import examine_parts

PARTS = preset("hgx-h100-16").parts


@pytest.mark.parametrize("name", PRESETS)
def test_a_good_system_has_no_problem_and_is_the_one_that_is_read(name):
    parts = PRESETS[name].parts
    found = examine_parts(parts)
    assert found.problems == {}
    assert found.usable == interpret(parts).config


def test_every_wrong_value_is_found_at_its_own_key_with_what_is_allowed():
    parts = replace(
        PARTS,
        network={
            "topology": ["Switch", "Rong"],
            "npus_count": [8, 0],
            "bandwidth": ["x", -1],
            "latency": [1, None],
        },
        system={
            **PARTS.system,
            "scheduling-policy": "RANDOM",
            "preferred-dataset-splits": 0,
            "peak-perf": "fast",
            "all-reduce-implementation": ["ring", "rings"],
            "extended": {"communication-slots": 0, "tie-order": "none"},
        },
        memory={"memory-type": "MEMORY_POOL", "remote-mem-bw": 0},
        options={"num-queues-per-dim": "many"},
        groups={"1": [0, 99]},
    )
    found = examine_parts(parts)
    assert set(found.problems) == {
        "topology[1]",
        "npus_count[1]",
        "bandwidth[0]",
        "bandwidth[1]",
        "latency[1]",
        "scheduling-policy",
        "preferred-dataset-splits",
        "peak-perf",
        "all-reduce-implementation[1]",
        "communication-slots",
        "tie-order",
        "remote-mem-bw",
        "remote-mem-latency",
        "num-queues-per-dim",
        "1[1]",
    }
    assert found.usable is None
    # What is right is kept: the drawing of a half-typed system shows it.
    assert found.config.topology.dims[0].size == 8
    assert found.problems["bandwidth[1]"].allowed == "a number above 0 and at most 1e+18, in GiB/s"


def test_the_first_problem_is_the_one_a_command_stops_at():
    parts = replace(PARTS, network={**PARTS.network, "bandwidth": [400, "tbd"]})
    with pytest.raises(ConfigError) as refused:
        interpret(parts)
    [(key, error)] = examine_parts(parts).problems.items()
    assert (key, str(error)) == ("bandwidth[1]", str(refused.value))


@pytest.mark.parametrize(
    ("network", "key"),
    [
        ({"topology": ["Ring"]}, "npus_count"),
        ({"topology": []}, "topology"),
        ({}, "topology"),
        (
            {"topology": ["Ring", "Ring"], "npus_count": [2], "bandwidth": [1, 1], "latency": [0, 0]},
            "npus_count",
        ),
    ],
)
def test_lists_that_are_missing_or_too_short_are_told_as_a_whole(network, key):
    assert key in examine_parts(replace(PARTS, network=network)).problems


def test_what_concerns_the_whole_is_told_without_a_key():
    """Whatever is thrown at it, it ends."""
    huge = {"topology": ["Ring"] * 3, "npus_count": [1 << 20] * 3, "bandwidth": [1] * 3, "latency": [0] * 3}
    found = examine_parts(replace(PARTS, network=huge))
    assert found.usable is None
    assert found.problems
