"""Hold whole numbers in the narrowest type that can."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGNED = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))


def narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as the narrowest signed type that holds all of them; anything else as it is.

    Example:
        >>> narrow(np.array([-1, 127])).dtype, narrow(np.array([0, 40_000])).dtype, narrow(np.array([0.5])).dtype
        (dtype('int8'), dtype('int32'), dtype('float64'))
    """
    if array.dtype.kind not in "iu" or not array.size:
        return array
    least, most = int(array.min()), int(array.max())
    for kind in _SIGNED:
        if kind.itemsize < array.itemsize and np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return array.astype(kind)
    return array
