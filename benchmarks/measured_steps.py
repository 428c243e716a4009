"""Steps of GPT on one node of 8 A100 that vTrain's table holds, and the efficiencies that are fitted to 100 of them.

    python -m benchmarks.measured_steps shared/measured/vtrain/ground_truth_single.csv

prints the fitted numbers of `studio.generation.efficiency`. The fit needs thousands of trials, so it adds up what the nodes and
collectives of generated passes take, stage by stage, in place of simulating them; `benchmarks.report_steps` simulates.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import studio
from studio.calibration.machines import build_ports
from studio.generation.efficiency import FITTED_GPU, NUMBERS, Efficiency, Work
from studio.generation.layers import append_layer_backward, append_layer_forward
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.passes import Passes
from studio.generation.program import Program, build_work
from studio.generation.stage import ADAM_OPERATIONS
from studio.generation.transformer import build_stage_units
from studio.generation.workload import build_workload
from studio.sim.costs import CostModel, GroupShape
from studio.sim.presets import preset
from studio.sim.systems import SYSTEMS
from studio.sim.systems.gpus import find_gpu
from studio.trace import CollectiveType, Float64

SYSTEM = "hgx-a100"
SEED, FITTED_ROWS = 0, 100
_COLUMNS = ("ranks", "batch", "micro_batch", "hidden", "heads", "layers", "sequence", "tp", "dp", "pp")


@dataclass(frozen=True, slots=True)
class Step:
    """A row of the table.

    Attributes:
        given: What `studio.generate` takes, beside the model's name.
        time_ms: The time of the step.
    """

    given: Mapping[str, int]
    time_ms: float

    @property
    def combination(self) -> tuple[int, int, int]:
        """Its tensor parallel ranks, replicas and pipeline stages."""
        return self.given["tp"], self.given["dp"], self.given["pp"]


def read_steps(path: Path) -> list[Step]:
    """Return the rows of the table in its order."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [Step(dict(zip(_COLUMNS, map(int, row), strict=False)), float(row[-1])) for row in rows if row]


def drawn(steps: Sequence[Step]) -> tuple[list[int], list[int]]:
    """Return the rows that are fitted to, and all others."""
    chosen = np.random.default_rng(SEED).choice(len(steps), FITTED_ROWS, replace=False)
    fitted = set(chosen.tolist())
    return sorted(fitted), [row for row in range(len(steps)) if row not in fitted]


def generated(step: Step, **more: Any) -> studio.Trace:
    """Return the job of a step, as `generate llm` makes it from its numbers."""
    return studio.generate("custom", **step.given, **more)


def simulated_ms(step: Step, **more: Any) -> float:
    """Return the time of a step: generated, and simulated in the full model on the preset of the machine."""
    trace = generated(step, gpu=FITTED_GPU, **more)
    return studio.simulate(trace, preset(SYSTEM, step.given["ranks"]).config).makespan_ns / 1e6


# ---------------------------------------------------------------------------------------------------
# The sum that the fit uses


@dataclass(frozen=True, slots=True)
class Part:
    """Both passes of a layer, of the embedding or of the output layer on one rank, for one micro-batch.

    Attributes:
        parents: For each node, those it waits for.
        works: For each node, what it computes; None for a collective.
        fixed_ns: For each node, the time of a collective; 0 for compute.
        forward: How many nodes are of the forward pass.
    """

    parents: tuple[tuple[int, ...], ...]
    works: tuple[Work | None, ...]
    fixed_ns: tuple[float, ...]
    forward: int

    def time_ns(self, efficiency: Efficiency) -> tuple[float, float]:
        """Return the times of the forward and of the backward pass: their longest paths."""
        gpu = find_gpu(FITTED_GPU)
        ends: list[float] = []
        for parents, work, fixed in zip(self.parents, self.works, self.fixed_ns, strict=True):
            begin = max((ends[parent] for parent in parents), default=0.0)
            ends.append(begin + (fixed if work is None else efficiency.time_ns(work, gpu)))
        middle = max(ends[: self.forward])
        return middle, max(ends) - middle


@dataclass(frozen=True, slots=True)
class Summed:
    """A step as the fit sees it.

    Attributes:
        layout: Its layout.
        layer, embedding, head: Its parts.
        sums_ns: Sums of gradients over replicas: of the embedding, of a layer.
        end_ns: The sum of a tied embedding's gradients over two stages.
        hop_ns: A message between stages.
        held: Parameters of the stage that holds most.
    """

    layout: Layout
    layer: Part
    embedding: Part
    head: Part
    sums_ns: tuple[float, float]
    end_ns: float
    hop_ns: float
    held: int

    def time_ms(self, efficiency: Efficiency, known: dict[int, tuple[float, float]]) -> float:
        """Return the time of the step: the first micro-batch through all stages, the others through the slowest.

        Args:
            efficiency: What is reached.
            known: Times of parts with it, by identity, which steps of the same shapes share.
        """
        layout = self.layout
        for part in (self.layer, self.embedding, self.head):
            if id(part) not in known:
                known[id(part)] = part.time_ns(efficiency)
        forward, backward = known[id(self.layer)]
        stages = [layers * (forward + backward) for layers in layout.stage_layers]
        stages[0] += sum(known[id(self.embedding)])
        stages[-1] += sum(known[id(self.head)])
        time = sum(stages) + (layout.micro_batches - 1) * max(stages) + 2 * (layout.pp - 1) * self.hop_ns
        last, each = self.sums_ns
        if layout.pp > 1:
            time += last + each * max(layout.stage_layers)
        else:
            done = 0.0
            for layer in range(layout.stage_layers[0]):
                done = max(done, (layer + 1) * backward) + each
            time += max(done - layout.stage_layers[0] * backward, 0.0) + last
        update = Work(ADAM_OPERATIONS * self.held, 28 * self.held)
        return (time + self.end_ns + efficiency.time_ns(update, find_gpu(FITTED_GPU))) / 1e6


@cache
def _costs() -> tuple[CostModel, Any]:
    system = SYSTEMS[SYSTEM]
    costs = preset(SYSTEM, 8).config.costs
    assert costs is not None
    return costs, build_ports(system)


@cache
def _charged_ns(kind: str, size: int, ranks: int) -> float:
    """Return the time of a collective of a group in one node."""
    costs, ports = _costs()
    charge = costs.charge(kind, np.array([float(size)]), GroupShape(ranks, ranks, 1), ports)
    return float(charge.total_ns[0])


def summed(step: Step, **more: Any) -> Summed:
    """Return a step as the fit sees it."""
    given = {**step.given, **more}
    ranks = given.pop("ranks")
    work = build_workload("custom", ranks, given)
    model, layout = work.model, work.layout
    layer, embedding, head = _parts(
        model, replace(layout, pp=1, dp=1, batch=layout.micro_batch, stage_layers=(1,))
    )
    units = [build_stage_units(model, layout, stage) for stage in range(layout.pp)]
    held = [sum(unit.held(layout.tp) for unit in own.values()) for own in units]
    largest = units[0]
    sums = tuple(
        _charged_ns("all_reduce", 2 * largest[name].held(layout.tp), layout.dp) if layout.dp > 1 else 0.0
        for name in ("embedding", "layer0")
    )
    word = layout.vocabulary(model) * model.hidden // layout.tp
    end = _charged_ns("all_reduce", 2 * word, 2) if layout.pp > 1 else 0.0
    size = 2 * layout.tokens * model.hidden // (layout.tp if layout.sequence_parallel else 1)
    hop = _charged_ns("send_recv", size, 2)
    return Summed(layout, layer, embedding, head, sums, end, hop, max(held))  # type: ignore[arg-type]


@cache
def _parts(model: Model, layout: Layout) -> tuple[Part, Part, Part]:
    def layer(passes: Passes) -> int:
        x = append_layer_forward(passes, "step.layer0", 0, 0)
        count = len(passes.program.nodes)
        append_layer_backward(passes, "step.layer0", x, 0)
        return count

    def embedding(passes: Passes) -> int:
        x = passes.embedding_forward("", 0)
        count = len(passes.program.nodes)
        passes.embedding_backward("", x)
        return count

    def head(passes: Passes) -> int:
        loss = passes.head_forward("", 0, 0)
        count = len(passes.program.nodes)
        passes.head_backward("", loss)
        return count

    return _part(model, layout, layer), _part(model, layout, embedding), _part(model, layout, head)


def _part(model: Model, layout: Layout, add: Callable[[Passes], int]) -> Part:
    works: list[Work] = []

    class Noting(Program):
        def compute(  # noqa: PLR0913 (as the method it stands for)
            self, name: str, after: Sequence[int], flop: int, moved: int, kind: str, *,
            kernels: int = 1, aligned: bool = True, dtype: str = "bf16",
        ) -> int:  # fmt: skip
            works.append(build_work(name, flop, moved, kernels + self.launched, aligned=aligned, dtype=dtype))
            return super().compute(name, after, flop, moved, kind)

    program = Noting(None)
    forward = add(Passes(program, model, layout))
    left = iter(works)
    parents, own, fixed = [], [], []
    for node in program.nodes:
        parents.append(tuple(parent - 1 for parent in (*node["data_deps"], *node["ctrl_deps"])))
        compute = node["type"] == "COMP_NODE"
        own.append(next(left) if compute else None)
        kind = "" if compute else CollectiveType(node["attrs"]["comm_type"]).name.lower()
        fixed.append(0.0 if compute else _charged_ns(kind, node["attrs"]["comm_size"], layout.tp))
    return Part(tuple(parents), tuple(own), tuple(fixed), forward)


# ---------------------------------------------------------------------------------------------------
# The fit


def fit(steps: Sequence[Step], **more: Any) -> Efficiency:
    """Return the efficiency that has the least mean of |time / measured - 1| over some steps."""
    sums = [summed(step, **more) for step in steps]
    measured = np.array([step.time_ms for step in steps])

    def named(point: Float64) -> Efficiency:
        values = dict(zip(NUMBERS, np.exp(point).tolist(), strict=True))
        return Efficiency(**{name: min(value, 1.0) if value < 3 else value for name, value in values.items()})

    def loss(point: Float64) -> float:
        known: dict[int, tuple[float, float]] = {}
        times = np.array([each.time_ms(named(point), known) for each in sums])
        return float(np.mean(np.abs(times / measured - 1)))

    point = np.log([_START[name] for name in NUMBERS])
    for _ in range(_RESTARTS):
        # A simplex may collapse before it has arrived.
        point = descend(loss, point)
    return named(point)


_RESTARTS = 4
_START = {"matmul": 0.7, "odd_matmul": 0.4, "memory": 0.6, "forward_ns": 80_000.0, "backward_ns": 40_000.0}


def descend(loss: Callable[[Float64], float], start: Float64, rounds: int = 300) -> Float64:
    """Return where a function is least, by the simplex of Nelder and Mead, The Computer Journal 7(4), 1965."""
    points = [start, *(start + 0.15 * row for row in np.eye(len(start)))]
    values = [loss(point) for point in points]
    for _ in range(rounds):
        order = np.argsort(values, kind="stable")
        points, values = [points[at] for at in order], [values[at] for at in order]
        centre = np.mean(points[:-1], axis=0)
        away = centre - points[-1]
        other = centre + away
        value = loss(other)
        if value < values[0]:
            further = centre + 2 * away
            found = loss(further)
            points[-1], values[-1] = (further, found) if found < value else (other, value)
        elif value < values[-2]:
            points[-1], values[-1] = other, value
        else:
            points[-1], values[-1] = centre - 0.5 * away, loss(centre - 0.5 * away)
    return points[int(np.argmin(values))]


def main(table: Path) -> None:
    """Print the fitted numbers, and how far the sums are off with them."""
    steps = read_steps(table)
    train, rest = drawn(steps)
    found = fit([steps[row] for row in train])
    print(found)
    for name, rows in (("fitted", train), ("rest", rest)):
        errors = np.array([summed(steps[row]).time_ms(found, {}) / steps[row].time_ms - 1 for row in rows])
        print(f"{name}: {len(rows)} rows, mean |error| of the sums {100 * np.abs(errors).mean():.2f} %")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
