"""FLOP and bytes of matrix products, convolutions and attention."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from studio.operators.tensors import Call, NotRecordedError, Tensor
from studio.operators.work import Work


def _choose_matrix_type(tensor: Tensor, call: Call) -> str:
    """Return the type whose peak bounds a product: that of its elements; of fp32 TF32 where a kernel is named so."""
    return "tf32" if tensor.type == "fp32" and call.tf32 else tensor.type


def _broadcast_shapes(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    longest = max(len(left), len(right))
    pairs = zip(
        (1,) * (longest - len(left)) + tuple(left), (1,) * (longest - len(right)) + tuple(right), strict=True
    )
    return tuple(b if a == 1 else a for a, b in pairs)


def build_product_formula(
    first: int = 0, *, transposed: bool = False, out: str = ""
) -> Callable[[Call], Work]:
    """Return the formula of a product of the operands at `first` and after it.

    Args:
        first: Position of the left operand, (…, n, k); the right one, (…, k, m), follows.
        transposed: Whether the right operand is (m, k), as the weight of a linear layer.
        out: Type of the result; empty is that of the left operand.
    """

    def compute_work(call: Call) -> Work:
        left, right = call.tensor(first), call.tensor(first + 1)
        if not left.shape or not right.shape:
            raise NotRecordedError("the shape of an operand")
        k = left.shape[-1]
        if len(right.shape) == 1:
            batch, m = left.shape[:-1], 1
        elif transposed:
            batch, m = left.shape[:-1], right.shape[0]
        else:
            rows = left.shape[-2:-1]
            batch, m = (*_broadcast_shapes(left.shape[:-2], right.shape[:-2]), *rows), right.shape[-1]
        results = math.prod(batch) * m
        written = Tensor((results,), out or left.type)
        return Work(2.0 * results * k, _sum_bytes(call) + written.bytes, _choose_matrix_type(left, call))

    return compute_work


def _sum_bytes(call: Call) -> float:
    return sum(tensor.bytes for tensor in call.all_tensors)


def compute_scaled_product_work(call: Call) -> Work:
    """Return the work of `_scaled_mm`: a product of fp8 matrices with a result of 16 bits."""
    return build_product_formula(out="bf16")(call)


def compute_grouped_product_work(call: Call) -> Work:
    """Return the work of `_grouped_mm`: rows (n, k) that are dealt out to matrices (g, k, m)."""
    left, right = call.tensor(0), call.tensor(1)
    results = left.shape[0] * right.shape[-1]
    return Work(
        2.0 * results * left.shape[-1], _sum_bytes(call) + Tensor((results,), "bf16").bytes, left.type
    )


_TILE = re.compile(r"bmm_[^_]+_([^_]+)_[^_]+_t(\d+)x(\d+)x")
_WEIGHT_BYTES = (
    ("MxE2m1", 0.5 + 1 / 32),
    ("E2m1", 0.5),
    ("MxE4m3", 1 + 1 / 32),
    ("E4m3", 1.0),
    ("Bfloat16", 2.0),
)
"""Bytes of a weight by how the kernel calls its type; those of type Mx share a byte of scale among 32."""


def compute_experts_work(call: Call) -> Work:
    """Return the work of a mixture of experts by TensorRT-LLM's batched kernels, of which the first has both halves of a gate.

    A kernel's name tells its tile of weights × rows, its grid how many of them: along the first dimension those of the
    weights, along the second as many as n rows need at most that lie with e experts, (n + e · (tile - 1)) / tile.
    """
    states, scores = call.tensor(0), call.tensor(1)
    tokens, hidden, count = states.shape[0], states.shape[-1], scores.shape[-1]
    kernels = [(name, grid, tile) for name, grid in call.kernels if (tile := _TILE.match(name)) and grid]
    up = [kernel for kernel in kernels if "swiGlu" in kernel[0]]
    down = [kernel for kernel in kernels if "swiGlu" not in kernel[0]]
    if len(up) != 1 or len(down) != 1:
        raise NotRecordedError("a pair of kernels whose names tell their tiles")
    (_, grid, tile), (_, last_grid, last_tile) = up[0], down[0]
    tile_rows = int(tile[3])
    rows = grid[1] * tile_rows - count * (tile_rows - 1)
    if rows < tokens or rows % tokens:
        raise NotRecordedError("a grid that tells the rows of all experts")
    gated, out = grid[0] * int(tile[2]), last_grid[0] * int(last_tile[2])
    inner = gated // 2
    each = next((size for kind, size in _WEIGHT_BYTES if tile[1].startswith(kind)), None)
    if each is None:
        raise NotRecordedError("the type of the weights")
    weights = min(count, rows) * (gated * hidden + inner * out) * each
    kind = "bf16" if tile[1].startswith("Bfloat16") else "fp8"
    moved = weights + rows * (hidden + 2 * inner) + 2 * rows * out
    return Work(2.0 * rows * (gated * hidden + inner * out), moved, kind)


def compute_routed_experts_work(call: Call) -> Work:
    """Return the work of a mixture of experts that gets states (n, k), weights (e, m, k) and (e, k, m or m/2), and the routing (n, r).

    Each of n tokens goes to r experts. Of the weights those of as many experts count as can be in use.
    """
    states, up, down, routing = (call.tensor(place) for place in range(4))
    if len(up.shape) != 3 or len(down.shape) != 3 or len(routing.shape) != 2:
        raise NotRecordedError("the shapes of the experts' weights")
    rows = states.shape[0] * routing.shape[-1]
    each = math.prod(up.shape[1:]) + math.prod(down.shape[1:])
    used = min(up.shape[0], rows) / max(up.shape[0], 1)
    moved = used * (up.bytes + down.bytes) + 2 * states.bytes + routing.bytes
    return Work(2.0 * rows * each, moved, _choose_matrix_type(up, call))


# ---------------------------------------------------------------------------------------------------
# Convolution


def build_convolution_formula(
    stride: int, padding: int, dilation: int, transposed: int | bool = False
) -> Callable[[Call], Work]:
    """Return the formula of a convolution of input (n, c, …) by weight (m, c/groups, …).

    Args:
        stride: Position of this list.
        padding: Position of this list.
        dilation: Position of this list; -1 where the operator has none.
        transposed: Position of the flag that says so, or whether it always is.
    """

    def compute_work(call: Call) -> Work:
        data, weight = call.tensor(0), call.tensor(1)
        dims = len(weight.shape) - 2
        turned = call.flag(transposed, missing=False) if not isinstance(transposed, bool) else transposed
        if turned:
            taps = data.elements // max(data.shape[1], 1) * weight.elements
            return Work(2.0 * taps, data.bytes + weight.bytes, _choose_matrix_type(data, call))
        places = _compute_places(call, data, weight, (stride, padding, dilation), dims)
        results = Tensor((data.shape[0], weight.shape[0], *places), data.type)
        taps = data.shape[0] * math.prod(places) * weight.elements
        return Work(2.0 * taps, data.bytes + weight.bytes + results.bytes, _choose_matrix_type(data, call))

    return compute_work


def _compute_places(
    call: Call, data: Tensor, weight: Tensor, where: tuple[int, int, int], dims: int
) -> tuple[int, ...]:
    """Return the size of a convolution's result along each dimension of space."""
    kernel, space = weight.shape[2:], data.shape[2:]
    stride = call.numbers(where[0], dims)
    padding = call.values[where[1]] if where[1] < len(call.values) else None
    if padding == "same":
        return tuple(space)
    padded = (0,) * dims if padding == "valid" else call.numbers(where[1], dims)
    dilation = call.numbers(where[2], dims) if where[2] >= 0 else (1,) * dims
    return tuple(
        (size + 2 * pad - spread * (taps - 1) - 1) // step + 1
        for size, pad, spread, taps, step in zip(space, padded, dilation, kernel, stride, strict=True)
    )


def build_convolution_backward_formula(transposed: int | None, mask: int) -> Callable[[Call], Work]:
    """Return the formula of a convolution's gradients: a product each for that of the input and that of the weight.

    Args:
        transposed: Position of the flag that says so; None where there is none.
        mask: Position of the list that says which gradients are wanted; both of them where it was not recorded.
    """

    def compute_work(call: Call) -> Work:
        gradient, data, weight = (call.tensor(place) for place in range(3))
        flags = call.values[mask] if mask < len(call.values) else None
        wanted = flags[:2] if isinstance(flags, list | tuple) and len(flags) >= 2 else (True, True)
        turned = transposed is not None and call.flag(transposed, missing=False)
        over = data if turned else gradient
        taps = over.elements // max(over.shape[1], 1) * weight.elements
        moved = sum(gradient.bytes + data.bytes + weight.bytes for is_wanted in wanted if is_wanted)
        return Work(2.0 * taps * sum(map(bool, wanted)), moved, _choose_matrix_type(data, call))

    return compute_work


# ---------------------------------------------------------------------------------------------------
# Attention


def _count_pairs(queries: int, keys: int, *, causal: bool, from_the_end: bool) -> int:
    """Return how many pairs of query and key are looked at.

    Under a causal mask query i sees keys 0..i, or, counted from the end, those up to i + keys - queries.

    Example:
        >>> _count_pairs(4, 4, causal=False, from_the_end=False), _count_pairs(4, 4, causal=True, from_the_end=False)
        (16, 10)
    """
    if not causal:
        return queries * keys
    shift = keys - queries if from_the_end else 0
    return sum(min(max(row + 1 + shift, 0), keys) for row in range(queries))


def _split_sizes(
    query: Tensor, key: Tensor, value: Tensor, heads_first: bool
) -> tuple[int, int, int, int, int]:
    """Return queries × batch × heads apart: (batch · heads, queries, keys, width, width of values)."""
    if min(len(query.shape), len(key.shape), len(value.shape)) != 4:
        raise NotRecordedError("the lengths of the sequences")
    batch, heads, queries = (
        query.shape[:3] if heads_first else (query.shape[0], query.shape[2], query.shape[1])
    )
    keys = key.shape[2] if heads_first else key.shape[1]
    return batch * heads, queries, keys, query.shape[3], value.shape[3]


def build_attention_formula(
    causal: int,
    *,
    heads_first: bool = True,
    first: int = 0,
    from_the_end: bool = False,
    ragged: int | None = None,
) -> Callable[[Call], Work]:
    """Return the formula of attention: two products for every pair of query and key that is looked at.

    Keys and values may have fewer heads than queries (grouped-query attention): each query head has its own products.

    Args:
        causal: Position of the flag, or of the type of mask (0: none, 1: causal, 2: causal from the end).
        heads_first: Whether tensors are (batch, heads, length, width), otherwise (batch, length, heads, width).
        first: Position of the queries; keys and values follow.
        from_the_end: Where a causal mask ends: at the last key for the last query, instead of at key i for query i.
        ragged: Position of the cumulative lengths of sequences that lie one after another; with them, the lengths
            are in no trace.
    """

    def compute_work(call: Call) -> Work:
        query, key, value = (call.tensor(first + place) for place in range(3))
        if ragged is not None and call.has_tensor(ragged):
            raise NotRecordedError("the lengths of the sequences")
        rows, queries, keys, width, value_width = _split_sizes(query, key, value, heads_first)
        mask = int(call.flag(causal)) if not _is_number(call, causal) else int(call.value(causal))
        pairs = _count_pairs(queries, keys, causal=mask > 0, from_the_end=from_the_end or mask == 2)
        result = Tensor((rows, queries, value_width), query.type)
        moved = query.bytes + key.bytes + value.bytes + result.bytes
        return Work(2.0 * rows * pairs * (width + value_width), moved, _choose_matrix_type(query, call))

    return compute_work


def _is_number(call: Call, place: int) -> bool:
    value = call.values[place] if place < len(call.values) else None
    return isinstance(value, int) and not isinstance(value, bool)


def build_attention_backward_formula(
    causal: int,
    *,
    heads_first: bool = True,
    first: int = 1,
    from_the_end: bool = False,
    ragged: int | None = None,
) -> Callable[[Call], Work]:
    """Return the formula of attention's gradients: five products for every pair that is looked at.

    They are the scores anew, and the gradients of scores, values, queries and keys. Arguments are as for `build_attention_formula`.
    """
    forward = build_attention_formula(
        causal, heads_first=heads_first, first=first, from_the_end=from_the_end, ragged=ragged
    )

    def compute_work(call: Call) -> Work:
        query, key, value = (call.tensor(first + place) for place in range(3))
        width, value_width = query.shape[-1], value.shape[-1]
        done = forward(call)
        # Scores anew, and the gradients of queries and keys are as wide as those; the other two as wide as values.
        flop = done.flop * (3 * width + 2 * value_width) / max(width + value_width, 1)
        result = Tensor((*query.shape[:-1], value_width), query.type)
        moved = 2 * (query.bytes + key.bytes + value.bytes) + 2 * result.bytes
        return Work(flop, moved, done.type)

    return compute_work
