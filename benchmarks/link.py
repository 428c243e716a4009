"""Benchmark: read, link and write PyTorch traces of realistic length.

    python benchmarks/link.py FOLDER [--nodes 100000] [--events 530000] [--ranks 8] [--turns 3] [--only STEP ...]

FOLDER holds one recorded rank (`pytorch_et_*` and `kineto_*`), which is repeated with new ids, tensors, correlations and
times until the files are long enough. Every step runs in a process of its own; seconds of CPU are those of the process and
its children without the imports, and the peak is that of the largest.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------------------------------------------
# Long traces


def main() -> int:
    """Write the files, measure the steps, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=530_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--only", nargs="*", choices=sorted(STEPS), default=sorted(STEPS))
    parser.add_argument("--turns", type=int, default=3, help="the one with the least CPU counts")
    parser.add_argument("--made", type=Path, help="where the long files are kept between runs")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return _inside(options.inside, options.made)
    with tempfile.TemporaryDirectory(prefix="benchmark-link-") as scratch:
        made = options.made or Path(scratch)
        make(options, made)
        print("| step | input | s | s of CPU | peak MB |\n| --- | --- | ---: | ---: | ---: |")
        for step in options.only:
            command = [sys.executable, __file__, str(options.folder), "--made", str(made), "--inside", step]
            turns = [
                json.loads(subprocess.run(command, check=True, cwd=ROOT, capture_output=True).stdout)
                for _ in range(options.turns)
            ]
            title, what, whole_s, cpu_s, peak_mb = min(turns, key=lambda turn: turn[3])
            print(f"| {title} | {what} | {whole_s:.1f} | {cpu_s:.2f} | {peak_mb:.0f} |", flush=True)
    return 0


def make(options: argparse.Namespace, made: Path) -> None:
    """Write the long files, unless they are there."""
    host, device = (_load(options.folder, name) for name in ("pytorch_et*", "kineto*"))
    host_piece, device_piece = host_template(host), device_template(device)
    nodes = -(-options.nodes // host_piece.count)
    events = -(-options.events // device_piece.count)
    files: list[tuple[Path, Callable[[Path], None]]] = [
        (made / "host/pytorch_et_0.json", lambda path: write_host(path, host, host_piece, nodes)),
        (made / "device/kineto_0.json", lambda path: write_device(path, device, device_piece, events)),
        (made / "rank/pytorch_et_0.json", lambda path: write_host(path, host, host_piece, nodes)),
        (made / "rank/kineto_0.json", lambda path: write_device(path, device, device_piece, nodes)),
    ]
    each = -(-nodes // options.ranks)
    for rank in range(options.ranks):
        head = device | {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": options.ranks}}
        files += [
            (made / f"ranks/pytorch_et_{rank}.json", lambda path: write_host(path, host, host_piece, each)),
            (
                made / f"ranks/kineto_{rank}.json",
                lambda path, head=head: write_device(path, head, device_piece, each),
            ),
        ]
    for path, write in files:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)
    merged = made / "merged/merged.0.json"
    if not merged.exists():
        merged.parent.mkdir(parents=True, exist_ok=True)
        write_merged(merged, host, device, nodes)


def _load(folder: Path, pattern: str) -> dict[str, Any]:
    return load_trace(min(folder.glob(pattern)))


def load_trace(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, packed or not."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)


class Piece:
    """A piece of JSON with numbers that grow from one repetition to the next.

    A number to grow stands in it as a text `#<kind><number>`; kinds are steps of their own.
    """

    def __init__(self, items: Sequence[Any], steps: dict[str, int], spread: bool = False) -> None:
        self.count = len(items)
        self.steps = steps
        text = ",\n".join(json.dumps(item) for item in items)
        if spread:
            # The white space that Kineto writes.
            text = (
                text.replace('{"ph"', '  {\n    "ph"')
                .replace(' "ts"', '\n    "ts"')
                .replace("}}", "\n    }\n  }")
            )
            text = text.replace(' "args": {', '\n    "args": {\n      ')
        self.parts = re.split(r'"#([a-z])(-?[0-9]+)"', text)

    def text(self, repetition: int) -> str:
        """Return the piece for the n-th repetition."""
        out = self.parts[:1]
        shift = {kind: step * repetition for kind, step in self.steps.items()}
        for kind, number, literal in zip(self.parts[1::3], self.parts[2::3], self.parts[3::3], strict=True):
            value = int(number) + shift[kind]
            out.append(f"{value // 1000}.{value % 1000:03}" if kind == "t" else str(value))
            out.append(literal)
        return "".join(out)


def host_template(host: dict[str, Any]) -> Piece:
    """Return the operators of an execution trace as a piece."""
    from studio.et.link.literals import is_tensor

    nodes = [node for node in host["nodes"] if not node["name"].startswith("[pytorch|")]
    roots = {node["id"] for node in host["nodes"]} - {node["id"] for node in nodes}
    made = _made_here(nodes)
    ids: list[int] = []

    def grown(value: Any) -> Any:
        if is_tensor(value):
            ids.extend(value[:2])
            storage = f"#i{value[1]}" if value[1] in made else value[1]
            return [f"#i{value[0]}", storage, *value[2:]]
        return [grown(item) for item in value] if isinstance(value, list) else value

    items = []
    for node in nodes:
        parent = node["ctrl_deps"] if node["ctrl_deps"] in roots else f"#i{node['ctrl_deps']}"
        item = node | {"id": f"#i{node['id']}", "ctrl_deps": parent}
        for side in ("inputs", "outputs"):
            item[side] = node[side] | {"values": grown(node[side]["values"])}
        item["attrs"] = [
            attr | {"value": f"#r{attr['value']}"} if attr["name"] == "rf_id" else attr
            for attr in node["attrs"]
        ]
        items.append(item)
    most_ids = max([*ids, *(node["id"] for node in host["nodes"])]) + 1
    most_functions = max(_attr(node, "rf_id") for node in nodes) + 1
    return Piece(items, {"i": most_ids, "r": most_functions})


def _made_here(nodes: Sequence[dict[str, Any]]) -> set[int]:
    """Return the storages that are written before they are read, which excludes parameters."""
    from studio.et.link.literals import iterate_tensors

    read: set[int] = set()
    made: set[int] = set()
    for node in sorted(nodes, key=lambda item: item["id"]):
        read |= {tensor[1] for tensor in iterate_tensors(node["inputs"]["values"])} - made
        made |= {tensor[1] for tensor in iterate_tensors(node["outputs"]["values"])} - read
    return made


def _attr(node: dict[str, Any], name: str) -> int:
    return next((attr["value"] for attr in node["attrs"] if attr["name"] == name), 0)


_GROWING = {"External id": "e", "Record function id": "r", "Ev Idx": "e", "correlation": "c"}


def device_template(device: dict[str, Any]) -> Piece:
    """Return the events of a Kineto trace as a piece."""
    events = [event for event in device["traceEvents"] if event["ph"] != "M"]
    items, most = [], {"r": 0, "e": 0, "c": 0}
    for event in events:
        args = dict(event.get("args", {}))
        for key, kind in _GROWING.items():
            if key in args:
                most[kind] = max(most[kind], args[key])
                args[key] = f"#{kind}{args[key]}"
        item = event | {"ts": f"#t{round(event['ts'] * 1000)}"}
        if "args" in event:
            item["args"] = args
        if event["ph"] in "sf":
            kind = "c" if event["cat"] == "ac2g" else "e"
            most[kind] = max(most[kind], event["id"])
            item["id"] = f"#{kind}{event['id']}"
        items.append(item)
    ends = [event["ts"] + event.get("dur", 0) for event in events]
    period_ns = round((max(ends) - min(event["ts"] for event in events) + 100) * 1000)
    return Piece(items, {kind: number + 1 for kind, number in most.items()} | {"t": period_ns}, spread=True)


def write_host(path: Path, host: dict[str, Any], piece: Piece, times: int) -> None:
    """Write an execution trace of a piece, repeated."""
    roots = [node for node in host["nodes"] if node["name"].startswith("[pytorch|")]
    _write(path, host, "nodes", roots, piece, times)


def write_device(path: Path, device: dict[str, Any], piece: Piece, times: int) -> None:
    """Write a Kineto trace of a piece, repeated."""
    named = [event for event in device["traceEvents"] if event["ph"] == "M"]
    _write(path, device, "traceEvents", named, piece, times)


def _write(
    path: Path, head: dict[str, Any], key: str, first: Sequence[Any], piece: Piece, times: int
) -> None:
    rest = {name: value for name, value in head.items() if name != key}
    with path.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(rest)[:-1] + f', "{key}": [\n' + ",\n".join(map(json.dumps, first)))
        for repetition in range(times):
            stream.write(",\n" + piece.text(repetition))
        stream.write("\n]}\n")


def write_merged(path: Path, host: dict[str, Any], device: dict[str, Any], times: int) -> None:
    """Write a merged trace: operators with the times of their events, each followed by what it launched."""
    events = [event for event in device["traceEvents"] if event["ph"] == "X" and "args" in event]
    by_function = {event["args"].get("Record function id"): event for event in events}
    launched: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["cat"] in ("kernel", "gpu_memcpy"):
            launched.setdefault(event["args"].get("External id", -1), []).append(event)
    ordered = sorted(host["nodes"], key=lambda node: node["id"])
    numbers = {node["id"]: _MOST_COPIES * index for index, node in enumerate(ordered)}
    base_us = min(event["ts"] for event in events)
    roots, items = [], []
    for node in ordered:
        number, above = numbers[node["id"]], numbers[node["ctrl_deps"]]
        if node["name"].startswith("[pytorch|"):
            roots.append(node | {"id": number, "ctrl_deps": above})
            continue
        item = node | {"id": f"#i{number}", "ctrl_deps": f"#i{above}"}
        if above in [root["id"] for root in roots]:
            item["ctrl_deps"] = above
        event = by_function.get(_attr(node, "rf_id"))
        items.append(item if event is None else item | _times(event, base_us))
        kernels = launched.get(event["args"].get("External id", -2), []) if event is not None else []
        for index, kernel in enumerate(kernels[: _MOST_COPIES - 1]):
            launch = {"cat": kernel["cat"], "name": kernel["name"], "stream": kernel["args"]["stream"]}
            items.append(
                item
                | {"id": f"#i{number + 1 + index}", "ctrl_deps": item["id"]}
                | launch
                | _times(kernel, base_us)
            )
    last_us = max(event["ts"] + event["dur"] for event in events)
    steps = {"i": _MOST_COPIES * len(ordered), "t": round((last_us - base_us + 100) * 1000)}
    _write(path, host, "nodes", roots, Piece(items, steps), times)


_MOST_COPIES = 4


def _times(event: dict[str, Any], base_us: float) -> dict[str, Any]:
    length = event["dur"]
    start = f"#t{round((event['ts'] - base_us) * 1000)}"
    return {"ts": start, "inclusive_dur": length, "exclusive_dur": length, "inter_thread_dep": None}


# ---------------------------------------------------------------------------------------------------
# Steps


def _read_host(made: Path) -> str:
    from studio.et import pytorch

    return _read(made / "host/pytorch_et_0.json", pytorch.read)


def _read_device(made: Path) -> str:
    from studio.et import kineto

    return _read(made / "device/kineto_0.json", kineto.read)


def _read(path: Path, read: Any) -> str:
    from studio.et.format import Reading
    from studio.et.source import SourceFile, load

    data, findings = load(SourceFile(path.name, path))
    [part] = read(Reading(path.name, data, len(data), findings=findings))
    return f"{len(part.trace):,} rows, {len(data) / 1e6:.0f} MB"


def _read_merged(made: Path) -> str:
    import studio

    path = made / "merged/merged.0.json"
    return f"{studio.read(path).node_count:,} nodes, {path.stat().st_size / 1e6:.0f} MB"


def _link(made: Path, folder: str) -> str:
    from studio.commands.link import Request, run
    from studio.et import LinkOptions

    source = made / folder
    size = sum(path.stat().st_size for path in source.iterdir())
    with tempfile.TemporaryDirectory(dir=made) as target:
        linked = run(Request((source,), Path(target), LinkOptions()))
    counts = [len(linked.trace.graph_of(rank)) for rank in linked.trace.ranks]
    return f"{len(counts)} × {counts[0]:,} nodes, {size / 1e6:.0f} MB"


STEPS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "host": ("read an execution trace", _read_host),
    "device": ("read a Kineto trace", _read_device),
    "merged": ("read a merged trace (ET+)", _read_merged),
    "rank": ("link one rank and write its `.et`", lambda made: _link(made, "rank")),
    "ranks": ("link all ranks and write their `.et`", lambda made: _link(made, "ranks")),
}


def _inside(step: str, made: Path) -> int:
    """Run one step in this process and print its time and memory."""
    title, take = STEPS[step]
    import studio.commands.link  # noqa: F401 (so that it is not timed)

    start_s, start_cpu_s = time.perf_counter(), _cpu_s()
    what = take(made)
    whole_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - start_cpu_s
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps([title, what, whole_s, cpu_s, peak / 1000]))
    return 0


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    sys.exit(main())
