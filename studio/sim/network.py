"""The keys of `network.yml`: dimensions as ASTRA-sim writes them, and what the extended mode adds.

The reference takes a GB of the network to be 2^30 bytes. `bandwidth-unit` says it: `GiB/s` is that, `GB/s` is
10^9 bytes per second. `efficiency` and `message-overhead` (ns) have an entry per dimension. `links` lists single
links as [source, target, bandwidth, latency in ns], one direction each, `switches` says how many devices there
are beside the NPUs; the dimensions then only say how collectives are carried out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from studio.errors import ConfigError
from studio.sim.config import MAX_NPUS, Dimension, DimensionKind, SystemConfig, Topology
from studio.sim.extensions import MOST_DEVICES, Link, LinkGraph
from studio.sim.fields import Fields

NETWORK_BYTES_PER_GB = 1 << 30
"""What the network layer of the reference takes a GB to be."""

TOPOLOGIES: Mapping[str, DimensionKind] = {
    "Ring": "ring",
    "FullyConnected": "fully_connected",
    "Switch": "switch",
}
UNIT = "bandwidth-unit"
UNITS: Mapping[str, int] = {"GiB/s": NETWORK_BYTES_PER_GB, "GB/s": 1_000_000_000}
NETWORK_KEYS = ("topology", "npus_count", "bandwidth", "latency")
LISTED_KEYS = (*NETWORK_KEYS, "efficiency", "message-overhead")
EXTENDED_NETWORK_KEYS = (UNIT, "efficiency", "message-overhead", "switches", "links")


def network_of(network: Fields, *, extended: bool) -> tuple[Topology, LinkGraph | None]:
    """Return the dimensions and, where there are any, the single links of a network.

    Raises:
        ConfigError: A value is not allowed, or belongs to the extended mode and the mode is compatible.
    """
    for key in EXTENDED_NETWORK_KEYS:
        if key in network and not extended:
            raise network.error(
                key,
                network.table[key],
                "no such key in the compatible mode",
                'Set the mode to extended ("extended": {} in system.json, or --mode extended), or take the key out.',
            )
    unit = network.choice(UNIT, UNITS) if UNIT in network else NETWORK_BYTES_PER_GB
    topology = _topology(network, unit, extended=extended)
    if "links" in network:
        return topology, _links(network, unit, topology.npus)
    if "switches" in network:
        raise network.error(
            "switches", network.table["switches"], "only beside links", "List the links, or leave it out."
        )
    return topology, None


def _topology(network: Fields, unit: int, *, extended: bool) -> Topology:
    kinds = network.items("topology")
    given = [key for key in LISTED_KEYS[1:] if key in NETWORK_KEYS or key in network]
    lists = {key: network.items(key) for key in given}
    for key, values in lists.items():
        if len(values) != len(kinds):
            raise network.error(
                key,
                values,
                f"{len(kinds)} entries, as many as topology has",
                "All lists have one entry per dimension, the dimension nearest the NPU first.",
            )
    lists["topology"] = kinds
    return Topology(
        tuple(_dimension(network, lists, at, unit, 1 if extended else 2) for at in range(len(kinds)))
    )


def _dimension(
    network: Fields, lists: Mapping[str, list[object]], at: int, unit: int, least: int
) -> Dimension:
    def number(key: str, default: float, allowed: str, least: float | None, above: float | None) -> float:
        if key not in lists:
            return default
        return network.number_in(f"{key}[{at}]", lists[key][at], allowed, least=least, above=above)

    kind = lists["topology"][at]
    one_npu = "Leave a dimension of one NPU out of all lists."
    bandwidth = number("bandwidth", 0, _rates_allowed(unit), None, 0)
    efficiency = number("efficiency", 1.0, "a number above 0 and at most 1", None, 0)
    if efficiency > 1:
        raise network.error(f"efficiency[{at}]", lists["efficiency"][at], "a number above 0 and at most 1")
    return Dimension(
        kind=network.choice_in(f"topology[{at}]", kind, TOPOLOGIES),
        size=network.whole_in(f"npus_count[{at}]", lists["npus_count"][at], least, MAX_NPUS, one_npu),
        bytes_per_ns=_rate(bandwidth, unit),
        latency_ns=number("latency", 0, "a number at least 0, in ns", 0, None),
        efficiency=efficiency,
        message_overhead_ns=number("message-overhead", 0.0, "a number at least 0, in ns", 0, None),
    )


def _links(network: Fields, unit: int, npus: int) -> LinkGraph:
    listed = network.table["links"]
    form = "a list of [source, target, bandwidth, latency in ns], one per link and direction"
    if not isinstance(listed, list | tuple) or not listed:
        raise network.error("links", listed, form)
    switches = network.whole("switches", 0, 0, MOST_DEVICES)
    links = []
    for at, one in enumerate(listed):
        key = f"links[{at}]"
        if not isinstance(one, list | tuple) or len(one) != 4:
            raise network.error(key, one, "[source, target, bandwidth, latency in ns]")
        source, target = (
            network.whole_in(f"{key}[{end}]", one[end], 0, npus + switches - 1, _devices(npus, switches))
            for end in (0, 1)
        )
        if source == target:
            raise network.error(key, one, "two devices that differ")
        rate = network.number_in(f"{key}[2]", one[2], _rates_allowed(unit), above=0)
        latency = network.number_in(f"{key}[3]", one[3], "a number at least 0, in ns", least=0)
        links.append(Link(source, target, _rate(rate, unit), latency))
    try:
        return LinkGraph(npus, switches, tuple(links))
    except ConfigError as error:
        raise ConfigError(f"{network.name}: {error.message}", hint=error.hint) from error


def _rate(gb_per_s: float, unit: int) -> float:
    """Return bytes per ns. A GB of 10^9 bytes stays as exact as it is written."""
    return gb_per_s if unit == UNITS["GB/s"] else gb_per_s * unit / 1_000_000_000


def _rates_allowed(unit: int) -> str:
    name = next(name for name, size in UNITS.items() if size == unit)
    return f"a number above 0, in {name}"


def _devices(npus: int, switches: int) -> str:
    if not switches:
        return f"NPUs are 0 to {npus - 1}; switches says 0."
    return f"NPUs are 0 to {npus - 1}, switches {npus} to {npus + switches - 1}."


# ---------------------------------------------------------------------------------------------------
# And back


def network_table(config: SystemConfig) -> dict[str, object]:
    """Return the network of a configuration as `network.yml` has it.

    The extended mode states the unit: GiB/s where that gives every rate exactly and in fewer digits, else GB/s.
    """
    dims, links = config.topology.dims, config.links
    kinds = {kind: name for name, kind in TOPOLOGIES.items()}
    rates = [dim.bytes_per_ns for dim in dims] + [
        link.bytes_per_ns for link in (links.links if links else ())
    ]
    written = [network_gb_per_s(rate) for rate in rates]
    table: dict[str, object] = {}
    if config.extensions is not None:
        decimal = [plain(rate) for rate in rates]
        if _digits(decimal) < _digits(written) or not all(map(_exact, written, rates)):
            written, unit = decimal, "GB/s"
        else:
            unit = "GiB/s"
        table[UNIT] = unit
    table |= {
        "topology": [kinds[dim.kind] for dim in dims],
        "npus_count": [dim.size for dim in dims],
        "bandwidth": written[: len(dims)],
        "latency": [plain(dim.latency_ns) for dim in dims],
    }
    if any(dim.efficiency != 1 for dim in dims):
        table["efficiency"] = [plain(dim.efficiency) for dim in dims]
    if any(dim.message_overhead_ns for dim in dims):
        table["message-overhead"] = [plain(dim.message_overhead_ns) for dim in dims]
    if links is not None:
        table["switches"] = links.switches
        table["links"] = [
            [link.source, link.target, rate, plain(link.latency_ns)]
            for link, rate in zip(links.links, written[len(dims) :], strict=True)
        ]
    return table


def network_gb_per_s(bytes_per_ns: float) -> float:
    """Return the network's GB/s (2^30 bytes) of a rate: the shortest number that is read back as the same rate.

    Example:
        >>> network_gb_per_s(50 * 2**30 / 10**9), network_gb_per_s(741.34 * 2**30 / 10**9)
        (50, 741.34)
    """
    about = bytes_per_ns * 1_000_000_000 / NETWORK_BYTES_PER_GB
    candidates = [float(f"{about:.{digits}g}") for digits in range(1, 18)]
    candidates += [about, math.nextafter(about, 0), math.nextafter(about, math.inf)]
    return plain(next((one for one in candidates if _exact(one, bytes_per_ns)), about))


def plain(number: float) -> float:
    """Return a whole number as an int, so that files say 50 and not 50.0."""
    return int(number) if number == int(number) and abs(number) < 1 << 53 else number


def _exact(gb_per_s: float, bytes_per_ns: float) -> bool:
    return gb_per_s * NETWORK_BYTES_PER_GB / 1_000_000_000 == bytes_per_ns


def _digits(numbers: Sequence[float]) -> int:
    return sum(len(repr(number)) for number in numbers)
