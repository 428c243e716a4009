"""Hand columns to Arrow and back without copying.

pyarrow's own ways, `pa.array()` and `to_numpy()`, import pandas to ask whether a column is one of its own: that takes
half a second, more than most of what is done with the columns here. In the studio it breaks answers too: while one thread
imports pandas, plotly finds the half of it that is there and asks it about every value that another thread writes as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

_NUMPY_NAMES = {"float": "float32", "double": "float64"}


def to_arrow(values: NDArray[np.generic]) -> pa.Array:
    """Wrap a column of numbers as an Arrow array."""
    import pyarrow as pa

    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)])


def from_arrow(values: pa.Array) -> NDArray[np.generic]:
    """Wrap an Arrow array of numbers without gaps as a column; truth values are copied."""
    import pyarrow as pa

    if values.type == pa.bool_():
        # Bits there, bytes here.
        return from_arrow(values.cast(pa.uint8())).view(np.bool_)
    kind = np.dtype(_NUMPY_NAMES.get(str(values.type), str(values.type)))
    if not len(values):
        return np.zeros(0, kind)
    return np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)


def convert_optional_numbers(values: Sequence[float | None], *, whole: bool) -> pa.Array:
    """Return numbers with gaps as an Arrow array of int64 or float64."""
    import pyarrow as pa

    kind, plain = (pa.int64(), np.int64) if whole else (pa.float64(), np.float64)
    column = np.array([0 if value is None else value for value in values], plain)
    return pa.Array.from_buffers(kind, len(values), [_build_validity_mask(values), pa.py_buffer(column)])


def convert_optional_texts(values: Sequence[str | None]) -> pa.Array:
    """Return texts with gaps as an Arrow array."""
    import pyarrow as pa

    parts = [(value or "").encode("utf-8", "replace") for value in values]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    buffers = [_build_validity_mask(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def convert_optional_lists(values: Sequence[Sequence[float] | None]) -> pa.Array:
    """Return lists of numbers with gaps as an Arrow array of lists of float64."""
    import pyarrow as pa

    offsets = np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int32)
    inner = to_arrow(np.array([item for value in values for item in value or ()], np.float64))
    buffers = [_build_validity_mask(values), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.list_(pa.float64()), len(values), buffers, children=[inner])


def _build_validity_mask(values: Sequence[object]) -> pa.Buffer | None:
    """Return which values are there, a bit each; None where all are."""
    import pyarrow as pa

    is_present = np.array([value is not None for value in values], np.bool_)
    return None if is_present.all() else pa.py_buffer(np.packbits(is_present, bitorder="little"))
