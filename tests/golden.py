"""Golden records of the reference simulator: one JSON object per case, made into trace and configuration."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from studio.et.build import build_graph
from studio.sim.config import SystemConfig
from studio.sim.parts import CustomAlgorithms, Parts, interpret
from studio.trace import CommGroup, Graph, Rank, Trace, compute_digest

CUSTOM_KEYS = {
    "all-reduce-implementation-custom": "all_reduce",
    "all-gather-implementation-custom": "all_gather",
    "reduce-scatter-implementation-custom": "reduce_scatter",
    "all-to-all-implementation-custom": "all_to_all",
}

Record = dict[str, Any]


def records(path: Path) -> Iterator[Record]:
    """Yield the cases of a file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            yield json.loads(line)


def case(record: Record) -> tuple[Trace, SystemConfig]:
    """Return trace and configuration of a record.

    Raises:
        StudioError: The configuration is not allowed.
    """
    trace, parts, custom = parts_of(record)
    return trace, interpret(parts, custom).config


def parts_of(record: Record) -> tuple[Trace, Parts, CustomAlgorithms]:
    """Return trace, tables and algorithms of a record, before they are interpreted."""
    npus = math.prod(record["network"]["npus_count"])
    custom = {
        CUSTOM_KEYS[key]: trace_of_workload({"ranks": nodes}, len(nodes))
        for key, nodes in (record.get("custom_collectives") or {}).items()
    }
    parts = Parts(
        record["network"],
        record["system"],
        record.get("memory"),
        None,
        record.get("cli") or {},
        record["mode"],
    )
    trace = trace_of_workload(record["workload"], npus, record.get("groups"))
    return trace, parts, CustomAlgorithms(custom)


def trace_of_workload(workload: Record, npus: int, groups: dict[str, list[int]] | None = None) -> Trace:
    """Return the trace of a record; ranks whose graphs are equal up to peers and groups share one."""
    graphs: list[Graph] = []
    known: dict[bytes, int] = {}
    ranks = []
    if "all_ranks" in workload:
        graph, slots = build_graph(workload["all_ranks"])
        graphs, ranks = [graph], [Rank(number, 0, slots) for number in range(npus)]
    for number, nodes in enumerate(workload.get("ranks", ())):
        graph, slots = build_graph(nodes)
        at = known.setdefault(compute_digest(graph), len(graphs))
        if at == len(graphs):
            graphs.append(graph)
        ranks.append(Rank(number, at, slots))
    listed = tuple(CommGroup(name, tuple(members)) for name, members in (groups or {}).items())
    return Trace(tuple(graphs), tuple(ranks), listed)
