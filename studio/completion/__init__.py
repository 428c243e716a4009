"""Complete a job of which some ranks were recorded: infer the mesh of its ranks, copy known ranks to the missing ones."""

from studio.completion.complete import Question, assumed_from, assumed_words, complete, layouts
from studio.completion.mesh import Axis, Mesh, parse_layout
from studio.completion.spread import Spread

__all__ = [
    "Axis",
    "Mesh",
    "Question",
    "Spread",
    "assumed_from",
    "assumed_words",
    "complete",
    "layouts",
    "parse_layout",
]
