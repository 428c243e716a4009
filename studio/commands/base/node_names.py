"""Name many nodes of a job: ids as in addresses, and names."""

from __future__ import annotations

from studio.analysis.job.node_refs import format_node_ref
from studio.distinct import find_distinct
from studio.trace import Trace


class NodeNames:
    """The ids and names of a job's nodes; whether ids repeat is looked at once per graph."""

    def __init__(self, trace: Trace) -> None:
        """Take the job."""
        self._trace = trace
        self._repeats: dict[int, bool] = {}

    def id(self, place: int, row: int) -> str:
        """Return the id of a node as addresses have it, given the place of its rank and its row."""
        index = self._trace.ranks[place].graph
        graph = self._trace.graphs[index]
        if index not in self._repeats:
            self._repeats[index] = len(find_distinct(graph.id)) < len(graph)
        return format_node_ref(graph, row) if self._repeats[index] else str(graph.id[row])

    def name(self, place: int, row: int) -> str:
        """Return the name of a node; untrusted text."""
        graph = self._trace.graph_of(self._trace.ranks[place])
        return graph.strings[int(graph.name[row])]
