"""The reference of the library: the public names of `studio`, for mkdocstrings to fill in."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

import studio

TITLE = """\
# Library

`import studio` gives these names; each is loaded when it is first used. Types in a signature are links where they are public.
"""


def api_reference() -> str:
    """Return the page: a section per public name, with a directive that mkdocstrings replaces."""
    names = sorted(studio.__all__, key=str.lower)
    sections = [f"## studio.{name}\n\n::: {_where(name)}\n" for name in names]
    return "\n".join([TITLE, *sections])


def _where(name: str) -> str:
    """Return the address at which a public name is defined, which is not where it is taken from."""
    value = inspect.unwrap(getattr(studio, name))
    if isinstance(value, ModuleType):
        return value.__name__
    module = getattr(value, "__module__", "")
    if getattr(sys.modules.get(module), name, None) is value:
        return f"{module}.{name}"
    # A value, not a class or function: its module is the one it is taken from.
    return f"{studio._WHERE[name]}.{name}"  # noqa: SLF001 (the table of public names)
