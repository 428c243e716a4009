"""`timeline`: issue and callback lines, logs, Chrome traces and Perfetto files made of each other."""

from __future__ import annotations

import gzip
import io
import json
import sys

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.commands.base.timelines import FORMS
from studio.et import write
from studio.et.events import finish_lines
from tests.handmade import collective, node, trace_of
from tests.inspector_logs import record, write_logs

PREFIX = "[2026-11-20T20:00:00+0000] [{level}] <workload>: "
NAME = "f(a, b=2), node->type=9, x"
SUFFIXES = [form.suffix for form in FORMS]


def invoke(*words, code=0, given=None):
    result = CliRunner().invoke(main, ["timeline", *map(str, words)], input=given)
    assert result.exit_code == code, result.output
    return result


def log(*, prefix=PREFIX, space=" ") -> str:
    """Two ranks; rank 1 runs a node that never ends and ends one that never began, and does not finish."""
    events = [
        ("issue", 0, 0, 1, "a", 4), ("issue", 1, 0, 1, NAME, 7), ("callback", 0, 43, 1, "a", 4),
        ("issue", 0, 43, 2, NAME, 7), ("callback", 0, 100, 2, NAME, 7), ("callback", 1, 101, 1, NAME, 7),
        ("issue", 1, 101, 2, "b", 4), ("callback", 1, 120, 9, "c", 2),
    ]  # fmt: skip
    debug, info = (prefix.format(level=level) if prefix else "" for level in "DI")
    lines = [
        f"{debug}{word},sys->id={rank},{space}tick={tick},{space}node->id={node},{space}node->name={name},{space}node->type={kind}"
        for word, rank, tick, node, name, kind in events
    ]
    return "\n".join(
        [f"{info}Starting", *lines, f"{info}sys[0] finished, 100 cycles, exposed communication 57 cycles."]
    )


def spans(path) -> list[tuple]:
    trace = studio.read(path)
    return sorted(
        (rank.number, int(number), graph.strings[int(name)], int(kind), int(start), int(length))
        for rank in trace.ranks
        for graph in [trace.graph_of(rank)]
        for number, name, kind, start, length in zip(
            graph.id, graph.name, graph.type, graph.start_ns, graph.duration_ns, strict=True
        )
        if start >= 0
    )


@pytest.mark.parametrize("prefix", [PREFIX, "", "\x1b[32m[12:00:01.5] workload:\x1b[0m "])
@pytest.mark.parametrize("space", [" ", ""])
def test_logs_of_every_dialect_become_every_form_and_come_back(prefix, space, tmp_path):
    """What began, ended and never ended is the same after any two conversions; ends without a beginning stay in lines."""
    source = tmp_path / "log.log.1"
    source.write_text(log(prefix=prefix, space=space))
    expected = spans(source)
    assert [one[:2] for one in expected] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert expected[2] == (1, 1, NAME, 7, 0, 101)
    for suffix in SUFFIXES:
        first = tmp_path / f"first{suffix}"
        told = json.loads(invoke(source, "-o", first, "--json").stdout)
        assert (told["nodes"], told["unfinished"], told["unfinished_by_rank"]) == (4, 1, {"1": 1})
        assert (told["without_issue"], told["lines_skipped"], told["finish_ns"]) == (1, 0, 101)
        assert spans(first) == expected
        second = tmp_path / "second.log"
        again = json.loads(invoke(first, "-o", second, "--json").stdout)
        assert (again["nodes"], again["unfinished"]) == (4, 1)
        lines = second.read_text().splitlines()
        # One callback for each node that ended, and a line for the rank that finished.
        assert sum(": issue," in line for line in lines) == 4
        assert sum(": callback," in line for line in lines) == 3 + (suffix in (".csv", ".log"))
        assert {rank: one.ticks for rank, one in finish_lines(second.read_bytes()).items()} == {0: 100}
        assert finish_lines(second.read_bytes())[0].exposed == 57


def test_the_golden_timeline_by_the_clock_it_was_made_with(shared, tmp_path):
    """The existing tool writes milliseconds where viewers read microseconds; ours differ by half a nanosecond at most."""
    golden = json.loads(
        gzip.decompress((shared / "traces/golden/timeline/llama_8r.1500MHz.timeline.json.gz").read_bytes())
    )
    theirs = sorted(
        (one["pid"], one["name"], one["ts"] * 1e6, one["dur"] * 1e6) for one in golden["traceEvents"]
    )
    source = shared / "traces" / "timeline" / "llama_8r.csv.gz"
    out = tmp_path / "x.json"
    for clock in ("1500", "1.5GHz"):
        told = json.loads(invoke(source, "-o", out, "--npu-frequency", clock, "--json").stdout)
        assert (told["npu_frequency_mhz"], told["ranks"], told["nodes"]) == (1500, 8, 2816)
        assert told["finish_ns"] == 29366 == round(max(one[2] + one[3] for one in theirs))
    ours = sorted(
        (one["pid"], one["name"], one["ts"] * 1000, one["dur"] * 1000)
        for one in json.loads(out.read_text())["traceEvents"]
        if one["ph"] == "X"
    )
    assert len(ours) == len(theirs)
    for (rank, name, start, length), (pid, other, ts, dur) in zip(ours, theirs, strict=True):
        assert (rank, name) == (pid, other)
        assert abs(start - ts) <= 0.501
        assert abs(length - dur) <= 1.001


def test_a_timeline_of_the_existing_tool_is_read_in_its_milliseconds(shared, tmp_path):
    """Back to cycles by the clock it was made with: those of the lines it was made of, to the nanosecond."""
    golden = shared / "traces/golden/timeline/llama_8r.1500MHz.timeline.json.gz"
    out = tmp_path / "x.csv"
    told = json.loads(invoke(golden, "-o", tmp_path / "ns.csv", "--json").stdout)
    assert (told["ranks"], told["nodes"], told["finish_ns"], told["lines_skipped"]) == (8, 2816, 29366, 0)
    invoke(golden, "-o", out, "--npu-frequency", "1500")
    lines = spans(shared / "traces" / "timeline" / "llama_8r.csv.gz")
    kept, back = (
        sorted((rank, name, kind, start, start + length) for rank, _, name, kind, start, length in one)
        for one in (lines, spans(out))
    )
    assert [one[:3] for one in back] == [one[:3] for one in kept]
    # A nanosecond is 1.5 cycles.
    assert all(
        abs(a - b) <= 1
        for one, two in zip(kept, back, strict=True)
        for a, b in zip(one[3:], two[3:], strict=True)
    )


def test_cycles_stay_between_forms_that_count_them_and_are_exact_below_a_nanosecond(tmp_path):
    source = tmp_path / "x.csv"
    source.write_text("issue,a=0,b=0,c=1,d=x,type=4\ncallback,a=0,b=4611686018427387904,c=1,d=x,type=4\n")
    invoke(source, "-o", tmp_path / "x.log", "--npu-frequency", "1.5GHz")
    assert spans(tmp_path / "x.log") == spans(source)
    invoke(source, "-o", tmp_path / "x.json", "--npu-frequency", "2GHz")
    assert '"dur": 2305843009213693.952' in (tmp_path / "x.json").read_text()
    invoke(source, "-o", tmp_path / "x.pftrace", "--npu-frequency", "2GHz")
    invoke(tmp_path / "x.pftrace", "-o", tmp_path / "back.csv", "--npu-frequency", "2GHz")
    assert spans(tmp_path / "back.csv") == spans(source)
    refused = invoke(source, "-o", tmp_path / "y.json", "--npu-frequency", "1MHz", code=1)
    assert "too large" in refused.output
    assert not (tmp_path / "y.json").exists()


@pytest.mark.parametrize("clock", ["0", "-5", "fast", "1.5 THz", "nan", "1e99", "1" * 400])
def test_a_clock_that_is_none_is_refused(clock, tmp_path):
    assert "is no frequency" in invoke("x", "-o", "y.csv", "--npu-frequency", clock, code=2).output


def test_a_run_of_the_workspace_is_written_with_the_times_that_it_found(tmp_path):
    """All ranks of a folded run, by its name; the same events as `simulate --events` writes of every rank."""
    nodes = [node(1, "COMP", micros=3), collective(2, "ALL_REDUCE", 1 << 20, 1)]
    write(trace_of([nodes] * 4), tmp_path / "job", "job")
    where = ["--workspace", str(tmp_path / "w")]
    whole = ["simulate", str(tmp_path / "job"), "--preset", "hgx-h100", *where]
    for more in (["--out", "mine"], ["--events", str(tmp_path / "events.csv")]):
        done = CliRunner().invoke(main, [*whole, *more])
        assert done.exit_code == 0, done.output
    told = json.loads(invoke("mine", "-o", tmp_path / "run.csv", *where, "--json").stdout)
    assert (told["ranks"], told["nodes"], told["untimed"]) == (4, 8, 0)
    assert spans(tmp_path / "run.csv") == spans(tmp_path / "events.csv")
    invoke("mine", "-o", tmp_path / "run.pftrace", *where)
    assert spans(tmp_path / "run.pftrace") == spans(tmp_path / "events.csv")
    assert "The nearest is" in invoke("mien", "-o", tmp_path / "x.csv", *where, code=1).output


def test_standard_streams(monkeypatch, tmp_path):
    text = log()
    made = invoke("-", "-o", "-", "--to", "csv", "--json", given=text.encode())
    assert made.stdout.startswith("issue,sys->id=0,tick=0,node->id=1,node->name=a,node->type=4\n")
    report = made.stderr[made.stderr.index("{") :]
    assert json.loads(report)["file"] == "-"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert "nothing says which form" in invoke("-", "-o", "-", code=1).output


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("[t] sys[0] finished, 5 cycles\n[t] sys[1] finished, 6 cycles, exposed communication 0 cycles.\n",
         ["x.json"], "2 ranks only finish"),
        ("issue,sys->id=0,tick=", ["x.json"], "not an execution trace"),
        ("nothing\n", ["x.json"], "not an execution trace"),
        ("", ["x.json"], "empty"),
        (log(), ["x.svg"], "nothing says which form"),
        (log(), ["x.json", "--to", "csv"], "allowed: the same form"),
        (log(), ["taken.json"], "no timeline of this form"),
        (log(), ["folder.json"], "is a folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_and_nothing_is_there(text, words, message, tmp_path):
    (tmp_path / "in").write_text(text)
    (tmp_path / "taken.json").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    name, *rest = words
    refused = invoke(tmp_path / "in", "-o", tmp_path / name, *rest, code=1)
    assert message in refused.output
    assert "Error" in refused.output
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_lines_that_cannot_be_read_are_counted(tmp_path):
    (tmp_path / "in").write_text(log() + f"\nissue,a=\nissue,a=0,b={2**64},c=1,d=x\n")
    refused = invoke(tmp_path / "in", "-o", tmp_path / "x.csv", code=4)
    assert "lines skipped  2" in refused.output
    assert "unfinished     1 began and never ended (rank 1: 1)" in refused.output
    assert (tmp_path / "x.csv").exists()
    invoke(tmp_path / "in", "-o", tmp_path / "x.csv", "--allow-damaged")
    codes = {finding.code for finding in studio.read(tmp_path / "in").findings}
    assert {"rank-unfinished", "unfinished", "no-issue", "damaged-line", "bad-value"} <= codes


def test_times_of_a_clock_count_from_the_first(tmp_path):
    """A log of 200 µs finished after 485,564 hours, since 1970."""
    logs = write_logs(tmp_path / "logs", [[record(0, 1, ranks=1), record(0, 2, ranks=1)]])
    out = tmp_path / "logs.json"
    assert "finish 200 µs" in invoke(logs, "-o", out).output
    assert json.loads(invoke(logs, "-o", tmp_path / "2.json", "--json").stdout)["finish_ns"] == 200_000
