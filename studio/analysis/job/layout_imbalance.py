"""How uneven the ranks are along each dimension of the parallel layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.trace import Float64, Int64


@dataclass(frozen=True, slots=True)
class Unevenness:
    """The most loaded place along a dimension of the layout.

    Attributes:
        place: Its number along the dimension.
        ratio: Its mean over the mean of all places; 1 is even.
    """

    place: int
    ratio: float


def find_unevenness(values: Float64, ranks: Sequence[int], size: int, stride: int) -> Unevenness | None:
    """Return the place along a dimension whose ranks have most, None where there is nothing to compare.

    A place along a dimension holds the ranks that differ in the other dimensions only; it counts with their mean.

    Args:
        values: (K,) a figure of each rank, such as its compute time.
        ranks: (K,) their numbers.
        size: Places along the dimension.
        stride: Distance of neighbours along it, in rank numbers.

    Example:
        >>> find_unevenness(np.array([3.0, 1.0, 3.0, 1.0]), [0, 1, 2, 3], size=2, stride=1)
        Unevenness(place=0, ratio=1.5)
    """
    place: Int64 = np.array(ranks, np.int64) // stride % size
    count = np.bincount(place, minlength=size)
    if (count == 0).any() or size == 1:
        return None
    means = np.bincount(place, values, minlength=size) / count
    whole = float(means.mean())
    if whole <= 0:
        return None
    most = int(means.argmax())
    return Unevenness(most, float(means[most]) / whole)
