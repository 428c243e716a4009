"""Which ranks communicate in which groups, on Overview."""

from __future__ import annotations

import pytest

from studio.analysis.collectives.groups import select_shared_use, sum_group_use
from studio.pages.collectives.groups import build_group_matrix, draw_used_matrix
from tests.handmade import collective, node, trace_of
from tests.pages.test_simulate_runs import texts


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": [0], "b": [0]}, "No rank communicates in the 2 comm groups that the job lists."),
        ({}, "No collective names a comm group, and no group is listed."),
    ],
)
def test_a_job_that_does_not_communicate_has_a_sentence_instead_of_a_picture_of_one_colour(
    groups: dict[str, list[int]], words: str
) -> None:
    use, _ = select_shared_use(sum_group_use(trace_of([[node(1, "COMP")]], groups)))
    figure = draw_used_matrix(use, dark=False)
    assert figure is None
    assert texts(build_group_matrix("groups", figure, use)) == words


def test_a_job_that_communicates_has_the_picture() -> None:
    ranks = [[collective(1, "ALL_REDUCE", 8, group="a")] for _ in range(2)]
    use, _ = select_shared_use(sum_group_use(trace_of(ranks, {"a": [0, 1]})))
    assert draw_used_matrix(use, dark=False) is not None
