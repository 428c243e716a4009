"""Taking a port, answering on it, and stopping without a fuss."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from studio.errors import ConfigError
from studio.server import serve
from tests.processes import marked_processes
from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, time
from studio.server.serve import listen, serve

def app(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        print("slow", flush=True)
        time.sleep(1)
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d bytes" % len(body)]

serve(app, listen("127.0.0.1", 0), ready=lambda url: print(url, flush=True))
print("stopped", flush=True)
"""


@pytest.fixture
def studio():
    """A program that serves, as a process of its own, and its port."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            yield process, int(url.rsplit(":", 1)[1].strip("/"))
        finally:
            process.kill()


def ask(port: int, head: str, body: bytes = b"") -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        # A server that refuses the size may close before all of it is sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(body)
        return b"".join(iter(lambda: sock.recv(65536), b""))


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_it_without_a_traceback(studio, stop: signal.Signals) -> None:
    process, port = studio
    assert b"0 bytes" in ask(port, "GET / HTTP/1.1\nHost: x\nConnection: close")
    process.send_signal(stop)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "stopped\n", "")


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send")
def test_an_impatient_second_ctrl_c_is_no_error_either(studio) -> None:
    process, port = studio
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert process.stdout.readline() == "slow\n"
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "stopped\n")
    assert "Traceback" not in err


@pytest.mark.integration
def test_a_piece_of_an_upload_fits_and_a_flood_does_not(studio) -> None:
    """8 MiB pieces arrive whole; a request beyond 16 MiB is refused before it is stored."""
    _, port = studio
    piece = bytes(8 * 2**20)
    head = f"PUT / HTTP/1.1\nHost: x\nConnection: close\nContent-Length: {len(piece)}"
    assert b"8388608 bytes" in ask(port, head, piece)
    answer = ask(port, "PUT / HTTP/1.1\nHost: x\nConnection: close\nContent-Length: 9000000000")
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.integration
def test_the_server_does_not_say_what_it_is_made_of(studio) -> None:
    _, port = studio
    head, _, _ = ask(port, "GET / HTTP/1.1\nHost: x\nConnection: close").partition(b"\r\n\r\n")
    assert b"server:" not in head.lower()
    assert b"waitress" not in head.lower()


def test_a_port_is_ours_from_the_moment_it_is_taken() -> None:
    """Connections queue up before anything answers, and no other studio gets the same port."""
    first = serve.listen("127.0.0.1", 0)
    try:
        with socket.create_connection(("127.0.0.1", first.port), timeout=PATIENCE_S):
            pass
        with pytest.raises(ConfigError) as caught:
            serve.listen("127.0.0.1", first.port)
        assert caught.value.message == f"Port {first.port} of 127.0.0.1 is taken by another program"
        assert "--port" in caught.value.hint
    finally:
        first.close()
    again = serve.listen("127.0.0.1", first.port)
    again.close()
    assert again.port == first.port


def test_without_a_port_the_next_free_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default port when it is free, the one after when another studio runs."""
    free = serve.listen("127.0.0.1", 0)
    free.close()
    monkeypatch.setattr(serve, "DEFAULT_PORT", free.port)
    first, second = serve.listen(), serve.listen()
    try:
        assert first.port == free.port
        assert first.port < second.port < first.port + 100
    finally:
        first.close()
        second.close()


def test_when_all_the_next_ports_are_taken_any_free_one_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    first = serve.listen("127.0.0.1", 0)
    monkeypatch.setattr(serve, "DEFAULT_PORT", first.port)
    monkeypatch.setattr(serve, "_PORTS_TRIED", 1)
    second = serve.listen()
    first.close()
    second.close()
    assert second.port not in (0, first.port)


def test_localhost_has_one_port_on_each_of_its_addresses() -> None:
    """Browsers try ::1 first; where there is no IPv6 the other address is enough."""
    listener = serve.listen("localhost", 0)
    try:
        assert {sock.getsockname()[1] for sock in listener.sockets} == {listener.port}
        assert all(serve.is_loopback(sock.getsockname()[0]) for sock in listener.sockets)
        assert listener.url == f"http://localhost:{listener.port}/"
    finally:
        listener.close()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8050/"),
        ("0.0.0.0", "http://127.0.0.1:8050/"),
        ("::", "http://[::1]:8050/"),
        ("::1", "http://[::1]:8050/"),
        ("gpu-box", "http://gpu-box:8050/"),
    ],
)
def test_the_address_is_one_a_browser_can_open(host: str, url: str) -> None:
    assert serve.Listener((), host, 8050).url == url


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("127.0.0.1", 70000, "from 0 to 65535"),
        ("127.0.0.1", -1, "from 0 to 65535"),
        ("", None, "not a host name"),
        ("no such host", None, "not a host name"),
        ("a" * 300, None, "not a host name"),
        ("192.0.2.1", 8050, "Cannot listen on 192.0.2.1"),
    ],
)
def test_hosts_and_ports_that_cannot_be_had_are_named(host: str, port: int | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        serve.listen(host, port)


def test_a_port_of_the_system_is_explained() -> None:
    """Whether a low port may be taken depends on the machine, so the system's answer is given here."""
    error = serve._explain_refusal("127.0.0.1", 80, PermissionError(errno.EACCES, "Permission denied"))
    assert error.message == "Port 80 of 127.0.0.1 is kept by the system"
    assert "1023" in error.hint


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("", False),
        ("::", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_only_loopback_addresses_are_loopback(host: str, expected: bool) -> None:
    assert serve.is_loopback(host) is expected


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"BROWSER": "/opt/editor/browser.sh"}, "linux", True),
        ({}, "darwin", True),
        ({}, "win32", True),
        ({"CI": "1", "DISPLAY": ":0"}, "linux", False),
        ({"CI": "true"}, "win32", False),
        ({"CI": "false", "DISPLAY": ":0"}, "linux", True),
    ],
)
def test_a_browser_opens_only_where_somebody_sees_it(
    environ: dict[str, str], platform: str, expected: bool
) -> None:
    assert serve.can_open_browser(environ, platform) is expected


def test_a_window_of_its_own_is_opened_in_a_browser_of_the_chromium_family(tmp_path: Path) -> None:
    assert serve.find_app_browser({"PATH": str(tmp_path)}, "linux") is None
    told = tmp_path / "told"
    browser = tmp_path / "chromium"
    browser.write_text(f'#!/bin/sh\necho "$@" > {told}.part && mv {told}.part {told}\n')
    browser.chmod(0o755)
    assert serve.find_app_browser({"PATH": str(tmp_path)}, "linux") == str(browser)
    serve.open_app(str(browser), "http://127.0.0.1:1/overview?job=a&b")
    wait_until(told.exists)
    assert told.read_text() == "--app=http://127.0.0.1:1/overview?job=a&b\n"
    # It has told before it ends.
    wait_until(lambda: not marked_processes())
    with pytest.raises(ConfigError, match="cannot be started"):
        serve.open_app(str(tmp_path / "gone"), "http://127.0.0.1:1/")
