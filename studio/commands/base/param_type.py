"""The class that kinds of options and arguments are derived from, whichever release of click is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

__all__ = ["ParamType"]

if TYPE_CHECKING:
    from click import ParamType
else:

    class ParamType(click.ParamType):
        """Click's own, which before 8.4 does not take the type of the values: `ParamType[int]` was an error."""

        def __class_getitem__(cls, _values: Any) -> type:
            return cls
