"""Times jobs whose messages share links: `python benchmarks/congested.py [--speed FOLDER] [--case TEXT] [--repeat N]`.

The extended mode as it is by default where a system has no cost model: links shared, several dimensions, ties
symmetric, as many collectives at a time as there are comm groups.

- tf96 on 256 NPUs, of the reference's speed cases in FOLDER (`tf96_256_aware.json.gz`), on three products of dimensions;
- a transformer of 16,384 ranks, tensor-parallel over 8 NPUs and data-parallel over the others (`folding.py`);
- 1,024 ranks of 1,000 nodes each, no two of them alike, not in their names either: 20 % of the nodes all-reduces of two sizes, half of them over 128
  ranks, or 50 % of the nodes, each of a size of its own, a tenth of them over 128 ranks, the others over 8.

Printed are seconds of CPU from trace and configuration to the result, the best of N, warm process, each case in a
process of its own; how many of them planning (with the search for classes) and the engine took.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.folding import groups, transformer
from studio.et.build import build_graph
from studio.sim import engine
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions
from studio.sim.plan import make_plan
from studio.sim.result import read_result
from studio.trace import Rank, Trace
from tests.golden import case, records

FULL = Extensions(communication_slots=65536)
RING = Algorithm("ring")
Case = tuple[Trace, SystemConfig]
TENSOR = 8


def dimensions(*dims: tuple[str, int, float]) -> Topology:
    """Return a network by kind, size and bandwidth of its dimensions."""
    return Topology(tuple(Dimension(kind, size, rate, 500.0) for kind, size, rate in dims))  # type: ignore[arg-type]


def system(topology: Topology) -> SystemConfig:
    """Return a system in which messages share links."""
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    return SystemConfig(
        topology,
        algorithms={kind: (RING,) * len(topology.dims) for kind in kinds},
        collective_optimization="local_bw_aware",
        local_memory_bytes_per_ns=1600.0,
        congestion="aware",
        extensions=FULL,
    )


def speed_case(folder: Path, name: str, topology: Topology) -> Case:
    """Return a speed case of the reference on another network."""
    [record] = records(folder / f"{name}.json.gz")
    trace, config = case(record)
    algorithms = {kind: (RING,) * len(topology.dims) for kind in config.algorithms}
    return trace, replace(
        config, topology=topology, algorithms=algorithms, congestion="aware", extensions=FULL
    )


def all_different(npus: int, count: int, own_sizes: bool) -> Trace:
    """Return ranks of `count` nodes, every one of which computes for times of its own, under names of its own."""
    ranks, graphs, members = [], [], groups(npus, 1)
    for number in range(npus):
        chance = random.Random(number)  # noqa: S311 (it keeps no secret)
        names = str(1 + number // TENSOR), str(1 + npus // TENSOR + number % TENSOR)
        nodes: list[dict[str, Any]] = []
        last: list[int] = []
        for at in range(count):
            if own_sizes:
                kind = ((1 << 18) + 1024 * at, names[at % 20 == 5]) if at % 2 else None
            else:
                kind = {1: (1 << 20, names[0]), 5: (4 << 20, names[1])}.get(at % 10)
            if kind is None:
                nodes.append({"id": at, "name": f"{at} of {number}", "type": "COMP_NODE", "data_deps": last})
                nodes[-1]["duration_micros"] = chance.randint(5, 60)
                last = [at]
                continue
            attrs = {"comm_type": 0, "comm_size": kind[0], "pg_name": kind[1]}
            nodes.append({"id": at, "type": "COMM_COLL_NODE", "data_deps": last, "attrs": attrs})
            last = [at] if kind[1] == names[0] else last
        graph, slots = build_graph(nodes)
        ranks.append(Rank(number, len(graphs), slots))
        graphs.append(graph)
    return Trace(tuple(graphs), tuple(ranks), tuple(members))


def cases(folder: Path | None) -> dict[str, Any]:
    """Return what makes each case, by its name."""
    nodes = dimensions(("switch", 8, 300.0), ("switch", 32, 50.0))
    torus = dimensions(("ring", 16, 50.0), ("ring", 16, 50.0))
    joined = dimensions(("fully_connected", 8, 50.0), ("switch", 32, 50.0))
    large = dimensions(("ring", 8, 300.0), ("switch", 2048, 50.0))
    clos = dimensions(("switch", 8, 300.0), ("switch", 128, 50.0))
    found: dict[str, Any] = {}
    if folder is not None:
        found["tf96, switches 8 × 32"] = lambda: speed_case(folder, "tf96_256_aware", nodes)
        found["tf96, torus 16 × 16"] = lambda: speed_case(folder, "tf96_256_aware", torus)
        found["tf96, fully connected 8 × switch 32"] = lambda: speed_case(folder, "tf96_256_aware", joined)
    halving = {"all_reduce": (Algorithm("halving_doubling"),)}
    found["transformer, 16,384 ranks"] = lambda: (
        transformer(large.npus),
        replace(system(large), algorithms=halving),
    )
    found["1,024 × 1,000, all different"] = lambda: (all_different(1024, 1000, False), system(clos))
    found["1,024 × 1,000, sizes too"] = lambda: (all_different(1024, 1000, True), system(clos))
    return found


def measure(make: Any, repeat: int) -> dict[str, Any]:
    """Return what a case takes."""
    engine.load_kernel()
    trace, config = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best = {"seconds": math.inf, "plan": math.inf, "engine": math.inf}
    figures: dict[str, Any] = {}
    for _ in range(repeat):
        began = time.process_time()
        plan = make_plan(trace, config, folded=True)
        planned = time.process_time()
        engine.execute(plan, native=True)
        reason = plan.unfolded
        if plan.folding is not None:
            reason = engine.explain_stop(plan)
            if reason:
                plan = make_plan(trace, config)
                engine.execute(plan, native=True)
        ran = time.process_time()
        result = read_result(trace, config, plan, reason)
        ended = time.process_time()
        taken = {"seconds": ended - began, "plan": planned - began, "engine": ran - planned}
        best = min(best, taken, key=lambda one: one["seconds"])
        figures = {
            "ranks": len(result.finish_ns),
            "classes": result.classes,
            "M events": round(result.callbacks / 1e6, 3),
            "finish_ns": result.makespan_ns,
            "why": result.unfolded,
        }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**figures, **best, "MB": (peak - before) // 1024}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", type=Path, help="folder of the reference's speed cases")
    parser.add_argument("--case", default="", help="part of the names of the cases to run")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = {name: make for name, make in cases(options.speed).items() if options.case in name}
    if options.one:
        [make] = chosen.values()
        print(json.dumps(measure(make, options.repeat)))
        return
    for name in chosen:
        command = [sys.executable, __file__, "--one", "--case", name, "--repeat", str(options.repeat)]
        command += ["--speed", str(options.speed)] if options.speed else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        figures = json.loads(done.stdout)
        cells = [name, f"{figures['ranks']:,}", figures["classes"], figures["M events"]]
        cells += [f"{figures[key]:.3f}" for key in ("seconds", "plan", "engine")]
        cells += [figures["MB"], figures["finish_ns"], figures["why"]]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
