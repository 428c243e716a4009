"""Series are told by names, and a change is what stands out from the jobs before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.analysis.job.measures import Measures
from studio.analysis.trends.changes import find_changes
from studio.analysis.trends.series import UNNAMED, name_series


@pytest.mark.parametrize(
    ("names", "series"),
    [
        (
            ("llama-2026-11-20", "llama_20261121", "llama 2026.11.22T03:00:00Z", "llama-20261122-031500"),
            "llama",
        ),
        (("gpt3-1", "gpt3 (2)", "gpt3.003", "gpt3_run12", "gpt3 build #7", "gpt3-v1.2.3"), "gpt3"),
        (("2026-11-20/moe.1", "2026-11-21/moe.2", "12/moe"), "moe"),
        (("stg_64r", "stg_64r-2026-11-20"), "stg_64r"),
        (("2026-11-20", "17", "20261120T0300"), UNNAMED),
        (("llama-8b", "llama-8b-7"), "llama-8b"),
        (("llama-70b",), "llama-70b"),
    ],
)
def test_dates_and_numbers_are_no_part_of_a_series(names, series):
    assert {name_series(name) for name in names} == {series}


@given(st.text(max_size=60))
def test_any_name_has_a_series_which_is_its_own(name):
    series = name_series(name)
    assert series
    assert name_series(series) == series or series == UNNAMED or "/" in name


def jobs(*steps: float, exposed: float = 0.2) -> list[Measures]:
    return [
        Measures(8, int(2 * step), int(step), 2, {"exposed": exposed, "compute": 1 - exposed}, 1.1)
        for step in steps
    ]


def test_a_change_is_found_where_it_is_and_not_again():
    [change] = find_changes(jobs(1000, 1004, 998, 1001, 1120, 1118, 1123, 1119))
    assert (change.key, change.before, change.at, change.is_worse) == ("step", 3, 4, True)
    assert change.words("A", "B") == "Step time rose 11.9 % from A to B: compute 801 ns → 896 ns of a step."


def test_noise_is_no_change_and_one_odd_job_is_two():
    assert find_changes(jobs(1000, 1050, 980, 1020, 1060, 990, 1040)) == []
    odd = find_changes(jobs(1000, 1000, 1000, 1300, 1000, 1000))
    assert [(change.at, change.is_worse) for change in odd] == [(3, True), (4, False)]


def test_jobs_without_times_are_passed_over_and_steps_are_not_held_against_finishes():
    series = [*jobs(1000, 1000), None, Measures(8), *jobs(1200)]
    [change] = find_changes(series)
    assert (change.before, change.at) == (1, 4)
    bare = [Measures(8, 5000, None, 0, {"exposed": 0.2}, 1.1)] * 2
    assert find_changes([*jobs(1000, 1000), *bare, *jobs(1000)]) == []
    assert find_changes([]) == []


def test_shares_change_by_points():
    [change] = find_changes([*jobs(1000, 1000), *jobs(1000, exposed=0.27)])
    assert change.words("A", "B") == "Exposed communication rose 7.0 points from A to B."
