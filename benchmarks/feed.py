"""Benchmark: feed a Chakra file of ten million nodes, and measure time and memory.

    python benchmarks/feed.py [--nodes 10000000] [--parse]

The file is generated in a temporary folder: nodes of eight streams, each waiting for the one before on its stream and for some
earlier ones, about 70 bytes a node. With --parse every node's name, duration and attributes are asked for, too.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from studio.et.encode import add_length, encode_varint
from studio.feeder import Feeder

_MANY = 100_000


def make(path: Path, nodes: int) -> None:
    """Write a file of so many nodes."""
    with path.open("wb") as out:
        out.write(add_length(b"\x0a\x051.0.0"))
        pieces = []
        for index in range(1, nodes + 1):
            deps = [index - 8] if index > 8 else []
            deps += [index - 1000 - index % 997] if index % 5 == 0 and index > 2000 else []
            # Some wait for nodes that stand further on in the file.
            deps += [index + 3] if index % 64 == 1 and index + 3 <= nodes and (index + 3) % 64 != 1 else []
            name = b"layer.%d.aten::op_%d" % (index // 1000, index % 37)
            record = b"\x08" + encode_varint(index) + b"\x12" + add_length(name) + b"\x18\x04"
            record += b"\x2a" + add_length(b"".join(map(encode_varint, deps))) if deps else b""
            record += b"\x38" + encode_varint(index % 91 + 1)
            record += b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01" + (b"\x01" if index % 4 == 0 else b"\x00")
            record += b"\x52\x0e\x0a\x06stream\x48" + bytes([index % 8]) + b"\x12\x02ok"
            pieces.append(add_length(record))
            if len(pieces) == _MANY:
                out.write(b"".join(pieces))
                pieces = []
        out.write(b"".join(pieces))


def feed(path: Path, *, parse: bool) -> int:
    """Issue and complete every node, up to 64 at a time; returns how many there were."""
    count = 0
    with Feeder(path) as feeder:
        while feeder.has_nodes_to_issue():
            batch = []
            while len(batch) < 64 and (node := feeder.next_issuable()) is not None:
                if parse:
                    assert node.name
                    assert node.duration_ns + len(node.attrs) > 0
                batch.append(node.id)
            for number in batch:
                feeder.complete(number)
            count += len(batch)
    return count


def main() -> None:
    """Make the file, and feed it in a process of its own, so that its memory is measured alone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--parse", action="store_true")
    parser.add_argument("--feed", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.feed is not None:
        begun, cpu = time.perf_counter(), time.process_time()
        count = feed(given.feed, parse=given.parse)
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu
        print(f"{count:,} nodes fed in {took:.1f} s ({cpu:.1f} s of CPU), peak memory {peak_mib:,.0f} MiB")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.0.et"
        make(path, given.nodes)
        print(f"{path.stat().st_size / 2**20:,.0f} MiB, {given.nodes:,} nodes")
        options = ["--parse"] if given.parse else []
        subprocess.run([sys.executable, __file__, "--feed", str(path), *options], check=True)


if __name__ == "__main__":
    main()
