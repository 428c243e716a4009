"""Archives are unpacked completely or not at all, and never outside their folder."""

from __future__ import annotations

import gzip
import io
import lzma
import random
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

FILES = {"job/rank.0.et": b"\x05abcde" * 1000, "job/rank.1.et": b"", "comm groups.json": b"{}"}


def make_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


def make_tar(path: Path, files: Mapping[str, bytes], mode: str = "w", kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, mode) as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = "/etc/passwd"
            out.addfile(info, io.BytesIO(data))
    return path


def contents(files: list[archive.Unpacked]) -> dict[str, bytes]:
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
def test_refuses_paths_that_lead_out(tmp_path: Path, kind: str, name: str, says: str) -> None:
    path = MAKERS[kind](tmp_path / "a.bin", {"good.et": b"x", name: b"y"})
    assert says in refused(path)


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a/x.et", "a//x.et"),
        ("a/x.et", "./a/x.et"),
        ("a/x.et", "a\\x.et"),
        ("Rank.0.et", "rank.0.et"),
        ("é", "e\u0301"),
    ],
)
def test_refuses_two_members_of_one_name(tmp_path: Path, kind: str, first: str, second: str) -> None:
    assert "the same file" in refused(MAKERS[kind](tmp_path / "a.bin", {first: b"1", second: b"2"}))


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
def test_refuses_tar_members_that_are_no_files(tmp_path: Path, kind: bytes, says: str) -> None:
    assert says in refused(make_tar(tmp_path / "a.tar", {"ok": b""}, kind=kind))


@pytest.mark.parametrize(
    ("mode", "says"), [(stat.S_IFLNK, "symbolic link"), (stat.S_IFCHR, "not a plain file")]
)
def test_refuses_zip_members_that_are_no_files(tmp_path: Path, mode: int, says: str) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (mode | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        out.writestr(info, "/etc/passwd")
    assert says in refused(tmp_path / "a.zip")


def test_refuses_encrypted_zip_by_name(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", {"secret.et": b"x"})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "'secret.et' is encrypted" in refused(path)


def test_refuses_zip_methods_by_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as out:
        out.writestr("x.et", b"x" * 100)
    assert "method 14 (lzma)" in refused(tmp_path / "a.zip")


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
    assert "damaged" in refused(path)


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
def test_cut_archives_leave_nothing(tmp_path: Path, kind: str) -> None:
    whole = MAKERS[kind](tmp_path / "whole", {"a.et": random.Random(2).randbytes(5000)}).read_bytes()
    path = tmp_path / "cut.bin"
    for length in (600, len(whole) // 2, 3000):
        path.write_bytes(whole[:length])
        refused(path)


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
    assert "in an archive in an archive" in refused(outer)


@pytest.mark.parametrize(
    ("name", "says"),
    [("cut.zip", "damaged"), ("out.zip", "leads out"), ("middle.tgz", "in an archive in an archive")],
)
def test_an_inner_archive_that_is_refused_loses_no_other_file(tmp_path: Path, name: str, says: str) -> None:
    inner = make_zip(tmp_path / "inner.zip", FILES).read_bytes()
    bad = {
        "cut.zip": inner[:-30],
        "out.zip": make_zip(tmp_path / "out.zip", FILES | {"../x": b""}).read_bytes(),
        "middle.tgz": make_tar(tmp_path / "middle.tgz", FILES | {"inner.zip": inner}, "w:gz").read_bytes(),
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
        archive.unpack(make_zip(tmp_path / "a.zip", {"a": b"", "../b": b""}), into)
    assert [path.name for path in into.iterdir()] == ["mine"]
