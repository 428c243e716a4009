"""How many ranks a job has, as far as its files and comm groups say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studio.analysis.job.completeness import infer_completeness
from studio.trace import CommGroup
from tests.handmade import collective, node, trace_of


def of_groups(*ranks: tuple[int, ...], inferred: bool = False):
    """Two ranks that use group g0, beside which the others are listed."""
    trace = trace_of([[collective(1, "ALL_REDUCE", 8, group="g0")] for _ in range(2)])
    groups = tuple(CommGroup(f"g{n}", members, inferred=inferred) for n, members in enumerate(ranks))
    return replace(trace, groups=groups)


def test_a_group_that_names_every_rank_tells_how_many_there_are() -> None:
    job = infer_completeness(of_groups((0, 1, 2, 3)))
    assert (job.world, job.missing_count) == (4, 2)
    assert job.sentence() == "The job has 4 ranks, of which 2 are known (ranks 0–1): ranks 2–3 are missing."


@pytest.mark.parametrize(
    "trace",
    [of_groups((0, 1)), of_groups((0, 1, 99)), of_groups((0, 1), (0, 1, 2, 3)), of_groups((0, 1, 2, 3), inferred=True)],
    ids=["of the known", "far beyond the others", "not used", "inferred"],
)  # fmt: skip
def test_other_groups_tell_nothing(trace) -> None:
    assert infer_completeness(trace).is_whole


def test_listed_groups_tell_how_many_ranks_there_are_though_the_known_ones_use_few() -> None:
    nodes = [[collective(1, "ALL_REDUCE", 8, group=name)] for name in ("a0", "a1")]
    lines = {f"a{first // 16}": range(first, first + 16, 4) for first in (0, 16)}
    every = {f"b{first}": range(first, first + 4) for first in range(0, 32, 4)}
    trace = trace_of({0: nodes[0], 16: nodes[1]}, groups={n: list(r) for n, r in (lines | every).items()})
    job = infer_completeness(trace)
    assert (job.world, len(job.known), job.is_open) == (32, 2, False)
    # Where nothing but their own groups is listed, nothing tells how many there are.
    used = tuple(group for group in trace.groups if group.name in lines)
    assert infer_completeness(replace(trace, groups=used)).is_open


def test_ranks_that_messages_name_are_missing() -> None:
    trace = trace_of([[node(1, "COMM_SEND", comm_dst=2, comm_size=8)]])
    assert infer_completeness(trace).is_open
