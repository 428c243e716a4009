"""Advice: small jobs whose saving is seen in the test, every saving simulated again, and jobs known to be out of balance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import studio
from studio.advice import schedule, work
from studio.advice.advice import Advice, Advised, Kind, advise
from studio.advice.system import TRIFLE, Scan
from studio.advice.terms import OF_SYSTEM
from studio.advice.words import as_data, build_bars, describe_advice, format_advice
from studio.analysis.job.kinds import infer_node_kinds
from studio.errors import TraceError
from studio.jobs.advice_search import find_advice_for
from studio.pages.overview.advice import _build_list
from studio.session import Session
from studio.sim import simulate
from studio.sim.engine import Cancelled
from studio.sim.explaining import explain
from studio.sim.models import with_model
from studio.sim.parts import Parts, interpret
from studio.sim.presets import preset
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.trace import DEVICE_NAME, WITH_STACK, Attribute, CommGroup, Trace, ValueKind
from tests.examples import examples
from tests.handmade import at, collective, node, recorded_on, trace_of
from tests.recordings import read_recording
from tests.test_cli import refused, run

US = 1000


def after(made: Any, *ids: int) -> Any:
    """A node that comes after others in an order only."""
    made.ctrl_deps.extend(ids)
    return made


def of_kind(found: Advised, kind: Kind) -> list[Advice]:
    return [item for item in found.advice if item.kind == kind]


def test_kernels_of_communication_libraries_are_no_compute():
    """Also those of which nothing is known but the name: faster compute would make them no faster."""
    kernels = [
        at(0, 100, node(1, "COMP", name="gemm")),
        at(100, 900, node(2, "COMP", 1, name="ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)")),
        at(1000, 100, node(3, "COMP", 2, name="gemm")),
    ]
    found = only(advise(trace_of([kernels])), "compute")
    assert found.saving_ns == 20 * US
    assert {number for _, number in found.nodes} == {1, 3}


def test_what_ranks_compute_is_looked_for_once_in_a_graph_that_they_share(monkeypatch: pytest.MonkeyPatch):
    looked: list[int] = []
    monkeypatch.setattr(
        work, "infer_node_kinds", lambda graph: looked.append(id(graph)) or infer_node_kinds(graph)
    )

    def rank(micros: int) -> list[Any]:
        return [
            at(0, micros, node(1, "COMP", name="gemm")),
            at(micros, 10, collective(2, "ALL_REDUCE", 64, 1)),
        ]

    job = trace_of([rank(100)] * 8 + [rank(120)] * 8)
    assert len(job.graphs) == 2
    found = work.index_compute_rows(job, range(16))
    assert [found[place].tolist() for place in range(16)] == [[0]] * 16
    assert sorted(looked) == sorted(id(graph) for graph in job.graphs)


def test_a_recorded_gpu_that_no_system_is_known_for_is_named():
    job = trace_of([[at(0, 100, node(1, "COMP")), at(100, 100, node(2, "COMP", 1))]])
    refused = advise(recorded_on(job, "GPU of tomorrow")).refused
    reasons = {reason for kind, reason in refused if kind in OF_SYSTEM}
    assert reasons == {
        "no system was given, and none is known of the recorded GPU of tomorrow; give one (--preset)"
    }


def only(found: Advised, kind: Kind) -> Advice:
    [item] = of_kind(found, kind)
    return item


def every(found: Advised) -> Iterator[Advice]:
    yield from found.advice
    if found.combined is not None:
        yield found.combined


def assert_simulated(trace: Trace, found: Advised) -> None:
    """Every saving is that of a simulation of the changed job on the changed system, to the nanosecond."""
    for item in every(found):
        before = simulate(trace, interpret(item.on).config, fold=False).makespan_ns
        changed, system = item.change.of_trace(trace), item.change.of_parts(item.on)
        finish = simulate(changed, interpret(system).config, fold=False).makespan_ns
        assert before == item.baseline_ns
        assert before - finish == item.saving_ns > 0, item.action
        assert item.saving_percent == pytest.approx(100 * (before - finish) / before)


def arriving(*compute_us: int) -> Trace:
    """Ranks that compute so long, then meet in an all-reduce of 10 µs."""
    last = max(compute_us)
    return trace_of(
        [
            [
                at(10, micros, node(1, "COMP", name="forward")),
                at(10 + micros, last + 10 - micros, collective(2, "ALL_REDUCE", 4096, 1)),
            ]
            for micros in compute_us
        ]
    )


def test_a_slow_rank_at_the_median_saves_what_it_was_late():
    found = advise(arriving(100, 100, 200))
    assert found.baseline.finish_ns == found.baseline.recorded_ns == 210 * US
    slow = only(found, "slow-rank")
    assert (slow.saving_ns, slow.ranks, slow.nodes) == (100 * US, (2,), ((2, 1),))
    assert "2.00 times as long" in slow.action


def test_equal_arrivals_share_the_work_out_evenly():
    found = advise(arriving(60, 100, 140))
    even = only(found, "equal-arrivals")
    assert (even.saving_ns, even.ranks, even.collective) == (40 * US, (2,), "ALL_REDUCE")


def test_balanced_sizes_take_the_time_of_the_mean_by_the_line_through_the_recording():
    def rank(size: int) -> list[Any]:
        # 10 µs and 0.1 µs a byte on the busiest port, which carries half of the largest member's bytes.
        return [
            at(10, 160, collective(1, "ALL_TO_ALL", size)),
            at(170, 60, collective(2, "ALL_TO_ALL", 1000, 1)),
        ]

    found = advise(trace_of([rank(1000), rank(3000)]))
    balanced = only(found, "balance-sizes")
    assert (balanced.saving_ns, balanced.ranks, balanced.collective) == (50 * US, (1,), "ALL_TO_ALL")
    assert "rank 1 brings 1.333 × the mean" in balanced.action


def test_the_compute_of_experts_goes_with_their_tokens():
    def rank(tokens: int) -> list[Any]:
        return [
            at(10, 110, collective(1, "ALL_TO_ALL", 1000 * tokens)),
            at(120, 100 * tokens, node(2, "COMP", 1, name="expert", num_ops=tokens * 10**6)),
            at(120 + 100 * tokens, 310 - 100 * tokens, collective(3, "ALL_REDUCE", 4, 2)),
        ]

    found = advise(trace_of([rank(1), rank(3)]))
    spread = only(found, "balance-experts")
    # 100 µs of compute less on rank 1, and what the smaller all-to-all saves.
    assert spread.saving_ns == 100 * US + only(found, "balance-sizes").saving_ns
    assert spread.ranks == (1,)


def test_experts_go_to_the_ranks_that_compute_them_fastest():
    def rank(tokens: int, micros: int) -> list[Any]:
        # Ranks 0 and 1 take 200 and 100 µs for a token's experts.
        ends = 120 + tokens * micros
        return [
            at(10, 110, collective(1, "ALL_TO_ALL", 1000 * tokens)),
            at(120, tokens * micros, node(2, "COMP", 1, name="expert", num_ops=tokens * 10**6)),
            at(ends, 730 - ends, collective(3, "ALL_REDUCE", 4, 2)),
        ]

    found = advise(trace_of([rank(3, 200), rank(1, 100)]))
    # 600 µs at most before, and 300 µs with the loads exchanged: as many bytes on the busiest port.
    assert only(found, "place-experts").saving_ns == 300 * US
    assert "in 1 of 1 collectives" in only(found, "place-experts").action


def test_small_collectives_of_a_group_become_one():
    def rank() -> list[Any]:
        # 10 µs and 0.01 µs a byte: four of 100 bytes take 11 µs each, one of 400 takes 14 µs.
        small = [
            after(at(10 + 11 * n, 11, collective(1 + n, "ALL_REDUCE", 100)), *([n] if n else []))
            for n in range(4)
        ]
        return [*small, after(at(54, 210, collective(5, "ALL_REDUCE", 20_000)), 4)]

    found = advise(trace_of([rank(), rank()]))
    assert only(found, "merge").saving_ns == 30 * US
    assert "Merge 4 small all-reduces of all ranks, of up to 100 B, into 1" in only(found, "merge").action


def test_a_collective_begins_with_its_data_and_not_after_what_only_came_before():
    parts = preset("hgx-h100", 2).parts
    size = 1 << 20

    def rank() -> list[Any]:
        before = [node(1, "COMP", micros=100), node(2, "COMP", 1, micros=100)]
        return [*before, after(collective(3, "ALL_REDUCE", size, 1), 2), node(4, "COMP", 3, micros=50)]

    alone = simulate(trace_of([[collective(1, "ALL_REDUCE", size)]] * 2), interpret(parts).config).makespan_ns
    assert alone < 100 * US
    found = advise(trace_of([rank(), rank()]), parts)
    # The second operation hides the collective, which hid nothing; then both wait for the longer of the two.
    assert only(found, "overlap").saving_ns == alone


def test_gaps_of_the_host_are_taken_out():
    rank = [
        at(10, 40, node(1, "COMP", is_cpu_op=True, gap="program")),
        at(50, 60, node(2, "COMP", 1, is_cpu_op=True)),
        at(110, 10, collective(3, "ALL_REDUCE", 64, 2)),
    ]
    # What has no time takes 1 ns.
    assert only(advise(trace_of([rank, rank])), "host-gaps").saving_ns == 40 * US - 1


def test_advice_about_the_host_says_what_the_recording_shows_to_be_done_already():
    """A compiled job was told to compile, and one with stacks that recording them adds to it."""

    def action(*, compiled: bool = False, stacks: bool = False) -> str:
        region = "Torch-Compiled Region: 0/0" if compiled else "forward"
        rank = [
            at(1, 5, node(1, "COMP", name=region, is_cpu_op=True, thread="7", inclusive_ns=100 * US)),
            at(10, 40, node(2, "COMP", 1, is_cpu_op=True, gap="call", thread="7")),
            at(50, 60, node(3, "COMP", 2, is_cpu_op=True, thread="7")),
            at(110, 10, collective(4, "ALL_REDUCE", 64, 3)),
        ]
        trace = trace_of([rank, rank])
        if stacks:
            noted = (Attribute(WITH_STACK, ValueKind.INT64, 1),)
            trace = replace(
                trace, ranks=tuple(replace(one, metadata=(*one.metadata, *noted)) for one in trace.ranks)
            )
        return only(advise(trace), "host-gaps").action

    plain, compiled, stacks = action(), action(compiled=True), action(stacks=True)
    assert "torch.compile or, on GPUs, CUDA or HIP graphs" in plain
    assert "stacks" not in plain
    assert "100 % of it inside compiled regions" in compiled
    assert "compiled already; CUDA or HIP graphs" in compiled
    assert "torch.compile" not in compiled
    assert "Python stacks were recorded" in stacks
    assert "record again without them" in stacks


@pytest.mark.parametrize(
    ("device", "operator", "said"),
    [
        ("NVIDIA H100 80GB HBM3", "aten::mm", "torch.compile or CUDA graphs take"),
        ("AMD Instinct MI300X VF", "aten::mm", "torch.compile or HIP graphs take"),
        ("", "Cijk_Alik_Bljk_B_BS", "torch.compile or HIP graphs take"),
        ("", "aten::mm", "torch.compile or, on GPUs, CUDA or HIP graphs take"),
        ("/device:GPU:0", "jit_forward:XLA GPU module", "one compiled call (jax.jit"),
    ],
)
def test_advice_about_the_host_fits_the_framework_and_the_maker_of_the_gpu(device, operator, said):
    rank = [
        at(10, 40, node(1, "COMP", is_cpu_op=True, gap="program")),
        at(50, 60, node(2, "COMP", 1, name=operator, is_cpu_op=True)),
    ]
    trace = trace_of([rank])
    named = (Attribute(DEVICE_NAME, ValueKind.STRING, device),)
    trace = replace(trace, ranks=tuple(replace(one, metadata=named) for one in trace.ranks))
    action = only(advise(trace), "host-gaps").action
    assert said in action
    assert "before the first operation" not in action


def test_time_of_the_host_before_the_first_operation_of_the_device_is_start_up():
    rank = [
        at(10, 80, node(1, "COMP", is_cpu_op=True, gap="program")),
        at(90, 10, node(2, "COMP", 1, name="aten::mm", is_cpu_op=True)),
        at(95, 20, node(3, "COMP", 2, name="gemm", is_cpu_op=False, stream=7)),
        at(100, 20, node(4, "COMP", 2, is_cpu_op=True, gap="program")),
        at(120, 10, node(5, "COMP", 4, name="aten::mm", is_cpu_op=True)),
    ]
    action = only(advise(trace_of([rank])), "host-gaps").action
    assert "100 µs on rank 0. 80.0 µs of it lie before the first operation of the device" in action


def test_what_a_network_of_links_could_do_better():
    network = {
        "topology": ["Ring", "Ring"],
        "npus_count": [4, 2],
        "bandwidth": [50, 10],
        "latency": [500, 1000],
    }
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring", "ring"],
    }
    parts = with_model(Parts(network, system), "full")
    trace = trace_of([[collective(1, "ALL_REDUCE", 64 << 20)]] * 8)
    found = advise(trace, parts)
    assert_simulated(trace, found)
    assert {item.kind for item in found.advice} >= {"bandwidth", "latency", "chunks"}
    [first, second] = [one for one in found.sensitivity if one.name.startswith("bandwidth")]
    assert first.name == "bandwidth of dimension 0"
    assert second.more_ns < found.baseline.finish_ns < second.less_ns
    assert "less than 0.5 % of the finish is gained" in second.knee
    assert list(format_advice(found))[-1] == f"  {found.considered} simulations"
    assert found.combined is not None
    assert found.combined.saving_ns > found.advice[0].saving_ns
    assert len(found.combined.parts) <= 3


@pytest.mark.parametrize("share", [0.0, 0.004, 0.01, 0.04, 0.2, 0.9])
def test_above_the_knee_all_bandwidth_there_is_gains_a_trifle(share):
    """A finish of which a share goes with the inverse of the bandwidth: what is gained by no end of it is known."""
    base = 4_520_000_000
    scan = Scan(base, lambda factor: int(base * (1 - share + share / factor)))
    knee = scan.knee(refined=8)
    assert knee is not None or share == 0
    if knee is not None:
        assert share / knee <= TRIFLE * 1.01
        assert share / knee > TRIFLE / 4


@pytest.mark.parametrize(("compute_us", "is_said"), [(1000, True), (10_000_000, False)])
def test_a_knee_that_is_passed_is_not_said_beside_what_twice_the_bandwidth_saves(compute_us, is_said):
    network = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [0]}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["direct"],
    }
    graph = [node(1, "COMP", name="gemm", micros=compute_us), collective(2, "ALL_REDUCE", 64 << 20, 1)]
    found = advise(trace_of([graph] * 4), with_model(Parts(network, system), "full"))
    [doubled] = [item for item in of_kind(found, "bandwidth") if item.action.startswith("Double")]
    [sensitivity] = [one for one in found.sensitivity if one.name.startswith("bandwidth")]
    assert "is gained" in sensitivity.knee
    assert ("is gained" in doubled.action) == is_said


def test_what_a_single_link_could_do_better():
    """A message of 1 MB from NPU 0 to 1, then to 2: the second link is half as fast, and half of the other way is never used."""
    links = [[0, 1, 50, 500], [1, 0, 50, 500], [1, 2, 25, 500], [2, 1, 25, 500]]
    network = {"topology": ["Switch"], "npus_count": [3], "bandwidth": [1], "latency": [0], "links": links}
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
    }
    parts = with_model(Parts(network, system), "full")
    told = {"comm_tag": 0, "comm_size": 1_000_000}
    trace = trace_of(
        [
            [node(1, "COMM_SEND", comm_src=0, comm_dst=1, **told)],
            [
                node(1, "COMM_RECV", comm_src=0, comm_dst=1, **told),
                node(2, "COMM_SEND", 1, comm_src=1, comm_dst=2, **told),
            ],
            [node(1, "COMM_RECV", comm_src=1, comm_dst=2, **told)],
        ]
    )
    found = advise(trace, parts)
    assert_simulated(trace, found)
    saved = {item.action: item.saving_ns for item in found.advice if item.kind == "bandwidth"}
    slow, fast = (
        f"Double the bandwidth of the link between NPU {one} and NPU {one + 1}, both ways." for one in (1, 0)
    )
    assert saved[slow] == 2 * saved[fast] > 0
    assert saved[slow] == next(ns for said, ns in saved.items() if "of the links of" in said)
    assert found.combined is not None
    # Both links; those of a rate and one of them are one lever.
    assert found.combined.saving_ns == saved[slow] + saved[fast]
    assert not {"bandwidth", "latency"} & dict(found.refused).keys()


def test_a_replay_that_misses_its_recording_gives_ranges():
    # 50 µs between the two lie in no node: the recording ends at 120 µs, the replay at 70 µs.
    rank = [at(10, 60, node(1, "COMP")), at(120, 10, collective(2, "ALL_REDUCE", 64, 1))]
    found = advise(trace_of([rank, rank]))
    assert (found.baseline.finish_ns, found.baseline.recorded_ns) == (70 * US, 120 * US)
    assert "which it misses by −41.7 % (70.0 µs for 120 µs)" in next(format_advice(found))
    assert "misses the recorded time by −41.7 % (70.0 µs for 120 µs)" in str(_build_list(found, "job", ""))
    faster = only(found, "compute")
    assert (faster.saving_low_ns, faster.saving_ns, faster.saving_high_ns) == (0, 6 * US, 56 * US)


def test_collectives_far_slower_than_the_gpus_attain_are_named_with_the_likely_cause():
    """An all-reduce of 16 MiB of two H100 takes some 100 µs; recorded are 5 ms after the last arrival."""
    rank = [
        at(10, 1000, node(1, "COMP")),
        at(1010, 5000, collective(2, "ALL_REDUCE", 16 << 20, 1, group="dp0")),
    ]
    trace = recorded_on(trace_of([rank, rank], {"dp0": (0, 1)}), "NVIDIA H100 80GB HBM3")
    found = advise(trace)
    slow = only(found, "slow-collectives")
    alone_ns = explain(preset("hgx-h100", 2).config, "all_reduce", 16 << 20, (0, 1)).total_ns
    assert slow.saving_ns == pytest.approx(5000 * US - alone_ns, abs=1)
    assert found.advice[0] is slow
    assert "5.00 ms for 16.0 MiB" in slow.action
    assert "all had arrived" in slow.action
    assert_simulated(trace, found)
    alone = advise(replace(trace, ranks=trace.ranks[:1]))
    assert "members that were not recorded" in only(alone, "slow-collectives").action


def test_changes_of_the_system_are_simulated_on_the_family_of_the_recorded_gpu():
    trace = recorded_on(arriving(100, 100, 200), "NVIDIA H100 80GB HBM3")
    found = advise(trace)
    assert found.system_baseline is not None
    assert "hgx-h100, the family of the recorded NVIDIA H100" in found.system_baseline.words
    assert {item.baseline_ns for item in found.advice if item.about_system} == {
        found.system_baseline.finish_ns
    }
    # The all-reduce takes other than the recorded 10 µs there, which the finish differs by.
    assert (
        all(item.saving_low_ns is not None for item in found.advice if item.about_system)
        == found.system_baseline.misses
    )
    assert [item.kind for item in found.causes] == ["slow-rank", "equal-arrivals"]
    assert_simulated(trace, found)


def test_nothing_above_one_percent():
    rank = [at(10, 1000, collective(1, "ALL_REDUCE", 64)), at(1010, 1, node(2, "COMP", 1))]
    found = advise(trace_of([rank, rank]))
    assert not found.worth_it
    assert describe_advice(found).startswith("No change that was simulated saves more than 1 %")


def test_a_job_of_one_rank_that_does_not_communicate():
    found = advise(trace_of([[at(10, 100, node(1, "COMP", micros=100))]]))
    assert [item.kind for item in found.advice] == ["compute"]
    assert (
        only(
            advise(trace_of([[node(1, "COMP", micros=100)]]), preset("hgx-h100", 1).parts), "compute"
        ).saving_ns
        == 10 * US
    )


def test_without_times_a_system_is_asked_for():
    trace = trace_of([[node(1, "COMP"), collective(2, "ALL_REDUCE", 64, 1)]] * 2)
    with pytest.raises(TraceError, match="no recorded times"):
        advise(trace)
    assert advise(trace, preset("hgx-h100", 2).parts).baseline.finish_ns > 0


def test_it_stops_when_it_is_told_to():
    with pytest.raises(Cancelled):
        advise(arriving(10, 20, 90), cancel=lambda: True)


# ---------------------------------------------------------------------------------------------------
# Whole jobs


def test_the_sample_names_the_hot_expert_and_the_slow_rank_with_their_savings():
    trace = studio.read(studio.sample_path("imbalance_8r"))
    found = advise(trace)
    assert not found.baseline.misses
    assert (only(found, "balance-experts").ranks, only(found, "slow-rank").ranks) == ((5,), (2,))
    assert "rank 5 brings 1.6 × the mean" in only(found, "balance-sizes").action
    assert all(item.saving_percent > 5 for item in found.advice[:4])
    assert found.combined is not None
    assert found.combined.saving_ns > found.advice[0].saving_ns
    assert dict(found.refused).keys() >= set(OF_SYSTEM)
    assert_simulated(trace, found)


def test_a_straggler_of_a_real_job_is_named(shared):
    found = advise(read_recording(shared / "traces/torch/ddp_straggler_4r"))
    assert found.advice[0].ranks == (3,)
    assert "for rank 3" in found.advice[0].action
    assert any(item.ranks == (3,) and item.saving_percent > 1 for item in of_kind(found, "slow-rank"))


def test_the_imbalance_of_a_real_job_is_named(shared):
    trace = read_recording(shared / "traces/torch/dlrm_4r")
    found = advise(trace)
    balanced = only(found, "balance-sizes")
    assert "1.375 × the mean" in balanced.action
    assert (balanced.collective, balanced.ranks) == ("ALL_TO_ALL", (3,))
    assert_simulated(trace, found)


# ---------------------------------------------------------------------------------------------------
# Renumbering


def renumbered(trace: Trace, numbers: Sequence[int]) -> Trace:
    """The job in which rank r is called numbers[r]."""
    ranks = sorted(
        (replace(rank, number=numbers[rank.number]) for rank in trace.ranks), key=lambda rank: rank.number
    )
    groups = tuple(
        CommGroup(group.name, tuple(numbers[rank] for rank in group.ranks)) for group in trace.groups
    )
    return replace(trace, ranks=tuple(ranks), groups=groups)


@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_on_one_switch_of_equal_npus_the_numbers_of_ranks_do_not_matter(data):
    count = data.draw(st.integers(3, 4))
    micros = data.draw(
        st.lists(st.lists(st.integers(1, 400), min_size=2, max_size=2), min_size=count, max_size=count)
    )
    sizes = data.draw(st.lists(st.integers(1, 1 << 22), min_size=count, max_size=count))
    trace = trace_of(
        [
            [
                node(1, "COMP", micros=first),
                collective(2, "ALL_TO_ALL", size, 1, group="g"),
                node(3, "COMP", 2, micros=second),
                after(collective(4, "ALL_REDUCE", 1 << 16, 1, group="g"), 3),
            ]
            for (first, second), size in zip(micros, sizes, strict=True)
        ],
        {"g": range(count)},
    )
    numbers = data.draw(st.permutations(range(count)))
    parts = preset("hgx-h100", count).parts
    found, again = advise(trace, parts), advise(renumbered(trace, numbers), parts)
    assert_simulated(trace, found)

    def figures(advised: Advised, names: Sequence[int]) -> list[tuple[object, ...]]:
        return sorted(
            (item.kind, item.saving_ns, sorted(names[rank] for rank in item.ranks)) for item in advised.advice
        )

    assert figures(found, numbers) == figures(again, range(count))
    assert found.sensitivity == again.sensitivity


# ---------------------------------------------------------------------------------------------------
# The command


def test_the_command_keeps_runs_that_open_and_compare(tmp_path):
    studio.write(arriving(100, 100, 200), tmp_path / "in", "job")
    given_to = ("advise", tmp_path / "in", "--workspace", tmp_path / "ws", "--json")
    assert json.loads(run(*given_to).stdout)["advice"][0]["run"] is None
    told = json.loads(run(*given_to, "--keep").stdout)
    best = told["advice"][0]
    assert best["kind"] == "slow-rank"
    assert {
        "kind",
        "action",
        "collective",
        "group",
        "ranks",
        "nodes",
        "saving_ns",
        "saving_percent",
        "run",
    } < set(best)
    assert {"saving_low_ns", "saving_high_ns"} < set(best)
    workspace = Workspace(tmp_path / "ws")
    for item in (*told["advice"], told["combined"]):
        if item is not None and item["saving_percent"] > 1:
            kept = workspace.load_run(*item["run"].split("/"))
            assert kept.result.makespan_ns == item["baseline_ns"] - item["saving_ns"]
    compared = run("compare", told["baseline_run"], best["run"], "--workspace", tmp_path / "ws", "--json")
    report = json.loads(compared.stdout)
    [pair] = report["comparisons"]
    # The job of the change has a short name, says what was changed and that nobody recorded it.
    job, kept_run = best["run"].split("/")
    assert workspace.info(job).name == "job (rank 2: slow to median)"
    assert workspace.info(job).hypothetical == "rank 2: slow to median"
    assert workspace.run_info(job, kept_run).name == "advice: rank 2: slow to median"
    assert report["differing_settings"] == ["change"]
    assert report["sides"][1]["settings"]["change"] == "rank 2: slow to median"
    assert (pair["difference_ns"], pair["matching"]["share"]) == (-best["saving_ns"], 1)
    again = run("advise", best["run"], "--workspace", tmp_path / "ws")
    assert "saves" not in again.stdout
    assert "finish 110 µs" in again.stdout


def test_a_session_works_it_out_once_for_a_recording_and_once_for_a_run(tmp_path):
    workspace = Workspace(tmp_path)
    trace = arriving(100, 100, 200)
    parts = preset("hgx-h100", 3).parts
    job = workspace.save(trace, "job")
    run_id = workspace.save_run(job, Run("on H100", simulate(trace, interpret(parts).config), parts))
    session = Session(workspace)
    found = find_advice_for(session, job, "")
    assert found is find_advice_for(session, job, "")
    assert found.baseline.words == "replay of the recording"
    on_system = find_advice_for(session, job, run_id)
    assert on_system.baseline.finish_ns == session.run(job, run_id).result.makespan_ns
    assert {row.label for row in build_bars(found)} == {
        "rank 2: slow to median",
        "all-reduces: arrive together",
        "ranks 0–2: compute 10 % faster",
        "the best together",
    }
    assert build_bars(found)[0].combined
    assert len(on_system.sensitivity) == 2


def test_the_command_refuses_half_a_system(tmp_path):
    studio.write(arriving(10, 20, 30), tmp_path / "in", "job")
    assert "--set is given without a system" in refused("advise", tmp_path / "in", "--set", "bandwidth=3")
    assert "no file or folder" in refused("advise", tmp_path / "none", "--workspace", tmp_path / "ws")


def test_communication_that_no_network_changes_is_said_before_the_advice():
    """Changes of the network could not shorten it, and nothing said why."""
    unknown = node(1, "COMP", name="ncclDevKernel_Generic(x)", micros=300, is_cpu_op=False, stream=7)
    trace = trace_of([[unknown, collective(2, "ALL_REDUCE", 1 << 20, 1)]] * 2)
    found = advise(trace, preset("hgx-h100", 2).parts)
    assert found.baseline.doubt.startswith("2 communication kernels of unknown kind and size (300 µs a rank")
    assert list(format_advice(found))[1] == f"DOUBTFUL: {found.baseline.doubt}"
    assert as_data(found)["doubt"] == found.baseline.doubt


def test_ranks_that_wait_alike_are_searched_for_what_can_be_merged_once(monkeypatch: pytest.MonkeyPatch):
    """Their times differ, and so do their graphs, but not which result needs which."""
    searched = []
    search = schedule._find_last_needed
    monkeypatch.setattr(schedule, "_find_last_needed", lambda *given: searched.append(1) or search(*given))
    ranks = [
        [
            at(0, 10 + number, node(1, "COMP", name="gemm")),
            at(100, 50, collective(2, "ALL_REDUCE", 64, 1)),
            at(200, 50, collective(3, "ALL_REDUCE", 64, 1)),
            at(300, 50, collective(4, "ALL_REDUCE", 1 << 28, 1)),
        ]
        for number in range(4)
    ]
    trace = trace_of(ranks)
    assert len(trace.graphs) == 4
    advise(trace, preset("hgx-h100-4").parts)
    assert len(searched) == 1
