"""Read the Chakra files of one job; files that match an earlier one are compared with it instead of decoded."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np

from studio.et import chakra
from studio.et.format import Part, Reading
from studio.et.templates import Template, make_template
from studio.trace import Finding, Graph, UInt8, digest_array, with_ids

_LONGEST = 4 << 20
"""Larger files are read: making a template of one takes memory, and few jobs have many of them."""
_HELD_BYTES = 64 << 20
_MOST_TEMPLATES = 16
_ADAPTED = 4
"""So many templates are tried with other widths of groups, peers and ids than they had so far."""
_MOST_IN_VAIN = 8
"""After so many templates that fitted no other file no more are made, and they are tried with one file in so many.

They are of files that were read one after another. Where later ones repeat these, as replicas repeat the stages of a
pipeline, as many follow each other, and one of them is tried.
"""
_AHEAD = 4


@dataclass(frozen=True, slots=True)
class _Known:
    """A file that was read.

    Attributes:
        template: What it may share with others.
        nodes: What was read.
        name: The file's name, with which its findings begin.
    """

    template: Template
    nodes: chakra.Nodes
    name: str

    def nodes_of(self, data: UInt8, name: str, *, adapt: bool) -> chakra.Nodes | None:
        """Return the nodes of a file that matches this template; None where it does not match."""
        symbols = self.template.read(data, adapt=adapt)
        if symbols is None:
            return None
        graph = self.nodes.graph
        if symbols.ids is not None and symbols.ids is not graph.id:
            graph = with_ids(graph, symbols.ids)
        findings = tuple(_rename_finding(finding, self.name, name) for finding in self.nodes.findings)
        return chakra.Nodes(graph, symbols.slots, findings=findings)


def _rename_finding(finding: Finding, old: str, new: str) -> Finding:
    """Return a finding of one file as another's."""
    return replace(finding, file=new, message=new + finding.message.removeprefix(old))


class JobReader:
    """Reads the files of a job, in any order and from several threads."""

    def __init__(self) -> None:
        self.known: list[_Known] = []
        self.lock = threading.Lock()
        self.template_count = self.used = self.read_bytes = self.asked = 0
        self.times: set[bytes] = set()

    def __call__(self, reading: Reading) -> list[Part]:
        """Read one file, see `chakra.read`."""
        head = chakra.read_metadata(reading.data, reading.name)
        data = np.frombuffer(reading.data, np.uint8)[head.end :]
        if not 0 < len(data) <= _LONGEST:
            return [chakra.build_rank_part(reading, head, chakra.read_nodes(reading, head))]
        with self.lock:
            self.asked += 1
            nodes = None if self._is_passed_over() else self._recall(data, reading.name)
        if nodes is None:
            nodes = self._read(reading, head, data)
        return [chakra.build_rank_part(reading, head, nodes)]

    def _is_hopeless(self) -> bool:
        """Whether no file was like another so far."""
        return self.template_count >= _MOST_IN_VAIN and not self.used

    def _is_passed_over(self) -> bool:
        """Whether to read the file without trying any template: trying all takes longer than reading."""
        return self._is_hopeless() and self.asked % _MOST_IN_VAIN != 0

    def _recall(self, data: UInt8, name: str) -> chakra.Nodes | None:
        """Return the nodes of a file that matches one of the known templates; None where none matches."""
        for adapt, some in ((False, self.known), (True, self.known[:_ADAPTED])):
            for index, known in enumerate(some):
                nodes = known.nodes_of(data, name, adapt=adapt)
                if nodes is not None:
                    self.used += 1
                    self.known.insert(0, self.known.pop(index))
                    return nodes
        return None

    def _read(self, reading: Reading, head: chakra.Metadata, data: UInt8) -> chakra.Nodes:
        """Read a file in full, and remember it."""
        self.read_bytes += len(data)
        # Whether compiling pays depends on what will have to be read in full; most files may be like this one.
        expected = min(reading.total_bytes, _AHEAD * self.read_bytes)
        nodes = chakra.read_nodes(replace(reading, total_bytes=expected), head)
        if (
            not nodes.damage
            and not self._is_hopeless()
            and self._may_come_again(nodes.graph)
            and all(f.message.startswith(reading.name) for f in nodes.findings)
        ):
            template = make_template(data, nodes.graph, nodes.slots)
            if template is not None:
                with self.lock:
                    self.template_count += 1
                    self.known.insert(0, _Known(template, nodes, reading.name))
                    self._forget()
        return nodes

    def _may_come_again(self, graph: Graph) -> bool:
        """Return whether later files may be like this one.

        Recorded times are those of one rank: they come again only where one recording stands for several ranks, which the second
        file with the same times shows. A template of each rank of a recording would cost more than reading it.
        """
        times = _digest_times(graph)
        if times is None:
            return True
        with self.lock:
            is_known = times in self.times
            self.times.add(times)
        return is_known

    def _forget(self) -> None:
        """Drop what was not used for longest, to keep within bounds."""
        self.known = self.known[:_MOST_TEMPLATES]
        while len(self.known) > 1 and sum(known.template.held_bytes for known in self.known) > _HELD_BYTES:
            self.known.pop()


def _digest_times(graph: Graph) -> bytes | None:
    """Return a digest of the times of a file; None where it says of no node when it began."""
    if not (graph.start_ns > 0).any():
        return None
    return digest_array(graph.start_ns) + digest_array(graph.duration_ns)
