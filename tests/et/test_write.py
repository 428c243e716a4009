"""Files that `write` and `convert` leave behind."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.commands.convert import Request, run
from studio.errors import StudioError, TraceError
from studio.et import encode, write
from studio.et.write import write_together
from studio.trace import CommGroup, Trace
from tests.et.chakra_bytes import attr, file_of, num, sized
from tests.strategies import part_of

RAW = file_of(num(1, 1) + num(3, 4))


def small() -> Trace:
    part = part_of(RAW)
    rank = part.rank
    ranks = tuple(type(rank)(number, 0, rank.slots, rank.version) for number in (0, 7))
    groups = (CommGroup("tp", (7, 0)), CommGroup("guess", (0,), inferred=True))
    return Trace((part.graph,), ranks, groups)


def test_one_file_per_rank_and_the_listed_groups(tmp_path):
    paths = studio.write(small(), tmp_path / "new" / "folder", "job")
    assert [path.name for path in paths] == ["job.0.et", "job.7.et", "job.json"]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        path.name for path in paths
    ]
    assert [path.read_bytes() for path in paths[:2]] == [RAW, RAW]
    assert json.loads(paths[2].read_text()) == {"tp": [7, 0]}
    assert studio.read(tmp_path / "new").groups == (CommGroup("tp", (7, 0)),)


def test_ranks_of_one_graph_differ_in_their_slots_and_in_the_lengths_of_what_holds_them(
    tmp_path, monkeypatch
):
    def file(group: str, peer: int) -> bytes:
        named = attr("pg_name", sized(29, group))
        collective = num(1, 1) + num(3, 7) + named + attr("comm_size", num(9, 9))
        message = num(1, 2) + num(3, 5) + attr("comm_dst", num(9, peer)) + named
        return file_of(num(1, 4) + num(3, 4), collective, message, num(1, 3) + num(3, 4))

    monkeypatch.setattr(encode, "NODES_AT_ONCE", 3)
    wanted = {3: ("tp0", 5), 4: ("x" * 200, 1 << 40), 9: ("", 7)}
    part = part_of(file(*wanted[3]))
    assert len(part.rank.slots) == 2
    ranks = tuple(replace(part.rank, number=number, graph=0, slots=slots) for number, slots in wanted.items())
    paths = studio.write(Trace((part.graph,), ranks, ()), tmp_path, "job")
    assert [path.read_bytes() for path in paths] == [file(*slots) for slots in wanted.values()]


def test_no_group_file_without_listed_groups(tmp_path):
    trace = small()
    paths = studio.write(Trace(trace.graphs, trace.ranks, trace.groups[1:]), tmp_path, "job")
    assert [path.suffix for path in paths] == [".et", ".et"]


def test_packed_files_are_equal_whenever_they_are_written(tmp_path):
    first = studio.write(small(), tmp_path / "1", "job", compress=True)
    time.sleep(1.1)  # the time stamp of gzip has whole seconds
    second = studio.write(small(), tmp_path / "2", "job", compress=True)
    assert [path.name for path in first[:2]] == ["job.0.et.gz", "job.7.et.gz"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert gzip.decompress(first[0].read_bytes()) == RAW


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "..", ".hidden", "a\0b", "a\nb", "x" * 300])
def test_names_that_cannot_be_file_names(tmp_path, name):
    with pytest.raises(TraceError, match="cannot be the name"):
        studio.write(small(), tmp_path / "folder", name)
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("name", ["job", "a.b", "job_rank8", "ä ö", "llama 70b (2)", "0", "-"])
def test_files_of_any_name_read_back_as_the_same_ranks(tmp_path, name):
    studio.write(small(), tmp_path, name)
    trace = studio.read(tmp_path)
    assert [rank.number for rank in trace.ranks] == [0, 7]
    assert [group.name for group in trace.groups] == ["tp"]


def test_a_failure_leaves_the_old_file_and_nothing_half_written(tmp_path, monkeypatch):
    studio.write(small(), tmp_path, "job")

    def full(*_: object) -> Iterator[bytes]:
        yield RAW[:3]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(encode.GraphFiles, "write", full)
    with pytest.raises(
        StudioError, match=r"is full: more than 3 B are needed, .*; the 3 B written were removed again"
    ):
        studio.write(small(), tmp_path, "job")
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.0.et", "job.7.et", "job.json"]
    assert (tmp_path / "job.0.et").read_bytes() == RAW


def test_folders_that_were_made_for_files_are_removed_with_them(tmp_path):
    target = tmp_path / "deep" / "deeper" / "job.0.et"

    def interrupted(*others: str) -> None:
        with write_together() as put:
            put(target, [b"all"])
            for name in others:
                (tmp_path / "deep" / name).touch()
            raise KeyboardInterrupt

    for others, left in (((), []), (("mine",), ["deep", "deep/mine"])):
        with pytest.raises(KeyboardInterrupt):
            interrupted(*others)
        assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == left
    with write_together() as put:
        put(target, [b"all"])
    assert target.read_bytes() == b"all"


def test_a_pipe_takes_what_is_written_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with write_together() as put:
            put(pipe, [b"all ", b"of it"])
        assert os.read(reader, 100) == b"all of it"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_device_that_is_full_is_named():
    with pytest.raises(OSError, match="/dev/full"), write_together() as put:
        put(Path("/dev/full"), [b"any"])


def test_progress(tmp_path):
    calls: list[tuple[str, int, int]] = []
    studio.write(small(), tmp_path, "job", progress=lambda *call: calls.append(call))
    assert calls == [("writing", 1, 2), ("writing", 2, 2)]


def test_convert_between_the_forms(tmp_path):
    (tmp_path / "in.3.et").write_bytes(RAW)
    [packed] = run(Request(tmp_path / "in.3.et", tmp_path / "deep" / "out.et.gz")).files
    assert gzip.decompress(packed.read_bytes()) == RAW
    [plain] = run(Request(packed, tmp_path / "out.et")).files
    assert plain.read_bytes() == RAW
    [inside] = run(Request(tmp_path / "in.3.et", tmp_path / "folder", compress=True)).files
    assert inside == tmp_path / "folder" / "in.3.et.gz"


def test_convert_refuses_what_does_not_fit(tmp_path):
    write(small(), tmp_path / "in", "job")
    with pytest.raises(TraceError, match="2 ranks do not fit one file"):
        run(Request(tmp_path / "in", tmp_path / "out.et"))
    write(small(), tmp_path / "in", "other")
    with pytest.raises(TraceError, match="holds 2 jobs"):
        run(Request(tmp_path / "in", tmp_path / "out"))


def test_numbers_take_as_few_bytes_as_protobuf_gives_them():
    numbers = [edge + step for bits in range(7, 63, 7) for edge in [1 << bits] for step in (-1, 0, 1)]
    written = encode.encode_varints(np.array(numbers, np.int64))
    assert [encode.encode_varint(number) for number in numbers] == written
    assert [len(raw) for raw in written] == [-(-number.bit_length() // 7) for number in numbers]
