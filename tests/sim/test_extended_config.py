"""The settings of the extended mode: on files, one by one, and where they do not belong."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.errors import ConfigError
from studio.sim.astra import read, write_config
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.extensions import (
    ChunkOrder,
    CollectiveOrder,
    Collectives,
    CommunicationTimes,
    ComputeSlots,
    DimensionOrder,
    Extensions,
    GroupSizes,
    HostSlots,
    Link,
    LinkGraph,
    RankStarts,
    TieOrder,
)
from studio.sim.parts import Parts, interpret
from studio.sim.setting_edits import with_mode, with_settings

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
}
TOPOLOGY = Topology((Dimension("ring", 4, 50.0, 500.0),))


def parts(**extended: object) -> Parts:
    return Parts(NETWORK, {**SYSTEM, "extended": extended})


@given(
    st.builds(
        Extensions,
        collectives=st.sampled_from(get_args(Collectives)),
        tie_order=st.sampled_from(get_args(TieOrder)),
        group_sizes=st.sampled_from(get_args(GroupSizes)),
        communication_slots=st.integers(1, 9),
        compute_speeds=st.none() | st.dictionaries(st.integers(0, 3), st.floats(0.1, 4)),
        dimension_order=st.sampled_from(get_args(DimensionOrder)),
        chunk_order=st.sampled_from(get_args(ChunkOrder)),
        host_slots=st.sampled_from(get_args(HostSlots)),
        compute_slots=st.sampled_from(get_args(ComputeSlots)),
        collective_order=st.sampled_from(get_args(CollectiveOrder)),
        communication_times=st.sampled_from(get_args(CommunicationTimes)),
        rank_starts=st.sampled_from(get_args(RankStarts)),
    )
)
def test_files_hold_every_setting(tmp_path_factory: pytest.TempPathFactory, extensions: Extensions) -> None:
    """A configuration that is written and read again is the same, and nothing in it is unknown."""
    config = SystemConfig(
        TOPOLOGY,
        algorithms={"broadcast": (Algorithm("halving_doubling"),), "barrier": (Algorithm("direct", 2),)},
        extensions=extensions,
    )
    found = read(write_config(config, tmp_path_factory.mktemp("files")))
    assert found.config == config
    assert not found.findings


def test_an_empty_table_is_the_mode_with_its_defaults() -> None:
    assert interpret(parts()).config.extensions == Extensions()
    assert interpret(with_mode(Parts(NETWORK, SYSTEM), "extended")).config.mode == "extended"
    assert interpret(with_mode(Parts(NETWORK, SYSTEM), "compatible")).config.mode == "compatible"


def test_the_compatible_mode_refuses_settings_of_the_extended() -> None:
    with pytest.raises(ConfigError, match=r"system.json: extended is there") as refused:
        with_mode(parts(), "compatible")
    assert refused.value.hint


def test_single_settings_are_changed() -> None:
    """`--set` reaches every key, and brings the mode about."""
    changed = with_settings(
        Parts(NETWORK, SYSTEM),
        [
            "extended.communication-slots=2",
            "extended.compute_speeds.3=0.5",
            "extended.tie-order=reference",
            "extended.broadcast-implementation=halvingDoubling",
        ],
    )
    config = interpret(changed).config
    assert config.extensions == Extensions(
        communication_slots=2, compute_speeds={3: 0.5}, tie_order="reference"
    )
    assert config.algorithms["broadcast"] == (Algorithm("halving_doubling"),)
    back = with_settings(changed, ["extended.communication-slots="])
    assert interpret(back).config.extensions == replace(config.extensions, communication_slots=1)


@pytest.mark.parametrize("speeds", ["3: 0.5, 1:2", '{"3": 0.5, "1": 2}'])
def test_speeds_are_set_together_as_the_form_and_messages_write_them(speeds: str) -> None:
    changed = with_settings(Parts(NETWORK, SYSTEM), [f"extended.compute-speeds={speeds}"])
    extensions = interpret(changed).config.extensions
    assert extensions is not None
    assert extensions.compute_speeds == {1: 2, 3: 0.5}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("extended.communication-slot=2", "communication-slots"),
        ("extended.tie-order.3=2", "tie-order"),
        ("extended=2", "there is no such key"),
    ],
)
def test_unknown_settings_name_the_nearest(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_settings(Parts(NETWORK, SYSTEM), [setting])
    assert message in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"communication-slots": 0}, "system.json: extended: communication-slots is 0; allowed: a whole"),
        ({"tie-order": "symetric"}, "extended: tie-order is 'symetric'; allowed: symmetric, reference"),
        ({"compute-speeds": {"4": 1}}, "compute-speeds names NPU '4'; allowed: whole numbers from 0 to 3"),
        (
            {"compute-speeds": {"3": 0}},
            r"compute-speeds\[3\] is 0; allowed: a number above 0 and at most 1e\+18",
        ),
        ({"compute-speeds": [1, 2]}, "compute-speeds is .* a table"),
        ({"gather-implementation": ["ring", "ring"]}, "gather-implementation is .* up to 1 entry,"),
    ],
)
def test_bad_values_name_file_key_and_what_is_allowed(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        interpret(parts(**table))


def test_unknown_keys_are_reported_with_the_nearest() -> None:
    findings = interpret(parts(**{"dimension-orders": "balanced"})).findings
    assert [(finding.code, finding.hint) for finding in findings] == [
        ("key-unknown", "The nearest known key is 'dimension-order'.")
    ]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"algorithms": {"barrier": (Algorithm("ring"),)}}, "algorithms for barrier"),
        ({"topology": Topology((Dimension("ring", 4, 50.0, efficiency=0.9),))}, "efficiency of dimension 0"),
        ({"topology": Topology((Dimension("ring", 4, 50.0, message_overhead_ns=9),))}, "message_overhead_ns"),
        ({"links": LinkGraph(4, 0, tuple(Link(at, (at + 1) % 4, 1.0) for at in range(4)))}, "links"),
    ],
)
def test_what_only_the_extended_mode_has_is_refused_by_name(settings: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.* is given; allowed in the compatible mode"):
        SystemConfig(**{"topology": TOPOLOGY, **settings})
    SystemConfig(**{"topology": TOPOLOGY, "extensions": Extensions(), **settings})
