"""What a page shows held against the rules of accessibility, by axe."""

from __future__ import annotations

from collections.abc import Sequence

from axe_playwright_python.base import AXE_SCRIPT

BRIEF = {"resultTypes": ["violations"]}
"""Axe describes each element that breaks a rule, and of those that break none only the first."""

GUIDELINES = BRIEF | {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
"""Levels A and AA of the Web Content Accessibility Guidelines 2.1."""

COLOURS = BRIEF | {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""The rules that look at colours: all that a theme changes."""

ALL = BRIEF
"""Every rule of axe, also what is merely good practice."""

SERIOUS = ("serious", "critical")


def hold_against(
    page, rules: dict[str, object], part: str | None = None, impacts: Sequence[str] = ()
) -> None:
    """Fail where something in the page breaks a rule.

    Args:
        page: What is shown by now.
        rules: Which rules.
        part: A selector: only what is within is looked at, which is enough where what stands around the content is what
            `test_pages.py` looks at with each page. Looking costs by what is in sight.
        impacts: What a broken rule has to be to count; nothing for any.
    """
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(AXE_SCRIPT)
    answer = page.evaluate("([part, rules]) => axe.run(part || document, rules)", [part, rules])
    broken = [rule for rule in answer["violations"] if not impacts or rule["impact"] in impacts]
    assert not broken, [(rule["id"], [node["html"][:200] for node in rule["nodes"]]) for rule in broken]
    looked_at = {rule["id"] for rule in answer["passes"]}
    assert "color-contrast" in looked_at, "no text was looked at"
