"""Recording with PyTorch: every test but the first few needs it, and is skipped where it is not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import studio
from studio.collect import CALLS, Recorder, _note_messages, _settle_resources, recorder
from studio.commands.link import report_rank
from studio.errors import ConfigError, StudioError
from studio.trace import NodeType
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

SCRIPT = """
import sys
import torch
from torch import nn

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    schedule.step()
assert __name__ == "__main__"
sys.exit(0)
"""


def test_the_folder_that_pytorch_makes_beside_a_trace_does_not_stay_behind(tmp_path):
    """Empty it goes; with the sources of generated kernels it lies beside the recording, in place of an earlier one."""
    kept, aside, made = (
        tmp_path / name for name in ("pytorch_et_3.json", ".ab12.et.json", ".ab12.et_resources")
    )
    for source in ("", "old", "new"):
        made.mkdir()
        if source:
            (made / "kernel.py").write_text(source)
        _settle_resources(aside, kept)
        assert not made.exists()
        target = tmp_path / "pytorch_et_3_resources"
        assert [path.read_text() for path in target.glob("*")] == ([source] if source else [])
    made.mkdir()
    (made / "kernel.py").touch()
    _settle_resources(aside, None)
    _settle_resources(aside, kept)
    assert not made.exists()


def python(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ranks(count: int, *arguments: str) -> list[tuple[int, str]]:
    """Run a command as torchrun would; returns what each rank ended with and said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [python(*arguments, RANK=str(rank), **place) for rank in range(count)]
    said = [process.communicate(timeout=PATIENCE_S)[1] for process in running]
    return [(process.returncode, text) for process, text in zip(running, said, strict=True)]


def test_without_pytorch_the_error_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(StudioError, match="Recording needs PyTorch") as error, recorder(tmp_path / "run"):
        pass
    assert 'pip install "chakra-studio[torch]"' in error.value.hint
    assert not (tmp_path / "run").exists()


@pytest.mark.integration
def test_the_example_without_pytorch_says_in_a_line_what_to_install():
    program = (
        "import runpy, sys; sys.modules['torch'] = None; sys.argv = ['mnist_ddp.py']; "
        "runpy.run_path('examples/mnist_ddp.py', run_name='__main__')"
    )
    process = python("-c", program)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (1, "")
    assert said.count("\n") == 1
    assert 'pip install "chakra-studio[torch]"' in said


@pytest.mark.parametrize(("steps", "recorded"), [(2, 0), (4, 2), (5, 3), (9, 3)])
def test_fewer_steps_than_asked_for_are_counted(steps, recorded):
    """Steps that were left out or warmed up are none of them; where all are there, nothing is said."""
    made = Recorder((1, 1, 3), steps=steps, files=(Path("et"), Path("kineto")))
    assert made.recorded_steps == recorded
    expected = f"{recorded} of 3 steps were recorded: {steps} ended, of which 1 were left out and 1 warmed up. Train for 5"
    assert made.shortfall.startswith(expected) if recorded < 3 else made.shortfall == ""
    assert Recorder((1, 1, 3), steps=steps).shortfall == ""


@pytest.mark.integration
def test_a_script_that_is_not_there_is_an_error_for_the_user(tmp_path):
    process = python("-m", "studio.collect", "-o", str(tmp_path), "missing.py")
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "missing.py: no such file" in said
    assert "Traceback" not in said


def test_calls_that_were_noted_down_are_those_of_before_afterwards():
    """PyTorch's functions bind to an object as found in the class, and no longer once they were read from it and set again."""

    class Bound:
        def __get__(self, group: object, owner: type) -> object:
            return sent if group is None else lambda *args: sent(group, *args)

    def sent(group: object, *args: object) -> tuple[object, ...]:
        return group, *args

    sending = Bound()
    process_group = type("ProcessGroup", (), {"send": sending, "group_name": "3"})
    torch = SimpleNamespace(distributed=SimpleNamespace(ProcessGroup=process_group))
    group = process_group()
    with _note_messages(torch) as noted:
        assert group.send("tensor", 1) == (group, "tensor", 1)
    assert group.send("tensor", 1) == (group, "tensor", 1)
    assert vars(process_group)["send"] is sending
    assert [call[1:] for call in noted] == [("3", "send", False, -1, -1)]


@needs_torch
def test_importing_the_module_loads_no_pytorch():
    process = python("-c", "import sys, studio.collect; sys.exit('torch' in sys.modules)")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


@needs_torch
def test_a_script_on_two_ranks_becomes_a_job_that_links_exactly(tmp_path):
    """The optimizer ends the steps: three of eight are recorded, and every operator of theirs is linked."""
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    said = ranks(2, "-m", "studio.collect", "-o", str(folder), "--wait", "2", str(script), "8")
    assert [code for code, _ in said] == [0, 0], said
    assert "rank 1: " in said[1][1]
    assert "chakra-studio link" in said[0][1]
    assert "Traceback" not in said[0][1]
    assert sorted(path.name for path in folder.iterdir()) == [
        "kineto_0.json", "kineto_1.json", "pytorch_et_0.json", "pytorch_et_1.json",
    ]  # fmt: skip
    trace = studio.link(folder)
    assert [rank.number for rank in trace.ranks] == [0, 1]
    assert [(group.name, group.ranks) for group in trace.groups] == [("0", (0, 1))]
    # PyTorch counts from the beginning of the job: what was left out has numbers too.
    noted = [json.loads((folder / f"kineto_{number}.json").read_text())[CALLS] for number in range(2)]
    first = noted[0][0][2]
    assert first > 3
    for calls in noted:
        assert [call[1:] for call in calls] == [
            ["0", first + number, "gloo:all_reduce", 4 * (64 * 64 + 64)] for number in range(3)
        ]
    assert not [finding for finding in trace.findings if finding.level != "info"]
    for rank in trace.ranks:
        figures = report_rank(trace, rank)
        # What tells the process groups has no event, and is no operator.
        assert figures["host_operations"] == figures["linked"]
        assert figures["collectives"]["ALL_REDUCE"] == {"count": 3, "bytes": 3 * 4 * (64 * 64 + 64)}
        graph = trace.graph_of(rank)
        names = [graph.strings[code] for code in graph.name.tolist()]
        assert [name for name in names if name.startswith("ProfilerStep")] == [
            "ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5",
        ]  # fmt: skip
        # None of them is cut in two by the border between steps.
        updates = [at for at, name in enumerate(names) if name.startswith("Optimizer.step#SGD")]
        assert len(updates) == 3
        assert (graph.start_ns[updates] >= 0).all()


@needs_torch
def test_the_example_comes_from_the_training_loop_to_the_simulated_step(tmp_path):
    process = python(str(ROOT / "examples" / "mnist_ddp.py"), str(tmp_path))
    out, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    assert "2 ranks, 3 steps" in out
    assert "a step took " in out
    assert "simulated it has " in out
    trace = studio.link(tmp_path)
    kinds = [int((trace.graph_of(rank).type == NodeType.COMM_COLL).sum()) for rank in trace.ranks]
    assert kinds[0] == kinds[1] > 0


@needs_torch
def test_a_script_that_fails_before_the_first_step_ends_with_its_own_message(tmp_path):
    (tmp_path / "train.py").write_text('raise SystemExit("no data")')
    process = python("-m", "studio.collect", "-o", str(tmp_path / "run"), str(tmp_path / "train.py"))
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert said.splitlines()[-2:] == [
        "Nothing was recorded: the script ended before the first step to record.",
        "no data",
    ]
    assert list((tmp_path / "run").iterdir()) == []


@needs_torch
def test_a_loop_that_ends_too_early_and_a_folder_of_another_job_are_errors(tmp_path):
    (tmp_path / "pytorch_et_5.json").write_text("{}")
    program = f"""
from studio.collect import CALLS, Recorder, _messages, _settle_resources, recorder
from studio.errors import TraceError
for folder in ({str(tmp_path)!r}, {str(tmp_path / "new")!r}):
    try:
        with recorder(folder, wait=3) as recording:
            recording.step()
    except TraceError as error:
        print(error.message)
"""
    process = python("-c", program, RANK="1", WORLD_SIZE="2")
    out, said = process.communicate(timeout=PATIENCE_S)
    first, second = out.splitlines()
    assert "holds a recording of rank 5, and this job has 2 ranks" in first, said
    assert second == "Nothing was recorded: 1 steps ended, and recording starts after 3 + 1."
    assert list((tmp_path / "new").iterdir()) == []


@needs_torch
def test_a_script_that_raises_keeps_what_was_recorded(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("sys.exit(0)", "raise ValueError('out of data')"))
    [(code, said)] = ranks(1, "-m", "studio.collect", "-o", str(tmp_path / "run"), str(script), "3")
    assert code == 1
    assert "ValueError: out of data" in said
    assert len(studio.link(tmp_path / "run").ranks) == 1


@needs_torch
def test_a_schedule_that_records_nothing_is_refused(tmp_path):
    program = f"""
from studio.collect import CALLS, Recorder, _messages, _settle_resources, recorder
with recorder({str(tmp_path)!r}, active=0):
    pass
"""
    process = python("-c", program)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert f"{ConfigError.__name__}: wait 1, warmup 1, active 0" in said


@needs_torch
def test_too_few_steps_are_warned_of_with_numbers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    [(code, said)] = ranks(1, "-m", "studio.collect", "-o", str(tmp_path / "run"), str(script), "4")
    assert code == 0
    assert "Warning: rank 0: 2 of 3 steps were recorded: 4 ended" in said
    assert "UserWarning" not in said
    program = f"""
import warnings
warnings.simplefilter("error")
from studio.collect import recorder
try:
    with recorder({str(tmp_path / "own")!r}) as recording:
        for _ in range(3):
            recording.step()
except UserWarning as warning:
    print(warning)
"""
    out, said = python("-c", program).communicate(timeout=PATIENCE_S)
    assert "1 of 3 steps were recorded: 3 ended" in out, said
