"""Every place that says where the time of a job went says the same: one ledger, read everywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import studio
from studio.analysis.job.ledger import AFTER_FINISH, PARTS
from studio.analysis.timeline.window import compute_shares
from studio.cli import main
from studio.commands.base import outcome
from studio.comparing import build_simulated_side
from studio.pages.base.rank_table import rank_table
from studio.reporting import build_report
from studio.session import Session
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.units import format_ns
from tests.handmade import collective, node, trace_of


def job():
    """Three ranks that compute unequally, meet twice, and finish apart."""

    def rank(first, last):
        return [
            node(1, "COMP", micros=first),
            collective(2, "ALL_REDUCE", 1 << 20, 1),
            node(3, "COMP", 1, micros=9),
            collective(4, "ALL_GATHER", 1 << 18, 2, 3),
            node(5, "COMP", 4, micros=last),
        ]

    return trace_of([rank(20, 5), rank(70, 1), rank(30, 30)])


PARTS_OF_SYSTEM = Parts(
    {"topology": ["Ring"], "npus_count": [3], "bandwidth": [50], "latency": [500]},
    {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring"],
        "all-gather-implementation": ["ring"],
    },
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    root: Path = tmp_path_factory.mktemp("account") / "ws"
    store = Workspace(root)
    trace = job()
    mine = store.save(trace, "job")
    result = simulate(trace, interpret(PARTS_OF_SYSTEM).config, native=False)
    run = Run("one", result, PARTS_OF_SYSTEM)
    return root, mine, store.run_info(mine, store.save_run(mine, run)), result


def printed(*words):
    result = CliRunner().invoke(main, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_is_split_alike_wherever_it_is_told(kept):
    root, job_id, info, result = kept
    told = json.loads(printed("breakdown", info.id, "--workspace", root, "--json"))
    ns = np.array([[rank["parts"][part] for part in PARTS] for rank in told["ranks"]])
    after = np.array([rank["after_finish_ns"] for rank in told["ranks"]])
    finish = np.array([rank["finish_ns"] for rank in told["ranks"]])
    assert (ns.sum(axis=1) == finish).all()
    assert (finish + after == told["finish_ns"]).all()
    assert ns[:, PARTS.index("waiting")].any()
    assert after.any()

    # `simulate --json`, and the table of ranks of Overview and Simulate.
    simulated = outcome.report(outcome.Outcome("job", result, (), 0.0))["ranks"]
    for part in set(PARTS) - {"communication"}:
        assert [rank[f"{part}_ns"] for rank in simulated] == ns[:, PARTS.index(part)].tolist()
    session = Session(Workspace(root))
    account, _ = session.rank_use(job_id, info.id)
    np.testing.assert_array_equal(account.totals().ns, ns)
    table = rank_table(account)
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [row["waiting_ns"] for row in rows] == ns[:, PARTS.index("waiting")].tolist()

    # The table of a window of the timeline, here all of it.
    gantt = session.gantt(job_id, info.id)
    window = {
        (share.rank, share.what): share.time_ns
        for share in compute_shares(gantt, 0, told["finish_ns"], "part")
    }
    for rank, line, rest in zip(told["ranks"], ns.tolist(), after.tolist(), strict=True):
        for part, time in zip((*PARTS, AFTER_FINISH), (*line, rest), strict=True):
            assert window.get((rank["rank"], part), 0) == time

    # Compare's waterfall and means, with itself.
    pair = json.loads(printed("compare", info.id, info.id, "--workspace", root, "--json"))["comparisons"][0]
    mean = next(fall for fall in pair["waterfalls"] if fall["basis"] == "mean")
    assert mean["a_ns"] == told["finish_ns"]
    for step in mean["steps"]:
        column = after if step["part"] == AFTER_FINISH else ns[:, PARTS.index(step["part"])]
        assert abs(step["a_ns"] - column.mean()) < 1
    waiting = next(figure for figure in pair["figures"] if figure["figure"] == "waiting")
    assert waiting["a"] == ns[:, PARTS.index("waiting")].mean()

    # The report, and what `simulate` and `breakdown` print.
    most = format_ns(int(ns[:, PARTS.index("waiting")].max()))
    run = session.run(job_id, info.id)
    page = build_report([build_simulated_side(run, info)])
    assert re.search(rf"<td[^>]*>waiting</td>.*?{re.escape(most)}", page, re.DOTALL)
    assert "The critical path" in page
    assert "Whom ranks waited for" in page
    for words in (
        printed("breakdown", info.id, "--workspace", root),
        outcome.text(outcome.Outcome("job", result, (), 0.0)),
    ):
        assert most in words
        assert format_ns(told["finish_ns"]) in words


def test_the_critical_path_fills_the_same_finish(kept):
    root, _, info, result = kept
    told = json.loads(printed("critical-path", info.id, "--workspace", root, "--json", "--slack"))
    assert told["length_ns"] == int(result.finish_ns.max())
    ends = [(segment["start_ns"], segment["end_ns"]) for segment in told["segments"]]
    assert ends[0][0] == 0
    assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]]
    assert ends[-1][1] == told["length_ns"]
    assert sum(share["ns"] for share in told["shares"]) == told["length_ns"]
    # Rank 1 is late at the all-reduce, rank 2 the last to finish.
    assert (told["segments"][0]["rank"], told["segments"][0]["cause"]) == (1, "compute")
    assert (told["segments"][-1]["rank"], told["segments"][-1]["node"]) == (2, "5")
    assert {segment["slack_ns"] for segment in told["segments"]} == {0}
    assert told["near_critical"]["nodes"] >= len(told["segments"])
    text = printed("critical-path", info.id, "--workspace", root, "--slack")
    assert text.splitlines()[0] == told["summary"]
    assert "near-critical" in text


def test_blame_and_dimensions_of_a_run(kept):
    root, _, info, _ = kept
    told = json.loads(printed("breakdown", info.id, "--workspace", root, "--json"))
    first = told["ranks"][0]
    assert first["blame"][0]["rank"] == 1
    assert sum(entry["ns"] for entry in first["blame"]) == first["parts"]["waiting"]
    assert first["blame"][0]["doing"]["compute"] == 41_000  # no work of its own hid it
    assert {group["collective"] for group in first["groups"]} == {"ALL_REDUCE", "ALL_GATHER"}
    assert {tuple(group["dimensions"]) for group in first["groups"]} == {(0,)}
    assert told["waited_for"][0]["rank"] == 1
    late = json.loads(printed("breakdown", info.id, "--workspace", root, "--json", "--from", "60us"))
    assert late["ranks"][0]["window_ns"] == [60_000, told["finish_ns"]]
    wrong = CliRunner().invoke(main, ["breakdown", info.id, "--workspace", str(root), "--group", "tp9"])
    assert wrong.exit_code == 1
    assert "no rank communicates in a comm group 'tp9'; allowed: all" in wrong.output


def test_ranks_that_read_alike_share_a_line() -> None:
    """Two stages of sixteen equal ranks: two lines, which name them."""
    lines = (
        CliRunner()
        .invoke(main, ["breakdown", str(studio.sample_path("transformer_32r"))])
        .stdout.splitlines()
    )
    assert [line[:12] for line in lines[3:6]] == ["ranks 16–31 ", "ranks 0–15  ", ""]
