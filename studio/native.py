"""Kernels: modules of plain functions that run interpreted as they are, and compiled under another name.

A kernel's source is loaded a second time and that copy is compiled, so the two cannot differ. Compiling takes
seconds once per installation; numba keeps the result beside the source, and a mark next to that says that it
is there. `warm_up` compiles in another process, so that nobody waits.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from filelock import FileLock


@dataclass(slots=True)
class Kernel:
    """A kernel that is compiled at most once per process.

    Attributes:
        source: The module as it is, to run interpreted.
        home: The module whose `compiled()` compiles it.
        prepare: Turns the functions of a copy of the source into compiled ones.
        loaded: The compiled copy; None until somebody asked for it.
        lock: Held while it is made.
    """

    source: ModuleType
    home: str
    prepare: Callable[[ModuleType], None]
    loaded: ModuleType | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def compiled_name(self) -> str:
        """The name of the compiled copy."""
        package, _, name = self.source.__name__.rpartition(".")
        return f"{package}._compiled_{name}"

    def compiled(self) -> ModuleType:
        """Return the kernel, compiled: seconds the first time an installation asks, then from a cache."""
        with self.lock:
            if self.loaded is None:
                self.loaded = self._compile()
        return self.loaded

    def cached(self) -> bool:
        """Whether this installation has compiled this very source before."""
        return self.marker().exists()

    def marker(self) -> Path:
        """Return the file that says so."""
        versions = f"{sys.version_info[0]}.{sys.version_info[1]}-numba{importlib.metadata.version('numba')}"
        path = Path(str(self.source.__file__))
        name = f"{self.source.__name__}-{versions}-{path.stat().st_mtime_ns}"
        # Where numba keeps what it compiles, so that who empties the one has emptied the other.
        if os.access(path.parent, os.W_OK):
            return path.parent / "__pycache__" / name
        import platformdirs

        return Path(platformdirs.user_cache_dir("chakra-studio", appauthor=False)) / name

    def warm_up(self) -> subprocess.Popen[bytes] | None:
        """Compile in another process where this installation never did; return it, None where nothing is to do.

        It gives way to others: the studio that starts it is wanted first.
        """
        if self.loaded is not None or self.cached():
            return None
        code = f"import os, {self.home} as home; getattr(os, 'nice', int)(10); home.compiled()"
        return subprocess.Popen(  # noqa: S603 (a fixed command)
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _compile(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(self.compiled_name, self.source.__file__)
        if spec is None or spec.loader is None:  # the source of a package that runs is there
            raise ImportError(self.source.__file__)
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.compiled_name] = module
        spec.loader.exec_module(module)
        marker = self.marker()
        marker.parent.mkdir(parents=True, exist_ok=True)
        # Who comes while another process compiles waits for that and finds the work done.
        with FileLock(f"{marker}.lock"):
            self.prepare(module)
            marker.touch()
        return module
