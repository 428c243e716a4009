"""Files that do not fit into memory are refused before they are read."""

from __future__ import annotations

import pytest

import studio
from studio import machine_memory
from studio.errors import TraceError
from studio.et import memory
from tests.et.pytorch_files import rank_files, small_rank


def test_a_file_beyond_memory_is_refused_with_both_sizes(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "read_available_bytes", lambda: 1 << 30)
    with pytest.raises(
        TraceError,
        match=r"big\.json: its 1.00 GiB take about 5.00 GiB of memory to read, and 1.00 GiB are available",
    ):
        memory.refuse_beyond_memory("big.json", 1 << 30, 5.0)
    memory.refuse_beyond_memory("fits.json", 200 << 20, 5.0)
    monkeypatch.setattr(memory, "read_available_bytes", lambda: None)
    memory.refuse_beyond_memory("who.json", 1 << 40, 5.0)


def test_every_file_of_a_job_is_looked_at(monkeypatch, tmp_path):
    """Also packed ones, by the size they have unpacked."""
    rank_files(tmp_path, 0, *small_rank(0))
    monkeypatch.setattr(memory, "read_available_bytes", lambda: 0)
    assert studio.link(tmp_path).node_count
    monkeypatch.setattr(memory, "_ALWAYS_FITS", 1)
    with pytest.raises(TraceError, match="of memory to read"):
        studio.link(tmp_path)


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    for name, text in (
        ("meminfo", "MemTotal: 9 kB\nMemAvailable: 8388608 kB\n"),
        ("max", "4096\n"),
        ("current", "1024\n"),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine_memory, "_LIMITS", ())
    assert machine_memory.read_available_bytes() == 8 << 30
    monkeypatch.setattr(machine_memory, "_LIMITS", ((tmp_path / "max", tmp_path / "current"),))
    assert machine_memory.read_available_bytes() == 3072
    (tmp_path / "max").write_text("max\n")
    assert machine_memory.read_available_bytes() == 8 << 30
