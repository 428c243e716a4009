"""Feed the nodes of a Chakra file to a simulator, in the order dependencies allow, from files larger than memory.

`Feeder` has the verbs of the reference's feeder; `ids` keeps which nodes are complete, `nodes` are what is fed.
"""

from __future__ import annotations

from studio.feeder.feed import Feeder, NeverReady
from studio.feeder.nodes import FeederNode

__all__ = ["Feeder", "FeederNode", "NeverReady"]
