"""Read an algorithm of a collective as MSCCL describes it (XML): what every thread block of every GPU sends, receives and adds.

As a file format it is a job of sends and receives; as an algorithm it stands in for a collective of the simulator.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from typing import Any

from studio.errors import TraceFormatError
from studio.et import mscclpp
from studio.et.build import build_graph
from studio.et.format import Part, RankPart, Reading
from studio.et.msccl_play import (
    ADDS,
    MOST_BYTES,
    RECEIVES,
    SENDS,
    Algorithm,
    Block,
    Chunks,
    Gpu,
    Played,
    Step,
    play,
)
from studio.et.records import clean
from studio.trace import NONE, CollectiveType, Finding, Rank
from studio.units import format_bytes

ASSUMED_CHUNK_BYTES = 1 << 20
"""Bytes of a chunk where an algorithm is opened as a job: the file names none."""
LARGEST_FILE_BYTES = 256 << 20

_HEAD = re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*\?>\s*)?(<!--.*?-->\s*)*<algo[\s>]", re.DOTALL)
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
TYPES = {
    "all_reduce": CollectiveType.ALL_REDUCE,
    "all_gather": CollectiveType.ALL_GATHER,
    "reduce_scatter": CollectiveType.REDUCE_SCATTER,
    "all_to_all": CollectiveType.ALL_TO_ALL,
}
"""Collectives whose result can be checked, and which the simulator takes an algorithm for."""
_STEP_TYPES = (*SENDS, *RECEIVES, *ADDS, "cpy", "nop")
_BUFFERS = ("i", "o", "s")
_MOST_GPUS, _MOST_CHUNKS, _MOST_STEPS = 1 << 14, 1 << 20, 1_000_000
_CORRECT = "Correct the file, or make it again with the tool that wrote it."


def sniff(head: bytes) -> bool:
    """Whether `head` starts an algorithm."""
    return _HEAD.match(head) is not None


def parse(data: bytes, name: str) -> Algorithm:
    """Return the algorithm that a file describes: XML of MSCCL, or an execution plan of MSCCL++.

    Raises:
        TraceFormatError: It is neither, or describes no algorithm.
    """
    if len(data) > LARGEST_FILE_BYTES:
        raise TraceFormatError(
            f"{name}: {len(data):,} bytes; allowed for an algorithm: up to {LARGEST_FILE_BYTES:,}."
        )
    if mscclpp.sniff(data):
        return mscclpp.parse(data, name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"{name}: not UTF-8 at byte {error.start:,}.", hint=_CORRECT) from error
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise TraceFormatError(
            f"{name}: it has a document type, which algorithms do not have, and which can make a file grow without end.",
            hint="Remove the lines <!DOCTYPE … > and <!ENTITY … >.",
        )
    try:
        root = ET.fromstring(text)  # noqa: S314 - as above
    except (ET.ParseError, ValueError, RecursionError) as error:
        raise TraceFormatError(f"{name}: damaged XML: {error}.", hint=_CORRECT) from error
    return _Parser(name).algorithm(root)


class _Parser:
    """One file being parsed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0

    def fail(self, place: str, message: str) -> TraceFormatError:
        """Return the error about one element."""
        return TraceFormatError(f"{self.name}: {place}: {message}.", hint=_CORRECT)

    def number(
        self, element: ET.Element, key: str, place: str, bounds: tuple[int, int], default: int | None = None
    ) -> int:
        """Return a whole number of an element."""
        text = element.get(key)
        if text is None and default is not None:
            return default
        try:
            value = int(text or "")
        except ValueError:
            value = None
        if value is None or not bounds[0] <= value <= bounds[1]:
            shown = "missing" if text is None else repr(text[:40])
            raise self.fail(place, f"{key} is {shown}; allowed: {bounds[0]} to {bounds[1]:,}")
        return value

    def algorithm(self, root: ET.Element) -> Algorithm:
        """Return the algorithm of the root element."""
        if root.tag != "algo":
            raise self.fail(f"<{clean(root.tag)[:40]}>", "the root is no <algo>")
        collective = root.get("coll", "")
        plain = re.sub(r"[^a-z]", "", collective.lower())
        elements = root.findall("gpu")
        if not 1 <= len(elements) <= _MOST_GPUS:
            raise self.fail("<algo>", f"{len(elements):,} <gpu>; allowed: 1 to {_MOST_GPUS:,}")
        count = self.number(root, "ngpus", "<algo>", (1, _MOST_GPUS), len(elements))
        gpus: dict[int, Gpu] = {}
        for element in elements:
            gpu = self.gpu(element, count)
            if gpu.number in gpus:
                raise self.fail(f"<gpu id={gpu.number}>", "is there twice")
            gpus[gpu.number] = gpu
        missing = next((number for number in range(count) if number not in gpus), None)
        if missing is not None:
            raise self.fail("<algo>", f"ngpus is {count:,}, and <gpu id={missing}> is not there")
        return Algorithm(
            name=clean(root.get("name", "")) or "algorithm",
            collective=_COLLECTIVES.get(plain, ""),
            file_collective=clean(collective),
            inplace=root.get("inplace") == "1",
            protocol=clean(root.get("proto", "")),
            gpus=tuple(gpus[number] for number in range(count)),
            loop_chunks=self.number(root, "nchunksperloop", "<algo>", (0, _MOST_CHUNKS), 0),
            least_bytes=self.number(root, "minBytes", "<algo>", (0, MOST_BYTES), 0),
            # None is meant for no size at all.
            most_bytes=self.number(root, "maxBytes", "<algo>", (0, MOST_BYTES), 0) or MOST_BYTES,
        )

    def gpu(self, element: ET.Element, count: int) -> Gpu:
        """Return the thread blocks of a GPU."""
        number = self.number(element, "id", "<gpu>", (0, count - 1))
        place = f"<gpu id={number}>"
        sizes = {
            buffer: self.number(element, f"{buffer}_chunks", place, (0, _MOST_CHUNKS), 0)
            for buffer in _BUFFERS
        }
        copies = tuple(
            (
                Chunks("i", self.number(each, "i_off", f"{place} <copy>", (0, _MOST_CHUNKS)), 1),
                Chunks("o", self.number(each, "o_off", f"{place} <copy>", (0, _MOST_CHUNKS)), 1),
            )
            for each in element.findall("copy")
        )
        blocks: dict[int, Block] = {}
        for each in element.findall("tb"):
            block = self.block(each, place, count)
            if block.number in blocks:
                raise self.fail(f"{place} <tb id={block.number}>", "is there twice")
            blocks[block.number] = block
        return Gpu(number, sizes, tuple(blocks[key] for key in sorted(blocks)), copies)

    def block(self, element: ET.Element, gpu: str, count: int) -> Block:
        """Return a thread block."""
        number = self.number(element, "id", f"{gpu} <tb>", (0, _MOST_STEPS))
        place = f"{gpu} <tb id={number}>"
        peers = {key: self.number(element, key, place, (NONE, count - 1), NONE) for key in ("send", "recv")}
        channel = self.number(element, "chan", place, (NONE, 1 << 14), 0)
        if element.find("op") is not None:
            raise self.fail(place, "<op> in place of <step>; allowed: the form with <step>, which MSCCL runs")
        steps = tuple(self.step(each, place, index) for index, each in enumerate(element.findall("step")))
        self.steps += len(steps)
        if self.steps > _MOST_STEPS:
            raise self.fail(place, f"more than {_MOST_STEPS:,} steps")
        return Block(number, peers["send"], peers["recv"], channel, steps)

    def step(self, element: ET.Element, block: str, index: int) -> Step:
        """Return a step."""
        place = f"{block} <step s={index}>"
        number = self.number(element, "s", place, (0, _MOST_STEPS), index)
        if number != index:
            raise self.fail(place, f"s is {number}; allowed: {index}, steps are numbered in order")
        what = element.get("type", "")
        if what not in _STEP_TYPES:
            raise self.fail(place, f"type is {what[:40]!r}; allowed: {', '.join(dict.fromkeys(_STEP_TYPES))}")
        count = self.number(element, "cnt", place, (0, _MOST_CHUNKS), 1)
        depends = (
            self.number(element, "depid", place, (NONE, _MOST_STEPS), NONE),
            self.number(element, "deps", place, (NONE, _MOST_STEPS), NONE),
        )
        return Step(
            what,
            self.chunks(element, "src", place, count),
            self.chunks(element, "dst", place, count),
            depends if min(depends) >= 0 else None,
        )

    def chunks(self, element: ET.Element, side: str, place: str, count: int) -> Chunks:
        """Return the chunks that a step reads or writes."""
        buffer = element.get(f"{side}buf", "i")
        if buffer not in _BUFFERS:
            raise self.fail(place, f"{side}buf is {buffer[:40]!r}; allowed: {', '.join(_BUFFERS)}")
        return Chunks(buffer, self.number(element, f"{side}off", place, (NONE, _MOST_CHUNKS), NONE), count)


# ---------------------------------------------------------------------------------------------------
# As a job


def read(reading: Reading) -> list[Part]:
    """Read an algorithm as a job of sends and receives, with chunks of an assumed size.

    Raises:
        TraceFormatError: It is no algorithm.
    """
    algorithm = parse(bytes(reading.data), reading.name)
    reading.tick(len(reading.data))
    played = play(algorithm, ASSUMED_CHUNK_BYTES)
    findings = [*reading.findings, *build_findings(algorithm, played, reading.name)]
    assumed = f"{reading.name}: an algorithm names no sizes; a chunk is taken to have {format_bytes(ASSUMED_CHUNK_BYTES)}."
    findings.append(
        Finding(
            "info",
            "chunk-size-assumed",
            assumed,
            "chakra-studio algorithm FILE SIZE compares it with the built-in ones at a size of your choice.",
            file=reading.name,
        )
    )
    return list(iterate_rank_parts(played, reading.name, findings))


def iterate_rank_parts(played: Played, file: str, findings: list[Finding]) -> Iterator[RankPart]:
    """Yield the ranks of an algorithm that was played; findings go with the first."""
    for number, nodes in enumerate(played.nodes):
        graph, slots = build_graph(nodes or [dict(_IDLE)])
        yield RankPart(
            Rank(NONE, NONE, slots, file=file), graph, number, tuple(findings if not number else ())
        )


_IDLE: Mapping[str, Any] = {"id": 1, "type": "COMP_NODE", "name": "nothing to send or receive"}


def build_findings(algorithm: Algorithm, played: Played, name: str) -> Iterator[Finding]:
    """Yield what is wrong with an algorithm."""
    for code, flaws in played.flaws.items():
        more = f" ({len(flaws):,} in all)" if len(flaws) > 1 else ""
        yield Finding("error", code, f"{name}: {flaws[0]}{more}.", _CORRECT, file=name)
    for code, note in played.notes.items():
        yield Finding("info", code, f"{name}: {note}.", file=name)
    if not algorithm.collective:
        collective = f"{algorithm.file_collective!r}" if algorithm.file_collective else "no collective"
        message = f"{name}: the algorithm names {collective}, so that its result was not checked; checked: {', '.join(TYPES)}."
        yield Finding("info", "result-unchecked", message, file=name)
