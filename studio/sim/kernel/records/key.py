"""Keys of messages: what each is to its sender, the same on all equivalent ranks, see `turns`."""

from __future__ import annotations

# From the lowest bits on: the links a message has passed, how far it goes in its dimension or group, the phase, the slot
# of the group, the stream. What does not fit takes another's bits, and may make keys of different messages equal.
HOP = 1  # what a link adds
FAR_SHIFT = 8
PHASE = 1 << 28  # what a phase adds
SLOT = (1 << 12) - 1  # bits of the slot
SLOT_SHIFT = 32
STREAM = (1 << 18) - 1  # bits of the stream
STREAM_SHIFT = 44
# Messages of nodes come after those of streams
PEER = 1 << 62
TAG = (1 << 20) - 1  # bits of their tags
TAG_SHIFT = 28
PEERS = (1 << 20) - 1  # bits of the slots of their peers
