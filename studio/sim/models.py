"""The model of a simulation: `full`, or that of ASTRA-sim.

`full` is what a performance engineer would sign: all collectives, groups of any name and size, each timed on every
dimension that it crosses, messages that share links, recorded compute kept, and as many collectives at once as there are
groups. `astra-sim` is the reference, bit for bit, by either of its two programs. What is set by hand between the two is
called `extended`, and a run in which communication takes its recorded time `replay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal, get_args

from studio.errors import ConfigError
from studio.sim.config import Dimension, ModelName, SystemConfig, Topology
from studio.sim.costs import CostModel
from studio.sim.extensions import Extensions
from studio.sim.network import UNIT, convert_to_gb_per_s
from studio.sim.parts import EXTENDED, Parts, get_table, is_extended
from studio.sim.setting_edits import with_mode
from studio.sim.settings import BY_KEY, NETWORK_UNIT

Model = Literal["full", "astra-sim"]
"""The models to choose from."""
MODELS: tuple[Model, ...] = get_args(Model)

FULL: Mapping[str, object] = MappingProxyType(
    {"communication-slots": int(BY_KEY["communication-slots"].most or 1), "compute-times": "recorded"}
)
"""What the full model sets in the table `extended`, beside aware congestion; all else there has its default."""


def with_model(parts: Parts, model: Model) -> Parts:
    """Return a system under a model; settings of the full model that it already has stay.

    Raises:
        ConfigError: The system has single links, which ASTRA-sim lacks, and is asked for under its model.
    """
    if model == "full":
        extended = {**FULL, **get_table(parts, "extended")}
        return replace(parts, system={**parts.system, EXTENDED: extended}, congestion="aware")
    if not is_extended(parts):
        return parts
    if "links" in parts.network:
        raise ConfigError(
            f"{parts.names.get('network', 'network.yml')}: links is there; allowed with the model astra-sim: dimensions",
            hint="Use the model full (--model full), which times messages on single links.",
            key="links",
        )
    plain = _without_costs(_convert_to_gib(parts))
    return with_mode(replace(plain, congestion="unaware"), "compatible", strip=True)


def _without_costs(parts: Parts) -> Parts:
    """Return a system that times messages on links: the hops of its cost model are the latencies that it does not have."""
    costs, latencies = parts.network.get("costs"), parts.network.get("latency")
    network = {key: value for key, value in parts.network.items() if key != "costs"}
    if isinstance(costs, Mapping) and isinstance(latencies, list | tuple):
        hops = _compute_hops(
            CostModel.from_table({str(key): value for key, value in costs.items()}), len(latencies)
        )
        network["latency"] = [latency or hop for latency, hop in zip(latencies, hops, strict=True)]
    return replace(parts, network=network)


def _compute_hops(costs: CostModel, dims: int) -> list[float]:
    """Return the time of a hop of the smallest messages in each dimension."""
    return [costs.value("hop LL between" if index else "hop LL inside") for index in range(dims)]


def apply_model(config: SystemConfig, model: Model) -> SystemConfig:
    """Return a configuration under a model.

    Raises:
        ConfigError: It has single links, which ASTRA-sim lacks, and is asked for under its model.
    """
    if model == "full":
        values = {BY_KEY[key].attribute: value for key, value in FULL.items()}
        given = config.extensions
        return replace(config, congestion="aware", extensions=given or Extensions(**values))  # type: ignore[arg-type]
    if config.extensions is None:
        return config
    if config.links is not None:
        raise ConfigError(
            "links is given; allowed with the model astra-sim: dimensions",
            hint="Use the model full, which times messages on single links.",
        )
    count = len(config.topology.dims)
    hops = _compute_hops(config.costs, count) if config.costs is not None else [0.0] * count
    dims = tuple(
        Dimension(dim.kind, dim.size, dim.bytes_per_ns, dim.latency_ns or hop)
        for dim, hop in zip(config.topology.dims, hops, strict=True)
        if dim.size > 1 or count == 1
    )
    known = {kind: listed for kind, listed in config.algorithms.items() if _is_reference(kind)}
    return replace(
        config, topology=Topology(dims), algorithms=known, congestion="unaware", extensions=None, costs=None
    )


def _is_reference(kind: str) -> bool:
    return not BY_KEY[f"{kind.replace('_', '-')}-implementation"].is_extended


def get_model(parts: Parts) -> ModelName:
    """Return the model of a system.

    Example:
        >>> get_model(Parts({}, {})), get_model(with_model(Parts({}, {}), "full"))
        ('astra-sim', 'full')
    """
    if (
        parts.system.get("replay-only")
        or get_table(parts, "extended").get("communication-times") == "recorded"
    ):
        return "replay"
    if not is_extended(parts):
        return "astra-sim"
    return "full" if parts.congestion == "aware" else "extended"


def label_system_model(parts: Parts) -> str:
    """Return what a run on a system is called after: its model and, where both exist, which network.

    Example:
        >>> label_system_model(Parts({}, {})), label_system_model(with_model(Parts({}, {}), "full"))
        ('astra-sim unaware', 'full')
    """
    return label_model(get_model(parts), parts.congestion)


def label_model(model: ModelName, congestion: str) -> str:
    """Return what a run of a model is called after."""
    return f"{model} {congestion}" if model in ("astra-sim", "extended") else model


def _convert_to_gib(parts: Parts) -> Parts:
    """Return a system whose rates are in the reference's GB of 2^30 bytes."""
    if parts.network.get(UNIT, NETWORK_UNIT) == NETWORK_UNIT:
        return parts
    rates = parts.network.get("bandwidth")
    if not isinstance(rates, list | tuple):
        return parts
    converted = [convert_to_gb_per_s(rate) if isinstance(rate, int | float) else rate for rate in rates]
    return replace(parts, network={**parts.network, "bandwidth": converted, UNIT: NETWORK_UNIT})
