"""FLOP and bytes of FBGEMM's operators on embedding tables and on sparse features, as recommendation models have them.

A look-up is recorded without the width of its rows. Of an optimizer that keeps a number for each row (row-wise Adagrad) the width
is the elements of all tables over those numbers; where tables have different widths, the gradient of the look-up has their sum.
"""

from __future__ import annotations

from studio.operators.tensors import Call, NotRecordedError, Tensor
from studio.operators.work import Work

LOOKUP = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
GRADIENT = "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"
"""The backward pass of a look-up. What it is recorded with is the gradient; it gets the arguments of its look-up (`calls.py`)."""
_WEIGHTS, _COLUMNS, _INDICES, _OFFSETS, _SCALES, _MOMENTS = (1, 2), 6, 11, 12, 14, (20, 21)
"""Places of arguments: tables on the device and in managed memory, and the numbers of their rows likewise; where columns of each
table begin."""
_GRADIENT_BYTES = 4


def compute_row_width(call: Call) -> float:
    """Return how many elements a row of a look-up has: those of its tables over the numbers of their rows.

    Where tables have different widths it is their mean, of the width of all of them together, which the gradient has: look-ups
    are taken to go to all tables alike.

    Raises:
        NotRecordedError: The trace does not tell.
    """
    exact = _compute_exact_width(call)
    if exact:
        return exact
    tables = call.tensor(_COLUMNS).elements - 1
    last = call.tensors[-1]
    if not isinstance(last, Tensor) or len(last.shape) != 2 or tables < 1:
        raise NotRecordedError("the width of rows")
    return last.shape[1] / tables


def _compute_exact_width(call: Call) -> int:
    """Return the width of all tables; 0 where they have different ones or the trace does not tell."""
    elements, rows = (
        sum(call.tensor(place).elements for place in places if call.has_tensor(place))
        for places in (_WEIGHTS, _MOMENTS)
    )
    return elements // rows if rows and elements % rows == 0 else 0


def fits_gradient(call: Call, gradient: Tensor | tuple[Tensor, ...] | None) -> bool:
    """Return whether a gradient can be that of a look-up's results."""
    if not isinstance(gradient, Tensor) or len(gradient.shape) != 2 or not call.has_tensor(_OFFSETS):
        return False
    exact = _compute_exact_width(call)
    if exact:
        return count_bags(call) * exact == gradient.elements
    return count_bags(call) == gradient.shape[0] * max(call.tensor(_COLUMNS).elements - 1, 0)


def count_bags(call: Call) -> int:
    """Return how many results a look-up has: one between two offsets each."""
    return max(call.tensor(_OFFSETS).elements - 1, 0)


def compute_lookup_work(call: Call) -> Work:
    """Return the work of a look-up: a row is read and added for every index, each bag is written."""
    wide, indices, offsets = compute_row_width(call), call.tensor(_INDICES), call.tensor(_OFFSETS)
    read = indices.elements * wide
    moved = read * call.tensor(_WEIGHTS[0]).element_bytes + indices.bytes + offsets.bytes
    return Work(float(read * (1 + _is_weighted(call))), moved + count_bags(call) * wide * _GRADIENT_BYTES)


def compute_lookup_gradient_work(call: Call) -> Work:
    """Return the work of the backward pass with its optimizer: the gradient is read, rows and their numbers are read and written."""
    wide, indices, offsets = compute_row_width(call), call.tensor(_INDICES), call.tensor(_OFFSETS)
    rows = indices.elements * wide * call.tensor(_WEIGHTS[0]).element_bytes
    moved = count_bags(call) * wide * _GRADIENT_BYTES + indices.bytes + offsets.bytes
    moved += 2 * rows + 2 * indices.elements * _GRADIENT_BYTES
    # The gradient of scales reads the rows once more.
    moved += _is_weighted(call) * (rows + indices.elements * _GRADIENT_BYTES)
    return Work(3.0 * indices.elements * wide, moved)


def _is_weighted(call: Call) -> int:
    return int(call.has_tensor(_SCALES) and call.tensor(_SCALES).elements == call.tensor(_INDICES).elements)


def compute_quantize_work(call: Call) -> Work:
    """Return the work of quantizing rows to a byte an element, with 8 bytes more a row."""
    tensor = call.tensor(0)
    rows = tensor.elements // max(tensor.shape[-1], 1)
    return Work(2.0 * tensor.elements, tensor.bytes + tensor.elements + 8 * rows)


def compute_dequantize_work(call: Call) -> Work:
    """Return the work of the way back: 4 bytes for each byte of a row but its last 8."""
    tensor = call.tensor(0)
    rows = tensor.elements // max(tensor.shape[-1], 1)
    elements = tensor.elements - 8 * rows
    return Work(float(elements), tensor.bytes + 4 * elements)


def compute_permute_work(call: Call) -> Work:
    """Return the work of ordering lengths and values of sparse features anew: both are read and written, and scales."""
    parts = [call.tensor(place) for place in (1, 2, 3) if call.has_tensor(place)]
    if not parts:
        raise NotRecordedError("the tensors")
    return Work(0.0, call.tensor(0).bytes + 2 * sum(part.bytes for part in parts if _has_dimensions(part)))


def compute_read_work(call: Call) -> Work:
    """Return the work of reading every tensor."""
    return Work(0.0, sum(tensor.bytes for tensor in call.all_tensors))


def _has_dimensions(tensor: Tensor) -> bool:
    return bool(tensor.shape)
