"""The examples in docstrings give what they say: of all modules in one pass, in one process."""

from __future__ import annotations

import doctest
import importlib
import io
import linecache
import pkgutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import studio

CONTINUED = {"studio.store.workspace.Workspace", "studio.feeder.feed.Feeder"}
"""Classes whose methods' examples go on from the class's own: a job, a run and a file are made once for all of them."""
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules() -> list[str]:
    """The names of all modules but pages: Dash imports those itself, once there is an app, and they hold no examples."""
    names = [module.name for module in pkgutil.walk_packages(studio.__path__, "studio.")]
    # Importing __main__ would run the command.
    return [name for name in names if name != "studio.__main__" and not _is_page(name)]


def _is_page(name: str) -> bool:
    return name.startswith("studio.pages.") and name.endswith((".page", ".not_found_404"))


@pytest.fixture(autouse=True)
def folders_of_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let folders that examples make, and leave, lie where pytest removes them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def run(
    cases: Iterable[doctest.DocTest], runner: doctest.DocTestRunner, write: Callable[[str], object]
) -> None:
    """Run the examples of a module, classes before their methods."""
    names: dict[str, dict[str, Any]] = {}
    for case in cases:
        begun = names.get(case.name.rpartition(".")[0], {})
        case.globs.update(begun)
        is_continued = case.name in CONTINUED
        runner.run(case, out=write, clear_globs=not is_continued)
        if is_continued:
            names[case.name] = case.globs


def test_examples_in_docstrings_are_true():
    output = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in ["studio", *modules()]:
        cases = finder.find(importlib.import_module(name), name)
        # Finding reads all sources; before each case doctest looks whether what was read has changed since.
        linecache.clearcache()
        # Trying a docstring without examples takes a millisecond, and there are thousands.
        run(sorted(case for case in cases if case.examples), runner, output.write)
    assert not runner.failures, output.getvalue()
    # One that finds no examples proves nothing.
    assert runner.tries > 150
