"""Short names of compiled functions: what a kernel's C++ signature says without types, namespaces and parameters."""

from __future__ import annotations

import re
from functools import lru_cache

_CLOSING = {")": "(", "]": "[", "}": "{"}
_NAMELESS = re.compile(r"\(anonymous(?: namespace| class)?\)::|<unnamed>::|\{anonymous\}::", re.IGNORECASE)
_SUFFIX = re.compile(r"(?: \[clone [^\]]*\]|\.kd)+$")
_LAMBDA = re.compile(r"\b(\w+)(?:<[^<>()]*>)?\([^()]*\)(?: const)?::\{lambda")
_FUNCTOR = re.compile(r"\b(\w*(?:[Ff]unctor|_op|Op)_?\w*|cutlass_\w+)\b")
_WRAPPERS = frozenset(
    {"BinaryFunctor", "BUnaryFunctor", "AUnaryFunctor", "UnaryFunctor", "ReduceOp", "OpType", "OpaqueType"}
)
"""Names around the operation that is meant, and names of types."""
_LAUNCHERS = frozenset({"gpu_kernel_impl", "gpu_kernel_impl_nocast", "operator"})
_GENERAL = frozenset({"kernel", "Kernel", "globalKernel", "device_kernel"})
"""Names that say something only with the namespace they are in."""
_TYPED = re.compile(r"[*&<]|::|\b(?:int|long|float|bool|char|double)\b")
"""What parameters of a signature have, and arguments such as the `(3)` of `aten::mm(3)` have not."""


@lru_cache(maxsize=65_536)
def short_function_name(name: str) -> str:
    """Return a C++ signature without return type, namespaces and parameters, with the operation its template names.

    Names that are no signature come back as they are. Two signatures can have one short name: it is for reading, the
    whole name tells them apart.

    Args:
        name: As recorded, untrusted text.

    Example:
        >>> short_function_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)")
        'vectorized_elementwise_kernel · CUDAFunctor_add'
        >>> short_function_name("Memcpy DtoD (Device -> Device)")
        'Memcpy DtoD (Device -> Device)'
    """
    if "(" not in name:
        return name
    plain = _NAMELESS.sub("", _SUFFIX.sub("", name.strip()))
    spans = _outer_brackets(plain) if plain.endswith(")") else []
    if not spans or ": " in plain:
        return name
    *inner, (begin, end) = spans
    if end < len(plain) or not begin or plain[begin - 1] == " " or not _TYPED.search(plain[begin:]):
        return name
    template = plain[slice(*inner[-1])] if inner and inner[-1][1] == begin else ""
    space, _, base = _without(plain[:begin], inner).split(" ")[-1].rpartition("::")
    if base in _GENERAL and space:
        base = f"{space.rpartition('::')[2]}::{base}"
    if not base.replace("::", "_").isidentifier():
        return name
    operation = _operation(template)
    return f"{base} · {operation}" if operation and operation != base else base


def _outer_brackets(text: str) -> list[tuple[int, int]]:
    """Return begin and end of the brackets that are in no other; none where they do not match."""
    spans: list[tuple[int, int]] = []
    open_at: list[tuple[str, int]] = []
    for place, sign in enumerate(text):
        if sign in "(<[{":
            open_at.append((sign, place))
        elif sign == ">":
            # Within parentheses it may be a comparison.
            if open_at and open_at[-1][0] == "<" and text[place - 1] != "-":
                _close(open_at, spans, place)
        elif sign in _CLOSING:
            while open_at and open_at[-1][0] == "<":
                open_at.pop()
            if not open_at or open_at[-1][0] != _CLOSING[sign]:
                return []
            _close(open_at, spans, place)
    return [] if open_at else spans


def _close(open_at: list[tuple[str, int]], spans: list[tuple[int, int]], place: int) -> None:
    begin = open_at.pop()[1]
    if not open_at:
        spans.append((begin, place + 1))


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    for begin, end in reversed(spans):
        text = text[:begin] + text[end:]
    return text.strip()


def _operation(template: str) -> str:
    """Return the operation that template arguments name: the function around a lambda, or a functor; "" without."""
    around = [word for word in _LAMBDA.findall(template) if word not in _LAUNCHERS]
    functors = [word for word in _FUNCTOR.findall(template) if word not in _WRAPPERS]
    return around[0] if around else functors[-1] if functors else ""
