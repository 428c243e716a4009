"""Run the kernel of merged traces (ET+) over a file."""

from __future__ import annotations

import codecs
import re
from functools import cache
from typing import Any

import numpy as np

from studio.et import event_kernel
from studio.et import node_kernel as k
from studio.et.event_columns import EventRows, build_key_tables
from studio.machine_code import Entry, Items, Number, prepare_functions
from studio.native import Kernel
from studio.trace import Int64, UInt8

WORTH_BYTES = 8 << 20
"""Files from this size on are read faster with the kernel, once an installation has compiled it."""
COLD_BYTES = 512 << 20
"""Files from this size on are worth the compiler, which takes as long as decoding them, where the installation has not compiled before."""
_ROWS = 2056
"""Nodes that are put down at a time; see `event_columns`."""
_HEAD_BYTES = 1 << 20
_PIECE_BYTES = 1 << 24
_LIST = re.compile(rb'"nodes"\s{0,64}:\s{0,64}\[')

_BYTES, _NUMBERS, _NUMBER = Items("uint8", bare=True), Items("int64", bare=True), Number()
_FUNCTIONS = (
    *("white", "is_hex", "string_end", "digits_end", "number_end", "is_null", "word_end", "after_colon", "value_end"),
    *("slot_of", "field_of", "read_key", "open_object", "pass_value", "whole_number", "put_time", "put_whole", "attribute_column"),
    *("put_attribute", "put_attributes", "put_side", "put_value", "put_node", "walk_nodes"),
)  # fmt: skip
"""What is compiled, callees before their callers."""
_ENTRIES = (
    Entry(
        "walk_nodes",
        (
            *(_BYTES, _NUMBER, _NUMBER, _BYTES, _NUMBERS, _NUMBERS),
            *(Items("int64", 2), _NUMBERS, _NUMBERS, _NUMBER),
        ),
        answers=False,
    ),
)


def read_nodes(data: bytes | memoryview) -> tuple[EventRows, bytes] | None:
    """Return the nodes of a file in columns, see `studio.et.node_kernel`, and the file without them.

    None where the file is not written as usual: there may be damage.
    """
    opening = _LIST.search(data, 0, _HEAD_BYTES)
    if opening is None or not _is_text(data):
        return None
    buffer = np.frombuffer(data, np.uint8)
    names, places, table = _build_keys()
    state, stack = np.zeros(k.STATES, np.int64), np.empty(event_kernel.DEEPEST, np.int64)
    state[k.DONE] = opening.end()
    parts: list[Int64] = []
    walk = load_kernel().walk_nodes
    while not state[k.CLOSED]:
        out = np.empty((k.COLUMNS, _ROWS), np.int64)
        walk(buffer, int(state[k.DONE]), len(data), names, places, table, out, stack, state, _ROWS)
        if state[k.DONE] < 0:
            return None
        parts.append(out[:, : state[k.ROWS]])
    rest = bytes(data[: opening.end()]) + b"]" + bytes(data[int(state[k.CLOSED]) :])
    return EventRows(buffer, np.concatenate(parts, axis=1)), rest


def _is_text(data: bytes | memoryview) -> bool:
    """Whether bytes are UTF-8; looks at them piece by piece, as not all need lie in memory."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_plain = True
    for start in range(0, len(data), _PIECE_BYTES):
        piece = bytes(data[start : start + _PIECE_BYTES])
        if is_plain and piece.isascii():
            continue
        is_plain = False
        try:
            decoder.decode(piece)
        except UnicodeDecodeError:
            return False
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


@cache
def _build_keys() -> tuple[UInt8, Int64, Int64]:
    return build_key_tables(k.KEYS)


KERNEL = Kernel(k, __name__, _ENTRIES, prepare_functions(_FUNCTIONS, _ENTRIES), parts=(event_kernel,))


def load_kernel() -> Any:
    """Return the kernel, compiled. Takes seconds the first time an installation asks, then from a file."""
    return KERNEL.load()


def is_worth_compiling(size_bytes: int) -> bool:
    """Whether a file of this size is read faster compiled, including the wait for the compiler."""
    if size_bytes < WORTH_BYTES:
        return False
    return KERNEL.loaded is not None or size_bytes > COLD_BYTES or KERNEL.is_cached()
