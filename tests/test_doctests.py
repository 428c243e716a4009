"""The examples in docstrings give what they say: of all modules in one pass, in one process."""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil

import studio

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules() -> list[str]:
    """The names of all modules but pages: Dash imports those itself, once there is an app, and they hold no examples."""
    names = [module.name for module in pkgutil.walk_packages(studio.__path__, "studio.")]
    # Importing __main__ would run the command.
    return [name for name in names if name != "studio.__main__" and not _is_page(name)]


def _is_page(name: str) -> bool:
    return name.startswith("studio.pages.") and name.endswith((".page", ".not_found_404"))


def test_examples_in_docstrings_are_true():
    output, tried, failed = io.StringIO(), 0, 0
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in ["studio", *modules()]:
        cases = finder.find(importlib.import_module(name), name)
        # Trying a docstring without examples takes a millisecond, and there are thousands.
        for case in (case for case in cases if case.examples):
            result = runner.run(case, out=output.write)
            tried, failed = tried + result.attempted, failed + result.failed
    assert not failed, output.getvalue()
    # One that finds no examples proves nothing.
    assert tried > 150
