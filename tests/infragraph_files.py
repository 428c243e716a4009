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


def clos_fabric() -> dict[str, Any]:
    """The two-tier fabric of Keysight/infragraph, yaml/closfabric.yaml, typed anew: hosts of two NPUs, four leaves, three spines.

    Its one2one edges join two network cards with the first two of sixteen ports; links inside of devices have no rate.
    """

    def of(choice: str, count: int, name: str) -> dict[str, Any]:
        return {"choice": choice, "count": count, "name": name}

    def inside(one: str, other: str, name: str) -> dict[str, Any]:
        return edge((None, one), (None, other), name, "many2many")

    server = {
        "name": "server",
        "components": [
            of("cpu", 1, "cpu"), of("npu", 2, "npu"), of("switch", 1, "nvlsw"), of("switch", 1, "pciesw"), of("nic", 2, "nic"),
            {**of("custom", 1, "mgmt"), "custom": {"type": "mgmt-nic"}},
        ],
        "links": [link("fabric"), link("nvlink"), link("pcie")],
        "edges": [
            edge((None, "mgmt"), (None, "cpu[0]"), "pcie"), inside("cpu", "cpu", "fabric"), inside("npu", "nvlsw", "nvlink"),
            inside("cpu[0]", "pciesw[0]", "pcie"), inside("npu[0:2]", "pciesw[0]", "pcie"), inside("nic[0:2]", "pciesw[0]", "pcie"),
        ],
    }  # fmt: skip
    switch = {
        "name": "switch",
        "components": [of("cpu", 1, "asic"), of("port", 16, "port")],
        "links": [link("ic")],
        "edges": [inside("asic", "port", "ic")],
    }
    down = [edge((f"host[{at}]", "nic"), (f"leafsw[{at}]", "port"), "leaf-link") for at in range(4)]
    up = [
        edge((f"leafsw[{leaf}]", f"port[{2 + spine}]"), (f"spinesw[{spine}]", f"port[{leaf}]"), "spine-link")
        for leaf in range(4)
        for spine in range(3)
    ]
    return {
        "name": "closfabric",
        "devices": [server, switch],
        "links": [link("leaf-link", 100), link("spine-link", 400)],
        "instances": [
            {"name": name, "device": device, "count": count}
            for name, device, count in (
                ("host", "server", 4),
                ("leafsw", "switch", 4),
                ("spinesw", "switch", 3),
            )
        ],
        "edges": down + up,
    }
