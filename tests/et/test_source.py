"""Files are opened as seldom as can be: what was read of one first answers every question about it."""

from __future__ import annotations

import gc
import gzip
import os
import pickle
import tarfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import studio
from studio.et import discover, read_job, source
from studio.et.format import HEAD_BYTES
from studio.et.source import SourceFile, measure_file, open_sources
from studio.et.tar import is_tar
from studio.jobs.importing import compute_fingerprint
from studio.trace import compute_trace_digest
from tests.et.chakra_bytes import attr, file_of, num, sized, varint

RANKS = 5


def rank_bytes(number: int, *, nodes: int = 3) -> bytes:
    """A rank with a group of its own; `nodes` make it longer."""
    body = num(3, 7) + attr("pg_name", sized(29, f"tp{number}")) + attr("comm_size", num(9, 1 << 20))
    return file_of(*(num(1, 1 + row) + sized(2, "all_reduce") + body for row in range(nodes)))


def put_ranks(folder: Path, count: int = RANKS, *, nodes: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        (folder / f"job.{number}.et").write_bytes(rank_bytes(number, nodes=nodes))
    return folder


@contextmanager
def counted_opens(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count how often each file is opened, by its name."""
    opened: Counter[str] = Counter()
    really = os.open

    def counting(path, *arguments, **options):
        opened[os.path.basename(path)] += 1  # noqa: PTH119 - a path or a text
        return really(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", counting)
        yield opened


def traces_of(opened: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in opened.items() if name.endswith((".et", ".et.gz"))}


# ---------------------------------------------------------------------------------------------------
# How often


@pytest.mark.parametrize("text", ["", "a\0b", "\ud800"])
def test_what_no_file_can_be_called_is_said(tmp_path, monkeypatch, text):
    """They were the current folder without a word, and an error of Python."""
    monkeypatch.chdir(put_ranks(tmp_path / "job"))
    for call in (studio.read, studio.link, studio.Workspace):
        with pytest.raises(studio.StudioError, match="can be called so" if text else "An empty path"):
            call(text)
    with pytest.raises(studio.StudioError, match="name too long"):
        studio.read("x" * 5000)


def test_looking_through_very_many_files_is_reported_and_may_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_REPORTED_FROM", RANKS + 1)
    monkeypatch.setattr(source, "_REPORTED_EVERY", 2)
    told: list[tuple[str, int, int]] = []
    studio.read(put_ranks(tmp_path / "few"), progress=lambda *words: told.append(words))
    assert {phase for phase, _, _ in told}.isdisjoint(("opening", "sorting"))
    told.clear()
    many = put_ranks(tmp_path / "many", RANKS + 2)
    studio.read(many, progress=lambda *words: told.append(words))
    for phase in ("opening", "sorting"):
        assert [done for each, done, total in told if each == phase and total == RANKS + 2] == [0, 2, 4, 6, 7]

    def stop(phase: str, done: int, _total: int) -> None:
        if (phase, done) == ("opening", 4):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        studio.read(many, progress=stop)


def test_each_file_of_a_folder_is_opened_once(tmp_path, monkeypatch):
    folder = put_ranks(tmp_path / "in")
    with counted_opens(monkeypatch) as opened:
        trace = studio.read(folder)
    assert [rank.slots[0] for rank in trace.ranks] == [f"tp{number}" for number in range(RANKS)]
    assert traces_of(opened) == {f"job.{number}.et": 1 for number in range(RANKS)}


def test_a_job_is_told_from_others_by_what_will_be_read(tmp_path, monkeypatch):
    """Its fingerprint costs no second look, and is of the content that is read, not of what a file became meanwhile."""
    folder = put_ranks(tmp_path / "in")
    with open_sources([folder]) as files:
        before = compute_fingerprint(discover(files)[0], {})
    with counted_opens(monkeypatch) as opened, open_sources([folder]) as files:
        [job] = discover(files)
        (folder / "job.0.et").write_bytes(rank_bytes(9))
        assert compute_fingerprint(job, {}) == before
        assert read_job(job).ranks[0].slots[0] == "tp0"
    assert traces_of(opened) == {f"job.{number}.et": 1 for number in range(RANKS)}
    with open_sources([folder]) as files:
        assert compute_fingerprint(discover(files)[0], {}) != before


def test_what_is_kept_is_bounded_and_dropped_once_it_is_read(tmp_path, monkeypatch):
    folder = put_ranks(tmp_path / "in")
    expected = compute_trace_digest(studio.read(folder))
    monkeypatch.setattr(source, "_KEPT_BYTES", 2 * len(rank_bytes(0)) + 1)
    with counted_opens(monkeypatch) as opened, open_sources([folder]) as files:
        assert [len(file.start.content) for file in files] == [len(rank_bytes(0))] * 2 + [0] * 3
        [job] = discover(files)
        assert compute_trace_digest(read_job(job)) == expected
        assert not any(file.start.content for file in files)
        # Read once more it is opened once more.
        assert compute_trace_digest(read_job(job)) == expected
    counts = traces_of(opened)
    assert counts["job.0.et"] == counts["job.1.et"] == 2
    assert min(counts["job.2.et"], counts["job.3.et"], counts["job.4.et"]) > 2


def test_large_files_are_not_kept_whole(tmp_path):
    long = rank_bytes(0, nodes=2000)
    assert len(long) > HEAD_BYTES
    (tmp_path / "job.0.et").write_bytes(long)
    with open_sources([tmp_path]) as [file]:
        assert len(file.start.content) == HEAD_BYTES
        assert file.start.whole == b""
        assert measure_file(file) == (len(long), len(long))
        assert len(read_job(discover([file])[0]).graphs[0]) == 2000


def test_files_that_others_read_are_sent_without_content(tmp_path, monkeypatch):
    folder = put_ranks(tmp_path / "in")
    expected = compute_trace_digest(studio.read(folder))
    sent: list[bytes] = []

    class Watched(ThreadPoolExecutor):
        def submit(self, function, /, *arguments, **options):
            sent.append(pickle.dumps(arguments))
            return super().submit(function, *arguments, **options)

    with Watched(1) as executor:
        assert compute_trace_digest(studio.read(folder, executor=executor)) == expected
    assert len(sent) >= RANKS
    assert not any(b"all_reduce" in arguments for arguments in sent)


@pytest.mark.parametrize("size", [0, 1, 17, 18, 19, 1000])
def test_sizes_are_the_same_however_they_are_learnt(tmp_path, size):
    for name, content in (("plain", os.urandom(size)), ("packed", gzip.compress(b"x" * size))):
        path = tmp_path / name
        path.write_bytes(content)
        fresh = measure_file(SourceFile(name, path))
        with open_sources([path]) as [file]:
            assert file.start.sizes == measure_file(file) == fresh
        assert fresh == (len(content), size)


def test_the_collector_does_not_look_through_the_ranks_while_they_are_read(tmp_path):
    folder = put_ranks(tmp_path / "in", 60)
    # What is imported by the first is none of it.
    studio.read(folder)
    runs: list[int] = []
    note = lambda phase, _info: runs.append(1) if phase == "start" else None  # noqa: E731
    before = gc.get_threshold()
    with open_sources([folder]) as files:
        gc.callbacks.append(note)
        gc.set_threshold(1)
        try:
            trace = read_job(discover(files)[0])
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(note)
    assert len(trace.ranks) == 60
    assert gc.isenabled()
    # One for each rank at most, between the steps; else it is dozens.
    assert len(runs) < 3 * 60


# ---------------------------------------------------------------------------------------------------
# The same answers


def test_equal_ids_make_equal_graphs_whatever_is_between_their_ends(tmp_path):
    def graph(*ids: int) -> bytes:
        return file_of(*(num(1, node) + num(3, 4) + sized(5, varint(ids[0])) for node in ids))

    for number, ids in enumerate([(1, 2, 9), (1, 3, 9), (1, 2, 9), (1, 3, 9), (2, 3, 9), (1, 2, 8)]):
        (tmp_path / f"job.{number}.et").write_bytes(graph(*ids))
    trace = studio.read(tmp_path)
    assert [rank.graph for rank in trace.ranks] == [0, 1, 0, 1, 2, 3]
    assert [trace.graph_of(rank).id.tolist() for rank in trace.ranks[:2]] == [[1, 2, 9], [1, 3, 9]]


def test_a_master_trace_is_told_by_the_beginning_of_its_metadata(tmp_path):
    """A rank that only speaks of it, far behind, is a rank."""
    node = num(1, 1) + sized(2, "x" * 5000) + sized(2, "merged.ranks") + num(3, 4)
    (tmp_path / "job.0.et").write_bytes(file_of(node))
    with open_sources([tmp_path]) as files:
        assert [fmt.name for _, fmt, _ in discover(files)[0].ranks] == ["chakra"]


def test_places_below_the_working_folder_are_named_as_paths_are(tmp_path, monkeypatch):
    put_ranks(tmp_path / "in", 1)
    monkeypatch.chdir(tmp_path)
    for given_as in (".", "in", str(tmp_path)):
        with open_sources([given_as]) as [file]:
            assert str(file.place) == str(file.path)


def slow_is_tar(block: bytes) -> bool:
    """What `tarfile` says, asked at once."""
    if len(block) < 512 or not block[:512].strip(b"\0"):
        return False
    try:
        tarfile.TarInfo.frombuf(block[:512], "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


FIELDS = st.one_of(
    st.binary(min_size=8, max_size=8),
    st.text("01234567 \t\n\r\0_+-oOx9", min_size=8, max_size=8).map(str.encode),
)


@given(st.binary(min_size=512, max_size=700), FIELDS, st.booleans())
def test_archives_are_told_as_tarfile_tells_them(block, field, summed):
    raw = bytearray(block)
    raw[148:156] = field
    if summed:
        # The right sum, as the field would have it; spaces, zeros and signs stand where they may.
        total = 256 + sum(raw[:148]) + sum(raw[156:512])
        style = field[0] % 4
        text = (f"{total:06o}\0 ", f" {total:06o}\0", f"+{total:06o} ", f"{total:08o}")[style]
        raw[148:156] = text.encode()[:8]
    assert is_tar(bytes(raw)) == slow_is_tar(bytes(raw))


def test_sums_in_base_256_are_told_too():
    header = bytearray(tarfile.TarInfo("a").tobuf())
    total = 256 + sum(header[:148]) + sum(header[156:512])
    header[148:156] = b"\x80" + total.to_bytes(7, "big")
    assert slow_is_tar(bytes(header))
    assert is_tar(bytes(header))


def test_ids_of_every_width_are_read_by_comparison(tmp_path):
    """Ids of one byte to ten, mixed in one file and not."""
    starts = [1, 100, 127, 16_300, 2_097_150, 2**35 - 2, 2**63 - 2, 2**64 - 9]
    for number, start in enumerate(starts):
        records = [num(1, start + row) + (sized(5, varint(start)) if row else b"") for row in range(8)]
        (tmp_path / f"job.{number}.et").write_bytes(file_of(*records))
    trace = studio.read(tmp_path)
    for rank, start in zip(trace.ranks, starts, strict=True):
        graph = trace.graph_of(rank)
        assert graph.id.dtype == np.uint64
        assert graph.id.tolist() == [start + row for row in range(8)]
        assert graph.data.rows.tolist() == [0] * 7
