"""Loads the part of dash-mantine-components that the studio uses.

The package defines nearly 200 components and takes longer to define them than the rest of the studio takes to start.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

COMPONENTS = (
    "AppShell",
    "AppShellAside",
    "AppShellHeader",
    "AppShellMain",
    "AppShellNavbar",
    "MantineProvider",
    "NavLink",
    "SegmentedControl",
    "Select",
    "TextInput",
    "Textarea",
)
"""Every component that app and pages name: the browser is told of these before the first is shown."""

_PACKAGE = "dash_mantine_components"


def load_components() -> None:
    """Import dash-mantine-components with COMPONENTS in it; the others are imported when they are first used.

    Does nothing where it is imported already.
    """
    if _PACKAGE in sys.modules:
        return
    finder = _Components()
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(_PACKAGE)
    finally:
        sys.meta_path.remove(finder)


class _Components(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for the package's module that imports all components."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Claim that one module."""
        return importlib.machinery.ModuleSpec(name, self) if name == f"{_PACKAGE}._imports_" else None

    def exec_module(self, module: ModuleType) -> None:
        """Import the components that are used, and have the package import others when they are asked for."""
        components = {
            name: getattr(importlib.import_module(f"{_PACKAGE}.{name}"), name) for name in COMPONENTS
        }
        vars(module).update(components, __all__=list(components))
        vars(sys.modules[_PACKAGE])["__getattr__"] = _import_component


def _import_component(name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"{_PACKAGE}.{name}"), name)
    except ModuleNotFoundError:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}") from None
