"""The forms that a job can be written in: which suffix asks for which, and which command writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from studio.errors import TraceError

Writer = Literal["convert", "visualize", "jsonize"]


@dataclass(frozen=True, slots=True)
class Form:
    """A form that a job can be written in.

    Attributes:
        suffixes: What names of its files end in; the first is the usual one.
        what: What such a file is.
        writer: The command that writes it.
    """

    suffixes: tuple[str, ...]
    what: str
    writer: Writer


CHAKRA = Form((".et", ".et.gz"), "the Chakra file of a rank", "convert")
CHROME = Form((".json",), "a Chrome trace of all ranks", "convert")
PERFETTO = Form((".pftrace",), "a Perfetto trace of all ranks", "convert")
LINES = Form((".csv",), "issue and callback lines of all ranks", "convert")
LOG = Form((".log",), "a simulator's log of all ranks", "convert")
GRAPHML = Form((".graphml",), "the graph of a rank as GraphML", "visualize")
DOT = Form((".dot", ".gv"), "the graph of a rank for Graphviz", "visualize")
SVG = Form((".svg",), "a drawing of the graph of a rank", "visualize")
PDF = Form((".pdf",), "the same drawing as PDF", "visualize")
PNG = Form((".png",), "the same drawing as a picture", "visualize")
PAGE = Form((".html", ".htm"), "a page that shows the graph of a rank", "visualize")
JSON_LINES = Form((".jsonl", ".ndjson"), "a Chakra file as JSON Lines", "jsonize")

FORMS = (CHAKRA, CHROME, PERFETTO, LINES, LOG, GRAPHML, DOT, SVG, PDF, PNG, PAGE, JSON_LINES)
"""Every form of a file; what ends in none of their suffixes is a folder or refused."""

# A dot within a name, as in llama3.1-8b or run.2024-05-01, begins no suffix.
_SUFFIX = re.compile(r".\.[A-Za-z][A-Za-z0-9]{0,9}(\.gz)?")


def find_form(path: Path, writer: Writer) -> Form | None:
    """Return the form that a name asks a command for; None for a folder, existing or without suffix.

    Raises:
        TraceError: The suffix is unknown, or another command writes that form.

    Example:
        >>> find_form(Path("job.json"), "convert").what, find_form(Path("llama3.1-8b"), "convert")
        ('a Chrome trace of all ranks', None)
    """
    if path.is_dir():
        return None
    name = path.name.lower()
    form = next((form for form in FORMS if name.endswith(form.suffixes)), None)
    if form and form.writer == writer:
        return form
    if form:
        raise TraceError(
            f"{path}: {form.what} is written by `{form.writer}`; {writer} writes {_list_suffixes(writer)}.",
            hint=f"chakra-studio {form.writer} IN -o {path}",
        )
    match = _SUFFIX.search(path.name[-14:])
    if match and path.name.endswith(match[0][1:]):
        folder = " To write into a folder of this name, make it first." if writer == "convert" else ""
        raise TraceError(
            f"{path}: {match[0][1:]!r} names no form that {writer} writes; allowed: {_list_suffixes(writer)}.",
            hint=f"{_describe_other_writers(writer)}{folder}",
        )
    return None


def _list_suffixes(writer: Writer) -> str:
    """List the suffixes of a command."""
    own = [suffix for form in FORMS if form.writer == writer for suffix in form.suffixes]
    return ", ".join(own) + (", or a folder, named without suffix" if writer == "convert" else "")


def _describe_other_writers(writer: Writer) -> str:
    """List what other commands write."""
    others: dict[str, list[str]] = {}
    for form in FORMS:
        if form.writer != writer:
            others.setdefault(form.writer, []).append(form.suffixes[0])
    return " ".join(f"`{verb}` writes {', '.join(suffixes)}." for verb, suffixes in others.items())
