"""`chakra-studio suite`: every job on every system, once, scored and held against limits and earlier results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from studio.cli import main
from studio.commands.base import suite_cases
from studio.commands.base.suite_file import read_suite
from studio.errors import ConfigError
from tests.fleet_jobs import put, recorded
from tests.handmade import collective, node, trace_of

SUITE = """# Two jobs on three systems.
name = "nightly"
reference = "ring"

[jobs.small]
path = "small"

[jobs.large]
path = "large"

[systems.ring]
system = "s.json"
network = "n.yml"
model = "astra-sim"

[systems.fast]
system = "s.json"
network = "n.yml"
model = "astra-sim"
set = { "bandwidth[0]" = 100 }

[systems.full]
system = "s.json"
network = "n.yml"
model = "full"
"""
NETWORK = "topology: [ Ring ]\nnpus_count: [ 2 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
}


def job(size: int):
    """Two ranks: 10 µs of compute, then an all-reduce."""
    return trace_of([[node(0, "COMP", micros=10), collective(1, "ALL_REDUCE", size, 0)]] * 2)


@pytest.fixture
def folder(tmp_path) -> Path:
    put(tmp_path, "small", job(1 << 20))
    put(tmp_path, "large", job(1 << 24))
    (tmp_path / "n.yml").write_text(NETWORK)
    (tmp_path / "s.json").write_text(json.dumps(SYSTEM))
    (tmp_path / "suite.toml").write_text(SUITE)
    return tmp_path


def invoke(folder, *words, code=0):
    result = CliRunner().invoke(
        main, ["suite", str(folder / "suite.toml"), "-o", str(folder / "out"), *map(str, words)]
    )
    assert result.exit_code == code, result.output
    return result.stdout


def cases_of(folder, *words, code=0):
    told = json.loads(invoke(folder, *words, "--json", code=code))
    return told, {(case["result"]["job"], case["result"]["system"]): case for case in told["cases"]}


def test_cases_are_what_simulate_says_and_systems_are_scored(folder):
    told, cases = cases_of(folder)
    for name in ("small", "large"):
        words = [
            str(folder / name),
            "--system",
            str(folder / "s.json"),
            "--network",
            str(folder / "n.yml"),
            "--json",
        ]
        alone = CliRunner().invoke(main, ["simulate", *words, "--model", "astra-sim"])
        assert cases[name, "ring"]["result"]["finish_ns"] == json.loads(alone.output)["finish_ns"]
        assert cases[name, "ring"]["speed"] == 1
        # Answers of different models do not compare.
        assert cases[name, "full"]["speed"] is None
    speeds = [
        cases[name, "ring"]["result"]["finish_ns"] / cases[name, "fast"]["result"]["finish_ns"]
        for name in ("small", "large")
    ]
    scores = {score["system"]: score for score in told["scores"]}
    assert scores["ring"]["speed"] == 1
    assert scores["fast"]["speed"] == pytest.approx((speeds[0] * speeds[1]) ** 0.5)
    assert scores["full"] == {"system": "full", "speed": None, "jobs": 0, "impossible": 0}
    assert json.loads((folder / "out" / "suite.json").read_text())["scores"] == told["scores"]


def test_a_suite_goes_on_where_it_was_ended_and_simulates_what_changed(folder, monkeypatch):
    simulate, ran = suite_cases.simulate, []

    def counted(request, **more):
        if len(ran) == 4:
            raise KeyboardInterrupt
        ran.append(request)
        return simulate(request, **more)

    with monkeypatch.context() as ended:
        ended.setattr(suite_cases, "simulate", counted)
        with pytest.raises(KeyboardInterrupt):
            suite_cases.run_suite(read_suite(folder / "suite.toml"), folder / "out")
    assert not (folder / "out" / "suite.json").exists()
    _, cases = cases_of(folder)
    assert sum(case["kept"] for case in cases.values()) == 4
    first = {name: case["result"] for name, case in cases.items()}
    _, cases = cases_of(folder)
    assert all(case["kept"] for case in cases.values())
    assert {name: case["result"] for name, case in cases.items()} == first
    # Another job under the same name, and a stored case that is damaged.
    shutil.rmtree(folder / "small")
    put(folder, "small", job(1 << 21))
    [stored] = (folder / "out" / "cases").glob("large--fast-*.json")
    stored.write_bytes(stored.read_bytes()[:-3])
    _, cases = cases_of(folder)
    assert {name for name, case in cases.items() if not case["kept"]} == {
        *((("small"), system) for system in ("ring", "fast", "full")),
        ("large", "fast"),
    }
    assert not any(case["kept"] for case in cases_of(folder, "--again")[1].values())


def test_a_case_that_fails_ends_no_other(folder):
    (folder / "broken").mkdir()
    (folder / "broken" / "job.0.et").write_bytes(b"\xff" * 9)
    extra = '\n[jobs.broken]\npath = "broken"\n[jobs.gone]\npath = "nowhere"\n[systems.none]\npreset = "hgx-h101"\n'
    (folder / "suite.toml").write_text(SUITE + extra)
    said = invoke(folder, code=1)
    assert "failed: broken on ring:" in said
    assert "failed: small on none:" in said
    _, cases = cases_of(folder, code=1)
    assert sum(case["result"]["finish_ns"] is not None for case in cases.values()) == 6
    assert cases["gone", "ring"]["result"]["error"]
    assert not cases["broken", "ring"]["kept"], "failures are tried again"


def test_limits_and_earlier_results_are_held_against_cases(folder):
    invoke(folder)
    shutil.copytree(folder / "out", folder / "before")
    limits = '\n[[limits]]\njob = "large"\nsystem = "ring"\nfinish = "1 us"\n\n[[limits]]\nsystem = "fast"\nspeed = 1.01\nexposed = "99 %"\n'
    (folder / "suite.toml").write_text(SUITE + limits)
    _, cases = cases_of(folder, code=3)
    [exceeded] = [case for case in cases.values() if case["exceeded"]]
    line = (SUITE + limits).splitlines().index("[[limits]]") + 1
    assert exceeded["exceeded"][0].endswith(f"at most 1.00 µs (line {line})")
    (folder / "suite.toml").write_text(SUITE.replace("= 100", "= 60"))
    told, _ = cases_of(folder, "--against", folder / "before", code=3)
    assert [(one["job"], one["system"]) for one in told["regressions"]] == [
        ("small", "fast"),
        ("large", "fast"),
    ]
    assert all(one["now_ns"] > one["before_ns"] for one in told["regressions"])
    assert "slower than before: large on fast" in invoke(
        folder, "--against", folder / "before" / "suite.json", code=3
    )
    told, _ = cases_of(folder, "--against", folder / "before", "--slower", "90")
    assert told["regressions"] == []
    # A job that is gone was there before.
    (folder / "suite.toml").write_text(SUITE.replace('[jobs.large]\npath = "large"\n', ""))
    told, _ = cases_of(folder, "--against", folder / "before", code=3)
    assert {one["job"] for one in told["regressions"] if one["now_ns"] is None} == {"large"}


def test_a_recording_keeps_its_steps(folder):
    put(folder, "steps", recorded())
    (folder / "suite.toml").write_text(SUITE.replace('path = "small"', 'path = "steps"'))
    _, cases = cases_of(folder)
    assert cases["small", "ring"]["result"]["step_ns"] > 0


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("name =", "nmae ="), 2, "unknown key 'nmae'; allowed: name, reference, jobs, systems, limits"),
        (
            ('path = "large"', 'path = "large"\npaths = 3'),
            10,
            "unknown key 'paths'; allowed: path, npus, passes, ranks",
        ),
        (
            ('path = "large"', 'path = ["large", 3]'),
            9,
            "jobs.large.path; allowed: a path, or a list of paths",
        ),
        (("[jobs.large]", '[jobs."large/1"]'), 8, "the name 'large/1'"),
        (('reference = "ring"', 'reference = "rign"'), 3, "reference is 'rign'; allowed: ring, fast, full"),
        (('"full"', '"fuller"'), 25, "model is 'fuller'; allowed: full, astra-sim"),
        (("100 }", "[{}] }"), 20, "bandwidth[0]; allowed: a number, a text, or a list of them"),
        (('network = "n.yml"', 'network = "m.yml"'), 13, "network 'm.yml': there is no such file"),
        (("# Two", "limits = 3\n# Two"), 1, "limits; allowed: tables that begin with [[limits]]"),
        (("# Two", "[[limits]]\nfinish = 3\n[x]\n# Two"), 3, "unknown key 'x'"),
    ],
)
def test_a_mistake_is_named_with_its_line(folder, change, line, message):
    text = SUITE.replace(*change, 1)
    if change[0] == '"full"' or change[0] == 'network = "n.yml"':
        assert text != SUITE
    (folder / "suite.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_suite(folder / "suite.toml")
    assert f"line {line}: " in refused.value.message
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no jobs"),
        ("name = ", "not a suite"),
        ("\x00\xff", "not a suite"),
        ("a" * 10 + "." * 9, "not a suite"),
        ("[jobs]\nsmall = 3\n[systems.a]\npreset='x'", "there are no jobs"),
        ("jobs.a = {path='x'}\nsystems.b = {preset='y'}\nlimits=[{}]", "the limit says nothing"),
        ("jobs.a = {path='x'}\nsystems.b = {preset='y'}\nlimits=[{exposed='3'}]", 'such as "20 %"'),
        ("jobs.a = {path='x'}\nsystems.b = {preset='y'}\nlimits=[{finish='3 parsecs'}]", "parsecs"),
        ("jobs.a = {path='x'}\nsystems.b = {preset='y', npus=true}", "npus is True; allowed: a whole number"),
    ],
)
def test_what_is_no_suite_is_refused(tmp_path, text, message):
    (tmp_path / "suite.toml").write_text(text, encoding="latin-1")
    assert message in invoke_error(tmp_path)


def invoke_error(folder):
    result = CliRunner().invoke(main, ["suite", str(folder / "suite.toml"), "-o", str(folder / "out")])
    assert result.exit_code == 1, result.output
    assert not (folder / "out").exists()
    return result.output


def test_results_that_are_none_are_refused(folder):
    for content in (b"", b"{}", b'{"chakra_studio_suite":7,"name":"a","reference":"b","cases":[]}'):
        (folder / "old.json").write_bytes(content)
        invoke(folder, "--against", folder / "old.json", code=1)
    (folder / "none").mkdir()
    invoke(folder, "--against", folder / "none", code=1)
