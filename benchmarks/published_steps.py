"""Published steps of training with their layouts, beside the same steps generated and simulated: nothing is fitted to them.

    python -m benchmarks.published_steps docs/accuracy.md [A PART OF A NAME]

generates and simulates every step, some minutes in all, and writes the table between its two marks in the report; with a part of a
name the steps of that name alone are printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import studio
from benchmarks.sections import replace_section
from studio.generation.transformer import count_recomputed_flop, count_step_flop
from studio.generation.workload import build_workload
from studio.sim.presets import preset

BEGIN, END = "<!-- published: begin -->", "<!-- published: end -->"
SYSTEMS = {"a100": "hgx-a100", "h100": "hgx-h100"}
NARAYANAN = "Narayanan et al., SC 2021, table 1"
KORTHIKANTI = "Korthikanti et al., 2022, table 5"
TITAN_A100 = "torchtitan, docs/performance.md, 2024"
TITAN_H100 = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
LLAMA = "Llama team, The Llama 3 Herd of Models, 2024, table 4"
DGXC = "github NVIDIA/dgxc-benchmarking"


@dataclass(frozen=True, slots=True)
class Published:
    """A published step.

    Attributes:
        name: What is trained, where.
        ranks: How many GPUs.
        given: What `studio.generate` takes, the model among it.
        seconds: The time of the step; 0 where `rate` is published.
        rate: TFLOP/s of a GPU, of the model's operations; those that are recomputed among them where `counts_again`.
        source: Where it is published.
        counts_again: Whether the rate counts operations that are computed again.
        apart: Why it is no test of what is generated; empty where it is.
    """

    name: str
    ranks: int
    given: Mapping[str, Any]
    seconds: float = 0.0
    rate: float = 0.0
    source: str = ""
    counts_again: bool = False
    apart: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A published step beside the simulated one.

    Attributes:
        published_s, simulated_s: Their times.
        flop: Operations of the model in a step, on each GPU.
    """

    published_s: float
    simulated_s: float
    flop: float

    @property
    def error(self) -> float:
        """How much longer the simulated step takes."""
        return self.simulated_s / self.published_s - 1


def _gpt(layers: int, hidden: int, heads: int, **more: Any) -> dict[str, Any]:
    """Return a GPT of Megatron-LM: 2,048 tokens; the vocabulary of the published ones is padded to 51,200."""
    shape = {"model": "custom", "layers": layers, "hidden": hidden, "heads": heads, "sequence": 2_048}
    return shape | {"gpu": "a100", "attention": "unfused"} | more


def _narayanan() -> Iterator[Published]:
    """Yield the weak scaling of Megatron-LM: all layers recomputed, without sequence parallelism, interleaved stages.

    The paper gives neither micro-batch nor chunks of a stage and says that it tunes them; taken are two chunks where layers and batch
    divide, and micro-batches of which larger ones are hardly faster here.
    """
    rows = (
        ("1.7B", 24, 2_304, 24, 1, 1, 32, 512, 137, 8), ("3.6B", 30, 3_072, 32, 2, 1, 64, 512, 138, 8),
        ("7.5B", 36, 4_096, 32, 4, 1, 128, 512, 142, 8), ("18.4B", 40, 6_144, 48, 8, 1, 256, 1_024, 135, 4),
        ("39.1B", 48, 8_192, 64, 8, 2, 512, 1_536, 138, 2), ("76.1B", 60, 10_240, 80, 8, 4, 1_024, 1_792, 140, 2),
        ("145.6B", 80, 12_288, 96, 8, 8, 1_536, 2_304, 148, 1), ("310.1B", 96, 16_384, 128, 8, 16, 1_920, 2_160, 155, 1),
    )  # fmt: skip
    for name, layers, hidden, heads, tp, pp, ranks, batch, rate, micro in rows:
        given = _gpt(layers, hidden, heads, tp=tp, pp=pp, batch=batch, micro_batch=micro, recompute="full")
        given |= {"sequence_parallel": False}
        if pp > 1 and layers % (2 * pp) == 0 and batch * tp * pp // ranks // micro % pp == 0:
            given |= {"schedule": "interleaved", "virtual_stages": 2}
        yield Published(
            f"GPT {name}, micro-batch {micro}", ranks, given, rate=rate, source=NARAYANAN, counts_again=True
        )


def _korthikanti() -> Iterator[Published]:
    rows = (
        ("22B", 48, 6_144, 64, 1, 8, 4, 4, 1, 1.42, 1.10), ("175B", 96, 12_288, 96, 8, 64, 64, 1, 3, 18.13, 13.75),
        ("530B", 105, 20_480, 128, 35, 280, 280, 1, 3, 49.05, 37.83),
    )  # fmt: skip
    for name, layers, hidden, heads, pp, ranks, batch, micro, chunks, full, selective in rows:
        given = _gpt(layers, hidden, heads, tp=8, pp=pp, batch=batch, micro_batch=micro)
        given |= {"schedule": "interleaved", "virtual_stages": chunks} if chunks > 1 else {}
        whole = given | {"recompute": "full", "sequence_parallel": False}
        yield Published(f"GPT {name}, all recomputed", ranks, whole, full, source=KORTHIKANTI)
        given |= {"recompute": "selective"}
        yield Published(f"GPT {name}, attention recomputed", ranks, given, selective, source=KORTHIKANTI)


def _tokens(ranks: int, rate: int, batch: int) -> float:
    """Return the time of a step of sequences of 8,192 tokens, from tokens a second and GPU."""
    return batch * 8_192 / ranks / rate


def _titan() -> Iterator[Published]:
    a100 = {"gpu": "a100", "zero": 3, "batch": 64}
    small, large = (
        {"model": "llama3-8b", "recompute": "selective"},
        {"model": "llama3-70b", "recompute": "full"},
    )
    yield Published("llama3-8b", 64, a100 | small, _tokens(64, 2_973, 64), source=TITAN_A100)
    yield Published("llama3-70b", 64, a100 | large, _tokens(64, 331, 64), source=TITAN_A100)
    given = {
        "gpu": "h100",
        "zero": 3,
        "batch": 16,
        "micro_batch": 2,
        "model": "llama3.1-8b",
        "recompute": "selective",
    }
    slow = "H100 with HBM2e of 2.4 TB/s, limited to 500 W of 700"
    for word, rate in (("", 5_762), (", compiled", 6_667)):
        yield Published(f"llama3.1-8b{word}", 8, given, _tokens(8, rate, 16), source=TITAN_H100, apart=slow)


def _dgxc() -> Iterator[Published]:
    """Yield NVIDIA's steps of NeMo on DGX H100 in bf16 and fp8, with its distributed optimizer."""
    h100 = {"gpu": "h100", "zero": 1, "grad_overlap": True}

    def staged(chunks: int, **more: Any) -> dict[str, Any]:
        return h100 | {"schedule": "interleaved", "virtual_stages": chunks} | more

    llama, gpt3, nemotron = f"{DGXC}, llama3.1", f"{DGXC}, nemo_megatron", f"{DGXC}, nemotron"
    kind = {"model": "custom", "kv_heads": 8, "vocabulary": 256_000, "gelu": True, "sequence": 4_096}
    small = h100 | {"model": "llama3.1-8b", "cp": 2}
    middle = staged(5, model="llama3.1-70b", tp=4, batch=128)
    large = staged(8, model="llama3.1-405b", tp=8, pp=8, cp=2, batch=256)
    gpt = staged(12, tp=4, pp=8, batch=256, model="gpt3-175b", attention="flash")
    half = h100 | kind | {"layers": 32, "hidden": 6_144, "heads": 48, "feed_forward": 24_576, "tp": 4}
    whole = staged(12, **kind, layers=96, hidden=18_432, heads=96, feed_forward=73_728, tp=8, pp=8, batch=32)
    rows = (
        ("llama3.1-8b", 8, small | {"batch": 128}, small | {"batch": 128}, 12.27, 9.33, llama),
        ("llama3.1-8b", 128, small | {"batch": 2_048}, {}, 12.33, 0, llama),
        ("llama3.1-70b", 64, middle | {"pp": 4, "cp": 2}, middle | {"pp": 8}, 14.66, 9.86, llama),
        ("llama3.1-405b", 512, large, large, 19.78, 12.37, llama),
        ("gpt3-175b", 128, gpt, gpt, 8.309, 5.626, gpt3),
        ("Nemotron-4 15B", 16, half | {"micro_batch": 4, "batch": 64}, half | {"micro_batch": 4, "batch": 64}, 2.83, 2.08, nemotron),
        ("Nemotron-4 340B", 128, whole, whole, 4.61, 3.16, nemotron),
    )  # fmt: skip
    for name, ranks, given, low, seconds, low_seconds, source in rows:
        yield Published(name, ranks, given, seconds, source=source)
        if low_seconds:
            yield Published(f"{name}, fp8", ranks, low | {"dtype": "fp8"}, low_seconds, source=source)


def _llama() -> Iterator[Published]:
    """Yield the runs of Llama 3 405B; of their interleaved schedule the number of chunks is not published, four are taken."""
    given = {
        "model": "llama3-405b",
        "gpu": "h100",
        "tp": 8,
        "pp": 16,
        "zero": 1,
        "grad_overlap": True,
        "batch": 2_048,
    }
    given |= {"schedule": "interleaved", "virtual_stages": 4}
    yield Published("llama3-405b", 8_192, given, rate=430, source=LLAMA)


STEPS = (*_narayanan(), *_korthikanti(), *_titan(), *_dgxc(), *_llama())


def held(step: Published) -> Held:
    """Generate a published step, simulate it on the preset of its GPU in the full model, and hold both beside each other."""
    given = dict(step.given)
    model = given.pop("model")
    workload = build_workload(model, step.ranks, given)
    again = count_recomputed_flop(workload.model, workload.layout)
    whole = count_step_flop(workload.model, workload.layout)
    counted = (whole if step.counts_again else whole - again) / step.ranks
    job = studio.generate(model, ranks=step.ranks, **given)
    config = preset(SYSTEMS[given["gpu"]], step.ranks).config
    simulated = studio.simulate(job, config).makespan_ns / 1e9
    return Held(step.seconds or counted / step.rate / 1e12, simulated, (whole - again) / step.ranks)


def main(report: Path, part: str = "") -> None:
    """Simulate every step and write the table, or print the steps of a name."""
    chosen = [step for step in STEPS if part in f"{step.name} {step.source}"]
    rows = []
    for step in chosen:
        rows.append(held(step))
        print(_row(step, rows[-1]), flush=True)
    if part:
        return
    replace_section(report, (BEGIN, END), _section(chosen, rows))


def _row(step: Published, found: Held) -> str:
    layout = ", ".join(
        f"{key} {step.given[key]}"
        for key in ("tp", "pp", "cp", "zero", "virtual_stages")
        if key in step.given
    )
    rates = [found.flop / time / 1e12 for time in (found.published_s, found.simulated_s)]
    mark = "\\*" if step.apart else ""
    return (
        f"| {step.name} | {step.ranks:,} {str(step.given['gpu']).upper()} | {layout.replace('virtual_stages', 'chunks')} | "
        f"{step.source} | {found.published_s:.2f} s ({rates[0]:.0f}) | {found.simulated_s:.2f} s ({rates[1]:.0f}) | "
        f"{100 * found.error:+.1f} %{mark} |"
    )


def _section(steps: list[Published], rows: list[Held]) -> Iterator[str]:
    yield "## Published steps"
    yield ""
    yield (
        "Made by `python -m benchmarks.published_steps accuracy.md`; not edited. Steps that others published with their layouts, each "
        "generated from these with `--gpu` and simulated on hgx-a100 or hgx-h100 in the full model. Nothing was fitted to them: the "
        "numbers of A100 are those of the table above, from one node and models of width 1,024 and 2,048; those of H100 are from two "
        "traces of one GPU ([generation](generation.md#what-is-modelled)). In brackets TFLOP/s of a GPU, operations of the model alone. "
        "Narayanan et al. give neither micro-batches nor chunks of a stage and say that they tune them, and of Llama 3 the chunks are not "
        "published: those named are taken, micro-batches near the fastest here. NeMo lets tensor parallel exchange overlap products, "
        "which is not modelled."
    )
    yield ""
    yield "| step | GPUs | layout | published in | published | simulated | error |"
    yield "| --- | ---: | --- | --- | ---: | ---: | ---: |"
    yield from (_row(step, found) for step, found in zip(steps, rows, strict=True))
    yield ""
    for gpu in SYSTEMS:
        errors = [
            found.error
            for step, found in zip(steps, rows, strict=True)
            if step.given["gpu"] == gpu and not step.apart
        ]
        yield (
            f"{gpu.upper()}, {len(errors)} steps: mean |error| {100 * np.abs(errors).mean():.1f} %, bias "
            f"{100 * np.mean(errors):+.1f} %, worst {100 * max(errors, key=abs):+.1f} %."
        )
        yield ""
    for why in dict.fromkeys(step.apart for step in steps if step.apart):
        yield f"\\* Left out of these sums: {why}, which no preset is."


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
