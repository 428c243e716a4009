"""A sweep gives at every point what a single simulation gives, whatever was kept, interrupted or drawn."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import studio
from studio.cli import main
from studio.errors import ConfigError, StudioError
from studio.et import workers
from studio.figures import sweeps as sweeps_drawn
from studio.sim import simulate
from studio.sim.parts import interpret
from studio.sim.result import compute_ledger
from studio.sweep import running
from studio.sweep.analysis import (
    choose_cheap_enough,
    compute_importance,
    count_reasons,
    find_slower_with_more,
    finish_varies,
    select_best,
    select_front,
)
from studio.sweep.costs import Costs, build_costs, compute_port_rates, load_costs
from studio.sweep.journal import Journal, compute_fingerprint, name_journal, read_journal
from studio.sweep.running import Elsewhere, Here, Row, run_piece, store_job
from studio.sweep.search import Plan, Target, choose_cheapest
from studio.sweep.space import Axis, Space, parse_space
from studio.sweep.sweep import Sweep, index_values, run_sweep
from studio.sweep.systems import Base, Jobs, build_parts_at
from tests.conftest import ROOT
from tests.examples import examples
from tests.waiting import PATIENCE_S, wait_until

MEMORY = ("memory-type=PER_NPU_MEMORY_EXPANSION", "remote-mem-latency=1000", "remote-mem-bw=64")
BASE = Base("hgx-h100-8", settings=MEMORY)
FAMILY = Base("hgx-h100", settings=MEMORY)


@pytest.fixture(scope="module")
def job():
    return studio.read(studio.sample_path("transformer_8r"))


def sweep_of(*varied, **more):
    return Sweep(parse_space(varied), more.pop("base", BASE), **more)


# ---------------------------------------------------------------------------------------------------
# The space


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("latency=1,2,2", ("1", "2")),
        ("latency=1..3", ("1", "2", "3")),
        ("latency=1..2:0.5,7", ("1", "1.5", "2", "7")),
        ("latency=1..20*3", ("1", "3", "9")),
        ("bandwidth=[450,50],[450,100]", ("[450,50]", "[450,100]")),
        ("preset=../a..b.yml,hgx-h100", ("../a..b.yml", "hgx-h100")),
    ],
)
def test_values_are_lists_and_ranges(text, values):
    assert parse_space([text]).axes[0].values == values


@pytest.mark.parametrize(
    ("varied", "told"),
    [
        (["bandwith[0]=1,2"], "nearest known key is 'bandwidth'"),
        (["extended.tie-ordr=symmetric"], "tie-order"),
        (["nps=8"], "'npus'"),
        (["latency=5..1"], "is empty; allowed: a last value of 5 and above"),
        (["latency=1..5:0"], "never ends"),
        (["latency=0..5*2"], "never ends"),
        (["latency=a..b"], "is no range"),
        (["latency="], "there are no values"),
        (["latency"], "is no setting"),
        (["latency=1", "latency=2"], "given twice"),
        (["latency=1..2000000"], "2,000,000 points; allowed: up to 1,000,000"),
    ],
)
def test_mistakes_in_the_settings_say_what_is_allowed(varied, told):
    with pytest.raises(ConfigError) as error:
        parse_space(varied)
    assert told in f"{error.value.message} {error.value.hint}"


def test_too_many_points_are_refused_with_their_number(job, tmp_path):
    with pytest.raises(ConfigError, match="4,000,000 points"):
        run_sweep(job, sweep_of("latency[0]=1..2000", "bandwidth[0]=1..2000"), tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_point_of_a_grid_is_another(sizes):
    space = Space(tuple(Axis(str(at), tuple(map(str, range(size)))) for at, size in enumerate(sizes)))
    points = [tuple(space.point(index).values()) for index in range(space.size)]
    assert len(set(points)) == space.size
    assert points == sorted(points)
    assert [space.index([int(value) for value in point]) for point in points] == list(range(space.size))
    drawn = space.sample(3, seed=7)
    assert drawn == sorted(set(drawn)) == space.sample(3, seed=7)
    assert len(drawn) == min(3, space.size)


# ---------------------------------------------------------------------------------------------------
# Points


VARIED = {
    "bandwidth[0]": ("50", "450"),
    "preferred-dataset-splits": ("1", "3"),
    "costs.algorithm": ("ring", "tree"),
    "costs": ("",),
    "congestion": ("aware", "unaware"),
    "extended.compute-times": ("recorded", "roofline"),
    "roofline-enabled": ("0", "1"),
    "latency[0]": ("0", "700"),
    "dp": ("2", "4"),
    "model": ("full", "astra-sim"),
    "preset": ("hgx-h100", "dgx-v100", "hgx-h100-8"),
}


@settings(max_examples=examples(7))
@given(st.lists(st.sampled_from(sorted(VARIED)), min_size=1, max_size=3, unique=True), st.data())
def test_a_point_is_what_a_single_simulation_gives(keys, data):
    trace = studio.read(studio.sample_path("transformer_8r"))
    space = Space(tuple(Axis(key, VARIED[key]) for key in keys))
    jobs, base = Jobs(trace), FAMILY
    for index in data.draw(st.permutations(range(space.size)))[:4]:
        rows = list(Here(trace, base, None).run([(index, space.point(index))], lambda: None))
        [row] = run_piece_of(jobs, base, index, space)
        assert rows == [[row]]
        alone = jobs_alone(trace, base, space.point(index))
        assert (row.finish_ns, row.error != "") == alone


def run_piece_of(jobs, base, index, space):
    from studio.sweep.running import run_point

    return [run_point(jobs, base, None, (index, space.point(index)))]


def jobs_alone(trace, base, point):
    """Simulate with nothing kept from other points."""
    try:
        whole = studio.completion.scale.scale(trace, dp=int(point["dp"])) if "dp" in point else trace
        config = interpret(build_parts_at(base, point, len(whole.ranks))).config
        return simulate(whole, config).makespan_ns, False
    except StudioError:
        return None, True


def test_parts_are_means_of_the_ledger(job):
    [row] = run_piece_of(Jobs(job), BASE, 1, parse_space(["bandwidth[0]=50,100"]))
    result = simulate(job, interpret(build_parts_at(BASE, {"bandwidth[0]": "100"}, 8)).config)
    times = compute_ledger(result).totals()
    assert row.parts_ns["compute"] == times.of("compute").mean()
    assert row.parts_ns["exposed"] == times.exposed_ns.mean()
    kept = ("exposed", "idle", "after_finish")
    parts = sum(value for name, value in row.parts_ns.items() if name not in kept)
    assert parts == pytest.approx(result.finish_ns.mean())


def test_what_is_impossible_is_counted_with_its_reason(job, tmp_path):
    swept = run_sweep(job, sweep_of("bandwidth[0]=100", "npus=8,16", base=FAMILY), tmp_path / "out")
    assert [row.finish_ns is None for row in swept.rows] == [False, True]
    [(reason, count)] = count_reasons(swept.rows)
    assert count == 1
    assert "ranks 8–15 are missing" in reason
    table = pd.read_parquet(tmp_path / "out")
    assert table["error"].tolist()[1] == reason
    assert table["finish_ns"].isna().tolist() == [False, True]


# ---------------------------------------------------------------------------------------------------
# Interruptions


class Stop(Exception):  # noqa: N818 - stands for a kill
    """Ends a sweep where a kill would."""


def interrupted(job, sweep, output, after):
    def progress(_phase, done, _total):
        if done >= after:
            raise Stop

    with pytest.raises(Stop):
        run_sweep(job, sweep, output, progress=progress)


def test_an_interrupted_sweep_continues_and_writes_the_same_bytes(job, tmp_path):
    sweep = sweep_of("bandwidth[0]=50..400:50", "latency[0]=0,500", costs=Costs("EUR", 1, (2.0,)))
    whole, cut = tmp_path / "whole.parquet", tmp_path / "cut.parquet"
    assert run_sweep(job, sweep, whole).resumed == 0
    interrupted(job, sweep, cut, 5)
    journal = name_journal(cut)
    assert not cut.exists()
    done = journal.read_bytes().count(b"\n") - 1
    assert done == 5
    # What a kill leaves of the line it came into.
    journal.write_bytes(journal.read_bytes() + b'{"index": 9, "finish')
    assert run_sweep(job, sweep, cut).resumed == done
    assert cut.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.parquet", "whole.parquet"]


def test_partial_results_of_another_sweep_are_refused(job, tmp_path):
    output = tmp_path / "out.parquet"
    interrupted(job, sweep_of("latency[0]=1..9"), output, 2)
    left = name_journal(output).read_bytes()
    with pytest.raises(StudioError, match="of another sweep"):
        run_sweep(job, sweep_of("latency[0]=1..8"), output)
    assert name_journal(output).read_bytes() == left


def test_pieces_of_an_executor_are_the_same(job, tmp_path):
    space = parse_space(["bandwidth[0]=50..400:50"])
    points = [(index, space.point(index)) for index in range(space.size)]
    stored = store_job(job, tmp_path / "job")
    here = [row for rows in Here(job, BASE, None).run(points, lambda: None) for row in rows]
    assert run_piece(stored, BASE, None, points) == here

    class AtOnce:
        def submit(self, function, *args):
            from concurrent.futures import Future

            future = Future()
            future.set_result(function(*args))
            return future

    elsewhere = Elsewhere(stored, BASE, None, AtOnce(), 2)
    assert [row for rows in elsewhere.run(points, lambda: None) for row in rows] == here
    stored.path.write_bytes(b"planted")
    running._load_jobs.cache_clear()
    with pytest.raises(StudioError, match="is not the file that the sweep wrote"):
        run_piece(stored, BASE, None, points)


# ---------------------------------------------------------------------------------------------------
# Choosing, pricing, judging


def test_bisection_finds_what_the_grid_holds(job, tmp_path):
    varied = "bandwidth[0]=10..300:10", "latency[0]=0,5000"
    grid = run_sweep(job, sweep_of(*varied), tmp_path / "grid").rows
    half = sorted(row.finish_ns for row in grid)[len(grid) // 2]
    target = Target("bandwidth[0]", half)
    sweep = sweep_of(*varied, plan=Plan(target=target))
    found = run_sweep(job, sweep, tmp_path / "found").rows
    assert len(found) < len(grid) / 3
    numbers = index_values(sweep.space, target.key, grid)
    assert choose_cheapest(found, numbers, target) == choose_cheapest(grid, numbers, target)
    assert {row.index: row for row in grid}.items() >= {row.index: row for row in found}.items()
    with pytest.raises(ConfigError, match="allowed: numbers in rising order"):
        run_sweep(
            job, sweep_of("preset=hgx-h100,dgx-v100", plan=Plan(target=Target("preset", 1))), tmp_path / "no"
        )


def test_costs_are_those_of_the_file(tmp_path):
    file = tmp_path / "costs.yml"
    file.write_text("currency: EUR\ngpu: 10\ngb_per_s_port: [1, 2]\npresets: {hgx-h100: 20}\n")
    costs = load_costs(file)
    config = studio.presets["hgx-h100-16"].config
    rates = [dim.bytes_per_ns for dim in config.topology.dims]
    assert costs.of(16, compute_port_rates(config)) == pytest.approx(16 * (10 + rates[0] + 2 * rates[1]))
    assert costs.of(16, compute_port_rates(config), "hgx-h100-16") == pytest.approx(
        16 * (20 + rates[0] + 2 * rates[1])
    )
    with pytest.raises(ConfigError, match="'gpus'"):
        build_costs({"gpus": 1}, "costs.yml")
    with pytest.raises(ConfigError, match="gpu is -1; allowed: a number from 0"):
        build_costs({"gpu": -1}, "costs.yml")


def test_importance_is_the_variance_that_a_key_explains():
    space = Space((Axis("a", ("1", "2")), Axis("b", ("1", "2", "3"))))
    rows = [Row(index, 100 * (index // 3) + index % 3) for index in range(6)]
    first, second = compute_importance(space, rows)
    assert (first.key, first.best, second.key) == ("a", "1", "b")
    # Without interaction both explain all of it: 50² and 2/3.
    assert first.share == pytest.approx(2500 / (2500 + 2 / 3))
    assert first.share + second.share == pytest.approx(1)


def test_where_nothing_changes_the_finish_no_key_explains_it():
    space = Space((Axis("a", ("1", "2")), Axis("b", ("1", "2", "3"))))
    # Six equal numbers whose mean is rounded, so that their variance is not 0.
    rows = [Row(index, 9_007_199_254_740_993) for index in range(6)]
    assert [one.share for one in compute_importance(space, rows)] == [0, 0]
    assert not finish_varies(rows)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12))
def test_the_front_is_what_nothing_beats(pairs):
    rows = [Row(index, finish, cost=float(cost)) for index, (finish, cost) in enumerate(pairs)]

    def beats(one, other):
        return (one.finish_ns, one.cost) != (other.finish_ns, other.cost) and (
            one.finish_ns <= other.finish_ns and one.cost <= other.cost
        )

    front = {(row.finish_ns, row.cost) for row in select_front(rows)}
    assert front == {(row.finish_ns, row.cost) for row in rows if not any(beats(one, row) for one in rows)}
    assert [row.finish_ns for row in select_best(rows, 99)] == sorted(row.finish_ns for row in rows)


def test_the_command_writes_and_tells_what_simulate_would(tmp_path, capsys):
    from studio.commands import simulate as simulate_command
    from studio.commands import sweep as command
    from studio.commands.base.simulation_request import SimulationRequest

    files, output = str(studio.sample_path("transformer_8r")), tmp_path / "out.parquet"
    varied = "bandwidth[0]=50,200", "costs.algorithm=ring,tree", *MEMORY
    outcome = command.run(command.Request((files,), varied, output, preset="hgx-h100"))
    table = pd.read_parquet(output)
    for row in table.itertuples():
        told = (f"bandwidth[0]={row[2]}", f"costs.algorithm={row[3]}", *MEMORY)
        alone = simulate_command.run(SimulationRequest((files,), preset="hgx-h100", settings=told))
        assert alone.result.makespan_ns == row.finish_ns
        assert alone.result.config.model == row.run_model
    plain = json.loads(json.dumps(command.report(outcome)))
    assert plain["points"] == 4
    assert plain["best"][0]["finish_ns"] == table.finish_ns.min()
    assert table.finish_ns.notna().all()
    assert {one["key"] for one in plain["importance"]} == {"bandwidth[0]", "costs.algorithm"}
    assert "variance of the finish" in command.text(outcome)


def test_a_sweep_of_which_no_point_can_be_simulated_fails_and_says_why(tmp_path):
    output = tmp_path / "out.parquet"
    files = str(studio.sample_path("transformer_8r"))
    told = CliRunner().invoke(main, ["sweep", files, "--set", "preset=nope,nope2", "-o", str(output)])
    assert told.exit_code == 1
    assert "none of the 2 points can be simulated" in told.stderr
    assert "nope" in told.stderr
    assert pd.read_parquet(output).error.str.contains("nope").all()
    told = CliRunner().invoke(
        main, ["sweep", files, "--preset", "hgx-h100", "--set", "bandwidth[1]=25,50", "-o", str(output)]
    )
    assert told.exit_code == 1
    assert "the system has one dimension; allowed: bandwidth[0]" in told.stderr


def test_an_empty_value_is_refused():
    with pytest.raises(ConfigError, match="a value is empty"):
        parse_space(["bandwidth[0]=100,,200"])


@pytest.mark.integration
def test_a_killed_process_leaves_what_the_next_one_continues(job, tmp_path):
    output, files = tmp_path / "out.parquet", str(studio.sample_path("transformer_8r"))
    varied = "bandwidth[0]=1..100", "latency[0]=1..30", *MEMORY
    options = [f"--set={setting}" for setting in varied]
    command = [
        sys.executable,
        "-m",
        "studio",
        "sweep",
        files,
        "--preset",
        "hgx-h100",
        *options,
        "-o",
        str(output),
    ]
    killed = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    journal = name_journal(output)
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 40)
    children = psutil.Process(killed.pid).children()
    killed.kill()
    killed.wait()
    # They end with their piece, as nobody asks for another.
    psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not output.exists()
    done = {row.index for row in read_journal(journal)}
    assert 40 <= len(done) < 3000
    # The rest is cut short here: what counts is that nothing is simulated twice, and that rows are equal.
    sweep = Sweep(parse_space(varied), Base("hgx-h100"))
    identity = compute_fingerprint(job, sweep.base, sweep.space, None)
    again = Journal(journal, identity)
    again.close()
    assert again.rows.keys() == done
    points = [(index, sweep.space.point(index)) for index in sorted(done)[:8]]
    fresh = [row for rows in Here(job, sweep.base, None).run(points, lambda: None) for row in rows]
    assert fresh == [again.rows[index] for index, _ in points]


def test_figures_of_many_points_draw_the_best_ones(monkeypatch):
    space = Space(
        (Axis("a", tuple(map(str, range(50)))), Axis("b", ("<x", "y", "z", "é")), Axis("c", ("1",)))
    )
    rows = [Row(at, 1000 + (at * 37) % 200, {"exposed": 1.0}, cost=float(at)) for at in range(199)]
    rows += [Row(199, error="no")]
    monkeypatch.setattr(sweeps_drawn, "MOST_LINES", 50)
    lines = sweeps_drawn.draw_parallel(space, rows, dark=True)
    drawn = [words for trace in lines.data for words in trace.text]
    [least] = select_best(rows, 1)
    assert any(f"point {least.index}" in words for words in drawn)
    assert "&lt;" in "".join(drawn)
    assert "<x" not in "".join(drawn)
    front = sweeps_drawn.draw_front(space, rows, dark=False)
    shown = {index for trace in front.data for index in trace.customdata}
    assert shown == set(range(199))
    for key in space.keys:
        assert sweeps_drawn.draw_slice(space, rows, key, dark=False).data
    units = {"a": "GB/s"}
    sliced = sweeps_drawn.draw_slice(space, rows, "a", dark=False, units=units)
    assert sliced.layout.xaxis.title.text == "a, GB/s"
    assert sliced.data[-1].hovertemplate.startswith("a = %{x} GB/s: ")
    upright = sweeps_drawn.draw_parallel(space, rows, dark=False, units=units)
    assert {"<b>a</b><br>GB/s", "<b>b</b>"} <= {note.text for note in upright.layout.annotations}
    # Of finishes that are hardly apart, or not at all, the axis shows that: it spans two hundredths at least.
    for apart in (0, 100, 200_000):
        near = [replace(row, finish_ns=49_400_000 + apart * row.index) for row in rows[:3]]
        axis = sweeps_drawn.draw_front(space, near, dark=False).layout.yaxis
        assert axis.range[0] <= 0.0489
        assert axis.range[1] >= 0.0499
        assert len(set(axis.ticktext)) == len(axis.ticktext) >= 4
        upright = sweeps_drawn.draw_parallel(space, near, dark=False)
        finishes = {trace.y[3] for trace in upright.data if trace.y}
        assert max(finishes) - min(finishes) < 0.34
    priced = [replace(row, cost=240_000.0 + 2_500 * row.index) for row in rows[:6]]
    costs = sweeps_drawn.draw_front(space, priced, dark=False).layout.xaxis.ticktext
    assert costs[:3] == ("240.0 k", "242.5 k", "245.0 k"), "an axis has one number of decimals"
    # No two ticks read the same where finishes are close and yet apart.
    close = [replace(row, finish_ns=198_600_000 + 250_000 * row.index) for row in rows[:9]]
    axis = sweeps_drawn.draw_front(space, close, dark=False).layout.yaxis
    assert axis.ticktext[:2] == ("198.5 ms", "199.0 ms")
    assert len(set(axis.ticktext)) == len(axis.ticktext)


def test_results_are_not_written_under_the_name_of_another_form(tmp_path):
    """The file was Parquet, whatever it was called."""
    told = CliRunner().invoke(
        main, ["sweep", "job", "--set", "bandwidth[0]=1,2", "-o", str(tmp_path / "rates.csv")]
    )
    assert told.exit_code == 1
    assert "allowed: a name that ends in .parquet" in told.stderr
    assert "rates.parquet" in told.stderr
    assert not list(tmp_path.iterdir())


def test_a_text_workload_is_read_for_each_number_of_npus(tmp_path):
    """Each point is what `simulate --npus` gives; a number that is none is the result of its point."""
    from tests.test_cli import run

    (tmp_path / "w.txt").write_text(
        "MICRO\n1\nar -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1048576 5\n", encoding="utf-8"
    )
    words = ("sweep", tmp_path / "w.txt", "--preset", "hgx-h100", "-o", tmp_path / "x.parquet")
    result = run(*words, "--set", "npus=2,4,16,none")
    assert result.exit_code == 0, result.output
    table = pd.read_parquet(tmp_path / "x.parquet")
    assert table["ranks"].tolist()[:3] == [2, 4, 16]
    for npus, finish in zip((2, 4, 16), table["finish_ns"], strict=False):
        alone = run("simulate", tmp_path / "w.txt", "--preset", "hgx-h100", "--npus", npus, "--json")
        assert json.loads(alone.stdout)["finish_ns"] == finish
    assert "npus is 'none'" in table["error"][3]
    both = run(*words, "--set", "npus=2,4", "--npus", "4")
    assert both.exit_code == 1
    assert "Leave --npus out" in both.output


def test_a_bandwidth_of_which_more_takes_longer_is_found() -> None:
    """The quickest point has 50 of 25, 50 and 100 GB/s; what differs in another setting says nothing."""
    space = parse_space(["bandwidth[0]=100,200", "bandwidth[1]=25,50,100"])
    finishes = [950, 919, 930, 940, 909, 921]
    rows = [Row(index, finish * 1000, cost=1.0 + index) for index, finish in enumerate(finishes)]
    key, slower = find_slower_with_more(space, rows)
    assert (key, slower.index) == ("bandwidth[1]", 5)
    assert find_slower_with_more(space, [replace(row, finish_ns=1000 - row.index) for row in rows]) is None
    assert choose_cheap_enough(rows).index == 4
    assert choose_cheap_enough([*rows, Row(6, 915_000, cost=0.5)]).index == 6
    assert choose_cheap_enough([replace(row, cost=None) for row in rows]) is None


def test_a_worker_whose_asker_is_gone_ends_without_a_traceback(monkeypatch):
    """Where a command was killed, each of its workers wrote one onto the terminal."""

    def fail(_answer):
        raise BrokenPipeError

    class Ended(BaseException):
        pass

    def leave(status):
        raise Ended(status)

    question = io.BytesIO(pickle.dumps((len, ("abc",), {})))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=question))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=SimpleNamespace(write=fail)))
    monkeypatch.setattr(workers.os, "_exit", leave)
    with pytest.raises(Ended, match="1"):
        workers.serve()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EIO])
def test_a_journal_on_a_full_disk_is_named_and_kept(tmp_path, monkeypatch, number):
    """The system says of no file that was open already which one it is."""
    path = tmp_path / "out.parquet.part"
    journal = Journal(path, "of this")
    row = Row(0)
    journal.add([row])

    def fail(_handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("studio.sweep.journal._SYNCED_EVERY_S", -1.0)
    monkeypatch.setattr("studio.sweep.journal.os.fsync", fail)
    expected = OSError if number == errno.EIO else StudioError
    for write in (lambda: journal.add([replace(row, index=1)]), journal.close):
        with pytest.raises(expected, match=r"out\.parquet\.part") as caught:
            write()
        if expected is StudioError:
            assert "those so far are kept" in caught.value.message
            assert "goes on" in caught.value.hint
    monkeypatch.undo()
    again = Journal(path, "of this")
    again.close()
    assert sorted(again.rows) == [0, 1]


def test_a_job_that_does_not_fit_on_the_disk_is_said_and_removed(job, tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, _data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path):
        path.write_bytes(b"some of it")
        return Full()

    monkeypatch.setattr(running, "open_private", open_full)
    with pytest.raises(StudioError, match=r"is full: about .* are needed, .* the 10 B written were removed"):
        store_job(job, tmp_path / "out.job")
    assert list(tmp_path.iterdir()) == []
