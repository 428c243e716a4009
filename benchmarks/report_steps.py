"""Hold generated and simulated steps against vTrain's table of steps on one node of 8 A100.

    python -m benchmarks.report_steps shared/measured/vtrain/ground_truth_single.csv docs/accuracy.md

Every row is generated from its numbers and simulated, some minutes in all. The table takes the place of the part of the report
between its two marks, and the plot lies beside it under pictures.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measured_steps import SEED, SYSTEM, Step, drawn, read_steps, simulated_ms
from benchmarks.sections import replace_section
from studio.generation.efficiency import FITTED, NUMBERS
from studio.trace import Float64

BEGIN, END = "<!-- steps: begin -->", "<!-- steps: end -->"
PICTURE = "measured-steps.svg"
_ASKED, _ASKED_WORST, _VTRAIN = 0.08, 0.15, 0.0837
_WORDS = {
    "matmul": "share of the peak in matrix products",
    "odd_matmul": "the same with a size that is no multiple of 8",
    "memory": "share of the memory's bandwidth",
    "forward_ns": "launch of a kernel by the host, forward",
    "backward_ns": "launch of a kernel by the host, backward",
}
_PREDICTORS = ("batch", "micro_batch", "hidden", "layers", "tp", "dp", "pp")


def main(table: Path, target: Path) -> None:
    """Simulate every row; write the tables and the plot."""
    steps = read_steps(table)
    fitted, rest = drawn(steps)
    measured = np.array([step.time_ms for step in steps])
    times = {"defaults": np.array([simulated_ms(step) for step in steps])}
    picture = target.parent / "pictures" / PICTURE
    picture.parent.mkdir(exist_ok=True)
    picture.write_text(_picture(steps, measured, times["defaults"], rest), encoding="utf-8")
    replace_section(
        target, (BEGIN, END), _section(steps, measured, times, fitted, rest, table.name, target.name)
    )
    times["plain"] = times["defaults"].copy()
    for row, step in enumerate(steps):
        if step.given["tp"] > 1:
            times["plain"][row] = simulated_ms(step, sequence_parallel=False)
    replace_section(
        target, (BEGIN, END), _section(steps, measured, times, fitted, rest, table.name, target.name)
    )


def regressed(steps: Sequence[Step], fitted: Sequence[int], *, products: bool) -> tuple[Float64, int]:
    """Return times by least squares of the logarithm of time on those of a step's numbers, and how many numbers that fits.

    Args:
        steps: All steps.
        fitted: Those that are fitted to.
        products: Whether on all products of two logarithms as well.
    """
    logs = np.log([[step.given[key] for key in _PREDICTORS] for step in steps])
    columns = [np.ones(len(steps)), *logs.T]
    if products:
        count = logs.shape[1]
        columns += [logs[:, one] * logs[:, two] for one in range(count) for two in range(one, count)]
    known = np.stack(columns, 1)
    times = np.log([step.time_ms for step in steps])
    found = np.linalg.lstsq(known[fitted], times[fitted], rcond=None)[0]
    return np.exp(known @ found), known.shape[1]


def _section(  # noqa: PLR0913 (all that the tables tell)
    steps: Sequence[Step],
    measured: Float64,
    times: dict[str, Float64],
    fitted: Sequence[int],
    rest: Sequence[int],
    table: str,
    target: str,
) -> Iterator[str]:
    errors = {name: time / measured - 1 for name, time in times.items()}
    yield "## Steps of training"
    yield ""
    yield (
        f"Made by `python -m benchmarks.report_steps {table} {target}`; not edited. {len(steps):,} steps of GPT on one node of 8 A100 "
        f"(github VIA-Research/vTrain, `data/`), each generated from its numbers (`generate llm --layers --hidden --heads --seq "
        f"--global-batch --micro-batch --tp --pp --ranks --gpu a100`) and simulated on {SYSTEM} in the full model. {len(NUMBERS)} numbers "
        f"are fitted, to {len(fitted)} rows drawn with seed {SEED}, the same for all layouts."
    )
    yield ""
    yield "| fitted | value |"
    yield "| --- | ---: |"
    for name in NUMBERS:
        value = getattr(FITTED, name)
        yield f"| {_WORDS[name]} | {f'{value / 1e3:.1f} µs' if name.endswith('_ns') else f'{100 * value:.1f} %'} |"
    yield ""
    yield f"| error of the {len(rest):,} rows that were not fitted | mean \\|error\\| | bias | worst layout, mean |"
    yield "| --- | ---: | ---: | ---: |"
    for name, words in (
        ("defaults", "generated and simulated"),
        ("plain", "the same with `--no-sequence-parallel`, as the steps ran"),
    ):
        if name in errors:
            yield _row(words, steps, errors[name], rest)
    for products in (False, True):
        guessed, count = regressed(steps, fitted, products=products)
        what = "and all their products" if products else "alone"
        words = f"no simulation: regression of log time on the logs of {len(_PREDICTORS)} numbers {what} ({count} fitted)"
        yield _row(words, steps, guessed / measured - 1, rest)
    yield f"| vTrain, which measures every kernel, as published | {100 * _VTRAIN:.2f} % | | |"
    yield ""
    yield f"Of the {len(fitted)} fitted rows it is {100 * np.abs(errors['defaults'][fitted]).mean():.1f} %. Asked: {100 * _ASKED:.0f} %, and {100 * _ASKED_WORST:.0f} % of the worst layout."
    yield ""
    yield f"![Simulated over measured time of the rows that were not fitted, by tensor parallel degree](pictures/{PICTURE})"
    yield ""
    yield "| tp | dp | pp | rows | mean \\|error\\| | bias | without sequence parallelism |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for key, rows in _by_layout(steps, rest).items():
        own, plain = errors["defaults"][rows], errors.get("plain")
        yield (
            f"| {' | '.join(map(str, key))} | {len(rows)} | {100 * np.abs(own).mean():.1f} % | {100 * own.mean():+.1f} % "
            f"| {'–' if plain is None else f'{100 * np.abs(plain[rows]).mean():.1f} %'} |"
        )
    yield ""
    yield _PROVENANCE
    yield ""


_PROVENANCE = (
    "What the table is. Its times are no 1,440 stopwatch readings that are independent of each other: at fixed layout and micro-batch "
    "they are linear in layers and in micro-batches, to 0.01 % with one replica and to 0.3 % else, so they were put together from parts; and "
    "messages between stages take exactly what the formula of vTrain's own code gives (`_compute_p2p_latency`: twice the activations at 26.8 GB/s). The "
    "rows hold about 64 independent times: a layer and the output layer, at 2 widths, 4 micro-batches and 4 tensor parallel degrees. "
    "An error here says how far the simulation is from what vTrain publishes as ground truth, and vTrain's own is told as it is published."
)


def _row(words: str, steps: Sequence[Step], errors: Float64, rest: Sequence[int]) -> str:
    by = {key: float(np.abs(errors[rows]).mean()) for key, rows in _by_layout(steps, rest).items()}
    worst = max(by, key=lambda key: by[key])
    own = errors[rest]
    return (
        f"| {words} | {100 * np.abs(own).mean():.1f} % | {100 * own.mean():+.1f} % "
        f"| {100 * by[worst]:.1f} % (tp {worst[0]}, dp {worst[1]}, pp {worst[2]}) |"
    )


def _by_layout(steps: Sequence[Step], rows: Sequence[int]) -> dict[tuple[int, int, int], list[int]]:
    found: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for row in rows:
        found[steps[row].combination].append(row)
    return dict(sorted(found.items()))


# ---------------------------------------------------------------------------------------------------
# The plot

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 420, 64, 48
_LOW, _HIGH = 50.0, 2_000.0
_COLOURS = {1: "#4477aa", 2: "#228833", 4: "#aa7700", 8: "#cc3366"}


def _picture(steps: Sequence[Step], measured: Float64, simulated: Float64, rest: Sequence[int]) -> str:
    """Return the plot: simulated over measured time of each row, both axes logarithmic, a colour for each tensor parallel degree."""
    width, height = _WIDTH - _LEFT - 120, _HEIGHT - _BOTTOM - 16

    def place(value: float, length: float) -> float:
        return float(np.log(value / _LOW) / np.log(_HIGH / _LOW) * length)

    def at(one: float, two: float) -> str:
        return f"{_LEFT + place(one, width):.1f} {16 + height - place(two, height):.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for tick in (50, 100, 200, 500, 1_000, 2_000):
        (x, _), (_, y) = at(tick, _LOW).split(), at(_LOW, tick).split()
        lines += [
            f'<path d="M{x} 16V{16 + height}M{_LEFT} {y}H{_LEFT + width}" stroke="#e0e0e0"/>',
            f'<text x="{x}" y="{34 + height}" text-anchor="middle" fill="#444444">{tick:,}</text>',
            f'<text x="{_LEFT - 8}" y="{y}" dy="4" text-anchor="end" fill="#444444">{tick:,}</text>',
        ]
    for factor, dash in ((1.0, ""), (1.15, ' stroke-dasharray="4 4"'), (1 / 1.15, ' stroke-dasharray="4 4"')):
        ends = (
            at(_LOW * max(1 / factor, 1), _LOW * max(factor, 1)),
            at(_HIGH / max(factor, 1), _HIGH * min(factor, 1)),
        )
        lines.append(f'<path d="M{ends[0]}L{ends[1]}" stroke="#666666"{dash} fill="none"/>')
    for place_of, (degree, colour) in enumerate(_COLOURS.items()):
        own = [row for row in rest if steps[row].given["tp"] == degree]
        points = "".join(f"M{at(measured[row], simulated[row])}h0" for row in own)
        lines += [
            f'<path d="{points}" stroke="{colour}" stroke-opacity="0.6" stroke-width="4" stroke-linecap="round"/>',
            f'<circle cx="{_LEFT + width + 20}" cy="{30 + 20 * place_of}" r="4" fill="{colour}"/>',
            f'<text x="{_LEFT + width + 30}" y="{34 + 20 * place_of}" fill="#222222">tp {degree}</text>',
        ]
    lines += [
        f'<text x="{_LEFT + width + 14}" y="{34 + 20 * len(_COLOURS)}" fill="#444444">dashed: ± 15 %</text>',
        f'<text x="{_LEFT + width / 2}" y="{_HEIGHT - 6}" text-anchor="middle" fill="#222222">measured, ms</text>',
        f'<text transform="translate(14 {16 + height / 2}) rotate(-90)" text-anchor="middle" fill="#222222">simulated, ms</text>',
        "</svg>",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
