"""Store traces: ranks and the like in JSON, graphs as arrays.

trace.json        ranks, comm groups, findings, sizes and checksums of the files of graphs
graphs.arrow      one record batch per distinct graph, one list column per array of the graph
graphs.<n>.arrow  instead of it: the same for one distinct graph each, where they were made apart from each other
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from studio.decoding import build_decoder
from studio.store.arrays import Checksum, Columns, read_columns, read_several, write_columns
from studio.store.durable_files import convert_damage, decode_sealed, escape_name, write_sealed
from studio.trace import (
    Attribute,
    CommGroup,
    Finding,
    Graph,
    Rank,
    Trace,
    ValueKind,
    assemble_graph,
    iterate_arrays,
)

_GRAPHS = "graphs.arrow"


class _StoredAttribute(msgspec.Struct, array_like=True):
    name: str
    kind: int
    value: Any
    doc: str


class _StoredRank(msgspec.Struct, array_like=True):
    number: int
    graph: int
    slots: list[int | str]
    version: str
    metadata: list[_StoredAttribute]
    extra: bytes
    file: str


class _StoredTrace(msgspec.Struct):
    ranks: list[_StoredRank]
    groups: list[CommGroup]
    findings: list[Finding]
    graphs: Checksum | None = None
    each: list[Checksum] = []


_stored_trace = build_decoder(_StoredTrace)


def name_graph_file(index: int) -> str:
    """Return the name of the file of a graph that has a file of its own."""
    return f"graphs.{index}.arrow"


def write_trace(
    trace: Trace,
    folder: Path,
    tick: Callable[[int, int], None] | None = None,
    each: Sequence[Checksum] | None = None,
) -> None:
    """Write a trace to an existing folder.

    Args:
        trace: The trace.
        folder: Where to.
        tick: Told the graphs written and the graphs in all; may raise to stop.
        each: Checksums of the graphs, where each is there already in a file of its own.
    """

    def iterate_graphs() -> Iterator[Columns]:
        for done, graph in enumerate(trace.graphs, 1):
            yield iterate_arrays(graph)
            if tick:
                tick(done, len(trace.graphs))

    checksum = write_columns(folder / _GRAPHS, iterate_graphs()) if each is None else None
    if each is not None and tick:
        tick(len(trace.graphs), len(trace.graphs))
    write_sealed(folder / "trace.json", _to_stored(trace, checksum, each or ()))


def read_trace(folder: Path) -> Trace:
    """Read a trace from a folder.

    Raises:
        Damaged: It is not there, or not as it was stored.
    """
    with convert_damage():
        stored = decode_sealed(folder / "trace.json", _stored_trace)
        graphs = tuple(map(build_graph, _read_stored_graphs(folder, stored)))
        ranks = tuple(_build_rank(stored_rank, len(graphs)) for stored_rank in stored.ranks)
        return Trace(graphs, ranks, tuple(stored.groups), tuple(stored.findings))


def _read_stored_graphs(folder: Path, stored: _StoredTrace) -> list[dict[str, NDArray[np.generic]]]:
    if not stored.each:
        return read_columns(folder / _GRAPHS, stored.graphs)
    files = [(folder / name_graph_file(index), checksum) for index, checksum in enumerate(stored.each)]
    return [columns for batches in read_several(files) for columns in batches]


def build_graph(columns: dict[str, NDArray[np.generic]]) -> Graph:
    """Return the graph of stored arrays."""
    return assemble_graph({**columns, "attrs.slot": columns["attrs.slot"].view(np.bool_)})


def _to_stored(trace: Trace, checksum: Checksum | None, each: Sequence[Checksum]) -> _StoredTrace:
    ranks = [
        _StoredRank(
            rank.number,
            rank.graph,
            list(rank.slots),
            rank.version,
            [_StoredAttribute(a.name, int(a.kind), _convert_to_json(a.value), a.doc) for a in rank.metadata],
            rank.extra,
            escape_name(rank.file),
        )
        for rank in trace.ranks
    ]
    findings = [
        replace(finding, message=escape_name(finding.message), file=escape_name(finding.file))
        for finding in trace.findings
    ]
    return _StoredTrace(ranks, list(trace.groups), findings, checksum, list(each))


def _convert_to_json(value: Any) -> Any:
    """Convert a value to JSON without loss: floats and bytes become hex text."""
    if isinstance(value, list):
        return [_convert_to_json(item) for item in value]
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    return value.hex() if isinstance(value, bytes) else value


def _build_rank(stored: _StoredRank, graphs: int) -> Rank:
    if not 0 <= stored.graph < graphs:
        raise ValueError(f"rank {stored.number} has no graph")
    metadata = tuple(
        Attribute(a.name, ValueKind(a.kind), _from_stored(ValueKind(a.kind), a.value), a.doc)
        for a in stored.metadata
    )
    return Rank(
        stored.number,
        stored.graph,
        tuple(stored.slots),
        stored.version,
        metadata,
        stored.extra,
        stored.file,
    )


def _from_stored(kind: ValueKind, value: Any) -> Any:
    if isinstance(value, list):
        return [_from_stored(kind, item) for item in value]
    if kind in (ValueKind.DOUBLE, ValueKind.DOUBLE_LIST, ValueKind.FLOAT, ValueKind.FLOAT_LIST):
        return struct.unpack(">d", bytes.fromhex(value))[0]
    return bytes.fromhex(value) if kind in (ValueKind.BYTES, ValueKind.BYTES_LIST) else value
