"""Benchmark: read a Chakra file of a million nodes, compared with protobuf-python.

    python benchmarks/read_et.py [--nodes 1000000]

Each way reads the same file in a process of its own, so that memory is measured separately.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from studio.et.schema import Schema, load_schema


def make(path: Path, nodes: int) -> None:
    """Write a file of `nodes` nodes with five attributes each, about 300 bytes a node."""
    types = load_schema()
    with path.open("wb") as out:
        for index in range(nodes + 1):
            record = types.metadata(version="1.0.0") if index == 0 else _node(types, index)
            raw = record.SerializeToString()
            size = len(raw)
            head = bytearray()
            while size > 127:
                head.append(size & 127 | 128)
                size >>= 7
            out.write(bytes(head) + bytes([size]) + raw)


def _node(types: Schema, index: int) -> Any:
    collective = index % 5 == 0
    node = types.node(id=index, name=f"module.{index // 100}.layer.{index % 100}.aten::op_{index % 37}")
    node.type = 7 if collective else 4
    node.data_deps.extend([index - 1] if index > 1 else [])
    node.ctrl_deps.extend([index - 2] if index > 2 else [])
    node.start_time_micros, node.duration_micros = index * 7, index % 91
    node.inputs.values = f"[[{index}, {index + 1}, 0, 4096, 4, 'cuda:0'], [7, 8, 0, 1024, 4, 'cuda:0']]"
    node.inputs.shapes, node.inputs.types = "[[64, 64], [1024]]", "['Tensor(float)', 'Tensor(float)']"
    node.outputs.values = f"[[{index + 2}, {index + 3}, 0, 4096, 4, 'cuda:0']]"
    node.outputs.shapes, node.outputs.types = "[[64, 64]]", "['Tensor(float)']"
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.attr.add(name="stream", int64_val=index % 8)
    node.attr.add(name="tid", int64_val=1)
    if collective:
        node.attr.add(name="comm_size", int64_val=4096 * (index % 11))
        node.attr.add(name="pg_name", string_val=str(index % 3))
    else:
        node.attr.add(name="num_ops", int64_val=index * 1000)
        node.attr.add(name="tensor_size", uint64_val=index * 10)
    return node


def read_ours(path: Path) -> int:
    """Read with Chakra Studio."""
    import studio

    return studio.read(path).node_count


def read_protobuf(path: Path) -> int:
    """Decode each record with protobuf-python and collect the same columns."""
    types = load_schema()
    data = path.read_bytes()
    columns: dict[str, list] = {
        name: [] for name in ("id", "name", "type", "start", "duration", "io", "ctrl", "data")
    }
    attrs: dict[str, list] = {name: [] for name in ("row", "key", "doc", "kind", "value")}
    pos, row, node = 0, -1, types.node()
    while pos < len(data):
        size = shift = 0
        while True:
            byte = data[pos]
            pos += 1
            size |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        record, pos = data[pos : pos + size], pos + size
        if row < 0:
            row = 0
            continue
        node.Clear()
        node.ParseFromString(record)
        columns["id"].append(node.id)
        columns["name"].append(node.name)
        columns["type"].append(node.type)
        columns["start"].append(node.start_time_micros)
        columns["duration"].append(node.duration_micros)
        columns["ctrl"].append(list(node.ctrl_deps))
        columns["data"].append(list(node.data_deps))
        i, o = node.inputs, node.outputs
        columns["io"].append((i.values, i.shapes, i.types, o.values, o.shapes, o.types))
        for attr in node.attr:
            kind = attr.WhichOneof("value")
            value = getattr(attr, kind)
            attrs["row"].append(row)
            attrs["key"].append(attr.name)
            attrs["doc"].append(attr.doc_string)
            attrs["kind"].append(kind)
            attrs["value"].append(list(value.values) if kind.endswith("_list") else value)
        row += 1
    return row


WAYS = {"ours": read_ours, "protobuf": read_protobuf, "protobuf, collector off": read_protobuf}


def main() -> None:
    """Make the file, run each way in its own process, print a table of ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.way:
        if "off" in options.way:
            import gc

            gc.disable()
        start, cpu = time.perf_counter(), time.process_time()
        nodes = WAYS[options.way](options.file)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(nodes, seconds, cpu, peak)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "bench.0.et"
        if not path.exists():
            make(path, options.nodes)
        print(f"{options.nodes:,} nodes, {path.stat().st_size / 1e6:.0f} MB")
        print(f"{'way':28} {'seconds':>8} {'of CPU':>8} {'peak MB':>8} {'ratio':>6} {'of CPU':>6}")
        results: dict[str, list[float]] = {}
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way, "--file", str(path)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            results[way] = [float(number) for number in output[1:]]
            seconds, cpu, peak = results[way]
            ratio, cpu_ratio = seconds / results["ours"][0], cpu / results["ours"][1]
            print(f"{way:28} {seconds:8.2f} {cpu:8.2f} {peak:8.0f} {ratio:6.1f} {cpu_ratio:6.1f}")


if __name__ == "__main__":
    main()
