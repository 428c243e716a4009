"""Graphs of a job that is being read, each stored in its final form by whoever made it, so that none waits in memory."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from studio.analysis.job.summary import GraphFigures, count_graph
from studio.files import PRIVATE_FOLDER, open_file
from studio.store.arrays import Checksum, read_arrays, read_columns, write_columns
from studio.store.durable_files import sync_file
from studio.store.stored_traces import build_graph, name_graph_file
from studio.trace import Graph, Trace, iterate_arrays


@dataclass(frozen=True, slots=True)
class Shelved:
    """A graph that was put onto a shelf.

    Attributes:
        name: Of its file.
        checksum: Of the file.
        figures: The graph in a few numbers, which would have to be read for them again.
    """

    name: str
    checksum: Checksum
    figures: GraphFigures


@dataclass(frozen=True, slots=True)
class Stored:
    """Graphs that are in the folder of a job, in their order.

    Attributes:
        checksums: Of their files.
        figures: What summaries need of them.
    """

    checksums: list[Checksum]
    figures: list[GraphFigures]


def put_graph(folder: Path, name: str, graph: Graph) -> Shelved:
    """Store a graph in a new file of a folder; nobody has waited for the disk then."""
    checksum = write_columns(folder / name, [iterate_arrays(graph)], durable=False)
    return Shelved(name, checksum, count_graph(graph))


class GraphShelf:
    """The graphs of a job that is being read.

    Each is mapped from the file in which the job will have it: that is the shelf's own until the job is complete, and nobody
    who opens the job has it mapped.
    """

    def __init__(self, folder: Path, storing: Callable[[], AbstractContextManager[None]]) -> None:
        """Prepare a shelf; nothing is written before it is used.

        Args:
            folder: Where to, made when it is needed.
            storing: Converts errors of writing.
        """
        self.storing = storing
        self._folder = folder
        # By identity, of graphs that are kept here.
        self._kept: dict[int, tuple[Graph, Shelved]] = {}

    @property
    def folder(self) -> Path:
        """The folder, for temporary files also."""
        with self.storing():
            self._folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
        return self._folder

    @property
    def put(self) -> Callable[[str, Graph], Shelved]:
        """What puts a graph here by a name, and can be sent to another process that does so."""
        return partial(put_graph, self.folder)

    def take(self, shelved: Shelved) -> Graph:
        """Return a graph that was put here, mapped from its file, once that is on the disk."""
        path = self._folder / shelved.name
        with self.storing():
            sync_file(path)
            # Where a file that is mapped cannot be renamed, graphs are in memory.
            graph = _map_graph(path) if os.name == "posix" else build_graph(read_columns(path)[0])
        self._kept[id(graph)] = graph, shelved
        return graph

    def drop(self, graph: Graph) -> None:
        """Remove a graph that was taken, and is not wanted after all."""
        _, shelved = self._kept.pop(id(graph))
        (self._folder / shelved.name).unlink()

    def hand_over(self, trace: Trace, folder: Path) -> Stored | None:
        """Move files to where a trace is being stored; None where not all of its graphs are here, each once."""
        kept = [self._kept.get(id(graph)) for graph in trace.graphs]
        shelved = [entry[1] for entry in kept if entry]
        if not shelved or len({entry.name for entry in shelved}) < len(kept):
            return None
        for index, entry in enumerate(shelved):
            (self._folder / entry.name).rename(folder / name_graph_file(index))
        self._kept.clear()
        return Stored([entry.checksum for entry in shelved], [entry.figures for entry in shelved])

    def close(self) -> None:
        """Remove what is left."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _map_graph(path: Path) -> Graph:
    import pyarrow as pa

    with open_file(path) as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    [columns] = read_arrays(pa.py_buffer(memoryview(mapped)))
    return build_graph(columns)
