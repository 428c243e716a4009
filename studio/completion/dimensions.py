"""Follow the dimensions of tensors through the operators of a recorded rank: which sizes of which tensors are the same.

A recorder writes the tensors of every operator: their id and storage, shapes, and arguments that are numbers. A rule per operator
says which sizes of its inputs and outputs have to be the same (`dimension_rules.py`); sizes are products of factors (`factors.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.completion.dimension_rules import (
    Call,
    Dimensions,
    Place,
    Tensor,
    TensorKey,
    find_rule,
    relate_equal_shapes,
)
from studio.completion.factors import Size
from studio.et.link.literals import is_tensor, parse_literal
from studio.trace import NONE, Graph, NodeType, read_dense_column

_DEEPEST = 64
"""Calls within calls that are looked through."""


class Inputs:
    """What a recorder wrote of the inputs and outputs of operators: values, shapes and types, each once however often it occurs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._lists: dict[int, list[Any]] = {}
        self._tensors: dict[tuple[int, int, int], tuple[tuple[Place, TensorKey, tuple[int, ...]], ...]] = {}

    def lists(self, row: int, column: int) -> list[Any]:
        """Return a column as lists, not to be changed; an empty one where it is none."""
        code = int(self._graph.io[row, column])
        if code not in self._lists:
            parsed = parse_literal(self._graph.strings[code]) if code >= 0 else None
            self._lists[code] = parsed if isinstance(parsed, list) else []
        return self._lists[code]

    def tensors(self, row: int, column: int) -> tuple[tuple[Place, TensorKey, tuple[int, ...]], ...]:
        """Return place, key and shape of the tensors of a column: 0 for inputs, 3 for outputs."""
        codes = (column, int(self._graph.io[row, column]), int(self._graph.io[row, column + 1]))
        if codes not in self._tensors:
            both = self.lists(row, column), self.lists(row, column + 1)
            self._tensors[codes] = tuple(_iterate_tensors((column,), *both))
        return self._tensors[codes]


def _iterate_tensors(
    place: Place, value: Any, shape: Any
) -> Iterator[tuple[Place, TensorKey, tuple[int, ...]]]:
    """Yield place, key and shape of a tensor or of those in lists."""
    if is_tensor(value):
        if isinstance(shape, list) and all(isinstance(number, int) for number in shape) and 0 not in shape:
            yield place, (value[0], value[1], value[2], tuple(shape)), tuple(shape)
    elif isinstance(value, list) and isinstance(shape, list) and len(value) == len(shape):
        for index, both in enumerate(zip(value, shape, strict=True)):
            yield from _iterate_tensors((*place, index), *both)


def iterate_callers(graph: Graph, row: int) -> Iterator[int]:
    """Yield the rows of what called an operator, the innermost first."""
    for _ in range(_DEEPEST):
        above = graph.ctrl.of(row)
        if not len(above) or above[0] < 0:
            return
        row = int(above[0])
        yield row


def follow_dimensions(graph: Graph, inputs: Inputs) -> Dimensions:
    """Return which sizes of a rank's tensors are the same.

    Args:
        graph: The graph of a rank.
        inputs: The recorded inputs of its operators.
    """
    walk = _Walk(graph, inputs)
    for visit in _order_visits(graph, inputs):
        walk.take(visit)
    return walk.dimensions


@dataclass(frozen=True, slots=True)
class _Visit:
    """An operator on the walk.

    Attributes:
        row: Its row.
        caller: The row of the operator that called it, -1 for none with tensors.
        begin: The place on the walk of the first operator that it calls, its own where it calls none.
        caller_begin: The same of its caller.
    """

    row: int
    caller: int
    begin: int
    caller_begin: int


def _order_visits(graph: Graph, inputs: Inputs) -> list[_Visit]:
    """Return operators of the host with recorded tensors, those that one calls before it.

    Calls of one operator, and operators that no other one calls, come by their starts. Recorded ends do not tell what called what.
    """
    if not len(graph.io):
        return []
    host = (read_dense_column(graph, "is_cpu_op", 1) != 0) | (graph.type == NodeType.COMM_COLL)
    rows = np.flatnonzero(host & ((graph.io[:, 1] >= 0) | (graph.io[:, 4] >= 0)))
    rows = rows[np.argsort(graph.start_ns[rows], kind="stable")]
    wanted = {row for row in rows.tolist() if inputs.tensors(row, 0) or inputs.tensors(row, 3)}
    called: dict[int, list[int]] = {NONE: []}
    caller_of: dict[int, int] = {}
    for row in rows.tolist():
        if row in wanted:
            caller = next(iterate_callers(graph, row), NONE)
            caller_of[row] = caller if caller in wanted else NONE
            called.setdefault(caller_of[row], []).append(row)
    order: list[_Visit] = []
    stack = [(row, NONE, NONE) for row in reversed(called[NONE])]
    while stack:
        row, begin, outer = stack.pop()
        if begin >= 0:
            order.append(_Visit(row, caller_of[row], begin, outer))
        else:
            stack.append((row, len(order), outer))
            stack += [(inner, NONE, len(order)) for inner in reversed(called.get(row, ()))]
    return order


class _Walk:
    """The walk along a rank's operators.

    Ids of tensors and storages are used again, so that a tensor is what was made last with them.
    """

    def __init__(self, graph: Graph, inputs: Inputs) -> None:
        self.dimensions = Dimensions()
        self._graph, self._inputs = graph, inputs
        self._sizes: dict[TensorKey, tuple[Size, ...]] = {}
        self._partial: dict[TensorKey, frozenset[int]] = {}
        self._made_at: dict[TensorKey, int] = {}
        self._place = 0
        self._calls = set(graph.ctrl.rows.tolist())

    def take(self, visit: _Visit) -> None:
        """Relate the sizes of an operator's tensors."""
        graph, dimensions, row = self._graph, self.dimensions, visit.row
        inputs, outputs = self._take_inputs(visit), self._take_outputs(visit)
        dimensions.tensors[row] = [*inputs.values(), *outputs.values()]
        if graph.type[row] == NodeType.COMM_COLL:
            dimensions.partial[row] = self._collect_terms(inputs)
        else:
            rule = find_rule(self._get_name(row))
            if rule or row not in self._calls:
                if rule is None and find_rule(self._get_name(visit.caller)) is None:
                    dimensions.unknown.append(row)
                call = Call(row, self._inputs.lists(row, 0), inputs, outputs, dimensions)
                (rule or relate_equal_shapes)(call)
                self._pass_on(row, inputs, outputs)
        self._place += 1

    def _get_name(self, row: int) -> str:
        return self._graph.strings[int(self._graph.name[row])] if row >= 0 else ""

    def _take_inputs(self, visit: _Visit) -> dict[Place, Tensor]:
        """Return the inputs of an operator with the sizes that they had when they were made."""
        # What an operator did not get it made itself: what had the same id or storage before is gone.
        inside = visit.caller >= 0 and self._get_name(visit.caller).startswith("aten::")
        storages = {key[1] for _, key, _ in self._inputs.tensors(visit.caller, 0)} if inside else set[Any]()
        taken: dict[Place, Tensor] = {}
        for place, key, shape in self._inputs.tensors(visit.row, 0):
            known = self._find_sizes(key, visit.caller_begin if inside and key[1] not in storages else 0)
            sizes = known or self._make(shape)
            self._keep(key, sizes, is_new=known is None)
            taken[place] = Tensor(place, shape, sizes, key)
        return taken

    def _take_outputs(self, visit: _Visit) -> dict[Place, Tensor]:
        """Return the outputs of an operator: inputs that it changed, what operators that it called made, or new ones."""
        given = {key for _, key, _ in self._inputs.tensors(visit.row, 0)}
        taken: dict[Place, Tensor] = {}
        for place, key, shape in self._inputs.tensors(visit.row, 3):
            sizes = self._find_sizes(key, 0 if key in given else visit.begin) or self._make(shape)
            self._keep(key, sizes, is_new=True)
            taken[place] = Tensor(place, shape, sizes, key)
        return taken

    def _find_sizes(self, key: TensorKey, since: int) -> tuple[Size, ...] | None:
        """Return the sizes of a tensor, or of another one of its storage and shape, that was made since a place on the walk."""
        known_key = next((alias for alias in (key, key[1:]) if self._made_at.get(alias, NONE) >= since), None)
        return None if known_key is None else self._sizes[known_key]

    def _make(self, shape: tuple[int, ...]) -> tuple[Size, ...]:
        return tuple(self.dimensions.factors.new(number) for number in shape)

    def _keep(self, key: TensorKey, sizes: tuple[Size, ...], *, is_new: bool) -> None:
        for alias in (key, key[1:]):
            self._sizes[alias] = sizes
            if is_new:
                self._made_at[alias] = self._place

    def _collect_terms(self, tensors: Mapping[Place, Tensor]) -> frozenset[int]:
        """Return the products that some tensors are sums of."""
        return frozenset().union(*(self._partial.get(tensor.key, frozenset()) for tensor in tensors.values()))

    def _pass_on(self, row: int, inputs: Mapping[Place, Tensor], outputs: Mapping[Place, Tensor]) -> None:
        """Note of which products the outputs of an operator are sums."""
        name, own = self._get_name(row), self.dimensions.products
        if own and own[-1].row == row:
            terms = frozenset((row,))
        else:
            terms = (
                self._collect_terms(inputs) if name.removeprefix("aten::") in _LINEAR else frozenset[int]()
            )
        given = {tensor.key for tensor in inputs.values()}
        for tensor in outputs.values():
            if terms or tensor.key not in given or name.startswith("aten::"):
                self._partial[tensor.key] = terms


_LINEAR = frozenset(
    (
        "add", "add_", "sub", "sub_", "clone", "contiguous", "copy_", "detach", "alias", "view", "_unsafe_view", "_reshape_alias",
        "reshape", "squeeze", "unsqueeze", "flatten", "t", "transpose", "permute", "expand", "view_as", "to", "_to_copy", "resolve_conj",
    )
)  # fmt: skip
"""Operators whose output is a sum of the same products as their inputs."""
