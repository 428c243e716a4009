"""The keys of `network.yml`: dimensions as ASTRA-sim writes them, and what the extended mode adds.

The reference takes a GB of the network to be 2^30 bytes. `bandwidth-unit` says it: `GiB/s` is that, `GB/s` is
10^9 bytes per second. With `links` the dimensions only say how collectives are carried out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from studio.errors import ConfigError
from studio.sim.config import Dimension, SystemConfig, Topology
from studio.sim.costs.model import CostModel
from studio.sim.extensions import Link, LinkGraph
from studio.sim.fields import Fields
from studio.sim.settings import BY_KEY, DIMENSION_SETTINGS, NETWORK_UNIT, Setting, list_file_settings
from studio.units import format_counted

NETWORK_BYTES_PER_GB = 1 << 30
"""What the network layer of the reference takes a GB to be."""

UNIT = "bandwidth-unit"
COSTS = "costs"
"""The key of the cost model."""
_SIZE = "npus_count"
UNITS: Mapping[str, int] = {NETWORK_UNIT: NETWORK_BYTES_PER_GB, "GB/s": 1_000_000_000}
TOPOLOGY_NAMES = {choice.value: choice.name for choice in BY_KEY["topology"].choices}
"""What files call the kinds of dimensions."""
EXTENDED_NETWORK_KEYS = tuple(setting.key for setting in list_file_settings("network") if setting.is_extended)
WITHIN_NODE = "A preset whose ranks fit in one node has the dimensions inside of it alone."
"""Why a list that is right for more ranks may be too long, in words."""


def read_network(network: Fields, *, is_extended: bool) -> tuple[Topology, LinkGraph | None]:
    """Return the dimensions and, where there are any, the single links of a network.

    Raises:
        ConfigError: A value is not allowed, or belongs to the extended mode and the mode is compatible.
    """
    for key in EXTENDED_NETWORK_KEYS:
        if key in network and not is_extended:
            raise network.error(
                key,
                network.table[key],
                "no such key in the compatible mode",
                'Set the mode to extended ("extended": {} in system.json, or --mode extended), or take the key out.',
            )
    unit = network.read(BY_KEY[UNIT])
    topology = _read_topology(network, unit, is_extended=is_extended)
    if "links" in network:
        return topology, _read_links(network, unit, topology.npus)
    if "switches" in network:
        raise network.error(
            "switches", network.table["switches"], "only beside links", "List the links, or leave it out."
        )
    return topology, None


def read_costs(network: Fields) -> CostModel | None:
    """Return the cost model of a network; None where it has none.

    Raises:
        ConfigError: A value is not allowed.
    """
    table = network.table.get(COSTS)
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise network.error(
            COSTS, table, "a table of parameters", "Presets have one: chakra-studio presets lists them."
        )
    return CostModel.from_table(
        {str(key): value for key, value in table.items()}, f"{network.place(COSTS)}: {COSTS}"
    )


def _read_topology(network: Fields, unit: str, *, is_extended: bool) -> Topology:
    kinds = network.items("topology")
    given = [setting for setting in DIMENSION_SETTINGS if setting.required or setting.key in network]
    lists = [(setting, network.items(setting.key)) for setting in given]
    for setting, values in lists:
        if len(values) != len(kinds):
            hint = "All lists have one entry per dimension, the dimension nearest the NPU first."
            if len(values) > len(kinds) and network.place(setting.key) != network.name:
                hint = f"{hint} {WITHIN_NODE}"
            allowed = f"{format_counted(len(kinds), 'entry', 'entries')}, as many as topology has"
            raise network.error(setting.key, values, allowed, hint)
    if not is_extended and len(kinds) > 1:
        # A job of one rank runs on one NPU; a dimension of one among others is a mistake, as in ASTRA-sim.
        lists = [
            (replace(setting, least=2) if setting.key == _SIZE else setting, items)
            for setting, items in lists
        ]
    entries = (
        {
            setting.attribute: _read_entry(network, setting, f"{setting.key}[{index}]", items[index], unit)
            for setting, items in lists
        }
        for index in range(len(kinds))
    )
    return Topology(tuple(Dimension(**values) for values in entries))


def _read_entry(network: Fields, setting: Setting, key: str, value: object, unit: str) -> Any:
    """Return an entry of a list of dimensions, rates in bytes per ns."""
    if setting.key == _SIZE:
        return network.read_in(setting, key, value, hint="Leave a dimension of one NPU out of all lists.")
    if setting.unit != NETWORK_UNIT:
        return network.read_in(setting, key, value)
    return _convert_rate(network.read_in(setting, key, value, unit), unit)


def _read_links(network: Fields, unit: str, npus: int) -> LinkGraph:
    listed = network.table["links"]
    form = "a list of [source, target, bandwidth, latency in ns], one per link and direction"
    if not isinstance(listed, list | tuple) or not listed:
        raise network.error("links", listed, form)
    switches = network.read(BY_KEY["switches"]) or 0
    links = []
    for index, item in enumerate(listed):
        key = f"links[{index}]"
        if not isinstance(item, list | tuple) or len(item) != 4:
            raise network.error(key, item, "[source, target, bandwidth, latency in ns]")
        source, target = (
            network.whole_in(
                f"{key}[{end}]", item[end], 0, npus + switches - 1, _describe_devices(npus, switches)
            )
            for end in (0, 1)
        )
        if source == target:
            raise network.error(key, item, "two devices that differ")
        rate = _read_entry(network, BY_KEY["bandwidth"], f"{key}[2]", item[2], unit)
        latency = _read_entry(network, BY_KEY["latency"], f"{key}[3]", item[3], unit)
        links.append(Link(source, target, rate, latency))
    try:
        return LinkGraph(npus, switches, tuple(links))
    except ConfigError as error:
        raise ConfigError(f"{network.name}: {error.message}", hint=error.hint) from error


def _convert_rate(rate: float, unit: str) -> float:
    """Return bytes per ns. A GB of 10^9 bytes stays as exact as it is written."""
    return rate if unit == "GB/s" else rate * UNITS[unit] / 1_000_000_000


def _describe_devices(npus: int, switches: int) -> str:
    if not switches:
        return f"NPUs are 0 to {npus - 1}; switches says 0."
    return f"NPUs are 0 to {npus - 1}, switches {npus} to {npus + switches - 1}."


# ---------------------------------------------------------------------------------------------------
# Writing


def build_network_table(config: SystemConfig) -> dict[str, object]:
    """Return the network of a configuration as `network.yml` has it.

    The extended mode states the unit: GiB/s where that gives every rate exactly and in fewer digits, else GB/s.
    """
    dims, links = config.topology.dims, config.links
    rates = [dim.bytes_per_ns for dim in dims] + [
        link.bytes_per_ns for link in (links.links if links else ())
    ]
    written = [convert_to_gb_per_s(rate) for rate in rates]
    table: dict[str, object] = {}
    if config.extensions is not None:
        decimal = [simplify_number(rate) for rate in rates]
        if _count_digits(decimal) < _count_digits(written) or not all(map(_is_exact, written, rates)):
            written, unit = decimal, "GB/s"
        else:
            unit = "GiB/s"
        table[UNIT] = unit
    for setting in DIMENSION_SETTINGS:
        values = [getattr(dim, setting.attribute) for dim in dims]
        if setting.unit == NETWORK_UNIT:
            table[setting.key] = written[: len(dims)]
        elif setting.choices:
            table[setting.key] = [setting.name_of(value) for value in values]
        elif setting.required or any(value != setting.default for value in values):
            table[setting.key] = list(map(simplify_number, values))
    if links is not None:
        table["switches"] = links.switches
        table["links"] = [
            [link.source, link.target, rate, simplify_number(link.latency_ns)]
            for link, rate in zip(links.links, written[len(dims) :], strict=True)
        ]
    if config.costs is not None:
        table[COSTS] = config.costs.to_table()
    return table


def convert_to_gb_per_s(bytes_per_ns: float) -> float:
    """Return the network's GB/s (2^30 bytes) of a rate: the shortest number that is read back as the same rate.

    Example:
        >>> convert_to_gb_per_s(50 * 2**30 / 10**9), convert_to_gb_per_s(741.34 * 2**30 / 10**9)
        (50, 741.34)
    """
    about = bytes_per_ns * 1_000_000_000 / NETWORK_BYTES_PER_GB
    candidates = [float(f"{about:.{digits}g}") for digits in range(1, 18)]
    candidates += [about, math.nextafter(about, 0), math.nextafter(about, math.inf)]
    return simplify_number(
        next((candidate for candidate in candidates if _is_exact(candidate, bytes_per_ns)), about)
    )


def simplify_number(number: float) -> float:
    """Return a whole number as an int, so that files say 50 and not 50.0."""
    return int(number) if number == int(number) and abs(number) < 1 << 53 else number


def _is_exact(gb_per_s: float, bytes_per_ns: float) -> bool:
    return gb_per_s * NETWORK_BYTES_PER_GB / 1_000_000_000 == bytes_per_ns


def _count_digits(numbers: Sequence[float]) -> int:
    return sum(len(repr(number)) for number in numbers)
