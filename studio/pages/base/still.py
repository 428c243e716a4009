"""Send static subtrees as one component: Dash pays per component.

Dash keeps a store entry per component and notifies all of them whenever one appears, so that a table of a thousand
parts takes seconds to draw. Tables, lists and paragraphs that no callback reads or writes are sent as a description in
one attribute, of which `assets/base/still.mjs` makes elements and text, never markup.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec
from dash import dcc, html
from dash.development.base_component import Component

_INSIDE = ("Thead", "Tbody", "Tr", "Td", "Th", "Caption", "Li", "Dt", "Dd", "Summary", "Option")
"""Elements that are valid only inside certain parents: they are sent with these or not at all."""
_NAMES = {
    "className": "class",
    "htmlFor": "for",
    "tabIndex": "tabindex",
    "colSpan": "colspan",
    "rowSpan": "rowspan",
}
_FEWEST = 3
"""Smallest number of elements worth sending as one component, unless there are as many as in a form."""

Described = list[Any] | str


def merge_static_parts(tree: Any, *, fewest: int = _FEWEST) -> Any:
    """Merge each static part of a tree of components into one component.

    Parts with an id stay, since callbacks may use them, and so do figures, inputs and stores.

    Args:
        tree: A component, or a list of them.
        fewest: Parts of fewer elements stay as they are.
    """
    if isinstance(tree, (list, tuple)):
        return [merge_static_parts(part, fewest=fewest) for part in tree]
    if not isinstance(tree, Component):
        return tree
    description = None if type(tree).__name__ in _INSIDE else _describe(tree)
    if description is not None and _count_elements(description) >= fewest:
        about: dict[str, Any] = {"data-still": msgspec.json.encode(description).decode()}
        return html.Div(className="cs-still", **about)
    if getattr(tree, "children", None) is None:
        return tree
    changed = copy.copy(tree)
    changed.children = merge_static_parts(tree.children, fewest=fewest)
    return changed


def _describe(part: Any) -> Described | None:
    """Return an element as [name, attributes, parts ...], a text as itself; None if it is not static."""
    if not isinstance(part, Component):
        return str(part)
    is_link = isinstance(part, dcc.Link)
    if not is_link and type(part).__module__.rpartition(".")[0] != html.__name__:
        return None
    attributes = _convert_attributes(part)
    if attributes is None:
        return None
    description: list[Any] = ["a" if is_link else type(part).__name__.lower(), attributes]
    if is_link:
        attributes["data-link"] = ""
    for child in _list_children(part):
        described = _describe(child)
        if described is None:
            return None
        description.append(described)
    return description


def _convert_attributes(part: Component) -> dict[str, Any] | None:
    """Return the HTML attributes of an element; None if it has an id or a property of Dash alone."""
    attributes: dict[str, Any] = {}
    for name, value in part.to_plotly_json()["props"].items():
        if name == "children" or value is None or value is False:
            continue
        if name == "id" or name.startswith("n_"):
            return None
        if name == "style":
            attributes["style"] = {
                _convert_css_name(key): str(value_text) for key, value_text in value.items()
            }
        else:
            attributes[_NAMES.get(name, name)] = "" if value is True else str(value)
    return attributes


def _list_children(part: Component) -> list[Any]:
    children = getattr(part, "children", None)
    several = children if isinstance(children, (list, tuple)) else [children]
    flat: list[Any] = []
    for child in several:
        flat += child if isinstance(child, (list, tuple)) else [child]
    return [child for child in flat if child is not None and child is not False]


def _convert_css_name(name: str) -> str:
    """Return the CSS name of a style property.

    Example:
        >>> _convert_css_name("maxWidth"), _convert_css_name("--cs-share")
        ('max-width', '--cs-share')
    """
    return (
        name if name.startswith("--") else re.sub(r"[A-Z]", lambda match: f"-{match.group().lower()}", name)
    )


def _count_elements(description: Described) -> int:
    return 0 if isinstance(description, str) else 1 + sum(_count_elements(part) for part in description[2:])
