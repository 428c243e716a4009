"""Keep the machine code that numba makes, and run it in later processes without numba.

Importing numba and loading functions from its own cache takes a second and a half, more than most files and
simulations. What it makes of a kernel here is, in the end, a few functions over addresses and numbers that need nothing of
numba or Python to run. So they are kept as an object file, which llvmlite (the part of numba that knows LLVM) links into
memory in 4 ms, after an import of 35 ms:

1. `Entry` says how a function of a kernel is called. `compile_entries` has numba make a C function of it, which takes
   one address: of an array of 64-bit words. They hold the numbers, and of arrays the address and the lengths.
2. `make` takes the LLVM code of these functions, drops all that serves Python (errors, reference counts: no kernel
   raises or allocates), and makes one object file of it, for the processor at hand. numba has optimised each function with its
   errors; without them LLVM puts small ones into their callers and keeps what they return in registers, if it optimises again.
3. `save` and `load` keep it in a file, with what it was made of and for, and a checksum. A file that is of another source,
   processor or release, that is damaged or cut, is as good as none.
4. `link` puts it into memory and returns its functions.

Only documented interfaces of numba and llvmlite are used. If a release gives code that needs more than itself, `make`
raises `NotAloneError`; then numba's own functions run, in this process.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_FORMAT = b"chakra-studio machine code 1\n"
_CHECKSUM_BYTES = 32
_LIBRARY = {"memcpy", "memmove", "memset"}
"""Functions of the C library that machine code may call: every process has them."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number or truth value, as a parameter."""

    type: str = "int64"


@dataclass(frozen=True, slots=True)
class Items:
    """A contiguous array, as a parameter.

    Attributes:
        type: The type of its items.
        dimensions: Of the array.
        bare: Whether the kernel gets where it begins, and not its lengths. No index is then asked whether it is negative
            and counts from the end.
    """

    type: str
    dimensions: int = 1
    bare: bool = False


Parameter: TypeAlias = "Number | Items | tuple[Parameter, ...]"
"""What a function takes; a tuple of arrays is one parameter."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of a kernel that is called from outside.

    Attributes:
        name: Its name.
        parameters: What it takes.
        answers: Whether it returns a whole number; otherwise nothing.
    """

    name: str
    parameters: tuple[Parameter, ...]
    answers: bool = True

    def bind(self, address: int) -> Callable[..., Any]:
        """Return a function that calls the C function at an address as the function of the kernel is called."""
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
        parameters, answers = self.parameters, self.answers

        def call(*arguments: Any) -> int | None:
            words: list[int] = []
            for parameter, argument in zip(parameters, arguments, strict=True):
                _pack(words, parameter, argument)
            answer: int = run(ctypes.byref((ctypes.c_int64 * len(words))(*words)))
            return answer if answers else None

        return call

    def source(self) -> str:
        """Return the Python source of the C function, for numba to compile."""
        words = iter(range(1 << 20))
        arguments = ", ".join(_format_unpacking(parameter, words) for parameter in self.parameters)
        lines = (f"return call({arguments})",) if self.answers else (f"call({arguments})", "return 0")
        return "\n    ".join((f"def {self.name}(w):", *lines))


def _pack(words: list[int], parameter: Parameter, argument: Any) -> None:
    """Append an argument to the words; what does not fit the parameter would be read as what it is not."""
    if isinstance(parameter, Number):
        words.append(int(argument))
    elif isinstance(parameter, Items):
        fits = argument.dtype == parameter.type and argument.ndim == parameter.dimensions
        if not fits or not argument.flags.c_contiguous:
            raise TypeError(
                f"an array of {argument.dtype}, {argument.ndim} dimensions, in place of {parameter}"
            )
        words.append(argument.__array_interface__["data"][0])
        words.extend(argument.shape)
    else:
        for part, value in zip(parameter, argument, strict=True):
            _pack(words, part, value)


def _format_unpacking(parameter: Parameter, words: Any) -> str:
    """Return the expression that takes a parameter from the words."""
    if isinstance(parameter, Number):
        word = f"w[{next(words)}]"
        return word if parameter.type == "int64" else f"{parameter.type}({word})"
    if isinstance(parameter, Items):
        address = f"{_name_pointer(parameter.type)}(w[{next(words)}])"
        lengths = "".join(f"w[{next(words)}], " for _ in range(parameter.dimensions))
        return address if parameter.bare else f"carray({address}, ({lengths}))"
    return f"({''.join(f'{_format_unpacking(part, words)}, ' for part in parameter)})"


def _name_pointer(kind: str) -> str:
    return f"{kind}_at"


def _collect_item_types(parameters: Iterable[Parameter]) -> set[str]:
    """Return the types of items of all arrays among some parameters."""
    types: set[str] = set()
    for parameter in parameters:
        if isinstance(parameter, Items):
            types.add(parameter.type)
        elif isinstance(parameter, tuple):
            types |= _collect_item_types(parameter)
    return types


# ---------------------------------------------------------------------------------------------------
# Making it, with numba


@dataclass(frozen=True, slots=True)
class Made:
    """A C function that numba has made in this process.

    Attributes:
        name: What the kernel calls it.
        symbol: Its name in `code`.
        code: Its LLVM code, with that of all it calls.
        address: Where its machine code lies.
        keep: Holds the machine code.
    """

    name: str
    symbol: str
    code: str
    address: int
    keep: object


def compile_entries(namespace: Any, entries: Iterable[Entry], **options: Any) -> list[Made]:
    """Compile functions that numba has been told to compile (`numba.njit`) to C functions.

    Args:
        namespace: What has them as attributes.
        entries: Which, and how they are called.
        options: For `numba.cfunc`.
    """
    import numba

    functions: list[Made] = []
    for entry in entries:
        names: dict[str, Any] = {"call": getattr(namespace, entry.name), "__name__": __name__}
        names["carray"] = numba.carray  # type: ignore[attr-defined]
        names |= {_name_pointer(kind): _build_pointer(kind) for kind in _collect_item_types(entry.parameters)}
        names |= {"bool": bool, "uint64": np.uint64}
        exec(entry.source(), names)  # noqa: S102 (made of the constants above)
        words = numba.types.CPointer(numba.types.int64)
        declare = numba.cfunc(numba.types.int64(words), nogil=True, error_model="numpy", **options)
        function: Any = declare(names[entry.name])
        code = function.inspect_llvm()
        functions.append(Made(entry.name, function.native_name, code, function.address, function))
    return functions


def prepare_functions(names: Iterable[str], entries: Sequence[Entry]) -> Callable[[Any], list[Made]]:
    """Return what compiles functions of a module, callees before their callers, and those of them that are entries to C functions."""

    def prepare(module: Any) -> list[Made]:
        import numba

        # Without numba's counting of references: nothing is allocated, and arrays belong to the caller.
        options: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}
        for name in names:
            setattr(module, name, numba.njit(getattr(module, name), **options))
        return compile_entries(module, entries)

    return prepare


def _build_pointer(kind: str) -> Any:
    """Return numba's function that takes an address for one of items of a type."""
    import numba
    from numba.extending import intrinsic

    pointer = numba.types.CPointer(getattr(numba.types, kind))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    def convert_address(_context: Any, _address: Any) -> Any:
        return pointer(numba.types.int64), generate

    return intrinsic(convert_address)


class NotAloneError(Exception):
    """Machine code that needs more than itself and the C library."""


def make(functions: Sequence[Made], *, optimise: bool) -> bytes:
    """Return an object file with some functions, under the names that the kernel has for them.

    Args:
        functions: The functions.
        optimise: Whether LLVM optimises them once more, now together and without what handles errors.

    Raises:
        NotAloneError: They call functions of numba or Python.
    """
    import llvmlite.binding as llvm

    machine = _build_machine()
    whole = llvm.parse_assembly("")
    for function in functions:
        part = llvm.parse_assembly(function.code)
        for value in (*part.functions, *part.global_variables):
            if value.name == function.symbol:
                value.name = function.name
            elif not value.is_declaration:
                value.linkage = "internal"
        whole.triple = part.triple
        whole.data_layout = part.data_layout
        whole.link_in(part)
    # No function of a kernel returns an error. Once nobody else can call them LLVM sees that, and drops what handles errors.
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    if optimise:
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        passes.add_ipsccp_pass()
        passes.add_simplify_cfg_pass()
        passes.add_global_dead_code_eliminate_pass()
    passes.run(whole, builder)
    names = {function.name for function in whole.functions if function.is_declaration}
    names |= {value.name for value in whole.global_variables if value.is_declaration}
    if foreign := sorted(name for name in names - _LIBRARY if not name.startswith("llvm.")):
        raise NotAloneError(", ".join(foreign))
    code: bytes = machine.emit_object(whole)
    return code


# ---------------------------------------------------------------------------------------------------
# Keeping it


def save(path: Path, key: bytes, code: bytes) -> None:
    """Keep an object file in a file that appears whole or not at all.

    Args:
        path: Where.
        key: What it was made of, and for.
        code: The object file.

    Raises:
        OSError: It cannot be written.
    """
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        aside.write_bytes(_FORMAT + _compute_checksum(key, code) + code)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def load(path: Path, key: bytes) -> bytes | None:
    """Return an object file that was kept; None where there is none that is whole and made for this key."""
    content = b""
    with suppress(OSError):
        content = path.read_bytes()
    start = len(_FORMAT) + _CHECKSUM_BYTES
    code = content[start:]
    return code if content[:start] == _FORMAT + _compute_checksum(key, code) else None


def _compute_checksum(key: bytes, code: bytes) -> bytes:
    return hashlib.blake2b(len(key).to_bytes(8, "little") + key + code, digest_size=_CHECKSUM_BYTES).digest()


def describe_host() -> str:
    """Return the processor that machine code is made for, and the release of LLVM that makes and links it."""
    import llvmlite
    import llvmlite.binding as llvm

    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    return f"llvmlite {llvmlite.__version__} {llvm.get_process_triple()} {processor}"


@cache
def find_release(package: str) -> str:
    """Return the release of an installed package.

    The name of the folder beside it says so. `importlib.metadata` takes 20 ms to import, and is asked where that folder is
    not found.

    Example:
        >>> find_release("numba")[:2]
        '0.'
    """
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:
        start, end = f"{package}-", ".dist-info"
        beside = os.listdir(Path(spec.origin).parent.parent)  # noqa: PTH208 (names alone)
        folders = [name for name in beside if name.startswith(start) and name.endswith(end)]
        if len(folders) == 1:
            return folders[0].removeprefix(start).removesuffix(end)
    from importlib.metadata import version

    return version(package)


# ---------------------------------------------------------------------------------------------------
# Running it


_LINKED: list[llvm.ExecutionEngine] = []
"""Holds the memory of what was linked, until the process ends."""


def link(code: bytes, names: Iterable[str]) -> dict[str, int]:
    """Put an object file into memory; returns the address of each function."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _build_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _LINKED.append(engine)
    return {name: engine.get_function_address(name) for name in names}


def _build_machine() -> llvm.TargetMachine:
    """Return LLVM's description of this machine, with the settings that numba has for code in memory."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    relocations = {"x86": "static", "ppc": "pic"}.get(target.name[:3], "default")
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc=relocations,
        codemodel="jitdefault",
        jit=True,
    )
