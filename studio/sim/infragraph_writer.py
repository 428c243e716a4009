"""Write a network as InfraGraph describes it: NPUs and switches as components, links in both directions as edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import yaml

from studio.errors import ConfigError
from studio.sim.extensions import LinkGraph
from studio.sim.infragraph import MOST_EDGES


def build_infrastructure(graph: LinkGraph, name: str, description: str, per_node: int = 0) -> dict[str, Any]:
    """Return a network as an infrastructure: nodes as instances of a device of NPUs, and one instance of all switches.

    Args:
        graph: The network.
        name: What to call it.
        description: What it is.
        per_node: NPUs of a node, which are numbered in a row. Where these are all or none, NPUs and switches are one device.

    Raises:
        ConfigError: A link has none of the same rate and latency back, which edges cannot say.
    """
    pairs = _count_pairs(graph)
    in_nodes = 1 < per_node < graph.npus and graph.npus % per_node == 0
    links, edges = _list_links_and_edges(graph, pairs, per_node if in_nodes else 0)
    switches = [{"name": "switch", "choice": "switch", "count": graph.switches}] if graph.switches else []
    # Without `infrastructure` around it: InfraGraph's package takes either form from a command, only this one from a program.
    table: dict[str, Any] = {"name": name, "description": description}
    if not in_nodes:
        components = [{"name": "xpu", "choice": "xpu", "count": graph.npus}, *switches]
        table["devices"] = [{"name": "system", "components": components, "links": links, "edges": edges}]
        table["instances"] = [{"name": "system", "device": "system", "count": 1}]
        return table
    node = {"name": "node", "components": [{"name": "xpu", "choice": "xpu", "count": per_node}]}
    fabric = {"name": "fabric", "components": switches}
    # The schema asks for links and edges of every device.
    table["devices"] = [
        {**each, "links": [], "edges": []} for each in ((node, fabric) if switches else (node,))
    ]
    table["links"] = links
    table["instances"] = [{"name": "node", "device": "node", "count": graph.npus // per_node}]
    if switches:
        table["instances"].append({"name": "fabric", "device": "fabric", "count": 1})
    table["edges"] = edges
    return table


_Pair = tuple[int, int, float, float]
"""Source, target, rate and latency of a link."""


def _count_pairs(graph: LinkGraph) -> Counter[_Pair]:
    """Return how many links there are of each kind, which are as many in both directions.

    Raises:
        ConfigError: They are not, or there are too many.
    """
    pairs: Counter[_Pair] = Counter(
        (link.source, link.target, link.bytes_per_ns, link.latency_ns) for link in graph.links
    )
    for (source, target, rate, latency), count in pairs.items():
        if pairs.get((target, source, rate, latency), 0) != count:
            raise ConfigError(
                f"the link from device {source} to device {target} ({rate:g} GB/s, {latency:g} ns) has none alike back; "
                "InfraGraph's edges go both ways",
                hint="Give both directions the same rate and latency.",
            )
    if sum(pairs.values()) // 2 > MOST_EDGES:
        raise ConfigError(f"{sum(pairs.values()) // 2:,} edges; allowed: up to {MOST_EDGES:,}")
    return pairs


def _list_links_and_edges(
    graph: LinkGraph, pairs: Counter[_Pair], per_node: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the links by name, and the edges that are made of them; `per_node` is 0 where NPUs and switches are one device."""
    # Two components are joined by a link of one name once: parallel ones need a name each.
    kinds = list(
        dict.fromkeys(
            (rate, latency, at) for (_, _, rate, latency), count in pairs.items() for at in range(count)
        )
    )
    links = [
        {
            "name": f"link{number}",
            "physical": {
                "bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": rate},
                "latency": {"choice": "ns", "ns": latency},
            },
        }
        for number, (rate, latency, _) in enumerate(kinds)
    ]
    edges = [
        {
            "ep1": _build_end(source, graph.npus, per_node),
            "ep2": _build_end(target, graph.npus, per_node),
            "scheme": "one2one",
            "link": f"link{kinds.index((rate, latency, at))}",
        }
        for (source, target, rate, latency), count in pairs.items()
        if source < target
        for at in range(count)
    ]
    return links, edges


def _build_end(device: int, npus: int, per_node: int) -> dict[str, str]:
    """Return how an edge names a device: an NPU, or a switch, which have the numbers after those."""
    if device >= npus:
        instance = {"instance": "fabric[0]"} if per_node else {}
        return {**instance, "component": f"switch[{device - npus}]"}
    if not per_node:
        return {"component": f"xpu[{device}]"}
    return {"instance": f"node[{device // per_node}]", "component": f"xpu[{device % per_node}]"}


def as_yaml(table: Mapping[str, Any]) -> str:
    """Return a table as YAML, short lists on a line."""
    return yaml.safe_dump(
        dict(table), sort_keys=False, default_flow_style=None, width=120, allow_unicode=True
    )
