"""The queries that join what jobs and runs are made of into tables; names of parts and labels are filled in."""

from __future__ import annotations

from collections.abc import Mapping

_NODES = """SELECT {job} AS job, r.rank, n.node, n.id, n.name, n.type, n.collective, {group} AS comm_group,
    n.bytes, n.operations, n.start_ns, n.duration_ns, n.is_cpu_op, n.stream, n.waits_for
    FROM {ranks} r JOIN {nodes} n ON n.graph = r.graph {of_group}"""
_SPANS = """SELECT {job} AS job, {run} AS run, r.rank, n.node, n.id, n.name, n.type, n.{lane} AS lane,
    CASE WHEN n.{lane} = 'communication' THEN {group} ELSE {lane_name} END AS lane_name,
    n.collective, {group} AS comm_group, n.bytes, t.start_ns, t.end_ns, t.own_ns AS duration_ns
    FROM {timed} d JOIN {times} t ON t.times = d.times JOIN {ranks} r ON r.place = d.place
    JOIN {nodes} n ON n.at = t.at {of_group}"""
_GROUPS = (
    ("NULL::VARCHAR", "WHERE n.group_slot < 0"),
    ("g.value", "JOIN {slots} g ON g.place = r.place AND g.slot = n.group_slot"),
)
"""Nodes without a comm group, and those with one: most have none, and need no look at slots."""
_ATTRIBUTES = (
    """SELECT {job} AS job, r.rank, a.node, a.id, a.position, a.key, a.kind,
        coalesce(a.text, a.written,
            CASE WHEN a.is_true_or_false THEN CASE a.integer WHEN 1 THEN 'true' ELSE 'false' END END,
            a.integer::VARCHAR, a.number::VARCHAR) AS value,
        a.integer, a.number, a.items, a.doc
        FROM {ranks} r JOIN {attributes} a ON a.graph = r.graph WHERE a.slot < 0""",
    """SELECT {job} AS job, r.rank, a.node, a.id, a.position, a.key, a.kind, s.value,
        CASE WHEN a.kind NOT IN ('STRING', 'BYTES') THEN TRY_CAST(s.value AS BIGINT) END AS integer,
        CASE WHEN a.kind NOT IN ('STRING', 'BYTES') THEN TRY_CAST(s.value AS DOUBLE) END AS number,
        a.items, a.doc
        FROM {ranks} r JOIN {attributes} a ON a.graph = r.graph
        JOIN {slots} s ON s.place = r.place AND s.slot = a.slot""",
)
"""Attributes whose values are the graph's, and those whose values ranks bring."""
_DEPENDENCIES = """SELECT {job} AS job, r.rank, d.node, d.id, d.kind, d.on_node, d.on_id
    FROM {ranks} r JOIN {dependencies} d ON d.graph = r.graph"""


def _expand_groups(text: str) -> tuple[str, ...]:
    return tuple(text.replace("{group}", group).replace("{of_group}", join) for group, join in _GROUPS)


OF_JOB: Mapping[str, tuple[str, ...]] = {
    "nodes": _expand_groups(_NODES),
    "attributes": _ATTRIBUTES,
    "dependencies": (_DEPENDENCIES,),
}
"""The queries whose rows a table has of a job."""
SPANS = _expand_groups(_SPANS)
"""Those of spans."""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "nodes": ("ranks", "slots", "nodes"),
    "attributes": ("ranks", "slots", "attributes"),
    "dependencies": ("ranks", "dependencies"),
    "spans": ("ranks", "slots", "nodes"),
    "ranks": ("ranks",),
}
"""Which parts of a job a table is joined of."""
RANK = "r.rank, r.nodes, r.graph, r.file, r.assumed_from"
