"""One walk over the protobuf wire format of a Chakra file, into flat columns.

The walk is written in the part of Python that numba compiles. Interpreted, it serves small files at once;
compiled, it reads a million nodes a second. Both give the same columns to the bit.

It runs twice over a file: the first time it only counts, so that the columns can be made the right size
and no length written in a damaged file can ask for memory; the second time it fills them.

Integers are int64 throughout: values of 64 unsigned bits appear as their two's complement.
"""

from __future__ import annotations

import numpy as np

# Counters, kept in one array so that the compiled walk can hand them back.
NODES, CTRL, DATA, ATTRS, ITEMS, TEXTS, EXTRAS, NESTED, GOOD_END, ERROR_AT, ERROR = range(11)
COUNTERS = 11

# Damage codes.
OK, CUT_RECORD, BAD_VARINT, BAD_TAG, OVERRUN = range(5)
DAMAGE = {
    CUT_RECORD: "the file ends inside a record",
    BAD_VARINT: "a variable-length integer does not end",
    BAD_TAG: "a field has an impossible number or wire type",
    OVERRUN: "a field claims more bytes than its record has",
}

# Members of `out`, the columns the walk fills.
IDS, TYPES, STARTS, DURATIONS, NAMES, FLAGS, IO, ENDS, CTRL_IDS, DATA_IDS = range(10)
KEYS, DOCS, KINDS, VALUES, LENGTHS, ITEM, TEXT_START, TEXT_LENGTH, EXTRA = range(10, 19)

# Bits of the `flags` column.
HAS_START, HAS_INPUTS, HAS_OUTPUTS = 1, 2, 4

MIN64 = -9223372036854775808


def varint(buf, pos, end):
    """Return (value, next position); next position is -1 where the integer does not end."""
    value = 0
    shift = 0
    while pos < end and shift < 70:
        byte = buf[pos] + 0
        pos += 1
        if shift < 63:
            value += (byte & 0x7F) << shift
        elif byte & 1:
            value += MIN64
        if byte < 128:
            return value, pos
        shift += 7
    return 0, -1


def fixed(buf, pos, size):
    """Return `size` little-endian bytes as a signed integer of that size."""
    value = 0
    for i in range(size - 1):
        value += (buf[pos + i] + 0) << (8 * i)
    top = buf[pos + size - 1] + 0
    if top >= 128:
        top -= 256
    return value + top * (1 << (8 * size - 8))


def low32(value):
    """Return the low 32 bits as a signed number."""
    value = value & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


def scalar(kind, raw):
    """Return what a varint or fixed value means for an odd value kind."""
    if kind == 7:
        return low32(raw)
    if kind == 11 or kind == 19 or kind == 5:
        return raw & 0xFFFFFFFF
    if kind == 15:
        raw = raw & 0xFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)
    if kind == 17:
        return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1)
    if kind == 27:
        return 1 if raw != 0 else 0
    return raw


def wire_of(kind):
    """Return the wire type of an odd value kind: 0 varint, 1 eight bytes, 5 four bytes, 2 text."""
    if kind == 3 or kind == 21 or kind == 25:
        return 1
    if kind == 5 or kind == 19 or kind == 23:
        return 5
    if kind == 29 or kind == 31:
        return 2
    return 0


def field(buf, pos, end):
    """Read one field.

    Returns:
        (number, wire type, value, start, next position, damage): `value` for varint and fixed fields,
        `start` of the content for length-delimited ones, which end at the next position.
    """
    tag, pos = varint(buf, pos, end)
    if pos < 0:
        return 0, 0, 0, 0, 0, BAD_VARINT
    number = (tag >> 3) & 0x1FFFFFFFFFFFFFFF
    wire = tag & 7
    if number == 0 or number > 536870911:
        return 0, 0, 0, 0, 0, BAD_TAG
    if wire == 0:
        value, after = varint(buf, pos, end)
        if after < 0:
            return 0, 0, 0, 0, 0, BAD_VARINT
        return number, wire, value, pos, after, OK
    if wire == 1 or wire == 5:
        size = 8 if wire == 1 else 4
        if pos + size > end:
            return 0, 0, 0, 0, 0, OVERRUN
        return number, wire, fixed(buf, pos, size), pos, pos + size, OK
    if wire == 2:
        size, start = varint(buf, pos, end)
        if start < 0:
            return 0, 0, 0, 0, 0, BAD_VARINT
        if size < 0 or size > end - start:
            return 0, 0, 0, 0, 0, OVERRUN
        return number, wire, 0, start, start + size, OK
    return 0, 0, 0, 0, 0, BAD_TAG


def text(out, count, fill, start, end):
    """Note one occurrence of a text and return its number."""
    number = count[TEXTS]
    if fill:
        out[TEXT_START][number] = start
        out[TEXT_LENGTH][number] = end - start
    count[TEXTS] = number + 1
    return number


def items(buf, start, end, kind, out, count, fill):
    """Read a `repeated values = 1` message of an even kind. Returns damage."""
    item = out[ITEM]
    odd = kind - 1
    want = wire_of(odd)
    pos = start
    while pos < end:
        number, wire, value, begin, pos, damage = field(buf, pos, end)
        if damage != OK:
            return damage
        if number != 1 or (wire != want and wire != 2):
            count[NESTED] += 1
        elif want == 2:
            at = text(out, count, fill, begin, pos)
            if fill:
                item[count[ITEMS]] = at
            count[ITEMS] += 1
        elif wire == want:
            if fill:
                item[count[ITEMS]] = scalar(odd, value)
            count[ITEMS] += 1
        else:
            size = 8 if want == 1 else 4
            if want != 0 and (pos - begin) % size != 0:
                return OVERRUN
            while begin < pos:
                if want == 0:
                    value, begin = varint(buf, begin, pos)
                    if begin < 0:
                        return BAD_VARINT
                else:
                    value = fixed(buf, begin, size)
                    begin += size
                if fill:
                    item[count[ITEMS]] = scalar(odd, value)
                count[ITEMS] += 1
    return OK


def attribute(buf, start, end, out, count, fill):
    """Read one AttributeProto. Returns damage."""
    key, doc, kinds, values, lengths = out[KEYS], out[DOCS], out[KINDS], out[VALUES], out[LENGTHS]
    at = count[ATTRS]
    if fill:
        key[at] = -1
        doc[at] = -1
        kinds[at] = 0
        values[at] = 0
        lengths[at] = 0
    current = 0
    pos = start
    while pos < end:
        number, wire, value, begin, pos, damage = field(buf, pos, end)
        if damage != OK:
            return damage
        if number <= 2 and wire == 2:
            note = text(out, count, fill, begin, pos)
            if fill and number == 1:
                key[at] = note
            elif fill:
                doc[at] = note
        elif 3 <= number <= 32 and number % 2 == 1 and wire == wire_of(number):
            current = number
            value = text(out, count, fill, begin, pos) if wire == 2 else scalar(number, value)
            if fill:
                kinds[at] = number
                values[at] = value
                lengths[at] = 0
        elif 3 <= number <= 32 and number % 2 == 0 and wire == 2:
            first = count[ITEMS]
            damage = items(buf, begin, pos, number, out, count, fill)
            if damage != OK:
                return damage
            # A list that comes in several pieces is one list, as protobuf merges messages; the pieces of
            # one attribute lie next to each other in `item`.
            if fill and current == number:
                lengths[at] += count[ITEMS] - first
            elif fill:
                kinds[at] = number
                values[at] = first
                lengths[at] = count[ITEMS] - first
            current = number
        else:
            count[NESTED] += 1
    count[ATTRS] = at + 1
    return OK


def io_info(buf, start, end, row, column, out, count, fill):
    """Read one IOInfo into three columns of the node. Returns damage."""
    io = out[IO]
    pos = start
    while pos < end:
        number, wire, _value, begin, pos, damage = field(buf, pos, end)
        if damage != OK:
            return damage
        if number <= 3 and wire == 2:
            note = text(out, count, fill, begin, pos)
            if fill:
                io[row, column + number - 1] = note
        else:
            count[NESTED] += 1
    return OK


def deps(buf, start, end, target, at, fill):
    """Read packed ids into `target` from index `at`. Returns (next index, damage)."""
    pos = start
    while pos < end:
        value, pos = varint(buf, pos, end)
        if pos < 0:
            return at, BAD_VARINT
        if fill:
            target[at] = value
        at += 1
    return at, OK


def unknown(out, count, fill, row, start, end):
    """Note a field of a node that the schema does not have; it is kept as bytes."""
    note = text(out, count, fill, start, end)
    if fill:
        out[EXTRA][count[EXTRAS], 0] = row
        out[EXTRA][count[EXTRAS], 1] = note
    count[EXTRAS] += 1


def node(buf, start, end, out, count, fill):
    """Read one Node record. Returns damage."""
    ids, types, starts, durations = out[IDS], out[TYPES], out[STARTS], out[DURATIONS]
    names, flags, io, ends = out[NAMES], out[FLAGS], out[IO], out[ENDS]
    row = count[NODES]
    if fill:
        ids[row] = 0
        types[row] = 0
        starts[row] = 0
        durations[row] = 0
        names[row] = -1
        flags[row] = 0
        io[row, :] = -1
    pos = start
    while pos < end:
        field_start = pos
        number, wire, value, begin, pos, damage = field(buf, pos, end)
        if damage == OK and (number == 4 or number == 5) and (wire == 0 or wire == 2):
            # An unpacked id is read as a packed list of one.
            if number == 4:
                count[CTRL], damage = deps(buf, begin, pos, out[CTRL_IDS], count[CTRL], fill)
            else:
                count[DATA], damage = deps(buf, begin, pos, out[DATA_IDS], count[DATA], fill)
        elif damage == OK and number == 10 and wire == 2:
            damage = attribute(buf, begin, pos, out, count, fill)
        elif damage == OK and (number == 8 or number == 9) and wire == 2:
            if fill:
                flags[row] |= HAS_INPUTS if number == 8 else HAS_OUTPUTS
            damage = io_info(buf, begin, pos, row, 0 if number == 8 else 3, out, count, fill)
        elif damage == OK and number == 2 and wire == 2:
            note = text(out, count, fill, begin, pos)
            if fill:
                names[row] = note
        elif damage == OK and (number == 1 or number == 3 or number == 6 or number == 7) and wire == 0:
            if fill and number == 1:
                ids[row] = value
            elif fill and number == 3:
                types[row] = low32(value)
            elif fill and number == 6:
                starts[row] = value
                flags[row] |= HAS_START
            elif fill:
                durations[row] = value
        elif damage == OK:
            unknown(out, count, fill, row, field_start, pos)
        if damage != OK:
            return damage
    count[NODES] = row + 1
    if fill:
        ends[row, 0] = count[CTRL]
        ends[row, 1] = count[DATA]
        ends[row, 2] = count[ATTRS]
    return OK


def walk(buf, start, end, out, count, fill, stop_at):
    """Read the node records of buf[start:end], leaving the counters at the last good record.

    Stops after about `stop_at` bytes so that the caller can report progress; `count[GOOD_END]` is where
    to go on.
    """
    pos = start
    count[GOOD_END] = start
    kept = count.copy()
    while pos < end and pos - start < stop_at:
        size, begin = varint(buf, pos, end)
        damage = OK
        if begin < 0:
            # Ten continuation bytes are nonsense; fewer mean that the file ends here.
            damage = CUT_RECORD if end - pos < 10 else BAD_VARINT
        elif size < 0 or size > end - begin:
            damage = CUT_RECORD
        if damage == OK:
            damage = node(buf, begin, begin + size, out, count, fill)
        if damage != OK:
            count[:] = kept
            count[ERROR] = damage
            count[ERROR_AT] = pos
            return
        pos = begin + size
        count[GOOD_END] = pos
        kept[:] = count


def text_hash(buf, start, length, seed):
    """Return a seeded hash of a text. Seeded, so that no file can be made to collide."""
    state = seed
    for i in range(start, start + length):
        state = (state ^ np.uint64(buf[i])) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
    return state


def intern(buf, starts, lengths, codes, seed):  # compiled only
    """Number the distinct texts by first appearance.

    Fills `codes`; returns the occurrence each distinct text was first seen at.
    """
    mask = 1023
    table = np.full(mask + 1, -1, np.int32)
    firsts = np.empty(512, np.int32)
    hashes = np.empty(512, np.uint64)
    found = 0
    for at in range(len(starts)):
        start, length = starts[at], lengths[at]
        mark = text_hash(buf, start, length, seed)
        slot = np.int64(mark & np.uint64(mask))
        while True:
            code = table[slot]
            if code < 0:
                break
            if hashes[code] == mark and lengths[firsts[code]] == length:
                other = starts[firsts[code]]
                same = True
                for i in range(length):
                    if buf[other + i] != buf[start + i]:
                        same = False
                        break
                if same:
                    break
            slot = (slot + 1) & mask
        if code >= 0:
            codes[at] = code
            continue
        table[slot] = found
        firsts[found] = at
        hashes[found] = mark
        codes[at] = found
        found += 1
        if found == len(firsts):
            firsts = np.concatenate((firsts, np.empty(found, np.int32)))
            hashes = np.concatenate((hashes, np.empty(found, np.uint64)))
            mask = 2 * len(table) - 1
            table = np.full(mask + 1, -1, np.int32)
            for code in range(found):
                slot = np.int64(hashes[code] & np.uint64(mask))
                while table[slot] >= 0:
                    slot = (slot + 1) & mask
                table[slot] = code
    return firsts[:found].copy()


def gather(buf, starts, lengths, target):
    """Copy texts one after another into `target`."""
    at = 0
    for i in range(len(starts)):
        start = starts[i]
        for j in range(lengths[i]):
            target[at + j] = buf[start + j]
        at += lengths[i]
