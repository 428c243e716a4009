"""`simulate --engine`: ASTRA-sim's own program on the same job, in well and in bad state, by a stand-in for it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.et import write
from studio.store.workspace import Workspace
from tests import stand_in_engine
from tests.handmade import collective, node, trace_of
from tests.waiting import wait_until

NETWORK = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 4,
    "endpoint-delay": 10,
    "local-mem-bw": 1600,
    "all-reduce-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
}
FINISH = 100_000 + 22_240 + 1


def job(*, collectives="REDUCE_SCATTER"):
    def nodes(micros):
        return [
            node(0, "COMP", micros=micros, name="fwd, x=1"),
            collective(1, collectives, 1 << 20, 0, group="tp"),
            node(2, "COMP", 1, micros=0),
        ]

    return trace_of([nodes(micros) for micros in (100, 10, 10, 10)], {"tp": [0, 1, 2, 3]})


@pytest.fixture
def folder(tmp_path) -> Path:
    """A job, a system, and programs called as ASTRA-sim's are."""
    write(job(), tmp_path / "job", "job")
    (tmp_path / "n.yml").write_text(NETWORK)
    (tmp_path / "s.json").write_text(json.dumps(SYSTEM))
    root, script = Path(stand_in_engine.__file__).parents[1], stand_in_engine.__file__
    for name, flags in (("AstraSim_Analytical_Congestion_Unaware", "-S -E"), ("with_studio_unaware", "")):
        path = tmp_path / name
        words = shlex.join([sys.executable, *flags.split(), script])
        path.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(root))} exec {words} "$@"\n')
        path.chmod(0o755)
    return tmp_path


def words(folder, *more, program="AstraSim_Analytical_Congestion_Unaware"):
    files = ("--system", folder / "s.json", "--network", folder / "n.yml")
    return [str(word) for word in (folder / "job", *files, "--engine", folder / program, *more)]


def invoke(folder, *more, code=0, **given):
    result = CliRunner().invoke(main, ["simulate", *words(folder, *more, **given)])
    assert result.exit_code == code, result.output
    return result.output


def our_log(folder) -> list[str]:
    """The lines that the program has to write to agree with us."""
    export = CliRunner().invoke(
        main, ["export", "astra-sim", *words(folder)[:-2], "-o", str(folder / "out")], catch_exceptions=False
    )
    assert export.exit_code == 0, export.output
    done = CliRunner().invoke(
        main, ["simulate", str(folder / "out/workload"), "--system", str(folder / "out/system.json"), "--network",
               str(folder / "out/network.yml"), "--events", str(folder / "ours.log")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return (folder / "ours.log").read_text().splitlines(keepends=True)


@pytest.fixture
def says(folder, monkeypatch):
    """Makes the stand-in print and log some lines."""

    def say(lines, way="copy"):
        (folder / "its.log").write_text("".join(lines))
        monkeypatch.setenv("LOG", str(folder / "its.log"))
        monkeypatch.setenv("STAND_IN", way)

    return say


def shifted(line: str, by: int) -> str:
    for before, after in (("tick=", ","), ("finished, ", " ")):
        head, found, rest = line.partition(before)
        if found:
            tick, _, tail = rest.partition(after)
            return f"{head}{before}{int(tick) + by}{after}{tail}"
    return line


@pytest.mark.integration
def test_a_program_that_reads_the_exported_files_finds_what_we_find_and_is_kept_as_a_run(folder, monkeypatch):
    """The stand-in reads traces, groups, system, network and memory by the paths of the command line, as ASTRA-sim does."""
    monkeypatch.setenv("STAND_IN", "studio")
    where = ("--workspace", folder / "w", "--out", "mine", "--num-queues-per-dim", "1", "--json")
    report = json.loads(invoke(folder, *where, program="with_studio_unaware"))
    engine = report["engine"]
    assert (engine["backend"], engine["backend_by"]) == ("analytical-unaware", "name")
    assert engine["command"] == [
        "--workload-configuration=workload/trace",
        "--comm-group-configuration=workload/comm_group.json",
        "--system-configuration=system.json",
        "--remote-memory-configuration=remote_memory.json",
        "--network-configuration=network.yml",
        "--num-queues-per-dim=1",
    ]
    assert engine["finish_ns"] == engine["ours_ns"] == report["finish_ns"] == FINISH
    assert (engine["difference_ns"], engine["unfinished_ranks"]) == (0, [])
    assert (engine["nodes"], engine["nodes_timed"], engine["nodes_differing"]) == (12, 12, 0)
    assert [one["finish_ns"] for one in engine["ranks"]] == [one["finish_ns"] for one in report["ranks"]]
    assert report["model"] == "astra-sim"
    # Group tp got a number, so both runs belong to a job of their own; told once more, to the same one.
    store = Workspace(folder / "w")
    runs = store.runs(report["job"])
    assert {run.id for run in runs} == {report["run"], engine["run"]}
    assert {run.makespan_ns for run in runs} == {FINISH}
    assert {run.name for run in runs} == {"mine", "mine by with_studio_unaware"}
    compared = CliRunner().invoke(
        main, ["compare", report["run"], engine["run"], "--workspace", str(folder / "w"), "--json"]
    )
    assert compared.exit_code == 0, compared.output
    assert json.loads(compared.stdout)["comparisons"][0]["difference_ns"] == 0
    assert len(store.jobs()) == 2


@pytest.mark.integration
def test_a_program_that_finds_something_else_is_compared_by_rank_and_node(folder, says, monkeypatch):
    lines = our_log(folder)
    says(
        [shifted(line, 1000) if "sys->id=0," in line or "sys[0]" in line else line for line in lines], "slow"
    )
    report = json.loads(invoke(folder, "--json"))["engine"]
    assert (report["finish_ns"], report["difference_ns"]) == (FINISH + 1000, 1000)
    assert report["difference_percent"] == pytest.approx(100 * 1000 / FINISH)
    assert [one["difference_ns"] for one in report["ranks"]] == [1000, 0, 0, 0]
    assert (report["nodes_timed"], report["nodes_differing"]) == (12, 3)
    # A file that is named from here, and the logger that keeps all events.
    monkeypatch.chdir(folder)
    more = ("--engine-arg", "--htsim_opts=n.yml", "--engine-arg", "--logging-configuration=logging.toml")
    again = json.loads(invoke(folder, "--json", *more))["engine"]
    assert again["command"][-2:] == [f"--htsim_opts={folder / 'n.yml'}", more[-1]]
    assert (again["nodes_timed"], again["nodes_differing"]) == (12, 3)
    text = invoke(folder)
    assert "finish   123 µs  (123,241 ns), +1.00 µs (+0.82 %) against here" in text
    assert (
        "1 of 4 finish at another time than here; the most:\n      rank 0  123 µs there, 122 µs here" in text
    )


@pytest.mark.integration
def test_logs_that_are_not_whole_are_compared_as_far_as_they_go_and_not_kept(folder, says):
    lines = our_log(folder)
    kept = [
        line for line in lines if "sys[2]" not in line and not ("callback" in line and "id=2, tick" in line)
    ]
    says(kept)
    out = ("--workspace", folder / "w", "--out", "mine")
    report = json.loads(invoke(folder, "--json", *out, code=4))
    engine = report["engine"]
    assert (engine["finish_ns"], engine["difference_ns"], engine["unfinished_ranks"]) == (None, None, [2])
    assert (engine["nodes_timed"], engine["nodes_differing"], engine["run"]) == (9, 0, None)
    assert [run.id for run in Workspace(folder / "w").runs(report["job"])] == [report["run"]]
    assert "1 of 4 ranks never finished there: rank 2" in invoke(folder, code=4)
    # Finish lines alone are compared, too; and strangers are counted.
    says(
        [line for line in lines if "finished" in line]
        + ["issue,sys->id=77, tick=0, node->id=1, node->name=x, node->type=4\n"] * 2
    )
    engine = json.loads(invoke(folder, "--json"))["engine"]
    assert (engine["difference_ns"], engine["nodes_timed"], engine["unknown_events"]) == (0, 0, 2)
    assert "it logged no issue and callback lines" in invoke(folder)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("fail", "ended with exit status 3. Its last words on stderr:\n  terminate called: Unsupported collective comm type \\x1b[31m"),
        ("crash", "was ended by the signal SIGSEGV. It said nothing."),
        ("garbage", "no line says that a rank finished"),
        ("silent", "It printed nothing."),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_told_of_with_what_it_said(way, message, folder, monkeypatch):
    monkeypatch.setenv("STAND_IN", way)
    output = invoke(folder, "--workspace", folder / "w", "--out", "mine", code=1)
    assert message in output
    assert "Traceback" not in output
    assert "\x1b" not in output
    assert not [run for job in Workspace(folder / "w").jobs() for run in Workspace(folder / "w").runs(job.id)]


def alive(pids) -> list[int]:
    def runs(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        # What was ended and not fetched yet by its parent runs no more.
        return (
            "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text() if Path("/proc").is_dir() else True
        )

    return [pid for pid in pids if runs(pid)]


@pytest.mark.parametrize("way", ["hang", "hang deaf"])
def test_a_program_that_hangs_is_ended_with_its_children(way, folder, monkeypatch):
    monkeypatch.setenv("STAND_IN", way)
    monkeypatch.setenv("PIDS", str(folder / "pids"))
    monkeypatch.setattr("studio.commands.base.engine._GRACE_S", 0.2)
    output = invoke(folder, "--engine-timeout", "1.5", code=1)
    assert "was ended after 1.5 s, its time limit. Its last words on stdout:\n  waiting" in output
    pids = list(map(int, (folder / "pids").read_text().split()))
    wait_until(lambda: not alive(pids))


@pytest.mark.integration
def test_an_interrupt_ends_the_program_with_its_children(folder, monkeypatch):
    monkeypatch.setenv("STAND_IN", "hang")
    monkeypatch.setenv("PIDS", str(folder / "pids"))
    code = "import sys; from studio.cli import main; main(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "simulate", *words(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: (folder / "pids").exists() and len((folder / "pids").read_text().split()) == 2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert b"Traceback" not in said
    pids = list(map(int, (folder / "pids").read_text().split()))
    wait_until(lambda: not alive(pids))


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("missing", [], "there is no such file"),
        ("job", [], "is a folder"),
        ("n.yml", [], "is a file that may not be executed"),
        ("empty_unaware", [], "is no program of this machine"),
        ("AstraSim_Analytical_Congestion_Unaware", ["--congestion", "aware"], "allowed: the same on both sides"),
        ("AstraSim_Analytical_Congestion_Unaware", ["--model", "full"], "--model full is given beside --engine"),
        ("AstraSim_Analytical_Congestion_Unaware", ["--replay"], "--replay is given beside --engine"),
        ("AstraSim_Analytical_Congestion_Unaware", ["--set", "extended.communication-slots=2"], "allowed with --model"),
    ],
)  # fmt: skip
def test_what_is_no_program_for_this_is_refused(name, more, message, folder):
    (folder / "empty_unaware").write_bytes(b"\x00\x01")
    (folder / "empty_unaware").chmod(0o755)
    assert message in invoke(folder, *more, program=name, code=1)


def test_options_of_an_engine_need_one(folder):
    given = CliRunner().invoke(main, ["simulate", str(folder / "job"), "--engine-arg", "--x=1"])
    assert given.exit_code == 2
    assert "without --engine" in given.output
