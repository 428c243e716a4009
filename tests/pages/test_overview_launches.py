"""Launches and queues of a recording: on Overview, in the report and by the command."""

from __future__ import annotations

import json

from click.testing import CliRunner

import studio
from studio.analysis.job.launch_words import describe_queue
from studio.analysis.job.launches import find_launches
from studio.cli import main
from studio.comparing import build_compared_recording
from studio.figures.queues import queue_lines
from studio.pages.overview.launches import build_launches
from studio.reporting import build_report
from tests.analysis.job.test_launches import launched
from tests.handmade import node, trace_of
from tests.pages.test_simulate_runs import texts


def drawn():
    """A rank whose second operation waits 7 us in the queue of stream 7, and one operation of stream 8."""
    return trace_of(
        [
            [
                launched(1, 1, 9, 1, 3, stream=7, correlation=1),
                launched(2, 10, 30, 8, 1, stream=7, correlation=2),
                launched(3, 95, 5, 5, 4, stream=8, correlation=3),
            ]
        ]
    )


def test_page_and_report_say_the_same() -> None:
    found = find_launches(drawn())
    assert found is not None
    said = texts(build_launches(found, dark=False))
    words = "launch delay: median 1.00 µs, 99 % within 7.00 µs, longest 7.00 µs, over 3 launches"
    queue = "queue of rank 0, stream 7: 0.5 operations on average, 2 at most, empty for 60 % of the time"
    assert words[1:] in said
    assert queue in said
    text = build_report([build_compared_recording(drawn(), "monday")])
    assert words in text
    assert queue in text


def test_a_queue_is_said_to_be_of_a_part_of_the_recording_where_launches_begin_late() -> None:
    """Else it seems to contradict the time for which the device waited for the host before."""
    before = node(1, "COMP", micros=100, is_cpu_op=True)
    before.start_time_micros = 1
    found = find_launches(trace_of([[before, launched(2, 62, 39, 1, 3, stream=7, correlation=1)]]))
    assert found is not None
    [queue] = found.queues
    assert (queue.window_ns, queue.recorded_ns) == (40_000, 100_000)
    assert describe_queue(queue).endswith(
        "empty for 0 % of the time from the first launch on (40.0 µs of 100 µs)"
    )


def test_each_stream_has_a_line() -> None:
    found = find_launches(drawn())
    assert found is not None
    figure = queue_lines(found.queues, dark=True)
    assert [line.name for line in figure.data] == ["stream 7", "stream 8"]
    # From the first launch, at 0 us, to the last end, at 100: two are in the queue from 2 to 10 us.
    line = figure.data[0]
    assert next(round(length) for time, length in zip(line.x, line.y, strict=True) if 2.5 < time < 9.5) == 2
    assert line.y[-1] == 0


def test_the_command_tells_launches_by_name_and_queues(tmp_path) -> None:
    studio.write(drawn(), tmp_path / "job", "run")
    done = CliRunner().invoke(main, ["kernels", str(tmp_path / "job"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {kernel["name"]: kernel["launches"]["delay_median_ns"] for kernel in told["kernels"]} == {
        "k1": 0, "k2": 7_000, "k3": 1_000,
    }  # fmt: skip
    assert (told["launches"]["count"], told["launches"]["late"], told["launches"]["unknown"]) == (3, 0, 0)
    assert [queue["most"] for queue in told["launches"]["queues"]] == [2, 1]
    text = CliRunner().invoke(main, ["kernels", str(tmp_path / "job")]).stdout
    assert (
        "queue of rank 0, stream 8: 0.1 operations on average, 1 at most, empty for 90 % of the time" in text
    )
    assert "7.00 µs" in next(line for line in text.splitlines() if line.startswith("k2"))
