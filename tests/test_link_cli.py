"""The command link: files written, figures printed, kinds of dependencies left out."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from tests.et.pytorch_files import rank_files, small_rank


@pytest.fixture
def job(tmp_path):
    for number in (0, 1):
        rank_files(tmp_path / "run", number, *small_rank(number, shift_us=5000 * number, pid=7 + number))
    return tmp_path / "run"


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_json_tells_the_figures_of_each_rank(job, tmp_path):
    result = run("link", job, "-o", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["ranks"][0] | {"clock": None} == {
        "rank": 0, "host_operations": 6, "linked": 6, "host_events": 6, "device_operations": 3, "attributed": 3,
        "collectives": {"ALL_REDUCE": {"count": 1, "bytes": 256}}, "clock": None,
    }  # fmt: skip
    assert told["ranks"][1]["clock"]["offset_ns"] == -5_000_000
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["run.0.et", "run.1.et", "run.json"]
    assert studio.read(tmp_path / "out").ranks == studio.read(tmp_path / "out").ranks


def test_text_tells_them_too(job, tmp_path):
    result = run("link", job, "--out", tmp_path / "out")
    assert "ALL_REDUCE 1 (256 B)" in result.output
    assert "files written" in result.output


def test_kinds_of_dependencies_can_be_left_out(job, tmp_path):
    assert (
        run(
            "link", job, "-o", tmp_path / "out", "--without", "call-parent", "--without", "host-gaps"
        ).exit_code
        == 0
    )
    graph = studio.read(tmp_path / "out").graphs[0]
    assert not len(graph.ctrl.rows)
    assert "host gap" not in list(graph.strings)


def test_an_unknown_kind_is_a_usage_error(job, tmp_path):
    result = run("link", job, "-o", tmp_path / "out", "--without", "everything")
    assert result.exit_code == 2
    assert "host-order" in result.output


def test_traces_that_are_linked_already_are_told_so(job, tmp_path):
    run("link", job, "-o", tmp_path / "out")
    result = run("link", tmp_path / "out", "-o", tmp_path / "again")
    assert result.exit_code == 1
    assert "No PyTorch traces found, only: run." in result.output


def test_opening_the_folder_links_it(job):
    told = json.loads(run("info", job, "--json").stdout)
    assert [rank["rank"] for rank in told["ranks"]] == [0, 1]
