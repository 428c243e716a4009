"""Complete a job of which some ranks were recorded: infer the mesh of its ranks, copy known ranks to the missing ones.

`clues.py` finds what tells about the layout of ranks (of messages `messages.py`), `mesh.py` infers the mesh, `layout.py` reads what
a user says of it. `complete.py` makes copies, `measured.py` and `spread.py` say how they differ, `arrivals.py` when they come to
collectives, and `stages.py` makes stages that nobody recorded, by names in `layers.py`. `scale.py` says what scaling changes, of
operators of more tensor-parallel ranks `tensor.py`; which sizes of tensors are the same say
`dimensions.py`, by a rule for each operator (`dimension_rules.py`), and `factors.py`.
"""

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
