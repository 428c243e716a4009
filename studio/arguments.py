"""Word errors in arguments of Python, for those who call `studio.read` and the like from a program.

Errors name what is wrong as the command line calls it, `--npus 8`: one text that each front end words for its readers. The command
line prints it as it stands, forms put the labels of their fields in place of options, and functions that are taken from `studio` put their arguments.
Options that a function has no argument for stay as they are, and so do those of other programs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Number
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from studio.errors import ConfigError, StudioError

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
            check_kinds(name, function, args, kwargs)
            return function(
                *map(_convert_scalar, args), **{key: _convert_scalar(value) for key, value in kwargs.items()}
            )
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


def check_kinds(
    name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse what is of another kind than a function takes, such as a path in place of a trace, before it is looked into.

    Only arguments whose annotation names nothing but classes of the studio, texts, paths and numbers are looked at: functions say
    themselves which numbers and words they take.

    Args:
        name: What the function is called in `studio`.
        function: The function.
        args: Its arguments by place.
        kwargs: Its arguments by name.

    Raises:
        ConfigError: An argument is of another kind.
    """
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        # An argument is missing, or is none of the function's: Python says so better.
        return
    for key, value in given.items():
        kinds = _list_kinds(function, key)
        if not kinds or any(_is_kind(value, kind, function) for kind in kinds):
            continue
        # Several of the others come last.
        named = sorted((_strip_items(kind) for kind in kinds if kind != "None"), key="Sequence".__eq__)
        allowed = " or ".join(_KINDS[kind] for kind in named)
        raise ConfigError(
            f"{name}() takes {allowed} as {key}, not {_describe_value(value)}.",
            hint=_suggest_kind(value, kinds),
            key=key,
            allowed=allowed,
        )


_KINDS: Mapping[str, str] = {
    "Comparison": "a comparison of studio.compare",
    "Gpu": "a Gpu",
    "Layout": "a Layout",
    "LinkOptions": "LinkOptions",
    "Mapping": "a dictionary",
    "Model": "a Model",
    "None": "None",
    "Parts": "the parts of a system",
    "Path": "a path",
    "Preset": "a preset",
    "Sequence": "several of these",
    "SimResult": "a result of studio.simulate",
    "SystemConfig": "a SystemConfig",
    "Topology": "a Topology",
    "Trace": "a Trace",
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
}
"""What the kinds in annotations are called."""


@cache
def _list_kinds(function: Callable[..., Any], key: str) -> tuple[str, ...]:
    """Return the kinds that an argument may have, as they are annotated; none where one of them is not known here."""
    annotation = inspect.signature(function).parameters[key].annotation
    kinds = tuple(_UNION.split(annotation)) if isinstance(annotation, str) else ()
    known = all(_strip_items(kind) in _KINDS for kind in kinds)
    # A model is a class in one place, and a choice of words in another.
    of_class = isinstance(getattr(function, "__globals__", {}).get("Model"), type)
    return kinds if known and ("Model" not in kinds or of_class) else ()


# Not within brackets.
_UNION = re.compile(r" \| (?![^\[]*\])")


def _strip_items(kind: str) -> str:
    return kind.partition("[")[0]


def _is_kind(value: object, kind: str, function: Callable[..., Any]) -> bool:
    name, _, items = kind.partition("[")
    if name == "None":
        return value is None
    if name == "Path":
        return isinstance(value, PathLike)
    if name == "int":
        return hasattr(value, "__index__")
    if name == "float":
        return hasattr(value, "__float__")
    if name == "Sequence":
        # Whatever can be gone through; what is in it is looked at where that takes nothing away.
        inside = _UNION.split(items.removesuffix("]"))
        # Bytes are a sequence of numbers, and never meant as one.
        return (
            isinstance(value, Iterable)
            and not isinstance(value, bytes | bytearray)
            and all(
                any(_is_kind(item, allowed, function) for allowed in inside)
                for item in (value if isinstance(value, list | tuple) else ())
            )
        )
    if name == "Mapping":
        return isinstance(value, Mapping)
    # By name: most classes are not loaded by the module that takes them.
    return any(base.__name__ == name for base in type(value).__mro__)


def _describe_value(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, str | PathLike):
        return f"{str(value)!r:.80}"
    if isinstance(value, int | float):
        return f"{value!r:.80}"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIO' else 'a'} {kind}"


def _suggest_kind(value: object, kinds: Sequence[str]) -> str:
    """Say how to get what is taken from what is given."""
    is_text, given = isinstance(value, str | PathLike), type(value).__name__
    if is_text and "Trace" in kinds:
        return f"Read it first: studio.read({str(value)!r:.80})."
    if is_text and {"SystemConfig", "Preset"} & set(kinds):
        return f"A preset has a name: studio.preset({str(value)!r:.80})."
    if "Trace" in kinds and given == "SimResult":
        return "The trace of a result is its .trace."
    if "SystemConfig" in kinds and given == "Preset":
        return "The SystemConfig of a preset is its .config."
    if "SimResult" in kinds:
        return "studio.simulate(trace, system) returns a result."
    if "Trace" in kinds:
        return "studio.read(paths) returns a Trace."
    if "SystemConfig" in kinds:
        return 'studio.preset("hgx-h100-8") is a system, studio.read_config reads one.'
    return ""


def _convert_scalar(value: Any) -> Any:
    """Return a number of numpy as Python's own, which is what functions take; anything else as it is."""
    is_scalar = type(value).__module__ == "numpy" and isinstance(value, Number)
    return value.item() if is_scalar else value


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
