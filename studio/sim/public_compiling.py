"""Compiles the kernel with numba's public interface: with any release, but several times slower than `compiling`.

Numba links into every function all that it calls and optimises the whole, so the innermost functions of the kernel are
compiled again in every one that leads to them. `compiling` spares that by numba's private classes, which a new release
may change; until it is known to work with one, this takes its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import llvmlite.ir as ir
import numba
from numba import types
from numba.extending import intrinsic

from studio.machine_code import Entry, Made, compile_entries

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def compile_kernel(
    module: ModuleType, entry: Entry, functions: Sequence[str], *, inlined: Sequence[str]
) -> list[Made]:
    """Replace the functions of a kernel by compiled ones; see `compiling.compile_kernel` for the arguments."""
    namespace: Any = module
    add_instructions(namespace)
    for name in functions:
        setattr(
            namespace, name, numba.njit(getattr(namespace, name), forceinline=name in inlined, **_OPTIONS)
        )
    for name in functions:
        dispatcher = getattr(namespace, name)
        dispatcher.compile(build_signature(dispatcher.py_func))
        # Numba would compile anew for each kind of integer.
        dispatcher.disable_compile()
    setattr(namespace, entry.name, numba.njit(inline="always", **_OPTIONS)(getattr(namespace, entry.name)))
    return compile_entries(namespace, [entry])


def add_instructions(namespace: Any) -> None:
    """Replace the kernel's stand-ins by what they stand for: an address, and two instructions of the processor."""
    namespace.data_of = intrinsic(_emit_address)
    namespace.lowest = intrinsic(_emit_lowest)
    namespace.prefetch = intrinsic(_emit_prefetch)


def build_signature(function: Any) -> tuple[Any, ...]:
    """Return the types of a kernel function's parameters: `m` and `f` are addresses, all others int64."""
    kinds = {"m": types.CPointer(types.int64), "f": types.CPointer(types.float64)}
    return tuple(kinds.get(name, types.int64) for name in inspect.signature(function).parameters)


def _emit_address(_context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


def _emit_lowest(_context: Any, _mask: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), generate


def _emit_prefetch(_context: Any, pointer: Any, _index: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        address = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        # To be written to, kept in all caches, data.
        builder.call(function, [address, flag(1), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(pointer, types.int64), generate
