"""When the kernel is compiled, and that nobody waits or pays for it who reads little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from studio.errors import TraceError
from studio.et import chakra, wire
from studio.et.format import Reading
from studio.native import Kernel
from studio.trace import iterate_arrays
from tests.et.chakra_bytes import assert_same, attr, file_of, kernel, num, read_once, sized, varint

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = ("dash", "plotly", "numba", "pandas", "flask", "google.protobuf")


def fresh(code: str) -> list[str]:
    """Run `code` in a process of its own, then tell which heavy packages it has loaded."""
    code += f"\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return eval(output.stdout)


@pytest.mark.integration
def test_reading_small_files_loads_no_compiler(tmp_path):
    for rank in range(8):
        nodes = (num(1, i) + num(3, 4) + sized(5, varint(i // 2)) + attr("a", num(9, i)) for i in range(350))
        (tmp_path / f"job.{rank}.et").write_bytes(file_of(*nodes))
    code = f"import studio\nassert studio.read({str(tmp_path)!r}).node_count == 2800"
    assert set(fresh(code)) <= {"google.protobuf"}


def test_reading_a_real_small_job_loads_no_compiler(shared):
    folder = str(shared / "traces" / "stg" / "llama_8r_dp2tp2pp2")
    assert set(fresh(f"import studio\nassert len(studio.read({folder!r}).ranks) == 8")) <= {"google.protobuf"}


@pytest.fixture
def never_compiled(monkeypatch, tmp_path):
    """An installation that has never compiled."""
    monkeypatch.setattr(wire.KERNEL, "loaded", None)
    monkeypatch.setattr(Kernel, "folder", lambda _self: tmp_path)


def test_large_files_are_worth_compiling_sooner_once_the_cache_is_filled(never_compiled, monkeypatch):
    between = (wire.INTERPRETED_BYTES + wire.INTERPRETED_COLD_BYTES) // 2
    assert not wire.is_worth_compiling(between)
    assert wire.is_worth_compiling(wire.INTERPRETED_COLD_BYTES + 1)
    monkeypatch.setattr(Kernel, "is_cached", lambda _self: True)
    assert wire.is_worth_compiling(between)
    assert not wire.is_worth_compiling(wire.INTERPRETED_BYTES)


def test_once_compiled_the_smallest_file_profits(never_compiled):
    wire.KERNEL.loaded = wire
    assert wire.is_worth_compiling(1)


def test_a_file_that_inflates_is_judged_by_what_it_holds(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(wire, "is_worth_compiling", lambda size_bytes: bool(asked.append(size_bytes)))
    raw = file_of(sized(31, bytes(5000)))
    chakra.read(Reading("t", raw, total_bytes=20))
    assert max(asked) == len(raw)


def test_warming_up_compiles_in_another_process(never_compiled, monkeypatch):
    started: list[list[str]] = []
    monkeypatch.setattr("studio.native.subprocess.Popen", lambda command, **_: started.append(command))
    wire.KERNEL.warm_up()
    [[program, _, code]] = started
    assert program == sys.executable
    assert "import os, studio.et.wire as home" in code
    monkeypatch.setattr(Kernel, "is_cached", lambda _self: True)
    assert wire.KERNEL.warm_up() is None
    assert len(started) == 1


def test_compiling_is_kept_and_leaves_the_interpreted_kernel_alone():
    compiled = wire.load_kernel()
    assert wire.KERNEL.code_file().exists()
    assert wire.KERNEL.is_cached()
    assert wire.load_kernel() is compiled
    assert wire.k.walk.__module__ == "studio.et.kernel"
    assert not hasattr(wire.k.walk, "py_func")


@pytest.mark.integration
def test_later_processes_read_with_the_compiled_kernel_and_without_numba(tmp_path):
    wire.load_kernel()
    (tmp_path / "t.0.et").write_bytes(file_of(*(num(1, i) + sized(2, f"n{i % 9}") for i in range(9_000))))
    code = (
        "import studio\nfrom studio.et import wire\n"
        f"assert studio.read({str(tmp_path)!r}).node_count == 9000\nassert wire.KERNEL.loaded is not None"
    )
    assert set(fresh(code)) <= {"google.protobuf"}


@pytest.mark.parametrize("native", [False, True])
def test_files_are_read_in_slices_without_a_seam(monkeypatch, native):
    """The size of a slice changes nothing, whatever record it ends in."""
    nodes = [
        num(1, i) + sized(2, f"n{i % 7}") + sized(5, varint(i // 2)) + num(50, i)
        + attr("pg_name", sized(29, str(i % 3))) + attr("l", sized(30, sized(1, f"t{i % 5}") + sized(1, "x")))
        + attr("l", sized(10, sized(1, varint(i))) + (sized(12, sized(1, varint(i))) if i % 4 == 0 else b""))
        + attr("b", sized(32, sized(1, b"\xff"))) + attr("d", num(9, i), f"doc{i % 2}")
        for i in range(60)
    ]  # fmt: skip
    raw = file_of(*nodes)
    whole = read_once(raw, native=native)
    assert not [f for f in whole.findings if f.level == "error"]
    for size in (1, 2, 60, 61, 200, 1000, len(raw)):
        monkeypatch.setattr(wire, "SLICE_BYTES", size)
        assert_same(read_once(raw, native=native), whole)
        assert_same(
            read_once(raw + b"\x03\x0b", native=native), read_once(raw + b"\x03\x0b", native=not native)
        )


def test_progress_rises_and_can_stop_the_reading(monkeypatch):
    monkeypatch.setattr(wire, "SLICE_BYTES", 100)
    raw = file_of(*(num(1, i) for i in range(500)))
    done: list[int] = []
    chakra.read(Reading("t", raw, tick=done.append))
    assert done == sorted(done)
    assert done[-1] == 2 * len(raw)

    def stop(_done: int) -> None:
        raise TraceError("stopped")

    with pytest.raises(TraceError, match="stopped"):
        chakra.read(Reading("t", raw, tick=stop))


def test_mapped_and_inflated_files_and_bytes_read_the_same(tmp_path):
    import gzip

    from studio.et.source import SourceFile, load

    raw = file_of(*(num(1, i) + sized(2, f"n{i}") for i in range(300)))
    plain, packed = tmp_path / "p", tmp_path / "g"
    plain.write_bytes(raw)
    packed.write_bytes(gzip.compress(raw))
    want = read_once(raw, native=False)
    for native in (False, True):
        for path in (plain, packed):
            data, _ = load(SourceFile(path.name, path))
            with kernel(native):
                [part] = chakra.read(Reading("t.0.et", data))
            assert_same(part, want)


def test_the_pool_holds_each_text_once():
    texts = [f"text {i % 997} {'y' * (i % 40)}" for i in range(20_000)]
    raw = file_of(*(sized(2, text) for text in texts))
    for native in (False, True):
        part = read_once(raw, native=native)
        strings = list(part.graph.strings)
        assert len(strings) == len(set(strings))
        assert [strings[code] for code in part.graph.name.tolist()] == texts
        assert dict(iterate_arrays(part.graph))["name"].dtype == "int32"
