"""Embedding tables of FBGEMM: what a look-up moves, though nothing recorded tells the width of its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import studio
from studio.operators import list_operators
from studio.operators.tables import GRADIENT, LOOKUP
from studio.trace import Trace
from tests.et.pytorch_files import device_file, event

BATCH, TABLES, INDICES = 4, 2, 100


def recommender(path: Path, weights: int, rows: int, columns: int) -> Trace:
    """A look-up of 100 rows in two tables for four samples, and its backward pass, a kernel each."""
    shapes: list[list[int]] = [[] for _ in range(22)]
    kinds = ["Scalar"] * 22
    for place, size, kind in (
        (1, weights, "c10::Half"), (6, TABLES + 1, "int"), (11, INDICES, "long"), (12, BATCH * TABLES + 1, "long"),
        (20, rows, "float"),
    ):  # fmt: skip
        shapes[place], kinds[place] = [size], kind
    told = {"Input Dims": shapes, "Input type": kinds}
    back = {"Input Dims": [[BATCH, columns]], "Input type": ["float"]}
    events = []
    for at, (name, args) in enumerate(((LOOKUP, told), (GRADIENT, back))):
        start = 10 + 100 * at
        events.append(event(name, start, 20, external=at + 1, **args))
        events.append(event("cudaLaunchKernel", start + 5, 5, cat="cuda_runtime", correlation=at + 1))
        events.append(
            event(f"kernel {at}", start + 30, 10, cat="kernel", correlation=at + 1, stream=7, device=0)
        )
    path.write_bytes(device_file(events))
    return studio.read(path)


@pytest.mark.parametrize(
    ("weights", "rows", "columns", "wide"),
    [(1600, 100, 32, 16), (1601, 100, 36, 18)],
    ids=["as wide as tables have elements a row", "the mean of the widths of the gradient"],
)
def test_a_look_up_moves_as_many_elements_as_rows_have(tmp_path, weights, rows, columns, wide):
    found = {
        row.operator: row
        for row in list_operators(recommender(tmp_path / "k_0.json", weights, rows, columns)).rows
    }
    ahead, back = found[LOOKUP], found[GRADIENT]
    offsets, results = 8 * (BATCH * TABLES + 1), 4 * BATCH * TABLES * wide
    assert ahead.flop == INDICES * wide
    assert ahead.bytes == 2 * INDICES * wide + 8 * INDICES + offsets + results
    assert back.flop == 3 * INDICES * wide
    assert back.bytes == 2 * 2 * INDICES * wide + 8 * INDICES + offsets + results + 2 * 4 * INDICES


def test_a_gradient_of_another_shape_is_of_no_look_up(tmp_path):
    report = list_operators(recommender(tmp_path / "k_0.json", 1600, 100, 20))
    assert [row.name for row in report.uncovered] == [GRADIENT]


@pytest.mark.parametrize("rank", [0, 1])
def test_nine_tenths_of_a_public_recommender_are_covered(shared: Path, rank: int):
    report = list_operators(studio.read(shared / f"traces/public/hta/sampled_rank-{rank}.json.gz"))
    assert report.coverage > 0.9
    # What caches answer is counted too; still it is no more than an A100 of 80 GB moves, 2,039 GB/s.
    assert all(row.bytes_per_s < 2.039e12 for row in report.rows if row.operator in (LOOKUP, GRADIENT))
