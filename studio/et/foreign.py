"""Say what files are that cannot be read: those of other programs, and those of no known one."""

from __future__ import annotations

import re
from collections.abc import Callable


def describe_unrecognised(start: bytes, name: str = "") -> str:
    """Describe what an unrecognised file seems to be, by its start and, where that tells nothing, its name."""
    text = start.lstrip()
    if not start:
        return "an empty file"
    if of_program := find_foreign(start, name):
        return of_program[0]
    for magic, what in _MAGIC.items():
        if start.startswith(magic):
            return what
    if not start.strip(b"\0"):
        return "a file filled with zero bytes"
    if text.startswith((b"{", b"[")):
        return "a JSON file"
    printable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in start)
    return "a text file" if printable > 0.95 * len(start) else "binary data of an unknown kind"


def find_foreign(start: bytes, name: str = "") -> tuple[str, str] | None:
    """Return what a file of a known program is that cannot be read, and what to do about it; None where it is of none.

    Args:
        start: Its beginning.
        name: Its name, which tells what programs write in forms of their own.

    Example:
        >>> find_foreign(b'"Kind","Agent_Id","Queue_Id","Kernel_Name"')[0], find_foreign(b"", "report1.nsys-rep")[0]
        ('a table of rocprof (CSV)', 'a report of Nsight Systems')
    """
    of_content = next((words for is_so, words in _FOREIGN if is_so(start)), None)
    return of_content or next((words for is_so, words in _FOREIGN_NAMES if is_so.search(name)), None)


_TABLE = re.compile(
    rb'"(Kind","[A-Z][a-z]+|Domain","Function|Correlation_Id","Dispatch_Id)|"?Index"?,"?KernelName'
)
_NSIGHT_EXPORT = "Export it as a database, which can be read: nsys export --type sqlite --include-blobs=true REPORT.nsys-rep."
_FOREIGN_NAMES = (
    (re.compile(r"\.(nsys-rep|qdrep|qdstrm)(\.gz)?$"), ("a report of Nsight Systems", _NSIGHT_EXPORT)),
    (
        re.compile(r"(^|/)(CUPTI_ACTIVITY_\w+|NVTX_EVENTS|StringIds|TARGET_INFO_\w+)\.(parquet|arrow)$"),
        ("a table of an export of Nsight Systems (Parquet or Arrow)", _NSIGHT_EXPORT),
    ),
    (
        re.compile(r"\.ncu-rep$"),
        (
            "a report of Nsight Compute, which looks into single kernels",
            "Record the whole program: with PyTorch's profiler, or nsys profile.",
        ),
    ),
    (
        re.compile(r"\.otf2$"),
        (
            "an OTF2 archive",
            "Record with rocprofv3 --output-format json, or keep the database that it writes.",
        ),
    ),
)
_FOREIGN: tuple[tuple[Callable[[bytes], object], tuple[str, str]], ...] = (
    (
        _TABLE.match,
        (
            "a table of rocprof (CSV)",
            "A table holds records of one kind: record with rocprofv3 --sys-trace --output-format json.",
        ),
    ),
    (
        lambda start: start.startswith(b"version https://git-lfs.github.com/spec/"),
        ("a pointer of Git LFS in place of the file", "Fetch the file itself: git lfs pull."),
    ),
    (
        re.compile(rb"\s*<(!doctype\s+html|html)\b", re.IGNORECASE).match,
        (
            "a web page (HTML) in place of the file",
            "Download the file itself; of GitHub by its button Download raw file.",
        ),
    ),
    *(
        (
            re.compile(re.escape(magic)).match,
            (
                f"a file packed by {tool}",
                f"Unpack it first: {command} FILE. gzip, zip and tar are unpacked here.",
            ),
        )
        for magic, tool, command in (
            (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
            # As pzstd begins its files.
            (b"\x50\x2a\x4d\x18", "zstd", "zstd -d"),
            (b"\xfd7zXZ", "xz", "xz -d"),
            (b"\x5d\x00\x00", "lzma", "xz -d --format=lzma"),
            (b"BZh", "bzip2", "bzip2 -d"),
            (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
            (b"\x02\x21\x4c\x18", "lz4", "lz4 -d"),
            (b"LZIP\x01", "lzip", "lzip -d"),
            (b"\x89LZO\x00\r\n", "lzop", "lzop -d"),
            (b"\x1f\x9d", "compress", "uncompress"),
            (b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x"),
            (b"Rar!\x1a\x07", "RAR", "unrar x"),
        )
    ),
    (
        re.compile(
            rb'\s*\[?\s*\{("Type":\s*\d+,\s*)?"(CudaEvent|NvtxEvent|TraceProcessEvent|GlobalPid)":'
        ).match,
        ("an export of Nsight Systems (JSON)", _NSIGHT_EXPORT),
    ),
    (
        lambda start: b'"traceEvents"' in start and b'"BeginNs"' in start,
        (
            "a trace of rocprof v1 or v2 (JSON)",
            "Its successor can be read: record with rocprofv3 --sys-trace --output-format json.",
        ),
    ),
)
_MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip file that is empty, damaged at its start, or packed twice",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"%PDF": "a PDF document",
    b"\x7fELF": "a Linux program or library",
    b"MZ": "a Windows program",
    b"SQLite format 3": "an SQLite database",
    b"ARROW1": "an Arrow file",
    b"PAR1": "a Parquet file",
}
