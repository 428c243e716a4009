"""Runs the event loop: compiled where that pays, interpreted where it does not.

The kernel's source is loaded a second time under another name and that copy is compiled, so the two cannot
differ. Compilation happens once per installation (numba keeps the result beside the kernel); small cases
run interpreted until it is done.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from studio.errors import TraceError
from studio.sim import kernel as k
from studio.sim.plan import Plan, aligned

COMPILED_NAME = "studio.sim._compiled_kernel"
BATCH = 4_000_000
"""Callbacks between two looks at `cancel`: a tenth of a second or less, compiled."""
INTERPRETED_BATCH = 20_000

Progress = Callable[[int, int], None]
"""Told the nodes completed so far and the nodes in all."""
Cancel = Callable[[], bool]
"""Asked now and then whether to stop."""


def execute(
    plan: Plan, *, progress: Progress | None = None, cancel: Cancel | None = None, native: bool = True
) -> None:
    """Run a plan to its end; `plan.m` holds the outcome.

    Raises:
        Cancelled: `cancel` said so.
        TraceError: The simulated time leaves the range of the clock, or a rank sends to itself.
    """
    run: Any = compiled().entry if native else k.entry
    m: Any = plan.m if native else plan.m.tolist()
    f: Any = plan.f if native else plan.f.tolist()
    batch = BATCH if native else INTERPRETED_BATCH
    while True:
        state = run(m, f, batch)
        if state == k.DONE:
            break
        if state == k.FAILED:
            raise _failure(m)
        if state == k.GROW:
            m = _grown(m) if native else m + [0] * len(m)
        if progress is not None:
            progress((int(m[k.LOG]) - plan.log) // 4, plan.instances)
        if cancel is not None and cancel():
            raise Cancelled
    plan.m = m if native else np.array(m, np.int64)


class Cancelled(Exception):  # noqa: N818 (no error: somebody asked for it)
    """The simulation was stopped on request."""


def _grown(m: Any) -> Any:
    room = len(m) + max(len(m) // 2, 2 * int(m[k.MARGIN]) + 4 * int(m[k.CHANNEL_MASK] + 1))
    longer = aligned(room)
    longer[: len(m)] = m
    return longer


def _failure(m: Any) -> TraceError:
    if m[k.ERROR] == k.E_SELF:
        return TraceError(
            f"rank {m[k.ERROR_RANK]} sends a message to itself; allowed: other ranks",
            hint="Correct comm_src and comm_dst in the trace.",
        )
    return TraceError(
        f"the simulated time passes {k.MAX_TICK:,} ns (18 years)",
        hint="Check durations and sizes in the trace, and the bandwidths of the network.",
    )


_lock = threading.Lock()
_loaded: list[ModuleType] = []


def compiled() -> ModuleType:
    """Return the kernel, compiled: seconds the first time an installation asks, then from a cache."""
    with _lock:
        if not _loaded:
            _loaded.append(_compile())
    return _loaded[0]


def _compile() -> ModuleType:
    spec = importlib.util.spec_from_file_location(COMPILED_NAME, k.__file__)
    if spec is None or spec.loader is None:  # the source of a package that runs is there
        raise ImportError(k.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[COMPILED_NAME] = module
    spec.loader.exec_module(module)
    _compile_all(module)
    return module


def _compile_all(module: ModuleType) -> None:
    """Compile the functions of the kernel over bare pointers.

    A pointer is one register and no reference count, and its items need no check for negative indices.
    """
    import numba
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def data_of(_context: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return context.make_array(signature.args[0])(context, builder, args[0]).data

        return types.CPointer(array.dtype)(array), codegen

    options: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if name != "entry":
            setattr(module, name, numba.njit(function, forceinline=name in _INLINED, **options))
    module.data_of = data_of  # type: ignore[attr-defined]
    ints, floats = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")
    signature = ints, floats, types.int64
    module.entry = numba.njit(cache=True, **options)(module.entry)  # type: ignore[attr-defined]
    if not _marker().exists():
        pointers = types.CPointer(types.int64), types.CPointer(types.float64)
        # Numba optimises every function together with all it calls, so the inner ones again and again.
        # Once is enough: when all are linked into the outermost.
        settings: Any = numba.config
        full, settings.OPT = settings.OPT, 0
        try:
            module.run.compile((*pointers, types.int64, types.int64))
        finally:
            settings.OPT = full
    module.entry.compile(signature)
    _marker().parent.mkdir(parents=True, exist_ok=True)
    _marker().touch()


def _marker() -> Path:
    """Return the file that says this installation has compiled this very kernel."""
    import platformdirs

    stamp = f"{sys.version_info[0]}.{sys.version_info[1]}-{Path(k.__file__).stat().st_mtime_ns}"
    return Path(platformdirs.user_cache_dir("chakra-studio", appauthor=False)) / f"engine-{stamp}"


_INLINED = ("alloc", "release")
