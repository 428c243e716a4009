"""Walk the protobuf wire format of a Chakra file once, into flat columns.

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
OK, CUT_RECORD, BAD_VARINT, BAD_TAG, OVERRUN, ZEROS = range(6)

# Members of `out`, the columns the walk fills.
IDS, TYPES, STARTS, DURATIONS, NAMES, FLAGS, IO, ENDS, CTRL_IDS, DATA_IDS = range(10)
KEYS, DOCS, KINDS, VALUES, LENGTHS, ITEM, TEXT_START, TEXT_LENGTH, EXTRA = range(10, 19)

# What a field belongs to.
NODE, ATTRIBUTE, INOUT, LIST = range(4)

# Bits of the `flags` column.
HAS_START, HAS_INPUTS, HAS_OUTPUTS = 1, 2, 4

MIN64 = -9223372036854775808

ZERO_FILL = 4096
"""So many zero bytes are no empty records but what a crashed machine leaves of a file."""


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


def walk(buf, start, end, out, count, fill, stop_at):
    """Read the node records of buf[start:end], leaving the counters at the last good record.

    One loop over fields with the nesting (node > attribute > list, node > inputs or outputs) kept in `level`:
    handing the columns to functions would cost more than reading a field. Stops after about `stop_at` bytes so
    that the caller can report progress; `count[GOOD_END]` is where to go on.
    """
    ids, types, starts, durations, names, flags, io, ends, ctrl, data = out[:10]
    keys, docs, kinds, values, lengths, items, text_start, text_length, extra = out[10:]
    rows, ctrls, datas, attrs = count[NODES], count[CTRL], count[DATA], count[ATTRS]
    item, text, extras, nested = count[ITEMS], count[TEXTS], count[EXTRAS], count[NESTED]
    pos = start
    damage = OK
    record = looked = start
    while pos < end and pos - start < stop_at:
        record = pos
        size, pos = varint(buf, pos, end)
        if pos < 0:
            # Ten continuation bytes are nonsense; fewer mean that the file ends here.
            damage = CUT_RECORD if end - record < 10 else BAD_VARINT
            break
        if size < 0 or size > end - pos:
            damage = CUT_RECORD
            break
        if size == 0 and pos >= looked:
            looked = pos
            while looked < end and looked - pos < ZERO_FILL and buf[looked] == 0:
                looked += 1
            if looked - pos == ZERO_FILL:
                damage = ZEROS
                break
        node_end = pos + size
        inner_end = list_end = node_end
        level = NODE
        io_column = kind = current = first = 0
        if fill:
            ids[rows] = 0
            types[rows] = 0
            starts[rows] = 0
            durations[rows] = 0
            names[rows] = -1
            flags[rows] = 0
            for column in range(6):
                io[rows, column] = -1

        while True:
            # Leave what is read to its end; an attribute or a record is then complete.
            if level == LIST and pos == list_end:
                level = ATTRIBUTE
                # A list that comes in several pieces is one list, as protobuf merges messages; the pieces of
                # one attribute lie next to each other in `items`.
                if fill and current == kind:
                    lengths[attrs] += item - first
                elif fill:
                    kinds[attrs] = kind
                    values[attrs] = first
                    lengths[attrs] = item - first
                current = kind
            if level != NODE and level != LIST and pos == inner_end:
                if level == ATTRIBUTE:
                    attrs += 1
                level = NODE
            if level == NODE and pos == node_end:
                break
            limit = node_end
            if level == LIST:
                limit = list_end
            elif level != NODE:
                limit = inner_end

            # The field: its number and wire type, then its value, or where its content lies.
            field_start = pos
            tag, pos = varint(buf, pos, limit)
            if pos < 0:
                damage = BAD_VARINT
                break
            number = (tag >> 3) & 0x1FFFFFFFFFFFFFFF
            wire = tag & 7
            if number == 0 or number > 536870911:
                damage = BAD_TAG
                break
            value = 0
            begin = pos
            if wire == 0:
                value, pos = varint(buf, pos, limit)
                if pos < 0:
                    damage = BAD_VARINT
                    break
            elif wire == 2:
                size, pos = varint(buf, pos, limit)
                if pos < 0:
                    damage = BAD_VARINT
                    break
                if size < 0 or size > limit - pos:
                    damage = OVERRUN
                    break
                begin = pos
                pos += size
            elif wire == 1 or wire == 5:
                size = 8 if wire == 1 else 4
                if size > limit - pos:
                    damage = OVERRUN
                    break
                value = fixed(buf, pos, size)
                pos += size
            else:
                damage = BAD_TAG
                break

            is_text = False
            if level == NODE:
                if number == 10 and wire == 2:
                    level = ATTRIBUTE
                    inner_end = pos
                    pos = begin
                    current = 0
                    if fill:
                        keys[attrs] = -1
                        docs[attrs] = -1
                        kinds[attrs] = 0
                        values[attrs] = 0
                        lengths[attrs] = 0
                elif (number == 4 or number == 5) and (wire == 0 or wire == 2):
                    # An unpacked id is read as a packed list of one.
                    while begin < pos:
                        value, begin = varint(buf, begin, pos)
                        if begin < 0:
                            damage = BAD_VARINT
                            break
                        if number == 4:
                            if fill:
                                ctrl[ctrls] = value
                            ctrls += 1
                        else:
                            if fill:
                                data[datas] = value
                            datas += 1
                    if damage != OK:
                        break
                elif (number == 8 or number == 9) and wire == 2:
                    level = INOUT
                    inner_end = pos
                    pos = begin
                    io_column = 0 if number == 8 else 3
                    if fill:
                        flags[rows] |= HAS_INPUTS if number == 8 else HAS_OUTPUTS
                elif number == 2 and wire == 2:
                    is_text = True
                    if fill:
                        names[rows] = text
                elif wire == 0 and (number == 1 or number == 3 or number == 6 or number == 7):
                    if fill and number == 1:
                        ids[rows] = value
                    elif fill and number == 3:
                        types[rows] = low32(value)
                    elif fill and number == 6:
                        starts[rows] = value
                        flags[rows] |= HAS_START
                    elif fill:
                        durations[rows] = value
                else:
                    # Not in the schema: kept as bytes.
                    is_text = True
                    begin = field_start
                    if fill:
                        extra[extras, 0] = rows
                        extra[extras, 1] = text
                    extras += 1
            elif level == INOUT:
                if number <= 3 and wire == 2:
                    is_text = True
                    if fill:
                        io[rows, io_column + number - 1] = text
                else:
                    nested += 1
            elif level == ATTRIBUTE:
                if number <= 2 and wire == 2:
                    is_text = True
                    if fill and number == 1:
                        keys[attrs] = text
                    elif fill:
                        docs[attrs] = text
                elif number >= 3 and number <= 32 and number % 2 == 0 and wire == 2:
                    level = LIST
                    list_end = pos
                    pos = begin
                    kind = number
                    first = item
                elif number >= 3 and number <= 32 and number % 2 == 1 and wire == wire_of(number):
                    current = number
                    if wire == 2:
                        is_text = True
                        value = text
                    else:
                        value = scalar(number, value)
                    if fill:
                        kinds[attrs] = number
                        values[attrs] = value
                        lengths[attrs] = 0
                else:
                    nested += 1
            else:
                want = wire_of(kind - 1)
                if number != 1 or (wire != want and wire != 2):
                    nested += 1
                elif want == 2:
                    is_text = True
                    if fill:
                        items[item] = text
                    item += 1
                elif wire == want:
                    if fill:
                        items[item] = scalar(kind - 1, value)
                    item += 1
                else:
                    size = 8 if want == 1 else 4
                    if want != 0 and (pos - begin) % size != 0:
                        damage = OVERRUN
                        break
                    while begin < pos:
                        if want == 0:
                            value, begin = varint(buf, begin, pos)
                            if begin < 0:
                                damage = BAD_VARINT
                                break
                        else:
                            value = fixed(buf, begin, size)
                            begin += size
                        if fill:
                            items[item] = scalar(kind - 1, value)
                        item += 1
                    if damage != OK:
                        break
            if is_text:
                if fill:
                    text_start[text] = begin
                    text_length[text] = pos - begin
                text += 1

        if damage != OK:
            break
        if fill:
            ends[rows, 0] = ctrls
            ends[rows, 1] = datas
            ends[rows, 2] = attrs
        rows += 1
        count[NODES], count[CTRL], count[DATA], count[ATTRS] = rows, ctrls, datas, attrs
        count[ITEMS], count[TEXTS], count[EXTRAS], count[NESTED] = item, text, extras, nested
    count[GOOD_END] = pos if damage == OK else record
    count[ERROR_AT] = record if damage != OK else 0
    count[ERROR] = damage


def word(buf, pos):
    """Return eight bytes as one number. Only ever run compiled.

    Unsigned indices: signed ones may count from the end, and the check keeps the compiler from making one load.
    """
    offset = np.uint64(pos)
    value = np.uint64(buf[offset])
    for i in range(1, 8):
        value |= np.uint64(buf[offset + np.uint64(i)]) << np.uint64(8 * i)
    return value


def text_hash(buf, start, length, seed):
    """Return a seeded hash of a text. Seeded, so that no file can be made to collide."""
    state = seed + np.uint64(length)
    pos = start
    end = start + length
    while pos + 8 <= end:
        state = (state ^ word(buf, pos)) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(29)
        pos += 8
    # The last bytes as one number; the length, part of the seed, tells "a" from "a\0".
    rest = np.uint64(0)
    while pos < end:
        rest = (rest << np.uint64(8)) | np.uint64(buf[np.uint64(pos)])
        pos += 1
    state = (state ^ rest) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return state ^ (state >> np.uint64(29))


def same_text(buf, first, pool, other, length):
    """Whether the buffer and the pool hold the same bytes at two places."""
    done = 0
    while done + 8 <= length:
        if word(buf, first + done) != word(pool, other + done):
            return False
        done += 8
    while done < length:
        if buf[np.uint64(first + done)] != pool[np.uint64(other + done)]:
            return False
        done += 1
    return True


def intern(buf, starts, lengths, codes, state, counts, seed):
    """Number texts: known ones as before, new ones by first appearance. Only ever run compiled.

    Fills `codes`. `state` is the table of an open-addressing hash map (upper half of the hash, and the code),
    the hashes, where each text begins in the pool, and the pool. `counts` holds how many of these texts are done, and how many
    distinct ones were found so far. Stops before a text for which there is no room.
    """
    table, hashes, offsets, pool = state
    mask = len(table) - 1
    upper = np.uint64(0xFFFFFFFF00000000)
    done, distinct = counts[0], counts[1]
    while done < len(starts):
        start, length = starts[done], lengths[done]
        mark = text_hash(buf, start, length, seed)
        tag = np.int64(mark & upper)
        slot = np.int64(mark & np.uint64(mask))
        code = np.int64(-1)
        entry = table[slot]
        while entry != -1:
            if (entry & -4294967296) == tag:
                code = entry & 0xFFFFFFFF
                begin = offsets[code]
                if offsets[code + 1] - begin == length and same_text(buf, start, pool, begin, length):
                    break
                code = np.int64(-1)
            slot = (slot + 1) & mask
            entry = table[slot]
        if code < 0:
            end = offsets[distinct] + length
            if end > len(pool) or distinct + 1 == len(offsets) or 2 * distinct >= len(table):
                break
            copy(buf, np.uint64(start), pool, np.uint64(offsets[distinct]), np.uint64(length))
            offsets[distinct + 1] = end
            hashes[distinct] = mark
            table[slot] = tag | distinct
            code = distinct
            distinct += 1
        codes[done] = code
        done += 1
    counts[0], counts[1] = done, distinct


def fill_table(table, hashes, distinct):
    """Enter the texts found so far into an empty table. Only ever run compiled."""
    mask = len(table) - 1
    for known in range(distinct):
        slot = np.int64(hashes[known] & np.uint64(mask))
        while table[slot] != -1:
            slot = (slot + 1) & mask
        table[slot] = np.int64(hashes[known] & np.uint64(0xFFFFFFFF00000000)) | known


def gather(buf, starts, lengths, target):
    """Copy texts one after another into `target`. Only ever run compiled."""
    end = np.uint64(0)
    for i in range(len(starts)):
        length = np.uint64(lengths[i])
        copy(buf, np.uint64(starts[i]), target, end, length)
        end += length


def find_first_uses(codes, first):
    """Put down where each code is used first; `first` holds the number of codes where one is not. Only ever run compiled."""
    for place in range(len(codes)):
        code = codes[place]
        if code >= 0 and first[code] == len(codes):
            first[code] = place


def copy(source, start, target, place, length):
    """Copy `length` bytes. Unsigned numbers, as in `word`: the compiler then copies blocks."""
    for i in range(length):
        target[place + i] = source[start + i]
