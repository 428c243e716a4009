"""Keys of messages: what each is to its sender, the same on all equivalent ranks, see `turns`."""

from __future__ import annotations

# From the lowest bits on: how far a message goes in its dimension or group, the phase, the slot of the group, the stream
FAR = (1 << 20) - 1  # bits of the distance
PHASE = 1 << 20  # what the next phase adds
SLOT = (1 << 15) - 1  # bits of the slot
SLOT_SHIFT = 27
STREAM = (1 << 20) - 1  # bits of the stream
STREAM_SHIFT = 42
# Messages of nodes come after those of streams
PEER = 1 << 62
TAG = (1 << 20) - 1  # bits of their tags
TAG_SHIFT = 20
