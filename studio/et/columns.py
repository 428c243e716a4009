"""Build graphs column by column: number texts by first use, add attributes one name at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from studio.et.wire import find_first_uses, select_texts
from studio.trace import (
    NONE,
    SLOT_KEYS,
    TEXT_KINDS,
    Attributes,
    Dependencies,
    Graph,
    Int32,
    Int64,
    Strings,
    UInt8,
    UInt64,
    ValueKind,
    build_kind_table,
)


class Texts:
    """Texts and their numbers."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the number of a text."""
        return self.codes.setdefault(text, len(self.codes))

    def of(self, texts: Iterable[str]) -> Int32:
        """Return the numbers (M,) of texts."""
        codes = self.codes
        return np.array([codes.setdefault(text, len(codes)) for text in texts], np.int32)

    def strings(self) -> Strings:
        """Return all texts, by number."""
        return Strings.of(self.codes)


@dataclass(frozen=True, slots=True)
class Placed:
    """Attributes (A,) by node, see `Attributes`; the value of a list is its number among all items."""

    key: Int32
    kind: UInt8
    value: Int64
    length: Int32


@dataclass(slots=True)
class AttributeColumns:
    """Attributes of N nodes, collected by name; a node has them in the order they were added.

    Attributes:
        texts: Texts by number.
        rows, keys, kinds, values, lengths: Of each name that was added: the nodes (M,) that have it, its key and kind, the values
            (M,), and how long each is where they are lists.
        items: Items of lists.
        put: Puts all of them where they belong, and returns where those of each of so many nodes begin, or None; None where nobody
            can do so faster than `finish`.
    """

    texts: Texts
    put: Callable[[AttributeColumns, int, Placed], Int64 | None] | None = None
    rows: list[Int64] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    kinds: list[ValueKind] = field(default_factory=list)
    values: list[Int64] = field(default_factory=list)
    lengths: list[Int64 | None] = field(default_factory=list)
    items: list[Int64] = field(default_factory=list)

    def numbers(self, key: str, rows: Int64, values: Int64, kind: ValueKind = ValueKind.INT64) -> None:
        """Add a whole number, or a truth value, to some nodes (M,)."""
        self._add(key, rows, np.asarray(values, np.int64), kind)

    def words(self, key: str, rows: Int64, values: Sequence[str]) -> None:
        """Add a text to some nodes."""
        self._add(key, rows, self.texts.of(values).astype(np.int64), ValueKind.STRING)

    def add_coded(self, key: str, rows: Int64, codes: NDArray[np.integer], words: Sequence[str]) -> None:
        """Add a text to some nodes, given by its place among all words."""
        self._add(key, rows, self.texts.of(words).astype(np.int64)[codes], ValueKind.STRING)

    def flag(self, key: str, rows: Int64, value: bool) -> None:
        """Add a truth value to some nodes, the same to all."""
        self._add(key, rows, np.full(len(rows), int(value), np.int64), ValueKind.BOOL)

    def number_lists(self, key: str, rows: Int64, lists: Sequence[Sequence[int]], kind: ValueKind) -> None:
        """Add a list of numbers to some nodes."""
        lengths = np.array([len(items) for items in lists], np.int64)
        self._add_lists(
            key, rows, lengths, np.array([item for items in lists for item in items], np.int64), kind
        )

    def word_lists(self, key: str, rows: Int64, lists: Sequence[Sequence[str]]) -> None:
        """Add a list of texts to some nodes."""
        lengths = np.array([len(items) for items in lists], np.int64)
        codes = self.texts.of([item for items in lists for item in items]).astype(np.int64)
        self._add_lists(key, rows, lengths, codes, ValueKind.STRING_LIST)

    def add_ragged(self, key: str, rows: Int64, lengths: Int64, items: Int64, kind: ValueKind) -> None:
        """Add lists, given as one column of items and the length of each list."""
        self._add_lists(key, rows, lengths, items, kind)

    def _add_lists(self, key: str, rows: Int64, lengths: Int64, items: Int64, kind: ValueKind) -> None:
        first = sum(map(len, self.items)) + np.cumsum(lengths) - lengths
        self._add(key, rows, first, kind, lengths)
        if len(rows):
            self.items.append(items)

    def _add(
        self, key: str, rows: Int64, values: Int64, kind: ValueKind, lengths: Int64 | None = None
    ) -> None:
        if len(rows):
            self.rows.append(np.asarray(rows, np.int64))
            self.keys.append(self.texts.code(key))
            self.kinds.append(kind)
            self.values.append(values)
            self.lengths.append(lengths)

    def move(self, places: Int64) -> None:
        """Give nodes other rows: node n, so far in row n, is in row `places[n]` from now on."""
        # Many names are given to the same nodes.
        moved: dict[int, Int64] = {}
        for rows in self.rows:
            if id(rows) not in moved:
                moved[id(rows)] = places[rows]
        self.rows = [moved[id(rows)] for rows in self.rows]

    def finish(self, count: int) -> tuple[Attributes, Int32, tuple[int | str, ...]]:
        """Return the attributes of `count` nodes, which key each slot belongs to, and the slots' values.

        Texts are still numbered as in `texts`.
        """
        none, total = np.zeros(0, np.int64), sum(map(len, self.rows))
        placed = Placed(
            np.empty(total, np.int32), np.empty(total, np.uint8), np.empty(total, np.int64), np.zeros(total, np.int32)
        )  # fmt: skip
        offsets = self.put(self, count, placed) if self.put else None
        if offsets is None:
            rows = np.concatenate([none, *self.rows])
            offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(rows, minlength=count))))
            self._put(self._order_by_node(rows, offsets), placed)
        key, kind, value, length = placed.key, placed.kind, placed.value, placed.length
        items = np.concatenate([none, *self.items])
        lists = np.flatnonzero(((kind & 1) == 0) & (kind > 0))
        ends = np.cumsum(length[lists], dtype=np.int64)
        starts = ends - length[lists]
        items = items[np.repeat(value[lists] - starts, length[lists]) + np.arange(len(items))]
        value[lists] = starts
        slot, slot_key, slots = self._number_slots(key, kind, value)
        doc = np.full(len(key), NONE, np.int32)
        return Attributes(offsets, key, doc, kind, value, length, slot, items), slot_key, slots

    def _put(self, place: Int64, placed: Placed) -> None:
        """Put each attribute at its place (A,)."""
        first = 0
        for index, values in enumerate(self.values):
            own = place[first : first + len(values)]
            placed.key[own], placed.kind[own], placed.value[own] = self.keys[index], self.kinds[index], values
            lengths = self.lengths[index]
            if lengths is not None:
                placed.length[own] = lengths
            first += len(values)

    def _order_by_node(self, rows: Int64, offsets: Int64) -> Int64:
        """Return (A,) the place of each attribute: by node, of one node in the order they were added."""
        place, free = np.empty(len(rows), np.int64), offsets[:-1].copy()
        first = 0
        for own in self.rows:
            place[first : first + len(own)] = free[own]
            free[own] += 1
            first += len(own)
        if (free != offsets[1:]).any():
            # A node was given one of them twice at once, which is rare: sorting takes longer.
            place[np.argsort(rows, kind="stable")] = np.arange(len(rows))
        return place

    def _number_slots(
        self, key: Int32, kind: UInt8, value: Int64
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Int32, tuple[int | str, ...]]:
        codes = [self.texts.codes[name] for name in SLOT_KEYS if name in self.texts.codes]
        slot = np.isin(key, codes) if codes else np.zeros(len(key), np.bool_)
        known: dict[tuple[int, int, int], int] = {}
        for row in np.flatnonzero(slot).tolist():
            value[row] = known.setdefault((int(key[row]), int(kind[row]), int(value[row])), len(known))
        words = list(self.texts.codes)
        slots = tuple(
            words[bits] if value_kind == ValueKind.STRING else bits for _, value_kind, bits in known
        )
        return slot, np.array([code for code, _, _ in known], np.int32), slots


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """Columns of N nodes as `Graph` has them; ids are there once each, texts are still numbered as they were met."""

    ids: UInt64
    types: Int32
    names: Int32
    start_ns: Int64
    duration_ns: Int64
    ctrl: Dependencies
    data: Dependencies
    io: Int32


def build_graph(nodes: NodeColumns, columns: AttributeColumns) -> tuple[Graph, tuple[int | str, ...]]:
    """Return the graph that reading the file of these nodes would give, and the values of its slots.

    Times to the nanosecond are added as attributes, which is how files hold them.

    Args:
        nodes: The nodes.
        columns: Their attributes, with all texts.
    """
    for key, column in (("start_ns", nodes.start_ns), ("duration_ns", nodes.duration_ns)):
        rows = np.flatnonzero((column > 0) & (column % 1000 != 0))
        columns.numbers(key, rows, column[rows])
    attrs, slot_key, slots = columns.finish(len(nodes.ids))
    scalars = build_kind_table((ValueKind.STRING, ValueKind.BYTES))[attrs.kind] & ~attrs.slot
    is_text = build_kind_table(TEXT_KINDS)[attrs.kind] & (attrs.length > 0)
    listed = np.repeat(is_text, attrs.length) if is_text.any() else np.zeros(0, np.int64)
    strings, coded = renumber_texts(
        columns.texts.strings(),
        {
            "name": nodes.names,
            "io": nodes.io,
            "key": attrs.key,
            "value": attrs.value[scalars].astype(np.int32),
            "items": attrs.items[listed].astype(np.int32),
            "slot": slot_key,
        },
    )
    attrs.value[scalars] = coded["value"]
    attrs.items[listed] = coded["items"]
    renamed = Attributes(
        attrs.offsets, coded["key"], attrs.doc, attrs.kind, attrs.value, attrs.length, attrs.slot, attrs.items
    )
    nothing = np.empty(0, np.int32)
    graph = Graph(
        nodes.ids, nodes.types, coded["name"], nodes.start_ns, nodes.duration_ns, nodes.ctrl, nodes.data,
        coded["io"], renamed, coded["slot"], nothing, nothing, strings,
    )  # fmt: skip
    return graph, slots


def build_dependencies(source: Int64, target: Int64, count: int) -> Dependencies:
    """Return dependencies of `count` nodes from pairs of rows sorted by target."""
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(target, minlength=count))))
    nothing: UInt64 = np.zeros(0, np.uint64)
    return Dependencies(offsets.astype(np.int64), source.astype(np.int32), nothing)


def order_by_appearance(codes: NDArray[np.integer], count: int) -> tuple[Int64, Int64, Int32]:
    """Return which of `count` codes are used among some (M,), by first appearance.

    Returns:
        (U,) the codes used, (U,) where each is used first, and (count,) the number of each code among these.
    """
    first = find_first_uses(codes, count)
    used = np.argsort(first, kind="stable")[: int((first < len(codes)).sum())]
    number = np.zeros(count, np.int32)
    number[used] = np.arange(len(used))
    return used, first[used], number


def number_by_use(columns: Collection[Int32], count: int) -> tuple[Int64, Int32]:
    """Return which of `count` codes are used, by first use, column after column, and the number of each among these.

    Returns:
        (U,) the codes used, and (count+1,) the number of each code, NONE where it is not used or is -1.
    """
    unused = sum(column.size for column in columns)
    first = np.full(count, unused, np.int64)
    base = 0
    for column in columns:
        uses = find_first_uses(column.reshape(-1), count)
        used = uses < column.size
        first[used] = np.minimum(first[used], base + uses[used])
        base += column.size
    order = np.argsort(first, kind="stable")[: int((first < unused).sum())]
    number = np.full(count + 1, NONE, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return order, number


def renumber_texts(pool: Strings, columns: Mapping[str, Int32]) -> tuple[Strings, dict[str, Int32]]:
    """Renumber texts by first use, column after column, and drop those no column uses.

    Equal graphs get equal pools, in whatever order their texts were met.
    """
    order, number = number_by_use(columns.values(), len(pool))
    return select_texts(pool, order), {name: number[column] for name, column in columns.items()}
