"""Functions are named by verbs, values by nouns: the rule of CONTRIBUTING.md, for every module of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import studio
from studio import figures
from tests.conftest import ROOT
from tests.sources import iterate_nodes, read_sources


def _read_words(name: str) -> frozenset[str]:
    return frozenset((ROOT / "tests" / "data" / name).read_text(encoding="utf-8").split())


VERBS = _read_words("verbs.txt")
"""First words of functions. A verb that is not there is added; a noun is not."""
PREDICATES = _read_words("predicates.txt")
"""First words of functions that say whether something is so."""
IDIOMS = frozenset({"as", "from", "to", "with", "without"})
"""First words that Python programs use for conversions and for copies with a change."""
GIVEN = frozenset(
    {"layout", "main", "text", *studio.__all__, *figures.__all__}
    | {"command", "front_figure", "json_to_record", "recorder"}
)
"""Names that others look for: Dash, Python, commands (`studio/commands/base/outcome.py`), and users of the library."""
EXPRESSIONS = ("studio/et/event_kernel.py", "studio/et/kernel.py", "studio/sim/kernel/")
"""Where compiled code reads a field or a place, so often that a verb before each would hide what it reads."""
UNNAMED = frozenset({"found", "made", "mine", "one", "said", "there", "told"})
"""Names of values that say where a value comes from, not what it is."""
TEXTS = re.compile(r'"""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*"|#.*')
"""Docstrings, texts and comments, as the formatter writes them."""
STORED = frozenset({("studio/jobs/watching.py", "said")})
"""Fields whose name is a key in files of earlier versions."""

Place = tuple[str, int, str]
"""A module, a line of it, and the name that stands there."""


def test_functions_are_named_by_verbs():
    functions, _ = _find_names()
    assert [place for place in functions if not _begins_with_verb(place[-1])] == []


def test_values_are_named_by_nouns():
    _, values = _find_names()
    unnamed = [place for place in values if place[-1] in UNNAMED]
    assert [(module, line, name) for module, line, name in unnamed if (module, name) not in STORED] == []


def test_nouns_and_participles_are_no_verbs():
    """The rule refuses what it is there for."""
    for name in ("groups", "_told", "listed_groups", "times_of", "_kept", "in_order"):
        assert not _begins_with_verb(name), name
    for name in ("list_groups", "_describe", "fits", "carries_bytes", "with_ids", "is_late", "matches"):
        assert _begins_with_verb(name), name


def test_lines_tell_where_a_noun_may_name_a_function():
    for source in (
        "def groups(): ...",
        "class A:\n    def _groups(self): ...",
        "class A: ...\ndef list_all():\n    def groups(): ...",
    ):
        assert _may_hold_a_noun(source), source
    for source in (
        "def list_groups(): ...",
        "class A:\n    def groups(self): ...\n    def __len__(self): ...",
        "groups = 1",
    ):
        assert not _may_hold_a_noun(source), source


def _begins_with_verb(name: str) -> bool:
    word = name.strip("_").split("_")[0]
    return word in VERBS | PREDICATES | IDIOMS or name in GIVEN


@cache
def _find_names() -> tuple[list[Place], list[Place]]:
    """Return the functions of the package, and the values of modules with a word of UNNAMED."""
    functions, values = [], []
    for module, source in read_sources().items():
        # Parsing takes the longest, and few modules have such a word outside of texts, or a line that may begin a function of
        # another name.
        if not module.startswith(EXPRESSIONS) and _may_hold_a_noun(source):
            functions += [(module, line, name) for line, name in _iterate_functions(ast.parse(source))]
        if re.search(rf"\b({'|'.join(UNNAMED)})\b", TEXTS.sub("", source)):
            values += [(module, line, name) for line, name in _iterate_values(ast.parse(source))]
    return functions, values


def _may_hold_a_noun(source: str) -> bool:
    """Whether a line begins a function that is not named by a verb, unless a class at the top level offers it."""
    in_class = False
    for function, top in re.findall(r"^(?:( *(?:async )?def \w+)|(\S+))", source, re.MULTILINE):
        if top:
            in_class = top == "class"
            continue
        indent, name = len(function) - len(function.lstrip()), function.split()[-1]
        in_class = in_class and bool(indent)
        is_offered = in_class and indent == 4 and not name.startswith("_")
        if not is_offered and not name.startswith("__") and not _begins_with_verb(name):
            return True
    return False


def _iterate_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield functions and private methods, each with its line. Methods that classes offer may be nouns, as properties are."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        is_class = isinstance(node, ast.ClassDef)
        # Functions are statements: what is an expression is not gone into.
        inner = (getattr(node, part, ()) for part in ("body", "orelse", "finalbody", "handlers", "cases"))
        for child in chain.from_iterable(part for part in inner if isinstance(part, list)):
            if isinstance(child, ast.FunctionDef):
                is_offered = is_class and not child.name.startswith("_")
                if not is_offered and not _is_described(child):
                    yield child.lineno, child.name
            waiting.append(child)


def _iterate_values(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield variables, parameters and fields, each with its line."""
    for node in iterate_nodes(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def _is_described(function: ast.FunctionDef) -> bool:
    """Whether a name is Python's own, or that of a value which is computed."""
    computed = any("property" in ast.unparse(decorator) for decorator in function.decorator_list)
    return function.name.startswith("__") or function.name.endswith("_") or computed
