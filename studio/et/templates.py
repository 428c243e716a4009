"""Read a Chakra file by comparing it with one that was read before.

The files of a job's ranks often differ in nothing but the ids of their nodes and in the comm groups and peers they name.
A `Template` is made of a file that was read: it knows where these values ("symbols") lie, and the lengths that depend on
them. To read another file its symbols are taken from where the template expects them, and the whole file is made anew
from them. Where that equals the file to the byte, the file has the template's structure and these symbols, and nothing
else has to be looked at; anything else is left to the reader. All of it goes through numpy, nothing byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.et import kernel as k
from studio.et.chakra import count_repeats
from studio.et.wire_fields import (
    Fields,
    expand_ranges,
    find_fields,
    find_records,
    list_numbers,
    measure_widths,
    put_numbers,
    read_numbers,
)
from studio.trace import Bool, Graph, Int64, UInt8, UInt64, ValueKind

_MOST_GUESSES = 12
_MOST_LAYOUTS = 4
_MOST_GROWTH = 8
"""A layout that is so many times longer than the file is not worth making."""
_NUMBERS = (
    *(ValueKind.INT32, ValueKind.INT64, ValueKind.UINT32, ValueKind.UINT64),
    *(ValueKind.SINT32, ValueKind.SINT64),
)
_ID, _CTRL, _DATA, _ATTRIBUTE, _KEY, _FIRST_VALUE = 1, 4, 5, 10, 1, 3
_OUTSIDE = -1
_EXACT_BYTES = 7
"""Numbers of so many bytes have at most 49 bits, of the 53 that are exact in floating point."""
_PLACE_VALUES = 128.0 ** np.arange(_EXACT_BYTES)
"""What each byte of a number counts for, the lowest first."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """What one file has in the places that a template leaves open.

    Attributes:
        slots: Values of the graph's slots, by number.
        ids: (N,) ids of the nodes, None where the template leaves none open.
    """

    slots: tuple[int | str, ...]
    ids: UInt64 | None


@dataclass(frozen=True, slots=True)
class _Holes:
    """Places that a template leaves open.

    H holes.

    Attributes:
        place: (H,) where each begins in the file that the template was made of.
        width: (H,) its bytes there.
        record: (H,) the record it is in.
    """

    place: Int64
    width: Int64
    record: Int64


@dataclass(frozen=True, slots=True)
class _Found:
    """The appearances of symbols in the file of a template.

    A appearances, S symbols: the slots, then the ids of nodes where they are symbols.

    Attributes:
        holes: (A) where they are.
        symbol: (A,) what appears.
        within: (A,) index of the length within the record that counts its bytes, -1 where none does.
        kinds: (S,) ValueKind of each symbol.
        slots: How many of the symbols are slots.
    """

    holes: _Holes
    symbol: Int64
    within: Int64
    kinds: Int64
    slots: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """A template with symbols of certain widths.

    Attributes:
        widths: (S,) bytes of each symbol.
        first: (S,) where each symbol lies first.
        record: (S,) where the record begins in which it does.
        base: The file, with the lengths that follow from the widths, and zeros where symbols are.
        fixed: All bits of its bytes where no symbols are, none where they are.
        places: Every byte of every appearance of a symbol but the first ...
        sources: ... and the byte of the symbol's first appearance that it repeats.
        slots: Kind, place and bytes of each symbol that is a slot.
        ids: (W, N) the bytes of ids of nodes where they are symbols, of each the first, then the second, …; beyond the last
            of an id the last once more ...
        goes_on: (W, N) ... and the high bit of each byte, set where the id goes on after it ...
        inside: (W, N) ... and all bits of those that there are; None where all ids have W bytes.
    """

    widths: Int64
    first: Int64
    record: Int64
    base: bytearray
    fixed: UInt8
    places: Int64
    sources: Int64
    slots: tuple[tuple[int, int, int], ...]
    ids: Int64
    goes_on: UInt8
    inside: UInt8 | None

    def agrees(self, data: UInt8, until: int) -> bool:
        """Whether the start of a file is what its own symbols make."""
        base, fixed, places, sources = self.base, self.fixed, self.places, self.sources
        if until != len(base):
            before = places < until
            base, fixed, places, sources = base[:until], fixed[:until], places[before], sources[before]
        # Compared as bytes: arrays would be compared one by one, and then be looked through once more.
        return base == data[:until] & fixed and bytearray(data.take(places)) == data.take(sources)

    def read_slots(self, data: UInt8) -> list[int | str] | None:
        """Return the values of the slots of a file that agrees; None where one has other bytes, or is no text."""
        slots: list[int | str] = []
        for kind, first, width in self.slots:
            raw = data[first : first + width].tobytes()
            value, begin = k.varint(raw, 0, width)
            if kind == ValueKind.STRING:
                if begin + value != width:
                    return None
                try:
                    slots.append(raw[begin:].decode())
                except UnicodeDecodeError:
                    return None
            elif begin != width:
                return None
            else:
                bits = k.scalar(kind, value)
                slots.append(bits & 0xFFFF_FFFF_FFFF_FFFF if kind == ValueKind.UINT64 else bits)
        return slots

    def read_ids(self, data: UInt8) -> UInt64 | None:
        """Return the ids of the nodes of a file that agrees; None where one has other bytes."""
        bits = data.take(self.ids)
        bits ^= self.goes_on
        if self.inside is not None:
            bits &= self.inside
        if not bits.tobytes().isascii():
            return None  # one goes on where it should not; asked of the array it takes four times as long
        if len(bits) <= _EXACT_BYTES:
            # One product takes a third of the time of shifting and adding, and is exact as far as here.
            sums: UInt64 = _PLACE_VALUES[: len(bits)].dot(bits.astype(np.float64)).astype(np.uint64)
            return sums
        ids: UInt64 = bits[-1].astype(np.uint64)
        for higher in bits[-2::-1]:
            ids <<= 7
            ids |= higher
        return ids


class Template:
    """The bytes that the files of equal ranks have in common; `make_template` makes one."""

    def __init__(
        self,
        data: UInt8,
        records: _Holes,
        inner: _Holes,
        appearances: _Found,
        slot_marks: Sequence[tuple[int, int]],
        ids: UInt64,
    ) -> None:
        """Take the holes out of a file.

        Args:
            data: Its node records.
            records: Lengths of records.
            inner: Lengths of attributes and lists that hold symbols.
            appearances: Appearances of symbols.
            slot_marks: Key and kind of every slot; those with the same mark are told apart by their values.
            ids: Ids of its nodes.
        """
        self.records, self.inner, self.appearances = records, inner, appearances
        self.slot_marks, self.ids = slot_marks, ids
        self.is_text = appearances.kinds == ValueKind.STRING
        sorts = {mark: index for index, mark in enumerate(slot_marks)}
        of_ids = [_OUTSIDE] * (len(appearances.kinds) - appearances.slots)
        self.sort = np.array([sorts[mark] for mark in slot_marks] + of_ids, np.int64)
        holes = (records, inner, appearances.holes)
        place = np.concatenate([hole.place for hole in holes])
        width = np.concatenate([hole.width for hole in holes])
        self.order = np.argsort(place, kind="stable")
        is_open = np.zeros(len(data), np.bool_)
        is_open[expand_ranges(place, width)] = True
        self.literal = data[~is_open]
        in_order = width[self.order]
        self.literal_before = place[self.order] - np.cumsum(in_order) + in_order
        by_inner, by_record = self._sum_holes(appearances.holes.width, inner.width)
        self.inner_base = read_numbers(data, inner.place)[0] - by_inner
        self.record_base = read_numbers(data, records.place)[0] - by_record
        in_file = np.argsort(appearances.holes.place, kind="stable")
        self.first = in_file[np.unique(appearances.symbol[in_file], return_index=True)[1]]
        self.layouts = [self._build_layout(appearances.holes.width[self.first])]

    @property
    def held_bytes(self) -> int:
        """Memory that the template takes, about."""
        columns = (
            array
            for known in self.layouts
            for array in (known.fixed, known.places, known.sources, known.ids, known.goes_on)
        )
        bases = sum(len(known.base) for known in self.layouts)
        return 2 * len(self.literal) + bases + sum(column.nbytes for column in columns)

    def read(self, data: UInt8, *, adapt: bool = True) -> Symbols | None:
        """Return the symbols of a file, None where it has not exactly the structure of this template.

        Args:
            data: Its node records.
            adapt: Whether to look for symbols of widths that no file had so far, which takes longer.
        """
        for layout in self.layouts:
            symbols = self._find_symbols(layout, data)
            if symbols is not None:
                break
        else:
            adapted = self._adapt_layout(data) if adapt else None
            if adapted is None:
                return None
            layout, symbols = adapted
        if layout is not self.layouts[0]:
            others = [known for known in self.layouts if known is not layout]
            self.layouts = [layout, *others][:_MOST_LAYOUTS]
        return symbols

    def _find_symbols(self, layout: _Layout, data: UInt8) -> Symbols | None:
        """Return the symbols of a file, None where they have not the widths of the layout, do not make the file, or two are one."""
        if len(data) != len(layout.base) or not layout.agrees(data, len(data)):
            return None
        slots = layout.read_slots(data)
        if slots is None or len(set(zip(self.slot_marks, slots, strict=True))) < self.appearances.slots:
            return None
        if not layout.ids.size:
            return Symbols(tuple(slots), None)
        ids = layout.read_ids(data)
        if ids is None:
            return None
        if ids[0] == self.ids[0] and (ids == self.ids).all():
            return Symbols(tuple(slots), self.ids)
        return None if count_repeats(ids) else Symbols(tuple(slots), ids)

    def _read_widths(self, data: UInt8, layout: _Layout, which: Bool | Int64) -> Int64:
        """Return the bytes that some symbols have in a file where a layout expects them."""
        value, width = read_numbers(data, layout.first[which])
        return np.where(self.is_text[which], width + value, width)

    def _adapt_layout(self, data: UInt8) -> tuple[_Layout, Symbols] | None:
        """Return a layout for symbols of other widths, and these; None where the file has another structure.

        Goes from one symbol of another width to the next: what comes before it must agree with the file.
        """
        layout, done = self.layouts[0], -1
        for _ in range(_MOST_GUESSES):
            inside = np.argsort(layout.first)
            inside = inside[layout.first[inside] < len(data)]
            widths = self._read_widths(data, layout, inside)
            other = np.flatnonzero(widths != layout.widths[inside])
            if not len(other):
                symbols = self._find_symbols(layout, data)
                return None if symbols is None else (layout, symbols)
            here, symbol = int(other[0]), inside[other[0]]
            until = min(int(layout.record[symbol]), len(data))
            sane = 0 < widths[here] <= len(data)
            if here < done or not sane or not layout.agrees(data, until):
                return None
            # Ids that run on, and peers that go round, change their width together.
            alike = inside[here:]
            alike = alike[
                (self.sort[alike] == self.sort[symbol]) & (layout.widths[alike] == layout.widths[symbol])
            ]
            changed = layout.widths.copy()
            changed[alike] = widths[here]
            if int(changed[self.appearances.symbol].sum()) > _MOST_GROWTH * len(data) + _MOST_GROWTH:
                return None
            layout, done = self._build_layout(changed), here
        return None

    def _sum_holes(self, found_width: Int64, inner_width: Int64) -> tuple[Int64, Int64]:
        """Return how many bytes of each length within records, and of each record, are in holes."""
        appearances, counted = self.appearances, self.appearances.within != _OUTSIDE
        by_inner = _sum_by_index(appearances.within[counted], found_width[counted], len(self.inner.place))
        by_record = _sum_by_index(appearances.holes.record, found_width, len(self.records.place))
        return by_inner, by_record + _sum_by_index(self.inner.record, inner_width, len(self.records.place))

    def _build_layout(self, widths: Int64) -> _Layout:
        """Return the layout for symbols of these widths."""
        found_width = widths[self.appearances.symbol]
        by_inner, _ = self._sum_holes(found_width, self.inner.width)
        inner_size = self.inner_base + by_inner
        inner_width = measure_widths(inner_size)
        _, by_record = self._sum_holes(found_width, inner_width)
        record_size = self.record_base + by_record
        width = np.concatenate((measure_widths(record_size), inner_width, found_width))
        place = np.empty(len(width), np.int64)
        in_order = width[self.order]
        place[self.order] = self.literal_before + np.cumsum(in_order) - in_order
        base = np.zeros(len(self.literal) + int(width.sum()), np.uint8)
        is_literal = np.ones(len(base), np.bool_)
        is_literal[expand_ranges(place, width)] = False
        base[is_literal] = self.literal
        sizes = np.concatenate((record_size, inner_size))
        put_numbers(base, place[: len(sizes)], width[: len(sizes)], sizes)
        symbol_place = place[len(sizes) :]
        first = symbol_place[self.first]
        places, sources = (
            expand_ranges(symbol_place, found_width),
            expand_ranges(first[self.appearances.symbol], found_width),
        )
        again = places != sources
        fixed = np.full(len(base), 255, np.uint8)
        fixed[places] = 0
        count = self.appearances.slots
        # Ids come after all slots.
        id_width = widths[count:]
        byte = np.arange(int(id_width.max(initial=0)))[:, None]
        inside = byte < id_width
        slots = (self.appearances.kinds[:count].tolist(), first[:count].tolist(), widths[:count].tolist())
        return _Layout(
            widths=widths,
            first=first,
            record=place[self.appearances.holes.record[self.first]],
            base=bytearray(base),
            fixed=fixed,
            places=places[again],
            sources=sources[again],
            slots=tuple(zip(*slots, strict=True)),
            ids=first[count:] + np.minimum(byte, id_width - 1),
            goes_on=np.where(byte < id_width - 1, 128, 0).astype(np.uint8),
            inside=None if inside.all() else np.where(inside, 255, 0).astype(np.uint8),
        )


def _sum_by_index(index: Int64, values: Int64, count: int) -> Int64:
    """Return (count,) the sums of the values with each index."""
    return np.bincount(index, values, count).astype(np.int64)


# ---------------------------------------------------------------------------------------------------
# Making one


def make_template(data: UInt8, graph: Graph, slots: Sequence[int | str]) -> Template | None:
    """Return the template that a file shares with those of equal ranks; None where its encoding is too unusual.

    Args:
        data: The node records of the file, undamaged.
        graph: What was read from them.
        slots: The values that were read for its slots.
    """
    place, begin = find_records(data.tobytes(), 0)
    end = np.append(place[1:], len(data))
    fields = find_fields(data, begin, end)
    if fields is None or len(begin) != len(graph):
        return None
    marks = _list_slot_marks(graph)
    values = _find_slot_values(data, fields, graph)
    if values is None or len(marks) != len(slots):
        return None
    parts = [values, *(_find_ids(data, fields, graph, len(slots)) or ())]
    inner = _join_holes([inner for _, _, inner, _ in parts])
    before = np.cumsum([0, *(len(inner.place) for _, _, inner, _ in parts)])
    within = [
        np.where(part == _OUTSIDE, part, part + first)
        for (_, _, _, part), first in zip(parts, before[:-1].tolist(), strict=True)
    ]
    with_ids = len(parts) > 1
    kinds = [kind for _, kind in marks] + [int(ValueKind.UINT64)] * (len(graph) if with_ids else 0)
    appearances = _Found(
        _join_holes([holes for holes, _, _, _ in parts]),
        np.concatenate([symbol for _, symbol, _, _ in parts]),
        np.concatenate(within),
        np.array(kinds, np.int64),
        len(slots),
    )
    number = np.zeros(len(place), np.int64)
    number[appearances.holes.record] = 1
    touched = np.flatnonzero(number)
    records = _Holes(place[touched], (begin - place)[touched], np.arange(len(touched)))
    number[touched] = np.arange(len(touched))
    appearances = replace(
        appearances, holes=replace(appearances.holes, record=number[appearances.holes.record])
    )
    template = Template(
        data, records, replace(inner, record=number[inner.record]), appearances, marks, graph.id
    )
    # The proof that nothing was overlooked: the template reads the file that it was made of.
    own = template.read(data)
    if own is None or own.slots != tuple(slots):
        return None
    return template if own.ids is None or bool((own.ids == graph.id).all()) else None


_Part = tuple[_Holes, Int64, _Holes, Int64]
"""Where symbols appear, which, the lengths within records that count them, and which of these each is within."""


def _join_holes(holes: Sequence[_Holes]) -> _Holes:
    columns = [(hole.place, hole.width, hole.record) for hole in holes]
    return _Holes(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _list_slot_marks(graph: Graph) -> list[tuple[int, int]]:
    """Return key and kind of every slot."""
    where = np.flatnonzero(graph.attrs.slot)
    _, first = np.unique(graph.attrs.value[where], return_index=True)
    chosen = where[first]
    return list(zip(graph.attrs.key[chosen].tolist(), graph.attrs.kind[chosen].tolist(), strict=True))


def _find_slot_values(data: UInt8, fields: Fields, graph: Graph) -> _Part | None:
    """Return where the values of slots are, None where an attribute gives its key or value more than once."""
    attributes = fields.only((fields.number == _ATTRIBUTE) & (fields.wire == 2))
    if len(attributes.owner) != len(graph.attrs.slot):
        return None
    where = np.flatnonzero(graph.attrs.slot)
    attributes = attributes.only(where)
    content = find_fields(data, attributes.begin, attributes.end)
    if content is None:
        return None
    keys = np.bincount(content.owner[content.number == _KEY], minlength=len(where))
    values = content.only(content.number >= _FIRST_VALUE)
    kind = graph.attrs.kind[where]
    usual = (keys == 1).all() and len(values.owner) == len(where)
    if not (
        usual
        and (values.owner == np.arange(len(where))).all()
        and (values.number == kind).all()
        and np.isin(kind, (*_NUMBERS, ValueKind.STRING)).all()
    ):
        return None
    holes = _Holes(values.place, values.end - values.place, attributes.owner)
    lengths = _Holes(attributes.place, attributes.begin - attributes.place, attributes.owner)
    return holes, graph.attrs.value[where], lengths, np.arange(len(where))


def _find_ids(data: UInt8, fields: Fields, graph: Graph, before: int) -> list[_Part] | None:
    """Return where the ids of nodes are, None where they have to stay as they are."""
    given = fields.only((fields.number == _ID) & (fields.wire == 0))
    dangling = len(graph.ctrl.dangling) + len(graph.data.dangling)
    each_once = len(given.owner) == len(graph) and bool((given.owner == np.arange(len(graph))).all())
    if dangling or not each_once or count_repeats(graph.id):
        return None
    nothing = _Holes(*(np.empty(0, np.int64) for _ in range(3)))
    holes = _Holes(given.place, given.end - given.place, given.owner)
    parts: list[_Part] = [(holes, before + given.owner, nothing, np.full(len(graph), _OUTSIDE))]
    for number, waits in ((_CTRL, graph.ctrl), (_DATA, graph.data)):
        lists = fields.only((fields.number == number) & ((fields.wire == 0) | (fields.wire == 2)))
        owner, place, width = list_numbers(data, lists.begin, lists.end)
        if len(owner) != len(waits.rows):
            return None
        counted = np.flatnonzero((lists.wire == 2) & (lists.end > lists.begin))
        index = np.full(len(lists.owner), _OUTSIDE)
        index[counted] = np.arange(len(counted))
        lengths = lists.only(counted)
        holes = _Holes(place, width, lists.owner[owner])
        inner = _Holes(lengths.place, lengths.begin - lengths.place, lengths.owner)
        parts.append((holes, before + waits.rows.astype(np.int64), inner, index[owner]))
    return parts
