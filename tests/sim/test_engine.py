"""When the simulator runs compiled, and what is said when that takes a while."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from studio.machine_code import Made
from studio.native import Kernel
from studio.sim import engine, simulate
from studio.sim import kernel as kernel_package
from studio.sim.kernel import clock, loop, records
from studio.sim.links import Float64
from studio.sim.plan import make_plan
from studio.sim.result import SimResult
from studio.trace import Int64
from tests.golden import trace_of_workload
from tests.sim.test_parity_sample import ring_config

COLLECTIVE = {"id": 1, "type": "COMM_COLL", "name": "sum", "attrs": {"comm_type": 0, "comm_size": 1 << 20}}


@pytest.fixture
def never_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installation and a process that have not compiled or simulated yet."""
    monkeypatch.setattr(engine.KERNEL, "loaded", None)
    monkeypatch.setattr(Kernel, "folder", lambda _self: tmp_path)
    monkeypatch.setattr(engine, "_INTERPRETED", engine._Spent())


@pytest.fixture
def compilations(never_compiled: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the compiler: the interpreted kernel."""
    asked: list[str] = []

    def entry(m: Int64, f: Float64, budget: int) -> int:
        words = m.tolist()
        state: int = loop.entry(words, f.tolist(), budget)
        m[:] = words
        return state

    def compile_kernel(kernel: Kernel) -> SimpleNamespace:
        assert kernel is engine.KERNEL
        asked.append("compiled")
        return SimpleNamespace(entry=entry)

    monkeypatch.setattr(Kernel, "_compile", compile_kernel)
    return asked


def simulate_small(ranks: int = 4, **options: Any) -> SimResult:
    return simulate(trace_of_workload({"all_ranks": [COLLECTIVE]}, ranks), ring_config(ranks), **options)


def test_large_cases_are_worth_compiling_sooner_once_the_cache_is_filled(
    never_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not engine.is_worth_compiling(engine.INTERPRETED_COLD_STEPS)
    assert engine.is_worth_compiling(engine.INTERPRETED_COLD_STEPS + 1)
    monkeypatch.setattr(Kernel, "is_cached", lambda _self: True)
    assert engine.is_worth_compiling(engine.INTERPRETED_STEPS + 1)
    assert not engine.is_worth_compiling(engine.INTERPRETED_STEPS)


def test_once_loaded_the_compiled_kernel_runs_the_smallest_case(
    never_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.KERNEL, "loaded", loop)
    assert engine.is_worth_compiling(1)


def test_small_cases_run_before_anything_is_compiled(compilations: list[str]) -> None:
    simulate_small()
    assert not compilations


def test_small_cases_in_a_loop_run_compiled_once_their_steps_add_up(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = make_plan(trace_of_workload({"all_ranks": [COLLECTIVE]}, 4), ring_config(4), folded=True).steps
    monkeypatch.setattr(engine, "INTERPRETED_COLD_STEPS", 4 * steps)
    finishes = []
    for run in range(6):
        finishes.append(simulate_small().makespan_ns)
        assert compilations == ([] if run < 4 else ["compiled"])
    assert len(set(finishes)) == 1


def test_whoever_waits_for_the_compiler_is_told_and_only_then(compilations: list[str]) -> None:
    told: list[str] = []
    interpreted = simulate_small(native=False, notice=told.append)
    assert told == []
    assert simulate_small(native=True, notice=told.append).makespan_ns == interpreted.makespan_ns
    assert told == [engine.COMPILING]
    assert compilations == ["compiled"]
    simulate_small(native=True, notice=told.append)
    assert told == [engine.COMPILING]
    assert compilations == ["compiled"]


def test_another_release_of_numba_compiles_in_the_background(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is slow to compile is asked for once, and nobody waits for it."""
    started: list[object] = []
    monkeypatch.setattr("studio.native.subprocess.Popen", lambda command, **_: started.append(command))
    monkeypatch.setattr(engine, "compiles_fast", lambda: False)
    monkeypatch.setattr(engine, "INTERPRETED_STEPS", 1)
    monkeypatch.setattr(engine, "INTERPRETED_COLD_STEPS", 1)
    engine._compile_in_background.cache_clear()
    for _ in range(2):
        simulate_small()
    engine._compile_in_background.cache_clear()
    assert len(started) == 1
    assert not compilations


def test_the_size_of_a_case_is_guessed_within_a_factor_of_three() -> None:
    for size in (2, 8, 32):
        trace, config = trace_of_workload({"all_ranks": [COLLECTIVE]}, size), ring_config(size)
        took = simulate(trace, config, native=False).callbacks
        assert took / 3 < make_plan(trace, config, folded=True).steps < took * 3


def test_warming_up_compiles_in_another_process_and_once(
    never_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("studio.native.subprocess.Popen", lambda command, **_: started.append(command))
    engine.KERNEL.warm_up()
    [[program, _, code]] = started
    assert program == sys.executable
    assert "import os, studio.sim.engine as home" in code
    monkeypatch.setattr(Kernel, "is_cached", lambda _self: True)
    assert engine.KERNEL.warm_up() is None
    assert len(started) == 1


def test_the_kernel_is_all_modules_of_its_package_and_no_two_functions_share_a_name() -> None:
    modules = (*engine.KERNEL.parts, engine.KERNEL.source)
    assert {module.__name__ for module in modules} == _modules_in(kernel_package)
    assert {module.__name__ for module in engine.KERNEL.constants} == _modules_in(records)
    own = [name for module in modules for name, value in vars(module).items() if _defined_in(module, value)]
    assert len(own) == len(set(own)) > 100


def _modules_in(package: ModuleType) -> set[str]:
    found = pkgutil.iter_modules(package.__path__)
    return {f"{package.__name__}.{module.name}" for module in found if not module.ispkg}


def _defined_in(module: Any, value: Any) -> bool:
    return callable(value) and getattr(value, "__module__", "") == module.__name__


PART = "def times(m):\n    return {factor} * m[0]\n"
WHOLE = """
from few_functions.part import times


def data_of(array):
    return array


def run(m):
    return times(m)


def entry(m, f, budget):
    return run(data_of(m))
"""


def test_machine_code_lies_where_numba_would_keep_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert engine.KERNEL.code_file().parent != tmp_path
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert engine.KERNEL.code_file().parent == tmp_path


def few_functions(whole: ModuleType, part: ModuleType, way: str) -> Kernel:
    compiling: Any = importlib.import_module(f"studio.sim.{way}")

    def prepare(module: ModuleType) -> list[Made]:
        made: list[Made] = compiling.compile_kernel(
            module, engine.ENTRY, ["times", "run"], inlined=("times",)
        )
        return made

    return Kernel(whole, __name__, (engine.ENTRY,), prepare, (part,))


@pytest.mark.parametrize("way", ["compiling", "public_compiling"])
def test_a_change_in_any_file_of_a_kernel_and_damage_are_compiled_anew(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "few_functions"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "whole.py").write_text(WHOLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    answers = []
    for turn, factor in enumerate((2, 3, 3, 3)):
        (folder / "part.py").write_text(PART.format(factor=factor))
        # Python itself tells sources apart by seconds.
        os.utime(folder / "part.py", (2e9 + min(turn, 1), 2e9 + min(turn, 1)))
        for name in [name for name in sys.modules if name.startswith("few_functions")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        whole = importlib.import_module("few_functions.whole")
        part = importlib.import_module("few_functions.part")
        kernel = few_functions(whole, part, way)
        if turn == 3:
            content = bytearray(kernel.code_file().read_bytes())
            content[len(content) // 2] ^= 1
            kernel.code_file().write_bytes(content)
        cached = kernel.is_cached()
        compiled = kernel.load()
        # What was made ran by itself, not by numba.
        assert not hasattr(compiled, "made")
        answers.append((cached, compiled.entry(np.array([7]), np.zeros(1), 0), part.times([7])))
    assert answers == [(False, 14, 14), (False, 21, 21), (True, 21, 21), (False, 21, 21)]
    for name in [name for name in sys.modules if name.startswith("few_functions")]:
        del sys.modules[name]


CLOCK = """
from studio.sim.kernel.clock import drop_list, next_of, next_tick, push
from studio.sim.kernel.records import Head, Tick


def data_of(array):
    return array


def run(m, last):
    total = 0
    for i in range(9):
        push(m, 1 + 400 * i, i, 0)
    t = next_tick(m)
    while t != 0:
        m[Head.LIST] = t
        at = m[t + Tick.READ]
        while at != m[t + Tick.WRITE]:
            at = next_of(m, t, at)
            m[t + Tick.READ] = at + 2
            x = m[at]
            now = m[Head.NOW]
            total = (31 * total + now + x) % 1000003
            if now < last:
                push(m, now + 1 + x % 1500, (7 * x + now) % 997, 0)
                if x % 5 == 0:
                    push(m, now, x + 1, 0)
            at += 2
        drop_list(m, t)
        m[Head.LIST] = 0
        t = next_tick(m)
    return total


def entry(m, f, budget):
    return run(data_of(m), budget)
"""


def test_the_public_interface_of_numba_compiles_the_clock_to_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small job of the kernel's own functions; `python -m tests.parity --public` runs them all."""
    from studio.sim import public_compiling

    (tmp_path / "clock_alone").mkdir()
    (tmp_path / "clock_alone" / "__init__.py").touch()
    (tmp_path / "clock_alone" / "whole.py").write_text(CLOCK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    whole = importlib.import_module("clock_alone.whole")

    def prepare(module: ModuleType) -> list[Made]:
        names = engine._order_callees(whole.run, set())
        return public_compiling.compile_kernel(module, engine.ENTRY, names, inlined=("push",))

    kernel = Kernel(whole, __name__, (engine.ENTRY,), prepare, (clock,), engine.KERNEL.constants)
    m = np.zeros(1 << 17, np.int64)
    m[records.Head.WHEEL], m[records.Head.TICKS], m[records.Head.TOP] = 128, 8192, 8704
    m[records.Head.TICK_MASK] = 255
    assert m[records.Head.NOW] == 0
    interpreted = m.tolist()
    answer = whole.entry(interpreted, [], 9_000)
    assert kernel.load().entry(m, np.zeros(1), 9_000) == answer
    assert m.tolist() == interpreted
    assert len(interpreted) == len(m) > interpreted[records.Head.TOP] > 8704
