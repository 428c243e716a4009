"""Find the call that each operation of a communication library carries out.

gloo notes an operation down on the thread that carries it out, while the call that asked for it is noted down on the
thread that called. What the recorder writes as caller of such an operation is whatever ran at the time, so it proves
nothing. Two facts do: the record id, which gloo takes within the call, so that it is the next one after that of the
call; and the tensors. Each call is carried out by one operation, and each operation carries out one call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from studio.et.link.literals import iterate_tensors, parse_literal
from studio.et.link.names import infer_operator_kind, simplify_name
from studio.et.link.operations import LIBRARY, Operations
from studio.et.recording import DeviceTrace, HostTrace
from studio.trace import NONE, CollectiveType, Int32, Int64

_AS: dict[int, tuple[int, ...]] = {
    CollectiveType.REDUCE_SCATTER: (CollectiveType.ALL_REDUCE,),
    CollectiveType.REDUCE_SCATTER_BLOCK: (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER),
}
"""What gloo carries out other kinds as."""
BY_MESSAGES = frozenset({"monitoredbarrier"})
"""Calls that gloo carries out by sends and receives on the thread that called, not by an operation of their kind."""
_UNKNOWN, _SAME_SIZES, _SAME_STORAGES = 1, 2, 3
"""How well tensors of an operation fit those of a call; 0 where they do not."""
_DEEPEST = 3
_MOST_UNDER_WAY = 64
"""How many calls without an operation may have been made since the one that is looked for."""


def may_carry(kind: int | None, called: int) -> bool:
    """Whether a library may carry out a call of one kind as another kind, None where that is not known."""
    return kind in (None, called) or kind in _AS.get(called, ())


def find_library_rows(operations: Operations) -> list[int]:
    """Return the operations of a communication library, which carries out calls on the processor."""
    rows: list[int] = operations.find_named(lambda name: name.startswith(LIBRARY)).tolist()
    return rows


def match_calls(
    operations: Operations, kinds: Mapping[int, int], host: HostTrace | None, device: DeviceTrace | None
) -> dict[int, int]:
    """Return the call (value) that each operation of a communication library carries out, where there is one.

    Args:
        operations: What the processor did.
        kinds: The kind of each call, by row.
        host: Tensors and record ids.
        device: Record ids and shapes where there is no execution trace.
    """
    rows = find_library_rows(operations)
    if not rows or not kinds:
        return {}
    matching = _Matching(operations, kinds, _read_record_ids(operations, host, device), host, device)
    by_begin = sorted(rows, key=_index_by_row(np.array(rows), operations.begin).__getitem__)
    for row in sorted(by_begin, key=matching.record.__getitem__):
        matching.take(row, matching.by_record(row))
    left = [row for row in by_begin if row not in matching.call_of]
    for find in (matching.by_caller, matching.by_tensors):
        for row in left:
            if row not in matching.call_of:
                matching.take(row, find(row))
    return matching.call_of


def _read_record_ids(operations: Operations, host: HostTrace | None, device: DeviceTrace | None) -> Int64:
    """Return the record ids (N,), 0 or less where there is none."""
    if host is not None:
        return host.numbers["rf_id"]
    ids = np.zeros(len(operations), np.int64)
    if device is not None:
        has_event = operations.event >= 0
        ids[has_event] = device.record_function[operations.event[has_event]]
    return ids


def _index_by_row(rows: Int64, column: Int64 | Int32) -> dict[int, int]:
    """Return what a column (N,) says of some rows (M,)."""
    return dict(zip(rows.tolist(), column[rows].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Storages and sizes in bytes of an operation's tensors."""

    storages: frozenset[int]
    sizes: Counter[int]


class _Matching:
    """Calls found so far, and those still free."""

    def __init__(
        self,
        operations: Operations,
        kinds: Mapping[int, int],
        record: Int64,
        host: HostTrace | None,
        device: DeviceTrace | None,
    ) -> None:
        self.operations, self.kinds = operations, kinds
        self.host, self.device = host, device
        # Of calls and operations alone, and as numbers of Python: they are asked for one by one, many times.
        rows = np.array([*kinds, *find_library_rows(operations)], np.int64)
        self.record = _index_by_row(rows, record)
        self.event = _index_by_row(rows, operations.event)
        named = [infer_operator_kind(name) for name in operations.names]
        self.kind = {row: named[code] for row, code in _index_by_row(rows, operations.name).items()}
        self.call_of: dict[int, int] = {}
        self.free = {call for call in kinds if simplify_name(operations.name_of(call)) not in BY_MESSAGES}
        self.by_begin = sorted(kinds, key=lambda call: int(operations.begin[call]))
        self.by_id = sorted((call for call in kinds if self.record[call] > 0), key=self.record.__getitem__)
        self.ids = [self.record[call] for call in self.by_id]
        self.has_ids = bool(self.ids)
        self.known: dict[int, _Tensors] = {}
        # By identity: events of every step tell the same lists.
        self.elements: dict[int, Counter[int]] = {}
        self.alike: dict[tuple[int, int], int] = {}

    def take(self, row: int, call: int) -> None:
        """Make an operation that of a call, if one was found."""
        if call != NONE:
            self.call_of[row] = call
            self.free.discard(call)
            if self.record[call] > 0:
                place = bisect_left(self.ids, self.record[call])
                del self.ids[place], self.by_id[place]

    def by_record(self, row: int) -> int:
        """Return the last call that took its record id before the operation's, of those that fit its tensors best."""
        if self.record[row] <= 0:
            return NONE
        best, fit = NONE, 0
        place = bisect_left(self.ids, self.record[row])
        for call in reversed(self.by_id[max(place - _MOST_UNDER_WAY, 0) : place]):
            if self.fits(row, call) and (likeness := self.likeness(row, call)) > fit:
                best, fit = call, likeness
            if fit == _SAME_STORAGES:
                break
        return best

    def by_caller(self, row: int) -> int:
        """Return the free call that the recorder names as caller, if the kinds agree and the tensors do not differ."""
        above = int(self.operations.parent[row])
        while above >= 0 and above not in self.kinds:
            above = int(self.operations.parent[above])
        return above if above >= 0 and self.fits(row, above) and self.likeness(row, above) else NONE

    def by_tensors(self, row: int) -> int:
        """Return the first free call before the operation with the same tensors, else with the same sizes."""
        if self.record[row] > 0 and self.has_ids:
            # Its call would have been found: it was made before the recording began.
            return NONE
        begin = self.operations.begin
        before = [call for call in self.by_begin if begin[call] <= begin[row] and self.fits(row, call)]
        likeness = [self.likeness(row, call) for call in before]
        best = max(likeness, default=0)
        return before[likeness.index(best)] if best else NONE

    def fits(self, row: int, call: int) -> bool:
        """Whether a call is free and of the operation's kind, where that is known."""
        return call in self.free and may_carry(self.kind[row], self.kinds[call])

    def likeness(self, row: int, call: int) -> int:
        """Return how well the tensors of an operation are those of a call: storages, sizes, unknown, or 0 for neither."""
        if self.host is None:
            own, others = self.shapes(row), self.shapes(call)
            both = id(own), id(others)
            if both not in self.alike:
                self.alike[both] = _SAME_SIZES if own.total() and own <= others else _UNKNOWN
            return self.alike[both]
        ours, theirs = self.tensors(row), self.tensors(call)
        if not ours.storages or not theirs.storages:
            return _UNKNOWN
        if ours.storages <= theirs.storages:
            return _SAME_STORAGES
        # A reduce-scatter works on a copy of its input.
        return _SAME_SIZES if sum(ours.sizes.values()) and ours.sizes <= theirs.sizes else 0

    def shapes(self, row: int) -> Counter[int]:
        """Return how many elements the tensors of an operation have, as its event tells them."""
        event = self.event[row]
        arguments = self.device.comm.get(event, {}) if self.device is not None and event >= 0 else {}
        dims = arguments.get("dims")
        if id(dims) not in self.elements:
            self.elements[id(dims)] = Counter(_count_elements(dims))
        return self.elements[id(dims)]

    def tensors(self, row: int) -> _Tensors:
        """Return the tensors of an operation's inputs."""
        if row not in self.known:
            value = (
                parse_literal(self.host.texts[int(self.host.io[row, 0])]) if self.host is not None else None
            )
            inputs = list(iterate_tensors(value))
            self.known[row] = _Tensors(
                frozenset(tensor[1] for tensor in inputs), Counter(tensor[3] * tensor[4] for tensor in inputs)
            )
        return self.known[row]


def _count_elements(dims: Any, depth: int = 0) -> list[int]:
    """Return the number of elements of every tensor in the shapes of an event, lists of tensors included.

    Example:
        >>> _count_elements([[[2, 3], [4]], [5], []])
        [6, 4, 5]
    """
    if not isinstance(dims, list) or not dims or depth > _DEEPEST:
        return []
    if all(isinstance(size, int) for size in dims):
        return [prod(dims)] if depth else []
    return [count for part in dims for count in _count_elements(part, depth + 1)]
