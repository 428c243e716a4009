"""What makes an answer doubtful is found, and its cure takes it away."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from studio.sim import doubt_facts, simulate
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.costs.model import CostModel, Range
from studio.sim.doubt import Doubt
from studio.sim.doubts import CHECKS, apply_cures, doubts_of, explain_impossible, format_cure_options
from studio.sim.extensions import Extensions, Link, LinkGraph
from studio.sim.known import Known
from studio.sim.models import with_model
from studio.sim.parts import Parts, build_parts, interpret
from studio.sim.presets import preset
from studio.sim.setting_edits import with_settings
from studio.trace import Trace
from tests.examples import examples
from tests.golden import case, records
from tests.handmade import at, collective, node, recorded_on, trace_of
from tests.kernels import compiled

MIB = 1 << 20
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def system(*dims: Dimension, algorithm: str = "ring", **given: object) -> SystemConfig:
    algorithms = {kind: (Algorithm.parse(algorithm),) * len(dims) for kind in KINDS}
    return SystemConfig(Topology(dims), algorithms=algorithms, **given)


def looked_at(trace: Trace, parts: Parts) -> tuple[int, tuple[Doubt, ...]]:
    result = simulate(trace, interpret(parts).config, native=compiled())
    return result.makespan_ns, doubts_of(result, parts)


SWITCH = Dimension("switch", 8, 50.0, 500.0)
SLOW_LINKS = LinkGraph(
    8,
    1,
    tuple(
        link
        for npu in range(8)
        for link in (Link(npu, 8, 5.0 if npu == 3 else 50.0, 500.0), Link(8, npu, 50.0, 500.0))
    ),
)


def between(source: int, target: int, size: int) -> Trace:
    """Return a job of 16 ranks in which one sends to another."""

    def nodes(rank: int):
        if rank == source:
            return [node(1, "COMM_SEND", comm_dst=target, comm_size=size, comm_tag=1)]
        if rank == target:
            return [node(1, "COMM_RECV", comm_src=source, comm_size=size, comm_tag=1)]
        return [node(1, "COMP", micros=1)]

    return trace_of([nodes(rank) for rank in range(16)])


NOTED = {
    "memory_ns": [0],
    "memory_bytes": [12_000_000_000],
    "memory_device": [0],
    "memory_address": [64],
    "memory_total": [12_000_000_000],
    "memory_reserved": [12_000_000_000],
}
ON_SMALL = system(SWITCH, extensions=Extensions(recompute_for="rtx-2080ti", recorded_gpu="h100"))


def holding(inputs: str = "", **noted: list[int]) -> Trace:
    """Return a job in which an operator holds memory and a kernel runs."""
    host = node(1, "COMP", name="aten::empty", micros=5, is_cpu_op=True, **noted)
    if inputs:
        host.inputs.values = inputs
    kernel = node(2, "COMP", 1, name="k", micros=5, is_cpu_op=False, device_kind="kernel", stream=7)
    return trace_of([[host, kernel]] * 8)


def left_over(**said: bool) -> Trace:
    """Return a job with a kernel of a communication library of which nothing is known, before an all-reduce."""
    nodes = [
        node(1, "COMP", name="ncclDevKernel_Generic(x)", micros=30, is_cpu_op=False, stream=7, **said),
        collective(2, "ALL_REDUCE", 64 * MIB, 1),
    ]
    return trace_of([nodes] * 8)


def unsized() -> Trace:
    """Return a job with an all-to-all of which the recording did not tell the size, before an all-reduce."""
    nodes = [
        collective(1, "ALL_TO_ALL", 0, micros=300, comm_inferred="size"),
        collective(2, "ALL_REDUCE", MIB, 1),
    ]
    return trace_of([nodes] * 8)


def on_h100(micros: int, kind: str = "ALL_REDUCE") -> Trace:
    """Return a job of eight H100 in which a collective of 64 MiB took so long; on HGX H100 it takes some 300 µs."""
    nodes = [at(0, 100, node(1, "COMP")), at(100, micros, collective(2, kind, 64 * MIB, 1))]
    return recorded_on(trace_of([nodes] * 8), "NVIDIA H100 80GB HBM3")


CASES = {
    # Two chunks at once pass each port.
    "beyond-capacity": (
        trace_of([[collective(1, "ALL_REDUCE", 64 * MIB)]] * 8),
        system(SWITCH, splits=4, active_chunks=2),
    ),
    "collective-beyond-ports": (
        trace_of([[collective(1, "ALL_REDUCE", 64 * MIB)]] * 8),
        system(SWITCH, splits=4, active_chunks=2),
    ),
    # From node to node over 50 bytes per ns at the 400 within a node.
    "message-beyond-link": (
        between(1, 8, 64 * MIB),
        system(Dimension("switch", 8, 400.0, 500.0), Dimension("ring", 2, 50.0, 500.0)),
    ),
    "lowest-dimension": (
        between(1, 8, 64 * MIB),
        system(Dimension("switch", 8, 400.0, 500.0), Dimension("ring", 2, 50.0, 500.0)),
    ),
    "links-ignored": (
        trace_of([[collective(1, "ALL_REDUCE", 64 * MIB)]] * 8),
        system(SWITCH, links=SLOW_LINKS, extensions=Extensions()),
    ),
    # Nodes of 8: 9 NPUs are three nodes of 3.
    "uneven-nodes": (trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 9), preset("hgx-h100", 9).parts),
    "unknown-communication": (left_over(launched_before=True), system(SWITCH, extensions=Extensions())),
    "unknown-size": (unsized(), system(SWITCH, extensions=Extensions())),
    "recorded-faster": (on_h100(100), preset("hgx-h100", 8).config),
    "took-no-time": (trace_of([[collective(1, "BROADCAST", MIB)]] * 8), system(SWITCH)),
    "all-reduce-in-disguise": (
        trace_of([[collective(1, "ALL_GATHER", MIB)]] * 8),
        system(SWITCH, algorithm="doubleBinaryTree"),
    ),
    "ring-behind-switch": (trace_of([[collective(1, "ALL_TO_ALL", MIB)]] * 8), system(SWITCH)),
    "long-ring": (
        trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 128),
        system(Dimension("switch", 128, 400.0, 1000.0)),
    ),
    # Along the second dimension alone, pairs of ranks; a cost model knows groups only, and has all 16 carry it out.
    "dimensions-not-involved": (
        trace_of([[collective(1, "ALL_REDUCE", MIB, involved_dim=[False, True])]] * 16),
        preset("hgx-h100", 16).config,
    ),
    # The second is ready first, in a group that nothing orders.
    "open-order": (
        trace_of(
            [
                [
                    node(1, "COMP", micros=9),
                    collective(2, "ALL_REDUCE", MIB, 1),
                    collective(3, "ALL_REDUCE", MIB),
                ]
            ]
            * 8
        ),
        preset("hgx-h100", 8).config,
    ),
    # Fitted to all-reduces of up to 1 MiB; there is no cure but another fit.
    "extrapolated": (
        trace_of([[collective(1, "ALL_REDUCE", 64 * MIB)]] * 8),
        system(
            SWITCH,
            congestion="aware",
            extensions=Extensions(),
            costs=CostModel(fitted=Range(("all_reduce",), (2, 8), (1, 1), (8.0, float(MIB)))),
        ),
    ),
    # 12 GB at the peak, on a GPU of 11; recorded on one of 80.
    "does-not-fit": (holding(**NOTED), ON_SMALL),
    "may-not-fit": (holding("[[1, 2, 0, 3000000000, 4, 'cuda:0']]"), ON_SMALL),
    "compute-took-no-time": (
        trace_of(
            [[node(1, "COMP", num_ops=10**9, tensor_size=MIB), collective(2, "ALL_REDUCE", MIB, 1)]] * 8
        ),
        system(SWITCH, extensions=Extensions()),
    ),
}


def test_every_doubt_has_a_case():
    assert set(CASES) == {check.code for check in CHECKS}


@pytest.mark.parametrize("code", CASES)
def test_what_makes_an_answer_doubtful_is_found_and_its_cure_takes_it_away(code):
    trace, given = CASES[code]
    parts = given if isinstance(given, Parts) else build_parts(given)
    before, doubts = looked_at(trace, parts)
    [doubt] = [one for one in doubts if one.code == code]
    assert doubt.impossible == next(check.impossible for check in CHECKS if check.code == code)
    if doubt.cure is None:
        cureless = ("extrapolated", "does-not-fit", "may-not-fit", "unknown-communication", "unknown-size")
        assert code in (*cureless, "recorded-faster", "uneven-nodes", "dimensions-not-involved", "open-order")
        return
    after, left = looked_at(trace, apply_cures(parts, [doubt]))
    assert code not in {one.code for one in left}
    # What is impossible is too quick; what is not meant may be either.
    assert after > before if doubt.impossible else after != before
    assert doubt.cure.option in doubt.finding.hint


def test_a_message_between_nodes_is_no_quicker_from_one_rank_than_from_another_once_it_is_cured():
    """Without it 64 MiB from rank 1 to rank 8 take an eighth of those from rank 0 to rank 8."""
    config = system(Dimension("switch", 8, 400.0, 500.0), Dimension("ring", 2, 50.0, 500.0))
    parts = build_parts(config)
    near, far = (looked_at(between(source, 8, 64 * MIB), parts)[0] for source in (0, 1))
    assert near > 7 * far
    full = with_model(parts, "full")
    near, far = (looked_at(between(source, 8, 64 * MIB), full)[0] for source in (0, 1))
    # The switch is one hop more on its way, at eight times the rate of the link between the nodes.
    assert near <= far < 1.3 * near


def test_collectives_that_replay_no_recorded_time_are_told():
    trace = trace_of([[node(1, "COMP", micros=5), collective(2, "ALL_REDUCE", MIB, 1)]] * 8)
    parts = with_settings(build_parts(system(SWITCH)), ["replay-only=1"])
    before, doubts = looked_at(trace, parts)
    assert before == 5001
    assert [(one.code, one.message.partition(":")[0]) for one in doubts] == [
        ("took-no-time", "8 of 8 collectives took 1 ns")
    ]
    after, left = looked_at(trace, apply_cures(parts, doubts))
    assert after > 20_000
    assert left == ()


def test_compute_without_a_time_takes_that_of_a_roofline_or_is_said_to_have_none():
    """What has neither operations nor a duration has no cure; what has a duration keeps it."""
    nodes = [
        node(1, "COMP", num_ops=989_400_000, tensor_size=1000),
        node(2, "COMP", 1),
        node(3, "COMP", 2, micros=7, num_ops=10**12, tensor_size=MIB),
    ]
    trace, parts = trace_of([nodes] * 8), build_parts(system(SWITCH, extensions=Extensions()))
    before, doubts = looked_at(trace, parts)
    told, untold = [doubt for doubt in doubts if doubt.code == "compute-took-no-time"]
    assert before == 7002
    assert told.message.startswith("8 of 24 compute nodes")
    assert "NVIDIA H100" in told.cure.label
    assert untold.message.startswith("8 of 24 compute nodes")
    assert untold.cure is None
    # 989.4 million operations at 989.4 TFLOP/s are 1 µs.
    after, left = looked_at(trace, apply_cures(parts, doubts))
    assert after == 1000 + 1 + 7000
    assert [doubt.message for doubt in left] == [untold.message]


def test_the_full_model_gives_no_answer_beyond_its_ports():
    """Neither do several groups at once, nor messages beside collectives."""
    groups = {str(index + 1): [index, index + 8] for index in range(8)}
    mixed = [
        [collective(1, "ALL_REDUCE", MIB), collective(2, "ALL_REDUCE", 4 * MIB, group=str(rank % 8 + 1))]
        for rank in range(16)
    ]
    config = preset("hgx-h100-16").config
    for trace in (trace_of(mixed, groups), between(1, 8, MIB), between(0, 8, MIB)):
        doubts = doubts_of(simulate(trace, config, native=compiled()))
        assert [doubt for doubt in doubts if doubt.impossible] == []


def test_no_answer_of_the_aware_reference_is_beyond_its_ports(shared: Path):
    """The first small cases of every family; many more in `make nightly`."""
    seen: Counter[str] = Counter()
    for record in records(shared / "oracle" / "astra_sim_public.jsonl.gz"):
        expected = record["expected"]
        if record["mode"] != "aware" or not expected["status"].startswith("ok"):
            continue
        if seen[record["family"]] == examples(28) or len(expected.get("events", ())) > 200:
            continue
        trace, config = case(record)
        if config.congestion == "aware" and config.needs_every_rank:
            rates = {"beyond-capacity", "message-beyond-link", "links-ignored"}
            assert not rates & {doubt.code for doubt in doubts_of(simulate(trace, config, native=compiled()))}
            seen[record["family"]] += 1
    assert seen.total() > 150


@pytest.mark.parametrize(
    ("involved", "group", "told"),
    [
        ([False, True], "", "16 of 32 collective nodes involve"),
        ([True], "", "16 of 32 collective nodes involve"),  # Of the second it says nothing.
        ([False, True], "0", "16 of 32 collective nodes involve"),  # The name of all ranks.
        ([True, True, False], "", ""),  # There is no third.
        ([False, True], "all", ""),  # A group says who takes part, whatever the dimensions.
    ],
)
def test_collectives_of_some_dimensions_are_told_where_costs_time_them(involved, group, told):
    nodes = [
        collective(1, "ALL_REDUCE", MIB, group=group, involved_dim=involved),
        collective(2, "ALL_GATHER", MIB, 1),
    ]
    trace = trace_of([nodes] * 16, {"all": range(16)})
    found = looked_at(trace, preset("hgx-h100", 16).parts)[1]
    [message] = [one.message for one in found if one.code == "dimensions-not-involved"] or [""]
    assert message.startswith(told)
    assert bool(message) == bool(told)
    without = with_settings(preset("hgx-h100", 16).parts, ["costs="])
    assert "dimensions-not-involved" not in {one.code for one in looked_at(trace, without)[1]}


def test_several_doubts_with_one_cure_have_one_option():
    trace, config = CASES["beyond-capacity"]
    _, doubts = looked_at(trace, build_parts(config))
    assert len(doubts) == 2
    assert format_cure_options(doubts) == "--model full"
    aware = replace(config, extensions=Extensions(), congestion="aware")
    assert looked_at(trace, build_parts(aware))[1] == ()


def test_communication_of_unknown_size_is_told_where_its_recorded_time_matters():
    parts = build_parts(system(SWITCH, extensions=Extensions()))
    [told] = [one for one in looked_at(unsized(), parts)[1] if one.code == "unknown-size"]
    assert told.message.startswith(
        "8 communication nodes of unknown size move nothing here and take only latency; "
    )
    assert "recorded they took 300 µs a rank: record the shapes" in told.message
    # One that says it moves nothing, one that took no time, and a replay, which asks about no network.
    for facts in ({"comm_inferred": "group", "bytes_in": 0, "micros": 300}, {"comm_inferred": "size"}):
        other = trace_of([[collective(1, "ALL_TO_ALL", 0, **facts), collective(2, "ALL_REDUCE", MIB, 1)]] * 8)
        assert "unknown-size" not in {one.code for one in looked_at(other, parts)[1]}
    replayed = with_settings(parts, ["replay-only=1"])
    assert "unknown-size" not in {one.code for one in looked_at(unsized(), replayed)[1]}


def test_communication_that_no_network_changes_is_told_with_what_to_do():
    """The same kernels were taken for transfers over whatever network was asked about."""
    for said, remedy in (
        ({"launched_before": True}, "launched before the recording began; record again"),
        ({}, "record the calls of the library too"),
    ):
        trace = left_over(**said)
        told = {}
        for npus, rate in ((8, 50.0), (8, 5000.0)):
            config = system(Dimension("switch", npus, rate, 500.0), extensions=Extensions())
            finish, doubts = looked_at(trace, build_parts(config))
            [told[rate]] = [one for one in doubts if one.code == "unknown-communication"]
            share = round(100 * 30_000 / finish)
            assert (
                f"8 communication kernels of unknown kind and size (30.0 µs a rank, {share} %"
                in told[rate].message
            )
            assert remedy in told[rate].message
    # Less than 1 % of the finish and of the exposed communication changes no answer.
    slow = system(Dimension("switch", 8, 0.5, 500.0), extensions=Extensions())
    assert "unknown-communication" not in {one.code for one in looked_at(left_over(), build_parts(slow))[1]}
    # A replay asks about no network.
    replayed = with_settings(build_parts(config), ["replay-only=1"])
    assert "unknown-communication" not in {one.code for one in looked_at(left_over(), replayed)[1]}


def test_a_recording_that_was_faster_than_its_own_hardware_is_told_with_what_to_do():
    """A recording that is as fast, or slower for its waits, contradicts nothing; nor does one on another network."""
    told = {}
    h100 = preset("hgx-h100", 8).parts
    for micros in (100, 250, 400, 5000):
        finish, doubts = looked_at(on_h100(micros), h100)
        told[micros] = [one.message for one in doubts if one.code == "recorded-faster"]
        alone_us = (finish - 100_000) / 1e3
    assert 250 < alone_us < 370
    [message] = told.pop(100)
    assert message.startswith("The recording contradicts this network: 1 of 1 collectives took")
    assert "ALL_REDUCE of 64.0 MiB in 100 µs, not" in message
    assert "chakra-studio calibrate FILES --gpus-per-node 8" in message
    assert told == {250: [], 400: [], 5000: []}
    for other in (with_settings(h100, ["bandwidth=[200]"]), preset("hgx-b200", 8).parts):
        assert "recorded-faster" not in {one.code for one in looked_at(on_h100(20), other)[1]}
    # A member of a broadcast is done before the last one comes.
    assert "recorded-faster" not in {one.code for one in looked_at(on_h100(20, "BROADCAST"), h100)[1]}


def test_a_preset_is_told_by_itself_or_by_its_parts():
    """A program holds a preset, and hears the same of it as the command says."""
    nine = preset("hgx-h100", 9)
    job = trace_of([[collective(1, "ALL_REDUCE", MIB), collective(2, "ALL_REDUCE", 4 * MIB, 1)]] * 9)
    result = simulate(job, nine, native=compiled())
    assert doubts_of(result, nine) == doubts_of(result, nine.parts) != doubts_of(result)
    assert "uneven-nodes" in {doubt.code for doubt in doubts_of(result, nine)}


def test_one_of_several_collectives_is_extrapolated():
    """`1 of 14 collective is` was said."""
    job = trace_of([[collective(1, "ALL_REDUCE", MIB), collective(2, "ALL_REDUCE", 1024 * MIB, 1)]] * 8)
    system = preset("dgx-v100", 8)
    [doubt] = [
        one for one in doubts_of(simulate(job, system, native=compiled())) if one.code == "extrapolated"
    ]
    assert doubt.message.startswith("1 of 2 collectives is extrapolated")


def test_what_a_job_holds_is_matched_once_for_all_systems_it_is_tried_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rates change when nodes run, not which meet; a changed job is matched by itself."""
    trace = trace_of([[collective(1, "ALL_REDUCE", 64 * MIB)] for _ in range(8)])
    known, asked = Known(trace), []
    match = doubt_facts.match_groups
    monkeypatch.setattr(doubt_facts, "match_groups", lambda *given: asked.append(given[0]) or match(*given))
    words = []
    for rate in (50.0, 100.0):
        result = simulate(trace, system(Dimension("ring", 8, rate, 500.0)), native=compiled())
        words.append((explain_impossible(result), explain_impossible(result, known=known)))
    assert all(alone == shared for alone, shared in words)
    assert len(asked) == 3
    other = replace(trace)
    explain_impossible(simulate(other, system(SWITCH), native=compiled()), known=known)
    assert len(asked) == 4
    assert asked[-1] is other
