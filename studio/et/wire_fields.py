"""Find the fields of many protobuf messages at once, by numpy alone, in bytes that are known to be sound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.et import kernel as k
from studio.trace import Bool, Int64, UInt8

_MOST_ROUNDS = 512


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of many messages, by message, then by place.

    F fields.

    Attributes:
        owner: (F,) index of the message.
        number: (F,) field number.
        wire: (F,) wire type.
        place: (F,) where the tag ends: a number begins there, or the length of a text or message.
        begin: (F,) where the value or content begins.
        end: (F,) where the field ends.
    """

    owner: Int64
    number: Int64
    wire: Int64
    place: Int64
    begin: Int64
    end: Int64

    def only(self, kept: Bool | Int64) -> Fields:
        """Return some of the fields."""
        columns = (self.owner, self.number, self.wire, self.place, self.begin, self.end)
        return Fields(*(column[kept] for column in columns))


def find_records(data: bytes, start: int) -> tuple[Int64, Int64]:
    """Return (R,) where the length of each record lies and (R,) where its content begins."""
    places, begins, end = [], [], len(data)
    while start < end:
        places.append(start)
        size, begin = (data[start], start + 1) if data[start] < 128 else k.varint(data, start, end)
        begins.append(begin)
        start = begin + size
    return np.array(places, np.int64), np.array(begins, np.int64)


def find_fields(data: UInt8, begin: Int64, end: Int64) -> Fields | None:
    """Return the fields of the messages data[begin:end], None where one has very many.

    Goes through all messages side by side: first the first field of each, then the second.
    """
    owner = np.flatnonzero(begin < end)
    place = begin[owner]
    rounds: list[tuple[Int64, ...]] = []
    while len(owner):
        if len(rounds) == _MOST_ROUNDS:
            return None
        tag, width = read_numbers(data, place)
        content, wire = place + width, tag & 7
        start, stop = content.copy(), content.copy()
        fixed = (wire == 1) | (wire == 5)
        stop[fixed] += np.where(wire[fixed] == 1, 8, 4)
        other = np.flatnonzero(~fixed)
        value, width = read_numbers(data, content[other])
        sized = wire[other] == 2
        start[other] += np.where(sized, width, 0)
        stop[other] += width + np.where(sized, value, 0)
        rounds.append((owner, tag >> 3, wire, content, start, stop))
        on = stop < end[owner]
        owner, place = owner[on], stop[on]
    if not rounds:
        return Fields(*(np.empty(0, np.int64) for _ in range(6)))
    columns = [np.concatenate(column) for column in zip(*rounds, strict=True)]
    order = np.lexsort((columns[3], columns[0]))
    return Fields(*(column[order] for column in columns))


def read_numbers(data: UInt8, place: Int64) -> tuple[Int64, Int64]:
    """Return (M,) the variable-length numbers at (M,) places, and (M,) how many bytes each takes."""
    byte = data[place]
    value = (byte & 127).astype(np.int64)
    width = np.ones(len(place), np.int64)
    longer = np.flatnonzero(byte >= 128)
    shift = 7
    while len(longer):
        at = place[longer] + width[longer]
        inside = (at < len(data)) & (shift < 70)
        longer, at = longer[inside], at[inside]
        byte = data[at]
        if shift < 64:
            value[longer] |= (byte & 127).astype(np.int64) << shift
        width[longer] += 1
        longer = longer[byte >= 128]
        shift += 7
    return value, width


def list_numbers(data: UInt8, begin: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the list, place and width of every number of the packed lists data[begin:end]."""
    place = expand_ranges(begin, end - begin)
    owner = np.repeat(np.arange(len(begin)), end - begin)
    last = np.flatnonzero(data[place] < 128)
    before = np.append(-1, last)[:-1]
    return owner[last], place[before + 1], last - before


def expand_ranges(begin: Int64, count: Int64) -> Int64:
    """Return begin[0], begin[0] + 1, …, `count[0]` numbers, then those from begin[1] on, and so on.

    Example:
        >>> expand_ranges(np.array([5, 20]), np.array([3, 2])).tolist()
        [5, 6, 7, 20, 21]
    """
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begin - ends + count, count) + np.arange(total)


def measure_widths(numbers: Int64) -> Int64:
    """Return (M,) how many bytes (M,) lengths take as variable-length numbers."""
    width = np.ones(len(numbers), np.int64)
    for bits in (7, 14, 21, 28, 35):
        width += numbers >= 1 << bits
    return width


def put_numbers(data: UInt8, place: Int64, width: Int64, numbers: Int64) -> None:
    """Write (M,) variable-length numbers, each of its shortest width, to (M,) places."""
    for index in range(int(width.max(initial=0))):
        some = width > index
        more = (width[some] > index + 1).astype(np.int64) << 7
        data[place[some] + index] = ((numbers[some] >> (7 * index)) & 127) | more
