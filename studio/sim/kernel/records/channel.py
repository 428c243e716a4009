"""A channel (SEMANTICS 8): what has one tag, pair of ranks and size."""

from __future__ import annotations

NEXT = 0  # next in the hash table
TAG = 1
PAIR = 2
SIZE = 3
UNCLAIMED = 4  # messages that came before their receives
WAITER = 5  # first who waits; 0 for none
MORE = 6  # last of the further ones, a circle; 0 for none
USES = 7  # messages under way, and streams that remember the channel
CONTROL_BYTES = 8192  # size of an announcement
CONTROL_TAG = 1000000000  # what is added to its tag
STREAM_TAG = 500000000  # tag of the first stream
UNEVEN_TAG = (
    1 << 52
)  # from here on sizes do not tell messages apart: ranks may bring different sizes to an all-to-all (extended mode)
