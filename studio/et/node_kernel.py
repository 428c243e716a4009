"""Walk the nodes of a merged trace (ET+) as JSON, into flat columns.

As `event_kernel` does for events: it takes what Chakra's linker writes and stops at anything else, which is decoded in full
instead, so that what it does read it reads as the decoder would.
"""

from __future__ import annotations

from studio.et.event_kernel import (
    MOST_DIGITS,
    field_of,
    is_null,
    open_object,
    pass_value,
    put_time,
    read_key,
    value_end,
    white,
    whole_number,
)

# Columns of `out`. Whole numbers, `MISSING` where there are none:
ID, CALLER = 0, 1
# Times, see `event_kernel`:
START, INCLUSIVE, EXCLUSIVE = 2, 4, 6
# Where a value begins, and its bytes; -1 bytes where it is missing or null:
NAME, CATEGORY, STREAM, GROUP, THREAD_WAITS, SYNC_WAITS, SCHEMA = 8, 10, 12, 14, 16, 18, 20
ATTRIBUTES = 22
# Where inputs and outputs begin, then likewise values, shapes and types of each:
INPUTS, OUTPUTS = 24, 25
IO = 26
# Whole numbers again, in the order of `NUMBERS`:
FIRST_NUMBER = 38
COLUMNS = 44

MISSING = -4611686018427387904

NUMBERS = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
ATTRIBUTE_NAME, ATTRIBUTE_VALUE = 0, 1
KEYS = (
    (
        *(("id", ID), ("ctrl_deps", CALLER), ("name", NAME), ("inputs", INPUTS), ("outputs", OUTPUTS)),
        *(("attrs", ATTRIBUTES), ("ts", START), ("inclusive_dur", INCLUSIVE), ("exclusive_dur", EXCLUSIVE)),
        *(("inter_thread_dep", THREAD_WAITS), ("sync_dep", SYNC_WAITS), ("cat", CATEGORY)),
        *(("stream", STREAM), ("pg_name", GROUP)),
    ),
    (("values", 0), ("shapes", 2), ("types", 4)),
    (("name", ATTRIBUTE_NAME), ("value", ATTRIBUTE_VALUE)),
    (*((key, FIRST_NUMBER + place) for place, key in enumerate(NUMBERS)), ("op_schema", SCHEMA)),
)
"""Names of fields of a node, of its inputs and outputs, of an attribute, and names of attributes, with the column of each."""
NODE, SIDE, ATTRIBUTE, NAMED = 0, 1, 2, 3

# What `walk_nodes` leaves in `state`.
DONE, ROWS, CLOSED = 0, 1, 2
STATES = 3


def put_whole(buf, pos, end, out, column, row):
    """Put down a whole number, or that it is null; returns whether it is either."""
    if is_null(buf, pos, end):
        out[column, row] = MISSING
        return True
    for digit in range(pos, end):
        if not (48 <= buf[digit] <= 57 or (digit == pos and buf[digit] == 45)):
            return False
    value, count = whole_number(buf, pos, end)
    if count == 0 or count > MOST_DIGITS:
        return False
    out[column, row] = value
    return True


def attribute_column(buf, pos, end, names, places, table):
    """Return the column of the attribute whose name, a text, is here: -1 where none is kept, -2 where it is not written plainly."""
    for place in range(pos + 1, end - 1):
        if buf[place] == 92:
            return -2
    return field_of(buf, pos + 1, end - 1, NAMED, names, places, table)


def put_attribute(buf, pos, end, names, places, table, out, row, stack):
    """Put down an attribute; returns where it ends, -1 where it is not as usual."""
    column = -1
    named = False
    first = -1
    last = -1
    pos, more = open_object(buf, pos, end)
    while more:
        field, pos = read_key(buf, pos, end, ATTRIBUTE, names, places, table)
        if pos < 0:
            return -1
        behind = value_end(buf, pos, end, stack)
        if behind < 0:
            return -1
        if field == ATTRIBUTE_NAME:
            if named or buf[pos] != 34:
                return -1
            named = True
            column = attribute_column(buf, pos, behind, names, places, table)
            if column < -1:
                return -1
        elif field == ATTRIBUTE_VALUE:
            if first >= 0:
                return -1
            first = pos
            last = behind
        pos, more = pass_value(buf, behind, end)
    if pos < 0 or column < 0:
        return pos
    if column == SCHEMA:
        out[SCHEMA, row] = first
        out[SCHEMA + 1, row] = last - first if first >= 0 else -1
    elif first < 0:
        out[column, row] = MISSING
    elif not put_whole(buf, first, last, out, column, row):
        return -1
    return pos


def put_attributes(buf, pos, end, names, places, table, out, row, stack):
    """Put down the attributes of a node; returns where their list ends, -1 where they are not as usual."""
    if pos >= end or buf[pos] != 91:
        return -1
    pos = white(buf, pos + 1, end)
    if pos < end and buf[pos] == 93:
        return pos + 1
    while True:
        pos = put_attribute(buf, pos, end, names, places, table, out, row, stack)
        if pos < 0:
            return -1
        pos = white(buf, pos, end)
        if pos >= end:
            return -1
        if buf[pos] == 93:
            return pos + 1
        if buf[pos] != 44:
            return -1
        pos = white(buf, pos + 1, end)


def put_side(buf, pos, end, first, names, places, table, out, row, stack):
    """Put down the inputs or outputs of a node from a column on; returns where they end, -1 where they are not as usual."""
    pos, more = open_object(buf, pos, end)
    while more:
        field, pos = read_key(buf, pos, end, SIDE, names, places, table)
        if pos < 0:
            return -1
        last = value_end(buf, pos, end, stack)
        if last < 0:
            return -1
        if field >= 0:
            out[first + field, row] = pos
            out[first + field + 1, row] = last - pos
        pos, more = pass_value(buf, last, end)
    return pos


def put_value(buf, pos, end, field, out, row, stack):
    """Put down another value of a node; returns where it ends, -1 where it is not as usual."""
    last = value_end(buf, pos, end, stack)
    if last < 0 or field < 0:
        return last
    if field == ID or field == CALLER:  # noqa: SIM109 (compiled)
        if not put_whole(buf, pos, last, out, field, row):
            return -1
    elif field < NAME:
        if is_null(buf, pos, end):
            out[field + 1, row] = -1
        elif not put_time(buf, pos, last, out, field, row):
            return -1
    elif field == NAME and buf[pos] != 34:
        return -1
    else:
        out[field, row] = pos
        out[field + 1, row] = -1 if is_null(buf, pos, end) else last - pos
    return last


def put_node(buf, pos, end, names, places, table, out, row, stack):
    """Put down a node that begins here; returns where it ends, -1 where it is not as usual."""
    for column in range(COLUMNS):
        out[column, row] = -1
    out[ID, row] = MISSING
    out[CALLER, row] = MISSING
    for column in range(FIRST_NUMBER, COLUMNS):
        out[column, row] = MISSING
    pos, more = open_object(buf, pos, end)
    while more:
        field, pos = read_key(buf, pos, end, NODE, names, places, table)
        if pos < 0:
            return -1
        if field == ATTRIBUTES or field == INPUTS or field == OUTPUTS:  # noqa: SIM109 (compiled)
            # Others of the same name would take the place of the first.
            if out[field, row] >= 0:
                return -1
            out[field, row] = pos
            if field == ATTRIBUTES:
                first = pos
                pos = put_attributes(buf, pos, end, names, places, table, out, row, stack)
                out[ATTRIBUTES + 1, row] = pos - first
            else:
                column = IO if field == INPUTS else IO + 6
                pos = put_side(buf, pos, end, column, names, places, table, out, row, stack)
        else:
            pos = put_value(buf, pos, end, field, out, row, stack)
        if pos < 0:
            return -1
        pos, more = pass_value(buf, pos, end)
    return pos


def walk_nodes(buf, start, end, names, places, table, out, stack, state, most):
    """Put down nodes, one after another with commas between, until their list ends or there is no room for another.

    The next stands in `buf` at `start`. `names`, `places` and `table` are the keys and how they are found; `out` takes what is
    known of nodes (COLUMNS, most); `stack` is room for `DEEPEST` numbers. `state` tells then where the next node begins, -1 where
    one is not as usual, how many were put down, and where the list ends, if it does.
    """
    row = 0
    pos = white(buf, start, end)
    while row < most and state[CLOSED] == 0:
        pos = put_node(buf, pos, end, names, places, table, out, row, stack)
        if pos < 0:
            state[DONE] = -1
            return
        row += 1
        pos = white(buf, pos, end)
        if pos < end and buf[pos] == 44:
            pos = white(buf, pos + 1, end)
        elif pos < end and buf[pos] == 93:
            state[CLOSED] = pos + 1
        else:
            state[DONE] = -1
            return
    state[DONE] = pos
    state[ROWS] = row
