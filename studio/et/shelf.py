"""What reading needs of a place for graphs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from studio.trace import Graph


class Shelf(Protocol):
    """A place outside of memory for the graphs of a job, put there by whoever makes them."""

    @property
    def folder(self) -> Path:
        """Its folder, for temporary files also, which all who work on the job see."""

    @property
    def storing(self) -> Callable[[], AbstractContextManager[None]]:
        """Converts errors of writing to errors for the user."""

    @property
    def put(self) -> Callable[[str, Graph], Any]:
        """What puts a graph there by a name; it can be pickled, and so can what it returns."""

    def take(self, shelved: Any) -> Graph:
        """Return an equal graph, which takes no memory, by what `put` has returned."""

    def drop(self, graph: Graph) -> None:
        """Remove a graph that was taken, and is not wanted after all."""
