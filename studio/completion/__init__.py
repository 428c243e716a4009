"""Complete a job of which some ranks were recorded: infer the mesh of its ranks, copy known ranks to the missing ones."""

from studio.completion.complete import LayoutNeededError, complete, layouts
from studio.completion.layout import Layout, given_layout
from studio.completion.mesh import Axis, Mesh, parse_layout
from studio.completion.spread import Spread

__all__ = [
    "Axis",
    "Layout",
    "LayoutNeededError",
    "Mesh",
    "Spread",
    "complete",
    "given_layout",
    "layouts",
    "parse_layout",
]
