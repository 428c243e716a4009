"""What MkDocs asks while it builds the manual: pages made from the code, the navigation, links out of `docs/`.

Pages are the files of `docs/`, some files of the top folder, and those that are made here. A link to a file of the repository
that is no page becomes plain text: the manual has no repository to point to.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from mkdocs.structure.files import File

from scripts.manual.api import api_reference
from scripts.manual.commands import command_reference
from scripts.manual.links import API, COMMANDS, FROM_TOP, NOTEBOOK, ROOT, convert_link
from scripts.manual.notebook import Executed, executed

MADE = {COMMANDS: command_reference, API: api_reference}
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)")
_notebooks: list[Executed] = []


def on_config(config: Any) -> None:
    """Add the pages that `mkdocs.yml` does not list: questions to Questions, others to Topics."""
    sections = {
        name: pages for entry in config["nav"] if isinstance(entry, dict) for name, pages in entry.items()
    }
    docs = Path(config["docs_dir"])
    listed = set(_listed(config["nav"]))
    for path in sorted(docs.rglob("*.md")):
        page = path.relative_to(docs).as_posix()
        if page not in listed:
            sections["Questions" if page.startswith("questions/") else "Topics"].append(page)
    if (ROOT / "SECURITY.md").exists():
        sections["The project"].append("security-reports.md")


def _listed(entries: Any) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from _listed(entry)


def on_files(files: Any, config: Any) -> None:
    """Add the pages that are made, those of the top folder, and the logo."""
    for page, make in MADE.items():
        files.append(File.generated(config, page, content=make()))
    for page, name in FROM_TOP.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, "logo.svg", abs_src_path=str(ROOT / "assets" / "logo.svg")))
    source = files.get_file_from_path(NOTEBOOK)
    if source is not None:
        _notebooks[:] = [executed(source.content_string)]
        files.append(File.generated(config, "notebook.ipynb", content=_notebooks[0].notebook))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show what the notebook's cells returned; lead links of the repository to pages."""
    uri = page.file.src_uri
    if uri == NOTEBOOK:
        markdown = _notebooks[0].page
    lines, fenced = [], False
    for line in markdown.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        lines.append(line if fenced else LINK.sub(lambda link: convert_link(uri, link[1], link[2]), line))
    return "\n".join(lines)
