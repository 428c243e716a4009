"""Infrastructures as InfraGraph describes them, made by hand from its public schema (Keysight/infragraph, models/ and artifacts/)."""

from __future__ import annotations

from typing import Any


def link(name: str, gigabits: float | None = None, us: float | None = None) -> dict[str, Any]:
    """A link; without a rate where none is given."""
    physical: dict[str, Any] = {}
    if gigabits is not None:
        physical["bandwidth"] = {"choice": "gigabits_per_second", "gigabits_per_second": gigabits}
    if us is not None:
        physical["latency"] = {"choice": "us", "us": us}
    return {"name": name, **({"physical": physical} if physical else {})}


def edge(
    one: tuple[str | None, str], other: tuple[str | None, str], name: str, scheme: str = "one2one"
) -> dict[str, Any]:
    """An edge between components, of instances where they are named."""
    ends = [
        {"component": component, **({"instance": instance} if instance else {})}
        for instance, component in (one, other)
    ]
    return {"ep1": ends[0], "ep2": ends[1], "scheme": scheme, "link": name}


def cluster(hosts: int = 2) -> dict[str, Any]:
    """Hosts of 4 NPUs on a switch of their own, each NPU with a network card, on one switch between hosts; a CPU that leads nowhere."""
    host = {
        "name": "server",
        "components": [
            {"name": "xpu", "choice": "xpu", "count": 4},
            {"name": "nvsw", "choice": "switch", "count": 1},
            {"name": "nic", "choice": "nic", "count": 4},
            {"name": "cpu", "choice": "cpu", "count": 1},
        ],
        "links": [link("nvlink", 3600, 0.5), link("pcie", 512, 0.2)],
        "edges": [
            edge((None, "xpu"), (None, "nvsw[0]"), "nvlink", "many2many"),
            edge((None, "xpu[0:4]"), (None, "nic[0:4]"), "pcie"),
            edge((None, "cpu[0]"), (None, "nvsw[0]"), "pcie"),
        ],
    }
    switch = {
        "name": "tor",
        "components": [
            {"name": "asic", "choice": "switch", "count": 1},
            {"name": "port", "choice": "port", "count": 4 * hosts + 2},
        ],
        "links": [link("ic", 8000)],
        "edges": [edge((None, "asic[0]"), (None, "port"), "ic", "many2many")],
    }
    return {
        "infrastructure": {
            "name": "two tiers",
            "devices": [host, switch],
            "links": [link("eth", 400, 1)],
            "instances": [
                {"name": "host", "device": "server", "count": hosts},
                {"name": "leaf", "device": "tor", "count": 1},
            ],
            "edges": [
                edge((f"host[{number}]", "nic"), ("leaf[0]", f"port[{4 * number}:{4 * number + 4}]"), "eth")
                for number in range(hosts)
            ],
        }
    }
