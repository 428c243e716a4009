"""The Validate page: what is kept, what is drawn, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from studio.calibration.judging import judge_all
from studio.calibration.reading.csv_tables import write_csv
from studio.calibration.reading.files import read_tables
from studio.calibration.reading.given import Given
from studio.calibration.tables import MeasuredTable
from studio.errors import StudioError
from studio.figures.validation import draw_measured_and_simulated
from studio.pages.validate.words import build_size_table, describe_errors, label_tables
from studio.store.measured import Shelf


def table(collective="all_reduce", gpus=8, nodes=1, sizes=8) -> MeasuredTable:
    size = 2.0 ** np.arange(10, 10 + 2 * sizes, 2)
    return MeasuredTable(
        f"some_n{nodes}_g{gpus}_{collective}", "made up", "NVIDIA H100 80GB HBM3", gpus, nodes, "", float("nan"), "",
        collective, "float", size, 20 + size / 2e5, "some",
    )  # fmt: skip


def test_files_are_kept_under_their_names_and_read_again(tmp_path):
    shelf = Shelf(tmp_path)
    name = shelf.keep({"my log.csv": write_csv([table()]).encode()}, Given()).tables
    assert shelf.tables() == [name] == ["my_log"]
    [kept] = shelf.read(name).tables
    assert kept.time_us.tolist() == table().time_us.tolist()
    shelf.delete(name)
    assert shelf.tables() == []


def test_nothing_is_kept_of_files_that_are_no_tables(tmp_path):
    shelf = Shelf(tmp_path)
    added = shelf.keep({"b.txt": b"hello"}, Given())
    assert (added.tables, [error.message for error in added.refused]) == ("", ["b.txt: no measured times."])
    with pytest.raises(StudioError, match=r"\.\./x"):
        shelf.read("../x")
    assert shelf.tables() == []


def test_files_that_are_no_tables_take_no_others_with_them(tmp_path):
    """Tables and systems beside them are kept, and each that is not is told with its reason."""
    shelf = Shelf(tmp_path)
    files = {
        "b.txt": b"hello",
        "z.csv": write_csv([table()]).encode(),
        "wrong.csv": b"size,time_us\n8,-1\n",
        "a.csv": write_csv([table("all_gather")]).encode(),
    }
    added = shelf.keep(files, Given())
    assert [error.message.partition(":")[0] for error in added.refused] == ["b.txt", "wrong.csv"]
    assert (added.tables, shelf.tables()) == ("z", ["z"])
    assert [each.collective for each in shelf.read("z").tables] == ["all_reduce", "all_gather"]


def test_no_file_is_read_twice_where_another_is_refused(tmp_path, monkeypatch):
    handed: list[str] = []

    def count(paths, *given):
        handed.extend(path.name for path in paths)
        return read_tables(paths, *given)

    monkeypatch.setattr("studio.store.measured.read_tables", count)
    files = {
        "z.csv": write_csv([table()]).encode(),
        "wrong.csv": b"size,time_us\n8,-1\n",
        "a.csv": write_csv([table(), table("all_gather")]).encode(),
        "rank0.json": b'{"schemaVersion": 1, "traceEvents": []}',
    }
    added = Shelf(tmp_path).keep(files, Given())
    assert sorted(handed) == sorted(files)
    monkeypatch.undo()
    assert {error.message.partition(":")[0] for error in added.refused} == {"wrong.csv", "recording"}
    names = [each.table_id for each in Shelf(tmp_path).read("z").tables]
    assert len({*names}) == len(names) == 3


def test_marks_are_measured_lines_simulated_and_residuals_below():
    judged, _ = judge_all([table(), table("all_gather")], "hgx-h100")
    figure = draw_measured_and_simulated(judged, label_tables(judged), corrected=True, dark=False)
    line, marks, residual = figure.data[:3]
    assert marks.mode == "markers"
    assert list(marks.y) == pytest.approx(list(table().time_us / 1e6))
    assert list(line.y) == pytest.approx(list(judged[0].simulated_us / 1e6))
    assert residual.yaxis == "y2"
    expected = np.clip(judged[0].simulated_us / judged[0].table.time_us - 1, -1, 1)
    assert list(residual.y) == pytest.approx(list(expected))
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_the_axis_of_errors_is_as_tall_as_they_are():
    [judged], _ = judge_all([table()], "hgx-h100")
    for error, ticks in (
        (0.1, ["−20 %", "−10 %", "0 %", "+10 %", "+20 %"]),
        (0.3, ["−50 %", "−25 %", "0 %", "+25 %", "+50 %"]),
        (3.0, ["−100 %", "−50 %", "0 %", "+50 %", "+100 %"]),
    ):
        off = judged.table.time_us * (1 + error)
        shown = [replace(judged, simulated_us=off, uncorrected_us=off)]
        figure = draw_measured_and_simulated(shown, label_tables(shown), corrected=True, dark=False)
        assert list(figure.layout.yaxis2.ticktext) == ticks


def test_tables_of_equal_setup_are_told_apart_and_both_measures_named():
    judged, _ = judge_all([table(), table("all_gather", 4, 2)], "hgx-h100")
    assert label_tables(judged) == ["all-reduce · 8 GPUs", "all-gather · 2 × 4 GPUs"]
    assert len(set(label_tables([judged[0], judged[0]]))) == 1
    assert "gm|e|" in describe_errors(judged, corrected=True)
    assert "GMF" in describe_errors(judged, corrected=True)
    assert len(build_size_table(judged).rows) == 16
