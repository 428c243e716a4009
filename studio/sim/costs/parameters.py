"""The parameters of a cost model: what they are called, what they are worth where nothing is measured, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from studio.sim.costs.defaults import DEFAULTS, TRANSPORT_FACTORS

GROUPS: Mapping[str, str] = {
    "launch": "ns before anything moves, per collective",
    "host": "ns that the host takes from call to call, which hide behind those of the collective",
    "base": "ns that a protocol takes on top of the launch, and once where other nodes are reached",
    "hop": "ns of a step on top of the network's latency",
    "settle": "ns that LL takes more from about 24 KiB on, where it opens further channels",
    "efficiency": "share of the port's rate that is reached, at most 1",
    "ramp": "filling of the pipe, between nodes for each step: times the square root of (1 µs × time at the full rate)",
    "copy": "time of a rank's own part of the buffer, in units of its time at the full rate",
    "shared": "on PCIe, time more of bytes that share a path, in units of their time at the full rate",
}
"""Groups of parameters, with the unit of each."""
_NUMBERS = ("efficiency", "ramp", "copy", "shared")
"""Groups whose parameters are numbers without a unit; those of all others are ns."""

_PROTOCOLS = ("LL", "LL128", "Simple")
_RATES = (*_PROTOCOLS, "NVLS", "direct")
_KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "reduce",
    "gather",
    "scatter",
    "broadcast",
)

NAMES: tuple[str, ...] = (
    *(f"launch {kind}" for kind in (*_KINDS, "send_recv")),
    *("base LL128", "base Simple", "base NVLS", "base direct LL", "base direct Simple"),
    "base between",
    *(f"hop {protocol} {place}" for protocol in (*_PROTOCOLS, "direct") for place in ("inside", "between")),
    *(f"hop tree {protocol} between" for protocol in _PROTOCOLS),
    "settle LL",
    *(
        f"{group} {rate} {place}"
        for group in ("efficiency", "ramp")
        for rate in _RATES
        for place in ("inside", "between")
    ),
    *(f"copy {kind}" for kind in (*_KINDS, "send_recv")),
    "shared both ways",
    "shared between switches",
    "host interval",
)
"""All parameters: group, and what it is of."""

GENERAL: Mapping[str, float] = {
    "launch": 6000,
    "base LL128": 4000,
    "base Simple": 6000,
    "base NVLS": 10000,
    "base direct LL": 300,
    "base direct Simple": 4000,
    "base between": 5000,
    "hop LL inside": 600,
    "hop LL128 inside": 1000,
    "hop Simple inside": 2300,
    "hop direct inside": 120,
    "hop LL between": 2700,
    "hop LL128 between": 4500,
    "hop Simple between": 9000,
    "hop direct between": 300,
    "hop tree LL between": 5000,
    "hop tree LL128 between": 7000,
    "hop tree Simple between": 12000,
    "settle": 2000,
    "efficiency LL inside": 0.4,
    "efficiency LL128 inside": 0.6,
    "efficiency Simple inside": 0.8,
    "efficiency NVLS inside": 0.6,
    "efficiency direct inside": 0.75,
    "efficiency LL between": 0.3,
    "efficiency LL128 between": 0.7,
    "efficiency Simple between": 0.9,
    "efficiency NVLS between": 0.9,
    "efficiency direct between": 0.85,
    "ramp": 0.7,
    "copy": 0.4,
    "host": 6000,
    "shared both ways": 0.15,
    "shared between switches": 0.6,
}
"""What is expected before anything is measured, by name or group: NCCL's own constants (src/graph/tuning.cc, with the
launch taken apart from the base) and shares of peak as published. Defaults are learnt from measured tables around these."""


TRANSPORTS: tuple[str, ...] = ("verbs", "plugin")
"""How a library reaches other nodes: by InfiniBand verbs itself (InfiniBand, RoCE), or by a plugin or sockets (EFA, Slingshot,
GPUDirect-TCPX, TCP), whose steps take longer."""
_MOST_REACHED = 0.995


def get_default(library: str, name: str, transport: str = "") -> float:
    """Return the value of a parameter on machines that were never measured.

    Args:
        library: Name of the library (`studio.sim.costs.library`).
        name: The parameter.
        transport: One of `TRANSPORTS`; "" where it is not known.
    """
    return convert_parameter(name, DEFAULTS[library][name], "", transport)


def convert_parameter(name: str, value: float, known: str, transport: str) -> float:
    """Return what a parameter that holds for one transport is worth for another."""
    value *= get_factor(transport, name) / get_factor(known, name)
    return min(value, _MOST_REACHED) if name.startswith("efficiency") and known != transport else value


def get_factor(transport: str, name: str) -> float:
    """Return what a parameter is multiplied by where the transport is known."""
    return TRANSPORT_FACTORS.get(transport, {}).get(name, 1.0)


def to_groups(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return parameters as a table of tables: group, then what it is of.

    Example:
        >>> to_groups({"launch all_reduce": 6000.0, "launch reduce": 5000.0})
        {'launch': {'all_reduce': 6000.0, 'reduce': 5000.0}}
    """
    table: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        group, _, rest = name.partition(" ")
        table.setdefault(group, {})[rest] = value
    return table


def is_time(name: str) -> bool:
    """Whether a parameter is in ns, and no number without a unit.

    Example:
        >>> is_time("launch all_reduce"), is_time("ramp NVLS inside")
        (True, False)
    """
    return name.partition(" ")[0] not in _NUMBERS


def list_members(group: str, names: Iterable[str] = NAMES) -> list[str]:
    """Return what a group has parameters of."""
    return [name.partition(" ")[2] for name in names if name.partition(" ")[0] == group]
