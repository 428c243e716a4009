"""Requests of the Graph page: which part of which graph, and how it looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from studio.analysis.graph.blocks import Path
from studio.analysis.graph.levels import LevelName
from studio.analysis.graph.neighbours import BOTH, Direction, Kind
from studio.session import Session

DEPTH, DEEPEST = 2, 10
KINDS: dict[str, tuple[Kind, ...]] = {"both": BOTH, "data": ("data",), "ctrl": ("ctrl",)}
Mode = Literal["fold", "whole", "near", "path", "gate"]
Colour = Literal["type", "duration", "slack", "bytes", "group", "lane", "difference"]
COLOURS: dict[Colour, str] = {
    "type": "type",
    "duration": "duration",
    "slack": "slack",
    "bytes": "bytes",
    "group": "comm group",
    "lane": "thread or stream",
    "difference": "difference",
}
"""What nodes can be coloured by."""


@dataclass(frozen=True, slots=True)
class Request:
    """A part of a graph; equal requests give equal drawings.

    Attributes:
        session, job: What is open, and the id of the job.
        graph: Index into `Trace.graphs`.
        deps: Which dependencies count: a key of `KINDS`.
        centre: Row in the middle of a neighbourhood, else -1.
        depth, direction: Of the neighbourhood.
        mode: Blocks, the whole graph, what lies around a node, between two, or the chain of what a node waited for last.
        anchor: Row at the other end of a path, else -1.
        by: What a folded graph is folded by.
        opened: The blocks that are open.
        names: Names of comm groups by slot, where they are shown; ranks that share a graph differ in them.
        run: Whose times are added up: an id, "" for the recording, None where there are none.
        rank: Place of the rank in the trace where times differ between ranks that share a graph, else 0.
        colour: What nodes are coloured by.
        against: The run that durations are compared with, as `run`; None without a comparison.
        critical: Whether the critical path is drawn.
        wide: Whether nodes are as wide as they are long in time.
        unit: The unit of times in texts: a key of `TIME_UNITS`, "" for one that suits each.
    """

    session: Session
    job: str
    graph: int
    deps: str
    centre: int = -1
    depth: int = DEPTH
    direction: Direction = "both"
    mode: Mode = "whole"
    anchor: int = -1
    by: LevelName = "order"
    opened: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    run: str | None = None
    rank: int = 0
    colour: Colour = "type"
    against: str | None = None
    critical: bool = False
    wide: bool = False
    unit: str = ""
