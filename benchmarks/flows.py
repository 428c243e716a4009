"""Times simulations with a cost model: `python benchmarks/flows.py FOLDER [--repeat N]`.

FOLDER holds the speed cases of `benchmarks/simulate.py`, of which `tf96_256_unaware` is used: a transformer of 96 layers on
256 NPUs, as it is and with other compute times on every rank, so that nothing folds. The third job has 1,024 ranks of
about 1,000 nodes, tensor × data × pipeline parallel (8 × 32 × 4), no two ranks alike. From Trace to result, seconds of
CPU, the best of N runs, on the preset hgx-h100 under the full model.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.simulate import VARIED, with_own_times
from studio.sim import engine, simulate
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.setting_edits import with_settings
from studio.trace import Trace
from tests.golden import Record, case, trace_of_workload

TENSOR, DATA, PIPELINE = 8, 32, 4
RANKS = TENSOR * DATA * PIPELINE
STEPS, MICRO_BATCHES, LAYERS, BUCKETS = 4, 4, 24, 50
HEADINGS = ("job", "classes", "events", "callbacks", "Trace to result s", "asked s", "finish ns")


def rank_nodes(rank: int) -> list[Record]:
    """Return the nodes of a rank: micro-batches through layers, then gradients, step after step."""
    stage, group = rank // (TENSOR * DATA), f"data{rank % TENSOR}_{rank // (TENSOR * DATA)}"
    nodes: list[Record] = []

    def add(kind: str, deps: list[int], **given: object) -> int:
        nodes.append({"id": len(nodes) + 1, "type": kind, "data_deps": deps, **given})
        return len(nodes)

    def reduce(deps: list[int], size: int, name: str) -> int:
        attrs = {"comm_type": 0, "comm_size": size, **({"pg_name": name} if name else {})}
        return add("COMM_COLL_NODE", deps, attrs=attrs)

    last: list[int] = []
    far = TENSOR * DATA
    for step in range(STEPS):
        for batch in range(MICRO_BATCHES):
            message = {"comm_size": 8 << 20, "comm_tag": step * MICRO_BATCHES + batch}
            if stage > 0:
                last = [add("COMM_RECV_NODE", last, attrs={"comm_src": rank - far, **message})]
            for layer in range(LAYERS):
                done = add("COMP_NODE", last, duration_micros=200 + 3 * layer)
                last = [reduce([done], 16 << 20, f"tensor{rank // TENSOR}")]
            if stage < PIPELINE - 1:
                add("COMM_SEND_NODE", last, attrs={"comm_dst": rank + far, **message})
        last = [reduce([reduce(last, 64 << 20, group) for _ in range(BUCKETS)], 4, "")]
    return nodes


def large_job() -> Trace:
    """Return the job of 1,024 ranks, no two alike."""
    groups: dict[str, list[int]] = {}
    for rank in range(RANKS):
        groups.setdefault(f"tensor{rank // TENSOR}", []).append(rank)
        groups.setdefault(f"data{rank % TENSOR}_{rank // (TENSOR * DATA)}", []).append(rank)
    return with_own_times(
        trace_of_workload({"ranks": [rank_nodes(rank) for rank in range(RANKS)]}, RANKS, groups)
    )


def jobs(folder: Path) -> Iterator[tuple[str, Trace, str]]:
    """Yield jobs by name, with the seconds asked for."""
    with gzip.open(folder / f"{VARIED}.json.gz", "rt") as file:
        trace, _ = case(json.load(file))
    yield "tf96 on 256 NPUs", trace, "0.5"
    yield "tf96 on 256 NPUs, own times", with_own_times(trace), "0.5"
    job = large_job()
    yield f"{RANKS:,} ranks of up to {max(map(len, job.graphs)):,} nodes, all different", job, "8"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    engine.load_kernel()
    print(f"| {' | '.join(HEADINGS)} |\n| --- |{' ---: |' * (len(HEADINGS) - 1)}")
    for name, trace, asked in jobs(options.folder):
        parts = preset(f"hgx-h100-{len(trace.ranks)}").under("full")
        config = interpret(with_settings(parts, ["roofline-enabled=0"])).config
        best = float("inf")
        for _ in range(options.repeat):
            began = time.process_time()
            result = simulate(trace, config)
            best = min(best, time.process_time() - began)
        cells = (
            *(name, f"{result.classes:,}", f"{len(result.event_ns):,}", f"{result.callbacks:,}"),
            *(f"{best:.3f}", asked, str(result.makespan_ns)),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
