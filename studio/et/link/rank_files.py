"""Which files belong to a rank."""

from __future__ import annotations

from dataclasses import dataclass

from studio.et.source import SourceFile


@dataclass(frozen=True, slots=True)
class RankFiles:
    """The files of a rank, by their names.

    Attributes:
        number: The rank.
        host: Its execution trace, None where no rank of the job has one.
        device: Its Kineto trace.
        by_user: Whether the user gave the rank, which then wins over the file.
    """

    number: int
    host: SourceFile | None
    device: SourceFile
    by_user: bool = False

    @property
    def names(self) -> list[str]:
        """The names of its files."""
        return [file.name for file in (self.host, self.device) if file is not None]
