"""The token of a workspace: who shows it may use the studios that serve the workspace."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from filelock import FileLock

from studio.files import PRIVATE_FILE, open_private, read_file

_LONG_ENOUGH: Final = re.compile(rb"[A-Za-z0-9_-]{32,128}")


def ensure_workspace_token(root: Path) -> str:
    """Return the token of a workspace, made when it is first asked for and kept in its file `token`.

    It stays the same from start to start, so that a browser that was let in once still is.

    Raises:
        OSError: The workspace cannot be read or written.
    """
    path = root / "token"
    with FileLock(root / "token.lock", timeout=60, mode=PRIVATE_FILE):
        try:
            kept = read_file(path).strip()
        except FileNotFoundError:
            kept = b""
        if _LONG_ENOUGH.fullmatch(kept):
            return kept.decode("ascii")
        # 192 random bits, safe in a URL and in a cookie.
        token = secrets.token_urlsafe(24)
        aside = path.with_suffix(".new")
        aside.unlink(missing_ok=True)
        with open_private(aside, "xb") as stream:
            stream.write(token.encode())
        aside.replace(path)
        return token
