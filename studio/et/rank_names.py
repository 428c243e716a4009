"""Tell the job and the rank of a file by its name, and which of its numbers can be a rank at all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_USUAL = re.compile(r"(?P<prefix>.+)\.(?P<rank>\d{1,9})\.et(\.gz)?")
_RANK_WORD = re.compile(
    r"(?P<prefix>.*?)[._-]?(?<![a-z])rank[\[_-]?(?P<rank>\d{1,9})(?!\d)\]?(?P<rest>.*)", re.IGNORECASE
)
_NUMBERED = re.compile(r"((?P<prefix>.*?)[._-])?(?P<rank>\d{1,9})(\.[A-Za-z]\w*)*")
_RANK_FOLDER = re.compile(r"(?P<prefix>.*?)[._-]?(?<![a-z])rank[\[_-]?(?P<rank>\d{1,9})\]?", re.IGNORECASE)
_WORKER = re.compile(
    r"(?P<prefix>.*?)[._-]?(?<![a-z])worker[_-]?(?P<rank>\d{1,9})(?!\d)(?P<rest>.*)", re.IGNORECASE
)
MOST_BY_WORD = 1 << 20
"""Ranks a job may have where a word such as `rank` says what the number is."""
MOST_BY_PLACE = 1 << 16
"""Ranks where only its place in the name does; beyond, it is a date, a process id or the number of an issue."""
_SURELY_RANKS = 1024
_NUMBER = re.compile(r"\d+")
_SUFFIXES = re.compile(r"(\.[A-Za-z]\w*)+$")
_NO_RANK = re.compile(
    r"(step|steps|iter|iteration|epoch|v|version|run|layer|batch|stage|port|pid|seed)[._-]?$", re.IGNORECASE
)
"""Words before a number that say it is no rank."""
_IN_TIME = re.compile(r"(?<![a-z])(step|steps|iter|iteration|epoch)$", re.IGNORECASE)
"""Words before a number that say when something was recorded, and not of whom."""


def parse_rank_and_prefix(name: str) -> tuple[str, int | None]:
    """Return the job and the rank that a file's name gives.

    Example:
        >>> parse_rank_and_prefix("llama/llama_8r.12.et.gz")
        ('llama/llama_8r', 12)
        >>> parse_rank_and_prefix("traces/rank3/trace.et")
        ('traces/trace', 3)
        >>> parse_rank_and_prefix("single.et"), parse_rank_and_prefix("trace.20261122.et")
        (('single', None), ('trace', None))
        >>> parse_rank_and_prefix("trace_step_100.json")
        ('trace_step_100', None)
    """
    *folders, base = name.split("/")
    folder = name[: len(name) - len(base)]
    if (usual := _USUAL.fullmatch(base)) and int(usual["rank"]) < MOST_BY_WORD:
        return folder + usual["prefix"], int(usual["rank"])
    word = _RANK_WORD.fullmatch(base) or _WORKER.fullmatch(base)
    if word and int(word["rank"]) < MOST_BY_WORD:
        stem = word["prefix"] or word["rest"].split(".")[0].strip("_-")
        return folder + stem, int(word["rank"])
    for depth in range(len(folders) - 1, -1, -1):
        match = _RANK_FOLDER.fullmatch(folders[depth])
        if match and int(match["rank"]) < MOST_BY_WORD:
            kept = [
                *folders[:depth],
                *filter(None, [match["prefix"]]),
                *folders[depth + 1 :],
                base.split(".")[0],
            ]
            return "/".join(kept), int(match["rank"])
    numbered = _NUMBERED.fullmatch(base)
    in_time = numbered and _IN_TIME.search(numbered["prefix"] or "")
    if numbered and not in_time and int(numbered["rank"]) < MOST_BY_PLACE:
        return folder + (numbered["prefix"] or ""), int(numbered["rank"])
    return folder + base.split(".")[0], None


def says_rank(name: str) -> bool:
    """Whether a word in a name says that its number is a rank, or the usual form `<job>.<rank>.et` does."""
    *folders, base = name.split("/")
    if _USUAL.fullmatch(base):
        return True
    forms = (_RANK_WORD, _WORKER)
    return any(form.fullmatch(base) for form in forms) or any(map(_RANK_FOLDER.fullmatch, folders))


def can_be_rank(number: int, files: int, world: int | None, *, is_said: bool) -> bool:
    """Whether the number in the name of a file of a job can be its rank.

    Args:
        number: The number.
        files: Files of the job that have one.
        world: Ranks of the job as its files say, None where they do not.
        is_said: Whether the name says that it is a rank.

    Example:
        >>> can_be_rank(3, 8, None, is_said=False), can_be_rank(25286, 8, None, is_said=False)
        (True, False)
        >>> can_be_rank(5, 1, None, is_said=False), can_be_rank(5, 1, 8, is_said=False), can_be_rank(12, 1, 8, is_said=True)
        (False, True, False)
    """
    if world is not None:
        return number < max(world, files)
    if is_said:
        return number < max(MOST_BY_PLACE, 4 * files)
    # One number alone is as likely a version, a step or a process id.
    return number == 0 or (files > 1 and number < max(_SURELY_RANKS, 4 * files))


def find_counted_numbers(names: Sequence[str]) -> Mapping[str, tuple[str, int]]:
    """Return the job and the rank of names that differ in one number alone, which counts them from 0.

    Names that differ elsewhere, too, are left out; so are numbers that a word says to be something else.

    Example:
        >>> find_counted_numbers(["run/0/trace_812.et", "run/1/trace_907.et"])["run/1/trace_907.et"]
        ('run//trace_', 1)
        >>> find_counted_numbers(["step0.json", "step1.json"]), find_counted_numbers(["a5.et", "a7.et"])
        ({}, {})
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_NUMBER.sub("#", name), []).append(name)
    ranks: dict[str, tuple[str, int]] = {}
    for skeleton, group in alike.items():
        columns = list(
            zip(*([int(number) for number in _NUMBER.findall(name)] for name in group), strict=True)
        )
        between = skeleton.split("#")
        counting = [
            index
            for index, column in enumerate(columns)
            if len(group) > 1
            and sorted(column) == list(range(len(group)))
            and not _NO_RANK.search(between[index])
        ]
        if len(counting) == 1:
            numbers = columns[counting[0]]
            stem = _SUFFIXES.sub("", "".join(between))
            ranks |= {name: (stem, number) for name, number in zip(group, numbers, strict=True)}
    return ranks
