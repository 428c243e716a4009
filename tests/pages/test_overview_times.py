"""Where the time goes, on the Overview."""

from __future__ import annotations

import re

import numpy as np

from studio.analysis.breakdown import Breakdown, RankUse
from studio.pages._overview_times import _in_words
from tests.pages.test_simulate_runs import texts


def test_shares_of_the_mean_rank_fill_the_finish() -> None:
    """A rank that ends early, memory and idle time are all told, as shares of what the last rank takes."""
    columns = {
        "compute_ns": [20, 30],
        "communication_ns": [60, 10],
        "exposed_communication_ns": [50, 0],
        "memory_ns": [10, 0],
        "cpu_ns": [0, 10],
        "idle_ns": [20, 0],
    }
    times = Breakdown(**{name: np.array(column) for name, column in columns.items()})
    said = texts(_in_words(RankUse(np.array([0, 1]), np.array([100, 40]), times)))
    assert "finish after 100 ns" in said
    shares = dict(
        re.findall(r"([a-z][a-zA-Z ]*?) (?:\? )?([\d.]+) %", said.split("mean rank:")[1].split("·")[0])
    )
    assert shares == {
        "compute": "25.0",
        "exposed communication": "25.0",
        "memory and CPU alone": "10.0",
        "idle": "10.0",
        "done before the last rank": "30.0",
    }
