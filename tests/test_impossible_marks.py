"""An answer that no such network could give is marked wherever it is listed, and is never the best while there are others.

One all-reduce of 1 GiB on 8 GPUs. In ASTRA-sim's model messages pass a port at the same time, as many as there are: a direct
all-reduce is then seven times as fast as the ports allow, a ring in one chunk is not.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from studio.advice.advice import advise
from studio.advice.words import as_data, format_advice
from studio.et import write
from studio.pages.sweep.results import _describe_doubtful
from studio.sim import simulate
from studio.sim.doubts import doubts_of
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.setting_edits import with_settings
from studio.sweep.analysis import (
    compute_importance,
    select_believed,
    select_best,
    select_doubted,
    select_front,
)
from studio.sweep.running import Row
from studio.sweep.search import Target, choose_cheapest
from studio.sweep.space import Axis, Space
from studio.sweep.sweep import Sweep, Swept
from studio.sweep.systems import Base
from studio.sweep.tables import read_rows, write_columns, write_parquet
from tests.handmade import collective, trace_of
from tests.test_cli import run

ASTRA = ("--preset", "hgx-h100", "--model", "astra-sim")
SPLITS, DIRECT = "preferred-dataset-splits=1", "all-reduce-implementation=[direct]"
BEYOND = "More was sent than the ports can carry"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "big8"
    write(trace_of([[collective(1, "ALL_REDUCE", 1 << 30)]] * 8), folder, "big8")
    return folder


def said(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_sweep_marks_points_and_ranks_them_last(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    vary = ("--set", SPLITS, "--set", "all-reduce-implementation=[ring],[direct]", "-o", out)
    told = said("sweep", job, *ASTRA, *vary)
    assert f"1 point is IMPOSSIBLE, such as point 1: {BEYOND}" in told
    first, second = told.partition("least finish\n")[2].splitlines()[:2]
    assert "[ring]" in first
    assert "IMPOSSIBLE" not in first
    assert "IMPOSSIBLE" in second
    assert "[direct]" in second
    found = json.loads(said("sweep", job, *ASTRA, *vary, "--json"))
    assert found["doubted"] == 1
    assert [one["doubt"] is None for one in found["best"]] == [True, False]
    table = pd.read_parquet(out)
    assert table["finish_ns"][1] < table["finish_ns"][0]
    assert table["doubt"].isna().tolist() == [True, False]
    assert [bool(row.doubt) for row in read_rows(out)] == [False, True]
    only = said("sweep", job, *ASTRA, "--set", DIRECT, "-o", tmp_path / "y.parquet")
    assert "every point is IMPOSSIBLE" in only
    assert "ranked last" not in only


def test_points_that_are_not_believed_decide_nothing() -> None:
    """Neither the front, nor what a bisection looks for, nor which setting matters; where none is believed all are ranked."""
    beyond = [
        Row(0, 9, cost=2.0),
        Row(1, 7, cost=3.0),
        Row(2, 1, cost=1.0, doubt="beyond"),
        Row(3, error="no"),
    ]
    space = Space((Axis("a", ("1", "2")), Axis("b", ("1", "2"))))
    assert [row.index for row in select_best(beyond, 9)] == [1, 0, 2]
    assert [row.index for row in select_front(beyond)] == [0, 1]
    found = choose_cheapest(beyond, {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}, Target("b", 10))
    assert found is not None
    assert found.index == 0
    assert {one.key: one.share for one in compute_importance(space, beyond)} == {"a": 0.0, "b": 1.0}
    all_of_them = [replace(row, doubt="beyond") for row in beyond[:3]]
    assert select_believed(all_of_them) == select_doubted(all_of_them) == all_of_them
    assert [row.index for row in select_front(all_of_them)] == [2]


def test_results_of_earlier_releases_have_no_doubts(tmp_path: Path) -> None:
    from pyarrow import parquet

    path, space = tmp_path / "x.parquet", Space((Axis("a", ("1",)),))
    write_parquet(path, space, [Row(0, 5, doubt="beyond", doubtful={"long-ring": "Long."})])
    assert read_rows(path) == [Row(0, 5, doubt="beyond", doubtful={"long-ring": "Long."})]
    table = parquet.read_table(path)
    old = {name: table.column(name) for name in table.column_names if not name.startswith("doubt")}
    write_columns(path, old)
    assert [(row.finish_ns, row.doubt, row.doubtful) for row in read_rows(path)] == [(5, "", {})]


def test_sweep_tells_each_doubt_once_with_its_points(tmp_path: Path) -> None:
    """The costs of MI300X were fitted to whole nodes, those of H100 to two ranks too."""
    job, out = tmp_path / "job", tmp_path / "x.parquet"
    pairs = {str(pair): [2 * pair, 2 * pair + 1] for pair in range(4)}
    reduces = [[collective(1, "ALL_REDUCE", 1 << 20, group=str(rank // 2))] for rank in range(8)]
    write(trace_of(reduces, groups=pairs), job, "job")
    vary = ("--set", "preset=hgx-h100,mi300x", "--set", "latency[0]=500,700", "-o", out)
    told = said("sweep", job, *vary)
    words = "2 of 4 points (2–3): 4 of 4 collectives are extrapolated: the costs were fitted to"
    assert told.count(words) == told.count("extrapolated") == 1
    assert [line.count("DOUBTFUL") for line in told.splitlines() if "preset=" in line] == [0, 0, 1, 1]
    data = json.loads(said("sweep", job, *vary, "--json"))
    [doubtful] = data["doubtful"]
    assert (doubtful["code"], doubtful["points"]) == ("extrapolated", [2, 3])
    rows = read_rows(out)
    assert [list(row.doubtful) for row in rows] == [[], [], ["extrapolated"], ["extrapolated"]]
    space = Space((Axis("preset", ("hgx-h100", "mi300x")), Axis("latency[0]", ("500", "700"))))
    [finding] = Swept(Sweep(space, Base()), tuple(rows)).findings
    assert (finding.level, finding.code) == ("warning", "extrapolated")
    assert finding.message.startswith(words)
    [line] = _describe_doubtful(rows)
    assert line.children == f"Doubtful: {finding.message}"


def test_suite_marks_cases_and_scores(job: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite.toml"
    plain = 'preset = "hgx-h100"\nmodel = "astra-sim"\nset = { preferred-dataset-splits = 1, all-reduce-implementation = "[%s]" }\n'
    suite.write_text(
        'name = "s"\nreference = "ring"\n[jobs.one]\npath = "big8"\n'
        f"[systems.ring]\n{plain % 'ring'}[systems.direct]\n{plain % 'direct'}"
    )
    told = said("suite", suite, "-o", tmp_path / "results")
    assert f"IMPOSSIBLE: one on direct: {BEYOND}" in told
    scored = told.partition("score")[2].splitlines()
    assert [line.endswith("IMPOSSIBLE in 1 of them") for line in scored[1:3]] == [False, True]
    kept = json.loads((tmp_path / "results" / "suite.json").read_text())
    assert [case["result"]["impossible"].startswith(BEYOND) for case in kept["cases"]] == [False, True]
    assert [score["impossible"] for score in kept["scores"]] == [0, 1]


def test_advice_that_no_network_could_follow_is_left_out() -> None:
    """Also of a baseline beyond its ports the advice to go further beyond them."""
    trace = trace_of([[collective(1, "ALL_REDUCE", 1 << 30)]] * 8)
    parts = preset("hgx-h100", 8).under("astra-sim")
    for settings, is_beyond in (((SPLITS,), False), ((), True)):
        found = advise(trace, with_settings(parts, settings))
        assert bool(found.baseline.impossible) is is_beyond
        assert not any("direct" in item.action for item in found.advice)
        assert "algorithm" in [kind for kind, _, _ in found.impossible]
        told = "\n".join(format_advice(found))
        assert ("IMPOSSIBLE, and so is what changes save" in told) is is_beyond
        assert "left out as IMPOSSIBLE: other algorithm, " in told
        assert {one["kind"] for one in as_data(found)["impossible"]} >= {"algorithm"}
    full = advise(trace, preset("hgx-h100", 8).under("full"))
    assert not full.baseline.impossible
    assert not full.impossible


def test_export_says_it_of_its_finish(job: Path, tmp_path: Path) -> None:
    words = ("export", "astra-sim", job, "-o", tmp_path / "x", "--preset", "hgx-h100", "--set", SPLITS)
    assert "IMPOSSIBLE" not in said(*words)
    told = said(*words, "--set", DIRECT)
    assert told.startswith(f"IMPOSSIBLE: {BEYOND}")
    assert "--set congestion=aware" in told
    assert "active-chunks" not in told
    assert "congestion=aware" not in said(*words, "--set", DIRECT, "--set", "congestion=aware")
    found = json.loads(said(*words, "--set", DIRECT, "--json"))
    assert found["doubts"][0]["impossible"] is True


def test_export_names_the_chunks_that_pass_a_port_at_once(tmp_path: Path) -> None:
    """As ASTRA-sim ships the H100, two chunks at a time; also of two dimensions, of which its aware network has none."""
    write(trace_of([[collective(1, "ALL_GATHER", 8 << 20)]] * 64), tmp_path / "job", "job")
    words = ("export", "astra-sim", tmp_path / "job", "-o", tmp_path / "x", "--preset", "hgx-h100")
    told = said(*words)
    assert told.startswith(f"IMPOSSIBLE: {BEYOND}")
    assert "congestion=aware" not in told
    option = "--set active-chunks-per-dimension=1"
    assert option in told
    assert "IMPOSSIBLE" not in said(*words, *option.split())


def test_a_preset_of_two_levels_answers_what_its_ports_carry_under_both_models() -> None:
    """All-to-alls of 64 MiB a rank: 56 of 64 parts leave the node through a port of 37.5 GiB a second."""
    trace = trace_of([[collective(1, "ALL_TO_ALL", 64 << 20)]] * 64)
    least_ns = 64 * 2**20 * 56 / 64 / (37.5 * 2**30) * 1e9
    for model in ("astra-sim", "full"):
        parts = preset("switch-600-37").under(model)
        result = simulate(trace, interpret(parts).config)
        assert result.makespan_ns > least_ns
        assert not any(doubt.impossible for doubt in doubts_of(result, parts))


def test_runs_are_listed_with_their_mark(job: Path, tmp_path: Path) -> None:
    keep = ("--workspace", tmp_path / "w")
    said("simulate", job, *ASTRA, "--set", SPLITS, "--set", DIRECT, *keep, "--out", "beyond")
    said("simulate", job, *ASTRA, "--set", SPLITS, *keep, "--out", "within")
    marked = {line.split()[-2]: line.split()[-1] for line in said("runs", *keep).splitlines()[2:]}
    assert marked["beyond"] == "IMPOSSIBLE"
    assert "within" in marked.values()
