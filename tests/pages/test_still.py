"""What is sent as one piece, and what stays a component."""

from __future__ import annotations

import msgspec
from dash import dcc, html

from studio.pages.base.still import merge_static_parts


def described(part):
    return msgspec.json.decode(part.to_plotly_json()["props"]["data-still"])


def test_what_nobody_listens_to_is_one_piece_of_elements_and_text():
    found = merge_static_parts(
        html.Table(
            html.Tr(
                [html.Td(3, className="cs-num", title="<b>"), html.Td(html.Span(None, hidden=True)), None]
            )
        )
    )
    assert described(found) == [
        "table",
        {},
        ["tr", {}, ["td", {"class": "cs-num", "title": "<b>"}, "3"], ["td", {}, ["span", {"hidden": ""}]]],
    ]


def test_links_and_styles_are_kept():
    link = dcc.Link("there", href="/graph?job=a", title="go")
    found = merge_static_parts(html.Div([html.P(link), html.Span(style={"maxWidth": "4px"})]))
    assert described(found)[2] == [
        "p",
        {},
        ["a", {"href": "/graph?job=a", "title": "go", "data-link": ""}, "there"],
    ]
    assert described(found)[3] == ["span", {"style": {"max-width": "4px"}}]


def test_what_callbacks_may_name_and_what_is_no_element_stays():
    plain = html.Ul([html.Li("one"), html.Li("two")])
    kept = html.Div([html.Button("Run", id="run"), dcc.Graph(id="figure"), plain, "text", None])
    found = merge_static_parts(kept)
    assert [type(one).__name__ for one in found.children if one is not None] == [
        "Button",
        "Graph",
        "Div",
        "str",
    ]
    assert described(found.children[2]) == ["ul", {}, ["li", {}, "one"], ["li", {}, "two"]]
    assert kept.children[2] is plain, "the tree that was given is as it was"


def test_rows_stay_inside_of_their_table():
    row = html.Tr([html.Td(html.B("one")), html.Td("two")])
    found = merge_static_parts(html.Table([row, html.Tr(html.Td(html.Button("act", id={"act": 1})))]))
    assert [type(one).__name__ for one in found.children] == ["Tr", "Tr"]
