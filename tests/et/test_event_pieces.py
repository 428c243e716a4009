"""Long lists of events are decoded piece by piece, with the result of decoding them at once."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.errors import TraceFormatError
from studio.et import event_columns, event_kernel, event_pieces, kineto
from studio.et.format import DevicePart, Reading
from tests.examples import examples

TEXT = st.sampled_from(
    ["aten::mm", "gloo:all_reduce", '}, {"ph": "X"', '"traceEvents": [', "ä\\\n", "[memory]", ""]
)
ODD = st.sampled_from(["7", 7.0, True, 1e400, 2**70, [1], {"x": 1}, None])
"""What a whole number may be written as by whom nobody knows."""
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "X", "f", "M", "s", "i", "XX", 7]),
        "cat": st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "ac2g", "Trace", 3, [1]]),
        "name": TEXT | st.integers(),
        "pid": st.integers(1, 3) | st.just("Spans"),
        "tid": st.integers(1, 4),
        "ts": st.floats(0, 1e9)
        # As recorders write nanoseconds, up to where microseconds in floating point are no longer exact to one.
        | st.integers(-(2**53), 2**53).map(lambda ns: ns / 1000)
        | st.integers(0, 100)
        | st.sampled_from(["soon", 1790857026000000.125, -2.5, 2**60]),
        "dur": st.floats(0, 100)
        | st.integers(-1, 9)
        | st.sampled_from([None, -2.5, 1e300, 4_700_000_000_000_000, 2**60, 2**70, "long", "7", [1], True]),
        "id": st.integers(0, 5),
    },
    optional={
        "args": st.fixed_dictionaries(
            {},
            optional={
                "External id": st.integers(0, 9) | st.none(),
                "external id": st.integers(-3, 9),
                "correlation": st.integers(0, 9) | ODD,
                "stream": st.just(7) | ODD,
                "flops": st.integers(0, 2**62),
                "grid": st.lists(st.integers(0, 2**40), min_size=3, max_size=3) | ODD,
                "Collective name": TEXT | st.none(),
                "Process Group Name": st.sampled_from(["0", "tp"]),
                "Input Dims": st.sampled_from([[[4, 4], []], [[2]], []]),
                "Input type": st.sampled_from([["float", ""], ["int"], [], "float"]),
                "Concrete Inputs": st.sampled_from([["", "7"], ['a"b'], [[1, {"x": None}], True]]),
                "Bytes": st.integers(-9, 9),
                "Addr": st.integers(0, 9),
                "nested": st.just([{"ph": "X"}, {"ph": "X"}]),
            },
        )
    },
)


def outcome(raw: bytes) -> object:
    try:
        parts = kineto.read(Reading("rank0.json", raw))
    except TraceFormatError as error:
        return str(error)
    return [describe_part(part) for part in parts]


def describe_part(part: object) -> object:
    assert isinstance(part, DevicePart)
    columns = [getattr(part.trace, field.name) for field in fields(part.trace)]
    return part.findings, [c.tolist() if isinstance(c, np.ndarray) else repr(c) for c in columns]


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch):
    def choose(size: int) -> None:
        monkeypatch.setattr(event_pieces, "_PIECE_BYTES", size)
        monkeypatch.setattr(event_pieces, "_WORTH", 0)

    return choose


@pytest.mark.parametrize("compiled", [True, False])
def test_pieces_make_the_whole(tiny_pieces, monkeypatch, compiled: bool) -> None:
    monkeypatch.setattr(kineto, "is_worth_compiling", lambda _size: compiled)

    @settings(deadline=None, max_examples=examples(80))
    @given(st.lists(EVENTS, max_size=12), st.booleans(), st.sampled_from([None, 1]), st.integers(0, 2**32))
    def check(events: list[object], bare: bool, indent: int | None, seed: int) -> None:
        head = {"schemaVersion": 1, "traceEvents": events, "baseTimeNanoseconds": 5, "traceName": "[}"}
        raw = json.dumps(events if bare else head, indent=indent).encode()
        rng = Random(seed)
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] = rng.choice(b'{}[],"\\x0')
        for data in (raw, bytes(damaged), raw[: rng.randrange(len(raw))]):
            tiny_pieces(1 << 30)
            whole = outcome(data)
            tiny_pieces(rng.choice((1, 60, 300)))
            assert outcome(data) == whole

    check()


@pytest.mark.parametrize("field", ["ts", "dur", "External id"])
def test_numbers_are_those_of_the_decoder_however_they_are_written(
    tiny_pieces, monkeypatch, field: str
) -> None:
    """Those that no recorder writes, and what is none, too: what the kernel does not take at a glance it leaves to others."""
    spelled = [
        "0",
        "-0",
        "7",
        "-7",
        "007",
        "-",
        "+7",
        ".5",
        "5.",
        "5.0",
        "5.125",
        "-5.125",
        "05.5",
        "00",
        "1e3",
        "1E3",
        "5.5e1",
    ]
    spelled += ["1" * digits for digits in (15, 16, 17, 18, 19, 20)]
    spelled += [f"{'4' * 13}.{'5' * digits}" for digits in (2, 3, 4, 5, 6, 7)]
    spelled += [
        "9007199254740991",
        "9007199254740992",
        "-9007199254740992",
        "9007199254740.993",
        "5.5.5",
        "5-5",
        "5 5",
        '"5"',
        "null",
    ]
    told = {}
    for compiled in (True, False):
        monkeypatch.setattr(kineto, "is_worth_compiling", lambda _size, compiled=compiled: compiled)
        tiny_pieces(1)
        for number in spelled:
            of_event = {"ts": "1", "dur": "1", "External id": "1", field: number}
            event = (
                '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": %s, "dur": %s, "args": {"External id": %s}}'
            )
            events = ",\n".join([event % tuple(of_event.values())] * 3)
            told[compiled, number] = outcome(f'{{"traceEvents": [{events}]}}'.encode())
    for number in spelled:
        assert told[True, number] == told[False, number], number
    # Some of them are read, others refused.
    assert len({str(told[True, number])[:60] for number in spelled}) > 2


def test_a_long_list_is_taken_apart(tiny_pieces) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": str(n), "ts": n, "dur": 1} for n in range(50)]
    raw = json.dumps({"traceEvents": events, "host_name": "node7"}).encode()
    tiny_pieces(200)
    pieces = event_pieces.split_events(raw)
    assert pieces is not None
    parts = [json.loads(piece) for piece in pieces.lists(lambda _done: None)]
    assert len(parts) > 5
    last = json.loads(pieces.rest())
    assert [event for part in parts for event in part] + last["traceEvents"] == events
    assert last["host_name"] == "node7"


@pytest.mark.parametrize("compiled", [True, False])
def test_durations_that_cannot_be_are_counted_over_all_pieces(tiny_pieces, monkeypatch, compiled) -> None:
    """What a decoder has to look at (1e300) is in some pieces only; those below zero the kernel reads by itself."""
    durations = [-1, 5, -0.5, None, 1e300, 7, -2, 10**16] * 5
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": at, "dur": dur} for at, dur in enumerate(durations)
    ]
    tiny_pieces(200)
    monkeypatch.setattr(kineto, "is_worth_compiling", lambda _size: compiled)
    raw = json.dumps({"traceEvents": events}).encode()
    split = event_pieces.split_events(raw)
    assert split is not None
    assert len(split.between) > 3
    [part] = kineto.read(Reading("rank0.json", raw))
    assert isinstance(part, DevicePart)
    assert part.trace.duration_ns.tolist() == [0, 5000, 0, 0, 0, 7000, 0, 0] * 5
    assert [finding.message[-4:] for finding in part.findings] == [" 25."]


def test_a_recording_is_read_the_same_by_the_kernel_which_leaves_none_of_it_to_others(
    monkeypatch, shared
) -> None:
    packed = (shared / "traces/foreign/mi300_resnet_act_checkpoint.json.gz").read_bytes()
    raw = gzip.decompress(packed)
    left: list[bool] = []
    read_rows = kineto.read_rows

    def watched(*given: object) -> object:
        rows = read_rows(*given)
        left.append(rows is None)
        return rows

    monkeypatch.setattr(kineto, "read_rows", watched)
    outcomes = []
    for compiled in (True, False):
        monkeypatch.setattr(kineto, "is_worth_compiling", lambda _size, compiled=compiled: compiled)
        outcomes.append(outcome(raw))
    assert outcomes[0] == outcomes[1]
    assert left
    assert not any(left)


def test_a_piece_that_is_no_text_is_left_to_the_decoder_and_one_beyond_ascii_is_not():
    """Bytes are looked at where they lie in the file; all events that are at hand are taken without being picked out."""
    before, after = b'{"traceEvents": [', b"]}"
    event = '{"ph": "X", "cat": "cpu_op", "name": "NAME", "pid": 1, "tid": 2, "ts": 3, "dur": 4}'
    for name, is_read in ((b"aten::mm", True), ("aten::größe".encode(), True), (b"aten::\xff", False)):
        piece = event.encode().replace(b"NAME", name)
        rows = event_columns.read_rows(before + piece + after, len(before), len(before) + len(piece))
        assert (rows is not None) == is_read, name
        if rows is not None:
            words, codes = rows.texts(event_kernel.NAME)
            assert [words[code] for code in codes] == [b'"' + name + b'"']
            assert rows.take(np.arange(1)) is rows
            assert len(rows.take(np.arange(0))) == 0
            assert not np.shares_memory(rows.column(event_kernel.START), rows.columns)
