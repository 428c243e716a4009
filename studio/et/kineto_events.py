"""The events of a Kineto trace as its JSON has them: the fields that are read, decoded at once or, where some are odd, one by one."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from studio.decoding import build_decoder
from studio.et.damaged_json import decode_or_recover
from studio.trace import NONE, Finding


class Args(msgspec.Struct, gc=False):
    """Arguments of an event that are read, under the names that Kineto gives them; each may hold anything."""

    external: Any = msgspec.field(default=NONE, name="External id")
    external_old: Any = msgspec.field(default=NONE, name="external id")
    record_function: Any = msgspec.field(default=NONE, name="Record function id")
    correlation: Any = NONE
    stream: Any = NONE
    device: Any = NONE
    bytes: Any = NONE
    grid: Any = None
    flops: Any = NONE
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    device_type: Any = msgspec.field(default=NONE, name="Device Type")
    device_id: Any = msgspec.field(default=NONE, name="Device Id")
    address: Any = msgspec.field(default=NONE, name="Addr")
    total: Any = msgspec.field(default=NONE, name="Total Allocated")
    reserved: Any = msgspec.field(default=NONE, name="Total Reserved")
    wait_stream: Any = msgspec.field(default=NONE, name="wait_on_stream")
    wait_record: Any = msgspec.field(default=NONE, name="wait_on_cuda_event_record_corr_id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    in_split: Any = msgspec.field(default=None, name="In split size")
    out_split: Any = msgspec.field(default=None, name="Out split size")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    first_rank: Any = msgspec.field(default=None, name="Global rank start")
    rank_stride: Any = msgspec.field(default=None, name="Global rank stride")
    seq: Any = msgspec.field(default=None, name="Seq")
    source: Any = msgspec.field(default=None, name="Src Rank")
    target: Any = msgspec.field(default=None, name="Dst Rank")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Concrete Inputs")


class Event(msgspec.Struct, gc=False):
    """An event: fields that are read, each of which may hold anything."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = ""
    tid: Any = ""
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: Args | None = None


class Content(msgspec.Struct):
    """A trace: its events, decoded or not, and the fields that tell of the recording."""

    events: Any = msgspec.field(default=None, name="traceEvents")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    base: Any = msgspec.field(default=None, name="baseTimeNanoseconds")
    host: Any = msgspec.field(default=None, name="host_name")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    calls: Any = msgspec.field(default=None, name="chakra_studio_calls")
    stacks: Any = msgspec.field(default=None, name="with_stack")


class _Object(Content):
    events: list[Event] | None = msgspec.field(default=None, name="traceEvents")


NO_ARGS = Args()
decode_object = build_decoder(_Object)
decode_list = build_decoder(list[Event])
decode_anything = build_decoder(Any)
decode_arguments = build_decoder(Args)


def decode_trace(raw: bytes | memoryview) -> Content:
    """Decode a trace whose fields are of the kinds that Kineto writes."""
    bare = bytes(raw[:64]).lstrip()[:1] == b"["
    return Content(events=decode_list(raw)) if bare else decode_object(raw)


def decode_content(data: bytes | memoryview, name: str) -> tuple[Content, tuple[Finding, ...]]:
    """Decode a trace, recovered where it is damaged, event by event where fields are of other kinds."""
    try:
        return decode_or_recover(data, decode_trace, name)
    except msgspec.ValidationError:
        return decode_or_recover(data, _decode_by_hand, name)


def _decode_by_hand(raw: bytes | memoryview) -> Content:
    """Decode a file in which some events are malformed."""
    value = decode_anything(raw)
    head = value if isinstance(value, dict) else {}
    content = Content(
        distributed=head.get("distributedInfo"),
        base=head.get("baseTimeNanoseconds"),
        host=head.get("host_name"),
        devices=head.get("deviceProperties"),
        calls=head.get("chakra_studio_calls"),
        stacks=head.get("with_stack"),
    )
    events = value if isinstance(value, list) else head.get("traceEvents")
    if isinstance(events, list):
        content.events = [_decode_event_by_hand(event) for event in events if isinstance(event, dict)]
    return content


_RAW = ("Input Dims", "Input type", "Concrete Inputs")
_ARG_NAMES = tuple(zip(Args.__struct_fields__, Args.__struct_encode_fields__, strict=True))


def _decode_event_by_hand(event: dict[str, Any]) -> Event:
    given = event.get("args")
    args = None
    if isinstance(given, dict):
        args = Args()
        for field, name in _ARG_NAMES:
            if name not in _RAW:
                setattr(args, field, given.get(name))
        args.dims, args.types, args.values = (
            msgspec.Raw(msgspec.json.encode(given.get(name, []))) for name in _RAW
        )
    keys = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id")
    return Event(args=args, **{key: event.get(key) for key in keys})


@lru_cache(maxsize=1 << 14)
def decode_text(raw: bytes) -> str:
    """Return the text that a value is shown as; "" for one that is missing."""
    value = decode_value(raw)
    return value if isinstance(value, str) else str(value)


def decode_value(raw: bytes) -> Any:
    """Return a value of the file; "" for one that is missing."""
    return decode_anything(raw) if raw else ""
