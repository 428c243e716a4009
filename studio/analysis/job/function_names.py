"""Short names of compiled functions: what a kernel's C++ signature says without types, namespaces and parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
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
_WORD = re.compile(r"[A-Z]+[a-z0-9.]*|[a-z0-9.]+|.", re.DOTALL)
_BEFORE = re.compile(r"\w{1,16}\W?$")
_TELLING = 3
"""Letters from which on a part says something without what stands before it."""
_COMPARED, _MOST_PARTS = 2048, 4


@lru_cache(maxsize=65_536)
def shorten_function_name(name: str) -> str:
    """Return a C++ signature without return type, namespaces and parameters, with the operation its template names.

    Names that are no signature come back as they are. Two signatures can have one short name: it is for reading, the
    whole name tells them apart.

    Args:
        name: As recorded, untrusted text.

    Example:
        >>> shorten_function_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)")
        'vectorized_elementwise_kernel · CUDAFunctor_add'
        >>> shorten_function_name("Memcpy DtoD (Device -> Device)")
        'Memcpy DtoD (Device -> Device)'
    """
    if "(" not in name:
        return name
    plain = _NAMELESS.sub("", _SUFFIX.sub("", name.strip()))
    spans = _find_outer_brackets(plain) if plain.endswith(")") else []
    if not spans or ": " in plain:
        return name
    *inner, (begin, end) = spans
    if end < len(plain) or not begin or plain[begin - 1] == " " or not _TYPED.search(plain[begin:]):
        return name
    template = plain[slice(*inner[-1])] if inner and inner[-1][1] == begin else ""
    space, _, base = _remove_spans(plain[:begin], inner).split(" ")[-1].rpartition("::")
    if base in _GENERAL and space:
        base = f"{space.rpartition('::')[2]}::{base}"
    if not base.replace("::", "_").isidentifier():
        return name
    operation = _find_operation(template)
    return f"{base} · {operation}" if operation and operation != base else base


def cut_middle(text: str, width: int) -> str:
    """Cut a text to fewer than `width` letters, and keep its beginning and its end.

    Example:
        >>> cut_middle("gemm_64x64_nt", 10), cut_middle("llama", 10)
        ('gemm_…_nt', 'llama')
    """
    if len(text) < width:
        return text
    tail = (width - 2) * 2 // 5
    return f"{text[: width - 2 - tail]}…{text[len(text) - tail :]}"


def shorten_distinctly(names: Sequence[str], width: int) -> list[str]:
    """Return the short names of compiled functions, of fewer than `width` letters, with the parts that tell equal ones apart.

    Args:
        names: As recorded, untrusted texts.
        width: Letters that there is room for, at least 40.

    Example:
        >>> start, end = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV", "NTn1_VSn1_WSGRB0_WS64_WG32_8_1"
        >>> shorten_distinctly([f"{start}_MT256x128x64_{end}", f"{start}_MT64x64x64_{end}"], 50)
        ['Cijk_Alik_Bljk_BBS_BH…MT256x128x64…_WS64_WG32_8_1', 'Cijk_Alik_Bljk_BBS_BH_B…MT64x64x64…_WS64_WG32_8_1']
        >>> shorten_distinctly(["void k<float, 2>(int)", "void k<int, 2>(int)", "void f<int>(int)"], 40)
        ['k · float', 'k · int', 'f']
    """
    shown = [cut_middle(shorten_function_name(name), width) for name in names]
    alike: dict[str, dict[str, list[int]]] = {}
    for place, name in enumerate(names):
        alike.setdefault(shown[place], {}).setdefault(name, []).append(place)
    for places in alike.values():
        if len(places) > 1:
            for text, same in zip(_tell_apart([*places], width), places.values(), strict=True):
                for place in same:
                    shown[place] = text
    return shown


def _tell_apart(names: list[str], width: int) -> list[str]:
    """Return texts for different names whose short names look the same; numbered where no few parts tell them apart."""
    short = [shorten_function_name(name) for name in names]
    whole = short if len({*short}) == len(short) else names
    parts = [_find_differences(text, whole[0] if place else whole[1]) for place, text in enumerate(whole)]
    show = _insert_part if whole is short else _append_part
    for count in range(1, _MOST_PARTS + 1):
        labels = [cut_middle("…".join(some[:count]), width // 2) for some in parts]
        texts = [show(text, label, width) for text, label in zip(short, labels, strict=True)]
        if len({*texts}) == len(texts):
            return texts
    return [_append_part(text, f"no. {number}", width) for number, text in enumerate(short, 1)]


def _find_differences(text: str, other: str) -> list[str]:
    """Return the parts of a text that another has not, those with letters first, for they say more than numbers."""
    words, others = (_WORD.findall(side[:_COMPARED]) for side in (text, other))
    changes = SequenceMatcher(None, words, others, autojunk=False).get_opcodes()
    numbers: list[str] = []
    telling: list[str] = []
    for kind, begin, end, _, _ in changes:
        part = "".join(words[begin:end]).strip(" ,")
        if kind == "equal" or not part:
            continue
        around = _BEFORE.search("".join(words[:begin])) if len(part) < _TELLING else None
        into = telling if any(map(str.isalpha, part)) else numbers
        into.append(f"{around[0] if around else ''}{part}")
    return [*dict.fromkeys((*telling, *numbers))]


def _insert_part(text: str, part: str, width: int) -> str:
    """Cut a text in the middle, with a part of it between the ends that are left."""
    if not part:
        return cut_middle(text, width)
    ends = cut_middle(text, width - len(part) - 1)
    head, _, tail = ends.partition("…")
    return f"{head}…{part}…{tail}"


def _append_part(text: str, part: str, width: int) -> str:
    """Put what a short name leaves out behind it."""
    return f"{cut_middle(text, width - len(part) - 3)} · {part}" if part else cut_middle(text, width)


def _find_outer_brackets(text: str) -> list[tuple[int, int]]:
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


def _remove_spans(text: str, spans: list[tuple[int, int]]) -> str:
    for begin, end in reversed(spans):
        text = text[:begin] + text[end:]
    return text.strip()


def _find_operation(template: str) -> str:
    """Return the operation that template arguments name: the function around a lambda, or a functor; "" without."""
    around = [word for word in _LAMBDA.findall(template) if word not in _LAUNCHERS]
    functors = [word for word in _FUNCTOR.findall(template) if word not in _WRAPPERS]
    return around[0] if around else functors[-1] if functors else ""
