"""The extended mode: every collective by messages, nodes that take no time, groups, slots, ties."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import studio
from studio.errors import ConfigError, TraceError
from studio.samples import SAMPLES, Sample, sample_path
from studio.sim import simulate
from studio.sim.algorithms import AlgorithmKind, Recipe, build_programs
from studio.sim.check import check
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.result import SimResult
from studio.sim.setting_edits import with_mode
from studio.trace import Int64
from tests.examples import examples
from tests.golden import Record, case, records, trace_of_workload
from tests.kernels import compiled
from tests.parity import Outcome, judged

ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = range(8)
REDUCE_SCATTER_BLOCK, BARRIER = 8, 9
E = 10
LATENCY = 500
X = 1 << 16
PER_FAMILY = 3


def intervals(result: SimResult) -> tuple[Int64, Int64, Int64, Int64]:
    """Return (N,) start, end, rank and row of every node of every rank, by rank and then by row."""
    spans = result.node_times().spans(result.trace, np.arange(len(result.finish_ns)))
    return spans.start_ns, spans.end_ns, spans.rank, spans.row


def collective(number: int, kind: int, size_bytes: int, *deps: int, **attrs: object) -> Record:
    given = {"comm_type": kind, "comm_size": size_bytes, **attrs}
    return {"id": number, "type": "COMM_COLL_NODE", "data_deps": list(deps), "attrs": given}


def compute(number: int, micros: int, *deps: int) -> Record:
    return {"id": number, "type": "COMP_NODE", "data_deps": list(deps), "duration_micros": micros}


def system(
    *sizes: int, algorithm: str = "ring", extensions: Extensions | None = None, **given: object
) -> SystemConfig:
    dims = tuple(Dimension("fully_connected", size, 64.0, float(LATENCY)) for size in sizes)
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    algorithms = {kind: (Algorithm.parse(algorithm),) * len(sizes) for kind in kinds}
    return SystemConfig(Topology(dims), algorithms=algorithms, extensions=extensions or Extensions(), **given)


def run(nodes: list[Record], config: SystemConfig, groups: dict[str, list[int]] | None = None) -> SimResult:
    """Simulate nodes that all ranks have."""
    trace = trace_of_workload({"all_ranks": nodes}, config.topology.npus, groups)
    return simulate(trace, config, native=compiled())


def run_ranks(
    ranks: list[list[Record]], config: SystemConfig, groups: dict[str, list[int]] | None = None
) -> SimResult:
    """Simulate nodes of single ranks."""
    trace = trace_of_workload({"ranks": ranks}, config.topology.npus, groups)
    return simulate(trace, config, native=compiled())


def hop(size: int) -> int:
    """What a message takes, and the packet it becomes."""
    return int(LATENCY + size / 64) + E


# ---------------------------------------------------------------------------------------------------
# Off equals compatible


def test_with_every_extension_off_the_answers_are_the_references(shared: Path) -> None:
    """The first small cases of every family: finish times, statistics and order of events."""
    seen: dict[str, int] = defaultdict(int)
    wrong = []
    for record in records(shared / "oracle" / "astra_sim_public.jsonl.gz"):
        expected = record["expected"]
        if not expected["status"].startswith("ok") or len(expected.get("events", ())) > 300:
            continue
        seen[record["family"]] += 1
        if seen[record["family"]] > PER_FAMILY:
            continue
        trace, config = case(record)
        result = simulate(trace, replace(config, extensions=Extensions.off()), native=compiled(), fold=False)
        outcome = judged(Outcome(record["family"], record["id"], "ok"), result, expected)
        if outcome.problem:
            wrong.append((outcome.family, outcome.id, outcome.problem))
    assert not wrong
    assert len(seen) > 20


# ---------------------------------------------------------------------------------------------------
# Closed forms of lone collectives


def log2_up(size: int) -> int:
    return (size - 1).bit_length()


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("kind", [BROADCAST, REDUCE])
@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_and_reduce_take_what_the_formulas_say(size: int, kind: int, root: int) -> None:
    x = size * 4096
    expected = {
        "ring": (2 * size - 2) * hop(x // size),
        "direct": hop(x),
        # One after the other goes out; what comes in comes at once, and is taken one after the other.
        "direct1": (size - 1) * hop(x) if kind == BROADCAST else hop(x) + (size - 2) * E,
    }
    if kind == BROADCAST or size & (size - 1) == 0:
        expected["halvingDoubling"] = log2_up(size) * hop(x)
    for algorithm, time in expected.items():
        result = run([collective(0, kind, x, root_rank=root)], system(size, algorithm=algorithm))
        assert result.makespan_ns == E + time, algorithm


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("kind", [SCATTER, GATHER])
def test_gather_and_scatter_take_what_the_formulas_say(size: int, kind: int) -> None:
    """Each rank has one block: x of a gather, an n-th of a scatter."""
    block = 4096
    x = block if kind == GATHER else size * block
    halves = [min(1 << bit, size - (1 << bit)) for bit in range(log2_up(size))]
    expected = {
        "ring": (size - 1) * hop(block),
        "direct": hop(block),
        "direct1": (size - 1) * hop(block) if kind == SCATTER else hop(block) + (size - 2) * E,
    }
    if size & (size - 1) == 0:
        expected["halvingDoubling"] = sum(hop(block * blocks) for blocks in halves)
    for algorithm, time in expected.items():
        result = run([collective(0, kind, x)], system(size, algorithm=algorithm))
        assert result.makespan_ns == E + time, algorithm


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_barrier_takes_its_steps_times_the_latency(size: int) -> None:
    """No bytes: n - 1 steps round a ring, ⌈log2 n⌉ by dissemination, one where all tell all."""
    steps = {"ring": size - 1, "direct": 1, "halvingDoubling": log2_up(size)}
    for algorithm, count in steps.items():
        result = run([collective(0, BARRIER, 0)], system(size, algorithm=algorithm))
        assert set(result.finish_ns.tolist()) == {E + count * hop(0)}, algorithm


def test_a_barrier_needs_no_size() -> None:
    node = {"id": 0, "type": "COMM_COLL_NODE", "attrs": {"comm_type": BARRIER}}
    assert run([node], system(4)).makespan_ns == E + 3 * hop(0)


@pytest.mark.parametrize("size", [3, 5, 6, 7, 12])
def test_halving_doubling_folds_surplus_ranks_in_and_out(size: int) -> None:
    """Two more messages of everything than the power of two below needs."""
    rounds = size.bit_length() - 1
    x = 1 << 14
    halves = sum(hop(x >> bit) for bit in range(1, rounds + 1))
    config = system(size, algorithm="halvingDoubling")
    assert run([collective(0, ALL_REDUCE, x)], config).makespan_ns == E + 2 * hop(x) + 2 * halves
    refused = replace(config, extensions=replace(Extensions(), group_sizes="powers_of_two"))
    with pytest.raises(ConfigError, match="allowed: powers of two"):
        run([collective(0, ALL_REDUCE, x)], refused)


@pytest.mark.parametrize("size", [3, 4, 6, 8])
def test_an_all_to_all_by_halving_doubling_is_brucks(size: int) -> None:
    x = size * 1024
    blocks = [sum(1 for far in range(1, size) if far >> bit & 1) for bit in range(log2_up(size))]
    result = run([collective(0, ALL_TO_ALL, x)], system(size, algorithm="halvingDoubling"))
    assert set(result.finish_ns.tolist()) == {E + sum(hop(1024 * count) for count in blocks)}


@pytest.mark.parametrize("algorithm", ["ring", "direct2", "halvingDoubling"])
def test_a_reduce_scatter_block_is_a_reduce_scatter(algorithm: str) -> None:
    config = system(8, algorithm=algorithm)
    times = [
        run([collective(0, kind, X)], config).makespan_ns for kind in (REDUCE_SCATTER, REDUCE_SCATTER_BLOCK)
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize("kind", [ALL_REDUCE, BROADCAST])
@pytest.mark.parametrize("size", [2, 3, 7, 8, 11])
def test_trees_are_as_deep_as_they_should_be(kind: int, size: int) -> None:
    """A broadcast goes down once: to the top of the tree and then its depth."""
    result = run([collective(0, kind, X)], system(size, algorithm="doubleBinaryTree"))
    depth = (size - 1).bit_length()
    down = E + depth * hop(X)
    assert result.makespan_ns == down if kind == BROADCAST else result.makespan_ns > down


def test_a_tree_in_a_group_is_that_of_the_reference() -> None:
    """Programs of trees have the waits of the engine's own trees: equal times on a power of two."""
    world = run([collective(0, ALL_REDUCE, X)], system(8, algorithm="doubleBinaryTree", splits=2))
    group = {"g": list(range(8))}
    nodes = [
        [collective(0, ALL_REDUCE, X, pg_name="g")] if rank < 8 else [compute(0, 0)] for rank in range(16)
    ]
    part = run_ranks(nodes, system(16, algorithm="doubleBinaryTree", splits=2), group)
    assert part.finish_ns[:8].tolist() == world.finish_ns.tolist()


@pytest.mark.parametrize("kind", range(10))
@pytest.mark.parametrize("algorithm", ["ring", "direct2", "halvingDoubling", "doubleBinaryTree", "oneDirect"])
@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 2)])
def test_every_collective_finishes_in_every_dimension(
    kind: int, algorithm: str, sizes: tuple[int, ...]
) -> None:
    for extra in ({}, {"root_rank": 5}):
        config = system(*sizes, algorithm=algorithm, splits=3, active_chunks=2)
        result = run([collective(0, kind, X, **extra)], config)
        assert (result.finish_ns > 0).all()


@pytest.mark.parametrize("kind", [BROADCAST, REDUCE])
def test_a_root_reaches_all_over_its_own_lines(kind: int) -> None:
    """In two dimensions: a star in the root's line, then one in every line across, one after the other."""
    result = run([collective(0, kind, X, root_rank=7)], system(4, 3, algorithm="direct"))
    # A rank without part in the first phase waits its packet out and goes on to the second one.
    assert result.makespan_ns == 2 * E + 2 * hop(X)


# ---------------------------------------------------------------------------------------------------
# Brute force: the simplest clock that can play programs


def brute_force(recipe: Recipe, x: int) -> list[int]:
    """Return when each place ends: a step is played once all its messages are known, whoever comes first."""
    listed = [[step for step in program for _ in range(step.times)] for program in build_programs(recipe)]
    now = [
        E if not steps or any(message.what.startswith("send") for message in steps[0].messages) else 0
        for steps in listed
    ]
    at = [0] * len(listed)
    arrivals: dict[tuple[int, int], list[int]] = defaultdict(list)
    sent = [False] * len(listed)
    while any(at[place] < len(steps) for place, steps in enumerate(listed)):
        before = list(at), list(sent)
        for place, steps in enumerate(listed):
            if at[place] < len(steps):
                messages = steps[at[place]].messages
                if not sent[place]:
                    for message in messages:
                        if message.what.startswith("send"):
                            size = x // message.divisor * message.factor
                            arrivals[place, message.peer].append(now[place] + hop(size) - E)
                    sent[place] = True
                incoming = [m.peer for m in messages if not m.what.startswith("send")]
                if all(len(arrivals[peer, place]) >= incoming.count(peer) for peer in incoming):
                    ends = [max(arrivals[peer, place].pop(0), now[place]) + E for peer in incoming]
                    ends += [
                        now[place] + hop(x // m.divisor * m.factor) for m in messages if m.what == "send_wait"
                    ]
                    now[place] = max([now[place], *ends])
                    at[place] += 1
                    sent[place] = False
        assert (at, sent) != before, "nothing moves any more"
    return now


KINDS = {
    ALL_REDUCE: "all_reduce",
    REDUCE: "reduce",
    ALL_GATHER: "all_gather",
    GATHER: "gather",
    SCATTER: "scatter",
    BROADCAST: "broadcast",
    REDUCE_SCATTER: "reduce_scatter",
}
FORMS: dict[str, AlgorithmKind] = {
    "ring": "ring",
    "direct": "direct",
    "direct2": "direct",
    "halvingDoubling": "halving_doubling",
    "doubleBinaryTree": "double_binary_tree",
}


@settings(max_examples=examples(40), deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    form=st.sampled_from(sorted(FORMS)),
    size=st.sampled_from([2, 3, 5, 6, 7]),
    root=st.integers(0, 6),
    x=st.integers(7, 1 << 20),
)
def test_the_engine_plays_programs_as_the_simplest_clock_does(
    kind: int, form: str, size: int, root: int, x: int
) -> None:
    rooted = kind in (REDUCE, GATHER, SCATTER, BROADCAST)
    if not rooted and (form not in ("halvingDoubling", "doubleBinaryTree") or size == 2):
        form, size = "halvingDoubling", 7
    window = 2 if form == "direct2" else 0
    at = root % size if rooted else 0
    recipe = Recipe(KINDS[kind], FORMS[form], size, root=at, window=window)
    config = system(size, algorithm=form, local_memory_bytes_per_ns=1.0)
    lone = run([collective(0, kind, x, root_rank=at)], config).finish_ns.tolist()
    free = run([collective(0, kind, x, root_rank=at)], replace(config, local_memory_bytes_per_ns=0.0))
    chunk = x if kind in (ALL_GATHER, GATHER) else max(x, size)
    assert free.finish_ns.tolist() == brute_force(recipe, chunk)
    assert all(slow >= fast for slow, fast in zip(lone, free.finish_ns.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------
# Nodes that take no time


def metadata(number: int, *deps: int, kind: str = "METADATA_NODE") -> Record:
    return {"id": number, "type": kind, "data_deps": list(deps)}


@pytest.mark.parametrize("kind", ["METADATA_NODE", "INVALID_NODE"])
@pytest.mark.parametrize("extensions", [Extensions(), Extensions.off()])
def test_what_waits_for_a_node_without_time_goes_on(kind: str, extensions: Extensions) -> None:
    """A chain of such nodes, a compute node, and another one that ends the rank."""
    nodes = [metadata(0, kind=kind), metadata(1, 0, kind=kind), compute(2, 3, 1), metadata(3, 2, kind=kind)]
    result = run(nodes, system(2, extensions=extensions))
    assert result.finish_ns.tolist() == [3000, 3000]
    assert run([metadata(0, kind=kind)], system(2, extensions=extensions)).makespan_ns == 0


def test_the_compatible_mode_refuses_metadata_nodes() -> None:
    with pytest.raises(TraceError, match="METADATA nodes cannot be simulated") as refused:
        run([metadata(0)], replace(system(2), extensions=None))
    assert "extended mode" in refused.value.hint


# ---------------------------------------------------------------------------------------------------
# Groups


def test_any_text_names_a_group_and_rings_run_in_its_order() -> None:
    groups = {"tp: left": [0, 1], "tp: right": [2, 3]}
    nodes = [
        [collective(0, ALL_REDUCE, X, pg_name="tp: left" if rank < 2 else "tp: right")] for rank in range(4)
    ]
    result = run_ranks(nodes, system(4), groups)
    assert set(result.finish_ns.tolist()) == {E + 2 * hop(X // 2)}


def test_ranks_in_different_numbers_of_group_collectives_still_meet() -> None:
    """World collectives are counted by themselves: the reference waits for ever here."""
    groups = {"1": [0, 1]}
    first = [collective(0, ALL_REDUCE, X, pg_name="1")]
    nodes = [
        [*(first if rank < 2 else [compute(0, 1)]), collective(1, ALL_REDUCE, X, 0)] for rank in range(4)
    ]
    assert run_ranks(nodes, system(4), groups).makespan_ns > 0
    with pytest.raises(TraceError, match="never finish"):
        run_ranks(nodes, replace(system(4), extensions=None), groups)


def test_group_zero_is_all_ranks_unless_a_list_says_otherwise() -> None:
    nodes = [
        [collective(0, ALL_REDUCE, X, pg_name="0")] if rank < 2 else [compute(0, 1)] for rank in range(4)
    ]
    assert run_ranks(nodes, system(4), {"0": [0, 1]}).finish_ns[0] == E + 2 * hop(X // 2)
    everybody = run([collective(0, ALL_REDUCE, X, pg_name="0")], system(4))
    assert everybody.makespan_ns == E + 6 * hop(X // 4)


def test_a_root_has_to_be_in_its_group() -> None:
    nodes = [
        [collective(0, BROADCAST, X, pg_name="a", root_rank=3)] if rank < 2 else [compute(0, 1)]
        for rank in range(4)
    ]
    with pytest.raises(TraceError, match="has rank 3 for its root; allowed: its ranks, 0, 1"):
        run_ranks(nodes, system(4), {"a": [0, 1]})
    with pytest.raises(TraceError, match="the root is rank 9; allowed: 0 to 3"):
        run([collective(0, BROADCAST, X, root=9)], system(4))


def test_a_group_of_one_waits_a_packet_and_is_done() -> None:
    nodes = [
        [collective(0, kind, X, pg_name="a")] if rank == 0 else [compute(0, 0)]
        for rank in range(2)
        for kind in (BROADCAST,)
    ]
    assert run_ranks(nodes, system(2), {"a": [0]}).finish_ns[0] == E


# ---------------------------------------------------------------------------------------------------
# Slots and speeds


def test_collectives_of_different_groups_run_at_the_same_time() -> None:
    groups = {"a": [0, 1], "b": [0, 1]}
    nodes = [[collective(0, ALL_REDUCE, X, pg_name="a"), collective(1, ALL_REDUCE, X, pg_name="b")]] * 2
    one = E + 2 * hop(X // 2)
    assert run_ranks(nodes, system(2), groups).makespan_ns == 2 * one
    two = system(2, extensions=Extensions(communication_slots=2))
    assert run_ranks(nodes, two, groups).makespan_ns == one


def test_collectives_of_one_group_stay_one_at_a_time_and_in_order() -> None:
    nodes = [collective(at, ALL_REDUCE, X) for at in range(3)]
    config = system(2, extensions=Extensions(communication_slots=8))
    result = run(nodes, config)
    one = E + 2 * hop(X // 2)
    assert result.makespan_ns == 3 * one
    start, end, rank, row = intervals(result)
    assert start[rank == 0].tolist() == [0, one, 2 * one]
    assert end[rank == 0].tolist() == [one, 2 * one, 3 * one]
    assert row[rank == 0].tolist() == [0, 1, 2]


def test_sends_take_a_slot_each() -> None:
    def transfer(number: int, kind: str, peer: str) -> Record:
        attrs = {peer: 1 if kind == "COMM_SEND_NODE" else 0, "comm_size": X, "comm_tag": number}
        return {"id": number, "type": kind, "attrs": attrs}

    nodes = [
        [transfer(at, "COMM_SEND_NODE", "comm_dst") for at in range(4)],
        [transfer(at, "COMM_RECV_NODE", "comm_src") for at in range(4)],
    ]
    for slots, rounds in ((1, 4), (2, 2), (4, 1)):
        config = system(2, extensions=Extensions(communication_slots=slots))
        assert run_ranks(nodes, config).makespan_ns == rounds * (hop(X) - E)


def test_groups_in_a_circle_do_not_block_each_other() -> None:
    """Three groups of two on three ranks, begun in turn: with a slot for each they have queues of their own."""
    groups = {"a": [0, 1], "b": [1, 2], "c": [2, 0]}
    pairs = {0: "ac", 1: "ba", 2: "cb"}
    nodes = [
        [collective(at, ALL_REDUCE, X, pg_name=name) for at, name in enumerate(pairs[rank])]
        for rank in range(3)
    ]
    config = system(3, extensions=Extensions(communication_slots=2))
    assert run_ranks(nodes, config, groups).makespan_ns == E + 2 * hop(X // 2)


def test_speeds_change_compute_nodes_of_one_npu() -> None:
    config = system(2, extensions=Extensions(compute_speeds={1: 0.8}))
    nodes = [compute(0, 4), {**compute(1, 4, 0), "attrs": {"is_cpu_op": True}}]
    assert run(nodes, config).finish_ns.tolist() == [8000, 9000]
    with pytest.raises(ConfigError, match="compute_speeds names NPU 2; allowed: 0 to 1"):
        run(nodes, system(2, extensions=Extensions(compute_speeds={2: 0.5})))


# ---------------------------------------------------------------------------------------------------
# Ties


def knot(splits: int, extensions: Extensions | None) -> SystemConfig:
    """A system on which the reference waits for ever, though all ranks do the same."""
    dims = tuple(Dimension("ring", 2, 1000 * 2**30 / 10**9, 100.0) for _ in range(4))
    return SystemConfig(
        Topology(dims),
        collective_optimization="local_bw_aware",
        algorithms={"all_reduce": (Algorithm("halving_doubling"),) * 4},
        splits=splits,
        endpoint_delay_ns=10,
        local_memory_bytes_per_ns=1600.0,
        extensions=extensions,
    )


def test_a_symmetric_job_that_the_reference_cannot_end_ends() -> None:
    nodes = [collective(0, ALL_REDUCE, 4096)]
    with pytest.raises(TraceError, match="never finish"):
        run(nodes, knot(10, None))
    assert set(run(nodes, knot(4, None)).finish_ns.tolist()) == {1640}
    times = [set(run(nodes, knot(splits, Extensions())).finish_ns.tolist()) for splits in (4, 10)]
    assert all(len(found) == 1 for found in times)


def test_packets_that_wait_for_the_end_of_a_tick_do_so_together() -> None:
    """Without any delay all messages of a direct all-reduce come in one tick; its phase must not end amid them."""
    dims = tuple(Dimension("ring", size, rate, 0.0) for size, rate in ((4, 64.0), (2, 1.0), (2, 1.0)))
    forms = tuple(Algorithm.parse(name) for name in ("direct2", "ring", "direct"))
    given = {"endpoint_delay_ns": 0, "extensions": Extensions(dimension_order="descending")}
    config = SystemConfig(Topology(dims), algorithms={"all_reduce": forms}, **given)
    one, other = (simulate_job(fold, config) for fold in (True, False))
    assert one == other
    assert len(set(one)) == 1


def simulate_job(fold: bool, config: SystemConfig) -> list[int]:
    trace = trace_of_workload({"all_ranks": [collective(1, ALL_REDUCE, 64)]}, config.topology.npus, None)
    return simulate(trace, config, native=compiled(), fold=fold).finish_ns.tolist()


@st.composite
def symmetric_jobs(draw: st.DrawFn) -> tuple[list[Record], SystemConfig]:
    """The same nodes on every rank of a system in which all ranks are equal, full of ties."""
    sizes = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3))
    kinds = st.sampled_from(["ring", "fully_connected", "switch"])
    dims = tuple(
        Dimension(draw(kinds), size, draw(st.sampled_from([1.0, 64.0])), draw(st.sampled_from([0.0, 100.0])))
        for size in sizes
    )
    forms = ["ring", "direct", "direct1", "direct2"]
    form = st.sampled_from([*forms, "halvingDoubling"] if all(size != 3 for size in sizes) else forms)
    algorithms = {
        kind: tuple(Algorithm.parse(draw(form)) for _ in sizes)
        for kind in ("all_reduce", "all_gather", "reduce_scatter")
    }
    algorithms["all_to_all"] = tuple(Algorithm.parse(draw(st.sampled_from(forms))) for _ in sizes)
    config = SystemConfig(
        Topology(dims),
        scheduling=draw(st.sampled_from(["lifo", "fifo"])),
        collective_optimization=draw(st.sampled_from(["baseline", "local_bw_aware"])),
        algorithms=algorithms,
        splits=draw(st.integers(1, 6)),
        active_chunks=draw(st.integers(1, 3)),
        queues_per_dimension=draw(st.sampled_from([1, 2])),
        endpoint_delay_ns=draw(st.sampled_from([0, 10])),
        local_memory_bytes_per_ns=draw(st.sampled_from([0.0, 100.0])),
        extensions=Extensions(
            communication_slots=draw(st.integers(1, 2)),
            dimension_order=draw(st.sampled_from(["ascending", "descending", "balanced"])),
            chunk_order=draw(st.sampled_from(["arrival", "smallest"])),
        ),
    )
    count = draw(st.integers(1, 4))
    nodes: list[Record] = []
    for number in range(count):
        deps = draw(st.sets(st.integers(0, number - 1), max_size=1)) if number else set()
        kind = draw(st.sampled_from([ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, BARRIER, -1, -2]))
        if kind == -1:
            nodes.append(compute(number, draw(st.integers(0, 2)), *deps))
        elif kind == -2:
            nodes.append(metadata(number, *deps))
        else:
            nodes.append(collective(number, kind, draw(st.sampled_from([64, 4096])), *deps))
    return nodes, config


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(symmetric_jobs())
def test_symmetric_jobs_end_and_equal_ranks_end_together(job: tuple[list[Record], SystemConfig]) -> None:
    nodes, config = job
    result = run(nodes, config)
    assert len(set(result.finish_ns.tolist())) == 1
    events = [result.events_of(rank) for rank in range(config.topology.npus)]
    assert all(
        all(np.array_equal(one, other) for one, other in zip(mine, events[0], strict=True)) for mine in events
    )


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(symmetric_jobs())
def test_no_node_starts_before_what_it_waits_for_has_ended(job: tuple[list[Record], SystemConfig]) -> None:
    nodes, config = job
    start, end, rank, row = intervals(run(nodes, config))
    for number in np.unique(rank).tolist():
        begins, ends = start[rank == number], end[rank == number]
        assert row[rank == number].tolist() == list(range(len(nodes)))
        for at, node in enumerate(nodes):
            assert all(ends[dep] <= begins[at] for dep in node["data_deps"])


# ---------------------------------------------------------------------------------------------------
# Bounds


@settings(max_examples=examples(60), deadline=None)
@given(
    kind=st.integers(0, 9),
    form=st.sampled_from(["ring", "direct1", "halvingDoubling", "doubleBinaryTree"]),
    size=st.integers(2, 9),
    x=st.integers(1, 1 << 18),
)
def test_a_lone_collective_is_never_below_its_bound_nor_slowed_by_bandwidth(
    kind: int, form: str, size: int, x: int
) -> None:
    """Some rank has to send or receive so much over its links, and a message has to cross one of them."""
    config = system(size, algorithm=form)
    time = run([collective(0, kind, x)], config).makespan_ns
    dim = replace(config.topology.dims[0], bytes_per_ns=80.0)
    faster = run([collective(0, kind, x)], replace(config, topology=Topology((dim,)))).makespan_ns
    assert faster <= time
    others = size - 1
    chunk = max(x, size)
    needed = {ALL_GATHER: x * others, GATHER: x * others, BARRIER: 0, BROADCAST: chunk, REDUCE: chunk}
    least = needed.get(kind, chunk // size * others)
    assert time >= LATENCY + int(least / (64 * others))


def test_a_balanced_order_loads_dimensions_more_evenly() -> None:
    """With a slow low dimension, chunks that begin above it finish earlier than all of them from below."""
    dims = (Dimension("ring", 4, 16.0, 100.0), Dimension("ring", 4, 32.0, 100.0))
    config = SystemConfig(
        Topology(dims),
        collective_optimization="local_bw_aware",
        algorithms={"all_reduce": (Algorithm("ring"),) * 2},
        splits=16,
        extensions=Extensions(),
    )
    times = {
        order: run(
            [collective(0, ALL_REDUCE, 1 << 20)],
            replace(config, extensions=Extensions(dimension_order=order)),
        ).makespan_ns
        for order in ("ascending", "descending", "balanced")
    }
    assert times["balanced"] < min(times["ascending"], times["descending"])


@pytest.mark.parametrize("congestion", ["aware", "unaware"])
@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("kind", [BROADCAST, REDUCE, SCATTER, GATHER, ALL_REDUCE])
def test_ranks_send_the_bytes_of_the_algorithm(congestion: str, form: str, kind: int) -> None:
    """What is counted on the network is what the programs, or the formula of ring and direct, say."""
    size, x = 5, 5000
    config = system(size, algorithm=form, congestion=congestion)
    sent = run([collective(0, kind, x, root_rank=2)], config).dimensions[0].bytes.tolist()
    if kind == ALL_REDUCE and FORMS[form] in ("ring", "direct"):
        assert sent == [2 * (size - 1) * x // size] * size
        return
    recipe = Recipe(KINDS[kind], FORMS[form], size, root=2 if kind != ALL_REDUCE else 0)
    expected = [
        sum(
            step.times * (x // one.divisor * one.factor)
            for step in program
            for one in step.messages
            if one.what.startswith("send")
        )
        for program in build_programs(recipe)
    ]
    assert sent == expected


# ---------------------------------------------------------------------------------------------------
# Uneven all-to-alls, and the studio's own samples


@pytest.mark.parametrize("form", ["ring", "direct", "halvingDoubling"])
@pytest.mark.parametrize("congestion", ["aware", "unaware"])
def test_ranks_may_bring_different_sizes_to_an_all_to_all(form: str, congestion: str) -> None:
    """Each sends by its own size; the compatible mode waits for ever, as the reference does."""
    ranks = [[collective(0, ALL_TO_ALL, size)] for size in (4096, 8192, 12345, 4096)]
    config = system(4, algorithm=form, congestion=congestion, splits=3)
    result = run_ranks(ranks, config)
    sent = result.dimensions[0].bytes
    assert sent[1] > sent[0] == sent[3]
    findings = check(trace_of_workload({"ranks": ranks}, 4), config)
    assert not [finding for finding in findings if finding.level == "error"]
    if form == "direct":
        with pytest.raises(TraceError, match="never finish"):
            run_ranks(ranks, replace(config, extensions=None))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_samples_run_on_a_preset(sample: Sample) -> None:
    """Group names, memory nodes and uneven all-to-alls: what the compatible mode refuses."""
    trace = studio.read([sample_path(sample.name)])
    memory = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 1000, "remote-mem-bw": 100}
    parts = with_mode(
        replace(preset(f"hgx-h100-{sample.ranks}").under("astra-sim"), memory=memory), "extended"
    )
    config = interpret(parts).config
    assert [finding.message for finding in check(trace, config) if finding.level == "error"] == []
    result = simulate(trace, config)
    assert (result.finish_ns > 0).all()
    compatible = replace(config, extensions=None)
    assert any(finding.level == "error" for finding in check(trace, compatible))
    without = replace(config, remote_memory=None)
    assert [finding.code for finding in check(trace, without) if finding.level == "error"] == ["no-memory"]


def findings_of(nodes: list[Record], config: SystemConfig) -> dict[str, str]:
    trace = trace_of_workload({"all_ranks": nodes}, config.topology.npus)
    return {finding.code: finding.level for finding in check(trace, config)}


def test_the_check_knows_what_the_extended_mode_can_do() -> None:
    nodes = [
        metadata(0),
        metadata(1, kind="INVALID_NODE"),
        {"id": 2, "type": "COMM_COLL_NODE", "attrs": {"comm_type": BARRIER}},
        collective(3, BROADCAST, X, root_rank=1),
        collective(4, ALL_GATHER, 0),
        collective(5, ALL_REDUCE, X),
    ]
    extended = system(6, algorithm="halvingDoubling", splits=4)
    assert findings_of(nodes, extended) == {}
    assert (run(nodes, extended).finish_ns > 0).all()
    refused = findings_of(nodes, replace(extended, extensions=None))
    codes = [
        "metadata-node",
        "collective-unsupported",
        "attribute-missing",
        "empty-all-gather",
        "algorithm-unfit",
    ]
    assert [refused[code] for code in codes] == ["error"] * len(codes)


def test_the_check_tells_about_roots() -> None:
    assert findings_of([collective(0, GATHER, X)], system(4)) == {"root-assumed": "info"}
    assert findings_of([collective(0, GATHER, X, comm_root=7)], system(4)) == {"root-outsider": "error"}
