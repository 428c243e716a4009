"""What the operators of a recorded job compute: operations and bytes by formula, and how well a GPU carried them out.

The table of operators (`table`) has a formula per signature; `calls` joins recorded nodes to calls of operators, `report`
adds them up, `retarget` gives them the durations that another GPU would take.

A row of `table.py` names an operator; its formula is in `matrices.py` or `elements.py`. Names of GPUs are in
`studio/sim/systems/gpus.py`.
"""

from __future__ import annotations

from studio.operators.report import OperatorReport, list_operators

__all__ = ["OperatorReport", "list_operators"]
