"""Which device operations a call waits for: found by search in order, against looking at every operation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studio.et import kineto
from studio.et.format import Reading
from studio.et.link.attribute import DeviceOperations, attribute_operations
from studio.et.link.launches import LaunchedByStream
from studio.et.link.operations import from_device
from studio.trace import NONE
from tests.et.pytorch_files import device_file, kernel, launch
from tests.work import Counted

CALLS = ("cudaMemcpy", "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaLaunchKernel")
OPERATORS = 3
times = st.integers(0, 60)


@st.composite
def finders(draw: st.DrawFn) -> LaunchedByStream:
    """A recording in which anything was launched by anything, whatever the times."""
    count = draw(st.integers(1, 8))
    calls = [
        launch(draw(times), number, draw(st.sampled_from(CALLS)), draw(times)) for number in range(count)
    ]
    done = draw(st.integers(1, 40))
    kernels = [
        kernel("k", draw(times), draw(st.integers(0, 9)), 100 + number, stream=draw(st.integers(7, 9)))
        for number in range(done)
    ]
    [part] = kineto.read(Reading("x", device_file([*calls, *kernels])))
    device = part.trace
    rows = np.flatnonzero(device.is_device)
    launches = np.flatnonzero(~device.is_device)
    launch_of = st.one_of(st.just(NONE), st.sampled_from(launches.tolist()))
    launched = DeviceOperations(
        event=rows,
        launch=np.array([draw(launch_of) for _ in rows], np.int64),
        operator=np.array([draw(st.integers(NONE, OPERATORS - 1)) for _ in rows], np.int64),
        own_ns=device.duration_ns[rows],
        earlier=np.zeros(len(rows), np.bool_),
        why={},
    )
    return LaunchedByStream(device, launched)


@given(finders())
def test_a_call_waits_for_what_looking_at_every_operation_finds(finder: LaunchedByStream) -> None:
    for call in np.flatnonzero(~finder.device.is_device).tolist():
        for operation in range(NONE, OPERATORS):
            assert finder.find_awaited(call, NONE, operation) == _plainly_awaited(finder, call, operation)


@given(finders(), times)
def test_the_first_launched_from_a_time_on_is_what_looking_at_every_operation_finds(
    finder: LaunchedByStream, time_us: int
) -> None:
    for stream in range(6, 10):
        rows = next(
            (rows for key, rows in finder.streams.items() if key[1] == stream), np.array([], np.int64)
        )
        found = [place for place in rows.tolist() if finder.launch_ns[place] >= time_us * 1000]
        assert finder.first_from(stream, time_us * 1000) == (found[0] if found else NONE)


def _plainly_awaited(finder: LaunchedByStream, call: int, operation: int) -> list[int]:
    device, launched = finder.device, finder.launched
    name, begin = device.names[device.name[call]], int(device.start_ns[call])
    end = begin + int(device.duration_ns[call])
    every = range(len(launched))
    ended = [place for place in every if begin < finder.finish[place] <= end]
    if name == "cudaMemcpy":
        return [place for place in every if launched.launch[place] == call]
    if name == "cudaDeviceSynchronize":
        last = {finder.last_before(stream, begin) for _, stream in finder.streams} - {NONE}
        return sorted(last | set(_last(finder, [place for place in ended if launched.launch[place] < 0])))
    ended = [place for place in ended if finder.launch_ns[place] <= begin]
    if not ended and operation >= 0:
        mine = [
            place for place in every if launched.operator[place] == operation and launched.launch[place] >= 0
        ]
        ended = [place for place in mine if finder.finish[place] <= end and finder.launch_ns[place] <= begin]
    return _last(finder, ended)


def _last(finder: LaunchedByStream, places: list[int]) -> list[int]:
    """The place that ended last, the first of equal ones; none of none."""
    return sorted(places, key=lambda place: (-finder.finish[place], place))[:1]


@pytest.mark.parametrize("name", ["cudaMemcpy", "cudaStreamSynchronize", "cudaDeviceSynchronize"])
def test_work_grows_with_calls_not_with_calls_times_operations(name: str) -> None:
    few, many = _looked_at(name, 100), _looked_at(name, 400)
    assert many < 8 * few, "sixteen times where every call looks at every operation"


def _looked_at(name: str, count: int) -> int:
    """How many elements are looked at for so many calls, after each of which an operation ends, half of unknown launch."""
    calls = [launch(10 * number, number, name, 8) for number in range(count)]
    kernels = [kernel("k", 10 * number + 2, 3, number + count * (number % 2)) for number in range(count)]
    [part] = kineto.read(Reading("x", device_file([*calls, *kernels])))
    counted = replace(
        part.trace, **{key: getattr(part.trace, key).view(Counted) for key in ("start_ns", "duration_ns")}
    )
    rows, launches = np.flatnonzero(counted.is_device), np.flatnonzero(~counted.is_device)
    of = np.where(np.arange(count) % 2, NONE, launches)
    launched = DeviceOperations(
        event=rows,
        launch=of.view(Counted),
        operator=np.zeros(count, np.int64).view(Counted),
        own_ns=counted.duration_ns[rows],
        earlier=np.zeros(count, np.bool_),
        why={},
    )
    Counted.looked_at = 0
    finder = LaunchedByStream(counted, launched)
    for call in launches.tolist():
        finder.find_awaited(call, NONE, 0)
        finder.first_from(7, int(counted.start_ns[call]))
    return Counted.looked_at


def test_an_operation_that_many_later_launched_ones_outlasted_is_found() -> None:
    """Clocks that disagree: all that ended while the call waited seems launched after it, but for the first."""
    calls = [
        launch(0, 0),
        launch(10, 1, "cudaStreamSynchronize", 90),
        *(launch(20, 2 + at) for at in range(50)),
    ]
    kernels = [kernel("first", 11, 1, 0), *(kernel("later", 12 + at, 1, 2 + at) for at in range(50))]
    [part] = kineto.read(Reading("x", device_file([*calls, *kernels])))
    launched = attribute_operations(from_device(part.trace), part.trace)
    finder = LaunchedByStream(part.trace, launched)
    [call] = np.flatnonzero(np.array(part.trace.names)[part.trace.name] == "cudaStreamSynchronize").tolist()
    [place] = finder.find_awaited(call, NONE, NONE)
    assert part.trace.names[part.trace.name[launched.event[place]]] == "first"
