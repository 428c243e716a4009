"""The parameters of a cost model: what they are called, what they are worth where nothing is measured, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

GROUPS: Mapping[str, str] = {
    "launch": "ns before anything moves, per collective",
    "base": "ns that a protocol takes on top of the launch",
    "hop": "ns of a step on top of the network's latency",
    "settle": "ns that LL takes more from about 24 KiB on, where it opens further channels",
    "efficiency": "share of the port's rate that is reached, at most 1",
    "ramp": "filling of the pipe: times the square root of (1 µs × time at the full rate)",
    "copy": "time of a rank's own part of the buffer, in units of its time at the full rate",
}
"""Groups of parameters, with the unit of each."""

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
)
"""All parameters: group, and what it is of."""

_GENERAL: Mapping[str, tuple[float, float]] = {
    "launch": (6000, 0.5),
    "base LL128": (4000, 0.6),
    "base Simple": (6000, 0.6),
    "base NVLS": (10000, 0.6),
    "base direct LL": (300, 1.0),
    "base direct Simple": (4000, 0.7),
    "hop LL inside": (600, 0.4),
    "hop LL128 inside": (1000, 0.4),
    "hop Simple inside": (2300, 0.5),
    "hop direct inside": (120, 1.0),
    "hop LL between": (2700, 0.5),
    "hop LL128 between": (4500, 0.5),
    "hop Simple between": (9000, 0.5),
    "hop direct between": (300, 1.0),
    "hop tree LL between": (5000, 0.5),
    "hop tree LL128 between": (7000, 0.5),
    "hop tree Simple between": (12000, 0.5),
    "settle": (2000, 0.8),
    "efficiency LL inside": (0.4, 0.4),
    "efficiency LL128 inside": (0.6, 0.4),
    "efficiency Simple inside": (0.8, 0.1),
    "efficiency NVLS inside": (0.6, 0.15),
    "efficiency direct inside": (0.75, 0.15),
    "efficiency LL between": (0.3, 0.4),
    "efficiency LL128 between": (0.7, 0.3),
    "efficiency Simple between": (0.9, 0.1),
    "efficiency NVLS between": (0.9, 0.2),
    "efficiency direct between": (0.85, 0.2),
    "ramp": (0.7, 1.0),
    "copy": (0.4, 0.7),
}
"""Value, and how far machines lie from it (standard deviation of the logarithm), by name or group."""

_BY_LIBRARY: Mapping[str, Mapping[str, tuple[float, float]]] = {}


def default(library: str, name: str) -> tuple[float, float]:
    """Return the value of a parameter where nothing is measured, and how far machines lie from it.

    Args:
        library: Name of the library (`studio.sim.costs.library`).
        name: The parameter.
    """
    own = _BY_LIBRARY.get(library, {})
    if name in own:
        return own[name]
    return _GENERAL[name] if name in _GENERAL else _GENERAL[name.partition(" ")[0]]


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


def members(group: str, names: Iterable[str] = NAMES) -> list[str]:
    """Return what a group has parameters of."""
    return [name.partition(" ")[2] for name in names if name.partition(" ")[0] == group]
