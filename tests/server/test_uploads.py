"""Uploads over a real server: chunks, cuts, refusals, restarts."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from waitress import wasyncore
from waitress.server import create_server

from studio.errors import TraceFormatError
from studio.et.seen import RankSeen
from studio.et.source import SourceFile
from studio.server.uploads import CHUNK_BYTES, build_uploads_blueprint
from studio.store import imports
from studio.store.imports import Progress
from studio.store.tasks import close_tasks, open_tasks
from tests.waiting import PATIENCE_S, wait_until

# Waitress leaves the temporary file of a body that never came whole to Python, which closes it at once and warns.
LEFT_BY_WAITRESS = "ignore:unclosed file:ResourceWarning"

HOSTILE = "<img src=x onerror=alert(1)>/../../x.0.et"


def sizes(files: list[SourceFile], progress: Progress) -> str:
    if any(file.name == "bad.et" for file in files):
        raise TraceFormatError("bad.et: not a trace.", hint="Open a trace.")
    return "-".join(str(file.path.stat().st_size) for file in files)


class Server:
    """The routes on a free port; `call` gives status and JSON."""

    def __init__(self, folder: Path, reader: imports.ReadJob = sizes) -> None:
        self.registry = imports.open_registry(open_tasks(folder), reader)
        app = Flask("test")
        app.register_blueprint(build_uploads_blueprint(self.registry))
        self.server = create_server(app, host="127.0.0.1", port=0, threads=8)
        self.port: int = self.server.effective_port
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stop.is_set():
            wasyncore.loop(timeout=0.02, map=self.server._map, count=1)
        # Closed in the thread that waits on them, or the wait fails.
        for channel in list(self.server._map.values()):
            channel.close()

    def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        return call(self.port, method, path, body, **headers)

    def close(self) -> None:
        self.stop.set()
        self.thread.join()
        self.server.task_dispatcher.shutdown()
        close_tasks(self.registry.tasks)


def call(port: int, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        if body is not None and not isinstance(body, bytes):
            body, headers = json.dumps(body).encode(), {"Content-Type": "application/json"} | headers
        connection.request(method, f"/api/imports{path}", body, headers)
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "application/json"
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


def announce(server: Server, *files: tuple[str, int]) -> tuple[str, list[dict[str, Any]]]:
    wanted = [{"path": path, "size": size, "modified": 1.5} for path, size in files]
    status, made = server.call("POST", "", {"files": wanted})
    assert status == 201
    assert made["chunk_bytes"] == CHUNK_BYTES == 8_388_608
    return made["id"], made["files"]


def arrived(server: Server, size: int) -> None:
    """Wait until the server holds so much of a body whose end it still waits for."""
    wait_until(
        lambda: any(
            channel.request and len(channel.request.body_rcv or b"") >= size
            for channel in list(server.server.active_channels.values())
        )
    )


def ended(server: Server, import_id: str) -> dict[str, Any]:
    wait_until(lambda: server.call("GET", f"/{import_id}")[1]["status"] not in ("queued", "reading"))
    return server.call("GET", f"/{import_id}")[1]


def test_files_arrive_in_chunks_and_become_a_job(server: Server) -> None:
    import_id, (a, b) = announce(server, (HOSTILE, 10), ("b.1.et", 4))
    assert (a["path"], a["received"]) == (HOSTILE, 0)
    assert server.call("PUT", f"/{import_id}/files/{a['id']}?offset=0", b"01234") == (200, {"received": 5})
    assert server.call("PUT", f"/{import_id}/files/{a['id']}?offset=5", b"56789") == (200, {"received": 10})
    status, refusal = server.call("POST", f"/{import_id}/start", {})
    assert status == 400
    assert "b.1.et has 0 of 4 bytes" in refusal["error"]["message"]
    assert refusal["error"]["hint"]
    assert server.call("PUT", f"/{import_id}/files/{b['id']}?offset=0", b"abcd") == (200, {"received": 4})
    assert server.call("POST", f"/{import_id}/start", {})[0] == 202
    done = ended(server, import_id)
    assert (done["status"], done["job"]) == ("done", "10-4")
    assert [one["id"] for one in server.call("GET", "")[1]["imports"]] == [import_id]
    assert "files" not in server.call("GET", f"/{import_id}?files=0")[1]


def test_what_is_known_of_the_ranks_comes_with_the_progress(tmp_path: Path) -> None:
    """A page draws it while the other ranks are still read."""
    go, told = threading.Event(), threading.Event()

    def reader(files: list[SourceFile], progress: Progress) -> str:
        progress.seen.begin(128)
        progress.seen.rank(0, RankSeen(0, {"compute": 3, "collective": 1}, 10, 1_010, 4096))
        progress.seen.note_refused("a.7.et", "cut off")
        progress("reading", 5, 640)
        told.set()
        assert go.wait(PATIENCE_S)
        return "job"

    server = Server(tmp_path, reader)
    try:
        import_id, [file] = announce(server, ("a.0.et", 1))
        server.call("PUT", f"/{import_id}/files/{file['id']}?offset=0", b"x")
        server.call("POST", f"/{import_id}/start", {})
        assert told.wait(PATIENCE_S)
        progress = server.call("GET", f"/{import_id}?files=0")[1]["progress"]
        assert (progress["phase"], progress["done"], progress["total"], progress["unit"]) == (
            "reading",
            5,
            640,
            "bytes",
        )
        assert progress["picture"] == {
            "ranks": 1,
            "of_ranks": 128,
            "operations": {"compute": 3, "collective": 1},
            "span_ns": 1_000,
            "bars": [{"place": 0, "first": 0, "last": 0, "sent_bytes": 4096}],
            "of_bars": 128,
            "sent_bytes": 4096,
            "refused": [["a.7.et", "cut off"]],
            "more_refused": 0,
        }
        go.set()
        assert ended(server, import_id)["progress"] is None
    finally:
        go.set()
        server.close()


def test_small_files_may_come_together(server: Server) -> None:
    import_id, files = announce(server, ("a", 2), ("b", 0), ("c", 3))
    ids = ",".join(file["id"] for file in files)
    status, answer = server.call("PUT", f"/{import_id}/files?ids={ids}", b"aaccc")
    assert (status, answer) == (200, {"received": {"000001": 2, "000002": 0, "000003": 3}})
    assert server.call("PUT", f"/{import_id}/files?ids={ids}", b"aacccc")[0] == 400
    assert server.call("PUT", f"/{import_id}/files?ids={ids},000004", b"aaccc")[0] == 404
    assert server.call("PUT", f"/{import_id}/files?ids={'000001,' * 101}", b"a")[0] == 413
    server.call("POST", f"/{import_id}/start", {})
    assert ended(server, import_id)["job"] == "2-0-3"


def test_a_wrong_offset_is_a_conflict_that_says_where_to_go_on(server: Server) -> None:
    import_id, (a,) = announce(server, ("a", 10))
    put = f"/{import_id}/files/{a['id']}?offset="
    server.call("PUT", put + "0", b"012")
    for offset in ("0", "2", "4"):
        status, answer = server.call("PUT", put + offset, b"x")
        assert (status, answer["received"]) == (409, 3)
    for offset in ("", "-1", "1.0", "x", "9" * 30, "%D9%A1"):
        assert server.call("PUT", put + offset, b"x")[0] == 400
    assert server.call("PUT", put + "3", b"x" * 8)[0] == 413
    assert server.call("GET", f"/{import_id}")[1]["received"] == 3


def test_a_chunk_without_length_is_refused(server: Server) -> None:
    import_id, (a,) = announce(server, ("a", 10))
    head = f"PUT /api/imports/{import_id}/files/{a['id']}?offset=0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as raw:
        raw.sendall(head.encode())
        assert b" 411 " in raw.recv(4096).split(b"\r\n")[0]


@pytest.mark.filterwarnings(LEFT_BY_WAITRESS)
def test_a_connection_cut_in_mid_chunk_resumes(server: Server) -> None:
    body = os.urandom(3_000_000)
    import_id, (a,) = announce(server, ("a.et", len(body)))
    put = f"/{import_id}/files/{a['id']}?offset="
    assert server.call("PUT", put + "0", body[:1_000_000])[1] == {"received": 1_000_000}
    head = f"PUT /api/imports{put}1000000 HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as raw:
        raw.sendall(head.encode() + body[1_000_000:1_700_000])
        arrived(server, 700_000)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    received = server.call("GET", f"/{import_id}")[1]["received"]
    assert 1_000_000 <= received <= 1_700_000
    assert server.call("PUT", f"{put}{received}", body[received:]) == (200, {"received": len(body)})
    path = server.registry.root / import_id / "files" / a["id"]
    assert path.read_bytes() == body


def test_the_same_list_resumes_also_on_a_new_server(server: Server, tmp_path: Path) -> None:
    files = (("job/a.0.et", 6), ("job/a.1.et", 2))
    import_id, (a, _) = announce(server, *files)
    server.call("PUT", f"/{import_id}/files/{a['id']}?offset=0", b"0123")
    assert announce(server, *files)[0] == import_id
    assert announce(server, *files[:1])[0] != import_id
    server.close()
    second = Server(tmp_path)
    try:
        assert {one["status"] for one in second.call("GET", "")[1]["imports"]} == {"interrupted"}
        again, (a, b) = announce(second, *files)
        assert (again, a["received"], b["received"]) == (import_id, 4, 0)
        second.call("PUT", f"/{again}/files/{a['id']}?offset=4", b"45")
        second.call("PUT", f"/{again}/files/{b['id']}?offset=0", b"xy")
        second.call("POST", f"/{again}/start", {})
        assert ended(second, again)["job"] == "6-2"
    finally:
        second.close()


def test_two_uploads_at_once_keep_apart(server: Server) -> None:
    bodies = {name: os.urandom(400_000) for name in ("one.et", "two.et")}
    made = {name: announce(server, (name, len(body))) for name, body in bodies.items()}

    def push(name: str) -> None:
        import_id, (file,) = made[name]
        for at in range(0, len(bodies[name]), 50_000):
            chunk = bodies[name][at : at + 50_000]
            assert server.call("PUT", f"/{import_id}/files/{file['id']}?offset={at}", chunk)[0] == 200

    threads = [threading.Thread(target=push, args=(name,)) for name in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, (import_id, (file,)) in made.items():
        assert (server.registry.root / import_id / "files" / file["id"]).read_bytes() == bodies[name]


def test_cancel_and_dismiss(server: Server) -> None:
    import_id, (a, b) = announce(server, ("a", 1), ("b", 1))
    server.call("PUT", f"/{import_id}/files/{a['id']}?offset=0", b"a")
    assert server.call("DELETE", f"/{import_id}/files/{a['id']}")[0] == 200
    assert not (server.registry.root / import_id / "files" / a["id"]).exists()
    assert server.call("GET", f"/{import_id}")[1]["files"][0]["status"] == "cancelled"
    assert server.call("PUT", f"/{import_id}/files/{a['id']}?offset=0", b"a")[0] == 404
    assert server.call("DELETE", f"/{import_id}") == (200, {"id": import_id, "status": "gone"})
    for method, path in (("GET", ""), ("DELETE", ""), ("PUT", f"/files/{b['id']}?offset=0")):
        assert server.call(method, f"/{import_id}{path}", b"x" if method == "PUT" else None)[0] == 404
    assert server.call("GET", "")[1] == {"imports": []}


def test_errors_of_the_reader_come_with_their_hint(server: Server) -> None:
    import_id, (a,) = announce(server, ("bad.et", 1))
    server.call("PUT", f"/{import_id}/files/{a['id']}?offset=0", b"x")
    server.call("POST", f"/{import_id}/start", {})
    failed = ended(server, import_id)
    assert failed["error"] == {
        "message": "bad.et: not a trace.",
        "hint": "Open a trace.",
        "ranks_for": [],
        "npus_for": [],
    }
    assert server.call("POST", f"/{import_id}/retry", {"ranks": {"bad.et": 3}})[0] == 202
    assert ended(server, import_id)["status"] == "failed"
    assert server.call("POST", f"/{import_id}/retry", {"ranks": {"bad.et": "<b>"}})[0] == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"files": []}, 400),
        ({"files": [{"path": 1, "size": 1}]}, 400),
        ({"files": [{"path": "x"}]}, 400),
        ({"files": [{"path": "x", "size": -1}]}, 400),
        ({"files": [{"path": "x", "size": 1.5}]}, 400),
        ({"files": [{"path": "x" * 4097, "size": 1}]}, 400),
        ({"files": [{"path": "x", "size": 1 << 62}]}, 507),
        ({"files": [{"path": str(index), "size": 1} for index in range(100_001)]}, 413),
        (b"{", 400),
        (b"\xff", 400),
        (b" " * (17 << 20), 413),
    ],
    ids=range(12),
)
def test_announcements_that_are_refused(server: Server, body: object, status: int) -> None:
    found, answer = server.call("POST", "", body, **{"Content-Type": "application/json"})
    assert found == status
    assert answer["error"]["message"]
    assert server.call("GET", "")[1] == {"imports": []}


def test_forms_of_foreign_sites_are_not_taken(server: Server) -> None:
    import_id, _ = announce(server, ("a", 0))
    for path in ("", f"/{import_id}/start", f"/{import_id}/retry"):
        for mimetype in ("text/plain", "application/x-www-form-urlencoded"):
            assert server.call("POST", path, b"{}", **{"Content-Type": mimetype})[0] == 400
    assert server.call("GET", f"/{import_id}")[1]["status"] == "uploading"


@pytest.mark.parametrize(
    "path", ["/..%2f..%2fetc", "/" + "0" * 16, "/%00", "/0000000000000000/files/..%2fstate.json"]
)
def test_unknown_ids_are_not_found(server: Server, path: str) -> None:
    outside = server.registry.root.parent
    before = sorted(outside.rglob("*"))
    method = "PUT" if "files" in path else "GET"
    with_offset = f"{path}?offset=0" if "files" in path else path
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.request(method, f"/api/imports{with_offset}", b"x" if method == "PUT" else None)
    assert connection.getresponse().status == 404
    connection.close()
    assert sorted(outside.rglob("*")) == before


CHILD = """
import sys
from pathlib import Path
from flask import Flask
from waitress.server import create_server
from studio.store import imports
from studio.store.tasks import close_tasks, open_tasks
from studio.server.uploads import build_uploads_blueprint
app = Flask("child")
registry = imports.open_registry(open_tasks(Path(sys.argv[1])), lambda files, progress: "job")
app.register_blueprint(build_uploads_blueprint(registry))
server = create_server(app, host="127.0.0.1", port=0)
print(server.effective_port, flush=True)
server.run()
"""


@pytest.mark.integration
def test_a_killed_server_loses_nothing_it_confirmed(server: Server, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout
    try:
        port = int(child.stdout.readline())
        made = call(port, "POST", "", {"files": [{"path": "a.et", "size": 500_000, "modified": 1}]})[1]
        import_id = made["id"]
        put = f"/{import_id}/files/000001?offset="
        assert call(port, "PUT", put + "0", b"x" * 300_000)[0] == 200
        assert server.call("PUT", put + "300000", b"y")[0] == 409
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert server.call("GET", f"/{import_id}")[1]["status"] == "interrupted"
    assert server.call("PUT", put + "300000", b"y" * 200_000) == (200, {"received": 500_000})
    server.call("POST", f"/{import_id}/start", {})
    assert ended(server, import_id)["job"] == "500000"
