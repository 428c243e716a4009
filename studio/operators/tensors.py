"""Read what recorders write about the inputs of an operator: shapes, types, and values that are no tensors.

Two forms are read. Kineto writes `[[8, 4], []]`, `["c10::BFloat16", "Scalar"]`, `["", "1"]`; PyTorch's execution traces
write `[[8, 4], []]`, `["Tensor(c10::BFloat16)", "Int"]`, and values as they are in Python.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from studio.decoding import build_decoder

_TYPES: dict[str, tuple[str, float]] = {
    "double": ("fp64", 8),
    "float": ("fp32", 4),
    "c10::Half": ("fp16", 2),
    "c10::BFloat16": ("bf16", 2),
    "long": ("int64", 8),
    "long int": ("int64", 8),
    "long long": ("int64", 8),
    "unsigned long": ("int64", 8),
    "int": ("int32", 4),
    "unsigned int": ("int32", 4),
    "short": ("int16", 2),
    "short int": ("int16", 2),
    "unsigned short": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("int8", 1),
    "bool": ("bool", 1),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
    "c10::complex<c10::Half>": ("complex32", 4),
    # Tools that write Kineto's form themselves. Not those that are types of plain values in execution traces: Int, Double, Bool.
    "Float": ("fp32", 4),
    "Half": ("fp16", 2),
    "BFloat16": ("bf16", 2),
}
"""Names of element types as PyTorch writes those of C++: ours, and the bytes of an element."""
_SMALL = (("c10::Float8_", ("fp8", 1)), ("c10::Float4_", ("fp4", 1)))
"""Beginnings of others; an element of `Float4_e2m1fn_x2` is a byte that holds two values."""
_LISTS = ("TensorList", "OptionalTensorList")
_SIZES = dict((*_TYPES.values(), *(small for _, small in _SMALL)))
_LONGEST_TEXT = 1 << 20
_anything = build_decoder(Any)


class NotRecordedError(Exception):
    """Raised where a formula needs an input that the trace lacks; the message names it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape and type of a tensor.

    Attributes:
        shape: Elements along each dimension.
        type: `fp64` … `fp4`, `int64` … `bool`; empty where it is not told.
    """

    shape: tuple[int, ...]
    type: str

    @property
    def elements(self) -> int:
        """Elements in all."""
        return math.prod(self.shape)

    @property
    def element_bytes(self) -> float:
        """Bytes of an element.

        Raises:
            NotRecordedError: The type is not told.
        """
        if self.type not in _SIZES:
            raise NotRecordedError("the type of a tensor")
        return _SIZES[self.type]

    @property
    def bytes(self) -> float:
        """Bytes of all elements."""
        return self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator.

    Attributes:
        name: The operator.
        tensors: By position a tensor, the tensors of a list, or None for what is no tensor.
        values: By position what is no tensor; None where it is one or was not recorded.
        kernel_type: The element type that the names of its kernels tell, for lists whose type no input tells.
        tf32: Whether a kernel is named after TF32.
        kernels: Name of each kernel it launched, and the blocks it was launched with, for formulas that need them.
    """

    name: str
    tensors: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    values: tuple[Any, ...] = ()
    kernel_type: str = ""
    tf32: bool = False
    kernels: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def tensor(self, place: int) -> Tensor:
        """Return the tensor at a position.

        Raises:
            NotRecordedError: There is none.
        """
        tensor = self.tensors[place] if place < len(self.tensors) else None
        if not isinstance(tensor, Tensor):
            raise NotRecordedError(f"the tensor of argument {place + 1}")
        return tensor

    def has_tensor(self, place: int) -> bool:
        """Whether there is a tensor at a position."""
        return place < len(self.tensors) and isinstance(self.tensors[place], Tensor)

    def tensor_list(self, place: int) -> tuple[Tensor, ...]:
        """Return the tensors of the list at a position, of the type that the kernels name where the list does not tell.

        Raises:
            NotRecordedError: There is no list.
        """
        tensors = self.tensors[place] if place < len(self.tensors) else None
        if not isinstance(tensors, tuple):
            raise NotRecordedError(f"the list of tensors of argument {place + 1}")
        if any(not tensor.type for tensor in tensors):
            kind = self._find_recorded_type()
            return tuple(Tensor(tensor.shape, tensor.type or kind) for tensor in tensors)
        return tensors

    @property
    def all_tensors(self) -> list[Tensor]:
        """All tensors, those of lists too."""
        tensors: list[Tensor] = []
        for place, item in enumerate(self.tensors):
            if isinstance(item, Tensor):
                tensors.append(item)
            elif item is not None:
                tensors += self.tensor_list(place)
        return tensors

    def value(self, place: int) -> Any:
        """Return what is no tensor at a position.

        Raises:
            NotRecordedError: It was not recorded.
        """
        value = self.values[place] if place < len(self.values) else None
        if value is None:
            raise NotRecordedError(f"the value of argument {place + 1}")
        return value

    def numbers(self, place: int, count: int) -> tuple[int, ...]:
        """Return a list of whole numbers at a position; one number stands for all.

        Raises:
            NotRecordedError: They were not recorded.
        """
        value = self.value(place)
        listed = list(value) if isinstance(value, list | tuple) else [value]
        if not listed or not all(isinstance(item, int) for item in listed):
            raise NotRecordedError(f"the numbers of argument {place + 1}")
        return tuple(listed * count if len(listed) == 1 else listed)

    def flag(self, place: int, *, missing: bool | None = None) -> bool:
        """Return a truth value at a position.

        Raises:
            NotRecordedError: It was not recorded, and `missing` says nothing for that case.
        """
        value = self.values[place] if place < len(self.values) else None
        if isinstance(value, bool | int):
            return bool(value)
        if missing is None:
            raise NotRecordedError(f"the value of argument {place + 1}")
        return missing

    def _find_recorded_type(self) -> str:
        for tensor in self.tensors:
            if isinstance(tensor, Tensor) and tensor.type and tensor.shape:
                return tensor.type
        return self.kernel_type


_IN_KERNELS = (
    ("bf16", re.compile(r"BFloat16|bfloat16|bf16")),
    ("fp16", re.compile(r"c10::Half|__half|\bhalf\b|_h(?:h|s)?_|fp16|f16")),
    ("fp64", re.compile(r"\bdouble\b")),
    ("fp32", re.compile(r"\bfloat\b|fp32|f32")),
)
_OPAQUE = re.compile(r"OpaqueType<(\d+)")
_BY_BYTES = {8: "int64", 4: "fp32", 2: "bf16", 1: "int8"}


def find_kernel_type(name: str) -> str:
    """Return the element type in a kernel's name; empty where there is none.

    Example:
        >>> find_kernel_type("void multi_tensor_apply_kernel<BinaryOpListAlphaFunctor<c10::BFloat16, 2, 2, 0>, float>")
        'bf16'
    """
    opaque = _OPAQUE.search(name)
    if opaque:
        return _BY_BYTES.get(int(opaque[1]), "")
    return next((kind for kind, pattern in _IN_KERNELS if pattern.search(name)), "")


@lru_cache(maxsize=4096)
def _parse_type(name: str) -> str | None:
    """Return the studio's name of an element type; empty for a tensor of unknown type, None for an input that is no tensor."""
    inner = name[7:-1] if name.startswith("Tensor(") and name.endswith(")") else name
    if inner in _TYPES:
        return _TYPES[inner][0]
    small = next((known[0] for start, known in _SMALL if inner.startswith(start)), None)
    if small is None and inner != name:
        return None if "uninitialized" in inner else ""
    return small


def read_tensors(shapes: str, types: str) -> tuple[Tensor | tuple[Tensor, ...] | None, ...]:
    """Return the tensors among the inputs of an operator, by position.

    Example:
        >>> read_tensors('[[8, 4], []]', '["c10::BFloat16", "Scalar"]')
        (Tensor(shape=(8, 4), type='bf16'), None)
        >>> read_tensors('[[8, 4], []]', '["Float", "Int"]')
        (Tensor(shape=(8, 4), type='fp32'), None)
    """
    listed_shapes, listed_types = _parse_literal(shapes), _parse_literal(types)
    if not isinstance(listed_shapes, list) or not isinstance(listed_types, list):
        return ()
    return tuple(_build_tensor(shape, kind) for shape, kind in zip(listed_shapes, listed_types, strict=False))


def _build_tensor(shape: object, kind: object) -> Tensor | tuple[Tensor, ...] | None:
    if not isinstance(shape, list) or not isinstance(kind, str):
        return None
    if kind in _LISTS or kind.startswith("GenericList[Tensor("):
        inner = kind[len("GenericList[") : -1].split(",") if kind.startswith("Generic") else []
        kinds = [_parse_type(each) for each in inner] if len(inner) == len(shape) else [""] * len(shape)
        return tuple(
            Tensor(tuple(each), of or "")
            for each, of in zip(shape, kinds, strict=True)
            if isinstance(each, list) and _is_shape(each)
        )
    element = _parse_type(kind)
    return None if element is None or not _is_shape(shape) else Tensor(tuple(shape), element)


def _is_shape(items: Sequence[object]) -> bool:
    return all(isinstance(item, int) and item >= 0 for item in items)


def read_values(values: str) -> tuple[Any, ...]:
    """Return the inputs of an operator that are plain values, by position; None for tensors and for unknown inputs.

    Example:
        >>> read_values('["", "[1, 1]", "False"]')
        (None, [1, 1], False)
    """
    listed = _parse_literal(values)
    if not isinstance(listed, list):
        return ()
    return tuple(_parse_value(item) for item in listed)


def _parse_value(item: object) -> Any:
    if not isinstance(item, str):
        return item
    if not item or len(item) > _LONGEST_TEXT:
        return None
    if item in ("True", "False"):
        return item == "True"
    try:
        return ast.literal_eval(item)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return item


def _parse_literal(text: str) -> Any:
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        return _anything(text.encode())
    except msgspec.DecodeError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
