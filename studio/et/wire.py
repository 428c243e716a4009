"""Runs the kernel over the bytes of a file: compiled where it pays, interpreted where it does not.

Numba takes half a second to import and, once per installation, a few seconds to compile the kernel. Small
files are read interpreted, so nobody waits for either; `warm_up` compiles in another process.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from studio.et import kernel as k
from studio.trace import Int32, Int64, UInt8

DAMAGE = {
    k.CUT_RECORD: "the file ends inside a record",
    k.BAD_VARINT: "a variable-length integer does not end",
    k.BAD_TAG: "a field has an impossible number or wire type",
    k.OVERRUN: "a field claims more bytes than its record has",
}

COMPILED_NAME = "studio.et._compiled_kernel"
INTERPRETED_BYTES = 1_500_000
INTERPRETED_COLD_BYTES = 3_000_000
"""Above these sizes compiling pays: when the installation has compiled before, and when it has not."""

SLICE_BYTES = 1 << 24

_FUNCTIONS = (
    "varint fixed low32 scalar wire_of field text items attribute io_info deps unknown node walk text_hash intern gather"
).split()

Tick = Callable[[int], None]
"""Called with the bytes done so far; may raise to stop the reading."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What the walk found, texts still as places in the buffer.

    N nodes, A attributes, T text occurrences.

    Attributes:
        out: The kernel's columns, see the names in `kernel`.
        counts: The kernel's counters.
        end: Offset after the last good record.
    """

    out: tuple[Any, ...]
    counts: list[int]
    end: int

    @property
    def damage(self) -> str:
        """What is wrong at `damage_at`; empty where the file is sound."""
        return DAMAGE.get(self.counts[k.ERROR], "")

    @property
    def damage_at(self) -> int:
        """Offset of the first record that could not be read."""
        return self.counts[k.ERROR_AT]


def read_columns(data: bytes | memoryview, start: int, tick: Tick, total_bytes: int) -> Columns:
    """Read the node records of `data` from offset `start`.

    Args:
        data: The whole file.
        start: Where the first node record begins.
        tick: Told the bytes done, out of twice the file (one pass to count, one to fill).
        total_bytes: Size of all files of the job, which decides whether compiling pays.
    """
    compile_it = worth_compiling(total_bytes)
    buffer: Any = np.frombuffer(data, np.uint8) if compile_it else bytes(data)
    walk = compiled().walk if compile_it else k.walk
    counts = _run(walk, buffer, (start, len(data)), _allocate([0] * k.COUNTERS), False, tick, compile_it)
    out = _allocate(counts)
    end = counts[k.GOOD_END]
    _run(walk, buffer, (start, end), out, True, lambda done: tick(len(data) + done), compile_it)
    return Columns(out, counts, end)


def intern(data: bytes | memoryview, starts: Int64, lengths: Int32, total_bytes: int) -> tuple[Int32, Int32]:
    """Number the distinct texts of a buffer.

    Returns:
        (T,) number of each occurrence's text, and the occurrence each distinct text was first seen at.
    """
    codes = np.empty(len(starts), np.int32)
    if not worth_compiling(total_bytes):
        return codes, _intern_with_dict(bytes(data), starts, lengths, codes)
    seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
    firsts: Int32 = compiled().intern(np.frombuffer(data, np.uint8), starts, lengths, codes, seed)
    return codes, firsts


def gather(data: bytes | memoryview, starts: Int64, lengths: Int32) -> UInt8:
    """Return the texts of a buffer, one after another."""
    if not _loaded:
        pieces = zip(starts.tolist(), lengths.tolist(), strict=True)
        return np.frombuffer(b"".join([bytes(data[s : s + n]) for s, n in pieces]), np.uint8)
    target: UInt8 = np.empty(int(lengths.sum()), np.uint8)
    compiled().gather(np.frombuffer(data, np.uint8), starts, lengths, target)
    return target


def _intern_with_dict(data: bytes, starts: Int64, lengths: Int32, codes: Int32) -> Int32:
    known: dict[bytes, int] = {}
    firsts: list[int] = []
    for at, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        code = known.setdefault(data[start : start + length], len(firsts))
        if code == len(firsts):
            firsts.append(at)
        codes[at] = code
    return np.array(firsts, np.int32)


def _run(
    walk: Callable[..., None],
    buffer: Any,
    span: tuple[int, int],
    out: tuple[Any, ...],
    fill: bool,
    tick: Tick,
    native: bool,
) -> list[int]:
    """Walk in slices, so that progress shows and a cancelled import stops soon."""
    counts: Any = np.zeros(k.COUNTERS, np.int64) if native else [0] * k.COUNTERS
    start, end = span
    while True:
        walk(buffer, start, end, out, counts, fill, SLICE_BYTES)
        start = int(counts[k.GOOD_END])
        tick(start)
        if start >= end or counts[k.ERROR] != k.OK:
            return [int(c) for c in counts]


def _allocate(counts: list[int]) -> tuple[Any, ...]:
    """Return columns of the counted sizes, in the order of the names in `kernel`."""
    nodes, attrs, texts = counts[k.NODES], counts[k.ATTRS], counts[k.TEXTS]
    per_node: list[Any] = [np.empty(nodes, t) for t in (np.int64, np.int32, np.int64, np.int64, np.int32, np.uint8)]
    ragged = [np.empty((nodes, 6), np.int32), np.empty((nodes, 3), np.int64)]
    deps = [np.empty(counts[k.CTRL], np.int64), np.empty(counts[k.DATA], np.int64)]
    per_attr: list[Any] = [np.empty(attrs, t) for t in (np.int32, np.int32, np.uint8, np.int64, np.int32)]
    rest = [np.empty(counts[k.ITEMS], np.int64), np.empty(texts, np.int64), np.empty(texts, np.int32)]
    return (*per_node, *ragged, *deps, *per_attr, *rest, np.empty((counts[k.EXTRAS], 2), np.int64))


_lock = threading.Lock()
_loaded: list[ModuleType] = []


def compiled() -> ModuleType:
    """Return the kernel, compiled. Takes seconds the first time an installation asks, then from a cache."""
    with _lock:
        if not _loaded:
            _loaded.append(_compile())
    return _loaded[0]


def _compile() -> ModuleType:
    """Load the kernel's source a second time, under another name, and compile that copy."""
    import numba

    spec = importlib.util.spec_from_file_location(COMPILED_NAME, k.__file__)
    if spec is None or spec.loader is None:  # the source of a package that runs is there
        raise ImportError(k.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[COMPILED_NAME] = module
    spec.loader.exec_module(module)
    for name in _FUNCTIONS:
        setattr(module, name, numba.njit(getattr(module, name), cache=True, nogil=True))
    _exercise(module)
    _marker().parent.mkdir(parents=True, exist_ok=True)
    _marker().touch()
    return module


def _exercise(module: ModuleType) -> None:
    """Call the kernel with every argument type it will meet, so that nothing compiles later."""
    buffer = np.frombuffer(b"\x00\x02\x08\x01", np.uint8)
    counts = np.zeros(k.COUNTERS, np.int64)
    module.walk(buffer, 0, 0, _allocate([0] * k.COUNTERS), counts, False, SLICE_BYTES)
    texts: UInt8 = np.empty(0, np.uint8)
    texts.flags.writeable = False
    starts, lengths = np.empty(0, np.int64), np.empty(0, np.int32)
    module.intern(texts, starts, lengths, np.empty(0, np.int32), np.uint64(1))
    module.gather(texts, starts, lengths, np.empty(0, np.uint8))


def worth_compiling(total_bytes: int) -> bool:
    """Whether a job of this size is read faster compiled, the wait for the compiler counted in."""
    if _loaded:
        return True
    return total_bytes > (INTERPRETED_BYTES if _marker().exists() else INTERPRETED_COLD_BYTES)


def _marker() -> Path:
    """Return the file that says this installation has compiled this very kernel."""
    import platformdirs

    source = Path(k.__file__)
    stamp = f"{sys.version_info[0]}.{sys.version_info[1]}-{source.stat().st_mtime_ns}"
    return Path(platformdirs.user_cache_dir("chakra-studio", appauthor=False)) / f"kernel-{stamp}"


def warm_up() -> subprocess.Popen[bytes] | None:
    """Compile in another process where this installation never did; return it, None where nothing is to do."""
    if _loaded or _marker().exists():
        return None
    command = [sys.executable, "-c", "from studio.et import wire; wire.compiled()"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
