"""Files that are copies of another one, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import studio
from tests.et.link.test_link import rank_files, small_rank


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks; each file says of which process it is, and device traces of which rank."""
    for number in (0, 1):
        rank_files(tmp_path, number, *small_rank(number, shift_us=0, pid=7 + number))
    return tmp_path


def _left_out(folder: Path) -> tuple[list[int], list[str]]:
    trace = studio.read(folder)
    said = [one.message for one in trace.findings if one.code == "ignored-file"]
    return [rank.number for rank in trace.ranks], [one.replace(f"{folder.name}/", "") for one in said]


@pytest.mark.parametrize("number", [2, 5])
def test_a_copy_that_is_named_like_another_rank_is_left_out_with_its_host_trace(folder: Path, number: int):
    """Its content says the rank; the copy is the file whose name says another one."""
    hosts = sorted(path.name for path in folder.iterdir() if "kineto" not in path.name)
    for name in ("kineto_1.json", hosts[1]):
        shutil.copy(folder / name, folder / name.replace("1", str(number)))
    assert _left_out(folder) == (
        [0, 1],
        [
            f"{name.replace('1', str(number))}: the same file as {name}, byte for byte, left out."
            for name in ("kineto_1.json", hosts[1])
        ],
    )


def test_a_copy_beside_its_original_makes_no_job_of_its_own(folder: Path):
    for path in list(folder.iterdir()):
        if "_1" in path.name:
            shutil.copy(path, folder / path.name.replace("_1", "_1_copy"))
    ranks, said = _left_out(folder)
    assert ranks == [0, 1]
    assert len(said) == 2
    assert all("byte for byte" in one for one in said)


def test_a_copy_of_a_whole_folder_is_a_job_of_its_own(folder: Path, tmp_path_factory):
    both = tmp_path_factory.mktemp("both")
    for name in ("a", "b"):
        shutil.copytree(folder, both / name)
    with pytest.raises(studio.TraceError, match="2 jobs found"):
        studio.read(both)
