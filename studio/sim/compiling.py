"""Compile a kernel of many small functions with numba, each once.

Numba compiles every function as if it were to be called from Python: it links all that the function calls into
it, optimises the whole, makes machine code of it and wraps it, so that the innermost functions of a kernel are
compiled again in every one that leads to them. Here only the outermost function is treated so. The others are
translated and checked one by one and kept as parts, without optimisation and without machine code; all are
linked into the outermost, and optimised and made machine code of there, together.

That takes private classes of numba, which any release may change, and nothing else in the project does: `engine` names
the releases it is known to work with. With others `public_compiling` takes its place.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numba
from numba.core import compiler, typed_passes, untyped_passes
from numba.core.callconv import RETCODE_OK, CPUCallConv, excinfo_ptr_t
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.cpu import CPUContext

from studio.machine_code import Entry, Made, compile_entries
from studio.sim.public_compiling import add_instructions, build_signature

_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}


def compile_kernel(
    module: ModuleType, entry: Entry, functions: Sequence[str], *, inlined: Sequence[str]
) -> list[Made]:
    """Compile the functions of a kernel in place; returns the C function of its entry.

    Args:
        module: The kernel. Its `data_of` becomes the address of an array's items, its `lowest` an instruction of
            the processor; parameters `m` and `f` of its functions are such addresses, of int64 and float64, all
            others are int64.
        entry: The outermost function.
        functions: All other functions, callees before callers.
        inlined: Those among them that are put into their callers.
    """
    namespace: Any = module
    for name in functions:
        dispatcher = numba.njit(
            getattr(namespace, name), forceinline=name in inlined, pipeline_class=_PartCompiler, **_OPTIONS
        )
        setattr(namespace, name, dispatcher)
    add_instructions(namespace)
    _make_parts(namespace, functions)
    setattr(namespace, entry.name, numba.njit(inline="always", **_OPTIONS)(getattr(namespace, entry.name)))
    try:
        return compile_entries(namespace, [entry], pipeline_class=_WholeCompiler)
    finally:
        _PARTS.clear()


def _make_parts(namespace: Any, functions: Sequence[str]) -> None:
    """Translate the inner functions, each for its one signature."""
    settings: Any = numba.config
    full = settings.OPT
    # Parts are optimised once, within the outermost function.
    settings.OPT = 0
    try:
        for name in functions:
            dispatcher = getattr(namespace, name)
            signature = build_signature(dispatcher.py_func)
            if signature in dispatcher.overloads:  # made on the way, by one that calls it and is called by it
                continue
            # Its own `compile` wants machine code to call.
            part = dispatcher._compiler.compile(signature, None)  # noqa: SLF001 (numba has no public way)
            dispatcher.overloads[signature] = part
            dispatcher.disable_compile()
    finally:
        settings.OPT = full


_PARTS: list[Any] = []
"""Libraries of the parts of the kernel that is being compiled."""


class _Part(JITCodeLibrary):
    """The LLVM code of one function, not linked and not yet machine code."""

    @property
    def translation(self) -> Any:
        """The function's LLVM module."""
        return self._final_module

    def finalize(self) -> None:
        self._finalized = True

    @property
    def callees(self) -> list[Any]:
        """Libraries of the functions it calls."""
        return self._linking_libraries


class _PlainCalls(CPUCallConv):
    """Calling convention between parts: numba's without error handling, because parts never raise.

    Numba clears, on entry to a function, room for the answer and the error of each call in it, and looks for an
    error after each. Where small functions are put into each other that is a good part of the work.
    """

    def call_function(
        self: Any, builder: Any, callee: Any, resty: Any, argtys: Any, args: Any, attrs: Any = None
    ) -> Any:
        del attrs
        kinds = callee.function_type.args
        with builder.goto_entry_block():
            answer = builder.alloca(kinds[0].pointee)
        values = self._get_arg_packer(argtys).as_arguments(builder, args)
        builder.call(callee, [answer, ir.Constant(kinds[1], None), *values])
        fine = self._get_return_status(builder, RETCODE_OK, ir.Constant(excinfo_ptr_t, None))
        return fine, self.context.get_returned_value(builder, resty, builder.load(answer))


class _PartContext(CPUContext):
    """Numba's target context with `_PlainCalls`."""

    @property
    def call_conv(self) -> Any:
        plain: Any = _PlainCalls
        return plain(self)


@register_pass(mutates_CFG=True, analysis_only=False)
class _TranslatePart(LoweringPass):
    """Translates a function to be linked into others."""

    _name = "translate_part"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        new_part: Any = _Part
        state.targetctx = copy.copy(state.targetctx)
        state.targetctx.__class__ = _PartContext
        state.library = new_part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        typed_passes.NativeLowering().run_pass(state)
        # Callers look a function up by this; it has no machine code of its own.
        key = object()
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        _PARTS.append(state.library)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkParts(LoweringPass):
    """Links all parts into the function about to be compiled."""

    _name = "link_parts"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.library.add_llvm_module(_build_references())
        # Callers first: functions that nobody has requested are skipped.
        for part in reversed(_PARTS):
            state.library.add_linking_library(part)
        for part in _PARTS:
            for library in part.callees:
                state.library.add_linking_library(library)
        return False


def _build_references() -> Any:
    """Return a module with declarations of functions that are called before they are translated.

    Where functions call each other in a circle, numba calls one of them through a pointer that it fills in
    when that one has become machine code. Here all end up in one library, and the pointers are constants.
    """
    prefix = RuntimeLinker.PREFIX
    pointers = {
        variable.name
        for part in _PARTS
        for variable in part.translation.global_variables
        if variable.name.startswith(prefix)
    }
    lines = []
    for pointer in sorted(pointers):
        function = pointer.removeprefix(prefix)
        lines += [f'declare void @"{function}"()', f'@"{pointer}" = weak_odr constant ptr @"{function}"']
    return llvm.parse_assembly("\n".join(lines))


class _PartCompiler(compiler.CompilerBase):
    """Compiler passes for functions with only numbers, branches and loops."""

    def define_pipelines(self) -> list[Any]:
        steps = PassManager("part")
        steps.add_pass(untyped_passes.TranslateByteCode, "analyzing bytecode")
        steps.add_pass(untyped_passes.FixupArgs, "fix up args")
        steps.add_pass(untyped_passes.IRProcessing, "processing IR")
        steps.add_pass(untyped_passes.ReconstructSSA, "ssa")
        steps.add_pass(typed_passes.NopythonTypeInference, "nopython frontend")
        steps.add_pass(typed_passes.PreLowerStripPhis, "remove phis nodes")
        steps.add_pass(typed_passes.AnnotateTypes, "annotate types")
        steps.add_pass(_TranslatePart, "translate part")
        steps.add_pass(typed_passes.NoPythonBackend, "nopython mode backend")
        steps.finalize()
        return [steps]


class _WholeCompiler(compiler.CompilerBase):
    """Numba's passes, with the parts linked in."""

    def define_pipelines(self) -> list[Any]:
        steps = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        steps.add_pass_after(_LinkParts, typed_passes.AnnotateTypes)
        steps.finalize()
        return [steps]
