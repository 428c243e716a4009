"""FLOP and bytes of operators that work element by element, reduce, look up, or move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from studio.operators.tensors import Call, NotRecordedError, Tensor
from studio.operators.work import VECTOR, Work

_FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8", "fp4")


def _choose_type(tensors: Sequence[Tensor]) -> str:
    return "fp64" if any(tensor.type == "fp64" and tensor.shape for tensor in tensors) else VECTOR


def _require_tensors(call: Call) -> list[Tensor]:
    tensors = call.all_tensors
    if not tensors:
        raise NotRecordedError("the tensors")
    return tensors


def _broadcast_shapes(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the shape of a result to which all tensors are broadcast."""
    longest = max(len(tensor.shape) for tensor in tensors)
    sizes = [1] * longest
    for tensor in tensors:
        for place, size in enumerate(tensor.shape, longest - len(tensor.shape)):
            sizes[place] = size if sizes[place] == 1 else sizes[place]
    return tuple(sizes)


def _choose_result_type(tensors: Sequence[Tensor]) -> str:
    """Return the type of a result: the widest of tensors with dimensions, floating point before whole numbers."""
    wide = [tensor for tensor in tensors if tensor.shape] or list(tensors)
    floats = [tensor for tensor in wide if tensor.type in _FLOATS]
    return max(floats or wide, key=lambda tensor: tensor.element_bytes).type


def build_elementwise_formula(per_element: int = 1, out: str = "") -> Callable[[Call], Work]:
    """Return the formula of an operator with a result for every element of its inputs, broadcast to one shape.

    Args:
        per_element: Operations for each element of the result.
        out: Type of the result; empty is the widest among the inputs.
    """

    def compute_work(call: Call) -> Work:
        tensors = _require_tensors(call)
        result = Tensor(_broadcast_shapes(tensors), out or _choose_result_type(tensors))
        moved = sum(tensor.bytes for tensor in tensors) + result.bytes
        return Work(float(per_element * result.elements), moved, _choose_type(tensors))

    return compute_work


def build_first_tensor_formula(per_element: float, passes: float) -> Callable[[Call], Work]:
    """Return the formula of an operator whose first tensor sets the work.

    Args:
        per_element: Operations for each of its elements.
        passes: How often as many bytes as it has are read or written.
    """

    def compute_work(call: Call) -> Work:
        tensor = _require_tensors(call)[0]
        return Work(per_element * tensor.elements, passes * tensor.bytes, _choose_type([tensor]))

    return compute_work


def build_largest_tensor_formula(per_element: float, passes: float) -> Callable[[Call], Work]:
    """Return the formula of an operator whose largest tensor sets the work; arguments as for `build_first_tensor_formula`."""

    def compute_work(call: Call) -> Work:
        tensor = max(_require_tensors(call), key=lambda candidate: candidate.elements)
        return Work(per_element * tensor.elements, passes * tensor.bytes, _choose_type([tensor]))

    return compute_work


def compute_fill_work(call: Call) -> Work:
    """Return the work of writing the first tensor."""
    return Work(0.0, _require_tensors(call)[0].bytes)


def compute_copy_work(call: Call) -> Work:
    """Return the work of `copy_`: the source is read, the target written."""
    target = call.tensor(0)
    source = call.tensor(1) if call.has_tensor(1) else target
    return Work(0.0, target.bytes + source.bytes)


def compute_join_work(call: Call) -> Work:
    """Return the work of `cat` and `stack`: every tensor is read, and written once."""
    tensors = _require_filled(call.tensor_list(0))
    return Work(0.0, 2 * sum(tensor.bytes for tensor in tensors))


def _require_filled(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    if not tensors:
        raise NotRecordedError("the tensors of a list")
    return tensors


def compute_pad_work(call: Call) -> Work:
    """Return the work of padding at the edges: the tensor is read, the larger one written."""
    tensor = call.tensor(0)
    widths = call.value(1)
    if not isinstance(widths, list | tuple):
        raise NotRecordedError("the widths of the padding")
    shape = list(tensor.shape)
    for place, width in enumerate(widths):
        shape[-1 - place // 2] += int(width)
    return Work(0.0, tensor.bytes + Tensor(tuple(shape), tensor.type).bytes)


def build_reduction_formula(per_element: int = 1) -> Callable[[Call], Work]:
    """Return the formula of an operator that reads all elements of its first tensor for a result that is much smaller.

    The result counts where the dimensions that are reduced were recorded.
    """

    def compute_work(call: Call) -> Work:
        tensor = _require_tensors(call)[0]
        dims = call.values[1] if len(call.values) > 1 else None
        kept = 0.0
        if isinstance(dims, list | tuple | int) and not isinstance(dims, bool):
            places = {
                int(dim) % max(len(tensor.shape), 1) for dim in ([dims] if isinstance(dims, int) else dims)
            }
            left = [size for place, size in enumerate(tensor.shape) if place not in places]
            kept = Tensor(tuple(left) if places else (1,), tensor.type).bytes
        return Work(float(per_element * tensor.elements), tensor.bytes + kept, _choose_type([tensor]))

    return compute_work


def build_lookup_formula(table: int, indices: int) -> Callable[[Call], Work]:
    """Return the formula of reading the rows of a table that indices name: they are read and written."""

    def compute_work(call: Call) -> Work:
        rows, chosen = call.tensor(table), call.tensor(indices)
        width = math.prod(rows.shape[1:])
        result = Tensor((chosen.elements, width), rows.type)
        return Work(0.0, 2 * result.bytes + chosen.bytes)

    return compute_work


def compute_index_work(call: Call) -> Work:
    """Return the work of `tensor[indices]`: the elements that indices choose are read and written."""
    tensor = call.tensor(0)
    chosen, index_bytes = _select_elements(call, tensor)
    return Work(0.0, 2 * chosen.bytes + index_bytes)


def compute_index_put_work(call: Call) -> Work:
    """Return the work of `tensor[indices] = values`: values are read, the elements that indices choose are written."""
    tensor, values = call.tensor(0), call.tensor(2)
    chosen, index_bytes = _select_elements(call, tensor)
    return Work(0.0, values.bytes + chosen.bytes + index_bytes)


_INDEX_TYPES = ("int64", "int32")


def _select_elements(call: Call, tensor: Tensor) -> tuple[Tensor, float]:
    """Return what the indices of the second argument choose of a tensor, and the bytes of the indices.

    Indices are broadcast to one shape and stand for the dimensions that they index; the others are kept whole.

    Raises:
        NotRecordedError: The indices were not recorded, or hold a mask, which does not tell how many elements it chooses.
    """
    listed = call.tensors[1] if len(call.tensors) > 1 else None
    if not isinstance(listed, tuple) or len(listed) > len(tensor.shape):
        raise NotRecordedError("how many elements the indices choose")
    # Of a dimension that no index is for neither shape nor type is recorded.
    indices = [(place, each) for place, each in enumerate(listed) if each.shape or each.type]
    if not indices:
        raise NotRecordedError("how many elements the indices choose")
    for place, each in indices:
        # Of a list without types a mask is told by its shape, which is that of the dimensions it is for.
        is_mask_like = each.shape == tensor.shape[place : place + len(each.shape)]
        if each.type not in _INDEX_TYPES and (each.type or is_mask_like):
            raise NotRecordedError("how many elements the indices choose")
    taken = {place for place, _ in indices}
    kept = [size for place, size in enumerate(tensor.shape) if place not in taken]
    typed = [Tensor(each.shape, each.type or _INDEX_TYPES[0]) for _, each in indices]
    return Tensor((*_broadcast_shapes(typed), *kept), tensor.type), sum(each.bytes for each in typed)


def build_scatter_formula(source: int, indices: int) -> Callable[[Call], Work]:
    """Return the formula of adding the rows of `source` to rows that indices name: read, read, written."""

    def compute_work(call: Call) -> Work:
        rows, chosen = call.tensor(source), call.tensor(indices)
        return Work(float(rows.elements), 3 * rows.bytes + chosen.bytes)

    return compute_work


def compute_embedding_gradient_work(call: Call) -> Work:
    """Return the work of `embedding_dense_backward`: a table of gradients is cleared, rows are added to it."""
    gradient, chosen = call.tensor(0), call.tensor(1)
    table = Tensor((int(call.value(2)), gradient.shape[-1]), gradient.type)
    return Work(float(gradient.elements), 3 * gradient.bytes + chosen.bytes + table.bytes)


def compute_embedding_bag_work(call: Call) -> Work:
    """Return the work of `embedding_bag`: a row is read and added for every index; each bag is written."""
    table, chosen, bags = (call.tensor(place) for place in range(3))
    read = Tensor((chosen.elements, table.shape[-1]), table.type)
    written = Tensor((bags.elements, table.shape[-1]), table.type)
    return Work(float(read.elements), read.bytes + written.bytes + chosen.bytes + bags.bytes)


def compute_gather_work(call: Call) -> Work:
    """Return the work of `gather`: an element is read and written for every index."""
    tensor, chosen = call.tensor(0), call.tensor(2)
    return Work(0.0, chosen.bytes + 2 * Tensor(chosen.shape, tensor.type).bytes)


def build_pooling_formula(kernel: int, stride: int, padding: int) -> Callable[[Call], Work]:
    """Return the formula of pooling: an operation for each element under each place of the window."""

    def compute_work(call: Call) -> Work:
        tensor = call.tensor(0)
        dims = min(2, len(tensor.shape) - 2)
        window = call.numbers(kernel, dims)
        strides = call.values[stride] if stride < len(call.values) else None
        step = call.numbers(stride, dims) if strides else window
        pads = call.numbers(padding, dims)
        places = [
            (size + 2 * pad - width) // jump + 1
            for size, pad, width, jump in zip(tensor.shape[-dims:], pads, window, step, strict=True)
        ]
        result = Tensor((*tensor.shape[:-dims], *places), tensor.type)
        return Work(
            float(result.elements * math.prod(window)), tensor.bytes + result.bytes, _choose_type([tensor])
        )

    return compute_work


def compute_resampling_work(call: Call) -> Work:
    """Return the work of upsampling: the tensor is read, the larger one written."""
    tensor, sizes = call.tensor(0), call.value(1)
    if not isinstance(sizes, list | tuple):
        raise NotRecordedError("the size of the result")
    result = Tensor((*tensor.shape[: -len(sizes)], *map(int, sizes)), tensor.type)
    return Work(0.0, tensor.bytes + result.bytes)


def build_lists_formula(per_element: float) -> Callable[[Call], Work]:
    """Return the formula of a `_foreach_` operator: all lists are read, the first is written."""

    def compute_work(call: Call) -> Work:
        read = _require_filled(call.all_tensors)
        written = _require_filled(call.tensor_list(0))
        count = sum(tensor.elements for tensor in written)
        moved = sum(tensor.bytes for tensor in (*read, *written))
        return Work(per_element * count, moved, _choose_type(written))

    return compute_work


def build_fused_optimizer_formula(per_element: float, written: int) -> Callable[[Call], Work]:
    """Return the formula of a fused optimizer: its lists are read, and all but the gradients (the second) written.

    Args:
        per_element: Operations for each parameter.
        written: Lists that are written.
    """

    def compute_work(call: Call) -> Work:
        parameters = _require_filled(call.tensor_list(0))
        moved = sum(tensor.bytes for tensor in call.all_tensors)
        back = [
            tensor
            for place in (0, 2, 3, 4)[:written]
            if place < len(call.tensors) and isinstance(call.tensors[place], tuple)
            for tensor in call.tensor_list(place)
        ]
        count = sum(tensor.elements for tensor in parameters)
        return Work(
            per_element * count, moved + sum(tensor.bytes for tensor in back), _choose_type(parameters)
        )

    return compute_work


def compute_single_pass_work(call: Call) -> Work:
    """Return the work of a fused kernel whose arguments are all it reads and writes: each passes once."""
    tensors = _require_tensors(call)
    count = max(tensor.elements for tensor in tensors)
    return Work(float(count), sum(tensor.bytes for tensor in tensors), _choose_type(tensors))


def compute_rotary_work(call: Call) -> Work:
    """Return the work of a rotary embedding of positions (n,) on queries and keys, which are changed in place.

    A pair of elements (x, y) becomes (x·cos - y·sin, y·cos + x·sin), six operations.
    """
    positions, turned = call.tensor(0), [call.tensor(1)]
    if call.has_tensor(2):
        turned.append(call.tensor(2))
    moved = positions.bytes + 2 * sum(tensor.bytes for tensor in turned)
    return Work(3.0 * sum(tensor.elements for tensor in turned), moved, _choose_type(turned))


def compute_generated_work(call: Call) -> Work:
    """Return the work of a kernel that Inductor generates: each buffer passes once, or the part of it that it can reach.

    The numbers after the buffers are how many elements the kernel goes through along each of its dimensions. At each of them it
    reads or writes an element of a buffer, so that of a larger buffer, such as one that it slices, it touches no more than that.
    Numbers besides, such as sizes that are not fixed, make the bound wider. Where none was recorded, buffers count whole.
    """
    tensors = _require_tensors(call)
    last = max(place for place, item in enumerate(call.tensors) if item is not None)
    sizes = [value for value in call.values[last + 1 :] if type(value) is int and value > 0]
    most = math.prod(sizes) if sizes else max(tensor.elements for tensor in tensors)
    reached = [min(tensor.elements, most) for tensor in tensors]
    moved = sum(count * tensor.element_bytes for count, tensor in zip(reached, tensors, strict=True))
    return Work(float(max(reached)), moved, _choose_type(tensors))


def compute_no_work(call: Call) -> Work:
    """Return no work: a view, or memory that is set aside."""
    del call
    return Work(0.0, 0.0)
