"""Promises about the glossary: its words are those of the code, and synonyms stay out of what users read."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.conftest import ROOT
from tests.sources import iterate_nodes, read_sources

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| word |", "| --- |"))
]
BANNED = sorted({word for *_, synonyms in ROWS for word in re.findall(r"\*\*(.+?)\*\*", synonyms)})


SYNONYM = re.compile(rf"\b({'|'.join(map(re.escape, BANNED))})s?\b", re.IGNORECASE)


@cache
def code_names() -> set[str]:
    """Return the names of the studio's modules, packages, classes and functions."""
    names = set()
    for path, source in read_sources().items():
        names |= {part.removesuffix(".py") for part in path.split("/")}
        names |= set(re.findall(r"^ *(?:async )?(?:class|def) (\w+)[(:\[]", source, re.MULTILINE))
    return names


def texts_of(path: str, source: str) -> list[tuple[str, str]]:
    """Return the texts of several words in a module that are not docstrings, each with its place, and the help of commands."""
    # Parsing takes a hundred times as long as searching, and few modules hold a synonym even in their code. What is
    # written in parts, one literal after the other, is one text.
    joined = re.sub(r"""["']\s*[rfbu]*["']""", "", re.sub(r"\\[nt]", " ", source))
    in_small_letters = joined.lower()
    if not any(word.lower() in in_small_letters for word in BANNED) or not SYNONYM.search(joined):
        return []
    texts, loose, tree = [], set(), ast.parse(source)
    # Whatever holds a node comes before it.
    for node in iterate_nodes(tree):
        if isinstance(node, ast.Expr):
            loose.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loose:
            texts.append((f"{path}:{node.lineno}", node.value))
    if re.fullmatch(r"studio/commands/\w+\.py", path):
        texts.append((path, ast.get_docstring(tree) or ""))
    return [(place, text) for place, text in texts if " " in text]


@cache
def found_synonyms() -> dict[str, list[str]]:
    """Return the places at which banned synonyms stand, by synonym in small letters."""
    places: dict[str, list[str]] = {}
    for path, source in read_sources().items():
        for place, text in texts_of(path, source):
            for word in SYNONYM.findall(text):
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
    assert code.strip("`") in code_names()


@pytest.mark.parametrize("word", BANNED)
def test_banned_synonyms_are_in_no_text_that_users_read(word: str):
    assert found_synonyms().get(word.lower(), []) == []


def test_banned_synonyms_are_not_banned_in_vain():
    assert len(BANNED) > 10
