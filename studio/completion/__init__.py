"""Complete a job of which some ranks were recorded: infer the mesh of its ranks, copy known ranks to the missing ones."""

from studio.completion.complete import LayoutNeededError, complete, list_layouts
from studio.completion.layout import Layout, read_layout
from studio.completion.mesh import Axis, Mesh, parse_layout
from studio.completion.spread import Spread

__all__ = [
    "Axis",
    "Layout",
    "LayoutNeededError",
    "Mesh",
    "Spread",
    "complete",
    "list_layouts",
    "parse_layout",
    "read_layout",
]
