"""Read pickles that hold plain values: numbers, texts, lists, dictionaries. Nothing is imported, called or made of a class.

Python's own unpickler carries out what a file says, so it must not see a file of a stranger. This reader knows the
instructions that build plain values, and refuses every other one with its name and place.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from studio.errors import TraceFormatError

_NAMES = {ord(each.code): each.name for each in pickletools.opcodes}
_LARGEST_KEY = 2**31
_LARGEST_INT_BYTES = 16
_TICK_EVERY = 1 << 16

_VALUES: dict[int, Callable[[], Any]] = {
    ord("N"): lambda: None,
    0x88: lambda: True,
    0x89: lambda: False,
    ord("]"): list,
    ord("}"): dict,
    ord(")"): tuple,
    0x8F: set,
}
"""Instructions without an argument that put a value on the stack."""
_NUMBERS = {
    ord("K"): struct.Struct("<B"),
    ord("M"): struct.Struct("<H"),
    ord("J"): struct.Struct("<i"),
    ord("G"): struct.Struct(">d"),
}
_TEXTS = {
    0x8C: struct.Struct("<B"),
    ord("X"): struct.Struct("<I"),
    0x8D: struct.Struct("<Q"),
    ord("U"): struct.Struct("<B"),
    ord("T"): struct.Struct("<I"),
}
"""Texts, by the form in which their length stands before them."""
_BYTES = {ord("C"): struct.Struct("<B"), ord("B"): struct.Struct("<I"), 0x8E: struct.Struct("<Q")}
_KEPT = {ord("h"): struct.Struct("<B"), ord("j"): struct.Struct("<I")}
_KEEP = {ord("q"): struct.Struct("<B"), ord("r"): struct.Struct("<I")}
_LONG = {0x8A: struct.Struct("<B"), 0x8B: struct.Struct("<I")}
_SKIPPED = {0x80: 1, 0x95: 8}
"""The protocol's number and the length of a frame, which say nothing of the values."""
_NAMING_CODE = b"cioRbPQ\x81\x92\x93\x82\x83\x84"
_SHORT_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}


class CutOffError(Exception):
    """A pickle that ends early.

    Attributes:
        value: What was built until then, None where nothing was.
        offset: Where it ends.
    """

    def __init__(self, value: Any, offset: int) -> None:
        super().__init__(offset)
        self.value, self.offset = value, offset


def load_plain(data: bytes, name: str, tick: Callable[[int], None] = lambda _done: None) -> Any:
    """Return the value that a pickle holds.

    Values that the file shares are shared here too, so the value may be far larger when it is walked than in memory.

    Args:
        data: The pickle, protocol 2 or newer.
        name: The file's name for messages.
        tick: Told the bytes done now and then.

    Raises:
        TraceFormatError: It holds something else than plain values, or is damaged.
        CutOffError: It ends early.

    Example:
        >>> import pickle
        >>> load_plain(pickle.dumps({"a": [1, 2.5, None, "x"]}), "a.pickle")
        {'a': [1, 2.5, None, 'x']}
        >>> load_plain(pickle.dumps(len, protocol=4), "b.pickle")
        Traceback (most recent call last):
            ...
        studio.errors.TraceFormatError: b.pickle: byte 28 is the instruction STACK_GLOBAL, which names code; ...
    """
    reader = _Reader(data, name, tick)
    try:
        return reader.run()
    except (IndexError, struct.error):
        if reader.at < len(data):
            reader.fail("the instruction finds nothing to work on")
    raise CutOffError(reader.unwound(), len(data))


class _Reader:
    """Carries out the instructions of one file."""

    def __init__(self, data: bytes, name: str, tick: Callable[[int], None]) -> None:
        self.data, self.name, self.tick = data, name, tick
        self.at = 0
        self.code_at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.kept: dict[int, Any] = {}

    def refuse(self, why: str) -> NoReturn:
        """Raise the error for an instruction that builds no plain value."""
        code = self.data[self.code_at]
        raise TraceFormatError(
            f"{self.name}: byte {self.code_at:,} is the instruction {_NAMES.get(code, f'0x{code:02x}')}, {why}; "
            "only numbers, texts, lists and dictionaries are read from a pickle.",
            hint="Nothing was carried out. A flight recorder's dump holds plain values only: take the file that "
            "PyTorch wrote.",
        )

    def fail(self, why: str) -> NoReturn:
        """Raise the error for a damaged file."""
        code = self.data[self.code_at]
        raise TraceFormatError(
            f"{self.name}: damaged at byte {self.code_at:,} of {len(self.data):,}, instruction "
            f"{_NAMES.get(code, f'0x{code:02x}')}: {why}.",
            hint="Copy the file again.",
        )

    def run(self) -> Any:
        """Return the value of the file."""
        data, stack, done = self.data, self.stack, 0
        while True:
            done += 1
            if not done % _TICK_EVERY:
                self.tick(self.at)
            self.code_at = self.at
            code = data[self.at]
            self.at += 1
            if code == 0x2E:
                if len(stack) != 1 or self.marks:
                    self.fail("the stack does not hold one value")
                return stack[0]
            if code in _TEXTS:
                stack.append(self.take(self.number(_TEXTS[code])).decode("utf-8", "replace"))
            elif code in _KEEP:
                self.kept[self.number(_KEEP[code])] = self.top()
            elif code in _KEPT:
                stack.append(self.fetch(self.number(_KEPT[code])))
            elif code in _NUMBERS:
                stack.append(self.number(_NUMBERS[code]))
            elif code in _VALUES:
                stack.append(_VALUES[code]())
            else:
                self.other(code)

    def other(self, code: int) -> None:
        """Carry out an instruction that is not a simple value."""
        if code in _LONG:
            self.long(self.number(_LONG[code]))
        elif code in _BYTES:
            self.stack.append(bytes(self.take(self.number(_BYTES[code]))))
        elif code in _SKIPPED:
            self.take(_SKIPPED[code])
        elif code in _SHORT_TUPLES:
            self.short_tuple(_SHORT_TUPLES[code])
        elif code in _STEPS:
            _STEPS[code](self)
        else:
            self.refuse("which names code" if code in _NAMING_CODE else "which is not known here")

    def long(self, length: int) -> None:
        """Put a number of so many bytes on the stack."""
        if length > _LARGEST_INT_BYTES:
            self.fail(f"a number of {length:,} bytes")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def short_tuple(self, count: int) -> None:
        """Make a tuple of the last values."""
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            self.fail("too few values before it")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def keep_next(self) -> None:
        """Keep the value on top under the next number."""
        self.kept[len(self.kept)] = self.top()

    def make_dict(self) -> None:
        """Make a dictionary of the values since the last mark."""
        values = self.pop_marked()
        self.stack.append({})
        self.fill(values)

    def make_set(self) -> None:
        """Make a set of the values since the last mark."""
        values = self.pop_marked()
        self.stack.append(set())
        self.add(values)

    def number(self, form: struct.Struct) -> Any:
        """Return the number at the place reached, and go on behind it."""
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self.at + count
        if end > len(self.data):
            self.at = len(self.data)
            raise IndexError(end)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def top(self) -> Any:
        """Return the last value, which stays."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            self.fail("no value before it")
        return self.stack[-1]

    def pop(self) -> Any:
        """Return the last value and remove it."""
        self.top()
        return self.stack.pop()

    def pop_marked(self) -> list[Any]:
        """Return the values since the last mark and remove them."""
        if not self.marks:
            self.fail("no mark before it")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def fetch(self, place: int) -> Any:
        """Return a value that was kept."""
        if place not in self.kept:
            self.fail(f"value {place:,} was never kept")
        return self.kept[place]

    def extend(self, values: list[Any]) -> None:
        """Add to the list on top."""
        target = self.top()
        if not isinstance(target, list):
            self.fail(f"it adds to a {type(target).__name__}, not to a list")
        target.extend(values)

    def fill(self, values: list[Any]) -> None:
        """Set pairs in the dictionary on top."""
        target = self.top()
        if not isinstance(target, dict):
            self.fail(f"it sets a key in a {type(target).__name__}, not in a dictionary")
        if len(values) % 2:
            self.fail("a key without a value")
        for place in range(0, len(values), 2):
            target[self.key(values[place])] = values[place + 1]

    def add(self, values: list[Any]) -> None:
        """Add to the set on top."""
        target = self.top()
        if not isinstance(target, set):
            self.fail(f"it adds to a {type(target).__name__}, not to a set")
        target.update(map(self.key, values))

    def key(self, value: Any) -> Any:
        """Return a value that can be a key; large numbers could be chosen so that all collide."""
        if not (isinstance(value, str) or (isinstance(value, int) and abs(value) <= _LARGEST_KEY)):
            self.fail("a key that is neither a text nor a small number")
        return value

    def unwound(self) -> Any:
        """Return what was built so far: what waits behind a mark goes into the list or dictionary before it."""
        bounds = [0, *self.marks, len(self.stack)]
        for level in range(len(bounds) - 2, 0, -1):
            values = self.stack[bounds[level] :]
            del self.stack[bounds[level] :]
            holder = self.stack[-1] if self.stack else None
            if isinstance(holder, list):
                holder.extend(values)
            elif isinstance(holder, dict):
                whole = values[: len(values) // 2 * 2]
                holder.update(
                    (key, value)
                    for key, value in zip(whole[::2], whole[1::2], strict=True)
                    if isinstance(key, str)
                )
        return self.stack[0] if self.stack else None


_STEPS: dict[int, Callable[[_Reader], object]] = {
    ord("("): lambda reader: reader.marks.append(len(reader.stack)),
    0x94: _Reader.keep_next,
    ord("a"): lambda reader: reader.extend([reader.pop()]),
    ord("e"): lambda reader: reader.extend(reader.pop_marked()),
    ord("s"): lambda reader: reader.fill([reader.pop(), reader.pop()][::-1]),
    ord("u"): lambda reader: reader.fill(reader.pop_marked()),
    0x90: lambda reader: reader.add(reader.pop_marked()),
    0x91: _Reader.make_set,
    ord("t"): lambda reader: reader.stack.append(tuple(reader.pop_marked())),
    ord("l"): lambda reader: reader.stack.append(reader.pop_marked()),
    ord("d"): _Reader.make_dict,
    ord("0"): _Reader.pop,
    ord("1"): _Reader.pop_marked,
    ord("2"): lambda reader: reader.stack.append(reader.top()),
}
"""What each instruction does that takes its values from the stack."""
