"""Small graphs for tests, written down as who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from studio.trace import Attributes, Dependencies, Graph, NodeType, Strings, ValueKind


def graph(
    count: int,
    data: Sequence[tuple[int, int]] = (),
    ctrl: Sequence[tuple[int, int]] = (),
    *,
    names: Mapping[int, str] | None = None,
    types: Mapping[int, int] | None = None,
    numbers: Mapping[str, Mapping[int, int]] | None = None,
    ids: Sequence[int] | None = None,
) -> Graph:
    """Return a graph of `count` nodes; in a pair (a, b) of `data` or `ctrl`, b waits for a, which dangles below 0.

    Nodes are called n0, n1, ... and compute unless `names` and `types` say otherwise; `numbers` are integer
    attributes by name and node.
    """
    texts = [(names or {}).get(row, f"n{row}") for row in range(count)]
    keys = list(numbers or {})
    values = [
        (row, count + at, (numbers or {})[key][row])
        for row in range(count)
        for at, key in enumerate(keys)
        if row in (numbers or {})[key]
    ]
    type_of = [(types or {}).get(row, NodeType.COMP) for row in range(count)]
    return Graph(
        id=np.array(range(count) if ids is None else ids, np.uint64),
        type=np.array(type_of, np.int32),
        name=np.arange(count, dtype=np.int32),
        start_ns=np.full(count, -1, np.int64),
        duration_ns=np.zeros(count, np.int64),
        ctrl=dependencies(count, ctrl),
        data=dependencies(count, data),
        io=np.empty((0, 6), np.int32),
        attrs=Attributes(
            offsets=np.searchsorted([row for row, _, _ in values], np.arange(count + 1)).astype(np.int64),
            key=np.array([key for _, key, _ in values], np.int32),
            doc=np.full(len(values), -1, np.int32),
            kind=np.full(len(values), ValueKind.INT64, np.uint8),
            value=np.array([value for _, _, value in values], np.int64),
            length=np.zeros(len(values), np.int32),
            slot=np.zeros(len(values), np.bool_),
            items=np.empty(0, np.int64),
        ),
        slot_key=np.empty(0, np.int32),
        extra_row=np.empty(0, np.int32),
        extra=np.empty(0, np.int32),
        strings=Strings.of([*texts, *keys]),
    )


def dependencies(count: int, pairs: Sequence[tuple[int, int]]) -> Dependencies:
    """Return pairs (a, b), in which b waits for a, as columns; the number of a dangling a does not matter."""
    ordered = sorted(pairs, key=lambda pair: pair[1])
    dangling = iter(range(-1, -1 - len(ordered), -1))
    rows = [before if before >= 0 else next(dangling) for before, _ in ordered]
    lost = sum(row < 0 for row in rows)
    return Dependencies(
        np.searchsorted([after for _, after in ordered], np.arange(count + 1)).astype(np.int64),
        np.array(rows, np.int32),
        np.arange(10**6, 10**6 + lost).astype(np.uint64),
    )
