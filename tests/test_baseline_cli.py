"""`compare --baseline`: a run held against measures in a file, for continuous integration."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.commands.base.baseline import LIMITS
from tests.fleet_jobs import put, recorded


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two recordings, the second slower by 10 µs of 110 in each step, and the baseline of the first."""
    root = tmp_path_factory.mktemp("baseline")
    put(root, "good", recorded())
    put(root, "slow", recorded(11))
    put(root, "wide", recorded(ranks=3))
    invoke(root / "good", "--write-baseline", root / "base.json")
    return root


def invoke(*words, code=0):
    result = CliRunner().invoke(main, ["compare", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_same_run_is_not_worse_and_a_slower_one_is(place):
    told = invoke(place / "good", "--baseline", place / "base.json")
    assert told.endswith(f"Nothing is worse than {place / 'base.json'} allows.\n")
    told = json.loads(invoke(place / "slow", "--baseline", place / "base.json", "--json", code=3))
    rows = {row["measure"]: row for row in told["measures"]}
    assert told["worse"] == ["step", "finish", "exposed"]
    assert rows["step"]["baseline"] == 110_000
    assert rows["step"]["now"] == 121_000
    assert rows["step"]["difference"] == pytest.approx(10)
    assert rows["exposed"]["difference"] == pytest.approx(100 * (71 / 121 - 60 / 110))
    assert rows["imbalance"]["state"] == "same"
    said = invoke(place / "slow", "--baseline", place / "base.json", code=3).splitlines()[-1]
    assert (
        said
        == f"Worse than {place / 'base.json'}: step time +10.00 %; finish +10.00 %; exposed communication +4.13 points."
    )


def test_what_is_allowed_is_said_by_measure(place):
    allow = ["--allow", "step=10%,finish = 10 %", "--allow", "exposed=5points"]
    told = invoke(place / "slow", "--baseline", place / "base.json", *allow, "--json")
    states = {row["measure"]: row["state"] for row in json.loads(told)["measures"]}
    assert states["step"] == states["exposed"] == "allowed"
    assert states["errors"] == "same"
    assert set(states) == set(LIMITS)


def test_a_baseline_moves_only_where_nothing_is_worse(place, tmp_path):
    moved = tmp_path / "new" / "base.json"
    invoke(place / "slow", "--baseline", place / "base.json", "--write-baseline", moved, code=3)
    assert not moved.exists()
    invoke(
        place / "slow",
        "--baseline",
        place / "base.json",
        "--write-baseline",
        moved,
        "--allow",
        "step=10%,finish=10%,exposed=5points",
    )
    assert json.loads(moved.read_text())["measures"]["step"] == 121_000
    # The other way round everything is better.
    told = json.loads(invoke(place / "good", "--baseline", moved, "--json"))
    assert [row["state"] for row in told["measures"][:3]] == ["better"] * 3


def test_what_a_run_lacks_is_worse_and_findings_of_other_checks_do_not_count(place, tmp_path):
    kept = json.loads((place / "base.json").read_text())
    kept["checks"] += 1
    del kept["measures"]["imbalance"]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(kept))
    states = {
        row["measure"]: row["state"]
        for row in json.loads(invoke(place / "good", "--baseline", other, "--json"))["measures"]
    }
    assert states["errors"] == states["imbalance"] == "not compared"
    put(tmp_path, "stepless", _stepless())
    told = json.loads(invoke(tmp_path / "stepless", "--baseline", place / "base.json", "--json", code=3))
    assert told["worse"] == ["step"]


def _stepless():
    from tests.handmade import collective, node, trace_of

    def rank():
        made = []
        for step in range(2):
            begin = 100 + 110 * step
            first, second = (
                node(2 * step + 1, "COMP", micros=50),
                collective(2 * step + 2, "ALL_REDUCE", 1 << 20, 2 * step + 1),
            )
            first.start_time_micros, second.start_time_micros, second.duration_micros = begin, begin + 50, 60
            made += [first, second]
        return made

    return trace_of([rank(), rank()])


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["wide", "--baseline", "base.json"], "ranks of the baseline: 2; of", 1),
        (["good", "--baseline", "text.json"], "not a baseline", 1),
        (["good", "--baseline", "empty.json"], "not a baseline", 1),
        (["good", "--baseline", "form.json"], "chakra_studio_baseline is 7; allowed: 1", 1),
        (["good", "--baseline", "odd.json"], "'stepp' is unknown", 1),
        (["good", "--baseline", "base.json", "--allow", "stepp=5%"], "did you mean 'step'?", 1),
        (["good", "--baseline", "base.json", "--allow", "step=5points"], "allowed: step=5%", 1),
        (["good", "--baseline", "base.json", "--allow", "errors=-1"], "allowed: errors=1", 1),
        (["good", "slow", "--baseline", "base.json"], "name one run", 2),
        (["good", "slow", "--allow", "step=5%"], "--allow goes with --baseline", 2),
        (["good"], "Name 2 to 8 runs", 2),
        (["good", "--baseline", "none.json"], "does not exist", 2),
        (["good", "--write-baseline", "good"], "is a directory", 2),
    ],
)
def test_what_cannot_be_compared_is_refused(place, monkeypatch, words, message, code):
    monkeypatch.chdir(place)
    kept = json.loads((place / "base.json").read_text())
    (place / "text.json").write_text("remember the milk")
    (place / "empty.json").write_bytes(b"")
    (place / "form.json").write_text(json.dumps({**kept, "chakra_studio_baseline": 7}))
    (place / "odd.json").write_text(json.dumps({**kept, "measures": {"stepp": 1}}))
    result = CliRunner().invoke(main, ["compare", *words])
    assert result.exit_code == code, result.output
    assert message in " ".join(result.output.split())
