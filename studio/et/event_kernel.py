"""Walk a list of events as profilers write them as JSON, into flat columns.

The walk is written in the part of Python that numba compiles. It takes what recorders write and no more: at anything else, be
it no JSON or JSON of another kind than is usual in a field, it stops, and the events are decoded in full instead. So what it
does read it reads as the decoder would.
"""

from __future__ import annotations

# Columns of `out`. A text is where it begins, and its bytes, quotes included; -1 bytes where it is missing.
PHASE, CATEGORY, NAME, PROCESS, THREAD = 0, 1, 3, 5, 7
# A time is its digits as a whole number, and how many of them stand behind the point; -1 where it is missing. One of too many
# digits is where it begins, and `LONG` more than its bytes.
START, DURATION = 9, 11
EVENT, ARGUMENTS, COMMUNICATES = 13, 15, 17
# Whole numbers, in the order of `NUMBERS`.
FIRST_NUMBER = 18
GRID = 28
DIMS, TYPES, VALUES = 31, 33, 35
COLUMNS = 37

KEPT = ("X", "i")
"""Phases of the events that are kept."""

EVENT_KEYS = (
    *(("ph", PHASE), ("cat", CATEGORY), ("name", NAME), ("pid", PROCESS), ("tid", THREAD)),
    *(("ts", START), ("dur", DURATION), ("args", ARGUMENTS)),
)
NUMBERS = (
    *("External id", "external id", "Record function id", "correlation", "stream", "device", "bytes"),
    *("wait_on_stream", "wait_on_cuda_event_record_corr_id", "flops"),
)
ARGUMENT_KEYS = (
    *((key, FIRST_NUMBER + place) for place, key in enumerate(NUMBERS)),
    *(("grid", GRID), ("Input Dims", DIMS), ("Input type", TYPES), ("Concrete Inputs", VALUES)),
    *(("Collective name", COMMUNICATES), ("Process Group Name", COMMUNICATES)),
)
"""Names of fields, and the column of each."""

TABLE = 256
"""Places of each of the two tables that names are found by: a power of two."""
DEEPEST = 64
MOST_DIGITS = 18
LONG = 1000
LONGEST = 100
LARGEST_EXACT = 9007199254740992
"""From here on a number is not always one of 64 bits of floating point."""

# What `walk` leaves in `state`.
DONE, ROWS = 0, 1
STATES = 2


def white(buf, pos, end):
    """Return where white space ends."""
    while pos < end and (buf[pos] == 32 or buf[pos] == 10 or buf[pos] == 13 or buf[pos] == 9):
        pos += 1
    return pos


def is_hex(byte):
    """Whether a byte is a hexadecimal digit."""
    return 48 <= byte <= 57 or 65 <= byte <= 70 or 97 <= byte <= 102


def string_end(buf, pos, end):
    """Return where a text that begins here ends, its quotes included; -1 where it is none."""
    if pos >= end or buf[pos] != 34:
        return -1
    pos += 1
    while pos < end:
        byte = buf[pos]
        if byte == 34:
            return pos + 1
        if byte < 32:
            return -1
        if byte == 92:
            pos += 1
            if pos >= end:
                return -1
            byte = buf[pos]
            if byte == 117:
                # Halves of pairs are left to others.
                if pos + 4 >= end or buf[pos + 1] == 100 or buf[pos + 1] == 68:
                    return -1
                for place in range(pos + 1, pos + 5):
                    if not is_hex(buf[place]):
                        return -1
                pos += 4
            elif not (
                byte == 34 or byte == 92 or byte == 47 or byte == 98 or byte == 102
                or byte == 110 or byte == 114 or byte == 116
            ):  # fmt: skip
                return -1
        pos += 1
    return -1


def digits_end(buf, pos, end):
    """Return where digits end, -1 where there are none."""
    start = pos
    while pos < end and 48 <= buf[pos] <= 57:
        pos += 1
    return pos if pos > start else -1


def number_end(buf, pos, end):
    """Return where a number that begins here ends, -1 where it is none, or may be too large for any type."""
    if pos < end and buf[pos] == 45:
        pos += 1
    start = pos
    pos = digits_end(buf, pos, end)
    if pos < 0 or (pos > start + 1 and buf[start] == 48):
        return -1
    if pos < end and buf[pos] == 46:
        pos = digits_end(buf, pos + 1, end)
        if pos < 0:
            return -1
    if pos < end and (buf[pos] == 101 or buf[pos] == 69):
        pos += 1
        if pos < end and (buf[pos] == 43 or buf[pos] == 45):
            pos += 1
        exponent = pos
        pos = digits_end(buf, pos, end)
        if pos > exponent + 2:
            return -1
    return -1 if pos > start + LONGEST else pos


def is_null(buf, pos, end):
    """Whether `null` stands here."""
    return (
        pos + 4 <= end and buf[pos] == 110 and buf[pos + 1] == 117 and buf[pos + 2] == 108 and buf[pos + 3] == 108
    )  # fmt: skip


def word_end(buf, pos, end):
    """Return where `true`, `false` or `null` ends, -1 where it is none of them."""
    if is_null(buf, pos, end):
        return pos + 4
    if (
        pos + 4 <= end
        and buf[pos] == 116
        and buf[pos + 1] == 114
        and buf[pos + 2] == 117
        and buf[pos + 3] == 101
    ):
        return pos + 4
    if (
        pos + 5 <= end and buf[pos] == 102 and buf[pos + 1] == 97 and buf[pos + 2] == 108
        and buf[pos + 3] == 115 and buf[pos + 4] == 101
    ):  # fmt: skip
        return pos + 5
    return -1


def after_colon(buf, pos, end):
    """Return where the value begins whose key has ended here, -1 where there is no colon."""
    pos = white(buf, pos, end)
    if pos >= end or buf[pos] != 58:
        return -1
    return white(buf, pos + 1, end)


def value_end(buf, pos, end, stack):
    """Return where a value that begins here ends, -1 where it is none."""
    depth = 0
    while True:
        if pos < 0 or pos >= end:
            return -1
        byte = buf[pos]
        opened = False
        if byte == 34:
            pos = string_end(buf, pos, end)
        elif byte == 91 or byte == 123:
            if depth >= DEEPEST:
                return -1
            stack[depth] = byte
            depth += 1
            pos = white(buf, pos + 1, end)
            if pos >= end:
                return -1
            if buf[pos] == byte + 2:
                pos += 1
                depth -= 1
            else:
                opened = True
                if byte == 123:
                    pos = string_end(buf, pos, end)
                    if pos < 0:
                        return -1
                    pos = after_colon(buf, pos, end)
        elif byte == 116 or byte == 102 or byte == 110:
            pos = word_end(buf, pos, end)
        else:
            pos = number_end(buf, pos, end)
        if pos < 0:
            return -1
        while not opened:
            if depth == 0:
                return pos
            pos = white(buf, pos, end)
            if pos >= end:
                return -1
            if buf[pos] == 44:
                pos = white(buf, pos + 1, end)
                opened = True
                if stack[depth - 1] == 123:
                    pos = string_end(buf, pos, end)
                    if pos < 0:
                        return -1
                    pos = after_colon(buf, pos, end)
            elif buf[pos] == stack[depth - 1] + 2:
                pos += 1
                depth -= 1
            else:
                return -1


def slot_of(first, last, length):
    """Return where in its table a key is looked for, by its first and last byte and its length."""
    return (31 * first + 7 * last + length) & (TABLE - 1)


def field_of(buf, start, end, which, names, places, table):
    """Return the column of a key that stands there, without its quotes; -1 where it is not known."""
    if end == start:
        return -1
    slot = slot_of(buf[start], buf[end - 1], end - start)
    while table[which * TABLE + slot] >= 0:
        key = table[which * TABLE + slot]
        if places[3 * key + 1] == end - start:
            first = places[3 * key] - start
            pos = start
            while pos < end and names[first + pos] == buf[pos]:
                pos += 1
            if pos == end:
                return places[3 * key + 2]
        slot = (slot + 1) & (TABLE - 1)
    return -1


def read_key(buf, pos, end, which, names, places, table):
    """Return the column of the key that begins here, and where its value begins; that is -1 where it is not as usual."""
    if pos >= end or buf[pos] != 34:
        return -1, -1
    pos += 1
    start = pos
    while pos < end and buf[pos] != 34:
        # Not written plainly, or no text.
        if buf[pos] == 92 or buf[pos] < 32:
            return -1, -1
        pos += 1
    if pos >= end:
        return -1, -1
    return field_of(buf, start, pos, which, names, places, table), after_colon(buf, pos + 1, end)


def open_object(buf, pos, end):
    """Return where the first key of the object stands that begins here, and that there is one.

    Where it is empty it is where the object ends, and that there is none; -1 where no object begins.
    """
    if pos >= end or buf[pos] != 123:
        return -1, False
    pos = white(buf, pos + 1, end)
    if pos < end and buf[pos] == 125:
        return pos + 1, False
    return pos, True


def pass_value(buf, pos, end):
    """Return where the next key of an object begins and that there is one, behind the value that ends here.

    At its end it is where the object ends, and that there is none; -1 where it goes on otherwise.
    """
    pos = white(buf, pos, end)
    if pos < end and buf[pos] == 44:
        return white(buf, pos + 1, end), True
    return pos + 1 if pos < end and buf[pos] == 125 else -1, False


def whole_number(buf, start, end):
    """Return the whole number between two places, which hold digits and perhaps a sign, and the count of digits."""
    pos = start
    if buf[pos] == 45:
        pos += 1
    count = end - pos
    value = 0
    if count <= MOST_DIGITS:
        while pos < end:
            value = value * 10 + (buf[pos] - 48)
            pos += 1
    return -value if buf[start] == 45 else value, count


def take_digits(buf, pos, end, value):
    """Return a number with the digits that begin here behind its own, and where they end."""
    while pos < end and 48 <= buf[pos] <= 57:
        value = value * 10 + (buf[pos] - 48)
        pos += 1
    return value, pos


def plain_number(buf, pos, end):
    """Return a whole number written as recorders write them, and where it ends; that is -1 where it is anything else.

    Most are, and are looked at once.
    """
    first = pos + 1 if pos < end and buf[pos] == 45 else pos
    value, last = take_digits(buf, first, end, 0)
    count = last - first
    if count == 0 or count > MOST_DIGITS or (count > 1 and buf[first] == 48):
        return 0, -1
    if last < end and (buf[last] == 46 or buf[last] == 101 or buf[last] == 69):
        return 0, -1
    return -value if first > pos else value, last


def put_plain_time(buf, pos, end, out, column, row):
    """Put down a time written as recorders write them; returns where it ends, -1 where it is anything else."""
    first = pos + 1 if pos < end and buf[pos] == 45 else pos
    value, last = take_digits(buf, first, end, 0)
    count = last - first
    behind = 0
    if count == 0 or (count > 1 and buf[first] == 48):
        return -1
    if last < end and buf[last] == 46:
        point = last
        value, last = take_digits(buf, point + 1, end, value)
        behind = last - point - 1
        count += behind
        if behind == 0:
            return -1
    if (
        count > MOST_DIGITS
        or value >= LARGEST_EXACT
        or (last < end and (buf[last] == 101 or buf[last] == 69))
    ):
        return -1
    out[column, row] = -value if first > pos else value
    out[column + 1, row] = behind
    return last


def put_time(buf, start, end, out, column, row):
    """Put down the digits of a time; returns whether it is written as times are."""
    value = 0
    behind = -1
    count = 0
    pos = start
    if buf[pos] == 45:
        pos += 1
    while pos < end:
        byte = buf[pos]
        if byte == 46:
            behind = 0
        elif 48 <= byte <= 57:
            if count < MOST_DIGITS:
                value = value * 10 + (byte - 48)
            count += 1
            if behind >= 0:
                behind += 1
        else:
            return False
        pos += 1
    if count > MOST_DIGITS or value >= LARGEST_EXACT:
        # Without a point it is a whole number that no number of floating point stands for.
        if behind < 0:
            return False
        out[column, row] = start
        out[column + 1, row] = LONG + end - start
    else:
        out[column, row] = -value if buf[start] == 45 else value
        out[column + 1, row] = max(behind, 0)
    return True


def put_grid(buf, pos, end, out, row):
    """Put down three whole numbers; returns where their list ends, -1 where it is something else."""
    if pos >= end or buf[pos] != 91:
        return -1
    pos = white(buf, pos + 1, end)
    for place in range(3):
        last = number_end(buf, pos, end)
        if last < 0:
            return -1
        for digit in range(pos, last):
            if not (48 <= buf[digit] <= 57 or (digit == pos and buf[digit] == 45)):
                return -1
        value, count = whole_number(buf, pos, last)
        if count > MOST_DIGITS:
            return -1
        out[GRID + place, row] = value
        pos = white(buf, last, end)
        if pos >= end or buf[pos] != (93 if place == 2 else 44):
            return -1
        pos = white(buf, pos + 1, end) if place < 2 else pos + 1
    return pos


def put_argument(buf, pos, end, field, out, row, stack):
    """Put down the value of an argument that begins here; returns where it ends, -1 where it is not as usual."""
    if field == GRID:
        return put_grid(buf, pos, end, out, row)
    if FIRST_NUMBER <= field < GRID:
        value, last = plain_number(buf, pos, end)
        if last >= 0:
            out[field, row] = value
            return last
    last = value_end(buf, pos, end, stack)
    if last < 0 or field < 0:
        return last
    if field == COMMUNICATES:
        if not is_null(buf, pos, end):
            out[field, row] = 1
    elif field >= DIMS:
        out[field, row] = pos
        out[field + 1, row] = last - pos
    elif is_null(buf, pos, end):
        out[field, row] = -1
    else:
        start = pos
        stop = last
        # ROCm writes the bytes of copies as text.
        if buf[pos] == 34:
            start += 1
            stop -= 1
        for digit in range(start, stop):
            if not (48 <= buf[digit] <= 57 or (digit == start and buf[digit] == 45)):
                return -1
        if stop == start:
            return -1
        value, count = whole_number(buf, start, stop)
        if count > MOST_DIGITS or count == 0:
            return -1
        out[field, row] = value
    return last


def put_arguments(buf, pos, end, names, places, table, out, row, stack):
    """Put down the arguments of an event; returns where they end, -1 where they are not as usual."""
    if is_null(buf, pos, end):
        return pos + 4
    first = pos
    pos, more = open_object(buf, pos, end)
    while more:
        field, pos = read_key(buf, pos, end, 1, names, places, table)
        if pos >= 0:
            pos = put_argument(buf, pos, end, field, out, row, stack)
        if pos < 0:
            return -1
        pos, more = pass_value(buf, pos, end)
    if pos < 0:
        return -1
    out[ARGUMENTS, row] = first
    out[ARGUMENTS + 1, row] = pos - first
    return pos


def put_field(buf, pos, end, field, out, row, stack):
    """Put down the value of an event that begins here; returns where it ends, -1 where it is not as usual."""
    if field == START or field == DURATION:  # noqa: SIM109 (compiled)
        last = put_plain_time(buf, pos, end, out, field, row)
        if last >= 0:
            return last
    last = value_end(buf, pos, end, stack)
    if last < 0 or field < 0:
        return last
    if field == PHASE:
        if buf[pos] != 34:
            return -1
        for place in range(pos + 1, last - 1):
            if buf[place] == 92:
                return -1
        out[PHASE, row] = buf[pos + 1] if last - pos == 3 else -1
    elif field == START or field == DURATION:  # noqa: SIM109 (compiled)
        if is_null(buf, pos, end):
            out[field + 1, row] = -1
        elif not put_time(buf, pos, last, out, field, row):
            return -1
    else:
        out[field, row] = pos
        out[field + 1, row] = last - pos
    return last


def put_event(buf, pos, end, names, places, table, out, row, stack):
    """Put down an event that begins here; returns where it ends, -1 where it is not as usual."""
    for column in range(COLUMNS):
        out[column, row] = -1
    first = pos
    pos, more = open_object(buf, pos, end)
    while more:
        field, pos = read_key(buf, pos, end, 0, names, places, table)
        if pos < 0:
            return -1
        if field == ARGUMENTS:
            # A second set of arguments would take the place of the first.
            if out[ARGUMENTS, row] >= 0:
                return -1
            pos = put_arguments(buf, pos, end, names, places, table, out, row, stack)
        else:
            pos = put_field(buf, pos, end, field, out, row, stack)
        if pos < 0:
            return -1
        pos, more = pass_value(buf, pos, end)
    if pos < 0:
        return -1
    out[EVENT, row] = first
    out[EVENT + 1, row] = pos - first
    return pos


def walk(buf, start, end, names, places, table, out, stack, state, most):
    """Put down events, one after another with commas between, until there is no room for another.

    They stand in `buf` from `start` to `end`. `names`, `places` and `table` are the keys and how they are found; `out` takes what
    is known of events (COLUMNS, most); `stack` is room for `DEEPEST` numbers. `state` tells then where the next event begins, -1
    where one is not as usual, and how many were put down.
    """
    row = 0
    pos = white(buf, start, end)
    while row < most and pos < end:
        pos = put_event(buf, pos, end, names, places, table, out, row, stack)
        if pos < 0:
            state[DONE] = -1
            return
        if out[PHASE, row] == 88 or out[PHASE, row] == 105:
            row += 1
        pos = white(buf, pos, end)
        if pos < end:
            if buf[pos] != 44:
                state[DONE] = -1
                return
            pos = white(buf, pos + 1, end)
            if pos >= end:
                state[DONE] = -1
                return
    state[DONE] = pos
    state[ROWS] = row
