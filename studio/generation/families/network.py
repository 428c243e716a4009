"""A network as a row of parts, and embedding tables that ranks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["matmul", "attention", "other"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a network, such as a convolution or a norm, by what it does with one sample.

    Attributes:
        name: Its name.
        kind: Products of matrices (convolutions among them), attention, or anything else.
        flop: Operations of its forward pass; of a product twice its multiplications.
        inputs, outputs: Elements that it reads and makes, beside its weights.
        parameters: Its weights.
    """

    name: str
    kind: Kind
    flop: int
    inputs: int
    outputs: int
    parameters: int = 0


@dataclass(frozen=True, slots=True)
class Tables:
    """Embedding tables, of whose rows a sample takes some and sums them.

    Attributes:
        rows: Rows of each table.
        rows_per_sample: Rows that a sample takes of each.
        width: Elements of a row.
        joins: The part that takes what they make beside what the part before it makes.
    """

    rows: tuple[int, ...]
    rows_per_sample: tuple[int, ...]
    width: int
    joins: str

    @property
    def parameters(self) -> int:
        """Their weights."""
        return sum(self.rows) * self.width


@dataclass(frozen=True, slots=True)
class Optimizer:
    """What an optimizer keeps and does for a parameter.

    Attributes:
        name: Its name.
        kept: Bytes, a copy of the weight in 4 bytes among them.
        operations: Operations of a step.
    """

    name: str
    kept: int
    operations: int


ADAM, MOMENTUM, ADAGRAD = Optimizer("Adam", 12, 12), Optimizer("momentum", 8, 4), Optimizer("Adagrad", 8, 6)


@dataclass(frozen=True, slots=True)
class Network:
    """A network that is trained data parallel.

    Attributes:
        name: Its name.
        family: `vit`, `resnet` or `dlrm`.
        parts: Its parts, in forward order.
        batch: Samples of a step in the published training.
        source: Where its numbers are from.
        optimizer: What trains it.
        tables: Its embedding tables.
    """

    name: str
    family: str
    parts: tuple[Part, ...]
    batch: int
    source: str
    optimizer: Optimizer = ADAM
    tables: Tables | None = None

    @property
    def parameters(self) -> int:
        """Its weights, those of tables among them."""
        return self.dense + (self.tables.parameters if self.tables else 0)

    @property
    def dense(self) -> int:
        """The weights that every rank holds."""
        return sum(part.parameters for part in self.parts)


def build_linear(name: str, rows: int, shape: tuple[int, int], *, bias: bool = True) -> Part:
    """Return a linear layer.

    Args:
        name: Its name.
        rows: How many vectors of a sample it works on.
        shape: Inputs and outputs.
        bias: Whether it has one.
    """
    inputs, outputs = shape
    weights = inputs * outputs + (outputs if bias else 0)
    return Part(name, "matmul", 2 * rows * inputs * outputs, rows * inputs, rows * outputs, weights)


def build_elementwise(name: str, elements: int, operations: int, parameters: int = 0) -> Part:
    """Return a part that does so many operations with each element."""
    return Part(name, "other", operations * elements, elements, elements, parameters)
