"""`chakra-studio check`: what it prints, how it ends, and the repaired job it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import studio
from studio.et import write
from tests.doctor.broken_jobs import BROKEN, healthy
from tests.handmade import collective, trace_of
from tests.test_cli import refused, run


@pytest.fixture
def broken(tmp_path) -> Path:
    """A folder with a job in which a node waits for itself."""
    write(BROKEN["self-loop"](), tmp_path / "in", "job")
    return tmp_path / "in"


def test_a_clean_job_says_so_and_what_was_looked_for(tmp_path):
    write(healthy(), tmp_path / "in", "job")
    done = run("check", tmp_path / "in")
    assert done.exit_code == 0
    assert done.stdout.startswith("job: 2 ranks, 6 nodes: no problems, 37 checks made.\n")
    assert "Looked for and not found: files of several runs; operations that do not end;" in done.stdout


def test_findings_are_told_with_evidence_consequence_and_repair(broken: Path):
    done = run("check", broken)
    assert done.exit_code == 1
    head, finding = done.stdout.split("\n\n")[:2]
    assert head == "job: 1 rank, 2 nodes: 1 error."
    assert finding.splitlines() == [
        "error   Nodes that wait for themselves [self-loop]",
        "        1 node of rank 0 waits for itself, the first is node 2 (n2).",
        "        nodes: 2 of rank 0",
        "        → Neither they nor the nodes that wait for them ever start: a simulation hangs, or ends without them.",
        "        --repair: Remove dependencies of nodes on themselves.",
    ]


@pytest.mark.parametrize(
    ("code", "level", "exit_code"),
    [
        ("size-zero", "error", 0),
        ("size-zero", "warning", 1),
        ("forward", "warning", 0),
        ("forward", "info", 1),
    ],
)
def test_the_level_that_fails_is_chosen(tmp_path, code: str, level: str, exit_code: int):
    write(BROKEN[code](), tmp_path / "in", "job")
    assert run("check", tmp_path / "in", "--fail-on", level).exit_code == exit_code


def test_json_holds_everything_and_several_jobs_are_a_list(tmp_path, broken: Path):
    found = json.loads(run("check", broken, "--json").stdout)
    assert found["levels"] == {"error": 1, "warning": 0, "info": 0}
    [one] = found["findings"]
    assert (one["code"], one["nodes"], one["repair"]) == (
        "self-loop",
        [{"rank": 0, "node": "2"}],
        "self-loop",
    )
    assert "cycle" in found["passed"]
    write(healthy(), tmp_path / "in" / "other", "second")
    assert [job["name"] for job in json.loads(run("check", broken, "--json").stdout)] == ["job", "second"]


def test_a_repaired_job_is_written_and_counts(tmp_path, broken: Path):
    before = (broken / "job.0.et").read_bytes()
    done = run("check", broken, "--repair", tmp_path / "out", "--fail-on", "warning")
    assert done.exit_code == 0
    assert "Repaired: 1 dependency removed.\n  rank 0: node 2 (n2) waited for node 2 (n2)\n" in done.stdout
    assert done.stdout.rstrip().endswith("Now: no problems, 37 checks made.")
    assert (broken / "job.0.et").read_bytes() == before
    assert not [one for one in studio.examine(studio.read(tmp_path / "out")) if one.level != "info"]


def test_one_repair_is_made_alone(tmp_path):
    nodes = BROKEN["dangling"]()
    write(nodes, tmp_path / "in", "job")
    done = run("check", tmp_path / "in", "--repair", tmp_path / "out", "--only", "self-loop", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["repaired"]["left"] == ["dangling"]


def test_a_repair_that_could_not_be_made_is_told(tmp_path):
    """Dependencies of two ranks keep the collectives in opposite orders, of which the third leaves open whether they begin so."""
    orders = [{"ALL_GATHER": (), "ALL_REDUCE": (1,)}, {"ALL_REDUCE": (), "ALL_GATHER": (1,)}]
    ranks = [
        [collective(at + 1, kind, 64, *deps) for at, (kind, deps) in enumerate(order.items())]
        + [collective(3, "REDUCE_SCATTER", 64)]
        for order in orders
    ]
    write(trace_of(ranks), tmp_path / "in", "job")
    done = run("check", tmp_path / "in", "--repair", tmp_path / "out")
    assert (
        "Not repaired: Fix the order of collectives [collectives-disagree]: dependencies leave no way to do it."
        in " ".join(done.stdout.split())
    )
    told = json.loads(run("check", tmp_path / "in", "--repair", tmp_path / "again", "--json").stdout)
    assert told["repaired"]["failed"] == ["collectives-disagree"]
    other = run("check", tmp_path / "in", "--repair", tmp_path / "other", "--only", "cycle")
    assert "Not repaired" not in other.stdout


@pytest.mark.parametrize("command", ["info", "check", "simulate"])
def test_groups_that_are_listed_nowhere_are_told_in_one_sentence(tmp_path, command: str):
    alike = [
        collective(at + 1, "ALL_REDUCE", 64, *([at] if at else []), group=str(at + 1)) for at in range(16)
    ]
    write(trace_of([alike] * 8), tmp_path / "in", "job")
    for listed in (tmp_path / "in").glob("*.json"):
        listed.unlink()
    system = ["--preset", "hgx-h100-8"] if command == "simulate" else []
    done = run(command, tmp_path / "in", *system)
    said = done.stdout + done.stderr
    assert said.count("listed nowhere") == 1
    assert "16 comm groups are" in said


def test_a_recording_is_not_blamed_for_what_its_recorder_never_writes(shared):
    """Events of a simulator name neither peers, sizes nor types; a scatter's members do not know what its root gives."""
    assert run("check", shared / "traces/timeline/llama_8r.csv.gz").exit_code == 0
    merged = [shared / f"traces/golden/torch/pp_2r_{rank}.etplus.json.gz" for rank in (0, 1)]
    assert run("check", *merged).exit_code == 0


def test_wrong_use_is_refused(tmp_path, broken: Path):
    assert "--repair" in refused("check", broken, "--only", "cycle", code=2)
    assert "self-loop" in refused("check", broken, "--repair", tmp_path / "out", "--only", "magic", code=2)
    write(healthy(), broken / "other", "second")
    assert "Repair them one by one" in refused("check", broken, "--repair", tmp_path / "out")


def test_names_from_files_reach_the_terminal_as_escapes(tmp_path):
    trace = BROKEN["self-loop"]()
    write(trace, tmp_path / "in", "job")
    raw = (tmp_path / "in" / "job.0.et").read_bytes()
    assert b"n2" in raw
    (tmp_path / "in" / "job.0.et").write_bytes(raw.replace(b"n2", b"\x1b["))
    done = run("check", tmp_path / "in")
    assert "\x1b" not in done.stdout
    assert "\\x1b[" in done.stdout


def test_ctrl_c_at_any_moment_leaves_nothing_half_written(tmp_path):
    from studio.commands import check as command

    write(BROKEN["self-loop"](), tmp_path / "in", "job")
    told: list[str] = []
    command.run(
        command.Request((tmp_path / "in",), tmp_path / "whole"), progress=lambda *how: told.append(how[0])
    )
    assert "repairing" in told

    for stop in range(len(told)):
        left = iter(range(stop))

        def interrupt(*_how: object, left=left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        target = tmp_path / f"out{stop}"
        with pytest.raises(KeyboardInterrupt):
            command.run(command.Request((tmp_path / "in",), target), progress=interrupt)
        written = sorted(path.name for path in target.glob("*")) if target.exists() else []
        assert written in ([], sorted(path.name for path in (tmp_path / "whole").iterdir()))


def test_a_workload_without_npus_names_the_way_to_a_job_that_can_be_checked(tmp_path):
    """The advice was an option that the command does not have."""
    (tmp_path / "data.txt").write_text("DATA\n1\nlayer -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 1\n")
    words = refused("check", tmp_path / "data.txt")
    assert "open what chakra-studio convert FILE FOLDER --npus NUMBER writes" in words
    assert "Give --npus NUMBER" in refused("info", tmp_path / "data.txt")
