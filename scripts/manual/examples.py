"""Tells mkdocstrings that the sections "Example:" of our docstrings hold examples: it knows the plural alone."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Write the heading as mkdocstrings knows it."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
