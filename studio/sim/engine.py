"""Run the event loop, compiled if that is faster than interpreting.

Compilation happens once per installation; small cases run interpreted until it is done, and where loading
the compiled kernel takes longer than the case.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from studio.errors import TraceError
from studio.machine_code import Entry, Items, Made, Number, find_release
from studio.native import Kernel
from studio.sim.arena import allocate_aligned
from studio.sim.kernel import (
    arrivals,
    bus,
    bus_arrivals,
    clock,
    collectives,
    custom,
    endings,
    flows,
    group_turns,
    halving,
    links,
    loop,
    memory,
    messages,
    nodes,
    order,
    packets,
    phases,
    programs,
    queues,
    ring,
    routes,
    trees,
    turns,
)
from studio.sim.kernel import records as k
from studio.sim.plan import Plan

INTERPRETED_STEPS = 20_000
INTERPRETED_COLD_STEPS = 500_000
"""Above these, compiling pays: when the installation has compiled before, and when it has not.

So many interpreted steps take half of what compiling does, which is done once, and 1.7 GiB of numbers as objects.
"""
INTERPRETED_SLOW_STEPS = 100_000_000
"""The same where it has not and compiling is slow, see `compiles_fast`; it compiles in the background meanwhile."""
FAST_RELEASES = ("0.68.",)
"""Releases of numba with which `compiling` is known to work."""
BATCH = 4_000_000
"""Callbacks between two looks at `cancel`: a tenth of a second or less, compiled."""
INTERPRETED_BATCH = 20_000
_RESERVE_WORDS = 1 << 25

Progress = Callable[[int, int], None]
"""Told the nodes completed so far and the nodes in all."""
Cancel = Callable[[], bool]
"""Asked now and then whether to stop."""
Notice = Callable[[str], None]
"""Told what is waited for, before a long wait."""


def execute(
    plan: Plan,
    *,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    native: bool | None = None,
    notice: Notice | None = None,
) -> None:
    """Run a plan to its end; `plan.m` holds the outcome.

    Args:
        plan: What to run.
        progress: Told how far it is.
        cancel: Asked whether to stop.
        native: Whether to run compiled; None: where that is faster, see `is_worth_compiling`.
        notice: Told when the kernel has to be compiled first.

    Raises:
        Cancelled: `cancel` said so.
        TraceError: The simulated time leaves the range of the clock, or a rank sends to itself.
    """
    if native is None:
        native = _runs_compiled(plan.steps)
    if native and notice is not None and KERNEL.loaded is None and not KERNEL.is_cached():
        notice(COMPILING if compiles_fast() else COMPILING_SLOWLY)
    run: Any = load_kernel().entry if native else loop.entry
    m: Any = plan.m if native else plan.m.tolist()
    f: Any = plan.f if native else plan.f.tolist()
    batch = BATCH if native else INTERPRETED_BATCH
    while True:
        with _refuse_endless_times():
            state = run(m, f, batch)
        if state == k.Outcome.DONE:
            break
        if state == k.Outcome.FAILED:
            if plan.folding is not None:
                # Errors are reported by the run in which every rank is simulated.
                break
            raise _build_failure(m)
        if state == k.Outcome.GROW:
            m = _grow(m) if native else m + [0] * len(m)
        if progress is not None:
            progress((int(m[k.Head.LOG]) - plan.log) // 4, plan.instances)
        if cancel is not None and cancel():
            raise Cancelled
    with _refuse_endless_times():
        plan.m = m if native else np.array(m, np.int64)


def explain_stop(plan: Plan) -> str:
    """Return why the result of a folded run is invalid; "" if it is valid."""
    m = plan.m
    if m[k.Head.ERROR] == k.Error.ORDER:
        return f"what happens first on rank {m[k.Head.ERROR_RANK]} at {m[k.Head.NOW]:,} ns depends on the numbers of ranks"
    if m[k.Head.ERROR] != k.Error.NONE or m[k.Head.LOG] - plan.log < 4 * plan.instances:
        return "the job does not come to its end"
    return ""


class Cancelled(Exception):  # noqa: N818 (no error: somebody asked for it)
    """The simulation was cancelled."""


def _grow(m: Any) -> Any:
    # Untouched pages cost nothing, so grow rarely and by much.
    least = 2 * int(m[k.Head.MARGIN]) + 4 * int(m[k.Head.CHANNEL_MASK] + 1)
    room = len(m) + max(len(m), min(8 * len(m), _RESERVE_WORDS), least)
    longer = allocate_aligned(room)
    longer[: len(m)] = m
    return longer


def _build_failure(m: Any) -> TraceError:
    if m[k.Head.ERROR] == k.Error.SELF:
        return TraceError(
            f"rank {m[k.Head.ERROR_RANK]} sends a message to itself; allowed: other ranks",
            hint="Correct comm_src and comm_dst in the trace.",
        )
    if m[k.Head.ERROR] == k.Error.ROUTE:
        return TraceError(
            f"rank {m[k.Head.ERROR_RANK]} sends a message to rank {m[k.Head.ERROR_PEER]}, and no way over the links leads there",
            hint="Add the links that are missing, or let those ranks not talk to each other.",
        )
    return _build_clock_failure()


@contextmanager
def _refuse_endless_times() -> Iterator[None]:
    """Refuse times that 64 bits do not hold: interpreted, numbers grow without end, and what takes for ever is infinite."""
    try:
        yield
    except OverflowError as error:
        raise _build_clock_failure() from error


def _build_clock_failure() -> TraceError:
    return TraceError(
        f"the simulated time passes {k.Tick.MAX:,} ns (18 years)",
        hint="Check durations and sizes in the trace, and the bandwidths of the network.",
    )


@dataclass(slots=True)
class _Spent:
    """Work of this process in simulations that ran interpreted: after enough of it the kernel is compiled.

    Attributes:
        steps: About how many steps they took.
    """

    steps: int = 0


_INTERPRETED = _Spent()


def is_worth_compiling(steps: int) -> bool:
    """Whether about this many steps run faster compiled, including the time to load or compile."""
    if KERNEL.loaded is not None:
        return True
    if KERNEL.is_cached():
        return steps > INTERPRETED_STEPS
    return steps > (INTERPRETED_COLD_STEPS if compiles_fast() else INTERPRETED_SLOW_STEPS)


def compiles_fast() -> bool:
    """Whether numba is of a release whose private classes `compiling` is known to work with."""
    return find_release("numba").startswith(FAST_RELEASES)


def _runs_compiled(steps: int) -> bool:
    """Decide whether to run compiled; if compiling is slow, start it in the background for the next run.

    Many small simulations are judged like a large one, by their steps together.
    """
    together = _INTERPRETED.steps + steps
    native = is_worth_compiling(together)
    if not native:
        _INTERPRETED.steps = together
        if together > INTERPRETED_STEPS and not compiles_fast():
            _compile_in_background()
    return native


@cache
def _compile_in_background() -> object:
    """Compile in another process for the next time; once in this one."""
    return KERNEL.warm_up()


def _compile_all(module: Any) -> Sequence[Made]:
    """Compile the functions of the kernel over bare pointers.

    A pointer is one register and no reference count, and its items need no check for negative indices.
    """
    way = importlib.import_module(f"studio.sim.{'compiling' if compiles_fast() else 'public_compiling'}")
    compiled: Sequence[Made] = way.compile_kernel(
        module, ENTRY, _order_callees(loop.run, set()), inlined=_INLINED
    )
    return compiled


def _order_callees(function: Any, seen: set[str]) -> list[str]:
    """Return the name of a function of the kernel and of all it calls, callees before callers."""
    seen.add(function.__name__)
    callees = []
    for name in function.__code__.co_names:
        other = function.__globals__.get(name)
        if name not in {*seen, *_REPLACED} and inspect.isfunction(other):
            callees += _order_callees(other, seen)
    return [*callees, function.__name__]


_REPLACED = ("lowest", "prefetch")
"""What `compile_kernel` has its own form of."""
_INLINED = (
    *(
        "alloc",
        "next_tick",
        "put_tick",
        "lower_tick",
        "forget_tick",
        "new_tick",
        "near_tick",
        "far_tick",
        "drop_list",
        "release",
        "alloc_block",
        "release_block",
        "next_of",
        "append",
        "push",
        "later",
        "register",
        "list_of",
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

_PARTS = (
    *(clock, order, routes, turns, links, messages, bus, packets),
    *(ring, halving, trees, programs, custom, phases, queues),
    *(collectives, memory, group_turns, nodes, flows, endings, bus_arrivals, arrivals),
)
_RECORDS = tuple(vars(k)[name] for name in k.__all__)
ENTRY = Entry("entry", (Items("int64"), Items("float64"), Number()))
# All of it is optimised as one already; once more takes another 11 s.
KERNEL = Kernel(loop, __name__, (ENTRY,), _compile_all, _PARTS, _RECORDS, optimise=False)
COMPILING = "compiling the simulator, once per installation, about 15 s"
COMPILING_SLOWLY = "compiling the simulator, once per installation, about 90 s"


def load_kernel() -> Any:
    """Return the compiled kernel: compiles for seconds once per installation, then loads from a file."""
    return KERNEL.load()
