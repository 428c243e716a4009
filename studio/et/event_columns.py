"""Run the kernel of event lists, and number the texts that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from studio.et import event_kernel as k
from studio.et.wire import CompiledInterner
from studio.machine_code import Entry, Items, Number, prepare_functions
from studio.native import Kernel
from studio.trace import Bool, Float64, Int32, Int64, UInt8

COLD_BYTES = 64 << 20
"""Files from this size on are worth the compiler, where the installation has not compiled before."""
_ROWS = 2056
"""Events that are put down at a time. Columns that lie a power of two apart would share their places in the processor's cache, of
which there are few."""

_BEYOND_ASCII = 128

_BYTES, _NUMBERS, _NUMBER = Items("uint8", bare=True), Items("int64", bare=True), Number()
_FUNCTIONS = (
    "white", "is_hex", "string_end", "digits_end", "number_end", "is_null", "word_end", "after_colon", "value_end", "slot_of", "field_of", "read_key",
    "open_object", "pass_value", "whole_number", "take_digits", "plain_number", "put_plain_time", "put_time", "put_grid", "put_argument", "put_arguments",
    "put_field", "put_event", "walk",
)  # fmt: skip
"""What is compiled, callees before their callers."""
_ENTRIES = (
    Entry(
        "walk",
        (
            *(_BYTES, _NUMBER, _NUMBER, _BYTES, _NUMBERS, _NUMBERS),
            *(Items("int64", 2), _NUMBERS, _NUMBERS, _NUMBER),
        ),
        answers=False,
    ),
)


class EventRows:
    """Some events of a file in columns.

    M events.

    Attributes:
        data: The file.
        columns: (COLUMNS, R) of all events at hand, see `studio.et.event_kernel`.
        rows: (M,) those that are meant, None where all are.
    """

    def __init__(self, data: UInt8, columns: Int64, rows: Int64 | None = None) -> None:
        self.data, self.columns, self.rows = data, columns, rows

    def __len__(self) -> int:
        return self.columns.shape[1] if self.rows is None else len(self.rows)

    def take(self, rows: Int64) -> EventRows:
        """Return some of the events, in their order; `rows` rise."""
        if len(rows) == len(self):
            return self
        return EventRows(self.data, self.columns, rows if self.rows is None else self.rows[rows])

    def column(self, column: int) -> Int64:
        """Return a copy (M,) of a column."""
        whole: Int64 = self.columns[column]
        return whole.copy() if self.rows is None else whole[self.rows]

    def phase(self, letter: str) -> Int64:
        """Return the rows of the events of a phase."""
        return np.flatnonzero(self.column(k.PHASE) == ord(letter))

    def texts(self, column: int) -> tuple[list[bytes], Int32]:
        """Return the distinct values of a field as the file has them, by first appearance, and (M,) which each is.

        A value that is missing is empty.
        """
        interner = CompiledInterner()
        lengths = np.maximum(self.column(column + 1), 0).astype(np.int32)
        codes = interner.codes(self.data, np.maximum(self.column(column), 0), lengths)
        strings = interner.strings()
        return [strings.raw(code) for code in range(len(strings))], codes

    def content(self, column: int, rows: Int64) -> list[bytes]:
        """Return the values of a field of some events, as the file has them."""
        chosen = self.take(rows)
        starts, lengths = chosen.column(column).tolist(), chosen.column(column + 1).tolist()
        return [
            self.data[start : start + max(length, 0)].tobytes()
            for start, length in zip(starts, lengths, strict=True)
        ]

    def microseconds(self, column: int) -> tuple[Int64 | Float64, Bool]:
        """Return times (M,) as the file has them, 0 where they are missing, and which there are."""
        digits, behind = self.column(column), self.column(column + 1)
        is_present = behind >= 0
        if (behind <= 0).all():
            return np.where(is_present, digits, 0), is_present
        # Both are exact, so the quotient is the number that lies nearest to what is written.
        scale = 10.0 ** np.arange(k.MOST_DIGITS + 1)
        times = np.where(is_present, digits / scale[np.clip(behind, 0, k.MOST_DIGITS)], 0)
        long = np.flatnonzero(behind >= k.LONG)
        if len(long):
            places = zip(digits[long].tolist(), (behind[long] - k.LONG).tolist(), strict=True)
            times[long] = [float(self.data[start : start + length].tobytes()) for start, length in places]
        return times, is_present


def read_rows(data: bytes | memoryview, start: int, end: int) -> EventRows | None:
    """Return the events between two places, those of other phases than `KEPT` left out; None where some are unusual."""
    buffer = np.frombuffer(data, np.uint8, end - start, start)
    if not _is_text(buffer):
        return None
    names, places, table = _build_key_tables()
    state, stack = np.zeros(k.STATES, np.int64), np.empty(k.DEEPEST, np.int64)
    parts = []
    while state[k.DONE] < len(buffer):
        out = np.empty((k.COLUMNS, _ROWS), np.int64)
        walk = load_kernel().walk
        walk(buffer, int(state[k.DONE]), len(buffer), names, places, table, out, stack, state, _ROWS)
        if state[k.DONE] < 0:
            return None
        parts.append(out[:, : state[k.ROWS]])
    return EventRows(buffer, np.concatenate(parts, axis=1)) if parts else None


def _is_text(piece: UInt8) -> bool:
    """Whether bytes are UTF-8."""
    if not (len(piece) and piece.max() >= _BEYOND_ASCII):
        return True
    try:
        piece.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


@cache
def _build_key_tables() -> tuple[UInt8, Int64, Int64]:
    return build_key_tables((k.EVENT_KEYS, k.ARGUMENT_KEYS))


def build_key_tables(groups: Sequence[Sequence[tuple[str, int]]]) -> tuple[UInt8, Int64, Int64]:
    """Return the texts of all keys, where each begins and ends and its column, and the tables they are found by.

    Args:
        groups: The keys of each kind of object, with their columns; a table each.
    """
    pool, table = b"", [-1] * (len(groups) * k.TABLE)
    places: list[int] = []
    for which, keys in enumerate(groups):
        for key, column in keys:
            raw = key.encode()
            slot = k.slot_of(raw[0], raw[-1], len(raw))
            while table[which * k.TABLE + slot] >= 0:
                slot = (slot + 1) % k.TABLE
            table[which * k.TABLE + slot] = len(places) // 3
            places += [len(pool), len(raw), column]
            pool += raw
    return np.frombuffer(pool, np.uint8), np.array(places, np.int64), np.array(table, np.int64)


KERNEL = Kernel(k, __name__, _ENTRIES, prepare_functions(_FUNCTIONS, _ENTRIES))


def load_kernel() -> Any:
    """Return the kernel, compiled. Takes seconds the first time an installation asks, then from a file."""
    return KERNEL.load()


def is_worth_compiling(size_bytes: int) -> bool:
    """Whether a file of this size is read faster compiled, including the wait for the compiler."""
    return KERNEL.loaded is not None or size_bytes > COLD_BYTES or KERNEL.is_cached()
