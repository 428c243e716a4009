"""Long lists of events are decoded piece by piece, with the result of decoding them at once."""

from __future__ import annotations

import json
from dataclasses import fields
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studio.errors import TraceFormatError
from studio.et import event_pieces, kineto
from studio.et.format import DevicePart, Reading
from tests.examples import examples

TEXT = st.sampled_from(["aten::mm", "gloo:all_reduce", '}, {"ph": "X"', '"traceEvents": [', "ä\\\n", ""])
EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "f", "M", "s"]),
        "cat": st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "ac2g", "Trace", 3, [1]]),
        "name": TEXT | st.integers(),
        "pid": st.integers(1, 3) | st.just("Spans"),
        "tid": st.integers(1, 4),
        "ts": st.floats(0, 1e9) | st.integers(0, 100) | st.just("soon"),
        "dur": st.floats(0, 100),
        "id": st.integers(0, 5),
    },
    optional={
        "args": st.fixed_dictionaries(
            {},
            optional={
                "External id": st.integers(0, 9) | st.none(),
                "correlation": st.integers(0, 9),
                "Collective name": TEXT,
                "nested": st.just([{"ph": "X"}, {"ph": "X"}]),
            },
        )
    },
)


def outcome(raw: bytes) -> object:
    try:
        [part] = kineto.read(Reading("rank0.json", raw))
    except TraceFormatError as error:
        return str(error)
    assert isinstance(part, DevicePart)
    columns = [getattr(part.trace, field.name) for field in fields(part.trace)]
    return part.findings, [c.tolist() if isinstance(c, np.ndarray) else repr(c) for c in columns]


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch):
    def choose(size: int) -> None:
        monkeypatch.setattr(event_pieces, "_PIECE_BYTES", size)
        monkeypatch.setattr(event_pieces, "_WORTH", 0)

    return choose


def test_pieces_make_the_whole(tiny_pieces) -> None:
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
