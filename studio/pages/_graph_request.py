"""What part of which graph the Graph page is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from studio.analysis.blocks import Path
from studio.analysis.levels import LevelName
from studio.analysis.neighbours import BOTH, Direction, Kind

DEPTH, DEEPEST = 2, 10
KINDS: dict[str, tuple[Kind, ...]] = {"both": BOTH, "data": ("data",), "ctrl": ("ctrl",)}
Mode = Literal["fold", "whole", "near"]


@dataclass(frozen=True, slots=True)
class Request:
    """A part of a graph; equal requests give equal drawings.

    Attributes:
        root, job: The workspace's folder and the job's name.
        graph: Index into `Trace.graphs`.
        deps: Which dependencies count: a key of `KINDS`.
        centre: Row in the middle of a neighbourhood, else -1.
        depth, direction: Of the neighbourhood.
        mode: Blocks, the whole graph, or what lies around a node.
        by: What a folded graph is folded by.
        opened: The blocks that are open.
        names: Names of comm groups by slot, where blocks are called by them; ranks that share a graph differ in them.
        run: Whose times are added up: an id, "" for the recording, None where there are none.
        rank: Place of the rank in the trace where times differ between ranks that share a graph, else 0.
    """

    root: str
    job: str
    graph: int
    deps: str
    centre: int = -1
    depth: int = DEPTH
    direction: Direction = "both"
    mode: Mode = "whole"
    by: LevelName = "order"
    opened: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    run: str | None = None
    rank: int = 0
