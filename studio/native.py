"""Kernels: modules of plain functions that run interpreted or compiled by numba.

The functions of a kernel are copied into a module of their own and compiled there, so the two cannot differ; those of
several modules become one. Compiling takes seconds once per installation; numba keeps the result beside the source, or
where `NUMBA_CACHE_DIR` says, and a mark next to that says that it is there. `warm_up` compiles in another process, so
that nobody waits.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from filelock import FileLock


@dataclass(slots=True)
class Kernel:
    """A kernel that is compiled at most once per process.

    Attributes:
        source: The module as it is, to run interpreted.
        home: The module whose `load_kernel()` compiles it.
        prepare: Turns the functions of a copy of the source into compiled ones.
        parts: Modules of the kernel which the source builds on.
        constants: Modules of numbers that the kernel names as `module.NUMBER`.
        loaded: The compiled copy; None until somebody asked for it.
        lock: Held while it is made.
    """

    source: ModuleType
    home: str
    prepare: Callable[[ModuleType], None]
    parts: tuple[ModuleType, ...] = ()
    constants: tuple[ModuleType, ...] = ()
    loaded: ModuleType | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def compiled_name(self) -> str:
        """The name of the compiled copy."""
        package, _, name = self.source.__name__.rpartition(".")
        return f"{package}._compiled_{name}"

    def load(self) -> ModuleType:
        """Return the compiled kernel: compiles for seconds once per installation, then loads from a cache."""
        with self.lock:
            if self.loaded is None:
                self.loaded = self._compile()
        return self.loaded

    @property
    def stamp(self) -> str:
        """A hash of the sizes and modification times of the kernel's files."""
        files = [Path(str(part.__file__)).stat() for part in (*self.parts, *self.constants, self.source)]
        stamps = repr([(file.st_mtime_ns, file.st_size) for file in files])
        return hashlib.blake2s(stamps.encode(), digest_size=8).hexdigest()

    def is_cached(self) -> bool:
        """Whether this version of the source has been compiled in this installation."""
        return self.marker().exists()

    def marker(self) -> Path:
        """Return the marker file of a compiled kernel."""
        versions = f"{sys.version_info[0]}.{sys.version_info[1]}-numba{importlib.metadata.version('numba')}"
        path = Path(str(self.source.__file__))
        name = f"{self.source.__name__}-{versions}-{self.stamp}"
        # In numba's cache folder, so that both are emptied together.
        if kept := os.environ.get("NUMBA_CACHE_DIR"):
            return Path(kept) / name
        if os.access(path.parent, os.W_OK):
            return path.parent / "__pycache__" / name
        import platformdirs

        return Path(platformdirs.user_cache_dir("chakra-studio", appauthor=False)) / name

    def warm_up(self) -> subprocess.Popen[bytes] | None:
        """Compile in a background process if necessary; returns the process or None.

        It gives way to others: the studio that starts it is wanted first.
        """
        if self.loaded is not None or self.is_cached():
            return None
        code = f"import os, {self.home} as home; getattr(os, 'nice', int)(10); home.load_kernel()"
        return subprocess.Popen(  # noqa: S603 (a fixed command)
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _compile(self) -> ModuleType:
        module = self._copy()
        sys.modules[self.compiled_name] = module
        marker = self.marker()
        marker.parent.mkdir(parents=True, exist_ok=True)
        # If another process is compiling, wait and use its result.
        with FileLock(f"{marker}.lock"):
            self.prepare(module)
            marker.touch()
        return module

    def _copy(self) -> ModuleType:
        """Copy the functions of the kernel's modules into one new module."""
        module = ModuleType(self.compiled_name, self.source.__doc__)
        modules = (*self.parts, self.source)
        homes = {part.__name__ for part in modules}
        names: dict[str, Any] = vars(module)
        for part in modules:
            own = {name: value for name, value in vars(part).items() if not name.startswith("__")}
            for name, value in own.items():
                if inspect.isfunction(value) and value.__module__ in homes:
                    copy = FunctionType(value.__code__, names, name, value.__defaults__, value.__closure__)
                    copy.__kwdefaults__ = value.__kwdefaults__
                    own[name] = copy
            names.update(own)
        return module
