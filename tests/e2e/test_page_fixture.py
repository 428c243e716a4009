"""The browser fixture notices what a user should never see happen."""

from __future__ import annotations

import re

import pytest

from tests.e2e.conftest import until

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("console.error('it broke')", "console error: it broke"),
        ("console.warn('it may break')", "console warning: it may break"),
        (
            "setTimeout(() => { throw new Error('nobody caught me') })",
            "uncaught exception: .*nobody caught me",
        ),
        (
            "fetch('http://example.com/track').catch(() => 0)",
            "request to another machine: GET http://example.com",
        ),
        ("new WebSocket('ws://example.com/')", "ws://example.com"),
        ("fetch('http://127.0.0.1:9/').catch(() => 0)", "request failed: GET http://127.0.0.1:9"),
    ],
)
def test_each_mishap_is_noted(page, script, complaint):
    page.goto("about:blank")
    page.set_content("<h1>Studio</h1>")
    page.expected += [".*"]
    page.add_script_tag(content=script)
    until(page, lambda: any(re.search(complaint, line) for line in page.complaints))


def test_a_quiet_page_has_no_complaint(page):
    page.goto("about:blank")
    page.set_content("<h1>Studio</h1>")
    page.evaluate("console.log('all is well')")
    assert page.complaints == []
