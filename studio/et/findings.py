"""Findings that several readers build alike, and those that say the same of several files, said once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from studio.trace import Finding

_OF_A_KIND = frozenset({"no-device-trace", "no-host-trace"})
"""Codes of findings that name nothing of a file but the file."""


def merge_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings, those that say the same of several files as one, which names the first and the last file.

    Example:
        >>> lone = [Finding("warning", "no-host-trace", f"{file}: a Kineto trace alone.", file=file) for file in ("a", "b", "c")]
        >>> [finding.message for finding in merge_findings(lone)], [finding.message for finding in merge_findings(lone[:1])]
        (['a … c, 3 files: a Kineto trace alone.'], ['a: a Kineto trace alone.'])
    """
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        if finding.code in _OF_A_KIND:
            alike.setdefault(_strip_file(finding), []).append(finding)
    once: list[Finding] = []
    for finding in findings:
        same = alike.get(_strip_file(finding), [finding])
        if finding is same[0]:
            once.append(_merge_same(same))
    return once


def _strip_file(finding: Finding) -> tuple[str, str, str]:
    """Return what a finding says, without the file that it says it of."""
    return finding.code, finding.message.removeprefix(finding.file), finding.hint


def _merge_same(same: Sequence[Finding]) -> Finding:
    # A file may hold several ranks.
    files = {finding.file for finding in same}
    if len(same) == 1:
        return same[0]
    ordered = sorted(same, key=lambda finding: -1 if finding.rank is None else finding.rank)
    if len(files) == 1:
        return replace(ordered[0], rank=None)
    first, last = ordered[0].file, ordered[-1].file
    _, statement, _ = _strip_file(ordered[0])
    return replace(ordered[0], message=f"{first} … {last}, {len(files):,} files{statement}", rank=None)


def build_order_finding(what: str, hint: str, file: str = "") -> Finding:
    """Return the finding that ranks were taken from the order of devices, among those of one file or machine.

    Args:
        what: The processes, and why nothing tells their ranks: a sentence without its end.
        hint: How to record them so that it is told.
        file: The file that holds them all.
    """
    message = f"{what}; they are taken as ranks in the order of their devices."
    return Finding("info", "rank-assumed", message, hint, file=file)
