"""Make nodes, attributes and dependencies of jobs: columns of each distinct graph, which ranks share inside DuckDB.

A job of 16,384 ranks with four graphs is four graphs here too: the ranks are joined to the rows of their graph by the
query. What differs between ranks of one graph, the names of comm groups and peers, is a table of slots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from studio.analysis.collectives.groups import comm_nodes
from studio.analysis.job.kinds import counted_type_name, counted_types
from studio.arrow import optional_numbers, optional_texts, to_arrow
from studio.columns import join_columns
from studio.sql.arrow_columns import (
    column_of,
    column_of_texts,
    column_of_words,
    flags,
    numbers_of,
    table_of,
    utf8,
)
from studio.timeline import LANE_KINDS, graph_lanes
from studio.trace import (
    INT_KINDS,
    NONE,
    UNSIGNED_KINDS,
    Bool,
    Dependencies,
    Graph,
    Int64,
    NodeType,
    Trace,
    ValueKind,
    assumed_from,
    collective_name,
    decode_scalar,
    dense_column,
    dependency_ids,
    int_column,
    is_flagged,
    kind_table,
)

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER_KINDS = (*INT_KINDS, ValueKind.BOOL)
_NO_NUMBER = np.iinfo(np.int64).min
_COMMUNICATION = LANE_KINDS.index("communication")


def first_nodes(trace: Trace) -> Int64:
    """Return (G + 1,) where the nodes of each graph begin among those of all graphs, and the end."""
    return np.cumsum([0, *map(len, trace.graphs)])


def ranks_table(trace: Trace) -> pa.Table:
    """Return the ranks: `place`, `rank`, `graph`, `nodes`, `file` and `assumed_from`."""
    graphs = np.array([rank.graph for rank in trace.ranks], np.int64)
    sizes = np.array([len(graph) for graph in trace.graphs], np.int64)
    return table_of(
        place=to_arrow(np.arange(len(trace.ranks))),
        rank=to_arrow(np.array([rank.number for rank in trace.ranks], np.int64)),
        graph=to_arrow(graphs),
        nodes=to_arrow(sizes[graphs] if len(graphs) else graphs),
        file=optional_texts([utf8(rank.file) for rank in trace.ranks]),
        assumed_from=optional_numbers([assumed_from(rank) for rank in trace.ranks], whole=True),
    )


def slots_table(trace: Trace) -> pa.Table:
    """Return what ranks fill the slots of their graphs with: `place`, `slot`, `value`."""
    counts = [len(rank.slots) for rank in trace.ranks]
    return table_of(
        place=to_arrow(np.repeat(np.arange(len(counts)), counts)),
        slot=to_arrow(join_columns([np.arange(count) for count in counts])),
        value=optional_texts([utf8(str(value)) for rank in trace.ranks for value in rank.slots]),
    )


def nodes_table(trace: Trace) -> pa.Table:
    """Return the nodes of all graphs.

    Beside what is shown of a node, `at` is its place among the nodes of all graphs, `group_slot` the slot that names its comm
    group, `lane` and `recorded_lane` where it stands in timelines of simulations and of recordings.
    """
    origin = min(
        (int(g.start_ns[g.start_ns >= 0].min()) for g in trace.graphs if (g.start_ns >= 0).any()), default=0
    )
    return _of_graphs(trace, lambda graph: _nodes(graph, origin))


def _nodes(graph: Graph, origin_ns: int) -> dict[str, pa.Array]:
    communication = comm_nodes(graph)
    group_slot = np.full(len(graph), NONE, np.int64)
    group_slot[communication.rows] = communication.group_slot
    collective = np.where(graph.type == NodeType.COMM_COLL, dense_column(graph, "comm_type", NONE), NONE)
    timed = graph.start_ns >= 0
    lane, lanes = graph_lanes(graph, recording=True)
    details = [detail if kind != _COMMUNICATION else "" for kind, detail in lanes]
    kinds = np.array([kind for kind, _ in lanes], np.int64)
    plain, plain_lanes = graph_lanes(graph, recording=False)
    plain_kinds = np.array([kind for kind, _ in plain_lanes], np.int64)
    return {
        "id": to_arrow(graph.id),
        "name": column_of_texts(graph.strings, graph.name),
        "type": column_of_words(counted_types(graph), counted_type_name),
        "collective": column_of_words(collective, collective_name, missing=graph.type != NodeType.COMM_COLL),
        "group_slot": to_arrow(group_slot),
        "bytes": numbers_of(*int_column(graph, "comm_size"), len(graph)),
        "operations": numbers_of(*int_column(graph, "num_ops"), len(graph)),
        "start_ns": column_of(graph.start_ns - origin_ns, timed),
        "duration_ns": column_of(graph.duration_ns, graph.duration_ns != 0),
        "is_cpu_op": flags(is_flagged(graph, "is_cpu_op")),
        "stream": numbers_of(*int_column(graph, "stream"), len(graph)),
        "waits_for": to_arrow((np.diff(graph.ctrl.offsets) + np.diff(graph.data.offsets)).astype(np.int64)),
        "lane": column_of_words(plain_kinds[plain] if len(plain) else plain, lambda kind: LANE_KINDS[kind]),
        "recorded_lane": column_of_words(kinds[lane] if len(lane) else lane, lambda kind: LANE_KINDS[kind]),
        "lane_name": column_of_words(
            lane, lambda place: str(details[place]), missing=_unnamed(details, lane)
        ),
    }


def _unnamed(details: Sequence[int | str], lane: Int64) -> Bool:
    return np.array([not isinstance(detail, str) or not detail for detail in details], np.bool_)[lane]


def attributes_table(trace: Trace) -> pa.Table:
    """Return the attributes of all graphs, with the `slot` that holds a rank's own value."""
    return _of_graphs(trace, _attributes)


def _attributes(graph: Graph) -> dict[str, pa.Array]:
    attrs = graph.attrs
    counts = np.diff(attrs.offsets)
    node = np.repeat(np.arange(len(graph)), counts)
    kind, value, own = attrs.kind, attrs.value, ~attrs.slot
    whole = own & kind_table(_NUMBER_KINDS)[kind]
    # Unsigned numbers from 2^63 on are negative as they are stored.
    beyond = whole & kind_table(UNSIGNED_KINDS)[kind] & (value < 0)
    fraction = own & ((kind == ValueKind.DOUBLE) | (kind == ValueKind.FLOAT))
    number = np.where(beyond, value.view(np.uint64).astype(np.float64), value.astype(np.float64))
    number[kind == ValueKind.DOUBLE] = value[kind == ValueKind.DOUBLE].view(np.float64)
    singles = kind == ValueKind.FLOAT
    number[singles] = (value[singles] & 0xFFFFFFFF).astype(np.uint32).view(np.float32).astype(np.float64)
    text = own & (kind == ValueKind.STRING)
    is_list = np.array([_is_list(code) for code in range(256)], np.bool_)[kind]
    written = is_list | (own & (kind == ValueKind.BYTES)) | beyond | (kind == ValueKind.FLOAT)
    return {
        "node": to_arrow(node),
        "id": to_arrow(graph.id[node]),
        "position": to_arrow(np.arange(len(kind)) - np.repeat(attrs.offsets[:-1], counts)),
        "key": column_of_texts(graph.strings, attrs.key),
        "kind": column_of_words(kind, _kind_name),
        "slot": to_arrow(np.where(attrs.slot, value, NONE)),
        "text": column_of_texts(graph.strings, np.where(text, value, NONE)),
        "integer": column_of(value, whole & ~beyond),
        "is_true_or_false": flags(whole & (kind == ValueKind.BOOL)),
        "number": column_of(number, whole | fraction),
        "written": _write_texts(graph, written),
        "items": column_of(attrs.length.astype(np.int64), is_list),
        "doc": column_of_texts(graph.strings, attrs.doc),
    }


def _is_list(code: int) -> bool:
    return code in ValueKind._value2member_map_ and ValueKind(code).is_list


def _kind_name(code: int) -> str:
    return ValueKind(code).name if code in ValueKind._value2member_map_ else f"KIND {code}"


def _write_texts(graph: Graph, chosen: Bool) -> pa.Array:
    """Return (A,) the values chosen as texts: those that DuckDB cannot write from a column of numbers or texts."""
    import pyarrow as pa

    attrs = graph.attrs
    where = np.flatnonzero(chosen)
    # Shapes and the like repeat: each distinct value is written once.
    known: dict[tuple[int, bytes], int] = {}
    texts: list[str] = []
    codes = np.full(len(chosen), NONE, np.int32)
    for place in where.tolist():
        kind, bits, length = int(attrs.kind[place]), int(attrs.value[place]), int(attrs.length[place])
        listed = _is_list(kind)
        key = (
            kind,
            attrs.items[bits : bits + length].tobytes()
            if listed
            else bits.to_bytes(8, "little", signed=True),
        )
        if key not in known:
            known[key] = len(texts)
            texts.append(_value_text(graph, ValueKind(kind), bits, length))
        codes[place] = known[key]
    return pa.DictionaryArray.from_arrays(column_of(codes, codes >= 0), optional_texts(texts))


def _value_text(graph: Graph, kind: ValueKind, bits: int, length: int) -> str:
    if not kind.is_list:
        value = decode_scalar(kind, bits, graph.strings)
        return (
            value.hex()
            if isinstance(value, bytes)
            else _shortest(value)
            if kind == ValueKind.FLOAT
            else str(value)
        )
    items = graph.attrs.items[bits : bits + length].tolist()
    values = [decode_scalar(kind, item, graph.strings) for item in items]
    if kind == ValueKind.FLOAT_LIST:
        return f"[{', '.join(map(_shortest, values))}]"
    return json.dumps(
        [item.hex() if isinstance(item, bytes) else item for item in values], ensure_ascii=False
    )


def _shortest(value: object) -> str:
    """Return a number of single precision in as few digits as tell it."""
    return str(np.float32(value))  # type: ignore[arg-type]


def dependencies_table(trace: Trace) -> pa.Table:
    """Return the dependencies of all graphs."""
    return _of_graphs(trace, _dependencies)


def _dependencies(graph: Graph) -> dict[str, pa.Array]:
    pairs: list[tuple[str, Dependencies]] = [("data", graph.data), ("ctrl", graph.ctrl)]
    node = join_columns([np.repeat(np.arange(len(graph)), np.diff(each.offsets)) for _, each in pairs])
    on = join_columns([each.rows.astype(np.int64) for _, each in pairs])
    kind = np.repeat([0, 1], [len(each.rows) for _, each in pairs])
    return {
        "node": to_arrow(node),
        "id": to_arrow(graph.id[node]),
        "kind": column_of_words(kind, lambda code: pairs[code][0]),
        "on_node": column_of(on, on >= 0),
        "on_id": to_arrow(np.concatenate([dependency_ids(graph, each) for _, each in pairs])),
    }


def _of_graphs(trace: Trace, columns: Callable[[Graph], dict[str, pa.Array]]) -> pa.Table:
    """Return the columns of all graphs, one after another; `graph` and, without a column `node`, `node` and `at` tell which."""
    import pyarrow as pa

    tables = []
    for index, first in enumerate(first_nodes(trace)[:-1].tolist()):
        graph_columns = columns(trace.graphs[index])
        count = len(next(iter(graph_columns.values())))
        known = {"graph": to_arrow(np.full(count, index, np.int64))}
        if "node" not in graph_columns:
            known |= {"node": to_arrow(np.arange(count)), "at": to_arrow(np.arange(first, first + count))}
        tables.append(table_of(**known, **graph_columns))
    # Pools of texts are per graph: made one here, so that a column has one dictionary.
    return pa.concat_tables(tables).unify_dictionaries()
