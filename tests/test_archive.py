"""Archives are unpacked as far as they can be, what is missing is listed, and nothing is written outside their folder."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import re
import shutil
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from studio.errors import StudioError, TraceFormatError
from studio.et import archive
from studio.et.archive import Limits

FILES = {"job/rank.0.et": b"\x05abcde" * 1000, "job/rank.1.et": b"", "comm groups.json": b"{}"}


def make_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


def make_tar(path: Path, files: Mapping[str, bytes], mode: str = "w", kind: bytes = tarfile.REGTYPE) -> Path:
    # Small blocks, of which many make a short file.
    with tarfile.open(path, mode, **({"compresslevel": 1} if mode == "w:bz2" else {})) as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = "/etc/passwd"
            out.addfile(info, io.BytesIO(data))
    return path


def left_out(files: list[archive.Unpacked]) -> dict[str, str]:
    """Why members did not come out."""
    return {file.name: file.problem for file in files if file.problem}


def contents(files: list[archive.Unpacked]) -> dict[str, bytes]:
    files = [file for file in files if not file.problem]
    assert all(file.size_bytes == file.path.stat().st_size for file in files)
    return {file.name: file.path.read_bytes() for file in files}


def refused(path: Path, **limits: int) -> str:
    """Unpack in vain; nothing may be left. Give the message."""
    into = path.parent / "refused"
    with pytest.raises(TraceFormatError) as caught:
        archive.unpack(path, into, limits=replace(archive.DEFAULT, **limits))
    assert not into.exists()
    assert caught.value.hint
    assert path.name in caught.value.message
    return caught.value.message


MAKERS: dict[str, Callable[[Path, Mapping[str, bytes]], Path]] = {
    "zip": make_zip,
    "tar": make_tar,
    "tar.gz": lambda path, files: make_tar(path, files, "w:gz"),
    "tar.bz2": lambda path, files: make_tar(path, files, "w:bz2"),
    "tar.xz": lambda path, files: make_tar(path, files, "w:xz"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_gives_every_file_whatever_the_archive_is_called(tmp_path: Path, kind: str) -> None:
    path = MAKERS[kind](tmp_path / "meaningless.dat", FILES)
    assert archive.infer_kind(path) == kind
    assert archive.is_archive(path)
    assert contents(archive.unpack(path, tmp_path / "out")) == FILES


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        b"\x08\x0a\x06chakra",
        b"ustar" * 200,
        gzip.compress(b"\x02\x0a\x00" * 5000, mtime=0),
        lzma.compress(b"x"),
        b"\x1f\x8b",
    ],
)
def test_other_files_are_no_archives(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trace.zip"
    path.write_bytes(data)
    assert not archive.is_archive(path)
    assert "not an archive" in refused(path)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.xz"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../evil", "leads out"),
        ("a/../../evil", "leads out"),
        ("..\\evil", "leads out"),
        ("a\\..\\..\\evil", "leads out"),
        ("/etc/passwd", "absolute"),
        ("\\windows\\system.ini", "absolute"),
        ("C:\\evil", "absolute"),
        ("c:evil", "absolute"),
        ("//host/share/evil", "absolute"),
    ],
)
def test_paths_that_lead_out_are_left_out(tmp_path: Path, kind: str, name: str, says: str) -> None:
    files = archive.unpack(
        MAKERS[kind](tmp_path / "a.bin", {"good.et": b"x", name: b"y"}), tmp_path / "in" / "out"
    )
    assert contents(files) == {"good.et": b"x"}
    assert says in left_out(files)[name]
    assert [path.name for path in (tmp_path / "in").rglob("*") if path.is_file()] == ["000001"]
    assert says in refused(MAKERS[kind](tmp_path / "b.bin", {name: b"y"}))


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("second", ["a/x.et", "a//x.et", "./a/x.et", "a\\x.et"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_members_of_one_name_the_last_counts(tmp_path: Path, kind: str, second: str) -> None:
    files = {f"{index}": (name, b"x" * index) for index, name in enumerate(("a/x.et", "y.et", second))}
    path = tmp_path / "a.bin"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for name, data in files.values():
                zipped.writestr(name, data)
    else:
        with tarfile.open(path, "w") as packed:
            for name, data in files.values():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                packed.addfile(info, io.BytesIO(data))
    out = archive.unpack(path, tmp_path / "out")
    assert contents(out) == {"a/x.et": b"xx", "y.et": b"x"}
    assert left_out(out) == {"a/x.et": "an earlier member of this name, which comes again and then counts"}
    assert len(list((tmp_path / "out").iterdir())) == 2


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize(("first", "second"), [("Rank.0.et", "rank.0.et"), ("é", "e\u0301")])
def test_names_that_only_some_systems_take_for_one_are_two(
    tmp_path: Path, kind: str, first: str, second: str
) -> None:
    files = {first: b"1", second: b"2"}
    assert contents(archive.unpack(MAKERS[kind](tmp_path / "a.bin", files), tmp_path / "out")) == files


def test_names_that_are_no_text_stay_apart(tmp_path: Path) -> None:
    files = {os.fsdecode(name): name for name in (b"\xff.0.et", b"\xfe.0.et", b"a\nb")}
    out = contents(archive.unpack(make_tar(tmp_path / "a.tar", files), tmp_path / "out"))
    assert out == {r"\xff.0.et": b"\xff.0.et", r"\xfe.0.et": b"\xfe.0.et", "a\nb": b"a\nb"}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"),
        (tarfile.GNUTYPE_SPARSE, "sparse"),
        (b"Z", "unknown kind"),
    ],
)
def test_tar_members_that_are_no_files_are_left_out(tmp_path: Path, kind: bytes, says: str) -> None:
    assert says in refused(make_tar(tmp_path / "a.tar", {"odd": b""}, kind=kind))
    odd = (tmp_path / "a.tar").read_bytes()[:512]
    with (tmp_path / "b.tar").open("wb") as out:
        out.write(odd + make_tar(tmp_path / "c.tar", FILES).read_bytes())
    files = archive.unpack(tmp_path / "b.tar", tmp_path / "out")
    assert contents(files) == FILES
    assert says in left_out(files)["odd"]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("folder", ["job", "j" * 120])
def test_hard_links_have_the_content_of_the_file_before_them(tmp_path: Path, form: int, folder: str) -> None:
    """Equal ranks that a tool has made one file on the disk are written so by tar; of others nothing is read."""
    source = tmp_path / "source"
    (source / folder).mkdir(parents=True)
    first = source / folder / "rank.0.et"
    first.write_bytes(b"same")
    (source / folder / "rank.1.et").hardlink_to(first)
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as packed:
        for name in ("rank.0.et", "rank.1.et"):
            packed.add(source / folder / name, f"{folder}/{name}")
        for name, target in (("gone", "none"), ("out", "../../etc/passwd"), ("own", "own")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.LNKTYPE, target
            packed.addfile(info)
    files = archive.unpack(tmp_path / "a.tar", tmp_path / "out")
    assert contents(files) == {f"{folder}/rank.0.et": b"same", f"{folder}/rank.1.et": b"same"}
    link = "a hard link to none of the files before it"
    assert left_out(files) == {"gone": link, "out": link, "own": link}


def test_the_map_of_a_sparse_member_is_passed_over(tmp_path: Path) -> None:
    """Old GNU tar writes more of it between header and content."""
    info = tarfile.TarInfo("sparse")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 700
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    more = bytearray(512)
    more[504] = 1
    body = bytes(more) + bytes(512) + b"s" * 700 + bytes(324)
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(header) + body + make_tar(tmp_path / "b.tar", FILES).read_bytes())
    files = archive.unpack(path, tmp_path / "out")
    assert contents(files) == FILES
    assert left_out(files) == {"sparse": "a sparse file"}


def spoil_zip(path: Path, name: str, how: str) -> None:
    """Make a zip of two good files and a bad one."""
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_LZMA if how == "method" else zipfile.ZIP_DEFLATED
    info.external_attr = {"link": stat.S_IFLNK, "device": stat.S_IFCHR}.get(how, 0) << 16
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("good.0.et", b"0")
        out.writestr(info, b"x" * 100)
        out.writestr("good.1.et", b"1")
    data = bytearray(path.read_bytes())
    place, entry = data.index(name.encode()) - 30, data.rindex(name.encode()) - 46
    if how == "encrypted":
        data[place + 6] |= 1
        data[entry + 8] |= 1
    elif how == "checksum":
        data[entry + 16] ^= 1
    elif how == "content":
        data[place + 30 + len(name)] ^= 0xFF
    elif how == "place":
        data[place] ^= 0xFF
    elif how == "bomb":
        data[entry + 24 : entry + 28] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("how", "says", "is_lost"),
    [
        ("link", "a symbolic link", False),
        ("device", "not a plain file", False),
        ("encrypted", "encrypted", False),
        ("method", "packed with method 14 (lzma); stored, deflate and bzip2 are read", False),
        ("bomb", "unpacks to more than 200 times its size", False),
        ("checksum", "damaged (Bad CRC-32", True),
        ("content", "damaged (invalid", True),
        ("place", "damaged (Bad magic number", True),
    ],
)
def test_a_bad_member_of_a_zip_loses_no_other(tmp_path: Path, how: str, says: str, is_lost: bool) -> None:
    spoil_zip(tmp_path / "a.zip", "bad.et", how)
    files = archive.unpack(tmp_path / "a.zip", tmp_path / "out")
    assert contents(files) == {"good.0.et": b"0", "good.1.et": b"1"}
    [bad] = [file for file in files if file.problem]
    assert (bad.name, bad.is_lost) == ("bad.et", is_lost)
    assert says in bad.problem
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_zip_of_bad_members_alone_is_refused_by_the_first(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"secret.et": b"x"})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "'secret.et' is encrypted" in refused(path)


@pytest.mark.parametrize("kind", MAKERS)
def test_refuses_too_many_members_and_too_many_bytes(tmp_path: Path, kind: str) -> None:
    path = MAKERS[kind](tmp_path / "a.bin", {f"{index}": bytes(100) for index in range(50)})
    assert "more than 49 members" in refused(path, members=49)
    assert "more than 4,000 bytes" in refused(path, total_bytes=4000)


@pytest.mark.parametrize("kind", ["zip", "tar.bz2"])
def test_bzip2_is_inflated_piece_by_piece(tmp_path: Path, kind: str) -> None:
    """A few hundred bytes of it hold gigabytes; no more than a piece may be in memory at once."""
    path = tmp_path / "bomb"
    zeros = {"zeros": bytes(66 << 20)}
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as out:
            out.writestr("zeros", zeros["zeros"])
    else:
        make_tar(path, zeros, "w:bz2")
    del zeros
    assert path.stat().st_size < 1000
    tracemalloc.start()
    try:
        assert "times its size" in refused(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_bzip2_in_a_zip_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as out:
        for name, data in FILES.items():
            out.writestr(name, data)
    assert contents(archive.unpack(path, tmp_path / "out")) == FILES
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 16  # the checksum that the directory gives of the last file
    content[at] ^= 1
    path.write_bytes(content)
    files = archive.unpack(path, tmp_path / "bad")
    *good, last = FILES
    assert contents(files) == {name: FILES[name] for name in good}
    assert "Bad CRC-32" in left_out(files)[last]


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_refuses_a_bomb_by_what_comes_out(tmp_path: Path, kind: str) -> None:
    path = MAKERS[kind](tmp_path / "bomb.bin", {"zeros": bytes(3 << 20)})
    assert "200 times its size" in refused(path, ratio_from_bytes=1 << 20)
    assert archive.unpack(path, tmp_path / "out")[0].size_bytes == 3 << 20


def test_xz_may_pack_equal_ranks_as_tightly_as_it_can(tmp_path: Path) -> None:
    rank = random.Random(1).randbytes(10_000)
    path = MAKERS["tar.xz"](tmp_path / "a.txz", {f"r.{index}.et": rank for index in range(400)})
    assert path.stat().st_size * 200 < 400 * len(rank)
    out = archive.unpack(path, tmp_path / "out", limits=replace(archive.DEFAULT, ratio_from_bytes=1))
    assert len(out) == 400


def test_declared_size_is_not_believed(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"x": bytes(1 << 20)})
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    path.write_bytes(data)
    refused(path, total_bytes=1000)


def test_a_zip_directory_that_claims_gigabytes_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    end = b"PK\x05\x06" + bytes(4) + b"\x01\x00\x01\x00" + (90 << 20).to_bytes(4, "little") + bytes(6)
    with path.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(90 << 20)
        file.write(end)
    assert "directory claims" in refused(path, members=1000)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_tar_name_that_claims_gigabytes_is_not_loaded(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.size, info.type = 1 << 33, kind
    with gzip.open(tmp_path / "a.tgz", "wb") as out:
        out.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    assert "claims 8,589,934,592 bytes" in refused(tmp_path / "a.tgz")


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_of_every_tar_dialect(tmp_path: Path, kind: int) -> None:
    name = "d" * 90 + "/" + "f" * 90 if kind == tarfile.USTAR_FORMAT else "folder/" * 60 + "ränk.0.et"
    with tarfile.open(tmp_path / "a.tar", "w", format=kind) as out:
        info = tarfile.TarInfo(name)
        info.size = 3
        out.addfile(info, io.BytesIO(b"abc"))
    assert contents(archive.unpack(tmp_path / "a.tar", tmp_path / "out")) == {name: b"abc"}


@pytest.mark.parametrize("kind", MAKERS)
def test_archives_cut_within_their_first_file_leave_nothing(tmp_path: Path, kind: str) -> None:
    whole = MAKERS[kind](tmp_path / "whole", {"a.et": random.Random(2).randbytes(5000)}).read_bytes()
    path = tmp_path / "cut.bin"
    for length in (600, len(whole) // 2, 3000):
        path.write_bytes(whole[:length])
        refused(path)


def ranks(count: int = 3) -> dict[str, bytes]:
    """Files that hardly compress, longer than what is inflated at once."""
    return {f"job/rank.{index}.et": random.Random(index).randbytes(100_000) for index in range(count)}


def change(path: Path, kind: str, edit: Callable[[bytearray], bytes | bytearray]) -> Path:
    """Edit what is in a tar, and pack it as before."""
    pack = {"tar": bytes, "tar.gz": gzip.compress, "tar.bz2": bz2.compress, "tar.xz": lzma.compress}[kind]
    plain = make_tar(path, ranks()).read_bytes()
    path.write_bytes(pack(edit(bytearray(plain))))
    return path


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_whole_members_before_a_cut_come_out(tmp_path: Path, kind: str) -> None:
    path = MAKERS[kind](tmp_path / "job", ranks())
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 5 // 6])
    files = archive.unpack(path, tmp_path / "out")
    out = contents(files)
    assert out == {name: data for name, data in ranks().items() if name in out}
    cut, rest = files[len(out) :]
    assert cut.name == f"job/rank.{len(out)}.et"
    assert re.fullmatch(r"cut off after [\d,]+ of 100,000 bytes", cut.problem)
    assert rest.name == ""
    assert rest.problem == f"whatever came behind {cut.name}, where the archive is cut off"
    assert cut.is_lost
    assert rest.is_lost
    assert len(list((tmp_path / "out").iterdir())) == len(out) > 0


# A member of 100,000 bytes takes 100,864 with its header: each of them is cut within the header, in the content, at its end.
@pytest.mark.parametrize(
    ("length", "says"),
    [
        (100_864 * 2 + 100, ["whatever came behind job/rank.1.et, where the archive is cut off"]),
        (100_864 * 2 - 10, ["whatever came behind job/rank.1.et, where the archive ends without its mark"]),
        (100_864 * 2, ["whatever came behind job/rank.1.et, where the archive ends without its mark"]),
        (
            100_864 * 2 + 612,
            [
                "cut off after 100 of 100,000 bytes",
                "whatever came behind job/rank.2.et, where the archive is cut off",
            ],
        ),
        (100_864 * 3 + 512, []),
    ],
)
def test_a_cut_is_noticed_wherever_it_is(tmp_path: Path, length: int, says: list[str]) -> None:
    path = change(tmp_path / "job.tar", "tar", lambda data: data[:length])
    files = archive.unpack(path, tmp_path / "out")
    whole = min(3, (length + 352) // 100_864)
    assert contents(files) == ranks(whole)
    problems = [file.problem for file in files if file.problem]
    assert [problem.startswith(words) for problem, words in zip(problems, says, strict=True)] == [True] * len(
        says
    )


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_members_behind_a_damaged_header_come_out(tmp_path: Path, kind: str) -> None:
    def spoil(data: bytearray) -> bytearray:
        data[100_864 + 150] ^= 0xFF
        return data

    files = archive.unpack(change(tmp_path / "job", kind, spoil), tmp_path / "out")
    assert contents(files) == {name: data for name, data in ranks().items() if "1" not in name}
    assert left_out(files) == {
        "": "100,864 bytes behind job/rank.0.et, where the header of a member is damaged"
    }


def test_a_damaged_stream_gives_what_came_before(tmp_path: Path) -> None:
    path = MAKERS["tar.bz2"](tmp_path / "job", ranks(8))
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 0xFF
    path.write_bytes(data)
    files = archive.unpack(path, tmp_path / "out")
    out = contents(files)
    *sure, _doubtful = out
    assert sure
    assert {name: out[name] for name in sure} == {name: ranks(8)[name] for name in sure}
    *_, rest = left_out(files).values()
    assert "where the archive is damaged (" in rest
    assert rest.endswith(", and what came shortly before may be wrong")


def test_a_wrong_checksum_of_the_whole_is_told(tmp_path: Path) -> None:
    path = MAKERS["tar.gz"](tmp_path / "job", ranks())
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    files = archive.unpack(path, tmp_path / "out")
    assert contents(files) == ranks()
    [end] = [file for file in files if file.problem]
    assert "incorrect data check), so that any of the files may be wrong" in end.problem
    assert end.is_lost
    data[-8] ^= 1
    path.write_bytes(data[:-4])
    [end] = [file for file in archive.unpack(path, tmp_path / "cut") if file.problem]
    assert end.problem == "the end of the compressed data behind the last file: it is cut off"
    assert not end.is_lost


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
@pytest.mark.parametrize(
    ("behind", "count"), [(bytes(5000), 0), (b"rubbish", 7), (bytes(700) + b"rubbish", 7)]
)
def test_what_lies_behind_the_end_is_ignored_and_told(
    tmp_path: Path, kind: str, behind: bytes, count: int
) -> None:
    path = MAKERS[kind](tmp_path / "job", FILES)
    path.write_bytes(path.read_bytes() + behind)
    files = archive.unpack(path, tmp_path / "out")
    assert contents(files) == FILES
    told = [file.problem for file in files if file.problem]
    if count and kind == "tar":
        assert [problem.endswith(" behind the end of the archive") for problem in told] == [True]
    else:
        assert told == [f"{count} bytes behind the end of the compressed data"] * bool(count)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_a_tar_that_was_appended_to_another_comes_out_too(tmp_path: Path, kind: str) -> None:
    first = MAKERS[kind](tmp_path / "first", {"a.et": b"a"}).read_bytes()
    second = MAKERS[kind](tmp_path / "second", {"b.et": b"b"}).read_bytes()
    (tmp_path / "both").write_bytes(first + second)
    files = archive.unpack(tmp_path / "both", tmp_path / "out")
    assert contents(files) == {"a.et": b"a", "b.et": b"b"}
    assert not left_out(files)


def test_no_more_than_a_little_is_looked_at_behind_the_end(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "job.tar", FILES)
    end = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"r" * (3 << 20))
    files = archive.unpack(
        path, tmp_path / "out", limits=replace(archive.DEFAULT, total_bytes=end + (2 << 20))
    )
    assert contents(files) == FILES
    assert left_out(files)[""].endswith(" bytes or more behind the end of the archive")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_cut_zip_says_what_it_is_and_what_to_do(tmp_path: Path, kind: str) -> None:
    path = make_zip(tmp_path / "a.zip", ranks())
    path.write_bytes(path.read_bytes()[:-100])
    if kind == "tar":
        path = make_tar(tmp_path / "outer.tar", {"a.zip": path.read_bytes(), **FILES})
        files = archive.unpack(path, tmp_path / "out")
        assert "the list of its files is missing" in left_out(files)["a.zip"]
        assert contents(files) == FILES
    else:
        assert "it is cut off, as the list of its files is missing" in refused(path)


@pytest.mark.parametrize("kind", MAKERS)
def test_damaged_archives_give_files_or_a_format_error(tmp_path: Path, kind: str) -> None:
    whole = MAKERS[kind](tmp_path / "whole", FILES).read_bytes()
    path, luck = tmp_path / "damaged.bin", random.Random(3)
    outcomes = set()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(luck.randint(1, 8)):
            data[luck.randrange(len(data))] = luck.randrange(256)
        path.write_bytes(data)
        try:
            archive.unpack(path, tmp_path / "out")
            outcomes.add("files")
        except TraceFormatError:
            outcomes.add("refused")
            assert not (tmp_path / "out").exists()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert "refused" in outcomes


def test_one_level_of_nesting_is_unpacked_two_are_refused(tmp_path: Path) -> None:
    inner = make_zip(tmp_path / "inner.zip", FILES).read_bytes()
    middle = make_tar(tmp_path / "middle.tgz", {"sub/inner.zip": inner, "top.et": b"t"}, "w:gz")
    expected = {f"sub/inner.zip/{name}": data for name, data in FILES.items()} | {"top.et": b"t"}
    assert contents(archive.unpack(middle, tmp_path / "fine")) == expected
    assert len(list((tmp_path / "fine").iterdir())) == len(expected)
    outer = make_zip(tmp_path / "outer.zip", {"middle.tgz": middle.read_bytes()})
    files = archive.unpack(outer, tmp_path / "deep")
    assert contents(files) == {"middle.tgz/top.et": b"t"}
    assert "in an archive in an archive" in left_out(files)["middle.tgz/sub/inner.zip"]


@pytest.mark.parametrize(
    ("name", "says"), [("cut.zip", "damaged"), ("out.zip", "leads out"), ("none.zip", "holds no file")]
)
def test_an_inner_archive_that_is_refused_loses_no_other_file(tmp_path: Path, name: str, says: str) -> None:
    inner = make_zip(tmp_path / "inner.zip", FILES).read_bytes()
    bad = {
        "cut.zip": inner[:-30],
        "out.zip": make_zip(tmp_path / "out.zip", {"../x": b""}).read_bytes(),
        "none.zip": make_zip(tmp_path / "none.zip", {}).read_bytes(),
    }
    outer = make_zip(tmp_path / "outer.zip", {"a.zip": inner, name: bad[name], **FILES})
    *good, last = sorted(archive.unpack(outer, tmp_path / "all"), key=lambda file: bool(file.problem))
    assert contents(good) == FILES | {f"a.zip/{path}": data for path, data in FILES.items()}
    assert (last.name, last.path.read_bytes()) == (name, bad[name])
    assert says in last.problem
    assert not any(file.problem for file in good)
    # Nothing of it is left but the archive itself.
    assert len(list((tmp_path / "all").iterdir())) == len(good) + 1
    if name == "cut.zip":
        assert "outer.zip/cut.zip" in refused(make_zip(tmp_path / "outer.zip", {name: bad[name]}))


def test_a_bad_member_of_an_inner_archive_loses_no_other(tmp_path: Path) -> None:
    inner = make_tar(tmp_path / "inner.tar", ranks()).read_bytes()[: 100_864 * 2 + 1000]
    odd = make_zip(tmp_path / "odd.zip", FILES | {"../x": b""}).read_bytes()
    files = archive.unpack(
        make_zip(tmp_path / "outer.zip", {"in.tar": inner, "odd.zip": odd, "c.et": b"c"}), tmp_path / "out"
    )
    expected = {f"in.tar/{name}": data for name, data in ranks(2).items()} | {"c.et": b"c"}
    assert contents(files) == expected | {f"odd.zip/{name}": data for name, data in FILES.items()}
    assert list(left_out(files)) == ["in.tar/job/rank.2.et", "in.tar", "odd.zip/../x"]


def test_all_archives_that_are_opened_at_once_share_a_room(tmp_path: Path) -> None:
    paths = [make_zip(tmp_path / f"{index}.zip", {"zeros": bytes(1000)}) for index in range(4)]
    for room in (archive.Room(members=2), archive.Room(total_bytes=2999)):
        for path in paths[:2]:
            archive.unpack(path, tmp_path / f"{room.total_bytes}{path.name}", room=room)
        for path, says in zip(
            paths[2:], ("opened at once would come to", "the archives before it"), strict=True
        ):
            with pytest.raises(TraceFormatError, match=rf"\d\.zip: not unpacked, as .*{says}") as caught:
                archive.unpack(path, tmp_path / "full", room=room)
            assert caught.value.hint
            assert not (tmp_path / "full").exists()


def test_an_archive_that_is_refused_takes_no_room_of_others(tmp_path: Path) -> None:
    room, small = archive.Room(total_bytes=1500), replace(archive.DEFAULT, total_bytes=1500)
    with pytest.raises(TraceFormatError, match="unpacks to more than 1,500 bytes"):
        archive.unpack(
            make_zip(tmp_path / "a.zip", {"zeros": bytes(2000)}), tmp_path / "a", limits=small, room=room
        )
    archive.unpack(
        make_zip(tmp_path / "b.zip", {"zeros": bytes(1000)}), tmp_path / "b", limits=small, room=room
    )


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("body", [b"x" * 100_000, b"17 nonsense", b"99 path=x\n"])
def test_an_odd_extended_header_loses_no_other_member(tmp_path: Path, kind: bytes, body: bytes) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as out:
        for name, data in FILES.items():
            if name == "comm groups.json":
                header = tarfile.TarInfo("header")
                header.type, header.size = kind, len(body)
                out.addfile(header, io.BytesIO(body))
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    files = archive.unpack(path, tmp_path / "out")
    assert FILES.items() - contents(files).items() <= {("comm groups.json", b"{}")}
    if kind == tarfile.XHDTYPE:
        assert "extended header" in left_out(files)["comm groups.json"]
    elif kind == tarfile.XGLTYPE:
        assert contents(files) == FILES


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2"])
def test_an_archive_that_is_cut_soon_is_still_called_one(tmp_path: Path, mode: str) -> None:
    """Of a stream that ends before a whole piece of it is there nothing was had, so it was binary data."""
    whole = make_tar(tmp_path / "job", {"rank.0.et": random.Random(0).randbytes(40_000)}, mode)
    whole.write_bytes(whole.read_bytes()[:20_000])
    if mode == "w:gz":
        assert "damaged" in refused(whole)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_longer_than_any_path_are_refused_and_not_repeated(tmp_path: Path, kind: str) -> None:
    message = refused(MAKERS[kind](tmp_path / "job", {"x" * 60_000: b""}))
    assert "named by 60,000 characters" in message
    assert len(message) < 500


def test_nested_archives_share_the_limits(tmp_path: Path) -> None:
    inner = make_zip(tmp_path / "inner.zip", {"zeros": bytes(100_000)}).read_bytes()
    outer = make_zip(tmp_path / "outer.zip", {f"{index}.zip": inner for index in range(10)})
    assert "more than 950,000 bytes" in refused(outer, total_bytes=950_000)
    assert "more than 15 members" in refused(outer, members=15)


def test_what_file_managers_leave_is_left_out(tmp_path: Path) -> None:
    litter = {"__MACOSX/job/._rank.0.et": b"m", "job/.DS_Store": b"d", "Thumbs.db": b"t"}
    path = make_zip(tmp_path / "a.zip", FILES | litter)
    assert contents(archive.unpack(path, tmp_path / "out")) == FILES
    assert "holds no file" in refused(make_zip(tmp_path / "b.zip", litter))


def test_folders_of_an_archive_are_no_files(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as out:
        folder = tarfile.TarInfo("job")
        folder.type = tarfile.DIRTYPE
        out.addfile(folder)
        out.addfile(tarfile.TarInfo("job/x.et"))
    assert contents(archive.unpack(tmp_path / "a.tar", tmp_path / "out")) == {"job/x.et": b""}


def test_hostile_names_are_only_data(tmp_path: Path) -> None:
    names = ["<img src=x onerror=alert(1)>.0.et", "CON", "a\nb", "x" * 300, "\u202egpj.et"]
    files = archive.unpack(make_zip(tmp_path / "a.zip", dict.fromkeys(names, b"x")), tmp_path / "out")
    assert [file.name for file in files] == names
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"{index:06d}" for index in range(1, 6)
    ]


def test_a_full_disk_is_said_before_it_is_full(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", FILES)
    with pytest.raises(
        StudioError,
        match=r"the disk of .*out is full: at least .* are needed, .* are free; the .* removed again",
    ):
        archive.unpack(path, tmp_path / "out", limits=replace(archive.DEFAULT, spare_bytes=1 << 60))
    assert not (tmp_path / "out").exists()


def test_cancelling_leaves_nothing(tmp_path: Path) -> None:
    asked = iter([False, True])
    with pytest.raises(archive.UnpackCancelled):
        archive.unpack(make_zip(tmp_path / "a.zip", FILES), tmp_path / "out", cancelled=lambda: next(asked))
    assert not (tmp_path / "out").exists()


def test_files_that_were_there_stay(tmp_path: Path) -> None:
    into = tmp_path / "out"
    into.mkdir()
    (into / "mine").write_bytes(b"mine")
    with pytest.raises(TraceFormatError):
        archive.unpack(make_zip(tmp_path / "a.zip", {"a": b"", "b": b""}), into, limits=Limits(members=1))
    assert [path.name for path in into.iterdir()] == ["mine"]
