"""A message of which an announcement is under way (rendezvous, SEMANTICS 8)."""

from __future__ import annotations

TAG = 1
FROM = 2  # rank it comes from
TO = 3  # rank it goes to
SIZE = 4  # bytes
CODE = 5  # who waits for it, or what its arrival means
PAIR = 6  # names of the two
KEY = 7  # its key, see `Key`
