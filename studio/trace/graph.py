"""The nodes of one rank in columns, with their dependencies and attributes, and fingerprints of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.notebook import format_parts, format_record
from studio.trace.strings import Strings
from studio.trace.vocabulary import NONE, Bool, Int32, Int64, UInt8, UInt64
from studio.units import format_counted


@dataclass(frozen=True, slots=True)
class Attributes:
    """Named values of the nodes of a graph, in the order of the file.

    N nodes, A attributes, L list items.

    Attributes:
        offsets: (N+1,) node i has attributes offsets[i]:offsets[i+1].
        key: (A,) name, index into the graph's strings.
        doc: (A,) doc string likewise, -1 where there is none.
        kind: (A,) a ValueKind.
        value: (A,) the scalar's bits; for text an index into the strings; for a list its first item;
            where `slot` is set the slot's number.
        length: (A,) items of a list, 0 for scalars.
        slot: (A,) whether the value is the rank's, see `Rank.slots`.
        items: (L,) values of lists, encoded as scalars are.
    """

    offsets: Int64
    key: Int32
    doc: Int32
    kind: UInt8
    value: Int64
    length: Int32
    slot: Bool
    items: Int64

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Which nodes each node waits for.

    N nodes, D dependencies, K of them dangling.

    Attributes:
        offsets: (N+1,) node i waits for rows[offsets[i]:offsets[i+1]].
        rows: (D,) the row waited for; a negative number -1-k stands for the k-th dangling id.
        dangling: (K,) ids that no node of the graph has, in order of appearance.
    """

    offsets: Int64
    rows: Int32
    dangling: UInt64

    __repr__ = format_record

    def of(self, row: int) -> Int32:
        """Return the rows node `row` waits for, dangling ones as negative numbers."""
        return self.rows[self.offsets[row] : self.offsets[row + 1]]

    def list_waiting(self) -> Int64:
        """Return (D,) the row that waits, of each dependency; `rows` has the row waited for."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of one rank, and of every rank with an equal graph.

    N nodes, S slots, U pieces of unknown fields.

    Attributes:
        id: (N,) id written in the file; usually, not necessarily, unique.
        type: (N,) a NodeType or whatever number the file holds.
        name: (N,) index into `strings`.
        start_ns: (N,) recorded start, -1 where the file has none.
        duration_ns: (N,) recorded duration; 0 also where the file has none.
        ctrl, data: control and data dependencies.
        io: (N, 6) or, where no node has any, (0, 6): values, shapes and types of the inputs, then of the
            outputs, as indices into `strings`; three times -1 where the node has no such message.
        attrs: attributes.
        slot_key: (S,) the attribute a slot belongs to, index into `strings`.
        extra_row: (U,) node that carries fields this version does not know ...
        extra: (U,) ... and their bytes, index into `strings`, to be written back as they are.
        strings: the texts all indices point to.
    """

    id: UInt64
    type: Int32
    name: Int32
    start_ns: Int64
    duration_ns: Int64
    ctrl: Dependencies
    data: Dependencies
    io: Int32
    attrs: Attributes
    slot_key: Int32
    extra_row: Int32
    extra: Int32
    strings: Strings

    def __len__(self) -> int:
        return len(self.id)

    def __repr__(self) -> str:
        """Return it in a line."""
        waits = len(self.ctrl.rows) + len(self.data.rows)
        return format_parts(
            "Graph",
            [
                format_counted(len(self), "node"),
                f"{waits:,} dependencies",
                format_counted(len(self.attrs.key), "attribute"),
            ],
        )

    def has_attribute(self, key: str) -> bool:
        """Whether any node has attribute `key`."""
        code = self.strings.find(key)
        return code != NONE and bool((self.attrs.key == code).any())

    def rows_with(self, key: str, among: Int64 | None = None) -> tuple[Int32, Int64]:
        """Return the rows and entries of attribute `key`.

        Args:
            key: Its name.
            among: (S,) the rows to look at, rising; all of them where none are given, which takes a look at every
                attribute of the graph.

        Returns:
            (M,) node rows, rising, and (M,) positions in the attribute columns.
        """
        code = self.strings.find(key)
        if among is not None:
            first = self.attrs.offsets[among].astype(np.int64)
            count = self.attrs.offsets[among + 1] - first
            before = np.cumsum(count) - count
            where = np.repeat(first - before, count) + np.arange(int(count.sum()))
            is_key = self.attrs.key[where] == code
            return np.repeat(among, count)[is_key].astype(np.int32), where[is_key]
        where = np.flatnonzero(self.attrs.key == code) if code != NONE else np.zeros(0, np.int64)
        rows = np.searchsorted(self.attrs.offsets, where, side="right") - 1
        return rows.astype(np.int32), where


def iterate_arrays(
    record: Graph | Attributes | Dependencies, prefix: str = ""
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Yield every array of a graph under a dotted name, in a fixed order.

    The one walk over the columns: storage, equality and size all use it.
    """
    for spec in fields(record):
        value = getattr(record, spec.name)
        if isinstance(value, (Attributes, Dependencies)):
            yield from iterate_arrays(value, f"{prefix}{spec.name}.")
        elif isinstance(value, Strings):
            yield f"{prefix}{spec.name}.data", value.data
            yield f"{prefix}{spec.name}.offsets", value.offsets
        else:
            yield prefix + spec.name, value


_BESIDE_IDS = attrgetter(*(spec.name for spec in fields(Graph) if spec.name != "id"))


def list_other_columns(graph: Graph) -> tuple[Any, ...]:
    """Return what a graph has apart from its ids, in the order of its fields."""
    columns: tuple[Any, ...] = _BESIDE_IDS(graph)
    return columns


def with_ids(graph: Graph, ids: UInt64) -> Graph:
    """Return a graph with other ids, which come first among its fields; there may be one for each of thousands of files."""
    return Graph(ids, *list_other_columns(graph))


def assemble_graph(columns: dict[str, NDArray[np.generic]]) -> Graph:
    """Return the graph whose `iterate_arrays` are `columns`."""
    nested: dict[str, dict[str, object]] = {}
    flat: dict[str, object] = {}
    for name, array in columns.items():
        head, _, tail = name.partition(".")
        if tail:
            nested.setdefault(head, {})[tail] = array
        else:
            flat[head] = array
    flat["io"] = np.asarray(flat["io"]).reshape(-1, 6)
    kinds = {"ctrl": Dependencies, "data": Dependencies, "attrs": Attributes, "strings": Strings}
    return Graph(**flat, **{name: kinds[name](**parts) for name, parts in nested.items()})  # type: ignore[arg-type]


def digest_array(array: NDArray[np.generic]) -> bytes:
    """Return a fingerprint of the numbers of an array."""
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).digest()


def compute_digest(graph: Graph) -> bytes:
    """Return a fingerprint of a graph, equal for equal graphs."""
    state = hashlib.blake2b(digest_size=16)
    for name, array in iterate_arrays(graph):
        state.update(f"{name}{array.shape}{array.dtype.str}".encode())
        state.update(np.ascontiguousarray(array).data)
    return state.digest()


def compute_digests(graph: Graph) -> tuple[bytes, bytes]:
    """Return fingerprints of a graph without its ids, and of these: both are equal for equal graphs."""
    return compute_digest(replace(graph, id=graph.id[:0])), digest_array(graph.id)


def list_dependency_ids(graph: Graph, deps: Dependencies) -> UInt64:
    """Return the (D,) ids of dependencies as written in the file, dangling ones included."""
    ids: UInt64 = np.empty(len(deps.rows), np.uint64)
    is_present = deps.rows >= 0
    ids[is_present] = graph.id[deps.rows[is_present]]
    ids[~is_present] = deps.dangling[-1 - deps.rows[~is_present]]
    return ids
