"""Make nodes, attributes and dependencies of jobs: columns of each distinct graph, which ranks share inside DuckDB.

A job of 16,384 ranks with four graphs is four graphs here too: the ranks are joined to the rows of their graph by the
query. What differs between ranks of one graph, the names of comm groups and peers, is a table of slots.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.arrow import convert_optional_numbers, convert_optional_texts, to_arrow
from studio.columns import join_columns
from studio.sql.arrow_columns import (
    build_column,
    build_flag_column,
    build_number_column,
    build_table,
    build_text_column,
    build_word_column,
    clean_utf8,
)
from studio.timeline import LANE_KINDS, assign_graph_lanes
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
    build_kind_table,
    decode_scalar,
    get_assumed_source,
    is_flagged,
    label_collective,
    list_dependency_ids,
    read_dense_column,
    read_int_column,
)

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER_KINDS = (*INT_KINDS, ValueKind.BOOL)
_COMMUNICATION = LANE_KINDS.index("communication")


def compute_first_nodes(trace: Trace) -> Int64:
    """Return (G + 1,) where the nodes of each graph begin among those of all graphs, and the end."""
    return np.cumsum([0, *map(len, trace.graphs)])


def build_ranks_table(trace: Trace) -> pa.Table:
    """Return the ranks: `place`, `rank`, `graph`, `nodes`, `file` and `assumed_from`."""
    graphs = np.array([rank.graph for rank in trace.ranks], np.int64)
    sizes = np.array([len(graph) for graph in trace.graphs], np.int64)
    return build_table(
        place=to_arrow(np.arange(len(trace.ranks))),
        rank=to_arrow(np.array([rank.number for rank in trace.ranks], np.int64)),
        graph=to_arrow(graphs),
        nodes=to_arrow(sizes[graphs] if len(graphs) else graphs),
        file=convert_optional_texts([clean_utf8(rank.file) for rank in trace.ranks]),
        assumed_from=convert_optional_numbers([get_assumed_source(rank) for rank in trace.ranks], whole=True),
    )


def build_slots_table(trace: Trace) -> pa.Table:
    """Return what ranks fill the slots of their graphs with: `place`, `slot`, `value`."""
    counts = [len(rank.slots) for rank in trace.ranks]
    return build_table(
        place=to_arrow(np.repeat(np.arange(len(counts)), counts)),
        slot=to_arrow(join_columns([np.arange(count) for count in counts])),
        value=convert_optional_texts(
            [clean_utf8(str(value)) for rank in trace.ranks for value in rank.slots]
        ),
    )


def build_nodes_table(trace: Trace) -> pa.Table:
    """Return the nodes of all graphs.

    Beside what is shown of a node, `at` is its place among the nodes of all graphs, `group_slot` the slot that names its comm
    group, `lane` and `recorded_lane` where it stands in timelines of simulations and of recordings.
    """
    origin = min(
        (int(g.start_ns[g.start_ns >= 0].min()) for g in trace.graphs if (g.start_ns >= 0).any()), default=0
    )
    return _join_graphs(trace, lambda graph: _build_node_columns(graph, origin))


def _build_node_columns(graph: Graph, origin_ns: int) -> dict[str, pa.Array]:
    communication = collect_comm_nodes(graph)
    group_slot = np.full(len(graph), NONE, np.int64)
    group_slot[communication.rows] = communication.group_slot
    collective = np.where(graph.type == NodeType.COMM_COLL, read_dense_column(graph, "comm_type", NONE), NONE)
    timed = graph.start_ns >= 0
    lane, lanes = assign_graph_lanes(graph, recording=True)
    details = [detail if kind != _COMMUNICATION else "" for kind, detail in lanes]
    kinds = np.array([kind for kind, _ in lanes], np.int64)
    plain, plain_lanes = assign_graph_lanes(graph, recording=False)
    plain_kinds = np.array([kind for kind, _ in plain_lanes], np.int64)
    return {
        "id": to_arrow(graph.id),
        "name": build_text_column(graph.strings, graph.name),
        "type": build_word_column(infer_counted_types(graph), label_counted_type),
        "collective": build_word_column(
            collective, label_collective, missing=graph.type != NodeType.COMM_COLL
        ),
        "group_slot": to_arrow(group_slot),
        "bytes": build_number_column(*read_int_column(graph, "comm_size"), len(graph)),
        "operations": build_number_column(*read_int_column(graph, "num_ops"), len(graph)),
        "start_ns": build_column(graph.start_ns - origin_ns, timed),
        "duration_ns": build_column(graph.duration_ns, graph.duration_ns != 0),
        "is_cpu_op": build_flag_column(is_flagged(graph, "is_cpu_op")),
        "stream": build_number_column(*read_int_column(graph, "stream"), len(graph)),
        "waits_for": to_arrow((np.diff(graph.ctrl.offsets) + np.diff(graph.data.offsets)).astype(np.int64)),
        "lane": build_word_column(plain_kinds[plain] if len(plain) else plain, lambda kind: LANE_KINDS[kind]),
        "recorded_lane": build_word_column(kinds[lane] if len(lane) else lane, lambda kind: LANE_KINDS[kind]),
        "lane_name": build_word_column(
            lane, lambda place: str(details[place]), missing=_are_unnamed(details, lane)
        ),
    }


def _are_unnamed(details: Sequence[int | str], lane: Int64) -> Bool:
    return np.array([not isinstance(detail, str) or not detail for detail in details], np.bool_)[lane]


def build_attributes_table(trace: Trace) -> pa.Table:
    """Return the attributes of all graphs, with the `slot` that holds a rank's own value."""
    return _join_graphs(trace, _build_attribute_columns)


def _build_attribute_columns(graph: Graph) -> dict[str, pa.Array]:
    attrs = graph.attrs
    counts = np.diff(attrs.offsets)
    node = np.repeat(np.arange(len(graph)), counts)
    kind, value, own = attrs.kind, attrs.value, ~attrs.slot
    whole = own & build_kind_table(_NUMBER_KINDS)[kind]
    # Unsigned numbers from 2^63 on are negative as they are stored.
    beyond = whole & build_kind_table(UNSIGNED_KINDS)[kind] & (value < 0)
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
        "key": build_text_column(graph.strings, attrs.key),
        "kind": build_word_column(kind, _label_kind),
        "slot": to_arrow(np.where(attrs.slot, value, NONE)),
        "text": build_text_column(graph.strings, np.where(text, value, NONE)),
        "integer": build_column(value, whole & ~beyond),
        "is_true_or_false": build_flag_column(whole & (kind == ValueKind.BOOL)),
        "number": build_column(number, whole | fraction),
        "written": _write_texts(graph, written),
        "items": build_column(attrs.length.astype(np.int64), is_list),
        "doc": build_text_column(graph.strings, attrs.doc),
    }


def _is_list(code: int) -> bool:
    return code in ValueKind._value2member_map_ and ValueKind(code).is_list


def _label_kind(code: int) -> str:
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
            texts.append(_format_value(graph, ValueKind(kind), bits, length))
        codes[place] = known[key]
    return pa.DictionaryArray.from_arrays(build_column(codes, codes >= 0), convert_optional_texts(texts))


def _format_value(graph: Graph, kind: ValueKind, bits: int, length: int) -> str:
    if not kind.is_list:
        value = decode_scalar(kind, bits, graph.strings)
        return (
            value.hex()
            if isinstance(value, bytes)
            else _format_shortest(value)
            if kind == ValueKind.FLOAT
            else str(value)
        )
    items = graph.attrs.items[bits : bits + length].tolist()
    values = [decode_scalar(kind, item, graph.strings) for item in items]
    if kind == ValueKind.FLOAT_LIST:
        return f"[{', '.join(map(_format_shortest, values))}]"
    return json.dumps(
        [item.hex() if isinstance(item, bytes) else item for item in values], ensure_ascii=False
    )


def _format_shortest(value: object) -> str:
    """Return a number of single precision in as few digits as tell it."""
    return str(np.float32(value))  # type: ignore[arg-type]


def build_dependencies_table(trace: Trace) -> pa.Table:
    """Return the dependencies of all graphs."""
    return _join_graphs(trace, _build_dependency_columns)


def _build_dependency_columns(graph: Graph) -> dict[str, pa.Array]:
    pairs: list[tuple[str, Dependencies]] = [("data", graph.data), ("ctrl", graph.ctrl)]
    node = join_columns([each.list_waiting() for _, each in pairs])
    on = join_columns([each.rows.astype(np.int64) for _, each in pairs])
    kind = np.repeat([0, 1], [len(each.rows) for _, each in pairs])
    return {
        "node": to_arrow(node),
        "id": to_arrow(graph.id[node]),
        "kind": build_word_column(kind, lambda code: pairs[code][0]),
        "on_node": build_column(on, on >= 0),
        "on_id": to_arrow(np.concatenate([list_dependency_ids(graph, each) for _, each in pairs])),
    }


def _join_graphs(trace: Trace, columns: Callable[[Graph], dict[str, pa.Array]]) -> pa.Table:
    """Return the columns of all graphs, one after another; `graph` and, without a column `node`, `node` and `at` tell which."""
    import pyarrow as pa

    tables = []
    for index, first in enumerate(compute_first_nodes(trace)[:-1].tolist()):
        graph_columns = columns(trace.graphs[index])
        count = len(next(iter(graph_columns.values())))
        known = {"graph": to_arrow(np.full(count, index, np.int64))}
        if "node" not in graph_columns:
            known |= {"node": to_arrow(np.arange(count)), "at": to_arrow(np.arange(first, first + count))}
        tables.append(build_table(**known, **graph_columns))
    # Pools of texts are per graph: made one here, so that a column has one dictionary.
    return pa.concat_tables(tables).unify_dictionaries()
