"""The key `costs` of the network: read, written back, changed by `--set`, refused in the compatible mode."""

from __future__ import annotations

import pytest

from studio.errors import ConfigError
from studio.sim.costs import CostModel
from studio.sim.parts import Parts, build_parts, interpret
from studio.sim.setting_edits import with_settings
from studio.store.runs import compute_config_digest

NETWORK = {
    "topology": ["Switch", "Switch"],
    "npus_count": [8, 2],
    "bandwidth": [450, 50],
    "latency": [500, 1000],
    "bandwidth-unit": "GB/s",
    "costs": CostModel().to_table(),
}
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 1,
    "extended": {},
}
PARTS = Parts(NETWORK, SYSTEM)


def test_costs_are_read_and_written_back() -> None:
    config = interpret(PARTS).config
    assert config.costs == CostModel()
    again = interpret(build_parts(config)).config
    assert again == config
    assert compute_config_digest(again) == compute_config_digest(config)


def test_single_parameters_are_set_by_their_path() -> None:
    changed = interpret(with_settings(PARTS, ["costs.algorithm=ring"])).config
    assert changed.costs != CostModel()
    assert compute_config_digest(changed) != compute_config_digest(interpret(PARTS).config)
    nested = interpret(with_settings(PARTS, ["costs.launch.all_reduce=9000"])).config
    assert nested.costs is not None
    assert nested.costs.value("launch all_reduce") == 9000
    assert interpret(with_settings(PARTS, ["costs="])).config.costs is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("costs.no-such-key=1", "--set: costs: no-such-key"),
        ("costs=3", r"--set: costs is 3; allowed: a table"),
    ],
)
def test_what_is_not_allowed_is_named(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        interpret(with_settings(PARTS, [setting]))


def test_a_parameter_needs_a_model() -> None:
    without = Parts({key: value for key, value in NETWORK.items() if key != "costs"}, SYSTEM)
    with pytest.raises(ConfigError, match="no cost model; allowed:"):
        with_settings(without, ["costs.algorithm=ring"])


def test_the_compatible_mode_knows_no_costs() -> None:
    system = {key: value for key, value in SYSTEM.items() if key != "extended"}
    network = {key: value for key, value in NETWORK.items() if key != "bandwidth-unit"}
    with pytest.raises(ConfigError, match=r"costs is .*; allowed: no such key in the compatible mode"):
        interpret(Parts(network, system))
