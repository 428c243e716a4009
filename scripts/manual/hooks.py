"""What MkDocs asks while it builds the manual: pages made from the code, the navigation, links out of `docs/`.

Pages are the files of `docs/`, some files of the top folder, and those that are made here. A link to a file of the repository
that is no page becomes plain text: the manual has no repository to point to.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from mkdocs.structure.files import File

from scripts.manual.api import api_reference
from scripts.manual.commands import command_reference
from scripts.manual.notebook import Executed, executed

ROOT = Path(__file__).resolve().parent.parent.parent
# Files of the top folder that are pages of the manual, by where they are in it.
FROM_TOP = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security-reports.md": "SECURITY.md",
}
MADE = {"reference/commands.md": command_reference, "reference/api.md": api_reference}
NOTEBOOK = "notebook.md"
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
        lines.append(line if fenced else LINK.sub(lambda link: _link(uri, link[1], link[2]), line))
    return "\n".join(lines)


def _link(uri: str, text: str, target: str) -> str:
    """Return a link of a page as it is within the manual, or its text where it leads to no page."""
    path, hash_, anchor = target.partition("#")
    if not path or ":" in path or uri in MADE:
        return f"[{text}]({target})"
    origin = FROM_TOP.get(uri, f"docs/{uri}")
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    pages = {name: page for page, name in FROM_TOP.items() if (ROOT / name).exists()}
    page = meant.removeprefix("docs/") if meant.startswith("docs/") else pages.get(meant)
    if page is None:
        return text
    return f"[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{hash_}{anchor})"
