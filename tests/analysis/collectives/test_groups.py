"""Who communicates how much."""

from __future__ import annotations

from studio.analysis.collectives.groups import (
    collect_comm_nodes,
    find_group_name,
    select_shared_use,
    sum_group_use,
)
from studio.trace import Trace
from tests.analysis.jobs import five
from tests.handmade import collective, trace_of


def test_communication_nodes_with_what_they_carry():
    """Types, collectives, bytes and the slot of the group, -1 where there is none."""
    found = collect_comm_nodes(five().graphs[0])
    assert found.rows.tolist() == [1, 2, 3]
    assert found.type.tolist() == [7, 7, 5]
    assert found.collective.tolist() == [0, 2, -1]
    assert found.bytes.tolist() == [4096, 512, 100]
    assert found.group_slot.tolist() == [0, -1, -1]


def test_each_rank_adds_up_in_its_own_group():
    """Ranks that share a graph name their own groups; members that send nothing have a cell of 0."""
    use = sum_group_use(five())
    cells = {
        (use.groups[group], use.ranks[rank]): (count, size)
        for group, rank, count, size in zip(
            use.group.tolist(), use.rank.tolist(), use.count.tolist(), use.bytes.tolist(), strict=True
        )
    }
    assert cells == {
        ("tp0", 0): (1, 4096),
        ("tp1", 4): (1, 4096),
        ("tp1", 7): (0, 0),
        ("", 0): (1, 512),
        ("", 4): (1, 512),
        ("", 7): (1, 4000),
    }


def test_the_group_of_a_node_is_its_ranks():
    trace = five()
    zero, four, seven = trace.ranks
    assert [find_group_name(trace, rank, 1) for rank in (zero, four)] == ["tp0", "tp1"]
    assert find_group_name(trace, zero, 2) is None
    assert find_group_name(trace, zero, 0) is None
    assert find_group_name(trace, seven, 0) is None


def test_a_trace_without_communication_uses_no_group():
    use = sum_group_use(Trace((), ()))
    assert (use.groups, use.ranks, len(use.count)) == ((), (), 0)


def test_groups_of_one_rank_are_left_out_where_others_have_several():
    nodes = [collective(1, "ALL_REDUCE", 8, group="all"), collective(2, "ALL_REDUCE", 4, group="mine")]
    groups = {"alone": [1], "all": [0, 1], "mine": [0]}
    use, alone = select_shared_use(sum_group_use(trace_of([nodes, nodes[:1]], groups)))
    assert (use.groups, use.rank.tolist(), use.bytes.tolist(), alone) == (("all",), [0, 1], [8, 8], 2)
    use, alone = select_shared_use(sum_group_use(trace_of([nodes], {"all": [0], "mine": [0]})))
    assert (use.groups, use.bytes.tolist(), alone) == (("all", "mine"), [8, 4], 0)
