"""Runs the event loop: compiled where that pays, interpreted where it does not.

The kernel's source is loaded a second time under another name and that copy is compiled, so the two cannot
differ. Compilation happens once per installation (numba keeps the result beside the kernel); small cases
run interpreted until it is done.
"""

from __future__ import annotations

import importlib
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
    if m[k.ERROR] == k.E_ROUTE:
        return TraceError(
            f"rank {m[k.ERROR_RANK]} sends a message to rank {m[k.ERROR_PEER]}, and no way over the links leads there",
            hint="Add the links that are missing, or let those ranks not talk to each other.",
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


def ready() -> tuple[bool, bool]:
    """Return whether the compiled kernel is loaded, and whether this installation has compiled it before."""
    return bool(_loaded), _marker().exists()


def _compile() -> ModuleType:
    spec = importlib.util.spec_from_file_location(COMPILED_NAME, k.__file__)
    if spec is None or spec.loader is None:  # the source of a package that runs is there
        raise ImportError(k.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[COMPILED_NAME] = module
    spec.loader.exec_module(module)
    _compile_all(module)
    return module


def _compile_all(module: Any) -> None:
    """Compile the functions of the kernel over bare pointers.

    A pointer is one register and no reference count, and its items need no check for negative indices.
    """
    numba: Any = importlib.import_module("numba")
    types = numba.types
    intrinsic: Any = importlib.import_module("numba.extending").intrinsic

    def address(_context: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return context.make_array(signature.args[0])(context, builder, args[0]).data

        return types.CPointer(array.dtype)(array), codegen

    options = {"nogil": True, "_nrt": False, "error_model": "numpy"}
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if name != "entry":
            setattr(module, name, numba.njit(function, forceinline=name in _INLINED, **options))
    module.data_of = intrinsic(address)
    ints, floats = types.Array(types.int64, 1, "C"), types.Array(types.float64, 1, "C")
    module.entry = numba.njit(cache=True, **options)(module.entry)
    if not _marker().exists():
        _compile_inner(module)
    module.entry.compile((ints, floats, types.int64))
    _marker().parent.mkdir(parents=True, exist_ok=True)
    _marker().touch()


def _compile_inner(module: Any) -> None:
    """Compile the functions `entry` calls, callees before callers, each for one signature.

    Numba optimises every function together with all it calls, so the inner ones again and again. Once is
    enough: when all are linked into the outermost.
    """
    numba: Any = importlib.import_module("numba")
    types = numba.types

    kinds = {"m": types.CPointer(types.int64), "f": types.CPointer(types.float64)}
    full = numba.config.OPT
    numba.config.OPT = 0
    try:
        for name in _callees_first("run", set()):
            dispatcher = getattr(module, name)
            parameters = inspect.signature(dispatcher.py_func).parameters
            dispatcher.compile(tuple(kinds.get(key, types.int64) for key in parameters))
            dispatcher.disable_compile()
    finally:
        numba.config.OPT = full


def _callees_first(name: str, seen: set[str]) -> list[str]:
    """Return a function of the kernel and all it calls, callees before callers."""
    seen.add(name)
    found = []
    for other in getattr(k, name).__code__.co_names:
        if other not in seen and inspect.isfunction(getattr(k, other, None)):
            found += _callees_first(other, seen)
    return [*found, name]


def _marker() -> Path:
    """Return the file that says this installation has compiled this very kernel."""
    import platformdirs

    stamp = f"{sys.version_info[0]}.{sys.version_info[1]}-{Path(k.__file__).stat().st_mtime_ns}"
    return Path(platformdirs.user_cache_dir("chakra-studio", appauthor=False)) / f"engine-{stamp}"


_INLINED = (
    *(
        "alloc",
        "release",
        "alloc_block",
        "release_block",
        "next_of",
        "append",
        "push",
        "later",
        "forget_list",
    ),
    *(
        "chain_of",
        "take_waiter",
        "settle",
        "post",
        "act",
        "call_back",
        "arrive",
        "fire",
        "ring_received",
        "ring_free",
    ),
)
"""What every message passes; a call costs more than these do."""
