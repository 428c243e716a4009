"""Where links lead: those of the repository to files of it, those of the manual to its pages.

Pages that are made from the code are not in the repository, so its links lead to what they are made of.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FROM_TOP = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security-reports.md": "SECURITY.md",
}
"""Files of the top folder that are pages of the manual, by where they are in it."""
NOTEBOOK = "notebook.md"
COMMANDS, API = "reference/commands.md", "reference/api.md"
_MADE_OF = {"tests/data/help.txt": COMMANDS, "studio/__init__.py": API}
"""What of the repository tells the same as pages that are made."""


def convert_link(uri: str, text: str, target: str) -> str:
    """Return a link of a page as it is within the manual, or its text where it leads to no page.

    Args:
        uri: The page.
        text: What the link says.
        target: Where it leads in the repository.
    """
    path, hash_, anchor = target.partition("#")
    if not path or ":" in path or uri in (COMMANDS, API):
        return f"[{text}]({target})"
    origin = FROM_TOP.get(uri, f"docs/{uri}")
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    # In the repository the notebook is its page; the manual has both.
    if meant == origin == f"docs/{NOTEBOOK}":
        return f"[{text}]({NOTEBOOK.removesuffix('.md')}.ipynb)"
    pages = {name: page for page, name in FROM_TOP.items() if (ROOT / name).exists()} | _MADE_OF
    page = meant.removeprefix("docs/") if meant.startswith("docs/") else pages.get(meant)
    if page is None:
        return text
    return f"[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{hash_}{anchor})"
