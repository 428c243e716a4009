"""A file kept from an earlier day still reads as the text beside it, and is still what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.et.chakra_bytes import codes, described, read_both, written

DATA = Path(__file__).resolve().parent.parent / "data" / "chakra"


def dump(raw: bytes) -> str:
    part = read_both(raw)
    lines = [
        f"version {part.rank.version!r}",
        f"metadata {[(a.name, a.kind.name, a.value) for a in part.rank.metadata]}",
    ]
    lines += [f"slots {part.rank.slots}", f"findings {codes(part)}"]
    for row in range(len(part.graph)):
        node = described(part, row)
        lines.append(f"node {node['id']} {node['name']!r} type {node['type']} start {node['start_ns']} ns")
        lines.append(
            f"  takes {node['duration_ns']} ns, ctrl {node['ctrl']}, data {node['data']}, io {node['io']}"
        )
        lines += [f"  {name} {kind} {value} {doc!r}" for name, kind, value, doc in node["attrs"]]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.et")), ids=lambda path: path.stem)
def test_golden_files(path):
    raw = path.read_bytes()
    assert dump(raw) == path.with_suffix(".txt").read_text(encoding="utf-8")
    if path.stem.startswith("canonical"):
        assert written(read_both(raw)) == raw
