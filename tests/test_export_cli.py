"""`export astra-sim`: folders that ASTRA-sim's programs run unchanged, read back by our own simulator."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import tomllib
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.commands.base import astra_folder, astra_job
from studio.commands.base.backends import get_analytical_backend
from studio.et import write
from studio.et.schema import load_schema
from studio.sim.astra import read_yaml
from studio.trace import NodeType, read_int_column
from tests import stand_in_engine
from tests.golden import parts_of, records
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled
from tests.test_cli import run

SYSTEM = {
    "scheduling-policy": "LIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 4,
    "endpoint-delay": 10,
    "local-mem-bw": 1600,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}
NETWORK = "topology: [ Switch ]\nnpus_count: [ 2 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
MIB = 1 << 20


def invoke(*words, code=0):
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result


def exported(source, folder, *words, code=0):
    return invoke("export", "astra-sim", source, "-o", folder, *words, code=code)


def read_back(folder, *words) -> int:
    """Simulate what lies in an exported folder; return its finish."""
    files = ("--system", folder / "system.json", "--network", folder / "network.yml")
    memory = ("--remote-memory", folder / "remote_memory.json")
    done = invoke("simulate", folder / "workload", *files, *memory, *words, "--json")
    return json.loads(done.stdout)["finish_ns"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A system's files."""
    (tmp_path / "n.yml").write_text(NETWORK)
    (tmp_path / "s.json").write_text(json.dumps(SYSTEM))
    return tmp_path


def on(folder):
    return "--system", folder / "s.json", "--network", folder / "n.yml"


@pytest.mark.parametrize("case", ["stg/llama_8r_dp2tp2pp2", "public/astra-sim/all_reduce_8npus_1MB"])
def test_a_run_is_exported_and_finishes_when_it_did(case, shared, tmp_path):
    """By the name of the run alone; the folder is all that is read back."""
    where = ("--workspace", tmp_path / "w")
    run = json.loads(
        invoke(
            "simulate", shared / "traces" / case, "--preset", "hgx-h100", "--model", "astra-sim",
            "--set", "preferred-dataset-splits=2", *where, "--out", "mine", "--json",
        ).stdout
    )  # fmt: skip
    told = json.loads(exported("mine", tmp_path / "out", *where, "--json").stdout)
    assert told["finish_ns"] == told["run_finish_ns"] == run["finish_ns"]
    assert read_back(tmp_path / "out") == run["finish_ns"]
    assert told["backend"] == "analytical-unaware"
    assert not [finding for finding in told["findings"] if finding["level"] == "error"]
    system = json.loads((tmp_path / "out" / "system.json").read_text())
    assert (system["preferred-dataset-splits"], system["trace-enabled"]) == (2, 1)
    assert sorted(read_yaml(tmp_path / "out" / "network.yml")) == [
        "bandwidth",
        "latency",
        "npus_count",
        "topology",
    ]


def test_a_run_of_the_full_model_is_exported_as_astra_sim_has_it_and_says_what_that_changes(tmp_path):
    nodes = [node(0, "COMP", micros=10), collective(1, "ALL_REDUCE", MIB, 0)]
    write(trace_of([nodes] * 8), tmp_path / "job", "job")
    where = ("--workspace", tmp_path / "w")
    invoke("simulate", tmp_path / "job", "--preset", "hgx-h100", *where, "--out", "mine")
    told = json.loads(exported("mine", tmp_path / "out", *where, "--json").stdout)
    assert told["run_finish_ns"] != told["finish_ns"] == read_back(tmp_path / "out")
    [about] = [finding["message"] for finding in told["findings"] if "model astra-sim" in finding["message"]]
    assert "costs" in about
    assert "extended.communication-slots" in about


def odd_job(tmp_path) -> Path:
    """Two ranks with all that ASTRA-sim stops at, and that can be converted."""

    def nodes(rank):
        peer = {"comm_src": 0} if rank else {"comm_dst": 1}
        return [
            node(0, "METADATA"),
            node(1, "COMP", 0, micros=3, duration_ns=3_600),
            collective(2, "REDUCE", MIB, 1),
            collective(3, "BARRIER", 0, 2),
            node(4, "COMM_COLL", 3, comm_type=0, comm_size=MIB, comm_group=7),
            collective(5, "ALL_REDUCE", MIB, 4, group="data parallel", is_cpu_op=True),
            collective(6, "ALL_GATHER", 0, 5),
            node(7, "COMM_RECV" if rank else "COMM_SEND", 6, comm_size=64, **peer),
            node(8, "COMP", 7, micros=1, is_cpu_op=True),
        ]

    write(trace_of([nodes(0), nodes(1)], {"7": [0, 1], "data parallel": [0, 1]}), tmp_path / "job", "job")
    return tmp_path / "job"


def test_what_astra_sim_would_stop_at_is_converted_or_left_out_and_counted(folder, tmp_path):
    told = json.loads(exported(odd_job(tmp_path), folder / "out", *on(folder), "--json").stdout)
    said = " ".join(finding["message"] for finding in told["findings"])
    for words in (
        "2 METADATA nodes left out",
        "2 REDUCE collectives left out",
        "2 BARRIER collectives left out",
        "2 all-gathers of 0 bytes left out",
        "2 communication nodes no longer marked as CPU operations",
        "2 nodes named their comm group by comm_group, now by pg_name",
        "2 sends and receives without comm_tag got tag 0",
        "2 durations rounded to whole microseconds, +800 ns in all",
        "2 operations of the processor",
        "'data parallel' is 8",
    ):
        assert words in said, said
    assert json.loads((folder / "out/workload/comm_group.json").read_text()) == {"7": [0, 1], "8": [0, 1]}
    trace = studio.read(folder / "out/workload")
    for rank in trace.ranks:
        graph = trace.graph_of(rank)
        assert graph.type.tolist() == [
            NodeType.COMP,
            *[NodeType.COMM_COLL] * 2,
            *([NodeType.COMM_RECV] if rank.number else [NodeType.COMM_SEND]),
            NodeType.COMP,
        ]
        assert graph.duration_ns[0] == 4000 == read_int_column(graph, "duration_ns")[1][0]
        assert len(read_int_column(graph, "comm_tag")[0]) == 1
    # As the reference's own reader sees it: by protobuf, groups named by text.
    data = (folder / "out/workload/trace.0.et").read_bytes()
    names = {
        attr.name: attr.string_val for one in decoded(data) for attr in one.attr if attr.name == "pg_name"
    }
    assert names["pg_name"] in ("7", "8")
    assert not any(attr.name == "comm_group" for one in decoded(data) for attr in one.attr)
    assert read_back(folder / "out") == told["finish_ns"]


def decoded(data: bytes):
    """Decode the nodes of a file, by protobuf's own library."""
    from google.protobuf.internal.decoder import _DecodeVarint32

    place, first = 0, True
    while place < len(data):
        size, place = _DecodeVarint32(data, place)
        if not first:
            yield load_schema().node.FromString(data[place : place + size])
        place, first = place + size, False


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "ns3", "htsim"])
def test_the_script_runs_a_program_from_anywhere_with_the_files_it_names(backend, folder, tmp_path):
    """The stand-in insists on every file of the command line; ns-3's network and htsim's options are the user's to add."""
    nodes = [node(0, "COMP", micros=1), collective(1, "ALL_REDUCE", MIB, 0, group="tp")]
    write(trace_of([nodes, nodes], {"tp": [0, 1]}), tmp_path / "my job empty", "job")
    out = folder / "an empty place's"
    told = json.loads(
        exported(tmp_path / "my job empty", out, *on(folder), "--backend", backend, "--json").stdout
    )
    program = tmp_path / "bin" / told["program"]
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, "-S", "-E", stand_in_engine.__file__])} "$@"\n'
    )
    program.chmod(0o755)
    (tmp_path / "log").write_text("sys[0] finished, 7 cycles\n")
    given = {**os.environ, "STAND_IN": "copy", "LOG": str(tmp_path / "log")}
    more = ["--network-configuration=x.json"] if backend == "ns3" else []
    done = subprocess.run(
        [out / "run.sh", os.path.relpath(program, tmp_path), *more],
        cwd=tmp_path, env=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "sys[0] finished, 7 cycles\n"), done.stderr
    assert (told["needs"] != "") == (backend in ("ns3", "htsim"))
    logical = out / "logical_topology.json"
    assert (json.loads(logical.read_text()) if logical.exists() else None) == (
        {"logical-dims": ["2"]} if backend == "ns3" else None
    )
    assert told["congestion"] == ("aware" if backend == "analytical-aware" else "unaware")
    readme = (out / "README.md").read_text()
    assert all(word in readme for word in told["command"])
    assert read_back(out, "--congestion", told["congestion"]) == told["finish_ns"]


@pytest.mark.parametrize(
    ("nodes", "words", "message"),
    [
        ([collective(0, "ALL_REDUCE", MIB)], ["--set", "npus_count=[1]"], "has one NPU"),
        ([node(0, "COMM_COLL", comm_size=8, comm_type=0), node(1, "COMP", 99)], [], "waits for node 99"),
        ([node(0, "COMM_COLL", comm_type=0)], [], "has no comm_size"),
        ([node(0, "MEM_LOAD", tensor_size=64)], [], "the system has no remote memory"),
        ([collective(0, "ALL_TO_ALL", MIB)], [], "all-to-all-implementation"),
        ([collective(0, "ALL_REDUCE", MIB)],
         ["--congestion", "unaware", "--backend", "analytical-aware"], "has another network than --congestion"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_for_astra_sim_is_refused_and_nothing_written(nodes, words, message, folder):
    write(trace_of([nodes, nodes]), folder / "job", "job")
    refused = exported(folder / "job", folder / "out", *on(folder), *words, code=1)
    assert message in refused.output
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"1": [0, 1]}', ""),
        ('{"1": 5}', "a list of ranks"),
        ('{"1": [0, 9]}', "from 0 to 1"),
        ('{"0": [0, 1]}', "any other name"),
        ("[", "not a JSON file"),
    ],
)
def test_comm_groups_of_a_file_take_the_place_of_the_jobs(text, message, folder):
    nodes = [collective(0, "ALL_REDUCE", MIB, group="1")]
    write(trace_of([nodes, nodes], {"1": [1, 0]}), folder / "job", "job")
    (folder / "g.json").write_text(text)
    told = exported(
        folder / "job", folder / "out", *on(folder), "--comm-groups", folder / "g.json", code=bool(message)
    )
    assert message in told.output
    assert (folder / "out").exists() == (not message)
    if not message:
        assert json.loads((folder / "out/workload/comm_group.json").read_text()) == {"1": [0, 1]}


def test_a_folder_is_written_again_and_nothing_else_is_overwritten(folder):
    nodes = [collective(0, "ALL_REDUCE", MIB)]
    write(trace_of([nodes, nodes]), folder / "job", "job")
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.tex").write_text("x")
    assert "holds thesis.tex" in exported(folder / "job", folder / "taken", *on(folder), code=1).output
    assert "holds job.0.et" in exported(folder / "job", folder / "job", *on(folder), code=1).output
    exported(folder / "job", folder / "out", *on(folder))
    again = exported(folder / "out" / "workload", folder / "out", *on(folder), code=1)
    assert "nothing is written into it" in again.output
    (folder / "out/workload/trace.2.et").write_bytes(b"")
    (folder / "out/workload/comm_group.json").write_text("{}")
    text = exported(folder / "job", folder / "out", *on(folder)).output
    assert sorted(path.name for path in (folder / "out/workload").iterdir()) == ["trace.0.et", "trace.1.et"]
    assert "run it  " in text
    assert "simulated here" in text
    assert "No system" in exported(folder / "job", folder / "out", code=1).output
    assert "no workspace" in exported("nothing", folder / "o", "--workspace", folder / "w", code=1).output


def test_where_astra_sims_logger_would_lose_events_that_is_said(folder, monkeypatch):
    nodes = [node(0, "COMP", micros=1, name="x" * 1000), collective(1, "ALL_REDUCE", MIB, 0)]
    write(trace_of([nodes, nodes]), folder / "job", "job")
    monkeypatch.setattr(astra_job, "LOG_KEEPS_BYTES", 2 * 2 * (2 * 115 + 1000 + 2))
    assert "its log of events" not in exported(folder / "job", folder / "out", *on(folder)).output
    monkeypatch.setattr(astra_job, "LOG_KEEPS_BYTES", 2 * 2 * (2 * 115 + 1000 + 2) - 1)
    assert (
        "--logging-configuration=logging.toml" in exported(folder / "job", folder / "out", *on(folder)).output
    )
    sink = tomllib.loads((folder / "out" / "logging.toml").read_text())["sink"][0]
    assert sink["filename"] == "log/events.log"


def test_exported_cases_of_the_reference_finish_when_it_says(shared, tmp_path):
    """Traces, groups, custom algorithms, remote memory and options of its own cases go through the folder unchanged."""
    path = shared / "oracle" / "astra_sim_public.jsonl.gz"
    chosen = [one for one in islice(records(path), 5, None, 97) if one["expected"]["status"] == "ok"]
    done = 0
    for number, record in enumerate(chosen):
        npus = math.prod(record["network"]["npus_count"])
        if npus > 32:
            continue
        trace, parts, custom = parts_of(record)
        prepared = astra_job.prepare(trace, parts, custom)
        folder = tmp_path / str(number)
        astra_folder.write_folder(prepared, folder, get_analytical_backend(record["mode"]))
        groups = folder / "workload" / "comm_group.json"
        imported = studio.read_config(
            folder / "system.json",
            folder / "network.yml",
            comm_groups=groups if groups.exists() else None,
            remote_memory=folder / "remote_memory.json",
            options=prepared.options,
            congestion=record["mode"],
        )
        read = studio.read(sorted((folder / "workload").glob("trace.*.et")))
        result = studio.simulate(read, imported.config, native=compiled())
        assert result.finish_ns.tolist() == record["expected"]["cycles"], record["id"]
        done += 1
    assert done > 12


@pytest.mark.parametrize(
    ("settings", "is_on", "told"),
    [
        ((), False, "the roofline is off, since 2 compute nodes have durations, and these count."),
        (
            ("--set", "roofline-enabled=1"),
            True,
            "2 compute nodes have durations, which do not count: the roofline times all compute anew",
        ),
    ],
)
def test_compute_keeps_its_durations_on_a_preset(tmp_path, settings, is_on, told):
    """As `simulate --preset` has it, although the preset has a roofline; who asks for that gets it, and is told."""
    nodes = [
        node(1, "COMP", micros=700, num_ops=1000, tensor_size=1000),
        collective(2, "ALL_REDUCE", 1024, 1),
    ]
    write(trace_of([nodes] * 2), tmp_path / "job", "job")
    out = tmp_path / "out"
    done = run(
        "export", "astra-sim", tmp_path / "job", "-o", out, "--preset", "hgx-h100", *settings, "--json"
    )
    found = json.loads(done.stdout)
    assert (found["finish_ns"] > 700_000) is not is_on
    assert bool(json.loads((out / "system.json").read_text()).get("roofline-enabled")) is is_on
    [message] = [one["message"] for one in found["findings"] if "roofline" in one["message"]]
    assert told in message
    assert told in (out / "README.md").read_text()


def test_a_run_of_the_full_model_is_exported_with_its_durations(tmp_path):
    nodes = [
        node(1, "COMP", micros=700, num_ops=1000, tensor_size=1000),
        collective(2, "ALL_REDUCE", 1024, 1),
    ]
    write(trace_of([nodes] * 2), tmp_path / "job", "job")
    keep = ("--workspace", tmp_path / "w")
    run("simulate", tmp_path / "job", "--preset", "hgx-h100", "--out", "one", *keep)
    found = json.loads(run("export", "astra-sim", "job", "-o", tmp_path / "out", *keep, "--json").stdout)
    assert found["finish_ns"] > 700_000
    assert found["run_finish_ns"] > 700_000


def test_rounding_is_told_of_durations_that_count(tmp_path):
    """Those of compute in a roofline are not read, nor those of communication."""
    made = node(1, "COMP", micros=700, num_ops=1000, tensor_size=1000, duration_ns=700_400)
    sent = collective(2, "ALL_REDUCE", 1024, 1, duration_ns=900)
    write(trace_of([[made, sent]] * 2), tmp_path / "job", "job")
    words = ("export", "astra-sim", tmp_path / "job", "--preset", "hgx-h100")
    told = run(*words, "-o", tmp_path / "kept").stdout
    assert "2 durations rounded to whole microseconds, -800 ns in all" in told
    assert "rounded" not in run(*words, "-o", tmp_path / "anew", "--set", "roofline-enabled=1").stdout
