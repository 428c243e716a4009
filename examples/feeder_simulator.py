"""A simulator in forty lines: replay the nodes of a rank on one processor and one device.

    python examples/feeder_simulator.py JOB.0.et

Each runs one node at a time, the ready node with the lowest id first. Without communication it ends when
`chakra-studio simulate` does with host-slots and compute-slots "one".
"""

from __future__ import annotations

import heapq
import sys

from studio import Feeder

METADATA = 1


def simulate(path: str) -> int:
    """Return when the last node of a file ends, in nanoseconds."""
    now_ns, running, busy = 0, list[tuple[int, int, bool]](), {True: False, False: False}
    with Feeder(path) as feeder:
        while feeder.has_nodes_to_issue():
            occupied = []
            while (node := feeder.next_issuable()) is not None:
                if node.type == METADATA:
                    feeder.complete(node.id)
                elif busy[node.is_cpu]:
                    occupied.append(node.id)
                else:
                    busy[node.is_cpu] = True
                    heapq.heappush(running, (now_ns + max(node.duration_ns, 1), node.id, node.is_cpu))
            for number in occupied:
                feeder.push_back(number)
            if running:
                now_ns, number, is_cpu = heapq.heappop(running)
                busy[is_cpu] = False
                feeder.complete(number)
    return now_ns


if __name__ == "__main__":
    print(f"{simulate(sys.argv[1]):,} ns")
