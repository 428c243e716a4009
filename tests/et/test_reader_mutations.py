"""Damaged files of every reader: a trace or a StudioError. `benchmarks/fuzz_readers.py` is the long version."""

from __future__ import annotations

import importlib.util
import json
import signal
from pathlib import Path
from random import Random

import pytest

import studio
from studio.et.job_files import recognise
from studio.et.known import FORMATS
from tests.waiting import PATIENCE_S

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"


def loaded(name: str):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return loaded("fuzz_readers")


@pytest.fixture
def impatient():
    """Ends a test that hangs."""

    def stop(*_):
        raise AssertionError("reading hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(PATIENCE_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "name",
    [
        "text", "events", "workload-graph", "jsonized", "etplus", "rocprof", "rocprof-perfetto", "xplane", "xplane-json",
        "exported-chrome", "exported-perfetto", "flight", "msccl", "inspector", "nsight", "rocpd", "mscclpp",
        "tool-timeline", "merged",
    ],
)  # fmt: skip
def test_mutated_files_give_a_trace_or_an_error_for_the_user(fuzz, impatient, tmp_path, name):
    seeds, rng = fuzz.SEEDS[name], Random(7)
    for seed in seeds:
        assert recognise(seed).name == name
    came = [fuzz.try_one(rng.choice(seeds), rng, tmp_path / "mutated", number) for number in range(75)]
    # A protobuf message is whole or refused, and so is rocprof's JSON: most faults leave nothing to read.
    least = {
        "rocprof": 7,
        "rocprof-perfetto": 0,
        "xplane": 0,
        "exported-perfetto": 0,
        "msccl": 0,
        "merged": 0,
        "inspector": 5,
        "nsight": 5,
        "rocpd": 5,
        "mscclpp": 3,
    }.get(name, 15)
    assert came.count("trace") + came.count("damaged trace") > least
    assert len(set(came)) > 1


def test_every_format_has_seeds(fuzz):
    assert set(fuzz.SEEDS) | {"chakra", "pytorch", "kineto"} >= {
        fmt.name for fmt in FORMATS if not fmt.describes_job
    }


@pytest.mark.parametrize(
    "text",
    [
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD 1 all_gpus: 4 checkpoints: 9 " + "0 " * 5_000 + "checkpoint_initiates: 9 "
        + " ".join(map(str, range(5_000))) + "\n9999\n" + "a -1 1 ALLREDUCE 1 1 ALLREDUCE 1 1 ALLREDUCE 1 1\n" * 9999,
        "issue,a=0,b=0,c=1,d=x\n" * 100_000 + "callback,a=0,b=0,c=1,d=x\n" * 100_000,
        "issue,a=0,b=0,c=1,d=" + "x," * 100_000,
        "".join(f"issue,a={n},b=0,c=1,d=x\n" for n in range(4_000)),
        "issue,a=0,b=0,c=1,d=x\n" + "issue," * 200_000,
        json.dumps({"workload_graph": [{"Id": n, "data_deps": list(range(50))} for n in range(20_000)]}),
        '{"attr": [{"name": "x", "stringVal": "y"}]}' + '{"id": "1"}' * 60_000 + "{",
        '{"attr": [{"name": "x", "stringVal": "y"}]}' + "[" * 200_000,
    ],
    ids=["checkpoints", "open issues", "commas", "ranks", "starts", "dependencies", "objects", "brackets"],
)  # fmt: skip
def test_no_file_takes_time_that_grows_with_its_square(text, impatient, tmp_path):
    """Each would take minutes if some step went over the whole file once per line, node or rank."""
    path = tmp_path / "file"
    path.write_text(text)
    assert studio.read(path, npus=4).graphs
