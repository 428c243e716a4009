"""Ranks that fit no mesh or contradict each other: an error that names ranks, groups and numbers, never a job that hangs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.completion import complete
from studio.doctor import examine
from studio.errors import StudioError
from studio.trace import Trace
from tests.completion.test_complete import finish_ns
from tests.examples import examples
from tests.handmade import collective, node, trace_of

GROUPS = {"tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]}


def rank(tp: str, dp: str, *, kind: str = "ALL_REDUCE", size: int = 64, more: int = 0) -> list[object]:
    nodes = [
        node(1, "COMP", micros=3),
        collective(2, kind, size, 1, group=tp),
        collective(3, "ALL_REDUCE", 32, 2, group=dp),
    ]
    return [*nodes, *(collective(4 + at, "ALL_REDUCE", 8, 3 + at, group=dp) for at in range(more))]


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({}, {"size": 128}, "'tp0' of 2 ranks would wait for ever: rank 1 has all-reduce of 128 bytes as collective 0 of the group, where rank 0 has all-reduce of 64 bytes"),
        ({}, {"kind": "ALL_GATHER"}, "rank 1 has all-gather of 64 bytes as collective 0"),
        ({}, {"more": 2}, "its members issue 1 to 3"),
    ],
)  # fmt: skip
def test_known_ranks_that_contradict_each_other_are_named(first, second, says: str):
    known = trace_of({0: rank("tp0", "dp0", **first), 1: rank("tp0", "dp1", **second)}, groups=GROUPS)
    if "more" in second:
        known = trace_of({0: rank("tp0", "dp0"), 2: rank("tp1", "dp0", more=2)}, groups=GROUPS)
    with pytest.raises(StudioError) as caught:
        complete(known)
    assert says in caught.value.message
    assert caught.value.hint


def test_groups_of_ranks_that_the_layout_has_not_are_named():
    known = trace_of({0: rank("tp0", "dp0")}, groups={**GROUPS, "spare": [0, 9]})
    with pytest.raises(
        StudioError, match="comm group 'spare' has a rank 9; the layout tp=2,dp=2 has 4 ranks"
    ):
        complete(known, layout="tp=2,dp=2", ranks=4)


def test_collectives_of_one_rank_end():
    alone = trace_of(
        [[collective(1, "ALL_REDUCE", 64, group=f"own{number}")] for number in range(2)],
        groups={"own0": [0], "own1": [1]},
    )
    assert finish_ns(alone) < 1000


def test_uneven_all_to_alls_are_no_contradiction():
    known = trace_of(
        {0: rank("tp0", "dp0", kind="ALL_TO_ALL"), 1: rank("tp0", "dp1", kind="ALL_TO_ALL", size=128)},
        groups=GROUPS,
    )
    made = complete(known)
    assert len(made.ranks) == 4
    assert finish_ns(made) > 0


@settings(max_examples=examples(15), deadline=None)
@given(
    groups=st.lists(st.sampled_from(["tp0", "dp0", "w", "x"]), min_size=1, max_size=3),
    members=st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4), min_size=4, max_size=4),
    peers=st.lists(st.integers(0, 7), max_size=2),
    layout=st.sampled_from([None, "tp=2,dp=2", "dp=4", "tp=2,pp=2", "dp=2,pp=2,tp=2"]),
    ranks=st.sampled_from([None, 4, 8]),
)
def test_what_is_completed_ends_and_what_is_not_says_why(groups, members, peers, layout, ranks):
    nodes = [
        *(
            node(1 + at, "COMM_SEND", comm_dst=peer, comm_size=8, comm_tag=at)
            for at, peer in enumerate(peers)
        ),
        *(collective(10 + at, "ALL_REDUCE", 64, group=name) for at, name in enumerate(groups)),
    ]
    listed = {name: sorted({0, *some}) for name, some in zip(["tp0", "dp0", "w"], members, strict=False)}
    known: Trace = trace_of([nodes], groups=listed)
    known = replace(known, groups=tuple(group for group in known.groups if group.name in listed))
    try:
        made = complete(known, layout=layout, ranks=ranks, first=True)
    except StudioError as error:
        said = error.message
    else:
        said = f"{len(made.ranks)} ranks"
        assert not [finding for finding in examine(made) if finding.level == "error"]
        assert finish_ns(made) >= 0
    assert said
