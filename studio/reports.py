"""What `chakra-studio info` prints of a job."""

from __future__ import annotations

from typing import Any

import msgspec

from studio.analysis.collectives.groups import group_use
from studio.analysis.job.summary import Share, summarise
from studio.decoding import converted
from studio.terminal import printable
from studio.trace import Trace
from studio.units import format_bytes, format_count, format_ns, format_si


def report(name: str, trace: Trace) -> dict[str, Any]:
    """Return a job's report as plain data: summary, ranks, comm groups, findings."""
    use = group_use(trace)
    members = {group.name: group for group in trace.groups}
    groups = []
    for index, group in enumerate(use.groups):
        cells = use.group == index
        known = members.get(group)
        groups.append(
            {
                "name": group,
                "ranks": list(known.ranks) if known else [use.ranks[r] for r in use.rank[cells].tolist()],
                "inferred": known is None or known.inferred,
                "nodes": int(use.count[cells].sum()),
                "bytes": int(use.bytes[cells].sum()),
            }
        )
    return {
        "name": name,
        "summary": msgspec.to_builtins(summarise(trace)),
        "ranks": [
            {"rank": rank.number, "file": rank.file, "nodes": len(trace.graph_of(rank)), "graph": rank.graph}
            for rank in trace.ranks
        ],
        "groups": groups,
        "findings": [msgspec.to_builtins(finding) for finding in trace.findings],
    }


def as_text(report: dict[str, Any]) -> str:
    """Return a report for reading in a terminal, texts from the files with their control characters escaped."""
    summary = report["summary"]
    lines = [
        report["name"],
        f"  ranks         {format_count(summary['ranks'])} ({_graphs(summary['graphs'])})",
        f"  nodes         {format_count(summary['nodes'])}",
        f"  dependencies  {_dependencies(summary)}",
        f"  recorded      {_span(summary)}",
        f"  operations    {format_si(summary['operations'], 'FLOP') if summary['operations'] else 'none named'}",
        f"  schema        {', '.join(summary['schema']) or 'not named'}",
    ]
    lines += _table("node types", [converted(share, Share) for share in summary["types"]], sizes=False)
    lines += _table("communication", [converted(share, Share) for share in summary["collectives"]])
    lines.append(f"  comm groups   {format_count(len(report['groups']))}")
    for finding in report["findings"]:
        rank = "" if finding["rank"] is None else f" rank {finding['rank']}:"
        lines.append(f"  {finding['level']:7} {finding['code']}:{rank} {finding['message']}")
        if finding["hint"]:
            lines.append(f"          {finding['hint']}")
    if not report["findings"]:
        lines.append("  findings      none")
    return "\n".join(printable(line) for line in lines)


def _graphs(count: int) -> str:
    return f"{format_count(count)} distinct {'graph' if count == 1 else 'graphs'}"


def _dependencies(summary: dict[str, Any]) -> str:
    control, data = summary["control_dependencies"], summary["data_dependencies"]
    return f"{format_count(control)} control, {format_count(data)} data"


def _span(summary: dict[str, Any]) -> str:
    if summary["start_ns"] < 0:
        return "no start times"
    return format_ns(summary["end_ns"] - summary["start_ns"])


def _table(title: str, shares: list[Share], *, sizes: bool = True) -> list[str]:
    if not shares:
        return []
    lines = [f"  {title}"]
    for share in shares:
        size = f"{format_bytes(share.bytes):>12}" if sizes and share.bytes else ""
        lines.append(f"    {share.name:22} {format_count(share.nodes):>12}{size}")
    return lines
