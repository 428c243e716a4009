"""What waits for a message, or for its arrival: payload * 8 + this."""

from __future__ import annotations

STREAM = 1  # a stream
NODE = 2  # a node
SEND = 3  # a message whose announcement was awaited
RECV = 4  # a receive whose announcement was under way
CUSTOM = 5  # a node of a collective given as a trace
RING = 6  # a ring's short books
SENT = 7  # a stream that waits for its own message to arrive
