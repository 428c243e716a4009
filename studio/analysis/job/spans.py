"""The dimensions along which the ranks of a comm group differ."""

from __future__ import annotations

from collections.abc import Sequence


def find_spans(members: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
    """Return (stride, size) of the dimensions along which members differ, the innermost first; None where they fit no mesh.

    Example:
        >>> find_spans([0, 4, 8, 12]), find_spans([2, 3, 10, 11]), find_spans([0, 1, 3])
        (((4, 4),), ((1, 2), (8, 2)), None)
    """
    ranks = sorted(members)
    spans = []
    while len(ranks) > 1:
        stride = ranks[1] - ranks[0]
        size = 1
        while size < len(ranks) and ranks[size] - ranks[0] == size * stride:
            size += 1
        if len(ranks) % size:
            return None
        for start in range(0, len(ranks), size):
            if any(ranks[start + step] - ranks[start] != step * stride for step in range(size)):
                return None
        spans.append((stride, size))
        ranks = ranks[::size]
    return tuple(spans)
