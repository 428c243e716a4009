"""Step times, from hand-drawn ranks."""

from __future__ import annotations

import numpy as np

from studio.analysis.job.step_spans import step_spans
from studio.analysis.job.step_times import step_times
from studio.timeline import read_recorded_times
from tests.handmade import node, trace_of


def at(number: int, begins: int, micros: int, name: str):
    """A compute node with a start."""
    made = node(number, "COMP", name=name, micros=micros)
    made.start_time_micros = begins
    return made


def test_a_step_lasts_to_the_first_node_of_the_next_and_the_last_to_the_end() -> None:
    """Rank 1 has no third step, and what belongs to no step counts with the one under way."""
    first = [
        at(1, 10, 5, "step0.a"),
        at(2, 20, 4, "loose"),
        at(3, 40, 9, "step1.a"),
        at(4, 70, 10, "step2.a"),
    ]
    second = [at(1, 10, 5, "step0.a"), at(2, 50, 30, "step1.a")]
    trace = trace_of([first, second])
    found = step_spans(trace, read_recorded_times(trace))
    assert found is not None
    assert found.steps.tolist() == [0, 1, 2]
    assert found.ranks.tolist() == [0, 1]
    assert (found.ns // 1000).tolist() == [[30, 30, 10], [40, 30, -1]]
    assert found.typical_ns == 30_000
    # Medians of steps: 35, 30, 10; of ranks: 30, 35.
    assert found.spread_of_steps == 25 / 30
    assert found.spread_of_ranks == 5 / 30


def test_an_annotation_of_the_profiler_encloses_its_step() -> None:
    """PyTorch's ProfilerStep is no work of the step itself."""
    marks = [at(1, 10, 90, "ProfilerStep#7"), at(3, 100, 80, "ProfilerStep#8")]
    work = [at(2, 30, 10, "aten::mm"), at(4, 120, 40, "aten::mm")]
    trace = trace_of([[*marks, *work]])
    found = step_spans(trace, read_recorded_times(trace))
    assert found is not None
    assert found.steps.tolist() == [7, 8]
    assert (found.ns // 1000).tolist() == [[90, 60]]


def test_a_job_without_steps_has_none() -> None:
    """Neither names nor annotations."""
    trace = trace_of([[at(1, 0, 10, "mm")]])
    assert step_spans(trace, read_recorded_times(trace)) is None
    bare = trace_of([[node(1, "COMP", name="step0.a", micros=3)]])
    assert step_spans(bare, read_recorded_times(bare)) is None
    assert np.all(read_recorded_times(bare).start_ns == -1)


def test_a_step_of_a_device_is_what_its_operators_launched() -> None:
    """The host is done with step 1 when the device has just begun it; the kernels run one step behind."""
    host = [
        at(1, 10, 10, "ProfilerStep#1"),
        at(2, 12, 2, "aten::mm"),
        at(3, 20, 10, "ProfilerStep#2"),
        at(4, 22, 2, "aten::mm"),
    ]
    kernels = []
    for number, begins, launch in ((5, 25, 2), (6, 60, 4)):
        kernel = at(number, begins, 30, "gemm")
        kernel.ctrl_deps.append(launch)
        stream = kernel.attr.add(name="stream")
        stream.int64_val = 7
        kernels.append(kernel)
    trace = trace_of([[*host, *kernels]])
    found = step_spans(trace, read_recorded_times(trace))
    assert found is not None
    assert found.steps.tolist() == [1, 2]
    # From 25 to 60 µs, and from there to the end at 90.
    assert (found.ns // 1000).tolist() == [[35, 30]]


def on_stream(number: int, begins: int, micros: int, launch: int | None = None):
    """A kernel, with the operator that launched it."""
    kernel = at(number, begins, micros, "gemm")
    stream = kernel.attr.add(name="stream")
    stream.int64_val = 7
    if launch is not None:
        kernel.ctrl_deps.append(launch)
    return kernel


def test_the_only_step_of_a_device_includes_what_the_host_did_before_its_first_kernel() -> None:
    """The host prepares from 12 to 60 µs, and the device has nothing to do; with work of an earlier step it is busy until 40."""
    host = [at(1, 10, 90, "ProfilerStep#1"), at(2, 12, 30, "prepare"), at(3, 50, 10, "aten::mm")]
    alone = [*host, on_stream(4, 60, 40, launch=3)]
    behind = [*host, on_stream(4, 60, 40, launch=3), on_stream(5, 5, 35)]
    trace = trace_of([alone, behind])
    found = step_spans(trace, read_recorded_times(trace))
    assert found is not None
    assert (found.ns // 1000).tolist() == [[88], [60]]


def test_the_last_step_of_a_replay_is_without_what_the_device_does_long_after() -> None:
    """The device is behind, so that all it has to do after the marks is not of the last step alone."""
    host = [
        at(1, 10, 10, "ProfilerStep#1"),
        at(2, 10, 4, "aten::mm"),
        at(3, 20, 10, "ProfilerStep#2"),
        at(4, 20, 8, "aten::mm"),
    ]
    kernels = [at(5, 15, 30, "gemm"), at(6, 45, 55, "gemm")]
    for kernel, launch in zip(kernels, (2, 4), strict=True):
        kernel.ctrl_deps.append(launch)
        kernel.attr.add(name="stream").int64_val = 7
    trace = trace_of([[*host, *kernels]])
    steps = step_times(trace, read_recorded_times(trace))
    assert [(step.name, step.recorded_ns, step.replayed_ns, step.left_ns) for step in steps] == [
        ("ProfilerStep#1", 10_000, 10_000, (0, 0)),
        ("ProfilerStep#2", 8_000, 8_000, (72_000, 72_000)),
    ]
    # Without a device, and of a single step, all that follows counts.
    for nodes in ([*host, at(7, 40, 5, "loose")], [*host[:2], kernels[0]]):
        trace = trace_of([nodes])
        last = step_times(trace, read_recorded_times(trace))[-1]
        assert (last.name[-1], last.recorded_ns, last.left_ns) == (
            ("2", 25_000, (0, 0)) if len(nodes) == 5 else ("1", 35_000, (0, 0))
        )
