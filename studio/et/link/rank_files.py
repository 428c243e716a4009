"""Which files belong to a rank."""

from __future__ import annotations

from dataclasses import dataclass

from studio.et.source import SourceFile


@dataclass(frozen=True, slots=True)
class RankFiles:
    """Both files of a rank, by their names.

    Attributes:
        number: The rank.
        host: Its execution trace.
        device: Its Kineto trace.
        by_user: Whether the user gave the rank, which then wins over the file.
    """

    number: int
    host: SourceFile
    device: SourceFile
    by_user: bool = False
