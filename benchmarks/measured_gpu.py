"""Steps of Llama models measured on one H100, beside the times that generated jobs have, and the efficiencies fitted to those of inference.

    python -m benchmarks.measured_gpu docs/accuracy.md

prints the fitted numbers of `studio.generation.efficiency` and puts the tables between the two marks of the report. The steps
(`benchmarks/h100_llama.csv`) ran in PyTorch 2.11 with CUDA 13 on one H100 SXM of 80 GB, in bf16 with random weights: training launched
kernel by kernel (`eager`) or with each model compiled, inference with each layer compiled, decoding as one CUDA graph. Times are medians, by the
GPU's own clock; of `training` the mean of eight steps by the host's.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import studio
from benchmarks.measured_steps import descend
from benchmarks.sections import replace_section
from studio.generation.efficiency import SERVED, Efficiency, Work
from studio.generation.models import Model, find_model
from studio.generation.program import BACKWARD
from studio.sim.systems.gpus import find_gpu
from studio.trace import Float64, NodeType, Trace, read_dense_column

TABLE = Path(__file__).parent / "h100_llama.csv"
BEGIN, END = "<!-- h100: begin -->", "<!-- h100: end -->"
GPU = "h100"
_FITTED = ("matmul", "memory", "kernel_ns")
_START = {"matmul": 0.65, "memory": 0.8, "kernel_ns": 4_000.0}


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the table.

    Attributes:
        step: `decode`, `prefill`, or of training `forward`, `backward` and `training`, the whole step.
        how: `eager` or `compiled`.
        model: The model, with as many layers as were run.
        tp: Tensor parallel ranks of which one was run, without its collectives.
        batch: Sequences.
        tokens: Of each: those of a training step or a prompt, or those that are attended to, the new one among them.
        time_us: How long it took.
    """

    step: str
    how: str
    model: Model
    tp: int
    batch: int
    tokens: int
    time_us: float

    @property
    def words(self) -> str:
        """The step in a table's cell."""
        part = f", a rank of tp {self.tp}" if self.tp > 1 else ""
        return f"{self.model.name}, {self.model.layers} layers{part} | {self.batch} × {self.tokens:,}"


def read_measured(path: Path = TABLE) -> list[Measured]:
    """Return the rows of the table in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Measured(
                row["step"], row["how"], _model(row["model"], int(row["layers"])), int(row["tp"]),
                int(row["batch"]), int(row["tokens"]), float(row["time_us"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def _model(name: str, layers: int) -> Model:
    """Return a model by name; Llama 3.2 1B, which is no preset, ran with an output layer of its own."""
    if name == "llama3.2-1b":
        like = find_model("llama3-8b")
        return replace(
            like, name=name, layers=layers, hidden=2048, heads=32, kv_heads=8, feed_forward=8192, head_size=64
        )
    return replace(find_model(name), layers=layers)


def inference_rows(rows: Sequence[Measured], how: str = "compiled") -> list[Measured]:
    """Return the steps of inference; those with each layer compiled are what `SERVED` is fitted to."""
    return [row for row in rows if row.step in ("decode", "prefill") and row.how == how]


@cache
def _works(step: str, model: Model, tp: int, batch: int, tokens: int) -> tuple[Work, ...]:
    """Return what the compute nodes of a rank's step have to do."""
    lengths = {"context": tokens - 1} if step == "decode" else {"prompt": tokens}
    trace = studio.generate_inference(model, ranks=tp, tp=tp, phase=step, batch=batch, **lengths)
    graph = trace.graph_of(trace.ranks[0])
    rows = np.flatnonzero(graph.type == NodeType.COMP)
    flop, moved = (read_dense_column(graph, key, 0)[rows].tolist() for key in ("num_ops", "tensor_size"))
    return tuple(map(Work, flop, moved))


def inference_us(row: Measured, efficiency: Efficiency) -> float:
    """Return the time of a step of inference: its nodes one after another."""
    gpu = find_gpu(GPU)
    works = _works(row.step, row.model, row.tp, row.batch, row.tokens)
    return sum(efficiency.time_ns(work, gpu) for work in works) / 1e3


def fit(rows: Sequence[Measured]) -> Efficiency:
    """Return the efficiency with the least mean of ln(time / measured) squared."""
    measured = np.array([row.time_us for row in rows])

    def named(point: Float64) -> Efficiency:
        values = dict(zip(_FITTED, np.exp(point).tolist(), strict=True))
        shares = {name: min(values[name], 1.0) for name in ("matmul", "memory")}
        return Efficiency(odd_matmul=shares["matmul"], kernel_ns=values["kernel_ns"], **shares)

    def loss(point: Float64) -> float:
        times = np.array([inference_us(row, named(point)) for row in rows])
        return float(np.mean(np.log(times / measured) ** 2))

    point = np.log([_START[name] for name in _FITTED])
    for _ in range(4):
        point = descend(loss, point)
    return named(point)


def training_us(row: Measured) -> dict[str, float]:
    """Return the times of a generated training step by part, as `generate llm --gpu h100` makes it."""
    trace = studio.generate(
        row.model, ranks=1, batch=row.batch, micro_batch=row.batch, sequence=row.tokens, gpu=GPU, optimizer="adam-bf16-only",
    )  # fmt: skip
    return _parts(trace)


def _parts(trace: Trace) -> dict[str, float]:
    graph = trace.graph_of(trace.ranks[0])
    times = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    for row in np.flatnonzero(graph.type == NodeType.COMP).tolist():
        name = graph.strings[int(graph.name[row])]
        backward = name.endswith(BACKWARD)
        part = "optimizer" if "optimizer" in name else "backward" if backward else "forward"
        times[part] += int(graph.duration_ns[row]) / 1e3
    return times


def section(rows: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of the report."""
    served = inference_rows(rows)
    yield ""
    yield "Made by `python -m benchmarks.measured_gpu accuracy.md`; not edited. Steps of Llama models in PyTorch 2.11 on one H100 SXM of 80 GB, in bf16,"
    yield "recorded for this project (`benchmarks/h100_llama.csv`). Nothing is fitted to those of training."
    yield ""
    yield "| training, launched kernel by kernel | sequences × tokens | forward | generated | backward | generated | both | optimizer | generated |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    off, of_optimizer = [], []
    for row in (row for row in rows if row.step == "forward" and row.how == "eager"):
        back, update = (
            next(each for each in rows if replace(each, time_us=0) == replace(row, step=step, time_us=0))
            for step in ("backward", "optimizer")
        )
        made = training_us(row)
        error = (made["forward"] + made["backward"]) / (row.time_us + back.time_us) - 1
        off.append(error)
        of_optimizer.append(made["optimizer"] / update.time_us - 1)
        cells = [
            _ms(row.time_us),
            _ms(made["forward"]),
            _ms(back.time_us),
            _ms(made["backward"]),
            f"{100 * error:+.1f} %",
            _ms(update.time_us),
            _ms(made["optimizer"]),
        ]
        yield f"| {row.words} | {' | '.join(cells)} |"
    yield ""
    yield f"The mean |error| is {100 * np.abs(off).mean():.1f} %. The optimizer ran with weights and moments in bf16 (`--optimizer adam-bf16-only`); its mean |error| is"
    yield f"{100 * np.abs(of_optimizer).mean():.1f} %."
    yield ""
    yield f"Three numbers are fitted to {len(served)} steps of inference: products reach {100 * SERVED.matmul:.1f} % of the peak, memory"
    yield f"{100 * SERVED.memory:.1f} % of its bandwidth, and a node takes {SERVED.kernel_ns / 1e3:.1f} µs besides. *Left out*: fitted to the steps of the"
    yield "other two models alone. *Roofline*: what `--compute-efficiency 1` gives, the default before."
    yield ""
    yield "Of decoding, tokens are those that the cache holds."
    yield ""
    yield "| inference | sequences × tokens | step | measured | generated | error | left out | roofline |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    without = {
        name: fit([row for row in served if row.model.name != name])
        for name in {row.model.name for row in served}
    }
    errors = []
    for row in served:
        ways = (SERVED, without[row.model.name], Efficiency())
        times = [inference_us(row, way) for way in ways]
        errors.append([time / row.time_us - 1 for time in times])
        told = " | ".join(f"{100 * error:+.1f} %" for error in errors[-1])
        yield f"| {row.words} | {row.step} | {_ms(row.time_us)} | {_ms(times[0])} | {told} |"
    mean = 100 * np.abs(errors).mean(axis=0)
    yield ""
    yield f"The mean |error| is {mean[0]:.1f} %, left out {mean[1]:.1f} %, by the roofline {mean[2]:.1f} %. Without a compiler the same steps took"
    eager = inference_rows(rows, "eager")
    pairs = [
        (row, other)
        for row in served
        for other in eager
        if replace(row, how="", time_us=0) == replace(other, how="", time_us=0)
    ]
    longer = [100 * (other.time_us / row.time_us - 1) for row, other in pairs]
    yield f"{min(longer):.0f} to {max(longer):.0f} % longer ({len(pairs)} of them, decoding as a CUDA graph too)."
    yield ""


def _ms(time_us: float) -> str:
    return f"{time_us / 1e3:.1f} ms" if time_us < 1e5 else f"{time_us / 1e3:.0f} ms"


def main(target: Path) -> None:
    """Print the fit and write the tables."""
    rows = read_measured()
    found = fit(inference_rows(rows))
    sys.stdout.write(f"{found}\n")
    replace_section(target, (BEGIN, END), section(rows))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
