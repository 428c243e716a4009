"""What collectives cost on real machines: times by collective, algorithm and protocol, as communication libraries choose them.

`library.py` says what a library chooses, `ways.py` what its ways take; `defaults.py` is written by
`python -m benchmarks.accuracy --learn`, never by hand.
"""

from studio.sim.costs.model import Charge, CostModel
from studio.sim.costs.shapes import GroupShape, Ports

__all__ = ["Charge", "CostModel", "GroupShape", "Ports"]
