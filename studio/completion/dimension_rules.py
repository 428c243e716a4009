"""Rules by which operators relate the sizes of their tensors: which of inputs and outputs have to be the same.

Operators without a rule relate tensors of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from studio.completion.factors import Factors, Size
from studio.trace import NONE

Place = tuple[int, ...]
"""Where a tensor stands: 0 for inputs and 3 for outputs, then its place in these lists."""
TensorKey = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as one operator sees it.

    Attributes:
        place: Where it stands among inputs and outputs.
        shape: Its shape.
        sizes: The same sizes, by factors.
        key: What tells it from other tensors at that time.
    """

    place: Place
    shape: tuple[int, ...]
    sizes: tuple[Size, ...]
    key: TensorKey


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product at a row of a graph.

    Attributes:
        row: Its row.
        shapes: The shapes of the two that are multiplied.
        summed: The size that it sums over.
    """

    row: int
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    summed: Size


@dataclass(slots=True)
class Dimensions:
    """What is known of the sizes of a rank's tensors.

    Attributes:
        factors: The factors of the sizes.
        tensors: Tensors of each row that has any.
        products: Matrix products, in order.
        partial: Rows of the products that the tensor of a collective is the sum of, by the row of the collective.
        summed: Sizes that are summed over, and the rows that do so; a part of such a sum is none yet.
        unknown: Rows that relate their tensors by nothing but equal shapes.
    """

    factors: Factors = field(default_factory=Factors)
    tensors: dict[int, list[Tensor]] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)
    partial: dict[int, frozenset[int]] = field(default_factory=dict)
    summed: list[tuple[Size, int]] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator.

    Attributes:
        row: Its row.
        arguments: Its arguments; tensors as the recorder wrote them.
        inputs: Its tensors by place.
        outputs: Likewise.
        dimensions: What is learnt of dimensions, which each call adds to.
    """

    row: int
    arguments: list[Any]
    inputs: dict[Place, Tensor]
    outputs: dict[Place, Tensor]
    dimensions: Dimensions

    def tensor(self, argument: int) -> Tensor | None:
        """Return the tensor that is an argument."""
        return self.inputs.get((0, argument))

    def number(self, argument: int, default: int) -> int:
        """Return the number that is an argument."""
        value = self.arguments[argument] if argument < len(self.arguments) else default
        return value if isinstance(value, int) else default

    @property
    def output(self) -> Tensor | None:
        """The first tensor that it returns."""
        return next(iter(self.outputs.values()), None)

    def equate(self, left: Size, right: Size) -> None:
        """Make two sizes the same, where they can be."""
        self.dimensions.factors.equate(left, right)

    def equate_all(self, some: Iterable[Size], others: Iterable[Size], but: int = NONE) -> None:
        """Make sizes the same one by one, as long as both go on, but for one dimension where it is named."""
        for dim, (left, right) in enumerate(zip(some, others, strict=False)):
            if dim != but:
                self.equate(left, right)

    def lay_out(self, sizes: Sequence[Size] | None) -> None:
        """Make the sizes of the output those given, where there are as many of the same numbers."""
        if self.output and sizes is not None and len(sizes) == len(self.output.sizes):
            self.equate_all(self.output.sizes, sizes)


_Rule = Callable[[Call], None]


def relate_equal_shapes(call: Call) -> None:
    """Tensors of the same shape have the same sizes; so have the tensors of lists, pair by pair."""
    groups: dict[Any, Tensor] = {}
    for tensor in (*call.inputs.values(), *call.outputs.values()):
        # Of lists of tensors the first ones belong together, and so on.
        first = groups.setdefault((tensor.shape, tensor.place[2:]), tensor)
        call.equate_all(first.sizes, tensor.sizes)


def _relate_broadcast(call: Call) -> None:
    """Sizes are compared from the last one on, and equal ones are the same."""
    relate_equal_shapes(call)
    tensors = [*call.inputs.values(), *call.outputs.values()]
    largest = max(tensors, key=lambda tensor: len(tensor.shape), default=None)
    for tensor in tensors:
        if largest and tensor.place[2:] == largest.place[2:]:
            call.equate_all(reversed(largest.sizes), reversed(tensor.sizes))


def _build_product_rule(first: int) -> _Rule:
    """Return the rule of a product of two matrices, or of as many as a third size says: M × K by K × N."""

    def relate_product(call: Call) -> None:
        left, right = call.tensor(first), call.tensor(first + 1)
        if (
            not left
            or not right
            or len(left.sizes) < 2
            or len(right.sizes) < 2
            or len(left.sizes) != len(right.sizes)
        ):
            return
        call.equate(left.sizes[-1], right.sizes[-2])
        call.equate_all(left.sizes[:-2], right.sizes[:-2])
        product = (*left.sizes[:-1], right.sizes[-1])
        call.lay_out(product)
        bias = call.tensor(0) if first else None
        call.equate_all(reversed(bias.sizes if bias else ()), reversed(product))
        call.dimensions.products.append(Product(call.row, (left.shape, right.shape), left.sizes[-1]))

    return relate_product


def _relate_view(call: Call) -> None:
    """Lay out the output of a reshape: its elements are those of the input, in the same order."""
    source, result = call.tensor(0), call.output
    if source and result:
        call.lay_out(call.dimensions.factors.regroup(source.sizes, result.shape))


def _relate_transpose(call: Call) -> None:
    source = call.tensor(0)
    if source and source.sizes:
        order = list(range(len(source.sizes)))
        a, b = call.number(1, 0), call.number(2, len(order) - 1)
        order[a], order[b] = order[b], order[a]
        call.lay_out([source.sizes[index] for index in order])


def _relate_permutation(call: Call) -> None:
    source = call.tensor(0)
    order = call.arguments[1] if len(call.arguments) > 1 else None
    if source and isinstance(order, list) and len(order) == len(source.sizes):
        call.lay_out([source.sizes[index] for index in order])


def _relate_expansion(call: Call) -> None:
    """Sizes of 1 become larger; the others stay."""
    source, result = call.tensor(0), call.output
    if source and result:
        call.equate_all(reversed(source.sizes), reversed(result.sizes))


def _relate_selection(call: Call) -> None:
    """One dimension goes: one index of it is taken."""
    source = call.tensor(0)
    if source and source.sizes:
        dim = call.number(1, 0) % len(source.sizes)
        call.dimensions.summed.append((source.sizes[dim], call.row))
        call.lay_out([size for index, size in enumerate(source.sizes) if index != dim])


def _relate_slice(call: Call) -> None:
    """A part of one dimension is taken: one of several equal parts where it can be."""
    source, result = call.tensor(0), call.output
    if source and result and source.sizes and len(source.shape) == len(result.shape):
        dim = call.number(1, 0) % len(source.sizes)
        whole, part = source.shape[dim], result.shape[dim]
        call.equate_all(source.sizes, result.sizes, but=dim)
        if whole % part == 0:
            _equate_parts(call, source.sizes[dim], [result.sizes[dim]], whole // part, part)


def _relate_concatenation(call: Call) -> None:
    """Parts are put together along one dimension, which is so many times one of them where they are equal."""
    result = call.output
    parts = [part for part in call.inputs.values() if len(part.place) == 3]
    if not result or not result.sizes or any(len(part.sizes) != len(result.sizes) for part in parts):
        return
    dim = call.number(1, 0) % len(result.sizes)
    for part in parts:
        call.equate_all(part.sizes, result.sizes, but=dim)
    if len({part.shape[dim] for part in parts}) == 1:
        _equate_parts(
            call, result.sizes[dim], [part.sizes[dim] for part in parts], len(parts), parts[0].shape[dim]
        )


def _equate_parts(call: Call, whole: Size, parts: Sequence[Size], count: int, number: int) -> None:
    """Make each of some parts what is left of a whole when it is cut into so many of one number."""
    inner = call.dimensions.factors.regroup([whole], [count, number])
    for part in parts:
        if inner:
            call.equate(part, inner[1])


def _relate_sum(call: Call) -> None:
    """Some dimensions are summed over: all where none are named."""
    source, result = call.tensor(0), call.output
    if not source:
        return
    named = call.arguments[1] if len(call.arguments) > 1 else None
    named = [named] if isinstance(named, int) and not isinstance(named, bool) else named
    dims = (
        [dim % len(source.sizes) for dim in named if isinstance(dim, int)]
        if isinstance(named, list) and source.sizes
        else []
    )
    dims = dims or list(range(len(source.sizes)))
    call.dimensions.summed += [(source.sizes[dim], call.row) for dim in dims]
    kept = [() if index in dims else size for index, size in enumerate(source.sizes)]
    if result and len(result.sizes) != len(kept):
        kept = [size for index, size in enumerate(source.sizes) if index not in dims]
    call.lay_out(kept)


def _relate_normalization(call: Call) -> None:
    """Every element depends on all of one dimension: a softmax; the argument after the last tensor says which."""
    relate_equal_shapes(call)
    source = call.tensor(0)
    last = max((place[1] for place in call.inputs), default=0)
    if source and source.sizes:
        call.dimensions.summed.append((source.sizes[call.number(last + 1, -1) % len(source.sizes)], call.row))


def _relate_layer_norm(call: Call) -> None:
    """Every element depends on all of the last dimension."""
    _relate_broadcast(call)
    source = call.tensor(0)
    if source and source.sizes:
        call.dimensions.summed.append((source.sizes[-1], call.row))


def _relate_lookup(call: Call) -> None:
    """Rows of a table, by numbers of rows: an embedding."""
    table, index = call.tensor(0), call.tensor(1)
    if table and index and table.sizes:
        call.dimensions.summed.append((table.sizes[0], call.row))
        call.lay_out([*index.sizes, *table.sizes[1:]])


def _relate_lookup_along(call: Call) -> None:
    """Entries of one dimension, by their numbers."""
    table, index = call.tensor(0), call.tensor(2)
    if table and index and table.sizes:
        dim = call.number(1, 0) % len(table.sizes)
        call.dimensions.summed.append((table.sizes[dim], call.row))
        call.lay_out([*table.sizes[:dim], *index.sizes, *table.sizes[dim + 1 :]])


def _relate_table_sum(call: Call) -> None:
    """What was looked up is added to the rows of a table: the gradient of an embedding."""
    source, result = call.tensor(0), call.output
    if source and result and source.sizes and len(result.sizes) == 2:
        call.equate(source.sizes[-1], result.sizes[-1])


def _build_attention_rule(heads: int) -> _Rule:
    """Return the rule of attention whose tensors have heads in a given dimension, counted from the end.

    Keys and values may have fewer heads, each of which serves several of the queries (grouped-query attention).
    """

    def relate_attention(call: Call) -> None:
        queries = call.tensor(0)
        rank = len(queries.shape) if queries else 0
        if not queries or rank < 3:
            return
        relate_equal_shapes(call)
        for tensor in (*call.inputs.values(), *call.outputs.values()):
            if len(tensor.shape) == rank and tensor.shape[-1] == queries.shape[-1]:
                _share_heads(call, queries.sizes[heads], tensor.sizes[heads])
            elif tensor.shape == queries.shape[:-1]:
                # Of a sum per row of each head.
                _share_heads(call, queries.sizes[heads], tensor.sizes[heads + 1])
            if rank == 4 and len(tensor.shape) >= 3:
                call.equate(queries.sizes[0], tensor.sizes[0])

    return relate_attention


def _share_heads(call: Call, queries: Size, others: Size) -> None:
    """Make heads the same, or so many of the queries' share one of the others."""
    factors = call.dimensions.factors
    few, many = sorted((queries, others), key=factors.number)
    if factors.number(many) % factors.number(few) == 0:
        outer = factors.number(many) // factors.number(few)
        cut = factors.regroup([many], [factors.number(few), outer])
        if cut:
            call.equate(cut[0], few)


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("mm", "bmm"), _build_product_rule(0)),
    **dict.fromkeys(("addmm", "baddbmm"), _build_product_rule(1)),
    **dict.fromkeys(
        ("view", "_unsafe_view", "_reshape_alias", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten"), _relate_view
    ),
    **dict.fromkeys(("t", "transpose"), _relate_transpose),
    "permute": _relate_permutation,
    "expand": _relate_expansion,
    "select": _relate_selection,
    **dict.fromkeys(("slice", "narrow"), _relate_slice),
    "cat": _relate_concatenation,
    **dict.fromkeys(("sum", "mean"), _relate_sum),
    **dict.fromkeys(("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"), _relate_normalization),
    **dict.fromkeys(("native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm"), _relate_layer_norm),
    "embedding": _relate_lookup,
    "index_select": _relate_lookup_along,
    "embedding_dense_backward": _relate_table_sum,
    **dict.fromkeys(
        (
            "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "copy_", "where", "masked_fill", "masked_fill_", "addcmul",
            "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_", "pow", "maximum", "minimum",
        ),
        _relate_broadcast,
    ),
}  # fmt: skip
"""How operators relate the sizes of their tensors."""
_BY_HEAD, _BY_TOKEN = _build_attention_rule(-3), _build_attention_rule(-2)
"""Attention on heads × tokens × width, and on tokens × heads × width."""


def find_rule(name: str) -> _Rule | None:
    """Return the rule of an operator; those of attention have names that differ by library and device."""
    if name.removeprefix("aten::") in _RULES:
        return _RULES[name.removeprefix("aten::")]
    if "scaled_dot_product" in name:
        return _BY_HEAD
    if "_flash_attention_" in name or "_efficient_attention_" in name or name.startswith("flash_attn"):
        return _BY_TOKEN
    return None
