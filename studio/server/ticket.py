"""Let in the browser that the studio opens, without showing the token to others.

A browser is told what to open in its command line, which every account of the machine can list. So the address it
is given holds a ticket instead of the token: a secret that lets one browser in, once, and on systems that tell
whose connection a request came by, only one of the account that the studio runs for.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# Linux lists connections with the account that opened them.
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"


@dataclass(slots=True)
class Ticket:
    """A secret that lets one browser in, once.

    Attributes:
        port: The port that the studio listens on.
        secret: What the address holds.
    """

    port: int
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _used: bool = False

    def admits(self, shown: str, peer_port: int) -> bool:
        """Return whether a request that shows this secret is let in; the ticket is used up if it is.

        Args:
            shown: The secret of the request.
            peer_port: The port of the connection's other end.
        """
        if not hmac.compare_digest(shown.encode(errors="replace"), self.secret.encode()):
            return False
        if not set(_find_accounts(peer_port, self.port)) <= {_get_account()}:
            return False
        with self._lock:
            admitted, self._used = not self._used, True
        return admitted


def _get_account() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else -1


def _find_accounts(port: int, remote_port: int) -> Iterator[int]:
    """Yield the accounts that opened the connections from a port to another; none where the system does not tell."""
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, _, _, _, account, *_ = line.split()
            ends = tuple(int(end.rpartition(":")[2], 16) for end in (local, remote))
            if ends == (port, remote_port) and state == _ESTABLISHED:
                yield int(account)
