"""The trace model: columns and what can be asked of them."""

from __future__ import annotations

import numpy as np
import pytest

from studio.trace import (
    COPY,
    NONE,
    Attribute,
    CommGroup,
    Finding,
    NodeType,
    Rank,
    Strings,
    Trace,
    ValueKind,
    are_copies,
    assemble_graph,
    compute_digest,
    get_shown_types,
    iterate_arrays,
    label_collective,
    list_node_attributes,
    read_int_column,
    type_name,
)
from tests.et.chakra_bytes import attr, file_of, framed, num, sized, varint
from tests.graphs import graph
from tests.strategies import part_of


def test_strings_are_a_sequence_of_texts():
    pool = Strings.of(["", "a", "ä", b"\xff", "x" * 1000])
    assert list(pool) == ["", "a", "ä", "\ufffd", "x" * 1000]
    assert [pool[i] for i in range(len(pool))] == list(pool)
    assert pool.raw(3) == b"\xff"
    assert [pool.find(text) for text in ("", "ä", "x" * 1000, "b", "xx")] == [0, 2, 4, NONE, NONE]
    assert "a" in pool
    assert list(Strings.of([])) == []
    for index in (-1, 5):
        with pytest.raises(IndexError):
            pool[index]


def test_a_graph_is_its_arrays():
    part = part_of(
        file_of(num(1, 1) + sized(5, varint(9)) + sized(8, b"") + attr("a", num(9, 1), "doc") + num(40, 1))
    )
    columns = dict(iterate_arrays(part.graph))
    again = assemble_graph({name: array.copy() for name, array in columns.items()})
    assert dict(iterate_arrays(again)).keys() == columns.keys()
    assert compute_digest(again) == compute_digest(part.graph)
    assert "attrs.key" in columns
    assert "strings.data" in columns
    for name, array in columns.items():
        if array.size and array.dtype != np.bool_:
            changed = {key: value.copy() for key, value in columns.items()}
            changed[name].reshape(-1)[0] += 1
            assert compute_digest(assemble_graph(changed)) != compute_digest(part.graph), name


def test_traces_are_equal_by_content():
    part, other = part_of(file_of(num(1, 1))), part_of(file_of(num(1, 2)))
    rank = Rank(0, 0, file="a.et")
    trace = Trace((part.graph,), (rank,), (CommGroup("g", (0,)),), (Finding("info", "x", "y"),))
    same = Trace((other.graph, part_of(file_of(num(1, 1))).graph), (Rank(0, 1, file="b.et"),), trace.groups)
    assert trace == same, "files, findings and the order of graphs do not count"
    assert hash(trace) == hash(same)
    assert trace != Trace((other.graph,), (rank,), trace.groups)
    assert trace != Trace(trace.graphs, (Rank(1, 0),), trace.groups)
    assert trace != Trace(trace.graphs, trace.ranks)
    nan = [
        Trace(trace.graphs, (Rank(0, 0, metadata=(Attribute("a", ValueKind.DOUBLE, float("nan")),)),))
        for _ in "12"
    ]
    assert nan[0] == nan[1]
    assert trace != "trace"


def test_ranks_by_number_and_nodes_counted_per_rank():
    graphs = part_of(file_of(num(1, 1))).graph, part_of(file_of(num(1, 1), num(1, 2))).graph
    trace = Trace(graphs, (Rank(0, 0), Rank(3, 1), Rank(5, 1)))
    assert trace.node_count == 5
    assert trace.rank(3) == trace.ranks[1]
    assert trace.rank(4) is None
    assert trace.graph_of(trace.ranks[2]) is graphs[1]


def test_rows_with_an_attribute():
    part = part_of(file_of(attr("a") + attr("b"), b"", attr("b") + attr("a") + attr("a")))
    rows, where = part.graph.rows_with("a")
    assert (rows.tolist(), where.tolist()) == ([0, 2, 2], [0, 3, 4])
    assert [array.tolist() for array in part.graph.rows_with("no such")] == [[], []]


def test_copies_are_known_by_how_their_names_begin():
    names = [
        "Memcpy HtoD", "Memset", "M", "Memcp", "a Memcpy", "", "MEMORY_COPY_HOST", "__amd_rocclr_copyBuffer",
        "__amd_rocclr_fill", "__amd_rocclr_", "memcpy", "Memcpy",
    ]  # fmt: skip
    found = graph(len(names), names=dict(enumerate(names)), numbers={"is_cpu_op": {11: 1}})
    assert np.flatnonzero(are_copies(found)).tolist() == [0, 1, 6, 7, 8]
    assert get_shown_types(found).tolist() == [
        COPY if row in (0, 1, 6, 7, 8) else NodeType.COMP for row in range(len(names))
    ]
    assert found.has_attribute("is_cpu_op")
    assert not found.has_attribute("stream")
    assert not found.has_attribute("Memset")


def test_integers_of_slots_are_the_ranks_own():
    large = 2**64 - 1
    part = part_of(
        file_of(
            attr("comm_src", num(7, -5)) + attr("comm_src", num(13, large)),
            attr("comm_src", sized(29, "text")),
            attr("comm_src", num(13, large)),
            attr("comm_src", num(9, 4)),
        )
    )
    assert part.rank.slots == (-5, large, "text", 4)
    rows, values = read_int_column(part.graph, "comm_src", part.rank.slots)
    assert (rows.tolist(), values.tolist()) == ([0, 2, 3], [-1, -1, 4])
    rows, values = read_int_column(part.graph, "comm_src", (0, 7, 8, 9))
    assert values.tolist() == [7, 7, 9]
    assert [a.value for a in list_node_attributes(part.graph, 0, (0, 7, 8, 9))] == [0, 7]


def test_names_of_types_and_collectives():
    assert [type_name(n) for n in (0, 7, 8, -1)] == ["INVALID", "COMM_COLL", "TYPE 8", "TYPE -1"]
    assert [label_collective(n) for n in (0, 9, 10)] == ["ALL_REDUCE", "BARRIER", "COLLECTIVE 10"]
    assert [k for k in ValueKind if k.is_list] == list(range(4, 33, 2))
    assert NodeType.COMP == 4


def test_metadata_keeps_kind_and_doc_string():
    metadata = framed(sized(1, "1") + sized(2, sized(1, "t") + sized(2, "why") + num(17, 1)))
    assert part_of(file_of(metadata=metadata)).rank.metadata == (Attribute("t", ValueKind.SINT64, -1, "why"),)
