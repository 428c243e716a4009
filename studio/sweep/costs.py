"""What a system costs, by prices that the user gives: per NPU, and per GB/s of every port of every NPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from studio.errors import ConfigError
from studio.files import read_file
from studio.sim.config import SystemConfig
from studio.sim.fields import find_nearest, show_value
from studio.sim.topology import compute_port_rate

_KEYS = ("currency", "gpu", "gb_per_s_port", "presets")


@dataclass(frozen=True, slots=True)
class Costs:
    """Prices.

    A system of n NPUs costs n × (gpu + Σ over dimensions of its port's rate in GB/s × gb_per_s_port).

    Attributes:
        currency: What prices are counted in; only shown.
        gpu: Of an NPU.
        gb_per_s_port: Of a GB/s (10^9 bytes) of one NPU's port, one direction, by dimension; the last entry counts for all further ones.
        presets: Of an NPU of a preset, by its name without a size, in place of `gpu`.
    """

    currency: str = ""
    gpu: float = 0.0
    gb_per_s_port: tuple[float, ...] = (0.0,)
    presets: Mapping[str, float] = field(default_factory=dict)

    def of(self, npus: int, port_gb_per_s: Sequence[float], preset: str = "") -> float:
        """Return what a system costs.

        Args:
            npus: Its NPUs.
            port_gb_per_s: What a port of an NPU carries in each dimension, see `compute_port_rates`.
            preset: The name of its preset, with or without a size.

        Example:
            >>> Costs(gpu=10, gb_per_s_port=(1, 2)).of(8, (450, 50, 25))
            4880.0
        """
        last = len(self.gb_per_s_port) - 1
        ports = sum(rate * self.gb_per_s_port[min(at, last)] for at, rate in enumerate(port_gb_per_s))
        name = max((known for known in self.presets if preset.startswith(known)), key=len, default="")
        return float(npus * (self.presets.get(name, self.gpu) + ports))


def compute_port_rates(config: SystemConfig) -> tuple[float, ...]:
    """Return what a port of an NPU carries in each dimension, in GB/s, one direction."""
    return tuple(compute_port_rate(dim) for dim in config.topology.dims)


EXAMPLE = Costs("units", 30_000.0, (2.0, 20.0))
"""Round numbers to begin with, so that there is something to edit; nobody's prices."""


def load_costs(path: Path) -> Costs:
    """Read costs.yml.

    Raises:
        ConfigError: It cannot be read, a key is unknown, or a price is none.
    """
    try:
        table = yaml.safe_load(read_file(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path}: {str(error)[:200]}", hint="Give a YAML file of prices, see docs/simulator.md."
        ) from error
    return build_costs(table, path.name)


def build_costs(table: object, name: str) -> Costs:
    """Return prices from a table.

    Raises:
        ConfigError: A key is unknown, or a price is none.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{name} holds {show_value(table)}; allowed: a table of {', '.join(_KEYS)}")
    for key in table:
        if key not in _KEYS:
            near = find_nearest(str(key), _KEYS)
            raise ConfigError(
                f"{name}: there is no key {show_value(key)}; allowed: {', '.join(_KEYS)}",
                hint=f"The nearest is {near!r}." if near else "",
            )
    rates = table.get("gb_per_s_port", 0.0)
    presets = table.get("presets", {})
    if not isinstance(presets, Mapping):
        raise ConfigError(
            f"{name}: presets is {show_value(presets)}; allowed: a table from preset to price of an NPU"
        )
    listed = rates if isinstance(rates, list | tuple) and rates else [rates]
    return Costs(
        str(table.get("currency", "")),
        _check_price(name, "gpu", table.get("gpu", 0.0)),
        tuple(_check_price(name, f"gb_per_s_port[{at}]", rate) for at, rate in enumerate(listed)),
        {str(key): _check_price(name, f"presets.{key}", value) for key, value in presets.items()},
    )


def _check_price(name: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e15:
        raise ConfigError(f"{name}: {key} is {show_value(value)}; allowed: a number from 0 to 10^15")
    return float(value)
