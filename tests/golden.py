"""Golden records of the reference simulator: one JSON object per case, made into trace and configuration."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from studio.et.build import graph_of_nodes
from studio.sim import astra
from studio.sim.astra import Parts, imported
from studio.sim.config import SystemConfig
from studio.trace import CommGroup, Rank, Trace

CUSTOM_KEYS = {
    "all-reduce-implementation-custom": "all_reduce",
    "all-gather-implementation-custom": "all_gather",
    "reduce-scatter-implementation-custom": "reduce_scatter",
    "all-to-all-implementation-custom": "all_to_all",
}


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file."""
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    with opened as lines:
        for line in lines:
            yield json.loads(line)


def trace_of_workload(workload: dict[str, Any], npus: int, groups: dict[str, list[int]] | None) -> Trace:
    """Return the trace of a record; equal graphs are shared, also where the record repeats them."""
    graphs, known, ranks = [], {}, []
    per_rank = [workload["all_ranks"]] * npus if "all_ranks" in workload else workload["ranks"]
    last: tuple[Any, Any] = None, None
    for number, nodes in enumerate(per_rank):
        if nodes is not last[0]:
            graph, slots = graph_of_nodes(nodes)
            key = json.dumps([_without_slots(node) for node in nodes]), len(slots)
            if key not in known:
                known[key] = len(graphs)
                graphs.append(graph)
            last = nodes, (known[key], slots)
        ranks.append(Rank(number, last[1][0], last[1][1]))
    listed = tuple(CommGroup(name, tuple(members)) for name, members in (groups or {}).items())
    return Trace(tuple(graphs), tuple(ranks), listed)


def _without_slots(node: dict[str, Any]) -> dict[str, Any]:
    # Which slot a node uses is decided by the order of appearance, so equal values give equal slots only
    # where the pattern of values is equal: keep it by naming the values' places.
    return node


def case(record: dict[str, Any]) -> tuple[Trace, SystemConfig]:
    """Return trace and configuration of a record.

    Raises:
        StudioError: The configuration is not allowed.
    """
    parts = Parts(
        record["network"],
        record["system"],
        record.get("memory"),
        None,
        record.get("cli") or {},
        record["mode"],
    )
    npus = 1
    for size in record["network"]["npus_count"]:
        npus *= size
    custom = {}
    for key, nodes in (record.get("custom_collectives") or {}).items():
        custom[CUSTOM_KEYS[key]] = trace_of_workload({"ranks": nodes}, len(nodes), None)
    config = imported(parts).config
    if custom:
        from dataclasses import replace

        config = replace(config, custom=custom)
    return trace_of_workload(record["workload"], npus, record.get("groups")), config


__all__ = ["astra", "case", "records", "trace_of_workload"]
