"""Traces written by hand: a few nodes per rank, so that the answer of a test can be seen in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from studio.et.job_builder import add_inferred_groups
from studio.et.schema import get_value_field, load_schema
from studio.trace import (
    DEVICE_NAME,
    Attribute,
    CollectiveType,
    CommGroup,
    Graph,
    NodeType,
    Rank,
    Trace,
    ValueKind,
    compute_digest,
)
from tests.strategies import chakra_file, part_of

KINDS = {
    bool: ValueKind.BOOL,
    int: ValueKind.INT64,
    float: ValueKind.DOUBLE,
    str: ValueKind.STRING,
}


def node(number: int, kind: str, *deps: int, name: str = "", micros: int = 0, **attributes: Any) -> Any:
    """A node: its id, its type by name, the ids it waits for, and its attributes."""
    made = load_schema().node(
        id=number, name=name or f"n{number}", type=NodeType[kind], data_deps=deps, duration_micros=micros
    )
    for key, value in attributes.items():
        attribute = made.attr.add(name=key)
        if isinstance(value, list):
            items = attribute.bool_list if not value or isinstance(value[0], bool) else attribute.int64_list
            items.SetInParent()
            items.values.extend(value)
        else:
            setattr(attribute, get_value_field(KINDS[type(value)]), value)
    return made


def at(start_us: int, micros: int, made: Any) -> Any:
    """A recorded node: it began then, and took so long."""
    made.start_time_micros, made.duration_micros = start_us, micros
    return made


def collective(number: int, kind: str, size: int, *deps: int, group: str = "", **attributes: Any) -> Any:
    """A collective of a comm group; of all ranks where no group is named."""
    if group:
        attributes["pg_name"] = group
    kind_number = int(CollectiveType[kind])
    return node(number, "COMM_COLL", *deps, comm_type=kind_number, comm_size=size, **attributes)


def trace_of(
    ranks: Sequence[Sequence[Any]] | Mapping[int, Sequence[Any]],
    groups: Mapping[str, Sequence[int]] | None = None,
) -> Trace:
    """The trace of these ranks; equal graphs are shared, as when files are read."""
    numbered = ranks if isinstance(ranks, Mapping) else dict(enumerate(ranks))
    graphs: list[Graph] = []
    known: dict[bytes, int] = {}
    parts: dict[bytes, Any] = {}
    made = []
    for number, nodes in numbered.items():
        file = chakra_file([one.SerializeToString() for one in nodes])
        part = parts[file] = parts.get(file) or part_of(file)
        index = known.setdefault(compute_digest(part.graph), len(graphs))
        if index == len(graphs):
            graphs.append(part.graph)
        made.append(Rank(number, index, part.rank.slots, part.rank.version))
    listed = tuple(CommGroup(name, tuple(members)) for name, members in (groups or {}).items())
    return add_inferred_groups(Trace(tuple(graphs), tuple(made), listed))


def recorded_on(trace: Trace, device: str) -> Trace:
    """Return a job whose ranks were recorded on a device."""
    metadata = (Attribute(DEVICE_NAME, ValueKind.STRING, device),)
    return replace(trace, ranks=tuple(replace(rank, metadata=metadata) for rank in trace.ranks))


def number_throughout(trace: Trace) -> Trace:
    """Return a job whose nodes are numbered through all ranks, as ASTRA-sim's converter of texts does."""
    graphs = []
    for index, rank in enumerate(trace.ranks):
        graph = trace.graph_of(rank)
        graphs.append(replace(graph, id=graph.id + np.uint64(1 + index * len(graph))))
    ranks = tuple(replace(rank, graph=index) for index, rank in enumerate(trace.ranks))
    return replace(trace, graphs=tuple(graphs), ranks=ranks)
