"""What collectives cost on real machines: times by collective, algorithm and protocol, as communication libraries choose them."""

from studio.sim.costs.model import Charge, CostModel
from studio.sim.costs.shapes import GroupShape, Ports

__all__ = ["Charge", "CostModel", "GroupShape", "Ports"]
