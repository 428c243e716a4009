"""Folds of forms: what is in them counts from the beginning, and is drawn once it is opened.

Drawing the fields of a form takes the browser longer than all else on its page, and most of them are in folds that few open. Dash
keeps the components of a `Fold` like all others, so that callbacks read and write fields that are not drawn; only drawing waits
(`Fold` in `assets/loader.js`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dash.development.base_component import Component


class Fold(Component):
    """A `<details>` whose content is drawn when it is opened, pointed at or looked for, or when something in it is wrong.

    Args:
        children: Its title, a `Summary`, then its content.
        class_name: Its class in stylesheets.
        is_open: Whether it is open at first.

    `drawn` is written by the browser.
    """

    _children_props: ClassVar[list[str]] = []  # type: ignore[misc]  # Dash has them as of an instance
    _base_nodes: ClassVar[list[str]] = ["children"]  # type: ignore[misc]
    _namespace = "studio_parts"
    _type = "Fold"

    def __init__(self, children: Sequence[Any], class_name: str = "", *, is_open: bool = False) -> None:
        self._prop_names = ["children", "className", "open", "drawn"]
        self._valid_wildcard_attributes: list[str] = []
        self.available_properties = self._prop_names
        self.available_wildcard_properties = self._valid_wildcard_attributes
        about = {"className": class_name, "open": is_open}
        super().__init__(children=list(children), **about)  # type: ignore[no-untyped-call]  # Dash annotates some only
