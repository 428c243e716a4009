"""What a flow takes of a port."""

from __future__ import annotations

PORT = 0  # the port
AMOUNT = 1  # how much, see `Flow.WHOLE`
NEXT = 2  # next use of the port by a flow whose bytes move
FLOW = 3  # the flow
WORDS = 4  # words of a record
