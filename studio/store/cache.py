"""A least-recently-used cache bounded by bytes."""

from __future__ import annotations

import sys
import threading
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import numpy as np

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_SAMPLED = 4096
"""Of containers with more items, so many are measured and stand for the others."""
_MEASURED_AGAIN = 20_000
"""Entries of at most so many objects are measured again after use: some keep what they work out."""
_NOT_WALKED = (
    str, bytes, int, float, complex, type, types.FunctionType, types.MethodType, types.ModuleType,
    types.BuiltinFunctionType, threading.Thread,
)  # fmt: skip


@dataclass(slots=True)
class Size:
    """The memory of a value.

    Attributes:
        arrays: Bytes of each array, by an id of its memory: views of one array share it.
        other_bytes: Bytes of all other objects, estimated.
        objects: Objects that were looked at.
    """

    arrays: dict[int, int] = field(default_factory=dict)
    other_bytes: int = 0
    objects: int = 0

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.other_bytes + sum(self.arrays.values())


def measure(value: object) -> Size:
    """Estimate the memory of a value and everything it refers to, each object once.

    Example:
        >>> column = np.zeros(1000)
        >>> measure([column, column[10:], {"again": column}]).arrays == {id(column): 8000}
        True
    """
    size, seen = Size(), set[int]()
    _add(value, size, seen)
    return size


def _add(value: object, size: Size, seen: set[int]) -> None:
    left = [value]
    while left:
        item = left.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        size.objects += 1
        if isinstance(item, np.ndarray):
            key, array_bytes = _identify_memory(item)
            size.arrays[key] = max(array_bytes, size.arrays.get(key, 0))
            left += item.ravel().tolist() if item.dtype == object else []
            continue
        size.other_bytes += sys.getsizeof(item, 0)
        parts = _list_parts(item)
        if len(parts) > _SAMPLED:
            step = len(parts) // _SAMPLED
            before = size.bytes
            for part in parts[::step]:
                _add(part, size, seen)
            size.other_bytes += (size.bytes - before) * (step - 1)
        else:
            left += parts


def _identify_memory(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return an id and the size of the buffer behind an array."""
    while isinstance(base := cast("Any", array.base), np.ndarray):
        array = base
    if base is None:
        return id(array), array.nbytes
    # A part of a file that was read: each column is identified by its offset.
    return int(array.__array_interface__["data"][0]), array.nbytes


def _list_parts(item: object) -> list[object]:
    """Return the objects that an object refers to."""
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    if isinstance(item, list | tuple | set | frozenset | deque):
        return list(item)
    if isinstance(item, _NOT_WALKED):
        return []
    return [*getattr(item, "__dict__", {}).values(), *_iterate_slots(item)]


def _iterate_slots(item: object) -> Iterator[object]:
    for kind in type(item).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            # A weak reference holds nothing, and Python 3.11 before 3.11.3 cannot read that slot of a dataclass.
            if name != "__weakref__":
                yield getattr(item, name, None)


@dataclass(slots=True)
class _Entry(Generic[T]):
    value: T
    size: Size
    used_since: bool = False


class Cache(Generic[K]):
    """Values by key; the least recently used are dropped when the budget is exceeded.

    The newest stays whatever it takes, or a page that asks for it many times would wait for it as often. Memory that
    several values share counts once.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._entries: OrderedDict[K, _Entry[Any]] = OrderedDict()
        self._lock = threading.Lock()
        self._making: dict[K, threading.Lock] = {}
        self._other_bytes = 0
        self._array_bytes = 0
        self._sharers: Counter[int] = Counter()
        self._bytes_of: dict[int, int] = {}

    @property
    def used_bytes(self) -> int:
        """Bytes of all values."""
        return self._other_bytes + self._array_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, key: K) -> Any | None:
        """Return the value of a key if cached."""
        with self._lock:
            entry = self._entries.get(key)
            return entry.value if entry else None

    def get(self, key: K, make: Callable[[], T]) -> T:
        """Return the value of a key, computing it once even if several threads ask."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if entry := self._entries.get(key):
                    entry.used_since = True
                    self._entries.move_to_end(key)
                    self._making.pop(key, None)
                    return cast("T", entry.value)
            try:
                value = make()
                self._keep(key, value)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return value

    def forget(self, keys: Callable[[K], bool]) -> None:
        """Drop the values whose keys satisfy a condition."""
        with self._lock:
            for key in [key for key in self._entries if keys(key)]:
                self._drop(key)

    def _keep(self, key: K, value: object) -> None:
        size = measure(value)
        with self._lock:
            grown = [
                (other, entry)
                for other, entry in self._entries.items()
                if entry.used_since and entry.size.objects <= _MEASURED_AGAIN
            ]
        again = [(other, entry, _measure_again(entry)) for other, entry in grown]
        with self._lock:
            for other, entry, now in again:
                if self._entries.get(other) is entry:
                    self._count(entry.size, -1)
                    entry.size, entry.used_since = now, False
                    self._count(now, 1)
            if key in self._entries:
                self._drop(key)
            self._entries[key] = _Entry(value, size)
            self._count(size, 1)
            while self.used_bytes > self.budget_bytes and len(self._entries) > 1:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: K) -> None:
        self._count(self._entries.pop(key).size, -1)

    def _count(self, size: Size, sign: int) -> None:
        self._other_bytes += sign * size.other_bytes
        for memory, array_bytes in size.arrays.items():
            self._sharers[memory] += sign
            if sign > 0 and self._sharers[memory] == 1:
                self._bytes_of[memory] = array_bytes
                self._array_bytes += array_bytes
            elif not self._sharers[memory]:
                del self._sharers[memory]
                self._array_bytes -= self._bytes_of.pop(memory)


def _measure_again(entry: _Entry[Any]) -> Size:
    try:
        return measure(entry.value)
    except RuntimeError:  # another thread adds to it just now
        return entry.size
