"""Fuzz the other readers: each file gives a trace or a StudioError, in bounded time.

    python benchmarks/fuzz_readers.py [--mutations 10000] [--seed 1] [--only FORMAT] [FILE ...]

Without files small ones of every format are mutated, `--mutations` of each; with files those. Bytes are changed, and in
JSON also values. The reading happens in this process, whose peak memory and slowest file are printed. Any other
exception, or a mutation that takes longer than ten seconds, ends the run and is left beside for a look.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from fuzz_et import count_outcomes, mutate, places, seeds
from profile_seeds import PROFILES

import studio
from studio.errors import StudioError
from studio.et import chakra, encode
from studio.et.format import Reading
from studio.et.job_files import discover
from studio.et.merged.merge import merge
from studio.et.source import open_sources

TEXT = b"""HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 8 ga: 1 all_gpus: 8 checkpoints: 2 0 2 checkpoint_initiates: 1 2
4
embedding -1 556000 ALLREDUCE 16777216 1 NONE 0 1 NONE 0 1
moe -1 10 ALLTOALL_EP 1024 5 ALLTOALL_EP 1024 7 ALLGATHER_DP_EP 4096 1
mlp\t-1\t10\tALLGATHER\t1024\t5\tREDUCESCATTER\t1024\t7\tREDUCESCATTER_DP_EP\t4096\t100
head -1 10 NONE 0 5 NONE 0 7 ALLREDUCE 4096 1
"""
DLRM = b"""HYBRID_DLRM 1
3
embed -1 1200 ALLTOALL 262144 900 ALLTOALL 262144 1100 ALLREDUCE 4194304 80
bottom -1 5200 NONE 0 5100 NONE 0 5000 ALLREDUCE 16777216 200
top -1 5300 NONE 0 5150 NONE 0 5050 ALLREDUCE 16777216 200
"""
EVENTS = b"""[2026-01-01] [I] <system>: ring of 4 NPUs
[2026-01-01] [D] <workload>: issue,sys->id=0, tick=0, node->id=1, node->name=a, b=c, node->type=4
[2026-01-01] [D] <workload>: issue,sys->id=1, tick=0, node->id=1, node->name=a, b=c, node->type=4
[2026-01-01] [D] <workload>: callback,sys->id=0, tick=43, node->id=1, node->name=a, b=c, node->type=4
issue,sys->id=0,tick=43,node->id=2,node->name=COMM_COLL_NODE_x,node->type=7
callback,sys->id=1,tick=44,node->id=1,node->name=a, b=c,node->type=4
callback,sys->id=0,tick=99,node->id=2,node->name=COMM_COLL_NODE_x,node->type=7
[2026-01-01] [I] <system>: sys[0] finished, 99 cycles
"""
GRAPH = json.dumps(
    {
        "workload_graph": [
            {"Id": 1, "Name": "a", "NodeType": 4, "runtime": 5, "data_deps": [], "is_cpu_op": True},
            {"Id": 2, "Name": "b", "NodeType": 7, "ctrlDeps": [1], "data_deps": [1], "comm_type": 0, "comm_size": 64},
            {"id": 3, "name": "c", "node_type": "COMM_SEND_NODE", "ctrl_deps": 2, "dataDeps": ["1"], "comm_dst": 1,
             "comm_tag": 7, "tensor_size": 2**63, "runtime": 1.5, "involved_dim": [True], "mine": [1, 2]},
        ],
        "workload_name": "w", "ngpus": 8,
    }
).encode()  # fmt: skip
JSONIZED = b"""{
  "version": "0.0.4",
  "attr": [{"name": "schema", "stringVal": "1.0.1"}, {"name": "pid", "uint64Val": "114598"}]
}{
  "id": "1", "name": "a", "type": "COMP_NODE", "durationMicros": "318",
  "inputs": {"values": "[[4, 5]]", "shapes": "[[64]]", "types": "['Tensor(float)']"},
  "attr": [{"name": "is_cpu_op", "boolVal": true}, {"name": "x", "doubleVal": "NaN"}, {"name": "y", "floatVal": 1.5}]
}{
  "id": "2", "type": "COMM_COLL_NODE", "ctrlDeps": ["1"], "dataDeps": ["1"], "startTimeMicros": "0",
  "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "raw", "bytesVal": "AAEC"},
           {"name": "dims", "boolList": {"values": [true, false]}}, {"name": "u", "sint32List": {"values": [-1, 2]}}]
}"""

MERGED = json.dumps(
    {
        "schema": "1.1.1-chakra.0.0.4", "pid": 7, "time": "now", "start_ts": 1, "finish_ts": 2,
        "nodes": [
            {"id": 0, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 0, "inputs": {"values": [], "shapes": [], "types": []},
             "outputs": {"values": [], "shapes": [], "types": []}, "attrs": []},
            {"id": 1, "name": "[pytorch|profiler|execution_trace|thread]", "ctrl_deps": 0, "attrs": [{"name": "tid", "type": "uint64", "value": 1}]},
            {"id": 2, "name": "c10d::allreduce_", "ctrl_deps": 1, "ts": 10.5, "inclusive_dur": 20.0, "exclusive_dur": 4.25, "inter_thread_dep": None,
             "inputs": {"values": [[[4, 5, 0, 16, 4, "cuda:0"]]], "shapes": [[[16]]], "types": ["GenericList[Tensor(float)]"]},
             "outputs": {"values": [], "shapes": [], "types": []}, "attrs": [{"name": "rf_id", "type": "uint64", "value": 1}]},
            {"id": 3, "name": "record_param_comms", "ctrl_deps": 2, "ts": 11.0, "inclusive_dur": 9.0, "exclusive_dur": 9.0, "inter_thread_dep": 2,
             "sync_dep": [2], "attrs": [{"name": "collective_name", "value": "allreduce"}, {"name": "dtype", "value": "Float"},
                                        {"name": "in_msg_nelems", "value": 16}, {"name": "pg_name", "value": "0"}]},
            {"id": 4, "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "ctrl_deps": 3, "ts": 15.0, "inclusive_dur": 12.0, "exclusive_dur": 12.0,
             "cat": "kernel", "ph": "X", "stream": 20, "pg_name": "0", "inter_thread_dep": None,
             "attrs": [{"name": "collective_name", "value": "allreduce"}]},
            {"id": 5, "name": "Memcpy HtoD", "ctrl_deps": 3, "ts": 30.0, "inclusive_dur": 1.0, "exclusive_dur": 1.0, "cat": "gpu_memcpy",
             "stream": 20, "attrs": []},
        ],
    }
).encode()  # fmt: skip

TOOL_TIMELINE = (
    b'{"meta_user": "me", "traceEvents": ['
    + b", ".join(
        b'{"pid": %d, "tid": %d, "ts": %d.5, "dur": 4.3e-05, "ph": "X", "name": "COMP_NODE_%d", "args": {"ms": 4.3e-05}}'
        % (place % 2, place % 5, place, place)
        for place in range(12)
    )
    + b'], "meta_cpu_count": 8}'
)


def master_trace() -> bytes:
    """Merge two ranks that exchange a message and join a collective."""
    with tempfile.TemporaryDirectory(prefix="fuzz-readers-") as folder:
        source, target = Path(folder, "events.csv"), Path(folder, "ranks")
        source.write_bytes(EVENTS)
        studio.write(studio.read(source), target, "job")
        with open_sources([target]) as files:
            [job] = discover(files)
            return b"".join(merge(job).pieces)


SEEDS: dict[str, tuple[bytes, ...]] = {
    "tool-timeline": (TOOL_TIMELINE,),
    "merged": (master_trace(),),
    "text": (TEXT, DLRM),
    "events": (EVENTS,),
    "workload-graph": (GRAPH,),
    "jsonized": (JSONIZED,),
    "etplus": (MERGED,),
    **PROFILES,
}
"""Small files by the name of their format."""

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, -1e308, 1e15, 2**31, 2**63, -(2**63) - 1, 10**400, "", "x", "7", "NaN", "-1",
    "\x00\x07", "é" * 9, "\ud800", [], [[]], [1, 2], {}, {"name": 1}, [[[[[[[[1]]]]]]]], "COMM_COLL_NODE",
)  # fmt: skip
_WORDS: tuple[bytes, ...] = (
    b"0", b"-1", b"1e99", b"99999999999999999999999999", b"9223372036854775807", b"65536", b"1000000", b"NONE", b"ALLREDUCE",
    b"ALLTOALL_EP", b"ALLREDUCEALLTOALL", b"ALLFOO_DP", b"checkpoints:", b"all_gpus:", b"pp:", b"=", b",", b"\n", b"\0",
    b"issue,", b"HYBRID_CUSTOMIZED", b"MICRO", b"DISTRIBUTED_INFERENCE", b"\xff", b"\xe2\x80\xa8", "٣".encode(),
)  # fmt: skip


def change(raw: bytes, rng: Random) -> bytes:
    """Return a file with a few faults: of bytes, of words, or of JSON values."""
    chance = rng.random()
    if chance < 0.4:
        return mutate(raw, rng)
    if raw.lstrip()[:1] == b"{" and chance < 0.9:
        return b"".join(_other_values(part, rng) for part in _objects(raw))
    words = raw.replace(b"\n", b" \n ").split(b" ")
    for _ in range(rng.randint(1, 4)):
        words[rng.randrange(len(words))] = rng.choice(_WORDS)
    return b" ".join(words)


def _objects(raw: bytes) -> Iterator[bytes]:
    for index, part in enumerate(raw.split(b"}{")):
        yield (b"{" if index else b"") + part + (b"}" if index < raw.count(b"}{") else b"")


def _other_values(raw: bytes, rng: Random) -> bytes:
    """Return an object with one to four of its values replaced or removed."""
    value = json.loads(raw)
    for _ in range(rng.randint(0, 4)):
        slots = list(places(value))
        if not slots:
            break
        holder, key = rng.choice(slots)
        if rng.random() < 0.8:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
        else:
            del holder[key]
    return json.dumps(value).encode()


def try_one(raw: bytes, rng: Random, path: Path, number: int) -> str:
    """Read one mutated file; returns the outcome."""
    content = change(raw, rng)
    if number % 9 == 0:
        content = mutate(gzip.compress(content, 1, mtime=0), rng)
    path.write_bytes(content)
    size = {"npus": rng.choice((None, 1, 4, 6)), "passes": rng.choice((None, 2))}
    try:
        trace = studio.read(path, **size)
    except StudioError as error:
        return type(error).__name__
    if trace.graphs and number % 5 == 0:
        again = b"".join(encode.write(trace.graphs[0], trace.ranks[0]))
        [part] = chakra.read(Reading("written", again))
        assert len(part.graph) == len(trace.graphs[0])
    return "damaged trace" if any(finding.level == "error" for finding in trace.findings) else "trace"


def run(raw: list[bytes], mutations: int, seed: int, folder: Path) -> Counter[str]:
    """Read mutated files of one format; count what came."""
    path = folder / "mutated"
    return count_outcomes(
        lambda rng, number: try_one(rng.choice(raw), rng, path, number), mutations, seed, folder
    )


def main() -> int:
    """Mutate, read and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(SEEDS))
    options = parser.parse_args()
    chosen = {"files": tuple(seeds(options.files))} if options.files else SEEDS
    for name, raw in chosen.items():
        if options.only in (None, name):
            folder = Path(tempfile.mkdtemp(prefix="fuzz-readers-"))
            outcomes = run(list(raw), options.mutations, options.seed, folder)
            print(name + ": " + ", ".join(f"{what} {count:,}" for what, count in outcomes.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
