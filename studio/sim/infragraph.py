"""Read networks as InfraGraph describes them: as single links between NPUs and switches.

An infrastructure is made of instances of devices, a device of components; edges with named links join components of one device,
and components of instances. What stands between is shortened: a component with two neighbours, such as a port or a network
card, is a piece of wire unless it is a switch, and one with a single neighbour leads nowhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studio.errors import ConfigError
from studio.sim.astra import read_yaml

NPU_KINDS = ("xpu", "npu", "gpu")
"""Kinds of components that run a rank."""
_MOST_VERTICES, MOST_EDGES, _DEEPEST = 200_000, 500_000, 8
_SLICE = re.compile(r"\s*(?P<name>[^\[\].]+?)\s*(\[(?P<inside>[^\[\]]*)\])?\s*")
_GIGABYTES = {
    "gigabytes_per_second": 1.0, "g_bytes_per_second": 1.0, "giga_bytes_per_second": 1.0,
    "gigabits_per_second": 1 / 8, "g_bits_per_second": 1 / 8, "giga_bits_per_second": 1 / 8,
}  # fmt: skip
_NS = {"ms": 1e6, "us": 1e3, "ns": 1.0}
_CORRECT = "InfraGraph's schema is at infragraph.dev; form of a file: infrastructure with devices, links, instances and edges."


@dataclass(frozen=True, slots=True)
class Wire:
    """Rate and latency of a named link; the rate is None where the file gives none that can be used."""

    bytes_per_ns: float | None
    latency_ns: float


@dataclass(frozen=True, slots=True)
class Network:
    """A network that was read.

    Attributes:
        name: What the file calls it.
        npus: The NPUs, by the names of their components.
        switches: What joins them, likewise.
        links: Two devices (NPUs first, then switches), GB/s and ns; each goes both ways.
        per_node: NPUs of an instance where all have alike, else all.
        notes: What was left out or assumed, a sentence each.
    """

    name: str
    npus: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[tuple[int, int, float, float], ...]
    per_node: int
    notes: tuple[str, ...]

    def table(self) -> dict[str, Any]:
        """Return the network as `network.yml` has it."""
        count = len(self.npus)
        dims = [self.per_node, count // self.per_node] if self.per_node < count else [count]
        own = [rate for source, _, rate, _ in self.links if source < count] or [
            rate for *_, rate, _ in self.links
        ]
        return {
            "bandwidth-unit": "GB/s",
            "topology": ["Switch"] * len(dims),
            "npus_count": dims,
            "bandwidth": [max(own)] * (len(dims) - 1) + [min(own)],
            "latency": [0] * len(dims),
            "switches": len(self.switches),
            "links": [
                [*ends, rate, latency]
                for first, second, rate, latency in self.links
                for ends in ((first, second), (second, first))
            ],
        }


def read_network(path: Path, given: Mapping[str, Wire] | None = None) -> Network:
    """Read the network of an infrastructure.

    Args:
        path: The file, YAML or JSON.
        given: Rates and latencies of links by name, ahead of those of the file.

    Raises:
        ConfigError: It is no infrastructure, a name in it is not there, or a link has no rate.
    """
    table = read_yaml(path)
    inner = table.get("infrastructure", table)
    if not isinstance(inner, dict) or not isinstance(inner.get("instances"), list):
        raise ConfigError(f"{path.name}: no list 'instances' of an infrastructure", hint=_CORRECT)
    return _Reader(path.name, inner, given or {}).network()


class _Reader:
    """One infrastructure being read."""

    def __init__(self, name: str, table: dict[str, Any], given: Mapping[str, Wire]) -> None:
        self.file, self.table, self.given = name, table, given
        self.devices = {
            each["name"]: each for each in self.list_named(table, "devices", "the infrastructure")
        }
        self.kinds: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.expanded = self.unpaired = 0
        self.edges: list[tuple[str, str, str, Wire]] = []
        self.joined: set[tuple[str, str, str]] = set()

    def fail(self, place: str, message: str) -> ConfigError:
        """Return the error about one place."""
        return ConfigError(f"{self.file}: {place}: {message}", hint=_CORRECT)

    def list_named(self, table: Mapping[str, Any], key: str, place: str) -> list[dict[str, Any]]:
        """Return the objects of a list that have a name; the list may be missing."""
        items = table.get(key) or []
        if not isinstance(items, list) or not all(
            isinstance(each, dict) and isinstance(each.get("name"), str) for each in items
        ):
            raise self.fail(f"{key} of {place}", "no list of objects with a name")
        return items

    def network(self) -> Network:
        """Return the network."""
        wires = self.wires(self.table, "the infrastructure")
        instances = self.list_named(self.table, "instances", "the infrastructure")
        counts = {}
        for each in instances:
            device = str(each.get("device") or each["name"])
            counts[each["name"]] = (device, self.count(each, f"instance {each['name']}"))
            for index in range(counts[each["name"]][1]):
                self.expand(device, f"{each['name']}.{index}", 0)
        for place, edge in self.iterate_edges(self.table, "the infrastructure"):
            self.edge(edge, place, wires, counts, "")
        return self.shorten(str(self.table.get("name") or self.file))

    def iterate_edges(self, table: Mapping[str, Any], of: str) -> Iterator[tuple[str, Any]]:
        """Yield place and edge of every edge; connections, the older form, as edges."""
        for key in ("edges", "connections"):
            if not isinstance(table.get(key) or [], list):
                raise self.fail(f"{key} of {of}", "no list")
        for number, edge in enumerate(table.get("edges") or []):
            yield f"edge {number} of {of}", edge
        for number, connection in enumerate(table.get("connections") or []):
            place = f"connection {number} of {of}"
            words = connection.split(".") if isinstance(connection, str) else []
            half = len(words) // 2
            if len(words) not in (5, 9):
                raise self.fail(
                    place,
                    f"{str(connection)[:60]!r}; allowed: such as xpu.0.pcie.nic.0 or host.0.nic.0.eth.leaf.0.port.0",
                )
            ends = []
            for side in (words[:half], words[half + 1 :]):
                names = [f"{name}[{index}]" for name, index in zip(side[::2], side[1::2], strict=True)]
                ends.append({"component": names[-1], **({"instance": names[0]} if len(names) == 2 else {})})
            yield place, {"ep1": ends[0], "ep2": ends[1], "scheme": "one2one", "link": words[half]}

    def count(self, table: Mapping[str, Any], place: str) -> int:
        """Return how many there are of something."""
        value = table.get("count", 1)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_VERTICES:
            raise self.fail(place, f"count is {value!r}; allowed: 1 to {_MOST_VERTICES:,}")
        return value

    def wires(self, table: Mapping[str, Any], place: str) -> dict[str, Wire]:
        """Return the links of an infrastructure or a device by name."""
        by_name = {}
        for each in self.list_named(table, "links", place):
            physical = _get_table(each, "physical") or each
            bandwidth, waits = _get_table(physical, "bandwidth"), _get_table(physical, "latency")
            rates = [
                bandwidth[key] * scale for key, scale in _GIGABYTES.items() if _is_rate(bandwidth.get(key))
            ]
            latency = [waits[key] * scale for key, scale in _NS.items() if _is_rate(waits.get(key), 0)]
            own = Wire(rates[0] if rates else None, latency[0] if latency else 0.0)
            by_name[each["name"]] = self.given.get(each["name"], own)
        return by_name

    def expand(self, device: str, prefix: str, depth: int) -> None:
        """Add the components and edges of one device below a name."""
        table = self.devices.get(device)
        if table is None:
            raise self.fail(
                f"instance {prefix}",
                f"device {device!r} is not in devices: {', '.join(list(self.devices)[:8])}",
            )
        self.expanded += 1
        if depth > _DEEPEST or self.expanded > _MOST_VERTICES:
            raise self.fail(f"device {device}", "devices in devices without end")
        inner: dict[str, tuple[str, int]] = {}
        for each in self.list_named(table, "components", f"device {device}"):
            kind = str(each.get("choice") or each.get("type") or "custom").lower()
            count = self.count(each, f"component {each['name']} of device {device}")
            inner[each["name"]] = (each["name"], count)
            self.numbers[f"{prefix}.{each['name']}"] = count
            for index in range(count):
                name = f"{prefix}.{each['name']}.{index}"
                if kind == "device":
                    self.expand(each["name"], name, depth + 1)
                else:
                    self.kinds[name] = kind
                if len(self.kinds) > _MOST_VERTICES:
                    raise self.fail("the infrastructure", f"more than {_MOST_VERTICES:,} components")
        wires = self.wires(table, f"device {device}")
        for place, edge in self.iterate_edges(table, f"device {device}"):
            self.edge(edge, place, wires, inner, f"{prefix}.")

    def edge(
        self,
        edge: Any,
        place: str,
        wires: Mapping[str, Wire],
        known: Mapping[str, tuple[str, int]],
        prefix: str,
    ) -> None:
        """Add what an edge joins."""
        if not isinstance(edge, dict):
            raise self.fail(place, "no object")
        link = str(edge.get("link"))
        if link not in wires:
            raise self.fail(
                place, f"link {link[:40]!r} is not there; allowed: {', '.join(list(wires)[:8]) or 'none'}"
            )
        ends = [list(self.ends(edge.get(key), f"{key} of {place}", known, prefix)) for key in ("ep1", "ep2")]
        scheme = str(
            edge.get("scheme") or ("many2many" if edge.get("many2many") is True else "one2one")
        ).lower()
        if scheme == "many2many":
            if len(ends[0]) * len(ends[1]) > MOST_EDGES:
                raise self.fail(place, f"more than {MOST_EDGES:,} pairs")
            pairs = [(first, second) for first in ends[0] for second in ends[1]]
        elif scheme == "one2one":
            # As InfraGraph's own service does it: the first of the longer end.
            pairs = list(zip(*ends, strict=False))
            self.unpaired += abs(len(ends[0]) - len(ends[1]))
        else:
            raise self.fail(place, f"scheme is {scheme!r}; allowed: one2one, many2many")
        # As in InfraGraph's own graph, two components are joined by a link once, however often and in which order edges say so.
        distinct = dict.fromkeys((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])
        self.edges += [
            (first, second, link, wires[link])
            for first, second in distinct
            if (first, second, link) not in self.joined
        ]
        self.joined.update((first, second, link) for first, second in distinct)
        if len(self.edges) > MOST_EDGES:
            raise self.fail("the infrastructure", f"more than {MOST_EDGES:,} edges")

    def ends(self, end: Any, place: str, known: Mapping[str, tuple[str, int]], prefix: str) -> Iterator[str]:
        """Yield the components that an end of an edge names."""
        if not isinstance(end, dict) or not isinstance(end.get("component"), str):
            raise self.fail(place, "no object with a component")
        outer = end.get("instance") or end.get("device")
        if prefix and not outer:
            yield from self.pick(end["component"], place, prefix)
            return
        if not isinstance(outer, str):
            raise self.fail(place, "no instance")
        name, inside = self.split(outer, place)
        if name not in known:
            raise self.fail(place, f"{name!r} is not there; allowed: {', '.join(list(known)[:8])}")
        for index in self.indexes(inside, known[name][1], place):
            yield from self.pick(end["component"], place, f"{prefix}{name}.{index}.")

    def split(self, text: str, place: str) -> tuple[str, str | None]:
        """Return a name and what stands in brackets behind it."""
        match = _SLICE.fullmatch(text)
        if match is None:
            raise self.fail(place, f"{text[:60]!r} is no name with indexes such as port[0:8]")
        return match["name"], match["inside"]

    def pick(self, text: str, place: str, prefix: str) -> Iterator[str]:
        """Yield the components of a name with indexes."""
        # Components of a device that is a component itself stand behind a dot: nic[0].port[1].
        first, _, inner = text.partition(".")
        name, inside = self.split(first, place)
        count = self.numbers.get(f"{prefix}{name}", 0)
        if not count:
            raise self.fail(place, f"there is no component {name!r} in {prefix.rstrip('.')}")
        for index in self.indexes(inside, count, place):
            if inner:
                yield from self.pick(inner, place, f"{prefix}{name}.{index}.")
            elif f"{prefix}{name}.{index}" not in self.kinds:
                raise self.fail(
                    place,
                    f"{name!r} is a device; allowed: a component of it, such as {name}[{index}].port[0]",
                )
            else:
                yield f"{prefix}{name}.{index}"

    def indexes(self, inside: str | None, count: int, place: str) -> Sequence[int]:
        """Return what indexes in Python's notation choose."""
        if inside is None or not inside.strip():
            return range(count)
        parts = [part.strip() for part in inside.split(":")]
        try:
            numbers = [int(part) if part else None for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) == 1 and numbers[0] is not None and 0 <= numbers[0] < count:
            return [numbers[0]]
        if not 2 <= len(numbers) <= 3 or (len(numbers) == 3 and not numbers[2]):
            raise self.fail(
                place,
                f"[{inside[:40]}] chooses nothing; allowed: up to [{count - 1}], or a slice such as [0:{count}]",
            )
        stop = numbers[1]
        if stop is not None and stop > count:
            raise self.fail(place, f"[{inside[:40]}] goes beyond the {count:,} there are")
        return range(count)[slice(*numbers)]

    # Shortening

    def shorten(self, name: str) -> Network:
        """Return the network of NPUs and what joins more than two of them."""
        npus = [each for each, kind in self.kinds.items() if kind in NPU_KINDS]
        if not npus:
            kinds = ", ".join(dict.fromkeys(self.kinds.values())) or "none"
            raise self.fail(
                "the infrastructure",
                f"no NPU; kinds of its components: {kinds}; allowed: {', '.join(NPU_KINDS)}",
            )
        self.check_rates(frozenset(npus))
        around: dict[str, list[tuple[str, float, float]]] = {each: [] for each in self.kinds}
        for first, second, _, wire in self.edges:
            for here, neighbour in ((first, second), (second, first)):
                around[here].append((neighbour, wire.bytes_per_ns or 0.0, wire.latency_ns))
        solid = frozenset(each for each, kind in self.kinds.items() if kind == "switch")
        dropped = _shorten(around, frozenset(npus), solid)
        switches = [each for each in self.kinds if each in around and each not in set(npus)]
        place = {each: number for number, each in enumerate((*npus, *switches))}
        links = tuple(
            (place[here], place[neighbour], rate, latency)
            for here, wires in around.items()
            for neighbour, rate, latency in wires
            if place[here] < place[neighbour]
        )
        if not links:
            raise self.fail("the infrastructure", f"no edge joins its {len(npus):,} NPUs")
        nodes = Counter(each.split(".", 2)[0] + "." + each.split(".", 2)[1] for each in npus)
        alike = set(nodes.values())
        notes = (
            [f"{dropped['ends']:,} components that lead to no NPU were left out."] if dropped["ends"] else []
        )
        if dropped["wires"]:
            notes.append(
                f"{dropped['wires']:,} components with two neighbours count as part of the wire between them."
            )
        if self.unpaired:
            notes.append(
                f"{self.unpaired:,} components of edges of the scheme one2one have no counterpart and are not joined."
            )
        if not any(latency for *_, latency in links):
            notes.append("No link has a latency; all are taken as 0 ns.")
        return Network(
            name,
            tuple(npus),
            tuple(switches),
            links,
            alike.pop() if len(alike) == 1 else len(npus),
            tuple(notes),
        )

    def check_rates(self, npus: frozenset[str]) -> None:
        """Raise an error that names every link without a rate, but for those that lead to no NPU."""
        unrated = {link for _, _, link, wire in self.edges if wire.bytes_per_ns is None}
        if not unrated:
            return
        leading = _find_leading([edge[:2] for edge in self.edges], npus)
        needed = sorted(
            {link for first, second, link, _ in self.edges if link in unrated and {first, second} <= leading}
        )
        if needed:
            names = ", ".join(repr(each[:40]) for each in needed)
            words = f"link {names} has" if len(needed) == 1 else f"links {names} have"
            raise ConfigError(
                f"{self.file}: {words} no bandwidth in bytes or bits per second",
                hint="Give GB/s, here 32: " + " ".join(f"--link {each}=32" for each in needed),
            )


def _find_leading(edges: Sequence[tuple[str, str]], kept: frozenset[str]) -> set[str]:
    """Return the components that are left once those with one neighbour are taken out, over and over; some are kept."""
    around: dict[str, set[str]] = {}
    for first, second in edges:
        around.setdefault(first, set()).add(second)
        around.setdefault(second, set()).add(first)
    waiting = [each for each in around if each not in kept]
    while waiting:
        here = waiting.pop()
        if len(around.get(here, ())) > 1 or here not in around:
            continue
        for neighbour in around.pop(here):
            around[neighbour].discard(here)
            if neighbour not in kept:
                waiting.append(neighbour)
    return set(around)


def _shorten(
    around: dict[str, list[tuple[str, float, float]]], kept: frozenset[str], solid: frozenset[str]
) -> Counter[str]:
    """Take out components that lead nowhere, and those that are a piece of wire; returns how many of each.

    Args:
        around: The edges of each component; changed.
        kept: Components that stay whatever they have.
        solid: Components that are no piece of wire.
    """
    dropped: Counter[str] = Counter()
    waiting = [each for each in around if each not in kept]
    while waiting:
        here = waiting.pop()
        wires = around.get(here)
        if wires is None or len(wires) > 2:
            continue
        if len(wires) == 2 and (here in solid or wires[0][0] == wires[1][0]):
            continue
        del around[here]
        dropped["wires" if len(wires) == 2 else "ends"] += 1
        for neighbour, rate, latency in wires:
            around[neighbour].remove((here, rate, latency))
        if len(wires) == 2:
            (left, first, wait), (right, second, more) = wires
            around[left].append((right, min(first, second), wait + more))
            around[right].append((left, min(first, second), wait + more))
        else:
            waiting += [neighbour for neighbour, _, _ in wires if neighbour not in kept]
    return dropped


def _get_table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object under a key, an empty one where there is none."""
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _is_rate(value: object, least: float = 1e-12) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < 1e12
