"""What is known of a job while its ranks are read: counts and bytes are those of the finished job, as far as it is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import studio
from studio.et import executors, job
from studio.et.seen import JobSeen, Picture, RankSeen, Work
from studio.trace import Graph, NodeType, Trace, are_copies, read_int_column
from tests.et.chakra_bytes import file_of, num

RECORDED = Path(__file__).parents[1] / "data" / "nccl_4r"


class Watch:
    """A progress callback that keeps what was known whenever it was called."""

    def __init__(self) -> None:
        self.seen = JobSeen()
        self.pictures: list[tuple[str, Picture]] = []

    def __call__(self, phase: str, done: int, total: int) -> None:
        if picture := self.seen.picture():
            self.pictures.append((phase, picture))

    @property
    def last(self) -> Picture:
        return self.pictures[-1][1]


def sent(graph: Graph) -> int:
    rows, sizes = read_int_column(graph, "comm_size")
    return int(sizes[np.isin(graph.type[rows], (NodeType.COMM_COLL, NodeType.COMM_SEND))].sum())


def total(trace: Trace, of_graph) -> int:
    counts = [int(of_graph(graph)) for graph in trace.graphs]
    return sum(counts[rank.graph] for rank in trace.ranks)


def test_ranks_are_told_as_they_come_and_add_up_to_the_job():
    watch = Watch()
    trace = studio.read(studio.sample_path("transformer_8r"), progress=watch)
    ranks = [picture.ranks for _, picture in watch.pictures]
    assert ranks == sorted(ranks)
    assert set(ranks) >= set(range(1, 8))
    assert {picture.of_ranks for _, picture in watch.pictures} == {8}
    seen = watch.seen.picture()
    assert seen is not None
    assert seen.ranks == 8
    assert sum(seen.operations.values()) == trace.node_count - total(
        trace, lambda graph: (graph.type == NodeType.METADATA).sum()
    )
    assert seen.operations["collective"] == total(
        trace, lambda graph: (graph.type == NodeType.COMM_COLL).sum()
    )
    assert seen.sent_bytes == total(trace, sent) > 0
    assert [(bar.first, bar.last) for bar in seen.bars] == [(rank, rank) for rank in range(8)]
    assert [bar.sent_bytes for bar in seen.bars] == [sent(trace.graphs[rank.graph]) for rank in trace.ranks]


@pytest.mark.integration
@pytest.mark.parametrize("by_several", [True, False])
def test_recorded_ranks_are_told_before_all_are_linked(by_several, monkeypatch):
    """Copies, communication and its bytes are those of the linked job; drafts of other processes tell them before."""
    monkeypatch.setattr(job, "_WORTH_PROCESSES", 0 if by_several else 1 << 60)
    monkeypatch.setattr(job, "count_processors", lambda: 2)
    monkeypatch.setattr(executors, "_AHEAD", 1)
    watch = Watch()
    trace = studio.link(RECORDED, progress=watch)
    reading = [picture for phase, picture in watch.pictures if phase == "reading"]
    assert {1, 2, 3} <= {picture.ranks for picture in reading}
    assert reading[0].of_ranks == 4
    seen = reading[-1] if by_several else watch.seen.picture()
    assert seen is not None
    assert seen.ranks == 4
    assert seen.operations["copy"] == total(trace, lambda graph: are_copies(graph).sum())
    assert seen.operations["collective"] == total(
        trace, lambda graph: (graph.type == NodeType.COMM_COLL).sum()
    )
    assert seen.sent_bytes == total(trace, sent) > 0
    assert seen.span_ns > 0


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    for rank in range(2):
        (tmp_path / f"job.{rank}.et").write_bytes(file_of(num(1, 1) + num(3, 4)))
    (tmp_path / "job.json").write_text('{"g": [-1, 2]}')
    watch = Watch()
    studio.read(tmp_path, progress=watch)
    seen = watch.seen.picture()
    assert seen is not None
    assert (seen.ranks, seen.of_ranks, seen.operations, seen.more_refused) == (2, 2, {"compute": 2}, 0)
    [(name, why)] = seen.refused
    assert name.endswith("job.json")
    assert "rank -1" in why


def test_who_does_not_look_on_is_told_nothing_more():
    calls: list[str] = []
    studio.link(RECORDED, progress=lambda phase, _done, _total: calls.append(phase))
    assert set(calls) == {"reading", "linking"}


# ---------------------------------------------------------------------------------------------------
# Bars


def seen_of(of_ranks: int, ranks: dict[int | None, int]) -> Picture:
    seen = JobSeen()
    seen.begin(of_ranks)
    operations: dict[Work, int] = {"compute": 2}
    for key, (number, sent_bytes) in enumerate(ranks.items()):
        seen.rank(key, RankSeen(number, operations, sent_bytes=sent_bytes))
    picture = seen.picture()
    assert picture is not None
    return picture


def test_nothing_is_known_of_a_job_of_which_nothing_was_read():
    seen = JobSeen()
    seen.begin(8)
    assert seen.picture() is None


def test_ranks_have_the_place_of_their_number_and_leave_room_for_those_to_come():
    picture = seen_of(6, {4: 40, 1: 10})
    assert [(bar.place, bar.first, bar.last, bar.sent_bytes) for bar in picture.bars] == [
        (1, 1, 1, 10),
        (4, 4, 4, 40),
    ]
    assert (picture.of_bars, picture.sent_bytes, picture.span_ns) == (6, 50, -1)


def test_neighbours_share_a_bar_where_ranks_are_many():
    picture = seen_of(1000, {rank: rank for rank in range(500)})
    assert picture.of_bars == 125
    assert len(picture.bars) == 63
    last = picture.bars[-1]
    assert (last.place, last.first, last.last, last.sent_bytes) == (62, 496, 499, 497)


def test_ranks_with_numbers_beyond_the_job_stand_in_order():
    """As of the last node of a job, recorded alone."""
    picture = seen_of(2, {31: 5, 30: 6})
    assert [(bar.place, bar.first, bar.sent_bytes) for bar in picture.bars] == [(0, 30, 6), (1, 31, 5)]


def test_what_is_learnt_again_takes_the_place_of_what_was_known():
    seen = JobSeen()
    seen.begin(1)
    seen.rank(0, RankSeen(0, {"host": 3}))
    seen.rank(0, RankSeen(0, {"host": 2, "collective": 1}, 5, 9, 64))
    picture = seen.picture()
    assert picture == Picture(1, 1, {"collective": 1, "host": 2}, 4, picture.bars if picture else (), 1, 64)
