"""The web server: take a port, answer requests until the studio is stopped, open a browser."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from studio.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8050
_APP_BROWSERS = (
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
    "chrome",
    "microsoft-edge",
    "microsoft-edge-stable",
    "msedge",
    "brave-browser",
    "vivaldi",
)
_MAC_APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser", "Vivaldi")
_WINDOWS_APPS = (
    "Google/Chrome/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
    "BraveSoftware/Brave-Browser/Application/brave.exe",
    "Chromium/Application/chrome.exe",
)

_PORTS_TRIED: Final = 100
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (named, not bound)
_MIB: Final = 2**20

# An upload arrives as pieces of 8 MiB, each a request of its own. Twice that is room for its
# headers and for a large callback, and bounds what a client can make the server store.
_LARGEST_REQUEST_BYTES: Final = 16 * _MIB
_SETTINGS: Final[dict[str, Any]] = {
    "threads": 8,
    "max_request_body_size": _LARGEST_REQUEST_BYTES,
    # Above these a body waits in a temporary file: uploads leave the memory flat.
    "inbuf_overflow": _MIB,
    "outbuf_overflow": _MIB,
    # Connections without a request; those with one have shorter deadlines, see `studio.server.lanes`.
    "channel_timeout": 120,
    # Half-sent requests of somebody else must not use all of them up before they are closed.
    "connection_limit": 500,
    "asyncore_use_poll": True,
    "ident": None,
    "expose_tracebacks": False,
    # People close tabs while answers are under way; that is no event worth a log line.
    "log_socket_errors": False,
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A port that is taken: connections queue up until `serve` answers them.

    Attributes:
        sockets: One per address of the host ("localhost" may have two), all on the same port.
        host: The host as it was asked for.
        port: The port that was found.
    """

    sockets: tuple[socket.socket, ...]
    host: str
    port: int

    @property
    def url(self) -> str:
        """The address to open on this machine."""
        host = _WILDCARDS.get(self.host, self.host)
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    def close(self) -> None:
        """Give the port back without serving."""
        for sock in self.sockets:
            sock.close()


def listen(host: str = DEFAULT_HOST, port: int | None = None) -> Listener:
    """Take a port.

    Args:
        host: A name or address of this machine.
        port: Exactly this port, or any that is free for 0. None takes the default port, or the
            next free one where another program has it.

    Raises:
        ConfigError: The host is no address of this machine, or the port cannot be had.
    """
    addresses = _find_addresses(host)
    if port is not None:
        if not 0 <= port <= 65535:
            raise ConfigError(f"{port} is not a port; allowed: a number from 0 to 65535")
        return _take(host, addresses, port)
    for candidate in range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TRIED):
        with contextlib.suppress(_PortTakenError):
            return _take(host, addresses, candidate)
    return _take(host, addresses, 0)


def serve(
    wsgi_app: WSGIApplication, listener: Listener, *, ready: Callable[[str], object] | None = None
) -> None:
    """Answer requests until Ctrl-C or SIGTERM, then let the running ones end and return.

    Args:
        wsgi_app: What answers; a Flask server is one.
        listener: From `listen`; its port is given back at the end.
        ready: Called once with the address, when a browser that opens it gets an answer. It has
            to return soon, for the answers start right after it.
    """
    # Loaded here because reading `is_loopback` should not cost a server.
    from waitress import create_server

    from studio.server.lanes import divide

    # It warns whenever a request waits for a free thread, which a page of 40 scripts always does.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    # A second Ctrl-C while running requests end is the wish to stop now, so it is no error either.
    with contextlib.suppress(KeyboardInterrupt), _interrupt_on_sigterm():
        try:
            channels: dict[int, Any] = {}
            server = create_server(wsgi_app, map=channels, sockets=list(listener.sockets), **_SETTINGS)
            divide(server, channels.values())
            if ready is not None:
                ready(listener.url)
            server.run()
        finally:
            listener.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host.

    Names other than localhost count as reachable, whatever they resolve to today.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1")
        (True, True, True)
        >>> is_loopback("0.0.0.0"), is_loopback("192.168.1.7"), is_loopback("gpu-box")
        (False, False, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def can_open_browser(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """Return whether a browser can be opened on a screen.

    Example:
        >>> can_open_browser({"DISPLAY": ":0"}, "linux"), can_open_browser({}, "linux")
        (True, False)
        >>> can_open_browser({}, "darwin"), can_open_browser({"CI": "true"}, "darwin")
        (True, False)
    """
    if environ.get("CI", "").lower() not in ("", "0", "false"):
        return False
    if platform in ("darwin", "win32"):
        return True
    # BROWSER is a choice somebody made; editors that reach a remote machine set it to their own.
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def open_browser(url: str) -> None:
    """Ask the desktop for a browser window, without waiting for it."""
    # Some desktops answer only when the window is closed.
    threading.Thread(target=webbrowser.open, args=(url,), name="browser", daemon=True).start()


def find_app_browser(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> str | None:
    """Return a browser of the Chromium family, which can show one address in a window of its own; None without one."""
    for name in _APP_BROWSERS:
        path = shutil.which(name, path=environ.get("PATH"))
        if path:
            return path
    if platform == "darwin":
        placed = [f"/Applications/{name}.app/Contents/MacOS/{name}" for name in _MAC_APPS]
    elif platform == "win32":
        roots = [environ.get(name, "") for name in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA")]
        placed = [str(Path(root) / tail) for root in roots if root for tail in _WINDOWS_APPS]
    else:
        placed = []
    return next((path for path in placed if os.access(path, os.X_OK)), None)


def open_app(browser: str, url: str) -> None:
    """Show an address in a window of its own, without tabs and address bar.

    Raises:
        ConfigError: The browser cannot be started.
    """
    nowhere = subprocess.DEVNULL
    try:
        window = subprocess.Popen(  # noqa: S603 (a browser that was looked up, and our own address)
            [browser, f"--app={url}"], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    except OSError as error:
        raise ConfigError(
            f"{browser} cannot be started: {error.strerror}", hint="Leave --app out to use the usual browser."
        ) from error
    # Nobody waits for the window; when it is closed its process must not be left behind.
    threading.Thread(target=window.wait, name="window", daemon=True).start()


class _PortTakenError(ConfigError):
    """Another program has the port, or the system keeps it for itself."""


def _find_addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Look up the address families and numeric addresses of a host."""
    if host.lower() == "localhost":
        # Not looked up: whatever a resolver says, localhost never leaves the machine.
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    bare = host.removeprefix("[").removesuffix("]")
    try:
        infos = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM) if bare else []
    except (OSError, UnicodeError):
        infos = []
    addresses = [(family, str(address[0])) for family, _, _, _, address in infos]
    if not addresses:
        raise ConfigError(
            f"{host!r} is not a host name or address that this machine knows",
            hint=f"Use {DEFAULT_HOST} for this machine alone, 0.0.0.0 to be reachable from others.",
        )
    return list(dict.fromkeys(addresses))


def _take(host: str, addresses: list[tuple[socket.AddressFamily, str]], port: int) -> Listener:
    """Listen on the same port of every address; all or nothing."""
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses:
            try:
                sock = _open_listener(family, address, port)
            except OSError as error:
                # "localhost" has an IPv6 address that not every machine can use.
                if sockets and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                raise _explain_refusal(host, port, error) from error
            sockets.append(sock)
            port = int(sock.getsockname()[1])
    except ConfigError:
        for sock in sockets:
            sock.close()
        raise
    return Listener(tuple(sockets), host.removeprefix("[").removesuffix("]"), port)


def _open_listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            # There, reusing an address would let two programs share the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # Or a studio started again could not have its port back for a minute.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        # At once: a port that is bound but not listened on can still be bound by another studio.
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


def _explain_refusal(host: str, port: int, error: OSError) -> ConfigError:
    """Turn a failed bind into an error that says what to do."""
    if error.errno == errno.EADDRINUSE:
        return _PortTakenError(
            f"Port {port} of {host} is taken by another program",
            hint="Leave out --port to get the next free one, or stop the other program.",
        )
    if isinstance(error, PermissionError):
        return _PortTakenError(
            f"Port {port} of {host} is kept by the system",
            hint=f"Use a port above 1023, or leave out --port to get {DEFAULT_PORT} or the next free one.",
        )
    return ConfigError(
        f"Cannot listen on {host}, port {port}: {error.strerror}",
        hint=f"--host takes an address of this machine: {DEFAULT_HOST}, 0.0.0.0 for all of them, or one of its own.",
    )


@contextlib.contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may set handlers, and only it gets signals.
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
