"""Sizes of tensors as products of factors, so that a size of one tensor can be found again in another after a view.

A size is a tuple of factors, outermost first. A view that makes 4 × 16 of 64 splits the factor 64, in every tensor that has it;
operators that need two sizes to be the same make one factor of two. What divides a factor then divides it everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Size = tuple[int, ...]
"""Factors of a size, outermost first; none for a size of 1."""


class Factors:
    """Factors by number: which are the same, and which were split."""

    def __init__(self) -> None:
        self._size: list[int] = []
        self._same: list[int] = []
        self._parts: dict[int, tuple[int, int]] = {}

    def new(self, size: int) -> Size:
        """Return a size that is related to no other one yet."""
        if size == 1:
            return ()
        self._size.append(size)
        self._same.append(len(self._same))
        return (len(self._size) - 1,)

    def value(self, factor: int) -> int:
        """Return how large a factor is."""
        return self._size[factor]

    def number(self, size: Size) -> int:
        """Return how large a size is."""
        return math.prod(self._size[factor] for factor in size)

    def split(self, size: Size) -> Size:
        """Return a size by factors none of which was split."""
        unsplit: list[int] = []
        for factor in size:
            representative = self._find(factor)
            unsplit += (
                self.split(self._parts[representative])
                if representative in self._parts
                else (representative,)
            )
        return tuple(unsplit)

    def equate(self, first: Size, second: Size) -> bool:
        """Make two sizes the same; return whether they can be, which they cannot where their factors do not fit into each other."""
        left_factors, right_factors = list(self.split(first)), list(self.split(second))
        if self.number(tuple(left_factors)) != self.number(tuple(right_factors)):
            return False
        while left_factors and right_factors:
            inner, other_inner = self._find(left_factors.pop()), self._find(right_factors.pop())
            if inner in self._parts or other_inner in self._parts:
                left_factors += self.split((inner,))
                right_factors += self.split((other_inner,))
                continue
            small, large = sorted((inner, other_inner), key=self.value)
            if self.value(large) % self.value(small):
                return False
            if self.value(large) > self.value(small):
                outer, inner = self._split_factor(large, self.value(small))
                (left_factors if large != other_inner else right_factors).append(outer)
                large = inner
            if small != large:
                self._same[large] = small
        return True

    def regroup(self, sizes: Sequence[Size], numbers: Sequence[int]) -> list[Size] | None:
        """Return the factors of some sizes as sizes of other numbers in the same order; None where they cannot be cut so."""
        if math.prod(map(self.number, sizes)) != math.prod(numbers) or 0 in numbers:
            return None
        left = [factor for size in sizes for factor in self.split(size)]
        regrouped: list[Size] = []
        for wanted in reversed(numbers):
            number = wanted
            taken: list[int] = []
            while number > 1:
                inner = left.pop()
                common = math.gcd(number, self.value(inner))
                if common != min(number, self.value(inner)):
                    return None
                if common < self.value(inner):
                    outer, inner = self._split_factor(inner, common)
                    left.append(outer)
                taken.append(inner)
                number //= common
            regrouped.append(tuple(reversed(taken)))
        return regrouped[::-1]

    def _find(self, factor: int) -> int:
        while self._same[factor] != factor:
            self._same[factor] = self._same[self._same[factor]]
            factor = self._same[factor]
        return factor

    def _split_factor(self, factor: int, inner: int) -> tuple[int, int]:
        """Split a factor in two, the inner one of a given size."""
        (outer_part,), (inner_part,) = self.new(self._size[factor] // inner), self.new(inner)
        self._parts[factor] = (outer_part, inner_part)
        return outer_part, inner_part
