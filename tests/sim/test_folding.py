"""One rank for many: the answers are those of the simulation rank by rank, and what is not folded is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.errors import StudioError, TraceError
from studio.sim import simulate
from studio.sim.config import Algorithm, Dimension, RemoteMemory, SystemConfig, Topology
from studio.sim.extensions import Extensions
from studio.sim.result import SimResult, compute_exposed_ns, compute_ledger, compute_statistics
from studio.trace import Trace
from tests.examples import examples
from tests.golden import trace_of_workload
from tests.handmade import number_throughout
from tests.kernels import compiled
from tests.sim.test_extended import intervals

Nodes = list[dict[str, Any]]
RING, DIRECT, HALVING = Algorithm("ring"), Algorithm("direct"), Algorithm("halving_doubling")


def system(*dims: Dimension, algorithm: Algorithm = RING, **given_settings: Any) -> SystemConfig:
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    algorithms = {kind: (algorithm,) * len(dims) for kind in kinds}
    return SystemConfig(Topology(dims), algorithms=algorithms, **given_settings)


def ring(size: int, **given_settings: Any) -> SystemConfig:
    return system(Dimension("ring", size, 50.0, 500.0), **given_settings)


def comp(number: int, micros: int, *after: int) -> dict[str, Any]:
    return {"id": number, "type": "COMP_NODE", "data_deps": list(after), "duration_micros": micros}


def coll(number: int, size: int, *after: int, kind: int = 0, group: str | None = None) -> dict[str, Any]:
    attrs: dict[str, Any] = {"comm_type": kind, "comm_size": size}
    if group is not None:
        attrs["pg_name"] = group
    return {"id": number, "type": "COMM_COLL_NODE", "data_deps": list(after), "attrs": attrs}


def message(number: int, way: str, peer: int, tag: int, *after: int) -> dict[str, Any]:
    key = "comm_dst" if way == "SEND" else "comm_src"
    attrs = {key: peer, "comm_size": 4096, "comm_tag": tag}
    return {"id": number, "type": f"COMM_{way}_NODE", "data_deps": list(after), "attrs": attrs}


def both(trace: Trace, config: SystemConfig) -> tuple[SimResult, SimResult]:
    """Simulate with one rank for many and rank by rank, and compare all that a result has."""
    folded = simulate(trace, config, native=compiled())
    full = simulate(trace, config, native=compiled(), fold=False)
    assert_equal(folded, full)
    return folded, full


def assert_equal(folded: SimResult, full: SimResult) -> None:
    assert folded.finish_ns.tolist() == full.finish_ns.tolist()
    for rank in range(len(full.finish_ns)):
        for ours, theirs in zip(folded.events_of(rank), full.events_of(rank), strict=True):
            assert ours.tolist() == theirs.tolist(), rank
    for key in ("bytes", "messages", "busy_ns", "peak_queue"):
        assert getattr(folded.links, key).tolist() == getattr(full.links, key).tolist(), key
    for ours, theirs in zip(folded.dimensions, full.dimensions, strict=True):
        assert ours.bytes.tolist() == theirs.bytes.tolist()
        assert ours.messages.tolist() == theirs.messages.tolist()
    assert compute_statistics(folded) == compute_statistics(full)
    assert compute_exposed_ns(folded).tolist() == compute_exposed_ns(full).tolist()
    for ours, theirs in zip(intervals(folded), intervals(full), strict=True):
        assert ours.tolist() == theirs.tolist()
    assert np.array_equal(compute_ledger(folded).ns(), compute_ledger(full).ns())


def test_equal_ranks_are_one_class() -> None:
    trace = trace_of_workload({"all_ranks": [comp(0, 3), coll(1, 1 << 16, 0), comp(2, 1, 1)]}, 16)
    folded, full = both(trace, ring(16, splits=4))
    assert (folded.classes, folded.unfolded) == (1, "")
    assert folded.representative.tolist() == [0] * 16
    assert full.classes == 16
    assert full.unfolded == "folding was not asked for"
    assert 16 * folded.callbacks == full.callbacks


def test_equal_ranks_are_one_class_whatever_their_nodes_are_called_by() -> None:
    """Ids that run on from rank to rank tell nothing apart; events and errors name each rank's own."""
    job = [comp(0, 3), coll(1, 1 << 16, 0), comp(2, 1, 1)]
    trace = number_throughout(trace_of_workload({"all_ranks": job}, 16))
    folded, full = both(trace, ring(16, splits=4))
    assert (folded.classes, full.classes) == (1, 16)
    ids = full.event_ids()
    assert sorted(ids[full.event_rank == 3].tolist()) == [10, 10, 11, 11, 12, 12]
    assert sorted(folded.event_ids().tolist()) == [1, 1, 2, 2, 3, 3]

    jobs = [
        [message(0, "SEND", (rank + 1) % 4, 7), message(1, "RECV", (rank - 1) % 4, 7)] for rank in range(4)
    ]
    for rank, nodes in enumerate(jobs):
        nodes[1]["attrs"]["comm_dst"] = rank if rank != 3 else 0
    with pytest.raises(TraceError, match=r"^rank 3: node 8 .*comm_dst is 0; allowed: the rank itself"):
        simulate(number_throughout(trace_of_workload({"ranks": jobs}, 4)), ring(4), native=compiled())


def test_an_algorithm_of_one_node_is_that_of_its_id() -> None:
    """What has the same place on other ranks keeps its own."""
    trace = number_throughout(trace_of_workload({"all_ranks": [coll(0, 1 << 16)]}, 4))
    custom = trace_of_workload({"ranks": [[comp(0, 7)] for _ in range(4)]}, 4)
    config = replace(ring(4), custom_nodes={2: custom})
    with pytest.raises(StudioError):
        simulate(trace, config, native=compiled())
    config = replace(ring(4), custom_nodes=dict.fromkeys((1, 2, 3, 4), custom))
    assert simulate(trace, config, native=compiled()).finish_ns.tolist() == [7_000] * 4


def test_a_straggler_tells_ranks_apart_by_their_distance_from_it() -> None:
    """On a ring messages go one way round, so every rank is a class; in pairs of equal halves there are half as many."""
    nodes = [[comp(0, 5 if at == 0 else 1), coll(1, 4096, 0)] for at in range(8)]
    alone = simulate(trace_of_workload({"ranks": nodes}, 8), ring(8), native=compiled())
    assert alone.unfolded == "no two ranks are equivalent"
    nodes = [[comp(0, 5 if at % 4 == 0 else 1), coll(1, 4096, 0)] for at in range(8)]
    folded, _ = both(trace_of_workload({"ranks": nodes}, 8), ring(8))
    assert folded.classes == 4
    assert folded.representative.tolist() == [0, 1, 2, 3] * 2


def pipeline(stages: int, width: int, groups: bool = True) -> tuple[Trace, int]:
    """Stages of `width` ranks side by side, which pass a message on and reduce among themselves."""
    ranks: list[Nodes] = []
    for rank in range(stages * width):
        stage = rank // width
        nodes = [comp(0, 1)]
        if stage > 0:
            nodes.append(message(1, "RECV", rank - width, 7))
        nodes.append(comp(2, 2, *([1] if stage > 0 else [0])))
        if stage < stages - 1:
            nodes.append(message(3, "SEND", rank + width, 7, 2))
        if groups:
            nodes.append(coll(4, 8192, 2, group=str(1 + stage)))
        ranks.append(nodes)
    lists = {str(1 + at): list(range(at * width, (at + 1) * width)) for at in range(stages)}
    return trace_of_workload({"ranks": ranks}, stages * width, lists), stages * width


def test_a_pipeline_has_a_class_per_stage() -> None:
    """Peers are relations: what one stage sends stands for what every rank of the next receives."""
    trace, size = pipeline(4, 4)
    folded, _ = both(trace, system(Dimension("switch", size, 50.0, 500.0)))
    assert folded.classes == 4
    assert folded.representative.tolist() == [at // 4 * 4 for at in range(16)]


def test_messages_around_a_ring_both_ways_are_kept_apart() -> None:
    ranks = []
    for at in range(6):
        up, down = (at + 1) % 6, (at - 1) % 6
        nodes = [message(0, "SEND", up, 1), message(1, "RECV", down, 1), comp(2, 4, 1)]
        ranks.append([*nodes, message(3, "SEND", down, 1, 2), message(4, "RECV", up, 1, 0), comp(5, 1, 4)])
    trace = trace_of_workload({"ranks": ranks}, 6)
    folded, _ = both(trace, ring(6, extensions=Extensions()))
    assert folded.classes == 1
    # In the compatible mode the rank's number says whether its send or its receive completes first.
    assert "depends on the numbers of ranks" in both(trace, ring(6))[0].unfolded


def test_groups_count_by_what_they_are_not_by_their_names() -> None:
    groups = {str(1 + at): [2 * at, 2 * at + 1] for at in range(4)} | {
        "11": [0, 2, 4, 6],
        "12": [1, 3, 5, 7],
    }
    ranks = [
        [coll(0, 4096, group=str(1 + at // 2)), coll(1, 8192, 0, group=str(11 + at % 2))] for at in range(8)
    ]
    folded, _ = both(
        trace_of_workload({"ranks": ranks}, 8, groups), system(Dimension("switch", 8, 50.0, 9.0))
    )
    assert folded.classes == 1


@pytest.mark.parametrize(("number", "told"), [("3", ""), ("501", "share their tags")])
def test_groups_that_share_tags_are_not_folded(number: str, told: str) -> None:
    """The reference gives comm groups whose numbers differ by 500 the same tags; messages could be mixed up."""
    groups = {"1": [0, 1, 2, 3], number: [0, 1, 2, 3], "2": [4, 5, 6, 7], "4": [4, 5, 6, 7]}
    names = [("1", number)] * 4 + [("2", "4")] * 4
    ranks = [[coll(0, 4096, group=a), coll(1, 4096, 0, group=b)] for a, b in names]
    folded, _ = both(
        trace_of_workload({"ranks": ranks}, 8, groups), system(Dimension("switch", 8, 50.0, 9.0))
    )
    assert told in folded.unfolded
    assert bool(told) == bool(folded.unfolded)


@pytest.mark.parametrize(("sharing", "classes"), [("per_npu", 1), ("per_node", 8), ("pool", 8)])
def test_remote_memory_is_folded_where_nobody_waits_for_another(sharing: Any, classes: int) -> None:
    load = {"id": 0, "type": "MEM_LOAD_NODE", "attrs": {"tensor_size": 5000}}
    memory = RemoteMemory(sharing, 100, 1.0, 4)
    trace = trace_of_workload({"all_ranks": [load, coll(1, 4096, 0)]}, 8)
    folded, _ = both(trace, ring(8, remote_memory=memory))
    assert folded.classes == classes
    assert ("wait for shared memory" in folded.unfolded) == (classes > 1)


@pytest.mark.parametrize(
    ("kind", "algorithm", "told"),
    [
        ("ring", RING, ""),
        ("ring", HALVING, "messages pass over links of other ranks"),
        ("switch", RING, ""),
        ("switch", HALVING, ""),
        ("fully_connected", HALVING, ""),
        ("fully_connected", RING, ""),
    ],
)
def test_congestion_is_folded_where_a_link_serves_one_rank(
    kind: Any, algorithm: Algorithm, told: str
) -> None:
    """Figures of the links are those of all links."""
    trace = trace_of_workload({"all_ranks": [coll(0, 1 << 16)]}, 8)
    config = system(Dimension(kind, 8, 10.0, 50.0), algorithm=algorithm, congestion="aware", splits=3)
    folded, _ = both(trace, config)
    assert folded.unfolded == told


def test_trees_are_not_folded() -> None:
    config = ring(8)
    config = replace(config, algorithms={"all_reduce": (Algorithm("double_binary_tree"),)})
    folded, _ = both(trace_of_workload({"all_ranks": [coll(0, 4096)]}, 8), config)
    assert "tree" in folded.unfolded


def deadlocking(splits: int) -> tuple[Trace, SystemConfig]:
    """A symmetric job whose ties the reference breaks differently on different ranks."""
    dims = [Dimension("ring", 2, 1000 * 2**30 / 1e9, 100.0)] * 4
    config = system(
        *dims,
        algorithm=HALVING,
        splits=splits,
        collective_optimization="local_bw_aware",
        local_memory_bytes_per_ns=1600.0,
    )
    return trace_of_workload({"all_ranks": [coll(0, 4096)]}, 16), config


def test_ties_that_matter_are_noticed_and_simulated_rank_by_rank() -> None:
    """Ten chunks of a symmetric all-reduce deadlock in the reference; one rank for many would not show that."""
    trace, config = deadlocking(4)
    assert set(both(trace, config)[0].finish_ns.tolist()) == {1640}
    trace, config = deadlocking(10)
    with pytest.raises(TraceError) as folded:
        simulate(trace, config, native=compiled())
    with pytest.raises(TraceError) as full:
        simulate(trace, config, native=compiled(), fold=False)
    assert str(folded.value) == str(full.value)


def test_symmetric_ties_need_no_watching() -> None:
    trace, config = deadlocking(10)
    folded, _ = both(trace, replace(config, extensions=Extensions()))
    assert folded.classes == 1


def test_ties_that_are_not_known_are_told() -> None:
    """Two chunks that exchange with all others at once end in the same nanosecond, in an order of their own."""
    trace = trace_of_workload({"all_ranks": [coll(0, 4096)]}, 4)
    config = system(Dimension("fully_connected", 4, 50.0, 10.0), algorithm=DIRECT, splits=2, active_chunks=2)
    folded, _ = both(trace, config)
    assert "depends on the numbers of ranks" in folded.unfolded
    assert folded.classes == 4


def test_compute_speeds_tell_ranks_apart() -> None:
    trace = trace_of_workload({"all_ranks": [comp(0, 8), coll(1, 4096, 0)]}, 4)
    extensions = Extensions(compute_speeds={0: 2.0, 2: 2.0})
    folded, _ = both(trace, ring(4, extensions=extensions))
    assert folded.classes == 2


# ---------------------------------------------------------------------------------------------------
# Random jobs, full of ties


@dataclass(frozen=True)
class Case:
    """A job and its system."""

    ranks: list[Nodes]
    groups: dict[str, list[int]]
    config: SystemConfig


def algorithms(draw: st.DrawFn, sizes: list[int]) -> tuple[Algorithm, ...]:
    found = []
    for size in sizes:
        names = ["ring", "direct", "direct1", "direct2"]
        names += ["halvingDoubling"] * 2 if size & (size - 1) == 0 else []
        found.append(Algorithm.parse(draw(st.sampled_from(names))))
    if draw(st.integers(0, 7)) == 0:
        return (Algorithm.parse(draw(st.sampled_from(["oneRing", "oneDirect", "oneDirect2"]))),)
    return tuple(found)


SYMMETRIC = [Extensions(), Extensions(communication_slots=2), Extensions(communication_slots=65536)]


def configs(draw: st.DrawFn, shared: bool) -> SystemConfig:
    """Return a system; where messages share links, ties are symmetric and there may be several dimensions."""
    sizes = draw(st.sampled_from([[4], [8], [3], [6], [2, 2], [2, 4], [3, 2], [2, 2, 2], [2, 3, 2]]))
    aware = shared or (len(sizes) == 1 and draw(st.booleans()))
    latency = draw(st.sampled_from([0.0, 1.0, 10.0, 10.5, 100.0]))
    kinds = st.sampled_from(["ring", "fully_connected", "switch"])
    rates = draw(st.sampled_from([[1.0], [10.0], [1000.0], [1.0, 64.0]]))
    overhead = draw(st.sampled_from([0.0, 0.0, 7.5])) if shared else 0.0
    dims = tuple(
        Dimension(draw(kinds), size, draw(st.sampled_from(rates)), latency, message_overhead_ns=overhead)
        for size in sizes  # type: ignore[arg-type]
    )
    chosen = {kind: algorithms(draw, sizes) for kind in ("all_reduce", "all_gather", "reduce_scatter")}
    exchange = tuple(RING if one.kind == "halving_doubling" else one for one in algorithms(draw, sizes))
    extensions: Extensions | None = None
    if shared:
        extensions = draw(st.sampled_from(SYMMETRIC))
    elif draw(st.integers(0, 3)) == 0:
        extensions = draw(
            st.sampled_from([Extensions(), Extensions.off(), Extensions(communication_slots=2)])
        )
    return SystemConfig(
        Topology(dims),
        congestion="aware" if aware else "unaware",
        scheduling=draw(st.sampled_from(["lifo", "fifo", "explicit"])),
        collective_optimization=draw(st.sampled_from(["baseline", "local_bw_aware"])),
        algorithms={**chosen, "all_to_all": exchange},  # type: ignore[dict-item]
        splits=draw(st.integers(1, 5)),
        active_chunks=draw(st.integers(1, 4)),
        queues_per_dimension=draw(st.sampled_from([1, 1, 2, 3])),
        endpoint_delay_ns=draw(st.sampled_from([None, 0, 1, 10, latency])),
        local_memory_bytes_per_ns=draw(st.sampled_from([0.0, 1.0, 1600.0])),
        rendezvous=draw(st.integers(0, 7)) == 0,
        remote_memory=RemoteMemory("per_npu", draw(st.sampled_from([0, 10])), 1.0),
        extensions=extensions,
    )


@dataclass(frozen=True)
class Row:
    """A node as all ranks have it, before they put in their groups and peers."""

    kind: str
    after: list[int]
    collective: int
    where: int
    far: int
    number: int


@st.composite
def rows(draw: st.DrawFn, npus: int, groups: int) -> list[Row]:
    found = []
    for at in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["comp", "cpu", "memory", "coll", "coll", "coll", "pass"]))
        after = [2 * before for before in range(at) if draw(st.integers(0, 2)) == 0]
        collective, where = draw(st.sampled_from([0, 2, 6, 7])), draw(st.integers(-1, groups - 1))
        far, number = draw(st.sampled_from([1, npus - 1, npus // 2])), draw(st.integers(0, 3))
        found.append(Row(kind, after, collective, where, far, number))
    return found


def passed_on(at: int, row: Row, rank: int, npus: int, ends: bool) -> Nodes:
    """Return a send and a receive; where the pipeline has ends, the ranks there have only one of them."""
    to, back = (rank + row.far) % npus, (rank - row.far) % npus
    nodes = []
    if not (ends and to < rank):
        nodes.append(message(at + 1, "SEND", to, row.number, *row.after))
    if ends and back > rank:
        return [*nodes, comp(at, row.number, *row.after)]
    return [*nodes, message(at, "RECV", back, row.number)]


def nodes_of(at: int, row: Row, size: int, late: int, name: str | None) -> Nodes:
    """Return a node of a rank that is `late`."""
    if row.kind == "coll":
        node = coll(at, size, *row.after, kind=row.collective, group=name)
        node["attrs"]["comm_priority"] = row.number
    elif row.kind == "memory":
        attrs = {"tensor_size": size}
        node = {"id": at, "type": "MEM_LOAD_NODE", "data_deps": row.after, "attrs": attrs}
    else:
        node = comp(at, row.number + late, *row.after)
        if row.kind == "cpu":
            node["attrs"] = {"is_cpu_op": True}
    return [node]


@st.composite
def cases(draw: st.DrawFn, shared: bool = False) -> Case:
    config = configs(draw, shared)
    npus = config.topology.npus
    groups: dict[str, list[int]] = {}
    mine: list[list[str]] = [[] for _ in range(npus)]
    for strided in draw(st.lists(st.booleans(), max_size=2)):
        size = draw(st.sampled_from([n for n in range(2, npus + 1) if npus % n == 0]))
        count = npus // size
        for at in range(count):
            groups[str(len(groups) + 1)] = (
                list(range(npus))[at::count] if strided else list(range(npus))[at * size :][:size]
            )
        for name, members in list(groups.items())[-count:]:
            for rank in members:
                mine[rank].append(name)
    template = draw(rows(npus, len(mine[0])))
    size = draw(st.sampled_from([64 * npus, 1000 * npus, 4096]))
    slow, ends = draw(st.sampled_from([npus, 1, 2, max(npus // 2, 1)])), draw(st.booleans())
    ranks = []
    for rank in range(npus):
        nodes: Nodes = []
        for at, row in enumerate(template):
            name = mine[rank][row.where] if row.where >= 0 else None
            if row.kind == "pass":
                nodes += passed_on(2 * at, row, rank, npus, ends)
            else:
                nodes += nodes_of(2 * at, row, size, int(rank % slow == 0), name)
        ranks.append(nodes)
    return Case(ranks, groups, config)


@given(cases())
@settings(max_examples=examples(30), deadline=None)
def test_folded_answers_are_those_of_the_simulation_rank_by_rank(case: Case) -> None:
    """Equal finish times, equal events on every rank, equal figures; or the same error."""
    compare(case)


@given(cases(shared=True))
@settings(max_examples=examples(30), deadline=None)
def test_folded_links_serve_what_the_links_they_stand_for_serve(case: Case) -> None:
    """The same where messages of several ranks and dimensions meet on links."""
    compare(case)


def compare(case: Case) -> None:
    """Simulate a case with one rank for many and rank by rank."""
    trace = trace_of_workload({"ranks": case.ranks}, len(case.ranks), case.groups)
    try:
        folded: SimResult | str = simulate(trace, case.config, native=compiled())
    except StudioError as error:
        folded = str(error)
    try:
        full: SimResult | str = simulate(trace, case.config, native=compiled(), fold=False)
    except StudioError as error:
        full = str(error)
    if isinstance(folded, str) or isinstance(full, str):
        assert folded == full
        with pytest.raises(StudioError):
            simulate(number_throughout(trace), case.config, native=compiled())
        return
    assert_equal(folded, full)
    numbered = simulate(number_throughout(trace), case.config, native=compiled())
    assert_equal(numbered, full)
    assert (numbered.unfolded, numbered.representative.tolist()) == (
        folded.unfolded,
        folded.representative.tolist(),
    )


# ---------------------------------------------------------------------------------------------------
# Links that serve several ranks


def shared(*dims: Dimension, algorithm: Algorithm = RING, **given_settings: Any) -> SystemConfig:
    """Return a system in which messages share links and all comm groups are under way at once."""
    settings_of = {"congestion": "aware", "extensions": Extensions(communication_slots=65536)}
    return system(*dims, algorithm=algorithm, **(settings_of | given_settings))


def training(width: int, depth: int) -> Trace:
    """Ranks that reduce among `width` next to each other, and meanwhile with those of their place elsewhere."""
    size = width * depth
    groups = {f"tensor {at}": list(range(at * width, (at + 1) * width)) for at in range(depth)}
    groups |= {f"data {at}": list(range(at, size, width)) for at in range(width)}
    ranks = []
    for at in range(size):
        nodes = [comp(0, 3), coll(1, 1 << 14, 0, group=f"tensor {at // width}")]
        nodes += [coll(2, 1 << 15, 0, group=f"data {at % width}"), coll(3, 1 << 12, 1, kind=6)]
        ranks.append([*nodes, comp(4, 1, 2, 3)])
    return trace_of_workload({"ranks": ranks}, size, groups)


@pytest.mark.parametrize(
    ("kinds", "sizes", "width", "classes"),
    [
        (("switch", "switch"), (4, 3), 4, 1),
        (("ring", "ring"), (4, 4), 4, 1),
        (("fully_connected", "switch"), (4, 3), 4, 1),
        # Tensor-parallel groups are half a ring, so their last rank is three links from their first.
        (("ring", "ring"), (8, 2), 4, 8),
        # Groups of two nodes: their places differ in the way to the next.
        (("switch", "ring"), (2, 6), 4, 4),
    ],
)
def test_jobs_fold_where_messages_cross_several_dimensions(
    kinds: Any, sizes: tuple[int, int], width: int, classes: int
) -> None:
    dims = [
        Dimension(kind, size, rate, 50.0) for kind, size, rate in zip(kinds, sizes, (20.0, 5.0), strict=True)
    ]
    trace = training(width, sizes[0] * sizes[1] // width)
    folded, _ = both(trace, shared(*dims, splits=3, active_chunks=2))
    assert (folded.unfolded, folded.classes) == ("", classes)


@pytest.mark.parametrize("kind", ["ring", "switch", "fully_connected"])
def test_messages_to_all_others_fold(kind: Any) -> None:
    """Around a ring they pass the links of several ranks; of one nanosecond the nearest goes first."""
    trace = trace_of_workload({"all_ranks": [coll(0, 1 << 14), coll(1, 1 << 13, kind=6)]}, 6)
    folded, _ = both(trace, shared(Dimension(kind, 6, 10.0, 50.0), algorithm=DIRECT, splits=2))
    assert (folded.unfolded, folded.classes) == ("", 1)


def test_equivalent_ranks_that_send_over_one_link_are_not_folded() -> None:
    """Ranks 0 and 1 send by way of rank 2: one of them would stand for one message, but the link carries both."""
    groups = {"a": [0, 5], "b": [1, 8]}
    names = {rank: name for name, members in groups.items() for rank in members}
    ranks = [[coll(0, 4096, group=names[at])] if at in names else [comp(0, 1)] for at in range(9)]
    trace = trace_of_workload({"ranks": ranks}, 9, groups)
    folded, full = both(trace, shared(*[Dimension("switch", 3, 1.0, 50.0)] * 2))
    assert folded.unfolded == "messages of equivalent ranks meet on a link"
    assert full.links.peak_queue.max() == 1


def test_messages_that_nothing_tells_apart_are_noticed() -> None:
    """Two ranks send the same to a third: whose message goes first, their numbers decide."""
    ranks = []
    for at in range(6):
        first = at // 3 * 3
        nodes = [message(1, "RECV", first + 1, 5), message(2, "RECV", first + 2, 5)]
        ranks.append(nodes if at == first else [message(0, "SEND", first, 5), comp(1, at - first)])
    folded, _ = both(trace_of_workload({"ranks": ranks}, 6), shared(Dimension("switch", 6, 1.0, 50.0)))
    assert "depends on the numbers of ranks" in folded.unfolded
