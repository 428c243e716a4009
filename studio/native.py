"""Kernels: modules of plain functions that run interpreted or compiled by numba.

The functions of a kernel are copied into a module of their own and compiled there, so the two cannot differ; those of
several modules become one. Compiling takes seconds once per installation and kind of processor; `machine_code` keeps the
result in a file beside the source, or where `NUMBA_CACHE_DIR` says, and later processes load that without numba. `warm_up`
compiles in another process, so that nobody waits.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from studio.machine_code import (
    Entry,
    Made,
    NotAloneError,
    describe_host,
    find_release,
    link,
    load,
    make,
    save,
)


@dataclass(slots=True)
class Kernel:
    """A kernel that is compiled at most once per process.

    Attributes:
        source: The module as it is, to run interpreted.
        home: The module whose `load_kernel()` compiles it.
        entries: Its functions that are called from outside.
        prepare: Compiles these of a copy of the source.
        parts: Modules of the kernel which the source builds on.
        constants: Modules of numbers that the kernel names as `module.NUMBER`.
        optimise: Whether its functions, which numba optimises one by one, are optimised once more together.
        loaded: The compiled entries, by name as attributes; None until somebody asked for them.
        lock: Held while they are made.
    """

    source: ModuleType
    home: str
    entries: tuple[Entry, ...]
    prepare: Callable[[ModuleType], Sequence[Made]]
    parts: tuple[ModuleType, ...] = ()
    constants: tuple[ModuleType, ...] = ()
    optimise: bool = True
    loaded: Any = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def compiled_name(self) -> str:
        """The name of the compiled copy."""
        package, _, name = self.source.__name__.rpartition(".")
        return f"{package}._compiled_{name}"

    def load(self) -> Any:
        """Return the compiled kernel: compiles for seconds once per installation, then loads from a file."""
        with self.lock:
            if not self.is_cached():
                self.loaded = self._compile()
        return self.loaded

    def is_cached(self) -> bool:
        """Whether the kernel is loaded, or is now because its machine code was kept."""
        with self.lock:
            if self.loaded is None:
                self.loaded = self._load_kept()
            return self.loaded is not None

    @property
    def stamp(self) -> str:
        """A hash of the kernel's files, of the releases that make its machine code, and of how it is made."""
        digest = hashlib.blake2b(f"{sys.version_info[:2]} {find_release('numba')}".encode())
        if self.optimise:
            digest.update(b"optimised once more")
        for part in (*self.parts, *self.constants, self.source):
            digest.update(hashlib.blake2b(Path(str(part.__file__)).read_bytes()).digest())
        return digest.hexdigest()[:16]

    def code_file(self) -> Path:
        """Return the file for the machine code of this source on this processor."""
        processor = hashlib.blake2b(describe_host().encode(), digest_size=4).hexdigest()
        return self.folder() / f"{self.source.__name__}-{self.stamp}-{processor}.code"

    def folder(self) -> Path:
        """Return the folder for machine code: numba's, so that both are emptied together."""
        if kept := os.environ.get("NUMBA_CACHE_DIR"):
            return Path(kept)
        beside = Path(str(self.source.__file__)).parent
        if os.access(beside, os.W_OK):
            return beside / "__pycache__"
        import platformdirs

        return Path(platformdirs.user_cache_dir("chakra-studio", appauthor=False))

    def warm_up(self) -> subprocess.Popen[bytes] | None:
        """Compile in a background process if necessary; returns the process or None.

        It gives way to others: the studio that starts it is wanted first.
        """
        if self.is_cached():
            return None
        code = f"import os, {self.home} as home; getattr(os, 'nice', int)(10); home.load_kernel()"
        return subprocess.Popen(  # noqa: S603 (a fixed command)
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _load_kept(self) -> Any:
        """Load machine code that was kept; None where there is none."""
        if not any(self.folder().glob(f"{self.source.__name__}-*.code")):
            # LLVM need not be asked what processor this is.
            return None
        path = self.code_file()
        code = load(path, path.name.encode())
        return None if code is None else self._link(code)

    def _link(self, code: bytes) -> Any:
        return self._bind(link(code, [entry.name for entry in self.entries]))

    def _bind(self, addresses: dict[str, int]) -> Any:
        return SimpleNamespace(**{entry.name: entry.bind(addresses[entry.name]) for entry in self.entries})

    def _compile(self) -> Any:
        """Compile the kernel, and keep its machine code for later processes."""
        path = self.code_file()
        # If another process is compiling, wait and use its result.
        with _hold_lock(path):
            kept = self._load_kept()
            if kept is not None:
                return kept
            module = self._copy()
            sys.modules[self.compiled_name] = module
            functions = self.prepare(module)
            try:
                code = make(functions, optimise=self.optimise)
            except NotAloneError:
                bound = self._bind({function.name: function.address for function in functions})
                bound.functions = functions  # holds their memory
                return bound
            # Where nothing can be written, the next process compiles again.
            with suppress(OSError):
                save(path, path.name.encode(), code)
            return self._link(code)

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


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file; without one where its folder cannot be written."""
    from filelock import FileLock

    lock = FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError:
        yield
        return
    try:
        yield
    finally:
        lock.release()
