"""Every real Chakra file: what it holds, and that writing gives it back."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.et import chakra
from studio.et.format import RankPart, Reading
from studio.et.source import SourceFile, load
from studio.trace import (
    Graph,
    Rank,
    Trace,
    label_collective,
    list_node_attributes,
    read_int_column,
    type_name,
)
from tests.et.chakra_bytes import read_once, written
from tests.examples import PROFILE

NOT_CANONICAL: dict[str, str] = {}
"""Files that writing does not give back byte by byte, with the reason. There is none."""

STG = [
    "gpt_8r_dp2tp4",
    "llama_16r_dp4tp4",
    "llama_16r_tp4pp4_recompute",
    "llama_32r_dp4tp4pp2",
    "llama_8r_dp2tp2pp2",
    "llama_8r_dp8_fsdp",
    "llama_8r_tp8",
]


def test_every_chakra_file_opens_and_is_written_back_byte_by_byte(shared):
    """260 files of five writers, two of those whose names differ in numbers only in `make test`; what is not canonical is listed with its reason."""
    root = shared / "traces"
    paths = sorted(path for path in root.rglob("*") if path.name.endswith((".et", ".et.gz")))
    alike = Counter[str]()
    changed = []
    for path in paths:
        kind = re.sub(r"\d+", "", str(path.relative_to(root)))
        alike[kind] += 1
        if alike[kind] > 2 and PROFILE != "nightly":
            continue
        data, problems = load(SourceFile(path.name, path))
        assert not problems, path
        part = read_once(data, native=True, name=path.name)
        assert not {"damaged-file", "damaged-metadata", "dropped-field", "bad-text"} & {
            f.code for f in part.findings
        }
        if written(part) != bytes(data):
            changed.append(str(path.relative_to(root)))
    assert len(paths) == 260
    assert len(alike) >= 50
    assert changed == list(NOT_CANONICAL)


@pytest.mark.parametrize("name", STG)
def test_counts_of_every_rank(shared, name):
    trace = studio.read(shared / "traces" / "stg" / name)
    expected = json.loads((shared / "traces" / "expected.json").read_text())[f"stg/{name}"]
    assert len(trace.ranks) == expected["ranks"]
    assert [rank.number for rank in trace.ranks] == sorted(int(number) for number in expected["per_rank"])
    for rank in trace.ranks:
        want = expected["per_rank"][str(rank.number)]
        got = counts(trace, rank)
        assert got == {key: want[key] for key in got}, rank.number
    listed = json.loads(next((shared / "traces" / "stg" / name).glob("*.json")).read_text())
    assert {group.name: list(group.ranks) for group in trace.groups} == listed
    assert not any(group.inferred for group in trace.groups)
    assert trace.findings == ()


def counts(trace: Trace, rank: Rank) -> dict[str, object]:
    """What `expected.json` tells about a rank, its two words about cycles and chains left out."""
    graph = trace.graph_of(rank)
    waiting = (np.diff(graph.data.offsets) > 0) | (np.diff(graph.ctrl.offsets) > 0)
    return {
        "nodes": len(graph),
        "by_type": {f"{type_name(t)}_NODE": n for t, n in Counter(graph.type.tolist()).items()},
        "data_deps": len(graph.data.rows),
        "ctrl_deps": len(graph.ctrl.rows),
        "missing_deps": len(graph.data.dangling) + len(graph.ctrl.dangling),
        "duplicate_ids": len(graph) - len(np.unique(graph.id)),
        "roots": int((~waiting).sum()),
        "collectives": collectives(graph, rank),
        "p2p": peers(graph, rank),
        "num_ops_sum": int(read_int_column(graph, "num_ops")[1].sum()),
        "duration_sum_us": int(graph.duration_ns.sum()) // 1000,
    }


def by_row(graph: Graph, key: str, rank: Rank) -> dict[int, int]:
    rows, values = read_int_column(graph, key, rank.slots)
    return dict(zip(rows.tolist(), values.tolist(), strict=True))


def collectives(graph: Graph, rank: Rank) -> dict[str, dict[str, int]]:
    kinds, sizes = by_row(graph, "comm_type", rank), by_row(graph, "comm_size", rank)
    found: dict[str, dict[str, int]] = {}
    for row in np.flatnonzero(graph.type == 7).tolist():
        group = next(a.value for a in list_node_attributes(graph, row, rank.slots) if a.name == "pg_name")
        entry = found.setdefault(
            f"{label_collective(kinds[row])}|pg={group}", {"count": 0, "comm_size_sum": 0}
        )
        entry["count"] += 1
        entry["comm_size_sum"] += sizes[row]
    return dict(sorted(found.items()))


def peers(graph: Graph, rank: Rank) -> dict[str, dict[str, int]]:
    sizes = by_row(graph, "comm_size", rank)
    ends = {5: by_row(graph, "comm_dst", rank), 6: by_row(graph, "comm_src", rank)}
    found: dict[str, dict[str, int]] = {}
    for row in np.flatnonzero((graph.type == 5) | (graph.type == 6)).tolist():
        kind = int(graph.type[row])
        key = f"{type_name(kind)}_NODE|peer={ends[kind][row]}"
        entry = found.setdefault(key, {"count": 0, "comm_size_sum": 0})
        entry["count"] += 1
        entry["comm_size_sum"] += sizes[row]
    return dict(sorted(found.items()))


def test_64_ranks_in_one_tar_archive(shared):
    trace = studio.read(shared / "traces" / "stg" / "llama70b_64r.tar.xz")
    assert [rank.number for rank in trace.ranks] == list(range(64))
    assert len(trace.graph_of(trace.ranks[0])) == 6484
    assert len(trace.groups) > 0
    assert not any(group.inferred for group in trace.groups)
    assert len(trace.graphs) < 64, "ranks of one pipeline stage share their graph"


def test_feeder_sample(shared):
    """Counts as its origin states them."""
    [path] = (shared / "traces" / "public" / "chakra").glob("*.et")
    trace = studio.read(path)
    [graph] = trace.graphs
    assert (len(graph), len(graph.data.rows), int((graph.type == 7).sum())) == (3664, 181_878, 21)
    assert ("schema", "1.0.1") in [(a.name, a.value) for a in trace.ranks[0].metadata]


def test_every_value_kind_in_one_node(shared):
    paths = sorted((shared / "traces" / "golden" / "generator").glob("one_metadata_node_all_types.*.et*"))
    assert paths
    for path in paths:
        data, _ = load(SourceFile(path.name, path))
        [part] = chakra.read(Reading(path.name, data))
        assert isinstance(part, RankPart)
        kinds = {int(kind) for kind in part.graph.attrs.kind.tolist()}
        assert kinds == set(range(3, 33)), path


def test_the_tree_of_astra_sim_samples_reads_as_one_job_per_folder(shared):
    for folder in sorted((shared / "traces" / "public" / "astra-sim").iterdir()):
        if folder.is_dir():
            trace = studio.read(Path(folder))
            assert len(trace.ranks) == 8, folder
