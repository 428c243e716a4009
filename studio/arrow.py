"""Hand columns to Arrow and back without copying.

pyarrow's own ways, `pa.array()` and `to_numpy()`, import pandas to ask whether a column is one of its own: that takes
half a second, more than most of what is done with the columns here.
"""

from __future__ import annotations

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
