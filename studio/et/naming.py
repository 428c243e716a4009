"""Name jobs whose files do not: `0.et`, `rank3.et`, or `kineto_0.json` and `pytorch_et_0.json`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from studio.et.source import SourceFile

_LONGEST = 60
_SUFFIXES = re.compile(r"(\.(et|json|gz|txt|csv|chakra|bin|pb|xplane))+$", re.IGNORECASE)
_NUMBER = re.compile(r"([._\- ]+(rank|worker|npu|gpu))?[._\-\[ ]*\d+\]?$", re.IGNORECASE)
_LAST_WORD = re.compile(r"[^._\- ]*$")
_BETWEEN = "._- "
_KINDS_NAMED = 3
_TELLS_NOTHING = ("", "rank", "worker", "ranks", "npu", "gpu")


def format_file_name(name: str) -> str:
    r"""Turn a job's name into a valid file name.

    Example:
        >>> format_file_name(".a\x1bb"), format_file_name("llama 70b")
        ('_a_b', 'llama 70b')
    """
    # A cut character or a surrogate escape cannot be written.
    plain = re.sub(r"^\.|[/\\\x00-\x1f\x7f\ud800-\udfff]", "_", name)
    return plain.encode()[:180].decode("utf-8", "ignore") or "job"


def name_of(files: Sequence[SourceFile]) -> str:
    """Return the name of the only file, the common start of several names, or the folder the user gave.

    Files that were uploaded lie in no folder that means anything, and archives tell their own name. Where names begin
    with nothing in common, each kind is named: `kineto_0.json` and `pytorch_et_0.json` make `kineto + pytorch_et`.
    Where nothing tells anything, the first file stands for all.

    Args:
        files: At least one.
    """
    stems = dict.fromkeys(_NUMBER.sub("", _strip_suffixes(file.name)).strip(_BETWEEN) for file in files)
    together = _find_common_start(list(stems))
    if _is_telling(together):
        return _shorten_name(together)
    if folder := _find_folder(files):
        return _shorten_name(folder)
    if len(stems) <= _KINDS_NAMED and all(map(_is_telling, stems)):
        return _shorten_name(" + ".join(stems))
    first = PurePosixPath(files[0].name).name
    return _shorten_name(f"{first} and {len(files) - 1:,} more" if len(files) > 1 else _strip_suffixes(first))


def name_by_file(file: SourceFile) -> str:
    """Return the name of a file without its endings, for jobs of one file that would be called the same.

    Example:
        >>> name_by_file(SourceFile("run/trace_step_100.json.gz", ""))
        'trace_step_100'
    """
    return _shorten_name(_strip_suffixes(file.name))


def _find_common_start(stems: Sequence[str]) -> str:
    """Return the common start of all stems, up to the end of a word."""
    # By characters, as is wanted here: these are no paths.
    common = os.path.commonprefix(stems)  # noqa: RUF071
    if all(stem == common or stem[len(common)] in _BETWEEN for stem in stems):
        return common.strip(_BETWEEN)
    return _LAST_WORD.sub("", common).strip(_BETWEEN)


def _is_telling(stem: str) -> bool:
    return stem.lower() not in _TELLS_NOTHING


def _strip_suffixes(name: str) -> str:
    base = PurePosixPath(name).name
    return _SUFFIXES.sub("", base) or base


def _find_folder(files: Sequence[SourceFile]) -> str:
    """Return the folder that the user gave for all these files, "" where there is none."""
    if not all(file.named and file.path.name == PurePosixPath(file.name).name for file in files):
        return ""
    # Not resolve(): a link is called what the user calls it.
    folders = {Path(os.path.abspath(file.path)).parent for file in files}  # noqa: PTH100
    return folders.pop().name if len(folders) == 1 else ""


def _shorten_name(name: str) -> str:
    """Shorten a long name in the middle."""
    if len(name) <= _LONGEST:
        return name
    half = _LONGEST // 2
    return f"{name[: half - 1]}…{name[-half:]}"
