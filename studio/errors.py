"""The errors a user can meet.

StudioError
├── TraceFormatError   a file is not what it should be
├── TraceError         a trace is readable but cannot be used as asked
└── ConfigError        a setting, option or configuration file is wrong
"""

from __future__ import annotations


class StudioError(Exception):
    """A mistake the user can fix: shown as message and hint, never as a traceback.

    Attributes:
        message: What happened: the file, the place in it, the value found, the values allowed.
        hint: What to do about it; empty where nothing can be advised.

    Example:
        >>> import studio
        >>> try:
        ...     studio.sample_path("transformer")
        ... except studio.StudioError as error:
        ...     print(error.hint)
        Did you mean 'transformer_8r'?
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class TraceFormatError(StudioError):
    """A file does not hold what its format asks for.

    Example:
        >>> import studio, tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "notes.et")
        ...     _ = file.write_text("remember the milk")
        ...     try:
        ...         studio.read(file)
        ...     except studio.TraceFormatError as error:
        ...         print(error.message)
        notes.et: not an execution trace; it looks like a text file.
    """


class TraceError(StudioError):
    """A trace can be read, but not used for what was asked.

    Example:
        >>> import studio
        >>> try:
        ...     studio.to_pandas(studio.read(studio.sample_path("transformer_8r")), rank=8)
        ... except studio.TraceError as error:
        ...     print(error.message)
        The trace has no rank 8.
    """


class ConfigError(StudioError):
    """A setting, an option or a configuration file holds a value that is not allowed.

    Attributes:
        key: The setting, such as `bandwidth[0]`; empty where no single one is wrong.
        allowed: The values allowed there, in words; empty where the message alone says it.

    Example:
        >>> import studio
        >>> try:
        ...     studio.preset("hgx-h101")
        ... except studio.ConfigError as error:
        ...     print(error.hint)
        The nearest is 'hgx-h100'.
    """

    def __init__(self, message: str, *, hint: str = "", key: str = "", allowed: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.allowed = allowed
