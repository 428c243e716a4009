"""Machine code that is kept: what is no code for this machine and source is none, and arguments are checked."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from studio.commands.base.compiled import KERNELS
from studio.et import wire
from studio.machine_code import (
    Entry,
    Items,
    Made,
    NotAloneError,
    Number,
    find_release,
    link,
    load,
    make,
    save,
)
from studio.native import Kernel

CODE = bytes(range(256)) * 4


def test_kept_code_comes_back_for_its_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.code"
    assert load(path, b"key") is None
    save(path, b"key", CODE)
    assert load(path, b"key") == CODE
    assert load(path, b"other") is None
    assert [file.name for file in tmp_path.iterdir()] == ["a.code"]


def test_damaged_code_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.code"
    save(path, b"key", CODE)
    whole = path.read_bytes()
    damaged = [whole[:size] for size in (0, 1, 40, 60, 61, len(whole) - 1)]
    damaged += [whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :] for at in range(0, len(whole), 37)]
    for content in [*damaged, whole + b"\0"]:
        path.write_bytes(content)
        assert load(path, b"key") is None


def test_code_that_calls_functions_of_others_is_not_kept() -> None:
    """Neither of numba's runtime nor of Python: no later process has the one, and none the GIL for the other."""
    triple = "declare i64 @NRT_Allocate(i64)"
    body = "define i64 @f(ptr %w) { %a = call i64 @NRT_Allocate(i64 8) ret i64 %a }"
    with pytest.raises(NotAloneError, match="NRT_Allocate"):
        make([Made("f", "f", f"{triple}\n{body}", 0, None)], optimise=True)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.source.__name__)
def test_the_code_of_every_kernel_is_kept(kernel: Kernel) -> None:
    """One that needs Python, say to raise, would be compiled anew by every process."""
    kernel.load()
    assert replace(kernel, loaded=None).is_cached()


_FAILING = """
declare i64 @NRT_Allocate(i64)
define linkonce_odr i32 @half(ptr %answer, i64 %n) {
  %odd = or i64 %n, 1
  %last = and i64 %odd, 1
  %fails = icmp eq i64 %last, 0
  br i1 %fails, label %error, label %fine
error:
  ret i32 1
fine:
  %half = lshr i64 %n, 1
  store i64 %half, ptr %answer
  ret i32 0
}
define i64 @f(ptr %w) {
  %answer = alloca i64
  %n = load i64, ptr %w
  %status = call i32 @half(ptr %answer, i64 %n)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %error, label %fine
error:
  %none = call i64 @NRT_Allocate(i64 8)
  ret i64 %none
fine:
  %value = load i64, ptr %answer
  ret i64 %value
}
"""
"""A function that fails where its callee does, which it does not: seen only by who optimises both together."""


def test_what_only_errors_need_is_gone_once_functions_are_optimised_together() -> None:
    made = [Made("f", "f", _FAILING, 0, None)]
    with pytest.raises(NotAloneError, match="NRT_Allocate"):
        make(made, optimise=False)
    entry = Entry("f", (Number(),))
    call = entry.bind(link(make(made, optimise=True), ["f"])["f"])
    assert call(9) == 4


def test_code_that_was_made_otherwise_has_another_name() -> None:
    """So that what an earlier version kept is not taken for it."""
    assert wire.KERNEL.stamp == replace(wire.KERNEL).stamp
    assert wire.KERNEL.stamp != replace(wire.KERNEL, optimise=False).stamp


def test_a_bare_array_is_an_address_whose_length_is_passed_over() -> None:
    """Kernels index it as any other array; what follows it among the parameters keeps its place."""
    entry = Entry("f", (Items("uint8", bare=True), Items("int64", 2), Number()))
    assert entry.source().splitlines()[1].strip() == (
        "return call(uint8_at(w[0]), carray(int64_at(w[2]), (w[3], w[4], )), w[5])"
    )


def test_arrays_of_other_types_are_refused() -> None:
    entry = Entry("f", (Items("int64"), (Items("uint8", 2),), Number()))
    seen: list[list[int]] = []
    words = ctypes.POINTER(ctypes.c_int64)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, words)(lambda given: len(seen.append(given[:6]) or seen))
    call = entry.bind(ctypes.cast(function, ctypes.c_void_p).value or 0)
    flat, square = np.zeros(4, np.int64), np.zeros((2, 2), np.uint8)
    assert call(flat, (square,), 7) == 1
    assert seen == [[flat.ctypes.data, 4, square.ctypes.data, 2, 2, 7]]
    for first, second in ((flat.astype(np.int32), square), (flat[::2], square), (flat, square[:, :1])):
        with pytest.raises(TypeError, match="in place of"):
            call(first, (second,), 1)
    with pytest.raises(ValueError, match="shorter"):
        call(flat, (square,))
    assert len(seen) == 1


def test_the_compiled_interner_grows_with_what_it_holds() -> None:
    """Texts, table and pool outgrow what they begin with, in one call and over many."""
    texts = [f"{index:x}-{'t' * (index % 70)}".encode() for index in range(5_000)]
    wire.load_kernel()
    for at_once in (5_000, 700):
        interner = wire.CompiledInterner()
        for first in range(0, len(texts), at_once):
            part = texts[first : first + at_once] * 2
            lengths = np.array([len(text) for text in part], np.int32)
            starts = np.cumsum(lengths) - lengths
            codes = interner.codes(np.frombuffer(b"".join(part), np.uint8), starts.astype(np.int64), lengths)
            assert codes.tolist() == [1 + first + index for index in range(len(part) // 2)] * 2
        assert list(interner.strings()) == ["", *(text.decode() for text in texts)]


def test_the_release_of_a_package_is_known_without_importing_it() -> None:
    from importlib.metadata import version

    assert find_release("numba") == version("numba")
    assert find_release("click") == version("click")
