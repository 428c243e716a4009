"""Word errors in arguments of Python, for those who call `studio.read` and the like from a program.

Errors name what is wrong as the command line calls it, `--npus 8`: one text that each front end words for its readers. The command
line prints it as it stands, forms put the labels of their fields in place of options, and functions that are taken from `studio` put their arguments.
Options that a function has no argument for stay as they are, and so do those of other programs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from studio.errors import StudioError

P = ParamSpec("P")
T = TypeVar("T")

_OPTION = re.compile(
    r"(?<![\w-])--(?P<no>no-)?(?P<name>[a-z][a-z0-9-]*)"
    r"(?:[ =](?P<value>[A-Z]+(?:=[A-Z]+)?(?![\w-])|[^\s;()]*[^\s;(),.:?!]))?"
)
_OF_COMMAND = re.compile(r"--([a-z][a-z0-9-]*) of the command [a-z]+")
_NUMBER = re.compile(r"-?\d[\d,_]*(\.\d+)?(e[+-]?\d+)?")
_PROGRAMS = re.compile(r"chakra-studio|rocprofv3|rocpd|nsys|torchrun|breakdown")
_SENTENCE = re.compile(r"[.;:!?]\s|\n")
_READS_CONFIG = "studio.generation.configs.read_config"
_OWN: Mapping[str, Mapping[str, str]] = {
    "read": {"rank": "ranks"},
    "link": {"rank": "ranks"},
    "complete": {
        "yes": "first",
        "imbalance": "spread.imbalance",
        "jitter": "spread.jitter",
        "arrivals": "spread.arrivals",
    },
    "query": {"limit-memory": "memory_bytes", "limit-time": "time_s"},
    "preset": {"set": "settings", "preset": "name"},
    "generate": {"config": _READS_CONFIG},
    "generate_inference": {"config": _READS_CONFIG},
    "plan": {"set": "settings", "config": _READS_CONFIG},
}
"""Options that an argument of another name stands for, by function."""
_LISTS = ("settings",)
_TABLES = ("ranks",)


def word_errors(name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Return a function whose errors speak of its arguments in place of options of the command line.

    Args:
        name: What it is called in `studio`.
        function: The function.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except StudioError as error:
            known = map_options(name, function)
            error.message, error.hint = (
                replace_options(error.message, known),
                replace_options(error.hint, known),
            )
            error.args = (error.message,)
            raise

    # As which pickle finds it: of its own module it is not.
    call.__module__, call.__qualname__ = "studio", name
    return call


@cache
def get_library_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is taken from `studio`, the same one each time."""
    return word_errors(name, function)


def map_options(name: str, function: Callable[..., Any]) -> dict[str, str]:
    """Return the argument that stands for each option, by the option's name without hyphens in front.

    Args:
        name: What the function is called in `studio`.
        function: The function.
    """
    known = {key.replace("_", "-"): key for key in inspect.signature(function).parameters}
    # `generate` and `plan` take what their tables of options say.
    if "options" in known and known.pop("options") and name in ("generate", "generate_inference", "plan"):
        from studio.generation.inference.options import INFERENCE
        from studio.generation.options import BY_KEY

        table = INFERENCE if name == "generate_inference" else BY_KEY
        known = {
            flag.lstrip("-"): key for key, option in table.items() for flag in _list_flags(option)
        } | known
    return {**known, **_OWN.get(name, {})}


def _list_flags(option: Any) -> list[str]:
    return [flag for names in option.names for flag in names.split("/") if not flag.startswith("--no-")]


def replace_options(words: str, known: Mapping[str, str]) -> str:
    """Return a text with arguments in place of the options of the command line.

    Args:
        words: The text.
        known: The argument that stands for each option.

    Example:
        >>> known = {"npus": "npus", "recompute": "recompute", "rank": "ranks", "set": "settings", "grad-overlap": "grad_overlap"}
        >>> replace_options("Give --npus NUMBER; --npus 8, or --no-grad-overlap.", known)
        'Give npus=NUMBER; npus=8, or grad_overlap=False.'
        >>> replace_options("--npus is 3 and --recompute full: give --rank FILE=NUMBER.", known)
        'npus is 3 and recompute="full": give ranks={"FILE": NUMBER}.'
        >>> replace_options("Try --set costs.algorithm=ring, or rocprofv3 --npus 3.", known)
        'Try settings=["costs.algorithm=ring"], or rocprofv3 --npus 3.'
    """

    def replace_option(match: re.Match[str]) -> str:
        argument = known.get(match["name"])
        begins = [0, *(sentence.end() for sentence in _SENTENCE.finditer(words, 0, match.start()))][-1]
        if argument is None or _PROGRAMS.search(words, begins, match.start()):
            return match[0]
        if match["no"]:
            rest = match["value"]
            return f"{argument}=False" + (
                f"{match[0][match.start('value') - 1 - match.start()]}{rest}" if rest else ""
            )
        value = match["value"]
        if value is None:
            return argument
        if not _is_value(value):
            return f"{argument} {value}"
        return f"{argument}={_format_literal(argument, value)}"

    words = _OF_COMMAND.sub(lambda match: f"--{match[1]}" if match[1] in known else match[0], words)
    return _OPTION.sub(replace_option, words)


_VALUES = frozenset((
    "full", "selective", "none", "custom", "interleaved", "gpipe", "ring", "all-to-all", "flash", "optimizer", "activations",
    "decode", "prefill", "mixed", "disaggregated", "together", "apart",
))  # fmt: skip
"""Words that stand for values behind an option; other words without digits go on with the sentence."""


def _is_value(value: str) -> bool:
    return value.isupper() or any(letter.isdigit() or letter == "=" for letter in value) or value in _VALUES


def _format_literal(argument: str, value: str) -> str:
    if argument in _TABLES and "=" in value:
        name, _, number = value.rpartition("=")
        return f'{{"{name}": {number}}}'
    if argument in _LISTS:
        return f'["{value}"]'
    is_plain = _NUMBER.fullmatch(value) or value.isupper()
    return value if is_plain else f'"{value}"'
