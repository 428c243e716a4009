"""Promises about the glossary: its words are those of the code, and synonyms stay out of what users read."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.conftest import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| word |", "| --- |"))
]
BANNED = sorted({word for *_, synonyms in ROWS for word in re.findall(r"\*\*(.+?)\*\*", synonyms)})


@cache
def modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for path in sorted((ROOT / "studio").rglob("*.py"))
    }


@cache
def names() -> set[str]:
    """Modules, packages, classes and functions of the studio."""
    defined = {part.removesuffix(".py") for path in modules() for part in path.split("/")}
    for tree in modules().values():
        defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return defined


@cache
def prose() -> list[tuple[str, str]]:
    """Return the texts of several words in the code that are not docstrings, each with its place."""
    texts = []
    for path, tree in modules().items():
        loose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts += [
            (f"{path}:{node.lineno}", node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loose
            if " " in node.value
        ]
        if re.fullmatch(r"studio/commands/\w+\.py", path):
            # The help text of a command.
            texts.append((path, ast.get_docstring(tree) or ""))
    return texts


def test_every_word_is_defined_once():
    words = [row[0] for row in ROWS]
    assert len(words) > 40
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_word_has_a_meaning_and_a_name_in_the_code(row: list[str]):
    _, meaning, code, _ = row
    assert meaning.endswith(".")
    assert re.fullmatch(r"`\w+`", code)
    assert code.strip("`") in names()


@pytest.mark.parametrize("word", BANNED)
def test_banned_synonyms_are_in_no_text_that_users_read(word: str):
    pattern = re.compile(rf"\b{re.escape(word)}s?\b", re.IGNORECASE)
    assert [place for place, text in prose() if pattern.search(text)] == []


def test_banned_synonyms_are_not_banned_in_vain():
    assert len(BANNED) > 10
