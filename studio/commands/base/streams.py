"""Take `-` for the standard streams, where a command reads or writes one file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

DASH = Path("-")


@contextmanager
def open_path_or_stdin(source: Path, stream: BinaryIO | None = None) -> Iterator[Path]:
    """Yield a path that can be read: the one given, or a file with what arrives on the standard input.

    Args:
        source: A path, or `-`.
        stream: What is read for `-`; the standard input by default.
    """
    if source != DASH:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="chakra-studio-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(stream or sys.stdin.buffer, file)
        yield path
