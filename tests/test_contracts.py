"""Promises about the package as a whole: light to import, complete in its public names, documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path

import grimp
import networkx as nx
import pytest

import studio
from studio.cli import list_verbs, load_command
from studio.et import FORMATS
from studio.pages.base.mantine import COMPONENTS
from tests.conftest import ROOT
from tests.sources import iterate_nodes, read_sources

HEAVY = (
    "dash", "flask", "plotly", "numba", "pandas", "pyarrow", "networkx", "rustworkx", "google.protobuf", "numpy", "msgspec",
)  # fmt: skip


def loaded_after(*statements: str) -> list[list[str]]:
    """The heavy packages a fresh interpreter has loaded after each of some statements."""
    told = f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    program = "\n".join(["import json, sys", *(f"{statement}\n{told}" for statement in statements)])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


# ---------------------------------------------------------------------------------------------------
# Imports


def test_no_two_modules_import_each_other():
    """Neither directly nor in a circle, nor for types only; `studio` itself only passes names on."""
    imports = grimp.build_graph("studio", exclude_type_checking_imports=False, cache_dir=None)
    arrows = nx.DiGraph(
        (importer, imported)
        for importer in imports.modules - {"studio"}
        for imported in imports.find_modules_directly_imported_by(importer) - {"studio"}
    )
    assert [sorted(circle) for circle in nx.strongly_connected_components(arrows) if len(circle) > 1] == []


# ---------------------------------------------------------------------------------------------------
# Weight


STORE_AND_OPEN = """
import tempfile
from studio.jobs.importing import open_sample
from studio.samples import SAMPLES
from studio.store.workspace import Workspace
with tempfile.TemporaryDirectory() as folder:
    workspace = Workspace(folder)
    trace = workspace.load(open_sample(workspace, SAMPLES[0].name))
    assert trace.node_count > 0
    del trace
"""


@pytest.mark.integration
def test_neither_the_package_nor_commands_without_a_browser_load_what_they_do_not_need():
    """Nor do storing and opening a job need pandas: it would take longer to import than the job to open.

    A workspace is listed and asked by SQL without readers of files and without the simulator.
    """
    package, commands, lists, names, stored, info = loaded_after(
        "import studio",
        "from studio.cli import main; main(['--help'], standalone_mode=False)",
        "import studio.commands.sql\n"
        "assert not {'studio.et.job', 'studio.et.job_builder', 'studio.sim.result', 'studio.sim.doubts'} & set(sys.modules)",
        "studio.read, studio.write, studio.Trace, studio.Workspace, studio.StudioError",
        STORE_AND_OPEN,
        "from studio.samples import sample_path\n"
        "main(['info', str(sample_path('transformer_8r'))], standalone_mode=False)",
    )
    assert package == []
    assert set(commands) <= {"numpy", "msgspec"}
    assert set(lists) <= {"numpy", "msgspec"}
    assert not {"dash", "flask", "plotly", "pandas", "numba"} & set(names)
    assert not {"dash", "flask", "plotly", "pandas", "numba"} & set(stored)
    assert not {"dash", "flask", "plotly", "pandas"} & set(info)


@pytest.mark.integration
def test_the_studio_starts_without_what_only_some_pages_need():
    program = """
import tempfile
from studio.commands.serve import load_components
load_components()
from studio.app import create_app, compute_script_hashes
from studio.session import Session
from studio.store.imports import open_registry
from studio.store.tasks import close_tasks, open_tasks
from studio.jobs.importing import upload_reader
from studio.jobs.simulations import Simulations, simulate_jobs
from studio.store.workspace import Workspace
with tempfile.TemporaryDirectory() as folder:
    workspace = Workspace(folder)
    tasks = open_tasks(workspace.root)
    registry = open_registry(tasks, upload_reader(workspace))
    session = Session(workspace)
    app = create_app(session, registry, Simulations(tasks, simulate_jobs(session)))
    compute_script_hashes(app)
    close_tasks(tasks)
"""
    [loaded] = loaded_after(program)
    assert not {"pandas", "numba", "networkx", "rustworkx"} & set(loaded)


@pytest.mark.integration
def test_arrow_is_used_without_pandas():
    """While a thread of the studio imports pandas, answers of its other threads fail, see `studio.arrow`."""
    # A child process answers queries, and tables of the library are pandas'.
    allowed = {"arrow.py", "sql/child.py", "analysis/job/export.py"}
    calls = r"pa\.(?:array|scalar|table|chunked_array)\(|\.to_numpy\(|\.from_py(?:list|dict)\("
    found = [
        f"{name}: {call}"
        for name, source in read_sources().items()
        if name.removeprefix("studio/") not in allowed
        for call in re.findall(calls, source)
    ]
    assert found == []
    program = """
import datetime, sys
import pyarrow as pa
from studio import read, sample_path
from studio.analysis.job.node_conditions import Condition
from studio.analysis.job.nodes import NodeIndex, Query
from studio.sql.answers import encode_parquet
index = NodeIndex(read(sample_path("transformer_8r")))
index.rows(Query(search="mlp", order=(("name", True),)), 0, 9)
for operator in ("contains", "notContains", "equals", "notEqual", "startsWith", "endsWith", "blank", "notBlank"):
    index.select(Query(conditions=((Condition("name", operator, "a"),),)))
at = pa.Array.from_buffers(pa.month_day_nano_interval(), 1, [None, pa.py_buffer(bytes(16))])
assert len(encode_parquet(pa.Table.from_arrays([at], names=["for"]))) > 100
"""
    [loaded] = loaded_after(program)
    assert "pandas" not in loaded


def test_pages_hear_of_tasks_from_stores_that_go_with_the_page():
    """Dash breaks a callback that finds one of its inputs gone with a page and another still there."""
    # The frame stays when a page is left, and with it its callbacks.
    mixed = [
        path.name
        for path in (ROOT / "studio" / "pages").rglob("*.py")
        if path.parent.name != "frame"
        and re.search(r'Input\(\s*"activity-(known|poll|poke)"', path.read_text(encoding="utf-8"))
    ]
    assert mixed == []


def test_the_components_that_are_loaded_are_those_that_are_used():
    used = set()
    for source in read_sources().values():
        used |= set(re.findall(r"\bdmc\.([A-Z]\w+)", source))
    assert sorted(used) == list(COMPONENTS)


def test_pages_name_the_libraries_that_they_draw_with():
    """The browser gets those that are named before it draws the page, and no others (`studio.app`)."""
    pages = {}
    for name, source in read_sources().items():
        room = re.fullmatch(r"(?:studio/)?pages/(\w+)/\w+\.py", name)
        if room is None:
            continue
        drawn, named = pages.setdefault(room[1], (set(), set()))
        drawn |= set(re.findall(r"^import (dash_\w+) as", source, re.MULTILINE)) - {"dash_mantine_components"}
        for names in re.findall(r"libraries=\(([^)]*)\)", source):
            named |= set(re.findall(r'"(\w+)"', names))
    assert {page: drawn for page, (drawn, _) in pages.items()} == {
        page: named for page, (_, named) in pages.items()
    }
    assert {"dash_ag_grid"} in [drawn for drawn, _ in pages.values()]


@pytest.mark.integration
def test_components_that_are_not_loaded_are_there_all_the_same():
    program = """
import sys
from studio.pages.base.mantine import COMPONENTS, load_components
load_components()
load_components()
import dash_mantine_components as dmc
assert all(name in dmc.__all__ for name in COMPONENTS)
assert "dash_mantine_components.Badge" not in sys.modules
assert dmc.Badge("x").to_plotly_json()["type"] == "Badge"
assert dmc.Select._js_dist is dmc._js_dist
assert not hasattr(dmc, "NoSuchThing")
from dash_mantine_components import Alert
"""
    [loaded] = loaded_after(program)
    assert "dash" in loaded


# ---------------------------------------------------------------------------------------------------
# Names


def test_every_public_name_is_there_and_no_other():
    assert sorted(studio.__all__) == studio.__all__
    for name in studio.__all__:
        assert getattr(studio, name) is not None
    errors = {
        name for name, value in vars(importlib.import_module("studio.errors")).items() if _is_error(value)
    }
    assert set(studio.__all__) == {*studio._WHERE, *studio._MODULES, *errors}
    with pytest.raises(AttributeError, match="'studio' has no attribute 'nonsense'"):
        studio.nonsense  # noqa: B018
    assert not hasattr(studio, "__path__x")


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def test_lazy_names_are_those_of_their_modules():
    for name, module in studio._WHERE.items():
        # Functions put their arguments into the words of errors: studio/arguments.py.
        assert inspect.unwrap(getattr(studio, name)) is getattr(importlib.import_module(module), name)


def test_modules_name_only_what_they_have():
    """Each `__all__` is complete, and every module says in its first line what it is."""
    wrong = []
    for name, source in read_sources().items():
        if not re.match(r'r?"""\S', source):
            wrong.append(f"{name}: the docstring does not come first")
        if "__all__" in source and name.endswith("/__init__.py"):
            module = importlib.import_module(name.removesuffix("/__init__.py").replace("/", "."))
            wrong += [f"{name}: no {export}" for export in module.__all__ if not hasattr(module, export)]
    assert wrong == []


def test_every_error_can_be_caught_as_a_studio_error_and_says_what_to_do():
    for name in ("TraceFormatError", "TraceError", "ConfigError"):
        error = getattr(studio, name)("what", hint="do")
        assert isinstance(error, studio.StudioError)
        assert (error.message, error.hint, str(error)) == ("what", "do", "what\ndo")
    assert str(studio.StudioError("what")) == "what"


def test_every_error_says_what_to_do_or_what_is_allowed():
    assert _errors_without_advice(read_sources()) == []


def test_distinct_values_are_found_by_sorting():
    """`np.unique` alone takes fifty times as long for a million whole numbers, see `studio.distinct`."""
    alone = [
        f"{name}: {call}"
        for name, source in read_sources().items()
        if name != "studio/distinct.py"
        for call in re.findall(r"np\.unique\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", source)
        if not re.search("return_|axis=", call)
    ]
    assert alone == []


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("raise StudioError('no')", 1),
        ("raise errors.TraceError('no', key='a')", 1),
        ("raise ConfigError('no', hint='')", 1),
        ("class Own(ConfigError): pass\nraise Own('no')", 1),
        ("class Own(ConfigError):\n def __init__(self): super().__init__('no')\nraise Own()", 1),
        ("class Own(ConfigError):\n def __init__(self): super().__init__('no', hint='do')\nraise Own()", 0),
        (
            "class Own(ConfigError):\n def __init__(self, *, hint=''): super().__init__('no', hint=hint)\nOwn()",
            1,
        ),
        ("raise ConfigError(f'a is {a}; allowed: 1')", 0),
        ("raise ConfigError('no', hint=what_to_do(error))", 0),
        ("raise ValueError('no')", 0),
    ],
)
def test_an_error_without_advice_is_found(source: str, wrong: int):
    assert len(_errors_without_advice({"a.py": source})) == wrong


def _errors_without_advice(sources: Mapping[str, str]) -> list[str]:
    """Return the places that make an error for users with neither a hint nor the values allowed."""
    nodes = [
        (name, node)
        for name, source in sources.items()
        # Modules that only catch errors, or pass them on, make none.
        if re.search(r"Error\(|\(\w*Error\b|\bOwn\(", source)
        for node in iterate_nodes(ast.parse(source))
        if isinstance(node, ast.Call | ast.ClassDef)
    ]
    classes = [(name, node) for name, node in nodes if isinstance(node, ast.ClassDef)]
    kinds = {"StudioError", "TraceFormatError", "TraceError", "ConfigError"}
    while more := [
        one for _, one in classes if one.name not in kinds and kinds & set(map(ast.unparse, one.bases))
    ]:
        kinds |= {one.name for one in more}
    calls, complete = [(name, node) for name, node in nodes if isinstance(node, ast.Call)], set[str]()
    made = [(name, call) for name, call in calls if _called(call) in kinds]
    for name, one in classes:
        own = [part for part in one.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        if one.name in kinds and own and "hint" not in {arg.arg for arg in own[0].args.kwonlyargs}:
            # It says what to do itself, or does not.
            complete.add(one.name)
            made += [(name, call) for call in iterate_nodes(own[0]) if _is_super(call)]
    return [
        f"{name}:{call.lineno}: {ast.unparse(call)}"
        for name, call in made
        if _called(call) not in complete
        if not _has_hint(call) and "allowed" not in ast.unparse(call).lower()
    ]


def _called(call: ast.Call) -> str:
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__"


def _has_hint(call: ast.Call) -> bool:
    return any(word.arg == "hint" and ast.unparse(word.value) != "''" for word in call.keywords)


@pytest.mark.parametrize("verb", list_verbs())
def test_every_command_is_a_declaration_and_a_module(verb):
    """What is asked for, doing it, plain data for `--json`, words: in one place for each verb, callable without click."""
    module = importlib.import_module(f"studio.commands.{verb.replace('-', '_')}")
    command = load_command(verb)
    assert callable(module.run)
    assert verb == "presets" or is_dataclass(module.Request)
    if any(option.name == "as_json" for option in command.params):
        assert callable(module.report)
    if verb != "serve":
        assert callable(module.text)


# ---------------------------------------------------------------------------------------------------
# Documents


def documents() -> str:
    """README and docs as one text."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_every_format_is_documented(fmt):
    # What stands in brackets are suffixes.
    assert fmt.title.partition(" (")[0].lower() in documents().lower()


def pages() -> list[str]:
    """The names of all pages, as they are registered."""
    names = []
    for path in sorted((ROOT / "studio" / "pages").rglob("page.py")):
        source = path.read_text(encoding="utf-8")
        found = re.search(r'register_page\(\s*__name__,[^)]*?name="([^"]+)"', source)
        assert found, path
        names.append(found[1])
    return names


@pytest.mark.parametrize("name", pages())
def test_every_page_is_in_the_readme(name):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {re.escape(name)} \|", readme, re.MULTILINE)


def test_links_in_the_documents_lead_somewhere():
    """`make docs` follows all of them; these it makes itself."""
    made = {"reference/commands.md", "reference/api.md", "notebook.ipynb"}
    broken = []
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]:
        targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
        local = [target for target in targets if not re.match(r"[a-z]+:", target) and target not in made]
        broken += [f"{path.name}: {target}" for target in local if not (path.parent / target).exists()]
    assert broken == []


_PLACE = r"`((?:[\w-]+/)*[\w-]+(?:\.(?:py|mjs|css|html)|/))`"
"""A file or a folder that a text names."""


def test_rooms_name_modules_that_are_there():
    """The guide at the top of `docs/architecture.md` and what packages say of their modules."""
    named = []
    for row in re.findall(r"^\| (?!to change|---)(.+)", _guide(), re.MULTILINE):
        room = ""
        for name in re.findall(_PLACE, row):
            # What stands behind a room is in it.
            room = name if name.startswith("studio/") and name.endswith("/") else room
            named.append(("docs/architecture.md", name, [ROOT / name, ROOT / room / name]))
    assert len(named) > 40
    for path, source in read_sources().items():
        if path.endswith("/__init__.py"):
            folder = (ROOT / path).parent
            for name in re.findall(_PLACE, ast.get_docstring(ast.parse(source)) or ""):
                each = folder.glob(f"*/{name}") if name == "page.py" else ()
                named.append((path, name, [ROOT / name, folder / name, *each]))
    assert [(path, name) for path, name, places in named if not any(place.exists() for place in places)] == []


def _guide() -> str:
    """Return the table that says where to go."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return text[text.index("## Where do I go?") : text.index("## What does a new one touch?")]


def test_no_path_of_a_machine_is_in_the_package():
    home = str(Path.home())
    for name, source in read_sources().items():
        assert home == "/" or home + "/" not in source, name
