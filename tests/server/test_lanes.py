"""A studio answers while others export slowly, send half a request, or nothing at all."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from studio.app import _BLUEPRINTS
from studio.server.lanes import EXPORTS_AT_ONCE, is_export
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os
from studio.server import lanes
from studio.server.serve import listen, serve

lanes.HEADERS_WITHIN_S = lanes.STALLED_S = 1

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/api/jobs/j/nodes.csv":
        os.write(1, b"export\\n")
        return (bytes(1 << 20) for _ in range(100_000))
    return [environ["wsgi.input"].read() + b"quick"]

def ready(url):
    lanes.STALLED_S = STALLED
    print(url, flush=True)

serve(app, listen("127.0.0.1", 0), ready=ready)
"""


@contextlib.contextmanager
def serving(stalled_s: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM.replace("STALLED\n", f"{stalled_s}\n")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
        finally:
            process.kill()


def connected(port: int, text: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    sock.sendall(text)
    return sock


def answer(port: int) -> bytes:
    with connected(port, b"GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as sock:
        return b"".join(iter(lambda: sock.recv(65536), b""))


@pytest.mark.integration
def test_quick_requests_are_answered_while_all_exports_wait_for_their_readers() -> None:
    """As many readers as there are threads of all kinds, none of whom takes what it asked for."""
    with serving(stalled_s=600) as (process, port), contextlib.ExitStack() as held:
        for _ in range(20):
            held.enter_context(connected(port, b"GET /api/jobs/j/nodes.csv HTTP/1.1\r\nHost: x\r\n\r\n"))
        for _ in range(EXPORTS_AT_ONCE):
            assert process.stdout is not None
            assert process.stdout.readline() == "export\n"
        assert answer(port).endswith(b"quick")


@pytest.mark.integration
def test_an_export_nobody_takes_makes_room_for_the_next() -> None:
    with serving(stalled_s=1) as (process, port), contextlib.ExitStack() as held:
        for _ in range(EXPORTS_AT_ONCE + 1):
            held.enter_context(connected(port, b"GET /api/jobs/j/nodes.csv HTTP/1.1\r\nHost: x\r\n\r\n"))
        for _ in range(EXPORTS_AT_ONCE + 1):
            assert process.stdout is not None
            assert process.stdout.readline() == "export\n"


@pytest.mark.integration
@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
    ],
    ids=["nothing", "line", "headers", "body"],
)
def test_half_sent_requests_are_closed(half: bytes) -> None:
    with serving(stalled_s=1) as (_, port), connected(port, half) as sock:
        assert sock.recv(100) == b""


@pytest.mark.integration
def test_hundreds_of_half_sent_requests_keep_nobody_out() -> None:
    with serving(stalled_s=600) as (_, port), contextlib.ExitStack() as held:
        for _ in range(200):
            held.enter_context(connected(port, b"GET / HTTP/1.1\r\nHost"))
        assert answer(port).endswith(b"quick")


def test_what_a_studio_streams_is_an_export() -> None:
    """Addresses of files to save have a suffix; all else is quick."""
    import flask

    server = flask.Flask("routes")
    for blueprint in _BLUEPRINTS:
        server.register_blueprint(blueprint())
    paths = {str(rule).replace("<kind>", "svg") for rule in server.url_map.iter_rules()}
    long = {path for path in paths if is_export(path)}
    assert {path.rsplit("/", 1)[1] for path in long} >= {
        "nodes.csv",
        "spans.csv",
        "trace.json",
        "trace.pftrace",
        "report",
    }
    assert "/api/jobs/<job>/timeline/tile" in paths - long
    assert "/status" in paths - long
