"""Published steps with their layouts: generated and simulated they take about as long, though nothing was fitted to them."""

from pathlib import Path

import pytest

from benchmarks.published_steps import BEGIN, END, STEPS, held

REPORT = Path(__file__).parents[2] / "docs" / "accuracy.md"
_CHEAP = ("GPT 18.4B", "GPT 22B", "Nemotron-4 15B")
SMALL = [step for step in STEPS if step.name.startswith(_CHEAP)]


@pytest.mark.parametrize("step", SMALL, ids=[f"{step.name}, {step.ranks} GPUs" for step in SMALL])
def test_a_published_step_takes_about_as_long_in_simulation(step):
    assert abs(held(step).error) < 0.12


def test_the_report_has_every_published_step():
    section = REPORT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and " GPUs |" not in line]
    told = [[cell.strip() for cell in line.strip("| ").split("|")][:2] for line in rows if "---" not in line]
    assert told == [[step.name, f"{step.ranks:,} {step.given['gpu'].upper()}"] for step in STEPS]
