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
def read_code() -> tuple[set[str], list[tuple[str, str]]]:
    """Return what the studio's code names, and what it says.

    The names are those of modules, packages, classes and functions. The texts are those of several words that are not
    docstrings, each with its place, and the help of commands.
    """
    names, texts = set(), []
    for file in sorted((ROOT / "studio").rglob("*.py")):
        path, tree = file.relative_to(ROOT).as_posix(), ast.parse(file.read_text())
        names |= {part.removesuffix(".py") for part in path.split("/")}
        loose = set()
        # Whatever holds a node comes before it.
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Expr):
                loose.add(id(node.value))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loose:
                texts.append((f"{path}:{node.lineno}", node.value))
        if re.fullmatch(r"studio/commands/\w+\.py", path):
            texts.append((path, ast.get_docstring(tree) or ""))
    return names, [(place, text) for place, text in texts if " " in text]


@cache
def found_synonyms() -> dict[str, list[str]]:
    """Return the places at which banned synonyms stand, by synonym in small letters."""
    places: dict[str, list[str]] = {}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, BANNED))})s?\b", re.IGNORECASE)
    for place, text in read_code()[1]:
        for word in pattern.findall(text):
            places.setdefault(word.lower(), []).append(place)
    return places


def test_every_word_is_defined_once():
    words = [row[0] for row in ROWS]
    assert len(words) > 40
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_word_has_a_meaning_and_a_name_in_the_code(row: list[str]):
    _, meaning, code, _ = row
    assert meaning.endswith(".")
    assert re.fullmatch(r"`\w+`", code)
    assert code.strip("`") in read_code()[0]


@pytest.mark.parametrize("word", BANNED)
def test_banned_synonyms_are_in_no_text_that_users_read(word: str):
    assert found_synonyms().get(word.lower(), []) == []


def test_banned_synonyms_are_not_banned_in_vain():
    assert len(BANNED) > 10
