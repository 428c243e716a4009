"""Kinds of options and arguments, with whichever click is installed."""

from __future__ import annotations

import click

from studio.commands.base.options import Bytes
from studio.commands.base.param_type import ParamType


def test_the_type_of_values_is_named_without_click_taking_it() -> None:
    """It takes it since 8.4; older ones are allowed. `make wheel-check` starts the studio with the oldest."""
    assert ParamType[int] is ParamType
    assert issubclass(Bytes, click.ParamType)
