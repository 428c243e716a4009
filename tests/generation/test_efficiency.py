"""Times of compute nodes: what is reached of a GPU and its host, and the steps that it was fitted to."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import studio
from benchmarks.measured_gpu import inference_rows, inference_us, read_measured, training_us
from studio.errors import ConfigError
from studio.generation.efficiency import FITTED, NUMBERS, SERVED, Efficiency, Work
from studio.generation.inference.options import build_asked_steps
from studio.sim.systems.gpus import find_gpu
from studio.trace import NodeType

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "accuracy.md"
STEPS = (
    # Micro-batch, layers, width, batch, tp, dp, pp, milliseconds: of the rows of vTrain's ground_truth_single.csv that were not fitted
    # to and have at most 4 micro-batches, six drawn with seed 1.
    (4, 20, 1024, 64, 2, 4, 1, 286.96947),
    (1, 20, 2048, 4, 2, 1, 1, 299.491366),
    (4, 20, 1024, 16, 2, 1, 2, 186.565252),
    (4, 24, 2048, 32, 2, 2, 1, 652.344106),
    (4, 24, 1024, 64, 1, 4, 2, 380.046345),
    (2, 24, 2048, 8, 2, 1, 2, 307.265595),
)


def step(micro_batch, layers, hidden, batch, tp, dp, pp):
    return studio.generate(
        "custom", ranks=tp * dp * pp, tp=tp, pp=pp, batch=batch, micro_batch=micro_batch, layers=layers, hidden=hidden,
        heads=16, sequence=1024, gpu="a100",
    )  # fmt: skip


def test_steps_take_about_as_long_as_measured():
    """Twice of what is asked of all rows: six are few, and two of them are where the table itself has a kink."""
    errors = []
    for *shape, measured in STEPS:
        job = step(*shape)
        config = studio.preset("hgx-a100", npus=len(job.ranks)).config
        errors.append(studio.simulate(job, config).makespan_ns / 1e6 / measured - 1)
    assert np.abs(errors).mean() < 0.16
    assert np.median(np.abs(errors)) < 0.08


def test_at_most_ten_numbers_are_fitted_and_the_report_has_them():
    assert len(NUMBERS) <= 10
    report = REPORT.read_text(encoding="utf-8")
    for name in NUMBERS:
        value = getattr(FITTED, name)
        assert (f"{value / 1e3:.1f} µs" if name.endswith("_ns") else f"{100 * value:.1f} %") in report


def test_the_sum_that_is_fitted_is_the_simulated_step():
    steps = runpy.run_path(str(ROOT / "benchmarks" / "measured_steps.py"))
    row = steps["Step"](
        {"ranks": 4, "batch": 8, "micro_batch": 2, "hidden": 1024, "heads": 16, "layers": 4, "sequence": 1024}
        | {"tp": 2, "dp": 1, "pp": 2},
        0.0,
    )
    assert steps["summed"](row).time_ms(FITTED, {}) == pytest.approx(steps["simulated_ms"](row), rel=0.02)
    found = steps["descend"](lambda point: float(np.abs(point - [1.0, -2.0]).sum()), np.zeros(2), 200)
    assert found == pytest.approx([1.0, -2.0], abs=1e-3)


def test_a_node_takes_its_work_or_its_launches():
    a100 = find_gpu("a100")
    half = Efficiency(matmul=0.5, odd_matmul=0.25, memory=0.5, forward_ns=10.0, backward_ns=5.0)
    times = [
        half.time_ns(work, a100)
        for work in (
            Work(31_200_000, 0), Work(31_200_000, 0, aligned=False), Work(0, 203_900), Work(0, 0, 3), Work(0, 0, 3, backward=True)
        )
    ]  # fmt: skip
    assert times == pytest.approx([200, 400, 200, 30, 15])


def test_what_durations_are_from_is_said():
    def said(**given):
        return studio.generate("gpt3-125m", ranks=1, batch=1, **given).findings[0].message

    assert "fitted to 100 steps of GPT on 8 A100" in said(gpu="a100")
    assert "carried over" not in said(gpu="a100")
    assert "recorded in two public traces of H100" in said(gpu="h100")
    assert "of H100, carried over to NVIDIA B200" in said(gpu="b200")
    assert "8 A100, carried over to NVIDIA V100" in said(gpu="v100")
    assert said(gpu="h100", compute_efficiency=1.0).endswith("its roofline.")
    assert "50%" in said(gpu="h100", memory_efficiency=0.5)
    with pytest.raises(ConfigError, match="above 0"):
        Efficiency(odd_matmul=0.0)
    with pytest.raises(ConfigError, match="forward_ns"):
        Efficiency(forward_ns=-1.0)


def test_steps_of_inference_take_about_as_long_as_on_an_h100():
    """Every compiled step of the table, by the numbers that the report names; by the bare roofline they were 36 % off."""
    rows = inference_rows(read_measured())
    assert len(rows) == 12
    errors = [inference_us(row, SERVED) / row.time_us - 1 for row in rows]
    assert np.abs(errors).mean() < 0.03
    assert np.abs(errors).max() < 0.07
    assert f"products reach {100 * SERVED.matmul:.1f} % of the peak" in REPORT.read_text(encoding="utf-8")


def test_training_steps_take_about_as_long_as_on_an_h100():
    """Forward and backward pass of steps to which nothing was fitted."""
    rows = {(row.step, row.words): row for row in read_measured() if row.how == "eager"}
    for (step, words), row in rows.items():
        if step == "forward":
            made, measured = training_us(row), row.time_us + rows["backward", words].time_us
            assert abs((made["forward"] + made["backward"]) / measured - 1) < 0.1, words


def test_a_step_of_inference_says_what_its_durations_are_from():
    """A node takes its work and 4.7 µs; on a GPU that was not measured the job says so. Shares that are given replace all three."""
    given = {"phase": "decode", "batch": 4, "context": 512}
    made = studio.generate_inference("llama3-8b", ranks=1, gpu="h100", **given)
    roofline = studio.generate_inference("llama3-8b", ranks=1, gpu="h100", compute_efficiency=1.0, **given)
    lasts = [graph.duration_ns[graph.type == NodeType.COMP] for graph in (made.graphs[0], roofline.graphs[0])]
    assert (lasts[0] > lasts[1] + 4_700).all()
    told = build_asked_steps("llama3-8b", 1, {"gpu": "h200", **given}).speed
    assert told is not None
    assert told.source == (
        "durations of NVIDIA H200 SXM 141 GB: efficiencies fitted to 12 steps of inference on H100, carried over to NVIDIA H200 SXM 141 GB"
    )
