"""Missing ranks drawn between the lightest and the heaviest known one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studio.completion import Spread, complete
from studio.completion.measured import measure_compute_ns
from studio.errors import ConfigError
from studio.trace import Trace, read_int_column
from tests.handmade import collective, node, trace_of
from tests.test_cli import refused

MEASURED = Spread(imbalance="measured")


def experts(micros: list[int]) -> Trace:
    """Ranks that compute for different times, and send each other as much by an all-to-all as they compute."""
    ranks = [
        [
            node(1, "COMP", micros=time),
            collective(2, "ALL_TO_ALL", 100 * time, 1, group="ep"),
            collective(3, "ALL_REDUCE", 640, 2, group="ep"),
        ]
        for time in micros
    ]
    return trace_of(ranks, groups={"ep": list(range(len(micros)))})


def keep(trace: Trace, *numbers: int) -> Trace:
    return replace(trace, ranks=tuple(trace.ranks[number] for number in numbers))


def test_missing_ranks_lie_between_the_lightest_and_the_heaviest():
    whole = experts([10, 20, 20, 20, 20, 40])
    made = complete(keep(whole, 0, 5), spread=MEASURED)
    times = [measure_compute_ns(made.graph_of(rank)) for rank in made.ranks]
    assert (times[0], times[5]) == (10_000, 40_000)
    # The places of four are 1/8, 3/8, 5/8 and 7/8: of a factor of four, 2 to the power of a quarter, three quarters, ...
    assert sorted(times[1:5]) == [round(10_000 * 4 ** (place / 8)) for place in (1, 3, 5, 7)]
    sizes = [read_int_column(made.graph_of(rank), "comm_size")[1].tolist() for rank in made.ranks]
    assert {size[1] for size in sizes} == {640}
    assert [size[0] % 1000 for size in sizes] == [0] * 6
    assert sorted(size[0] for size in sizes[1:5]) == [1000, 2000, 3000, 4000]
    [finding] = [finding for finding in made.findings if finding.code == "spread-measured"]
    assert "300.0 % longer than the lightest; 1 collectives a rank are uneven" in finding.message


def test_the_seed_deals_the_places():
    known = keep(experts([10, 20, 20, 20, 20, 40]), 0, 5)
    drawn = [
        [measure_compute_ns(graph) for graph in complete(known, spread=replace(MEASURED, seed=seed)).graphs]
        for seed in (1, 1, 2, 3)
    ]
    assert drawn[0] == drawn[1]
    assert len({tuple(times) for times in drawn}) > 1
    assert {tuple(sorted(times)) for times in drawn} == {tuple(sorted(drawn[0]))}


def test_jitter_is_what_nodes_differ_once_ranks_are_equally_fast():
    def rank(*micros: int) -> list[object]:
        return [
            *(node(1 + at, "COMP", micros=time) for at, time in enumerate(micros)),
            collective(9, "ALL_REDUCE", 64, group="dp"),
        ]

    groups = {"dp": [0, 1, 2, 3]}
    twice = trace_of({0: rank(100, 100, 100), 1: rank(200, 200, 200)}, groups=groups)
    made = complete(twice, spread=Spread(jitter="measured"))
    assert "a standard deviation of 0.000" in made.findings[-1].message
    uneven = trace_of({0: rank(100, 100, 100), 1: rank(100, 200, 50)}, groups=groups)
    assert (
        "a standard deviation of 0.404"
        in complete(uneven, spread=Spread(jitter="measured")).findings[-1].message
    )


def test_what_cannot_be_measured_is_refused(tmp_path):
    whole = experts([10, 20, 40])
    with pytest.raises(ConfigError, match=r"no two of the known ranks \(0\) are of one pipeline stage"):
        complete(keep(whole, 0), spread=MEASURED)
    with pytest.raises(ConfigError, match="the spread of nodes cannot be measured"):
        complete(keep(whole, 0), spread=Spread(jitter="measured"))
    still = trace_of([[collective(1, "ALL_REDUCE", 64, group="dp")]], groups={"dp": [0, 1]})
    with pytest.raises(ConfigError, match="no compute node of the job has one"):
        complete(still, spread=Spread(jitter=0.1))
    (tmp_path / "in").mkdir()
    assert "jitter is 'much'; allowed: 0 to 1, or measured" in refused(
        "complete", tmp_path / "in", "-o", tmp_path / "out", "--jitter", "much"
    )
