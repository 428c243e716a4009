"""Read values that recorders write like Python lists, and the tensors in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from studio.trace import NONE

_LONGEST_TEXT = 1 << 22


def parse_literal(text: str) -> Any:
    """Return the value of a text written like a Python list, None where it is none."""
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor as recorders write it: id, storage, offset, elements, bytes, device."""
    return (
        isinstance(value, list | tuple)
        and len(value) == 6
        and isinstance(value[5], str)
        and all(isinstance(part, int) for part in value[:5])
    )


def iterate_tensors(value: Any, depth: int = 0) -> Iterator[Sequence[Any]]:
    """Yield the tensors in a value, lists of lists included."""
    if is_tensor(value):
        yield value
    elif isinstance(value, list | tuple) and depth < 8:
        for part in value:
            yield from iterate_tensors(part, depth + 1)


def sum_tensor_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a value, -1 where there is none, or one without a storage, such as a sparse one.

    Example:
        >>> sum_tensor_bytes([[82, 83, 0, 4, 4, "cpu"], [84, 85, 0, 0, 4, "cpu"]]), sum_tensor_bytes([[82, 0, 0, 0, 0, ""]])
        (16, -1)
    """
    tensors = list(iterate_tensors(value))
    sizes = [max(tensor[3], 0) * max(tensor[4], 0) for tensor in tensors]
    # An empty tensor has a type, whose elements have a size.
    known = bool(tensors) and all(tensor[4] > 0 or tensor[5] for tensor in tensors)
    return min(sum(sizes), 2**62) if known else NONE


def read_count(value: Any) -> int:
    """Return a number or its digits as a count, -1 where it is none."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**62 else NONE
