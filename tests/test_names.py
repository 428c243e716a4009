"""Functions are named by verbs, values by nouns: the rule of CONTRIBUTING.md, for every module of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import studio
from studio import figures

ROOT = Path(__file__).resolve().parent.parent
VERBS = frozenset((Path(__file__).parent / "data" / "verbs.txt").read_text(encoding="utf-8").split())
"""First words of functions. A verb that is not there is added; a noun is not."""
PREDICATES = frozenset(
    [
        "agrees",
        "allows",
        "begins",
        "carries",
        "communicates",
        "compiles",
        "computes",
        "counts",
        "crosses",
        "differs",
        "divides",
        "ends",
        "feeds",
        "fills",
        "fits",
        "gathers",
        "goes",
        "hangs",
        "has",
        "holds",
        "infers",
        "is",
        "joins",
        "lacks",
        "matches",
        "meets",
        "needs",
        "passes",
        "permutes",
        "reaches",
        "reads",
        "replays",
        "runs",
        "says",
        "shares",
        "stands",
        "starts",
        "stays",
        "supports",
        "talks",
        "tells",
        "uses",
        "waits",
    ]
)
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


def test_functions_are_named_by_verbs():
    assert [place for place, name in _iterate_functions() if not _begins_with_verb(name)] == []


def test_values_are_named_by_nouns():
    assert [place for place, name in _iterate_values() if name in UNNAMED] == []


def test_nouns_and_participles_are_no_verbs():
    """The rule refuses what it is there for."""
    for name in ("groups", "_told", "listed_groups", "times_of", "_kept", "in_order"):
        assert not _begins_with_verb(name), name
    for name in ("list_groups", "_describe", "fits", "carries_bytes", "with_ids", "is_late", "matches"):
        assert _begins_with_verb(name), name


def _begins_with_verb(name: str) -> bool:
    word = name.strip("_").split("_")[0]
    return word in VERBS | PREDICATES | IDIOMS or name in GIVEN


def _parse_modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "studio").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def _iterate_functions() -> Iterator[tuple[str, str]]:
    """Yield place and name of functions and of private methods; those that classes offer may be nouns, as properties are."""
    for module, tree in _parse_modules():
        if not module.startswith(EXPRESSIONS):
            for function, is_method in _iterate_definitions(tree, is_class=False):
                if not (is_method and not function.name.startswith("_")) and not _is_described(function):
                    yield f"{module}:{function.lineno} {function.name}", function.name


def _iterate_definitions(tree: ast.AST, *, is_class: bool) -> Iterator[tuple[ast.FunctionDef, bool]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef):
            yield child, is_class
        yield from _iterate_definitions(
            child,
            is_class=isinstance(child, ast.ClassDef) or (is_class and not isinstance(child, ast.FunctionDef)),
        )


def _is_described(function: ast.FunctionDef) -> bool:
    """Whether a name is Python's own, or that of a value which is computed."""
    computed = any("property" in ast.unparse(decorator) for decorator in function.decorator_list)
    return function.name.startswith("__") or function.name.endswith("_") or computed


def _iterate_values() -> Iterator[tuple[str, str]]:
    """Yield place and name of variables and parameters; fields are read behind the name of their owner."""
    for module, tree in _parse_modules():
        fields = {
            id(line.target)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for line in node.body
            if isinstance(line, ast.AnnAssign)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
                yield f"{module}:{node.lineno} {node.id}", node.id
            elif isinstance(node, ast.arg):
                yield f"{module}:{node.lineno} {node.arg}", node.arg
