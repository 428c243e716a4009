"""The real numbers beside the array."""

from __future__ import annotations

LOCAL_MEMORY = 0  # bandwidth of local memory, bytes/s
BUS_G = 1  # gap per byte of the shared bus
BUS_INNER_G = 2  # the same of its inner channels
DIMS = 8  # from here on: latency and bandwidth of each dimension, one after another; then their message overheads
