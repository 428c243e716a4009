"""Flows: collectives and messages that a cost model times share the ports of their members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from studio.analysis.path.words import infer_pipeline_stages
from studio.errors import ConfigError, TraceError
from studio.sim import simulate
from studio.sim.charges import WHOLE, build_group_shape, build_network_ports
from studio.sim.config import Dimension, SystemConfig, Topology
from studio.sim.costs import Charge, CostModel, GroupShape, Ports
from studio.sim.costs.parameters import NAMES
from studio.sim.costs.shapes import Float64, Wiring, compute_rate_between, compute_rate_inside
from studio.sim.deadlock import DeadlockError
from studio.sim.doubts import doubts_of
from studio.sim.extensions import Extensions
from studio.sim.flow_plans import RECEIVES, SENDS, plan_flows
from studio.sim.flow_uses import list_port_uses
from studio.sim.parts import interpret
from studio.sim.plan import make_plan
from studio.sim.presets import preset
from studio.sim.result import SimResult, compute_ledger
from studio.sim.setting_edits import with_settings
from tests.examples import examples
from tests.golden import Record, trace_of_workload
from tests.sim.test_extended import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    REDUCE_SCATTER,
    collective,
    compute,
    intervals,
)

INSIDE, BETWEEN = 100.0, 10.0
LAUNCH = 1000.0
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Plain(CostModel):
    """A model that is easily followed by hand: a launch, then all of a rank's bytes over the port that takes longest.

    Attributes:
        launch: Time before bytes move.
    """

    launch: float = LAUNCH

    def charge(
        self, kind: str, sizes: Float64, shape: GroupShape, ports: Ports, *, corrected: bool = True
    ) -> Charge:
        del corrected
        inside = sizes if shape.per_node > 1 else np.zeros_like(sizes)
        between = sizes / shape.per_node if shape.nodes > 1 else np.zeros_like(sizes)
        if kind == "barrier":
            inside, between = np.zeros((2, len(sizes)))
        time = inside / compute_rate_inside(ports, shape.per_node, self.wiring.peers)
        busy, crossing = inside / ports.inside, np.zeros_like(time)
        if shape.nodes > 1:
            used = compute_rate_between(ports, shape.per_node, self.wiring.nics)
            time = np.maximum(time, between / used)
            crossing = between / ports.between
            between = between * min(1.0, ports.between / used)
        fixed = np.full(len(sizes), self.launch)
        none = np.zeros(len(sizes), np.int64)
        return Charge(
            fixed + time, fixed, inside, between, busy, crossing, none, ("plain",), none > 0, 0.0 * fixed
        )


def cluster(*sizes: int, costs: CostModel | None = None, **given: object) -> SystemConfig:
    rates = (INSIDE, *(BETWEEN for _ in sizes[1:]))
    dims = tuple(Dimension("switch", size, rate) for size, rate in zip(sizes, rates, strict=True))
    table = {"congestion": "aware", "extensions": Extensions(), **given}
    return SystemConfig(Topology(dims), costs=costs or Plain(), **table)


def send(number: int, to: int, size: int, *deps: int, tag: int = 0) -> Record:
    attrs = {"comm_dst": to, "comm_size": size, "comm_tag": tag}
    return {"id": number, "type": "COMM_SEND_NODE", "data_deps": list(deps), "attrs": attrs}


def receive(number: int, of: int, size: int, *deps: int, tag: int = 0) -> Record:
    attrs = {"comm_src": of, "comm_size": size, "comm_tag": tag}
    return {"id": number, "type": "COMM_RECV_NODE", "data_deps": list(deps), "attrs": attrs}


def run(
    ranks: Sequence[list[Record]],
    config: SystemConfig,
    groups: dict[str, list[int]] | None = None,
    *,
    fold: bool = True,
    native: bool = False,
) -> SimResult:
    trace = trace_of_workload({"ranks": list(ranks)}, config.topology.npus, groups)
    return simulate(trace, config, native=native, fold=fold)


def ends(result: SimResult) -> dict[tuple[int, int], tuple[int, int]]:
    """Return start and end by rank and node id."""
    start, end, rank, row = intervals(result)
    trace = result.trace
    return {
        (r, int(trace.graph_of(trace.ranks[r]).id[at])): (s, e)
        for s, e, r, at in zip(start.tolist(), end.tolist(), rank.tolist(), row.tolist(), strict=True)
    }


# ---------------------------------------------------------------------------------------------------
# Alone


@pytest.mark.parametrize("kind", [ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, BARRIER])
@pytest.mark.parametrize("sizes", [(8,), (4, 2), (2, 2, 2)])
def test_alone_a_collective_takes_what_the_cost_model_says(kind: int, sizes: tuple[int, ...]) -> None:
    config = cluster(*sizes, costs=CostModel())
    nodes = [collective(1, kind, 12_345_678)]
    result = run([nodes] * 8, config)
    flows = plan_flows(result.trace, config)
    [charge] = {*flows.total_ns.tolist()}
    assert result.finish_ns.tolist() == [charge] * 8
    name = (
        "all_reduce",
        "",
        "all_gather",
        "",
        "",
        "broadcast",
        "all_to_all",
        "reduce_scatter",
        "",
        "barrier",
    )[kind]
    size = np.array([12_345_678.0])
    alone = config.costs.charge(
        name, size, build_group_shape(range(8), sizes[0]), build_network_ports(config.topology)
    ).total_ns
    assert charge == round(float(alone[0]))


def test_it_begins_when_the_last_member_has_come() -> None:
    late = [[compute(1, rank), collective(2, ALL_REDUCE, MB, 1)] for rank in range(4)]
    result = run(late, cluster(4))
    assert {end for (_, node), (_, end) in ends(result).items() if node == 2} == {3000 + 1000 + 10_000}


def test_one_rank_alone_takes_no_time() -> None:
    """But for the nanosecond that the shortest node takes."""
    ranks = [[collective(1, ALL_REDUCE, MB, pg_name="1")], [compute(1, 1)]]
    assert run(ranks, cluster(2), {"1": [0]}).finish_ns.tolist() == [1, 1000]


# ---------------------------------------------------------------------------------------------------
# Together


def test_those_of_other_ranks_slow_nobody() -> None:
    nodes = [collective(1, ALL_REDUCE, MB, pg_name="1" if rank < 4 else "2") for rank in range(8)]
    result = run([[node] for node in nodes], cluster(8), {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]})
    assert result.finish_ns.tolist() == [11_000] * 8


def test_two_on_the_same_ports_take_as_long_as_their_bytes_take_together() -> None:
    """1 MB takes 10 µs alone. The one of 1 MB ends after 2 × 10, the one of 3 MB after all 4 MB."""
    both = [collective(1, ALL_REDUCE, MB, pg_name="1"), collective(2, ALL_REDUCE, 3 * MB, pg_name="2")]
    result = run([both] * 4, cluster(4), {"1": [0, 1, 2, 3], "2": [3, 2, 1, 0]})
    at = ends(result)
    assert at[0, 1] == (0, 1000 + 20_000)
    assert at[0, 2] == (0, 1000 + 40_000)


def test_a_slow_collective_leaves_no_room_that_its_kind_could_not_reach() -> None:
    """Of a port of 100 bytes a ns 60 are reached: 3 MB take 50 µs at that rate, in one call or in three."""
    values = dict.fromkeys(NAMES, 1e-09) | {f"efficiency {name} inside": 0.6 for name in ("NVLS", "Simple")}
    costs = CostModel("nccl-hopper", values, algorithm="ring", protocol="Simple")
    groups = {str(number): list(range(4)) for number in range(3)}
    # A ring sends twice 3/4 of the buffer.
    one = run([[collective(1, ALL_REDUCE, 2 * MB)]] * 4, cluster(4, costs=costs))
    assert one.makespan_ns == 50_000
    three = [collective(1 + at, ALL_REDUCE, 2 * MB // 3, pg_name=str(at)) for at in range(3)]
    assert run([three] * 4, cluster(4, costs=costs), groups).makespan_ns == pytest.approx(50_000, abs=2)


@pytest.mark.parametrize("name", ["hgx-h100", "hgx-b200", "hgx-a100", "mi300x", "l40s", "dgx-v100"])
@pytest.mark.parametrize("kind", [ALL_REDUCE, ALL_GATHER, ALL_TO_ALL])
@pytest.mark.parametrize("npus", [8, 16])
def test_several_at_once_take_no_less_than_one_of_all_their_bytes(name: str, kind: int, npus: int) -> None:
    """And no more than one after the other."""
    config = preset(name, npus).config
    groups = {str(number): list(range(npus)) for number in range(4)}

    def takes(parts: int) -> int:
        nodes = [collective(1 + at, kind, 2**31 // parts, pg_name=str(at)) for at in range(parts)]
        return run([nodes] * npus, config, groups).makespan_ns

    one, *several = (takes(parts) for parts in (1, 2, 4))
    quarter = run([[collective(1, kind, 2**29)]] * npus, config).makespan_ns
    assert all(0.999 * one <= together <= 1.25 * one for together in several)
    assert several[-1] <= 4 * quarter


def test_one_inside_nodes_passes_beside_one_between_them() -> None:
    """Rank 0 of each of two nodes exchanges what passes NICs alone, while its node does what passes none."""
    config = preset("hgx-h100", 16).config
    groups = {"0": list(range(8)), "1": list(range(8, 16)), "2": [0, 8]}
    inside = [[collective(1, ALL_GATHER, 2**26, pg_name=str(rank // 8))] for rank in range(16)]
    between = [[collective(2, ALL_GATHER, 2**26, pg_name="2")] if rank % 8 == 0 else [] for rank in range(16)]
    both = [one + other for one, other in zip(inside, between, strict=True)]
    alone = run(inside, config, groups).makespan_ns
    across = run([nodes or [compute(1, 1)] for nodes in between], config, groups).makespan_ns
    at = ends(run(both, config, groups))
    assert at[0, 1] == at[15, 1] == (0, alone)
    assert at[0, 2] == at[8, 2] == (0, across)


def test_a_message_leaves_the_part_of_the_port_that_its_channels_do_not_fill() -> None:
    """16 channels of 25 bytes a ns are 400 of the 450 of an H100: of two to different peers each goes on at 450/800 of its pace."""
    config = preset("hgx-h100", 8).config
    sends = [send(1, 1, 2**24), send(2, 2, 2**24)]
    receives = [[receive(1, 0, 2**24)], [receive(1, 0, 2**24)]]
    rest = [[compute(1, 1)]] * 5
    alone = run([sends[:1], receives[0], [compute(1, 1)], *rest], config)
    both = run([sends, *receives, *rest], config).makespan_ns
    fixed = int(plan_flows(alone.trace, config).fixed_ns[0])
    assert both - fixed == pytest.approx((alone.makespan_ns - fixed) * 800 / 450, abs=2)


def mesh(npus: int, *, peers: int = 0) -> SystemConfig:
    """Return a node in which every NPU has a link to each other one, or to so many."""
    return cluster(npus, costs=Plain(wiring=Wiring(peers=peers or npus - 1)))


def together(config: SystemConfig, *groups: list[int], size: int = 2 * MB) -> list[int]:
    """Return when collectives of groups end that all begin at once."""
    ranks: list[list[Record]] = [[] for _ in range(config.topology.npus)]
    for number, members in enumerate(groups, 1):
        for rank in members:
            ranks[rank].append(collective(number, ALL_REDUCE, size, pg_name=str(number)))
    listed = {str(number): members for number, members in enumerate(groups, 1)}
    at = ends(run([nodes or [compute(99, 1)] for nodes in ranks], config, listed))
    return [at[members[0], number][1] for number, members in enumerate(groups, 1)]


@pytest.mark.parametrize(
    ("groups", "micros"),
    [
        # Alone: 2 MB by 3 of 5 links, 60 bytes a ns in all.
        ([[0, 1, 2, 3]], [100 / 3]),
        # The same four twice: the same links at half of the pace each.
        ([[0, 1, 2, 3], [3, 2, 1, 0]], [200 / 3, 200 / 3]),
        # The same two three times: a link of 20.
        ([[0, 1], [0, 1], [1, 0]], [300, 300, 300]),
        # NPU 0 is in all, but no pair is in two of them.
        ([[0, 1], [0, 2], [0, 3, 4, 5]], [100, 100, 100 / 3]),
        # Of the first two groups, which are slowed by each other, the third one notices nothing.
        ([[0, 1, 2], [2, 1, 0], [0, 3, 4, 5]], [100, 100, 100 / 3]),
        # A part of the node beside all of it: half of the pace until all of it (5 of 5 links: 20 µs alone) is done after
        # 40; of the part's 100/3 are 20 done by then.
        ([[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]], [40 + 100 / 3 - 20, 40]),
    ],
)
def test_in_a_node_without_a_switch_groups_share_the_links_of_pairs(
    groups: list[list[int]], micros: list[float]
) -> None:
    expected = [1000 + 1000 * time for time in micros]
    assert together(mesh(6), *groups) == pytest.approx(expected, abs=2)


def test_messages_of_a_pair_share_its_link_and_no_other() -> None:
    """A link of 20 bytes a ns from NPU to NPU, each way: 1 MB takes 50 µs."""
    nodes: list[list[Record]] = [[compute(99, 1)] for _ in range(6)]
    for number, (source, target) in enumerate([(0, 1), (0, 2), (1, 0)]):
        nodes[source].append(send(number, target, MB, tag=number))
        nodes[target].append(receive(10 + number, source, MB, tag=number))
    assert run(nodes, mesh(6)).makespan_ns == 51_000
    nodes[0].append(send(7, 1, MB, tag=7))
    nodes[1].append(receive(17, 0, MB, tag=7))
    at = ends(run(nodes, mesh(6)))
    assert (at[0, 0][1], at[0, 7][1], at[0, 1][1], at[0, 12][1]) == (101_000, 101_000, 51_000, 51_000)


def test_where_links_go_to_some_peers_small_groups_share_them_and_all_share_ports() -> None:
    """Each of 8 NPUs has three links of 100 / 3 bytes a ns, as in a DGX-1: 2 MB of a pair take 60 µs, of the node 20."""
    config = mesh(8, peers=3)
    assert together(config, [0, 1]) == [61_000]
    assert together(config, [0, 1], [0, 1]) == [121_000, 121_000]
    assert together(config, [0, 1], [0, 2]) == [61_000, 61_000]
    # The port is asked for 1 + 1/3 until the node's 20 µs have passed in 80/3; then 60 - 20 are left.
    assert together(config, [0, 1], list(range(8))) == pytest.approx([67_667, 27_667], abs=2)


@pytest.mark.parametrize("name", ["mi300x", "gh200"])
def test_presets_of_nodes_without_a_switch_share_the_links_of_pairs(name: str) -> None:
    """Two at once on the same links take as long as one of twice the bytes, on other links as long as alone."""
    config = preset(name, 4).config
    (once,) = together(config, [0, 1], size=2**30)
    (twice,) = together(config, [0, 1], size=2**31)
    assert together(config, [0, 1], [0, 1], size=2**30) == pytest.approx([twice, twice], rel=0.01)
    assert together(config, [0, 1], [0, 2], [1, 3], size=2**30) == [once] * 3


def test_overlapping_groups_share_where_they_overlap() -> None:
    """Rank 2 is in both; the fixed time of the second one passes while the first one moves."""
    groups = {"1": [0, 1, 2], "2": [2, 3]}
    ranks = [
        [collective(1, ALL_REDUCE, MB, pg_name="1")],
        [collective(1, ALL_REDUCE, MB, pg_name="1")],
        [
            collective(1, ALL_REDUCE, MB, pg_name="1"),
            compute(2, 5),
            collective(3, ALL_REDUCE, MB, 2, pg_name="2"),
        ],
        [collective(3, ALL_REDUCE, MB, pg_name="2")],
    ]
    at = ends(run(ranks, cluster(4), groups))
    # The first moves alone from 1,000 to 6,000; then 5,000 are left, at half of the pace.
    assert at[0, 1] == at[2, 1] == (0, 16_000)
    # The second has half a port from 6,000 on for 10,000: 5,000 are left then, alone.
    assert at[3, 3] == (0, 21_000)


def test_a_message_beside_an_all_reduce_shares_one_direction() -> None:
    """It leaves rank 0 and comes into rank 1; both carry the all-reduce too."""
    ranks = [
        [collective(1, ALL_REDUCE, MB), send(2, 1, MB)],
        [collective(1, ALL_REDUCE, MB), receive(2, 0, MB)],
        [collective(1, ALL_REDUCE, MB)],
        [collective(1, ALL_REDUCE, MB)],
    ]
    at = ends(run(ranks, cluster(4)))
    assert at[3, 1] == at[0, 2] == at[1, 2] == (0, 21_000)
    # Against each other two messages take opposite directions.
    ranks = [[send(1, 1, MB), receive(2, 1, MB)], [send(1, 0, MB), receive(2, 0, MB)]]
    assert run(ranks, cluster(2)).finish_ns.tolist() == [11_000, 11_000]


def test_a_send_waits_for_its_receive_with_the_rendezvous_protocol_only() -> None:
    ranks = [[send(1, 1, MB)], [compute(1, 50), receive(2, 0, MB, 1)]]
    at = ends(run(ranks, cluster(2)))
    assert (at[0, 1], at[1, 2]) == ((0, 11_000), (50_000, 50_000))
    at = ends(run(ranks, cluster(2, rendezvous=True)))
    assert (at[0, 1], at[1, 2]) == ((0, 61_000), (50_000, 61_000))


def test_without_congestion_nothing_waits_for_another() -> None:
    both = [collective(1, ALL_REDUCE, MB, pg_name="1"), collective(2, ALL_REDUCE, MB, pg_name="2")]
    groups = {"1": [0, 1, 2, 3], "2": [3, 2, 1, 0]}
    assert run([both] * 4, cluster(4, congestion="unaware"), groups).makespan_ns == 11_000


# ---------------------------------------------------------------------------------------------------
# Several dimensions


def test_a_group_of_part_of_the_nodes_uses_the_ports_it_crosses() -> None:
    """Ranks 0 and 2 lie on two nodes of 2: all their bytes leave the node, 1 MB at 10 bytes a ns."""
    nodes = [
        [collective(1, ALL_REDUCE, MB, pg_name="1")] if rank in (0, 2) else [compute(1, 1)]
        for rank in range(4)
    ]
    config = cluster(2, 2)
    result = run(nodes, config, {"1": [0, 2]})
    assert result.finish_ns[0] == 1000 + 100_000
    inside, between = result.dimensions
    assert inside.bytes.tolist() == [0, 0, 0, 0]
    assert between.bytes.tolist() == [MB, 0, MB, 0]


def test_twice_the_bandwidth_between_nodes_halves_what_passes_there() -> None:
    """4 ranks on 2 nodes: each sends half of 8 MB to the other node, 400 µs at 10 bytes a ns; the node takes 80."""
    nodes = [[collective(1, ALL_REDUCE, 8 * MB)]] * 4
    slow = cluster(2, 2)
    dims = slow.topology.dims
    fast = replace(slow, topology=Topology((dims[0], replace(dims[1], bytes_per_ns=2 * BETWEEN))))
    assert run(nodes, slow).makespan_ns == 1000 + 400_000
    assert run(nodes, fast).makespan_ns == 1000 + 200_000


def test_a_flow_inside_the_node_leaves_room_to_one_that_is_slow_outside() -> None:
    """The one across nodes needs the node's port for 8 / 40 of its time: together they ask for more than all of it."""
    groups = {"1": [0, 1], "2": [2, 3]}
    nodes = [
        [
            collective(1, ALL_REDUCE, 8 * MB),
            collective(2, ALL_REDUCE, 8 * MB, pg_name="1" if rank < 2 else "2"),
        ]
        for rank in range(4)
    ]
    at = ends(run(nodes, cluster(2, 2), groups))
    # Load 1.2 while both move: 80 µs take 96; the other one has done 80 of its 400 by then.
    assert at[0, 2] == (0, 1000 + 96_000)
    assert at[0, 1] == (0, 1000 + 96_000 + 320_000)


def test_npus_that_share_nics_share_the_ports_of_their_node() -> None:
    """One NIC of 20 bytes a ns for two NPUs: a message alone has all of it, two have half, three a third."""
    config = cluster(2, 2, costs=Plain(wiring=Wiring(1)))
    ranks: list[list[Record]] = [[], [], [], []]
    for number, (source, target, micros) in enumerate([(0, 2, 50), (1, 3, 100), (0, 3, 150)]):
        ranks[source].append(send(number, target, MB, tag=number))
        ranks[target].append(receive(10 + number, source, MB, tag=number))
        some = [nodes or [compute(1, 1)] for nodes in ranks]
        assert run(some, config).makespan_ns == 1000 + 1000 * micros
    result = run(ranks, config)
    assert result.dimensions[1].bytes.tolist() == [2 * MB, MB, 0, 0]
    # Together they fill the NIC of the first node, and none can be faster than it.
    assert result.dimensions[1].offered_load(150_000) == pytest.approx(0.5)


# ---------------------------------------------------------------------------------------------------
# In turn


OPEN = [
    compute(1, 30),
    collective(2, ALL_REDUCE, MB, 1),
    collective(3, ALL_GATHER, MB),
    collective(4, ALL_GATHER, 2 * MB),
]
"""Collectives of a group of which the second and third are ready at once, and the first after 30 µs."""


def test_the_first_that_is_ready_goes_first_where_nothing_orders_the_collectives_of_a_group() -> None:
    """The first by number is ready while the third passes, and begins when that has ended; none waits for compute."""
    ranks = [OPEN, [compute(1, 15), *OPEN[1:]]]
    times = ends(run(ranks, cluster(2)))
    for rank in (0, 1):
        assert [times[rank, node] for node in (3, 4, 2)] == [(0, 11_000), (11_000, 32_000), (32_000, 43_000)]


def test_collectives_in_turn_wait_for_members_and_their_events_are_in_order() -> None:
    """Rank 0 comes to the second at once and rank 1 after 15 µs; meanwhile the third passes. The first waits for rank 1."""
    late = [compute(0, 15), *OPEN[:2], {**OPEN[2], "data_deps": [0]}, OPEN[3]]
    result = run([OPEN, late], cluster(2))
    times = ends(result)
    assert [times[0, node] for node in (4, 3, 2)] == [(0, 21_000), (21_000, 32_000), (32_000, 56_000)]
    assert [times[1, node] for node in (4, 3, 2)] == [(0, 21_000), (21_000, 32_000), (45_000, 56_000)]
    assert (np.diff(result.event_ns) >= 0).all()
    of_rank = result.event_rank == 1
    events = zip(result.event_ids()[of_rank].tolist(), result.event_end[of_rank].tolist(), strict=True)
    # Of a group one collective is under way at a time.
    assert [event for event in events if event[0] > 1] == [
        (node, end) for node in (4, 3, 2) for end in (False, True)
    ]


@pytest.mark.parametrize("ordered", ["numbers", "times", "dependencies"])
def test_an_order_that_is_known_is_kept(ordered: str) -> None:
    nodes: list[Record] = []
    for node in OPEN:
        more = {"data_deps": [node["id"] - 1]} if ordered == "dependencies" and node["id"] > 2 else {}
        number = {"comm_seq": node["id"]} if ordered == "numbers" and node["id"] > 1 else {}
        nodes.append({**node, **more, "attrs": {**node.get("attrs", {}), **number}})
    trace = trace_of_workload({"ranks": [nodes, nodes]}, 2, None)
    if ordered == "times":
        graphs = (replace(graph, start_ns=1000 * np.arange(len(graph))) for graph in trace.graphs)
        trace = replace(trace, graphs=tuple(graphs))
    times = ends(simulate(trace, cluster(2), native=False))
    assert [times[1, node] for node in (2, 3, 4)] == [(30_000, 41_000), (41_000, 52_000), (52_000, 73_000)]


def test_a_deadlock_in_turn_names_the_collective_that_lacks_a_member() -> None:
    """Rank 1 never comes to the first, since that waits for a message; the others of the group went by."""
    stuck = [receive(9, 0, MB), {**OPEN[1], "data_deps": [9]}, *OPEN[2:]]
    with pytest.raises(DeadlockError, match=r"collective 0 of .*for rank 1") as caught:
        run([OPEN, stuck], cluster(2))
    assert caught.value.stuck_ranks == 2


# ---------------------------------------------------------------------------------------------------
# What cannot be carried out


def test_whoever_lacks_a_member_waits_for_ever() -> None:
    ranks = [[collective(1, ALL_REDUCE, MB)]] * 3 + [[compute(1, 1)]]
    with pytest.raises(DeadlockError, match=r"3 of 4 ranks never finish.*for rank 3") as caught:
        run(ranks, cluster(4))
    assert caught.value.stuck_ranks == 3


def test_different_collectives_do_not_meet() -> None:
    ranks = [[collective(1, ALL_REDUCE, MB)]] * 3 + [[collective(1, ALL_REDUCE, 2 * MB)]]
    with pytest.raises(DeadlockError, match="disagreement"):
        run(ranks, cluster(4))


def test_a_receive_without_its_send_waits_for_ever() -> None:
    with pytest.raises(DeadlockError, match="never sends"):
        run([[compute(1, 1)], [receive(1, 0, MB)]], cluster(2))


def test_uneven_sizes_take_as_long_as_the_largest() -> None:
    ranks = [[collective(1, ALL_TO_ALL, size)] for size in (MB, 2 * MB, 0, MB)]
    assert run(ranks, cluster(4)).finish_ns.tolist() == [21_000] * 4


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (collective(1, ALL_REDUCE, MB, pg_name="9"), "comm group '9'; groups known: 1"),
        (send(1, 7, MB), "comm_dst is 7; allowed: a rank from 0 to 1"),
        (send(1, 0, MB), "sends a message to itself"),
        ({"id": 1, "type": "COMM_COLL_NODE", "attrs": {"comm_type": 0}}, "'comm_size' is missing"),
        (collective(1, 77, MB), "comm_type 77 .* cannot be simulated; allowed: ALL_REDUCE"),
    ],
)
def test_what_cannot_be_simulated_is_named(node: Record, message: str) -> None:
    with pytest.raises((TraceError, ConfigError), match=message):
        run([[node], [compute(1, 1)]], cluster(2), {"1": [0, 1]})


# ---------------------------------------------------------------------------------------------------
# Folding

SIZES = st.sampled_from([(4,), (2, 2), (4, 2), (2, 4), (2, 2, 2), (3, 2)])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["world", "row", "twin", "column", "shift", "ring", "line", "compute", "uneven"]),
        st.integers(0, 3),
        st.integers(1, 6),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=8,
)


def around(
    npus: int, width: int, rank: int, at: int, how: tuple[str, int, int], deps: list[int]
) -> list[Record]:
    """Return a rank's nodes of pieces that go round its row or column, or down a line of it: each waits for the one before.

    In a ring a rank passes on what it has while it receives the next, as in ring attention; in a line the first one only sends
    and the last one only receives, as stages of a pipeline do. Pieces have one tag, and every other one may go the other way.
    """
    what, amount, differs = how
    size = amount * 100_000
    members = list(range(rank - rank % width, rank - rank % width + width))
    if differs % 2:
        members = list(range(rank % width, npus, width))
    nodes: list[Record] = []
    place, before = members.index(rank), list(deps)
    for piece in range(1 + amount % 3):
        step = -1 if differs > 1 and piece % 2 else 1
        ahead, behind = place + step, place - step
        now: list[int] = []
        for make, peer in ((send, ahead), (receive, behind)):
            if len(members) > 1 and (what == "ring" or 0 <= peer < len(members)):
                now.append(at + len(nodes))
                nodes.append(make(now[-1], members[peer % len(members)], size, *before, tag=at))
        before = now or before
    return nodes or [compute(at, amount, *deps)]


def job(
    sizes: tuple[int, ...], steps: Sequence[tuple[str, int, int, int]]
) -> tuple[list[list[Record]], dict[str, list[int]]]:
    """Return the nodes of ranks in rows of `sizes[0]`: collectives in rows, columns and all together, and messages.

    Twins are groups of the same ranks as rows.

    A step is what it does, the earlier node that it waits for, how much, and how the kinds of ranks differ.
    """
    npus, width = int(np.prod(sizes)), sizes[0]
    rows = {f"r{start}": list(range(start, start + width)) for start in range(0, npus, width)}
    twins = {f"t{name[1:]}": members for name, members in rows.items()}
    columns = {f"c{at}": list(range(at, npus, width)) for at in range(width)}
    ranks: list[list[Record]] = []
    for rank in range(npus):
        nodes: list[Record] = []
        for number, (what, before, amount, differs) in enumerate(steps):
            deps = [10 * (number - before)] if 0 < before <= number else []
            size, at = amount * 300_000, 10 * number
            if what == "world":
                nodes.append(collective(at, ALL_REDUCE, size, *deps))
            elif what in ("row", "twin", "column"):
                group = f"{what[0]}{rank % width if what == 'column' else rank - rank % width}"
                nodes.append(collective(at, ALL_GATHER, size, *deps, pg_name=group))
            elif what == "shift":
                far = 1 + differs % (npus - 1)
                nodes.append(send(at, (rank + far) % npus, size, *deps, tag=number))
                nodes.append(receive(at + 1, (rank - far) % npus, size, *deps, tag=number))
            elif what in ("ring", "line"):
                nodes += around(npus, width, rank, at, (what, amount, differs), deps)
            elif what == "uneven":
                nodes.append(collective(at, ALL_TO_ALL, size * (1 + rank % 2 * differs), *deps))
            else:
                nodes.append(compute(at, amount * (1 + differs * (rank % width % 2)), *deps))
        ranks.append(nodes)
    return ranks, rows | twins | columns


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SIZES, STEPS, st.sampled_from([0, 1]), st.booleans())
def test_folded_jobs_answer_as_unfolded_ones(
    sizes: tuple[int, ...], steps: list[tuple[str, int, int, int]], nics: int, rendezvous: bool
) -> None:
    ranks, groups = job(sizes, steps)
    config = cluster(*sizes, costs=Plain(wiring=Wiring(nics)), rendezvous=rendezvous)
    folded, plain = (run(ranks, config, groups, fold=fold) for fold in (True, False))
    assert ends(folded) == ends(plain)
    assert folded.finish_ns.tolist() == plain.finish_ns.tolist()
    for mine, other in zip(folded.dimensions, plain.dimensions, strict=True):
        assert mine.bytes.tolist() == other.bytes.tolist()
        assert mine.messages.tolist() == other.messages.tolist()
        assert mine.offered_load(folded.makespan_ns) <= 1 + 1e-6
    check_ports(plain, by_node=bool(nics))
    assert [doubt.message for doubt in doubts_of(folded)] == [doubt.message for doubt in doubts_of(plain)]
    # What is told afterwards is told of the ranks that were simulated, for all that they stand for.
    accounts = [compute_ledger(result) for result in (folded, plain)]
    assert accounts[0].ns().tolist() == accounts[1].ns().tolist()
    stages = [
        infer_pipeline_stages(result.node_times(), account.arrivals, len(ranks))
        for result, account in zip((folded, plain), accounts, strict=True)
    ]
    assert stages[0].tolist() == stages[1].tolist()


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SIZES, STEPS, st.integers(1, 7), st.booleans())
def test_folded_jobs_in_nodes_without_a_switch_answer_as_unfolded_ones(
    sizes: tuple[int, ...], steps: list[tuple[str, int, int, int]], peers: int, one_node: bool
) -> None:
    """Rows of the job are nodes, or all ranks are in one."""
    ranks, groups = job(sizes, steps)
    config = cluster(*((len(ranks),) if one_node else sizes), costs=Plain(wiring=Wiring(peers=peers)))
    folded, plain = (run(ranks, config, groups, fold=fold) for fold in (True, False))
    assert ends(folded) == ends(plain)
    check_ports(plain, by_node=False)
    check_links(plain, peers)


def check_links(result: SimResult, peers: int) -> None:
    """Whatever moves between two moments passes the links of each pair in that time, as far as these are known."""
    found = result.communication()
    assert found is not None
    flows, times = found.flows, result.node_times()
    moving, over = np.full(len(flows), 1 << 60), np.zeros(len(flows), np.int64)
    np.minimum.at(moving, found.flow, times.start_ns[found.entry] + found.waiting_ns + found.latency_ns)
    np.maximum.at(over, found.flow, np.where(found.transfer_ns > 0, times.end_ns[found.entry], 0))
    per_node = result.config.topology.dims[0].size
    needs: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for flow in range(len(flows)):
        mine = flows.flow == flow
        of = {
            role: {*flows.place[mine & (flows.role != other)].tolist()}
            for role, other in ((SENDS, RECEIVES), (RECEIVES, SENDS))
        }
        pairs = [
            (one, other)
            for one in of[SENDS]
            for other in of[RECEIVES]
            if one != other and one // per_node == other // per_node
        ]
        most = max((sum(one == source for one, _ in pairs) for source in of[SENDS]), default=0)
        if over[flow] and 0 < most <= peers:
            for pair in pairs:
                needs.setdefault(pair, []).append((flow, flows.moved[flow, 0] / most / (INSIDE / peers)))
    for passing in needs.values():
        for start in {int(moving[flow]) for flow, _ in passing}:
            for end in {int(over[flow]) for flow, _ in passing}:
                inside = [took for flow, took in passing if moving[flow] >= start and over[flow] <= end]
                assert sum(inside) <= max(end - start, 0) + 1e-2


def test_equal_ranks_whose_links_others_share_differently_are_told_apart() -> None:
    """Each of five NPUs is in two groups of two: three groups go round a triangle, and two have the same members."""
    pairs = [[0, 1], [1, 2], [0, 2], [3, 4], [3, 4]]
    groups = {str(number): members for number, members in enumerate(pairs)}
    ranks: list[list[Record]] = [[] for _ in range(5)]
    for rank, nodes in enumerate(ranks):
        mine = [name for name, members in groups.items() if rank in members]
        nodes += [collective(at, ALL_REDUCE, MB, pg_name=name) for at, name in enumerate(mine)]
    config = mesh(5)
    for fold in (True, False):
        result = run(ranks, config, groups, fold=fold)
        # A link of 25 bytes a ns: 40 µs, or twice as long for the pair with two groups.
        assert result.finish_ns.tolist() == [41_000] * 3 + [81_000] * 2
    assert run(ranks, config, groups).classes > 1


def check_ports(result: SimResult, *, by_node: bool) -> None:
    """Whatever moves between two moments passes each port in that time, and no flow is faster than alone."""
    found = result.communication()
    assert found is not None
    flows, config = found.flows, result.config
    times = result.node_times()
    moving, over = np.full(len(flows), 1 << 60), np.zeros(len(flows), np.int64)
    np.minimum.at(moving, found.flow, times.start_ns[found.entry] + found.waiting_ns + found.latency_ns)
    # A receive that came after the end of its message says nothing of when that was.
    np.maximum.at(over, found.flow, np.where(found.transfer_ns > 0, times.end_ns[found.entry], 0))
    work = flows.total_ns - flows.fixed_ns
    known = (over > 0) & (work > 0)
    assert (over - moving >= work)[known].all()
    per_node = config.topology.dims[0].size
    uses = list_port_uses(flows, config.topology.npus, per_node, by_node=by_node)
    for port in np.unique(uses.port).tolist():
        mine = np.flatnonzero((uses.port == port) & known[uses.flow])
        at, needs = uses.flow[mine], uses.amount[mine] * work[uses.flow[mine]] / WHOLE
        for start in moving[at].tolist():
            for end in over[at].tolist():
                inside = (moving[at] >= start) & (over[at] <= end)
                assert needs[inside].sum() <= max(end - start, 0) + 1e-2


def test_ranks_that_do_the_same_are_simulated_once() -> None:
    """Which two of the four in a row send out of their node, and which two compute for longer, differs."""
    steps = [
        ("row", 0, 3, 0),
        ("column", 0, 2, 0),
        ("shift", 1, 1, 1),
        ("compute", 1, 4, 1),
        ("world", 0, 5, 0),
    ]
    ranks, groups = job((4, 4), steps)
    result = run(ranks, cluster(4, 4), groups)
    assert (result.unfolded, result.classes) == ("", 4)


def test_messages_of_a_ring_are_planned_once_whatever_the_number_of_ranks() -> None:
    """Ranks fold before their messages are expanded: of a ring in each node there are those that one rank sends and receives."""
    for nodes in (4, 16):
        ranks, groups = job((4, nodes), [("ring", 0, 2, 0)])
        trace = trace_of_workload({"ranks": ranks}, 4 * nodes, groups)
        plan = make_plan(trace, cluster(4, nodes), folded=True)
        assert plan.folding is not None
        assert plan.flows is not None
        assert (plan.folding.representatives.tolist(), len(plan.flows)) == ([0], 6)
        assert len(plan_flows(trace, cluster(4, nodes))) == 3 * 4 * nodes


def test_the_compiled_engine_answers_alike() -> None:
    steps = [
        ("row", 0, 3, 0),
        ("column", 0, 2, 0),
        ("shift", 1, 1, 1),
        ("uneven", 1, 4, 1),
        ("world", 0, 5, 0),
    ]
    ranks, groups = job((4, 4), steps)
    for fold in (True, False):
        results = [run(ranks, cluster(4, 4), groups, fold=fold, native=native) for native in (False, True)]
        assert ends(results[0]) == ends(results[1])


# ---------------------------------------------------------------------------------------------------
# What the time went to


def test_the_time_of_a_collective_is_told_apart() -> None:
    """Rank 0 waits 5 µs for rank 1; then both launch, and 10 µs of bytes take 20 beside the other one's."""
    both = [collective(2, ALL_REDUCE, MB, 1, pg_name="1"), collective(3, ALL_REDUCE, MB, 1, pg_name="2")]
    groups = {"1": [0, 1], "2": [1, 0]}
    result = run([[compute(1, 1), *both], [compute(1, 6), *both]], cluster(2), groups)
    found = result.communication()
    assert found is not None
    times = result.node_times()
    ns = times.end_ns[found.entry] - times.start_ns[found.entry]
    parts = (found.waiting_ns, found.latency_ns, found.queueing_ns, found.transfer_ns)
    assert (sum(parts) == ns).all()
    by_rank = {*zip(found.entry.tolist(), *(part.tolist() for part in parts), strict=True)}
    assert by_rank == {
        (1, 5000, 1000, 10_000, 10_000),
        (2, 5000, 1000, 10_000, 10_000),
        (4, 0, 1000, 10_000, 10_000),
        (5, 0, 1000, 10_000, 10_000),
    }


def test_a_late_receive_has_what_is_left_of_its_message() -> None:
    ranks = [[send(1, 1, MB)], [compute(1, 3), receive(2, 0, MB, 1)]]
    found = run(ranks, cluster(2)).communication()
    assert found is not None
    parts = (found.waiting_ns, found.latency_ns, found.queueing_ns, found.transfer_ns)
    assert {*zip(*(part.tolist() for part in parts), strict=True)} == {(0, 1000, 0, 10_000), (0, 0, 0, 8000)}


def test_twice_the_bandwidth_between_nodes_changes_the_answer_of_a_preset_as_by_hand() -> None:
    """A ring over 8 nodes of 8, of one NPU each: 2 × 7/8 of 4 GiB pass the port between nodes, at 50 and 100 GB/s.

    The rest of the time, launch and hops, is the same; the ring's share of the rate and the filling of the pipe are the
    cost model's.
    """
    parts = preset("hgx-h100-64").under("full")
    group, size = list(range(0, 64, 8)), 1 << 32
    nodes = [
        [collective(1, ALL_REDUCE, size, pg_name="1")] if rank in group else [compute(1, 1)]
        for rank in range(64)
    ]

    def answer(rate: int) -> tuple[int, SystemConfig]:
        given = [
            "roofline-enabled=0",
            f"bandwidth=[450,{rate}]",
            "costs.algorithm=ring",
            "costs.protocol=Simple",
        ]
        config = interpret(with_settings(parts, given)).config
        return run(nodes, config, {"1": group}).makespan_ns, config

    (slow, config), (fast, _) = answer(50), answer(100)
    assert config.costs is not None
    reached, ramp = (config.costs.value(f"{name} Simple between") for name in ("efficiency", "ramp"))
    port_ns = 2 * 7 / 8 * size / 50
    filling = ramp * np.sqrt(2 * 7)  # Each of the steps fills the pipe with its part.
    by_hand = port_ns / 2 / reached + filling * (np.sqrt(port_ns * 1000) - np.sqrt(port_ns / 2 * 1000))
    assert slow - fast == pytest.approx(by_hand, rel=0.01)
    assert slow > port_ns
    assert fast > port_ns / 2


def test_ties_as_the_reference_has_them_change_nothing_of_single_flows() -> None:
    nodes = [collective(1, ALL_REDUCE, MB), compute(2, 3, 1), collective(3, ALL_GATHER, MB, 2)]
    config = cluster(4, extensions=Extensions(tie_order="reference"))
    result = run([nodes] * 4, config)
    assert result.finish_ns.tolist() == [11_000 + 3000 + 11_000] * 4
    assert "numbers of ranks" in result.unfolded
