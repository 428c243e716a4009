"""Timelines that the studio exports are read back as the job they show."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import studio
from studio.analysis.job.summary import summarise
from studio.commands.base.timelines import write_timeline
from studio.et.job_files import recognise
from studio.trace import Trace, list_dependency_ids


def edges(trace: Trace, number: int, kinds: tuple[str, ...]) -> set[tuple[int, int]]:
    """Who waits for whom, by id."""
    graph = trace.graph_of(number)
    found = set()
    for kind in kinds:
        deps = getattr(graph, kind)
        ids, offsets = list_dependency_ids(graph, deps).tolist(), deps.offsets.tolist()
        for row, (low, high) in enumerate(pairwise(offsets)):
            found |= {(int(graph.id[row]), int(other)) for other in ids[low:high]}
    return found


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_an_exported_timeline_is_the_job_again(tmp_path: Path, suffix: str) -> None:
    trace = studio.read(studio.sample_path("transformer_8r"))
    path = write_timeline(trace, tmp_path / f"exported{suffix}")
    back = studio.read(path)
    known = recognise(path.read_bytes()[:65536])
    assert known is not None
    assert known.name == {".json": "exported-chrome", ".pftrace": "exported-perfetto"}[suffix]
    before, after = summarise(trace), summarise(back)
    assert after.types == before.types
    assert after.collectives == before.collectives
    assert (after.start_ns, after.end_ns, after.timed_nodes) == (
        before.start_ns,
        before.end_ns,
        before.timed_nodes,
    )
    for rank in trace.ranks:
        kinds = [("ctrl",), ("data",)] if suffix == ".json" else [("ctrl", "data")]
        for some in kinds:
            assert edges(back, rank.number, some) == edges(trace, rank.number, some)
        spans = {
            name: sorted(
                zip(
                    *(
                        getattr(job.graph_of(rank.number), column).tolist()
                        for column in ("id", "start_ns", "duration_ns")
                    ),
                    strict=True,
                )
            )
            for name, job in (("before", trace), ("after", back))
        }
        assert spans["after"] == spans["before"]
    groups = {group.name: group.ranks for group in trace.groups}
    assert {group.name: group.ranks for group in back.groups} == {
        group.name: groups[group.name] for group in back.groups
    }
    assert "exported-timeline" in [finding.code for finding in back.findings]
    assert not [one for one in studio.examine(back) if one.level == "error"]


def test_names_of_any_kind_come_back(tmp_path: Path) -> None:
    trace = studio.read(studio.sample_path("transformer_8r"))
    graph = trace.graphs[0]
    strings = [*graph.strings]
    strings[int(graph.name[1])] = 'evil "name" \u2028 </script>'
    named = replace(graph, strings=type(graph.strings).of(strings))
    path = write_timeline(replace(trace, graphs=(named, *trace.graphs[1:])), tmp_path / "x.json")
    back = studio.read(path).graph_of(0)
    assert 'evil "name" \u2028 </script>' in [back.strings[int(code)] for code in back.name]


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_a_cut_export_is_refused_or_read_with_a_finding(tmp_path: Path, suffix: str) -> None:
    path = write_timeline(studio.read(studio.sample_path("transformer_8r")), tmp_path / f"x{suffix}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    try:
        found = studio.read(path).findings
    except studio.TraceFormatError:
        return
    assert any(finding.level in ("error", "warning") for finding in found)
