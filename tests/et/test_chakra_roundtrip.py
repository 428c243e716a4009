"""Hypothesis: our decoding is protobuf's, both kernels agree, and nothing is lost by writing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import studio
from studio.et.schema import load_schema
from studio.trace import NONE, ValueKind
from tests.et.chakra_bytes import assert_same, described, read_both, read_once, written
from tests.examples import examples
from tests.strategies import NODE_BYTES, chakra_file, nodes, traces

LONGEST_US = (2**63 - 1) // 1000
UNHURRIED = settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])


def by_protobuf(raw: bytes) -> dict[str, object]:
    """A node as protobuf-python decodes it, in the words of `described`."""
    node = load_schema().node.FromString(raw)
    start, duration = node.start_time_micros, node.duration_micros
    io = []
    for name in ("inputs", "outputs"):
        side = getattr(node, name)
        io += [side.values, side.shapes, side.types] if node.HasField(name) else [None] * 3
    return {
        "id": node.id,
        "name": node.name,
        "type": node.type,
        "ctrl": list(node.ctrl_deps),
        "data": list(node.data_deps),
        "start_ns": start * 1000 if 0 < start <= LONGEST_US else NONE,
        "duration_ns": duration * 1000 if duration <= LONGEST_US else 0,
        "io": io,
        "attrs": [attribute_by_protobuf(attr) for attr in node.attr],
    }


def attribute_by_protobuf(attr: object) -> tuple[str, str, str, str]:
    name = attr.WhichOneof("value")
    if name is None:
        return attr.name, "NONE", "None", attr.doc_string
    kind = ValueKind[name.removesuffix("_val").upper()]
    value = getattr(attr, name)
    return attr.name, kind.name, repr(list(value.values) if kind.is_list else value), attr.doc_string


def replaced(node: dict[str, object]) -> dict[str, object]:
    """Without the one thing protobuf cannot tell: whether a start of 0 was written."""
    return node | {"start_ns": NONE if node["start_ns"] == 0 else node["start_ns"]}


@UNHURRIED
@given(st.lists(nodes(), max_size=4))
def test_messages_are_decoded_as_protobuf_does(messages):
    records = [message.SerializeToString() for message in messages]
    part = read_both(chakra_file(records))
    assert len(part.graph) == len(records)
    assert [described(part, row) for row in range(len(records))] == [by_protobuf(raw) for raw in records]


@UNHURRIED
@given(st.lists(NODE_BYTES, max_size=3))
def test_any_legal_encoding_is_decoded_as_protobuf_does(records):
    part = read_both(chakra_file(records))
    assert len(part.graph) == len(records)
    assert [replaced(described(part, row)) for row in range(len(records))] == [
        by_protobuf(raw) for raw in records
    ]


@UNHURRIED
@given(st.lists(NODE_BYTES, max_size=3))
def test_writing_loses_nothing(records):
    """Once read, what is written reads as the same columns; written twice, it is the same bytes."""
    part = read_both(chakra_file(records))
    raw = written(part)
    again = read_both(raw)
    lost = {"dropped-field", "bad-text"}
    assert list(again.findings) == [f for f in part.findings if f.code not in lost]
    assert_same(again, type(part)(part.rank, part.graph, part.number, again.findings))
    assert written(again) == raw


@UNHURRIED
@given(st.lists(nodes(), max_size=4))
def test_what_protobuf_wrote_is_written_back_byte_by_byte(messages):
    """Times that do not fit are put behind the other fields; all else is canonical."""
    for message in messages:
        message.start_time_micros %= LONGEST_US
        message.duration_micros %= LONGEST_US
    raw = chakra_file([message.SerializeToString(deterministic=True) for message in messages])
    assert written(read_once(raw, native=False)) == raw


@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(traces(), st.booleans())
def test_traces_come_back_from_their_files(trace, compress):
    with tempfile.TemporaryDirectory() as folder:
        paths = studio.write(trace, folder, "job", compress=compress)
        again = studio.read(folder)
        assert again == trace
        assert [(r.number, r.file) for r in again.ranks] == [
            (r.number, f"{Path(folder).name}/job.{r.number}.et{'.gz' if compress else ''}")
            for r in trace.ranks
        ]
        listed = {g.name: list(g.ranks) for g in trace.groups if not g.inferred}
        assert (json.loads(paths[-1].read_text()) if listed else {}) == listed
        with tempfile.TemporaryDirectory() as other:
            second = studio.write(again, other, "job", compress=compress)
            assert [p.read_bytes() for p in second] == [p.read_bytes() for p in paths]
