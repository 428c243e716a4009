"""Damaged files: a trace or a TraceFormatError, whatever is wrong. `benchmarks/fuzz_et.py` is the long version."""

from __future__ import annotations

import gzip
import importlib.util
import signal
from pathlib import Path
from random import Random
from types import ModuleType

import pytest

import studio
from studio.errors import TraceFormatError
from studio.et import source
from studio.et.source import SourceFile
from tests.et.chakra_bytes import assert_same, attr, file_of, kernel, num, read_once, sized, varint
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_et", ROOT / "benchmarks" / "fuzz_et.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def impatient():
    """Ends a test that hangs."""

    def stop(*_):
        raise AssertionError("reading hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(PATIENCE_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def seed_files(fuzz: ModuleType) -> list[bytes]:
    kinds = (
        num(7, -1) + num(9, 5),
        sized(29, "text"),
        sized(10, sized(1, varint(5) * 4)),
        sized(30, sized(1, "a")),
    )
    nodes = [
        num(1, i) + sized(2, f"n{i}") + num(3, 4 + i % 4) + sized(5, varint(i // 2)) + num(6, i) + num(7, i)
        + sized(8, sized(1, "[1, 2]")) + attr("pg_name", kinds[i % 4], "doc") + num(40, 1)
        for i in range(12)
    ]  # fmt: skip
    return [*fuzz.seeds([]), file_of(*nodes)]


def test_mutated_files_give_a_trace_or_a_format_error(fuzz, impatient, tmp_path):
    """500 mutations of sample ranks and of a small file, packed ones among them."""
    raw, rng = seed_files(fuzz), Random(20)
    path = tmp_path / "mutated.0.et"
    read, refused = 0, []
    with kernel(native=True):
        for number in range(500):
            content = fuzz.mutate(rng.choice(raw), rng)
            path.write_bytes(fuzz.mutate(gzip.compress(content, 1), rng) if number % 5 == 0 else content)
            try:
                studio.read(path)
                read += 1
            except TraceFormatError as error:
                refused.append(error.message)
    assert read > 300
    assert len(refused) > 10
    assert all("mutated.0.et" in message for message in refused)


def test_both_kernels_agree_on_mutated_files(fuzz, impatient):
    raw, rng = seed_files(fuzz)[-1], Random(21)
    read = 0
    for _ in range(400):
        content = fuzz.mutate(raw, rng)
        try:
            part = read_once(content, native=False)
        except TraceFormatError:
            with pytest.raises(TraceFormatError):
                read_once(content, native=True)
            continue
        assert_same(part, read_once(content, native=True))
        read += 1
    assert read > 200


@pytest.mark.parametrize(
    "content",
    [
        lambda: file_of(*[num(6, 2**63) + num(7, 2**63 + i) for i in range(50_000)]),
        lambda: file_of(num(99, 1) * 100_000),
        lambda: file_of(attr("pg_name", num(9, 1)) * 50_000),
        lambda: file_of(*[attr("pg_name", sized(29, str(i))) for i in range(30_000)]),
        lambda: file_of(num(1, 1), metadata=varint(400_000) + sized(2, b"") * 200_000),
        lambda: file_of(*[b"", b"\x08\x01"] * 100_000),
        lambda: file_of(*([b""] * 4000 + [b"\x08\x01"]) * 50),
        lambda: file_of(*[sized(2, b"\xff" + str(i).encode()) for i in range(20_000)]),
    ],
    ids=[
        "times",
        "unknown fields",
        "slots",
        "distinct slots",
        "metadata",
        "empty",
        "long empty",
        "bad texts",
    ],
)
def test_no_file_takes_time_that_grows_with_its_square(content, impatient):
    """Each would take minutes, and be given up, if some step went over the whole file once per node or field."""
    part = read_once(content(), native=True)
    assert len(part.graph)


def test_a_stream_of_tiny_gzip_members(tmp_path, impatient):
    raw = file_of(num(1, 1) + num(3, 4))
    path = tmp_path / "t.0.et"
    path.write_bytes(gzip.compress(raw) + gzip.compress(b"") * 20_000)
    assert studio.read(path).node_count == 1


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_RATIO_FROM", 1 << 20)
    path = tmp_path / "bomb.0.et"
    path.write_bytes(gzip.compress(file_of(sized(31, bytes(4 << 20)))))
    with pytest.raises(TraceFormatError, match=r"bomb\.0\.et: inflates to more than"):
        source.load(SourceFile("bomb.0.et", path))
