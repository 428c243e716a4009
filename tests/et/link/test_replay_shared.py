"""Linked recordings in the simulator: they end, and played again they take the recorded time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import studio
from studio.analysis.job.kinds import NOTHING, infer_node_kinds
from studio.analysis.job.step_times import StepTime
from studio.cli import main
from studio.commands.base import replay as replaying
from studio.doctor import examine
from studio.errors import TraceError
from studio.et import LinkOptions
from studio.sim import simulate
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions
from studio.sim.parts import interpret
from studio.sim.recorded_order import order_by_times
from studio.sim.replays import as_replay, build_idle_system
from studio.sim.retargeting import retarget
from studio.trace import Trace, are_idle, read_dense_column, read_int_column
from tests.kernels import compiled
from tests.recordings import link_recording

RUNS = [
    "torch_synthetic_device/ddp_mlp_4r", "torch_synthetic_device/dlrm_4r", "torch_synthetic_device/mnist_1r",
    "torch/ddp_mlp_4r", "torch/ddp_straggler_4r", "torch/dlrm_4r", "torch/dp2tp2_mlp_4r", "torch/fsdp_gpt_2r",
    "torch/pp_2r", "torch/ddp_gpt_2r", "torch/tp_mlp_2r",
    "torch_racy/ddp_plain_4r", "torch_racy/ddp_plain_4r_wrong_parent", "torch_racy/fsdp_2r",
]  # fmt: skip
BOUND = 0.02
"""How far a step of a rank may be off; `docs/simulator.md` tells how far each run is."""


def replayed(trace: Trace) -> list[StepTime]:
    parts = as_replay(build_idle_system(len(trace.ranks)))
    return replaying.compare_steps(simulate(trace, interpret(parts).config, native=compiled()))


def alarms(trace: Trace) -> list[str]:
    """What the doctor says would keep a job from its end: all of these came to theirs."""
    return [found.message for found in examine(trace) if found.level == "error" or found.code == "deadlock"]


@pytest.mark.parametrize("run", RUNS)
def test_a_replay_takes_the_recorded_time_and_a_simulation_ends(shared, run, record_property):
    """Every step of every rank; and with simulated communication every rank finishes, nothing repaired."""
    trace = link_recording(shared / "traces" / run)
    assert alarms(trace) == []
    steps = replayed(trace)
    assert {one.rank for one in steps} == {rank.number for rank in trace.ranks}
    for one in steps:
        record_property(f"{run} rank {one.rank} {one.name}", f"{100 * one.difference:+.2f} %")
        assert abs(one.difference) < BOUND, one
    dims = (Dimension("switch", len(trace.ranks), 25.0, 500.0),)
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    config = SystemConfig(
        Topology(dims), algorithms=dict.fromkeys(kinds, (Algorithm("ring"),)), extensions=Extensions()
    )
    assert (simulate(trace, config, native=compiled()).finish_ns > 0).all()


ALONE = [
    "foreign/h100_qwen1.5_0.5b__1016005.json.gz", "foreign/h100_timesformer__1016002.json.gz",
    "foreign/mi300_resnet_act_checkpoint.json.gz", "foreign/vllm_decode_full_graph_execution.json.gz",
    "foreign/vllm_prefilldecode_graph_execution.json.gz", "public/hta/cuda_event_sync.json.gz",
    "public/hta/old_categories_inference_rank_1.json.gz", "public/hta/mtia_inference_rank_0.json.gz",
]  # fmt: skip
"""Kineto traces alone, the cheap ones of those in the table of `docs/simulator.md`."""


@pytest.mark.parametrize("file", ALONE)
def test_a_kineto_trace_alone_replays_in_the_recorded_time(shared, file, record_property):
    """Idle streams, launches outside the recording, long ranges of the program and copies that block their call."""
    trace = link_recording(shared / "traces" / file)
    assert alarms(trace) == []
    steps = replayed(trace)
    assert steps
    for one in steps:
        record_property(f"{file} {one.name}", f"{100 * one.difference:+.2f} %")
        assert abs(one.difference) < BOUND, one


def test_a_faster_device_shortens_the_wait_of_a_small_copy_behind_its_work(shared):
    """The last call of the recording waits 126 ms for a copy of 3 µs that the kernels hold up."""
    trace = studio.link(shared / "traces/foreign/h100_timesformer__1016002.json.gz")
    faster, _ = retarget(trace, "b200")
    done = simulate(faster, interpret(as_replay(build_idle_system(1))).config, native=compiled())
    assert 280_000_000 < done.finish_ns[0] < 300_000_000


def test_threads_of_a_pool_that_wake_each_other_by_what_takes_no_time_replay(shared):
    [step] = replayed(studio.read(shared / "traces" / "foreign" / "mi300_jax_conv.xplane.pb"))
    assert abs(step.difference) < BOUND, step


def test_idle_streams_are_no_work_and_without_them_the_time_is_missing(shared):
    file = shared / "traces/foreign/vllm_decode_full_graph_execution.json.gz"
    trace, without = studio.link(file), studio.link(file, options=LinkOptions(idle=False))
    [graph], [other] = trace.graphs, without.graphs
    rows = np.flatnonzero(are_idle(graph))
    assert {graph.strings[code] for code in graph.name[rows].tolist()} == {"device gap"}
    assert len(graph) == len(other) + len(rows)
    assert (infer_node_kinds(graph)[rows] == NOTHING).all()
    assert (np.isin(rows, read_int_column(graph, "stream")[0])).all()
    assert replayed(without)[0].difference < -BOUND


def test_a_step_without_nodes_is_not_compared(shared):
    """Its mark is all that was recorded of it."""
    file = shared / "traces/public/hta/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    done = CliRunner().invoke(main, ["simulate", str(file), "--replay"])
    assert done.exit_code == 0, done.output
    [line] = [line for line in done.output.splitlines() if "ProfilerStep#2" in line]
    assert line.endswith("–")
    assert "nothing was recorded in that step, so the difference cannot be told" in done.output
    assert "nan" not in done.output


MERGED = [*(f"torch/{name}" for name in (
    "ddp_gpt_2r", "ddp_mlp_4r", "ddp_straggler_4r", "dlrm_4r", "dp2tp2_mlp_4r", "fsdp_gpt_2r", "pp_2r", "tp_mlp_2r", "mnist_old",
)), *(f"torch_synthetic_device/{name}" for name in ("ddp_mlp_4r", "dlrm_4r", "mnist_1r"))]  # fmt: skip
"""What Chakra's linker wrote: it tells neither what lay between operators nor which of them ran beside each other."""


def read_merged(shared: Path, job: str) -> Trace:
    return studio.read(sorted((shared / "traces/golden").glob(f"{job}*.etplus.json.gz")))


@pytest.mark.parametrize("job", MERGED)
def test_a_merged_trace_replays_in_the_order_of_its_recording(shared, job):
    """All that took time begins when it did, and the files that are made of the job hold the dependencies of the reference."""
    trace = read_merged(shared, job)
    result = simulate(
        trace, interpret(as_replay(build_idle_system(len(trace.ranks)))).config, native=compiled()
    )
    steps = replaying.compare_steps(result)
    assert {one.rank for one in steps} == {rank.number for rank in trace.ranks}
    assert all(abs(one.difference) < 0.0001 for one in steps), steps
    times, begin = (
        result.node_times(),
        min(int(graph.start_ns[graph.start_ns >= 0].min()) for graph in trace.graphs),
    )
    for rank, first in zip(trace.ranks, times.first.tolist(), strict=True):
        start = trace.graph_of(rank).start_ns
        rows = np.flatnonzero(start >= 0)
        assert np.abs(times.start_ns[first + rows] + begin - start[rows]).max() < 1000
    assert result.trace is trace


def slowed(trace: Trace, number: int) -> Trace:
    """The job with operators of a rank that take three times as long, those that call no other."""
    graph = trace.graph_of(trace.rank(number))
    names = np.array([name.startswith("aten::") for name in graph.strings])
    whole = read_dense_column(graph, "inclusive_ns", -1)
    chosen = names[graph.name] & (whole <= graph.duration_ns)
    graphs = (*trace.graphs, replace(graph, duration_ns=graph.duration_ns * np.where(chosen, 3, 1)))
    ranks = [replace(rank, graph=len(graphs) - 1) if rank.number == number else rank for rank in trace.ranks]
    return replace(trace, graphs=graphs, ranks=tuple(ranks))


@pytest.mark.parametrize(("job", "number", "within_ns"), [
    ("torch/ddp_straggler_4r", 2, 100_000), ("torch/ddp_straggler_4r", 3, 100_000), ("torch/dlrm_4r", 0, 200_000),
    ("torch/dlrm_4r", 2, 500_000),
])  # fmt: skip
def test_a_slower_rank_holds_up_the_others_as_in_the_linked_recording(shared, job, number, within_ns):
    """By 17 to 45 ms: its dependencies are those of linking, though found by times alone."""
    late = []
    for trace in (link_recording(shared / "traces" / job), order_by_times(read_merged(shared, job))):
        config = interpret(as_replay(build_idle_system(len(trace.ranks)))).config
        before, after = (
            simulate(one, config, native=compiled()).finish_ns for one in (trace, slowed(trace, number))
        )
        late.append((after - before)[[0, 3]])
    assert late[0].max() > 15_000_000
    assert np.abs(late[0] - late[1]).max() < within_ns


def test_the_sequence_of_collectives_can_be_left_out(shared):
    """The simulator then puts them in order by their numbers; where those do not count either, the job hangs."""
    trace = studio.link(shared / "traces/torch/ddp_mlp_4r", options=LinkOptions(sequence=False))
    chained = link_recording(shared / "traces/torch/ddp_mlp_4r")
    for with_chain, without in zip(chained.graphs, trace.graphs, strict=True):
        assert int(without.data.offsets[-1]) < int(with_chain.data.offsets[-1])
    topology = Topology((Dimension("switch", 4, 25.0, 500.0),))
    config = SystemConfig(topology, algorithms={"all_reduce": (Algorithm("ring"),)}, extensions=Extensions())
    simulate(trace, config, native=compiled())
    ready = replace(config, extensions=Extensions(collective_order="ready"))
    simulate(chained, ready, native=compiled())
    with pytest.raises(TraceError, match="never finish"):
        simulate(trace, ready, native=compiled())


def test_the_command_links_and_replays(shared, tmp_path):
    runner = CliRunner()
    linked = runner.invoke(main, ["link", str(shared / "traces/torch/dlrm_4r"), "-o", str(tmp_path / "out")])
    assert linked.exit_code == 0, linked.output
    done = runner.invoke(main, ["simulate", str(tmp_path / "out"), "--replay"])
    assert done.exit_code == 0, done.output
    assert "recorded      replayed  difference" in done.output
    told = json.loads(runner.invoke(main, ["simulate", str(tmp_path / "out"), "--replay", "--json"]).stdout)
    assert {(one["rank"], one["step"]) for one in told["steps"]} == {
        (rank, f"ProfilerStep#{step}") for rank in range(4) for step in (1, 2)
    }
    assert max(abs(one["difference"]) for one in told["steps"]) < 0.02
