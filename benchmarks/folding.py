"""Times folded simulations from 64 to 65,536 NPUs: `python benchmarks/folding.py [--picture FILE.svg]`.

Two jobs, each on rings of 8 NPUs joined by a switch. Simulated is one NPU per class of equivalent NPUs:

- a transformer of 96 layers, tensor-parallel over 8 NPUs and data-parallel over the others: one class;
- a pipeline of 4 stages of 8 tensor-parallel NPUs, data-parallel over the others: four classes.

So that the work per NPU does not grow with the number of NPUs, all-reduces over data-parallel groups are done by
halving-doubling, whose steps grow with its logarithm; each is a single comm group per NPU. Printed are the
rows of `benchmarks/README.md`: seconds of CPU from trace and configuration to the result, best of five, warm
process, each size in a process of its own; and how many of them the engine took, the rest being the search for
classes, which looks at every rank. Past 4,096 NPUs rank by rank is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studio.et.build import build_graph
from studio.sim import engine
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.plan import make_plan
from studio.sim.result import read_result
from studio.trace import CommGroup, Rank, Trace

SIZES = (64, 256, 1024, 4096, 16384, 65536)
MOST_RANK_BY_RANK = 4096
LAYERS = 96
TENSOR = 8
STAGES = 4
MICROBATCHES = 8


def config(npus: int) -> SystemConfig:
    """Return rings of 8 NPUs joined by a switch."""
    dims = Dimension("ring", TENSOR, 300.0, 500.0), Dimension("switch", npus // TENSOR, 50.0, 1000.0)
    return SystemConfig(
        Topology(dims),
        algorithms={"all_reduce": (Algorithm("halving_doubling"),)},
        collective_optimization="local_bw_aware",
        local_memory_bytes_per_ns=1600.0,
    )


def groups(npus: int, stages: int) -> list[CommGroup]:
    """Return the tensor-parallel groups, then the data-parallel ones of each place in each stage."""
    lists = [range(first, first + TENSOR) for first in range(0, npus, TENSOR)]
    lists += [range(place, npus, TENSOR * stages) for place in range(TENSOR * stages)]
    return [CommGroup(str(1 + index), tuple(ranks)) for index, ranks in enumerate(lists)]


def collective(tensor: bool, after: int, number: int, size: int, names: tuple[str, str]) -> dict[str, Any]:
    """Return the node of an all-reduce."""
    attrs = {"comm_type": 0, "comm_size": size, "pg_name": names[0] if tensor else names[1]}
    return {"id": number, "type": "COMM_COLL_NODE", "data_deps": [after], "attrs": attrs}


def transformer(npus: int) -> Trace:
    """Return 96 layers forwards and backwards; gradients are reduced while earlier layers compute."""
    nodes: list[dict[str, Any]] = [{"id": 0, "type": "COMP_NODE", "duration_micros": 5}]
    names = ("tensor", "data")
    last = 0
    for index in range(2 * LAYERS):
        for _ in range(2):
            nodes.append({"id": len(nodes), "type": "COMP_NODE", "data_deps": [last], "duration_micros": 500})
            nodes.append(collective(True, len(nodes) - 1, len(nodes), 16 << 20, names))
            last = len(nodes) - 1
        if index >= LAYERS:
            nodes.append(collective(False, last, len(nodes), 64 << 20, names))
    return spread(npus, 1, [nodes])


def pipeline(npus: int) -> Trace:
    """Return four stages that pass microbatches on and their gradients back."""
    return spread(npus, STAGES, [stage(index) for index in range(STAGES)])


def stage(index: int) -> list[dict[str, Any]]:
    """Return the nodes of a stage; peers are written as distances."""
    nodes: list[dict[str, Any]] = []

    def add(kind: str, after: list[int], **attrs: Any) -> int:
        micros = attrs.pop("micros", 0)
        nodes.append(
            {"id": len(nodes), "type": kind, "data_deps": after, "attrs": attrs, "duration_micros": micros}
        )
        return len(nodes) - 1

    last = add("COMP_NODE", [], micros=1)
    for step, micros in ((1, 1000), (-1, 2000)):
        for batch in range(MICROBATCHES):
            tag = batch if step > 0 else MICROBATCHES + batch
            waits = [last]
            if 0 <= index - step < STAGES:
                waits.append(add("COMM_RECV_NODE", [], comm_src=-step, comm_size=8 << 20, comm_tag=tag))
            last = add("COMP_NODE", waits, micros=micros)
            nodes.append(collective(True, last, len(nodes), 16 << 20, ("tensor", "data")))
            last = len(nodes) - 1
            if 0 <= index + step < STAGES:
                add("COMM_SEND_NODE", [last], comm_dst=step, comm_size=8 << 20, comm_tag=tag)
    nodes.append(collective(False, last, len(nodes), 256 << 20, ("tensor", "data")))
    return nodes


def spread(npus: int, stages: int, of_stage: list[list[dict[str, Any]]]) -> Trace:
    """Return the trace in which every rank has the nodes of its stage, its own groups and its own peers."""
    built = [build_graph(nodes) for nodes in of_stage]
    ranks = []
    for number in range(npus):
        index = number // TENSOR % stages
        graph, slots = built[index]
        values: list[int | str] = []
        for key, value in zip(graph.slot_key.tolist(), slots, strict=True):
            if graph.strings[key] == "pg_name":
                tensor = number // TENSOR
                data = npus // TENSOR + number % (TENSOR * stages)
                values.append(str(1 + (tensor if value == "tensor" else data)))
            else:
                values.append(number + TENSOR * int(value))
        ranks.append(Rank(number, index, tuple(values)))
    return Trace(tuple(graph for graph, _ in built), tuple(ranks), tuple(groups(npus, stages)))


JOBS = {"transformer": transformer, "pipeline": pipeline}


def measure(job: str, npus: int, *, fold: bool) -> dict[str, Any]:
    """Return what one size of a job takes."""
    engine.load_kernel()
    system = config(npus)
    trace = JOBS[job](npus)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best, ran = math.inf, math.inf
    for _ in range(5 if fold else 1):
        began = time.process_time()
        plan = make_plan(trace, system, folded=fold)
        planned = time.process_time()
        engine.execute(plan, native=True)
        ran = min(ran, time.process_time() - planned)
        if fold and (plan.unfolded or engine.explain_stop(plan)):
            raise SystemExit(f"{job} on {npus}: {plan.unfolded or engine.explain_stop(plan)}")
        result = read_result(trace, system, plan, plan.unfolded)
        best = min(best, time.process_time() - began)
    return {
        "job": job,
        "npus": npus,
        "classes": result.classes,
        "seconds": best,
        "engine": ran,
        "finish_ns": result.makespan_ns,
        "callbacks": result.callbacks,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "before_mb": before // 1024,
    }


def measure_apart(job: str, npus: int, *, fold: bool) -> dict[str, Any]:
    """Measure in a separate process."""
    command = [sys.executable, __file__, "--one", job, str(npus), "yes" if fold else "no"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def picture(rows: list[dict[str, Any]]) -> str:
    """Return a plot of seconds over NPUs, both axes logarithmic, as SVG."""
    width, height, left, bottom = 640, 360, 64, 44
    low, high = -4.0, 2.0

    def place(npus: int, seconds: float) -> tuple[float, float]:
        x = left + (math.log2(npus) - 6) / 10 * (width - left - 150)
        y = height - bottom - (math.log10(seconds) - low) / (high - low) * (height - bottom - 24)
        return x, y

    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            'font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="16" fill="#333">seconds of CPU from trace to result</text>',
    ]
    for power in range(int(low), int(high) + 1):
        y = place(64, 10.0**power)[1]
        lines.append(f'<path d="M{left} {y:.1f}H{width - 150}" stroke="#ddd"/>')
        lines.append(
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#333">{10.0**power:g}</text>'
        )
    for npus in SIZES:
        x = place(npus, 1)[0]
        lines.append(f'<text x="{x:.1f}" y="{height - 22}" text-anchor="middle" fill="#333">{npus:,}</text>')
    lines.append(
        f'<text x="{(left + width - 150) / 2}" y="{height - 4}" text-anchor="middle" fill="#333">NPUs</text>'
    )
    curves = [
        ("transformer", True, "seconds", "#1f77b4", 8),
        ("pipeline", True, "seconds", "#2ca02c", -6),
        ("transformer", True, "engine", "#7fb3d9", 0),
        ("pipeline", True, "engine", "#98d498", 4),
        ("transformer", False, "seconds", "#d62728", 0),
        ("pipeline", False, "seconds", "#ff7f0e", 0),
    ]
    for job, folded, key, colour, lower in curves:
        points = [
            place(row["npus"], row[key]) for row in rows if row["job"] == job and row["folded"] == folded
        ]
        if not points:
            continue
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        name = (job if folded else f"{job}, rank by rank") + (", engine" if key == "engine" else "")
        x, y = points[-1]
        lines.append(f'<text x="{x + 8:.1f}" y="{y + 4 + lower:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Print the table, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--most", type=int, default=MOST_RANK_BY_RANK, help="NPUs simulated rank by rank")
    parser.add_argument("--one", nargs=3, metavar=("JOB", "NPUS", "FOLD"))
    options = parser.parse_args()
    if options.one:
        job, npus, fold = options.one
        print(json.dumps(measure(job, int(npus), fold=fold == "yes")))
        return
    rows: list[dict[str, Any]] = []
    columns: tuple[str, ...] = (
        "job",
        "NPUs",
        "classes",
        "seconds",
        "of it engine",
        "rank by rank s",
        "events",
        "peak MB",
    )
    columns += ("of it before", "finish ns")
    print(f"| {' | '.join(columns)} |")
    print(f"| --- |{' ---: |' * (len(columns) - 1)}")
    for job in JOBS:
        for npus in SIZES:
            folded = measure_apart(job, npus, fold=True)
            rows.append(folded | {"folded": True})
            ratio = "-"
            if npus <= options.most:
                whole = measure_apart(job, npus, fold=False)
                rows.append(whole | {"folded": False})
                ratio = f"{whole['seconds']:.2f}"
                if whole["finish_ns"] != folded["finish_ns"]:
                    raise SystemExit(
                        f"{job} on {npus}: {folded['finish_ns']} folded, {whole['finish_ns']} not"
                    )
            cells = (
                job,
                f"{npus:,}",
                folded["classes"],
                f"{folded['seconds']:.3f}",
                f"{folded['engine']:.4f}",
                ratio,
                f"{folded['callbacks']:,}",
                folded["peak_mb"],
                folded["before_mb"],
                folded["finish_ns"],
            )
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if options.picture:
        options.picture.write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
