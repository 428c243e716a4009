"""Write the graph of a rank for other programs, as GraphML or DOT, with every attribute of its nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from studio.analysis.graph.neighbours import Part
from studio.analysis.job.kinds import infer_counted_type, infer_counted_types, label_counted_type
from studio.figures.graph import LOOKS, OTHER, format_node_refs
from studio.figures.graph_files import clean_xml, quote_dot
from studio.figures.theme import LIGHT
from studio.trace import NONE, Graph, Int64, Rank, list_node_attributes, type_name

_AT_ONCE = 1 << 12
_HEAD = (
    "<?xml version='1.0' encoding='utf-8'?>\n"
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">\n'
)
_COUNTED = "counted_as"
"""What says of nodes written as compute that they are a copy, a gap or a kernel that communicates."""
_OWN = ("label", "type", _COUNTED, "start_ns", "duration_ns", "missing")
_IO = ("inputs.values", "inputs.shapes", "inputs.types", "outputs.values", "outputs.shapes", "outputs.types")


def write_graphml(graph: Graph, rank: Rank, part: Part) -> Iterator[bytes]:
    """Yield a part of a graph as GraphML.

    Nodes are called by their ids, their names are `label`; edges lead from what is waited for to what waits, and say
    `dependency`, "data" or "control". What is written as compute and counts as something else, such as gaps, says as what in `counted_as`. Attributes have their own names and types; where an attribute has one of the names used
    here, it is called `attr.` and its name; lists are JSON. Ids that nodes wait for and that the file lacks are nodes that
    are `missing`, as other tools have them.
    """
    table = _Table(graph, rank, part.rows)
    kinds = table.kinds()
    keys = {name: f"d{index}" for index, name in enumerate(kinds)}
    yield _HEAD.encode()
    yield "".join(
        f'  <key id="{keys[name]}" for="node" attr.name={quoteattr(clean_xml(name))} attr.type="{kind}" />\n'
        for name, kind in kinds.items()
    ).encode()
    yield b'  <key id="dep" for="edge" attr.name="dependency" attr.type="string" />\n'
    yield b'  <graph edgedefault="directed">\n'
    texts: list[str] = []
    for ref, values in table.nodes():
        texts.append(f"    <node id={quoteattr(ref)}>\n")
        texts += [
            f'      <data key="{keys[name]}">{escape(clean_xml(_format_value(value, kinds[name])))}</data>\n'
            for name, value in values.items()
        ]
        texts.append("    </node>\n")
        if len(texts) > _AT_ONCE:
            yield "".join(texts).encode()
            texts.clear()
    for this, other, dep in table.edges(part):
        texts.append(
            f'    <edge source={quoteattr(this)} target={quoteattr(other)}>\n      <data key="dep">{dep}</data>\n    </edge>\n'
        )
        if len(texts) > _AT_ONCE:
            yield "".join(texts).encode()
            texts.clear()
    yield "".join([*texts, "  </graph>\n</graphml>\n"]).encode()


def write_dot(graph: Graph, rank: Rank, part: Part) -> Iterator[bytes]:
    """Yield a part of a graph for Graphviz: nodes by id with their names as labels, colours by type, and all attributes."""
    table = _Table(graph, rank, part.rows)
    yield b"digraph chakra {\n  node [shape=box, style=filled, fontname=Helvetica];\n"
    texts: list[str] = []
    types = infer_counted_types(graph)
    rows: list[int] = part.rows.tolist()
    for index, (ref, values) in enumerate(table.nodes()):
        look = LOOKS.get(int(types[rows[index]]), OTHER) if index < len(rows) else OTHER
        given = {"label": values.pop("label", ref), "fillcolor": f"{getattr(LIGHT, look.colour)}40", **values}
        listed = ", ".join(
            f"{quote_dot(name)}={quote_dot(_format_value(value, ''))}" for name, value in given.items()
        )
        texts.append(f"  {quote_dot(ref)} [{listed}];\n")
        if len(texts) > _AT_ONCE:
            yield "".join(texts).encode()
            texts.clear()
    for this, other, dep in table.edges(part):
        style = ' [dependency="control", style=dashed]' if dep == "control" else ' [dependency="data"]'
        texts.append(f"  {quote_dot(this)} -> {quote_dot(other)}{style};\n")
        if len(texts) > _AT_ONCE:
            yield "".join(texts).encode()
            texts.clear()
    yield "".join([*texts, "}\n"]).encode()


class _Table:
    """The nodes of a part with what they say, one by one."""

    def __init__(self, graph: Graph, rank: Rank, rows: Int64) -> None:
        self.graph, self.rank, self.rows = graph, rank, rows
        self.refs = format_node_refs(graph, rows)
        self.whole = len(rows) == len(graph)

    def nodes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each node's reference and values, then the ids that are waited for and missing."""
        for ref, row in zip(self.refs, self.rows.tolist(), strict=True):
            yield ref, self._collect_values(row)
        known = set(self.refs)
        for number in self._find_missing():
            if str(number) not in known:
                yield str(number), {"missing": True}

    def _find_missing(self) -> list[int]:
        """Return the ids that nodes wait for and that the file lacks; of a part of the graph none."""
        if not self.whole:
            return []
        both = [*self.graph.ctrl.dangling.tolist(), *self.graph.data.dangling.tolist()]
        return list(dict.fromkeys(both))

    def _collect_values(self, row: int) -> dict[str, Any]:
        graph = self.graph
        values: dict[str, Any] = {
            "label": graph.strings[int(graph.name[row])],
            "type": type_name(int(graph.type[row])),
        }
        if (counted := infer_counted_type(graph, row)) != graph.type[row]:
            values[_COUNTED] = label_counted_type(counted)
        if graph.start_ns[row] >= 0:
            values["start_ns"] = int(graph.start_ns[row])
        if graph.duration_ns[row]:
            values["duration_ns"] = int(graph.duration_ns[row])
        if len(graph.io):
            for name, code in zip(_IO, graph.io[row].tolist(), strict=True):
                if code != NONE:
                    values[name] = graph.strings[code]
        for attr in list_node_attributes(graph, row, self.rank.slots):
            name = f"attr.{attr.name}" if attr.name in _OWN or attr.name in _IO else attr.name
            while name in values:
                name += "'"
            values[name] = attr.value
        return values

    def kinds(self) -> dict[str, str]:
        """Return the GraphML type of every name that nodes have values of."""
        kinds: dict[str, str] = {}
        for _, values in self.nodes():
            for name, value in values.items():
                kind = _infer_kind(value)
                before = kinds.setdefault(name, kind)
                if before != kind:
                    kinds[name] = "double" if {before, kind} == {"long", "double"} else "string"
        return kinds

    def edges(self, part: Part) -> Iterator[tuple[str, str, str]]:
        """Yield each dependency with its source and target, dangling ones too."""
        ref = dict(zip(self.rows.tolist(), self.refs, strict=True))
        edges = part.edges
        for this, other, is_data in zip(
            edges.before.tolist(), edges.after.tolist(), edges.is_data.tolist(), strict=True
        ):
            yield ref[this], ref[other], "data" if is_data else "control"
        if not self.whole:
            return
        for deps, kind in ((self.graph.ctrl, "control"), (self.graph.data, "data")):
            lost = np.flatnonzero(deps.rows < 0)
            rows = np.searchsorted(deps.offsets, lost, side="right") - 1
            pairs = zip(deps.dangling[-1 - deps.rows[lost]].tolist(), rows.tolist(), strict=True)
            for number, row in dict.fromkeys(pairs):
                yield str(number), ref[row], kind


def _infer_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else "string"
    return "double" if isinstance(value, float) else "string"


def _format_value(value: Any, kind: str) -> str:
    """Return a value as the text of a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return json.dumps([item.hex() if isinstance(item, bytes) else item for item in value])
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and kind == "double" and value - value != 0:
        # As XML schema spells them.
        return "NaN" if value != value else "INF" if value > 0 else "-INF"
    return "" if value is None else str(value)
