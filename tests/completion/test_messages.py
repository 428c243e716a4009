"""What messages tell about the mesh: a ring goes round, a pipeline has ends."""

from __future__ import annotations

import pytest

from studio.completion.messages import Exchange, Told, find_message_clues


def exchanges(*ends: tuple[int, int, int], group: str = "", size: int = 8) -> list[Exchange]:
    """Messages of some ranks, each with the ranks that it sends to and receives from."""
    return [
        Exchange(rank, peer, is_sent, group, 3, 3 * size)
        for rank, target, source in ends
        for is_sent, peer in ((True, target), (False, source))
    ]


@pytest.mark.parametrize(
    ("known", "spans", "name"),
    [
        # The one rank that is known sends to the next and receives from the last.
        (exchanges((0, 1, 3)), ((1, 4),), "cp"),
        (exchanges((0, 2, 6), (2, 4, 0), (4, 6, 2), (6, 0, 4)), ((2, 4),), "cp"),
        # To and fro: the first stage of a pipeline, or a ring of two, which looks the same.
        (exchanges((0, 1, 1)), ((1, 0),), "pp"),
        # A stage in the middle that only passes on.
        (exchanges((1, 2, 0)), ((1, 0),), "pp"),
        # The last stage sends back less than it receives: tokens.
        ([*exchanges((0, 1, 3))[:1], *exchanges((0, 1, 3), size=1)[1:]], ((1, 0),), "pp"),
    ],
)
def test_messages_that_go_round_are_a_ring_and_others_a_pipeline(known, spans, name):
    [clue] = find_message_clues(known, {})
    assert (clue.spans, clue.name) == (spans, name)


def test_a_group_that_says_its_dimension_is_believed_and_the_rest_is_the_pipeline():
    told = {"cp0": Told("cp", "named 'cp0'", "group cp0 of ranks 0, 1", ((1, 2),))}
    clues = list(find_message_clues([*exchanges((0, 1, 1), group="cp0"), *exchanges((0, 4, 4))], told))
    assert [(clue.name, clue.spans) for clue in clues] == [("cp", ((1, 2),)), ("pp", ((4, 0),))]
