"""What one call of an operator does, in floating-point operations and bytes of memory."""

from __future__ import annotations

from dataclasses import dataclass

VECTOR = "fp32"
"""The type whose peak bounds what runs on no matrix unit, whatever its elements are: vector units count as fp32."""


@dataclass(frozen=True, slots=True)
class Work:
    """Operations and bytes of one call.

    Attributes:
        flop: Floating-point operations; a multiply-add counts as two.
        bytes: Bytes that are read and written at least: each operand once.
        type: The data type whose peak bounds it.
    """

    flop: float
    bytes: float
    type: str = VECTOR
