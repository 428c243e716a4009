"""What a running studio has to say of its own problems: a line each in the terminal, details in a file."""

from __future__ import annotations

import logging
import logging.handlers
import threading
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from studio.commands.base.terminal import escape_controls
from studio.files import open_private

_LARGEST_BYTES: Final = 1 << 20
_LONGEST_TEXT: Final = 300


def log_problems(folder: Path) -> None:
    """Log warnings and errors of this process: in one line each to the terminal, whole to `errors.log` in a folder.

    What a request or a file holds can end up in a message, so the terminal gets no more than a line of plain text.
    """
    path = folder / "errors.log"
    terminal = logging.StreamHandler()
    terminal.setFormatter(_Line(path))
    details = _PrivateFile(path, maxBytes=_LARGEST_BYTES, backupCount=1, encoding="utf-8", delay=True)
    details.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[terminal, details], force=True)
    threading.excepthook = _log_thread


class _Line(logging.Formatter):
    """Formats a record as one line, whatever it holds."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text += f" ({type(error).__name__}: {error}"[:_LONGEST_TEXT] + f"); details in {self._path}"
        elif len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}…"
        return f"{record.levelname.capitalize()}: {escape_controls(' '.join(text.split()))}"


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A log file that others cannot read."""

    def _open(self) -> TextIOWrapper:
        stream = open_private(Path(self.baseFilename), "ab")
        return TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", write_through=True)


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is None or failed.exc_type is SystemExit:
        return
    name = failed.thread.name if failed.thread else "?"
    exc_info = (failed.exc_type, failed.exc_value, failed.exc_traceback)
    logging.getLogger(__name__).error("thread %s ended", name, exc_info=exc_info)
