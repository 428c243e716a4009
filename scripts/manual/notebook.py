"""The tutorial's notebook: run from its Markdown source, as a file for Jupyter and as a page with what its cells returned."""

from __future__ import annotations

import html
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Executed:
    """A notebook after all of its cells ran.

    Attributes:
        notebook: The `.ipynb`, with outputs.
        page: The same as Markdown.
    """

    notebook: str
    page: str


def executed(source: str) -> Executed:
    """Run a notebook in a folder of its own; a cell that fails ends the build."""
    # By the name Jupyter and Colab know.
    notebook = jupytext.reads(source, fmt="md")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    with tempfile.TemporaryDirectory() as folder:
        # This checkout is what the notebook imports.
        os.environ["PYTHONPATH"] = str(ROOT)
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        # When each cell ran differs from build to build.
        cell.metadata.pop("execution", None)
    return Executed(nbformat.writes(notebook), "\n\n".join(_cell(cell) for cell in notebook.cells))


def _cell(cell: Any) -> str:
    if cell.cell_type != "code":
        return str(cell.source)
    shown = "\n\n".join(filter(None, (_output(output) for output in cell.outputs)))
    return f"```python\n{cell.source}\n```\n\n{shown}"


def _output(output: Any) -> str:
    """Return what a cell printed or returned; a figure is shown by the notebook alone."""
    if output.output_type == "stream":
        if output.name == "stderr":
            print(output.text, file=sys.stderr)
            return ""
        return f"```text\n{output.text.rstrip()}\n```"
    data = output.get("data", {})
    if "application/vnd.plotly.v1+json" in data:
        return "*The notebook shows a figure here.*"
    if "text/html" in data:
        # On one line each: a blank line would end the block in Markdown.
        return "<div>" + "".join(line.strip() + " " for line in data["text/html"].splitlines()) + "</div>"
    return f"<pre>{html.escape(data.get('text/plain', ''))}</pre>"
