"""Golden records as files, in the form the reference simulator reads: `.et`, YAML and JSON.

Written straight from the record, by protobuf's own library and not by the writers of the package: what the readers of the
package get is not of their own making.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.internal.encoder import _VarintBytes

from studio.et import read
from studio.et.schema import get_value_field, load_schema
from studio.sim import astra
from studio.sim.config import SystemConfig
from studio.trace import NodeType, Trace, ValueKind
from tests.golden import CUSTOM_KEYS, Record

_NAME = "job"
_KINDS = {
    "involved_dim": ValueKind.BOOL_LIST,
    "pg_name": ValueKind.STRING,
    "tensor_size": ValueKind.UINT64,
    **dict.fromkeys(("comm_src", "comm_dst", "comm_tag", "comm_priority"), ValueKind.INT32),
}
"""Kinds of values by attribute, as the reference's traces have them; others are what they are in the record."""


@dataclass(frozen=True)
class Written:
    """The files of a record.

    Attributes:
        traces: The folder of `job.<rank>.et`.
        config: The system's files.
    """

    traces: Path
    config: astra.Files

    @property
    def arguments(self) -> list[str]:
        """What `chakra-studio simulate` is given."""
        named = (("system", self.config.system), ("network", self.config.network))
        optional = (("comm-groups", self.config.comm_groups), ("remote-memory", self.config.remote_memory))
        options = [f"--{name}={path}" for name, path in (*named, *optional) if path is not None]
        return [str(self.traces), *options, f"--congestion={self.config.congestion}", *self.config.options]


def write_case(record: Record, folder: Path) -> Written:
    """Write the files of a record into a folder."""
    traces = folder / "traces"
    traces.mkdir(parents=True)
    workload, npus = record["workload"], math.prod(record["network"]["npus_count"])
    _write_traces(workload.get("ranks") or [workload["all_ranks"]] * npus, traces / _NAME)
    system = dict(record["system"])
    for key, ranks in (record.get("custom_collectives") or {}).items():
        _write_traces(ranks, folder / CUSTOM_KEYS[key])
        system[key] = CUSTOM_KEYS[key]
    network = folder / "network.yml"
    network.write_text(yaml.safe_dump(record["network"]), encoding="utf-8")
    options = tuple(f"--{key}={json.dumps(value)}" for key, value in (record.get("cli") or {}).items())
    config = astra.Files(
        system=_write_json(folder / "system.json", system),
        network=network,
        comm_groups=_write_json(folder / "comm_group.json", record.get("groups")),
        remote_memory=_write_json(folder / "remote_memory.json", record.get("memory")),
        options=options,
        congestion=record["mode"],
    )
    return Written(traces, config)


def read_case(written: Written) -> tuple[Trace, SystemConfig]:
    """Read the files of a record back, as `chakra-studio simulate` does.

    Raises:
        StudioError: A file cannot be read, or the configuration is not allowed.
    """
    return read(written.traces), astra.read(written.config).config


def _write_json(path: Path, table: object) -> Any:
    if table is None:
        return None
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


def _write_traces(ranks: Sequence[Any], prefix: Path) -> None:
    """Write `<prefix>.<rank>.et`; ranks with the very same nodes are encoded once."""
    encoded: dict[int, bytes] = {}
    for rank, nodes in enumerate(ranks):
        content = encoded.get(id(nodes)) or encoded.setdefault(id(nodes), _encode(nodes))
        prefix.with_name(f"{prefix.name}.{rank}.et").write_bytes(content)


def _encode(nodes: Sequence[Record]) -> bytes:
    messages = [load_schema().metadata(version="0.0.4"), *map(_node, nodes)]
    texts = [message.SerializeToString() for message in messages]
    return b"".join(_VarintBytes(len(text)) + text for text in texts)


def _node(node: Record) -> Any:
    message = load_schema().node(
        id=node["id"],
        name=node.get("name", f"n{node['id']}"),
        type=NodeType[node["type"].removesuffix("_NODE")],
        data_deps=node.get("data_deps", ()),
        ctrl_deps=node.get("ctrl_deps", ()),
        duration_micros=node.get("duration_micros", 0),
    )
    for key, value in node.get("attrs", {}).items():
        attribute = message.attr.add(name=key)
        kind = ValueKind.BOOL if isinstance(value, bool) else _KINDS.get(key, ValueKind.INT64)
        if kind.is_list:
            getattr(attribute, get_value_field(kind)).values.extend(value)
        else:
            setattr(attribute, get_value_field(kind), value)
    return message
