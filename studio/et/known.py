"""The studio's own formats, the ones easiest to recognise first.

Most commands read one format, so the module of a format is loaded when a file is met that may be of it: its first byte
decides that for most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from string import ascii_letters
from types import ModuleType

from studio.et.format import HEAD_BYTES, Format, Part, Reading
from studio.et.merged.rule import LOOKED_AT, RANKS

_SPACES = b" \t\n\r\v\f"
_OBJECT = _SPACES + b"{"
_XML = _SPACES + b"<\xef"
_WORD = _SPACES + ascii_letters.encode()
_MESSAGES = b"\n"
"""How the file of a protobuf message begins whose first field is a list of messages."""


@dataclass(frozen=True, slots=True)
class _Sniffer:
    """The test of a format; unlike a function made here it can be sent to other processes.

    Attributes:
        module: Where the test is, below `studio.et`.
        name: Its name there.
        begins: The first bytes that files of the format may have, any where there are none.
        holds: What their heads hold.
        lacks: What their heads do not hold, nothing where it is empty.
        within: How much of a head is looked at for what it holds: all of it takes longer than reading many a file.
    """

    module: str
    name: str = "sniff"
    begins: bytes = b""
    holds: bytes = b""
    lacks: bytes = b""
    within: int = HEAD_BYTES

    def __call__(self, head: bytes) -> bool:
        """Whether a file with this head may be of the format."""
        if not self.may_begin(head[:1]) or (self.holds and head.find(self.holds, 0, self.within) < 0):
            return False
        if self.lacks and self.lacks in head:
            return False
        return bool(getattr(_load(self.module), self.name)(head))

    def may_begin(self, first: bytes) -> bool:
        """Whether a file with this first byte may be of the format."""
        return not self.begins or first in self.begins


@cache
def _load(module: str) -> ModuleType:
    """Return a module below `studio.et`, which is loaded now; there may be thousands of files to ask of it."""
    return import_module(f"studio.et.{module}")


@dataclass(frozen=True, slots=True)
class _Reader:
    """What reads a format; unlike a function made here it can be sent to other processes.

    Attributes:
        module: Where it is, below `studio.et`.
        name: Its name there.
    """

    module: str
    name: str = "read"

    def __call__(self, reading: Reading) -> list[Part]:
        """Read a file."""
        parts: list[Part] = getattr(_load(self.module), self.name)(reading)
        return parts


def _build_alike_reader() -> Callable[[Reading], list[Part]]:
    """Return what reads the Chakra files of one job."""
    from studio.et.alike import JobReader

    return JobReader()


GROUPS = Format(
    name="groups",
    title="comm group JSON",
    sniff=_Sniffer("groups", begins=_OBJECT),
    read=_Reader("groups"),
    describes_job=True,
)
COPIES = Format(
    name="copies",
    title="table of copied ranks",
    sniff=_Sniffer("copies", begins=_OBJECT),
    read=_Reader("copies"),
    describes_job=True,
)
_FEEDER = Format(
    name="workload-graph",
    title="Chakra workload graph (JSON)",
    sniff=_Sniffer("chakra_json", "sniff_feeder", begins=_OBJECT),
    read=_Reader("chakra_json", "read_feeder"),
)
_JSONIZED = Format(
    name="jsonized",
    title="jsonized Chakra execution trace",
    sniff=_Sniffer("chakra_json", "sniff_jsonized", begins=_OBJECT),
    read=_Reader("chakra_json", "read_jsonized"),
)
_ETPLUS = Format(
    name="etplus",
    title="merged PyTorch trace (ET+, JSON)",
    sniff=_Sniffer("etplus", begins=_OBJECT),
    read=_Reader("etplus"),
)
PYTORCH = Format(
    name="pytorch",
    title="PyTorch execution trace (JSON)",
    sniff=_Sniffer("pytorch", begins=_OBJECT),
    read=_Reader("pytorch"),
    half="host",
    memory_ratio=5.0,
)
_FLIGHT = Format(
    name="flight",
    title="PyTorch flight recorder dump (pickle or JSON)",
    sniff=_Sniffer("flight", begins=_OBJECT + b"\x80"),
    read=_Reader("flight"),
    memory_ratio=40.0,
)
_INSPECTOR = Format(
    name="inspector",
    title="NCCL Inspector log (JSON Lines)",
    sniff=_Sniffer("inspector", begins=_OBJECT),
    read=_Reader("inspector"),
    tells_ranks=True,
    memory_ratio=12.0,
)
_EXPORTED_CHROME = Format(
    name="exported-chrome",
    title="Chrome trace exported by the studio",
    sniff=_Sniffer("exported", "sniff_chrome", begins=_OBJECT),
    read=_Reader("exported", "read_chrome"),
    whole=True,
    memory_ratio=10.0,
)
_TOOL_TIMELINE = Format(
    name="tool-timeline",
    title="Timeline of chakra_timeline_visualizer (Chrome trace in milliseconds)",
    sniff=_Sniffer("tool_timeline", begins=_OBJECT),
    read=_Reader("tool_timeline"),
    whole=True,
    memory_ratio=10.0,
)
_ROCPROF = Format(
    name="rocprof",
    title="rocprof v3 recording (JSON)",
    sniff=_Sniffer("rocprof", begins=_OBJECT),
    read=_Reader("rocprof"),
    half="device",
    fuller="rocpd",
    memory_ratio=4.0,
)
_NSIGHT = Format(
    name="nsight",
    title="Nsight Systems export (SQLite)",
    sniff=_Sniffer("nsight", begins=b"S"),
    read=_Reader("nsight"),
    half="device",
    memory_ratio=8.0,
)
_ROCPD = Format(
    name="rocpd",
    title="rocprof v3 database (rocpd, SQLite)",
    sniff=_Sniffer("rocpd", begins=b"S"),
    read=_Reader("rocpd"),
    half="device",
    memory_ratio=8.0,
)
_XPLANE_JSON = Format(
    name="xplane-json",
    title="JAX (XLA) profile for the trace viewer (.trace.json)",
    sniff=_Sniffer("xplane", "sniff_json", begins=_OBJECT),
    read=_Reader("xplane", "read_json"),
    half="device",
    fuller="xplane",
    memory_ratio=6.0,
)
KINETO = Format(
    name="kineto",
    title="Kineto or Chrome trace (JSON)",
    sniff=_Sniffer("kineto", begins=_OBJECT + b"["),
    read=_Reader("kineto"),
    half="device",
    memory_ratio=5.0,
)
_MSCCL = Format(
    name="msccl",
    title="MSCCL algorithm (XML)",
    sniff=_Sniffer("msccl", begins=_XML),
    read=_Reader("msccl"),
    whole=True,
    by_itself=True,
    memory_ratio=40.0,
)
_MSCCLPP = Format(
    name="mscclpp",
    title="MSCCL++ execution plan (JSON)",
    sniff=_Sniffer("mscclpp", begins=_OBJECT),
    read=_Reader("msccl"),
    whole=True,
    by_itself=True,
    memory_ratio=40.0,
)
_TEXT = Format(
    name="text",
    title="ASTRA-sim text workload",
    sniff=_Sniffer("text", begins=_WORD),
    read=_Reader("text"),
    whole=True,
)
_EVENTS = Format(
    name="events",
    title="issue and callback events",
    sniff=_Sniffer("events", lacks=b"\0"),
    read=_Reader("events"),
    whole=True,
)
_EXPORTED_PERFETTO = Format(
    name="exported-perfetto",
    title="Perfetto trace exported by the studio (.pftrace)",
    sniff=_Sniffer("exported", "sniff_perfetto", begins=_MESSAGES),
    read=_Reader("exported", "read_perfetto"),
    whole=True,
    memory_ratio=16.0,
)
_ROCPROF_PERFETTO = Format(
    name="rocprof-perfetto",
    title="rocprof v3 recording in Perfetto's format (.pftrace)",
    sniff=_Sniffer("perfetto", begins=_MESSAGES),
    read=_Reader("perfetto"),
    half="device",
    fuller="rocpd",
    memory_ratio=16.0,
)
_XPLANE = Format(
    name="xplane",
    title="JAX (XLA) profile (.xplane.pb)",
    sniff=_Sniffer("xplane", begins=_MESSAGES),
    read=_Reader("xplane"),
    half="device",
    memory_ratio=16.0,
)
MERGED = Format(
    name="merged",
    title="master trace of all ranks (.et)",
    sniff=_Sniffer("merged.reading", holds=RANKS.encode(), within=LOOKED_AT),
    read=_Reader("merged.reading"),
    whole=True,
    memory_ratio=4.0,
)
CHAKRA = Format(
    name="chakra",
    title="Chakra execution trace (.et)",
    sniff=_Sniffer("chakra"),
    read=_Reader("chakra"),
    job_reader=_build_alike_reader,
    memory_ratio=3.0,
)
FORMATS: tuple[Format, ...] = (
    GROUPS,
    COPIES,
    _FEEDER,
    _JSONIZED,
    _ETPLUS,
    PYTORCH,
    _FLIGHT,
    _INSPECTOR,
    _EXPORTED_CHROME,
    _TOOL_TIMELINE,
    _ROCPROF,
    _NSIGHT,
    _ROCPD,
    _XPLANE_JSON,
    KINETO,
    _MSCCL,
    _MSCCLPP,
    _TEXT,
    _EVENTS,
    _EXPORTED_PERFETTO,
    _ROCPROF_PERFETTO,
    _XPLANE,
    MERGED,
    CHAKRA,
)
"""Every format that can be read, the ones easiest to recognise first."""


def find_format(start: bytes) -> Format | None:
    """Return the format of the studio's own that a file with this start is of, None where it is of none."""
    return next((fmt for fmt in _select_formats(start[:1]) if fmt.sniff(start)), None)


@cache
def _select_formats(first: bytes) -> tuple[Format, ...]:
    """Return the formats whose files may begin with this byte; there may be thousands of files."""
    return tuple(fmt for fmt in FORMATS if not isinstance(fmt.sniff, _Sniffer) or fmt.sniff.may_begin(first))
