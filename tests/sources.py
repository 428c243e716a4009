"""The source texts of the package, for tests of what holds for every module."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from tests.conftest import ROOT


@cache
def read_sources() -> Mapping[str, str]:
    """Return the text of each module of the package by its path from the root of the repository, in the order of paths."""
    files = sorted((ROOT / "studio").rglob("*.py"))
    return MappingProxyType(
        {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    )
