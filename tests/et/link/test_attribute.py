"""Finding the operator around a launch, the caller around a call, and the last writer, against plain searches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from studio.et import kineto, pytorch
from studio.et.format import Reading
from studio.et.link.attribute import attribute_operations
from studio.et.link.join import join
from studio.et.link.operations import find_parents, from_device
from studio.et.link.pair import pair_files
from tests.et.pytorch_files import device_file, event, host_file, kernel, launch, node


@st.composite
def calls(draw):
    """Operators of two threads, properly nested, and launches anywhere."""
    events = []
    for tid in (1, 2):
        spans = [(0, 1000)]
        for _ in range(draw(st.integers(0, 8))):
            low, high = draw(st.sampled_from(spans))
            if high - low > 4:
                begin = draw(st.integers(low + 1, high - 2))
                inside = (begin, draw(st.integers(begin + 1, high - 1)))
                if all(
                    a >= inside[1]
                    or b <= inside[0]
                    or (a < inside[0] and inside[1] < b)
                    or (inside[0] < a and b < inside[1])
                    for a, b in spans
                ):
                    spans.append(inside)
        events += [event(f"op{at}", low, high - low, tid=tid) for at, (low, high) in enumerate(spans[1:])]
    count = draw(st.integers(0, 8))
    for number in range(count):
        at, tid = draw(st.integers(0, 1000)), draw(st.sampled_from((1, 2, 3)))
        events += [launch(at, number, tid=tid, duration_us=0), kernel(f"k{number}", 2000 + number, 1, number)]
    return events


@given(calls())
def test_a_launch_belongs_to_the_innermost_operator_around_it(events):
    [part] = kineto.read(Reading("x", device_file(events)))
    operations = from_device(part.trace)
    found = attribute_operations(operations, part.trace)
    device = part.trace
    for place, row in enumerate(found.operator.tolist()):
        call = int(found.launch[place])
        time, lane = int(device.start_ns[call]), int(device.thread[call])
        around = [
            one
            for one in range(len(operations))
            if operations.thread[one] == lane and operations.start_ns[one] <= time <= operations.end_ns[one]
        ]
        shortest = min((int(operations.end_ns[one] - operations.start_ns[one]) for one in around), default=-1)
        assert (row < 0) == (not around)
        if around:
            # At a boundary two may end and begin; either lies around it.
            assert row in around
            assert int(operations.end_ns[row] - operations.start_ns[row]) == shortest or time in (
                *operations.start_ns[around].tolist(),
                *operations.end_ns[around].tolist(),
            )


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(0, 1)), max_size=12))
def test_the_caller_is_the_shortest_that_covers(spans):
    start = np.array([low for low, _, _ in spans], np.int64)
    end = start + np.array([length for _, length, _ in spans], np.int64)
    thread = np.array([lane for _, _, lane in spans], np.int64)
    parent, _ = find_parents(start, end, thread)
    for row, above in enumerate(parent.tolist()):
        if above >= 0:
            assert thread[above] == thread[row]
            assert start[above] <= start[row]
            assert end[row] <= end[above]


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_files_are_paired_by_what_they_hold(hosts, devices):
    """No file tells its rank; process ids and names do not either."""
    told = []
    for which in hosts:
        raw = host_file([node(3 + at, f"rank{which}::op{at}", rf_id=3 + at) for at in range(5)], pid=9)
        told.append((pytorch.read(Reading(f"h{which}", raw))[0].trace, None))
    timed = []
    for which in devices:
        raw = device_file([event(f"rank{which}::op{at}", at, 1, pid=9, rf=3 + at) for at in range(5)])
        timed.append((kineto.read(Reading(f"k{which}", raw))[0].trace, None))
    pairs = pair_files(told, timed)
    assert sorted((one.host.file[1:], one.device.file[1:]) for one in pairs) == [
        (str(n), str(n)) for n in range(4)
    ]
    assert all(one.joined.count == 5 and not one.refused for one in pairs)


def attribute_names(events):
    """The operator of each device operation, by name; None where it has none, and why."""
    device = kineto.read(Reading("x", device_file(events)))[0].trace
    operations = from_device(device)
    found = attribute_operations(operations, device)
    names = [operations.name_of(row) if row >= 0 else None for row in found.operator.tolist()]
    return dict(zip((device.names[device.name[at]] for at in found.event), names, strict=True)), found.why


def test_without_a_launch_a_kernel_belongs_to_the_innermost_operator_of_its_external_id():
    events = [
        event("step", 0, 100, "user_annotation", external=3),
        event("c10d::allreduce_", 10, 30, external=2),
        event("record_param_comms", 12, 20, external=3),
        event("later", 500, 20, external=4),
        event("none", 40, 10, external=0),
        kernel("reduce", 50, 9, 101, external=3),
        kernel("bare", 60, 9, -1, external=2),
        kernel("unknown", 70, 9, 103, external=9),
        kernel("zero", 80, 9, 104, external=0),
        kernel("absent", 90, 9, 105),
        kernel("before", 100, 9, 106, external=4),
    ]
    found, why = attribute_names(events)
    nobody = dict.fromkeys(("unknown", "zero", "absent", "before"))
    assert found == {"reduce": "record_param_comms", "bare": "c10d::allreduce_", **nobody}
    assert why == {"no launch is recorded": 4}


def test_a_launch_says_more_than_an_external_id():
    """What was launched before the recording began may carry any id."""
    events = [
        event("mm", 0, 10, external=1),
        event("add", 20, 10, external=2),
        launch(5, 500),
        kernel("launched", 30, 5, 500, external=2),
        kernel("earlier", 1, 5, 400, external=2),
    ]
    found, why = attribute_names(events)
    assert found == {"launched": "mm", "earlier": None}
    assert why == {"launched before the recording began": 1}


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from("ab")), max_size=10),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from("ab")), max_size=10),
)
def test_joined_operators_have_equal_ids_and_names_and_no_event_twice(ours, theirs):
    host = pytorch.read(
        Reading("h", host_file([node(3 + at, name, rf_id=rf) for at, (rf, name) in enumerate(ours)]))
    )[0].trace
    device = kineto.read(
        Reading("k", device_file([event(name, at, 1, rf=rf) for at, (rf, name) in enumerate(theirs)]))
    )[0].trace
    joined = join(host, device)
    taken = [one for one in joined.event.tolist() if one >= 0]
    assert len(taken) == len(set(taken))
    for row, at in enumerate(joined.event.tolist()):
        if at >= 0:
            assert host.names[row] == device.names[device.name[at]]
            assert host.numbers["rf_id"][row] == device.record_function[at] > 0
