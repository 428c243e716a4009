"""Dumps of PyTorch's flight recorder, written by hand from its public source (pytorch/pytorch, FlightRecorderDetail.hpp)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START_NS = 1_724_779_239_936_775_119


def operation(
    serial: int,
    name: str = "all_reduce",
    state: str = "completed",
    *,
    group: tuple[str, str] = ("0", "default_pg"),
    sizes: Sequence[int] = (1024, 1024),
    **more: Any,
) -> dict[str, Any]:
    """An entry, as the recorder writes it for one collective or message."""
    created = START_NS + 1_000_000 * serial
    ended = created + 400_000 if state == "completed" else None
    return {
        "frames": [
            {"name": name, "filename": "/opt/torch/distributed/distributed_c10d.py", "line": 2501},
            {"name": "step", "filename": "train.py", "line": 40 + serial},
        ],
        "record_id": serial,
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": serial,
        "p2p_seq_id": 0,
        "op_id": serial,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": created,
        "input_sizes": [list(sizes)],
        "input_dtypes": ["Float"],
        "output_sizes": [list(sizes)],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": created + 100_000 if state != "scheduled" else None,
        "time_discovered_completed_ns": ended,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        **more,
    }


def message(serial: int, name: str, state: str = "completed", **more: Any) -> dict[str, Any]:
    """An entry of a send or a receive."""
    return operation(serial, name, state, is_p2p=True, collective_seq_id=0, p2p_seq_id=serial, **more)


def dump(
    entries: Sequence[Mapping[str, Any]], groups: Mapping[tuple[str, str], Sequence[int]]
) -> dict[str, Any]:
    """A dump of one rank."""
    config = {
        name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
        for (name, desc), ranks in groups.items()
    }
    done = max((entry["collective_seq_id"] for entry in entries if entry["state"] == "completed"), default=-1)
    status = {"last_enqueued_collective": 9, "last_started_collective": -1, "last_completed_collective": done}
    return {
        "version": "2.10",
        "pg_config": config,
        "comm_lib_version": "2.27.5",
        "pg_status": {"0": status},
        "entries": [dict(entry) for entry in entries],
    }


def as_json(content: Mapping[str, Any]) -> bytes:
    """A dump as the recorder's JSON: keys in order, 0 for a time that is not known."""
    entries = [
        {key: 0 if value is None else value for key, value in entry.items() if key != "frames"}
        for entry in content["entries"]
    ]
    return json.dumps({**content, "entries": entries}, sort_keys=True).encode()


def write_dumps(
    folder: Path,
    ranks: Mapping[int, Sequence[Mapping[str, Any]]],
    groups: Mapping[tuple[str, str], Sequence[int]] | None = None,
    *,
    form: str = "pickle",
) -> Path:
    """Write the dump of each rank into a folder, named as PyTorch names them."""
    folder.mkdir(exist_ok=True)
    known = groups if groups is not None else {("0", "default_pg"): sorted(ranks)}
    for rank, entries in ranks.items():
        own = {key: members for key, members in known.items() if rank in members}
        content = dump(entries, own)
        made = pickle.dumps(content, protocol=2) if form == "pickle" else as_json(content)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(made)
    return folder


def one_missing(state: str = "started") -> dict[int, list[dict[str, Any]]]:
    """Four ranks of which rank 3 stops after the fourth collective; the first ones were forgotten on rank 1."""
    ranks = {rank: [operation(n) for n in range(1, 5)] for rank in range(4)}
    ranks[1] = ranks[1][2:]
    for rank in range(3):
        ranks[rank].append(operation(5, state=state))
    return ranks
