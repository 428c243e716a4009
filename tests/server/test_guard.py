"""Who may talk to the studio, asked over real sockets: browsers lie less than attackers do."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import flask
import pytest
from waitress import create_server, wasyncore

from studio.errors import ConfigError
from studio.server.guard import Policy, _build_cookie_name, compute_script_hash, protect
from studio.server.ticket import Ticket
from tests.waiting import PATIENCE_S

TOKEN = "a-token-of-some-length"
COOKIE = _build_cookie_name(TOKEN)
HERE = "Host: 127.0.0.1:8050"
PAGE = "Accept: text/html,*/*"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    text: str


def a_server(policy: Policy) -> flask.Flask:
    server = flask.Flask("guarded", static_folder=None)

    @server.route("/", methods=["GET", "POST", "PUT", "DELETE"])
    @server.route("/<path:path>", methods=["GET", "POST"])
    def hello(path: str = "") -> str:
        return f"hello {flask.request.full_path}"

    @server.get("/api/upload")
    def upload() -> flask.Response:
        kind = flask.request.args.get("type", "text/html")
        return flask.Response(SVG, content_type=kind)

    protect(server, policy, script_hashes=[compute_script_hash("ours")])
    return server


@contextlib.contextmanager
def running(server: flask.Flask) -> Iterator[int]:
    """A waitress in a thread, stopped cleanly; gives its port."""
    channels: dict[int, Any] = {}
    waitress = create_server(
        server, host="127.0.0.1", port=0, map=channels, threads=2, clear_untrusted_proxy_headers=True
    )
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            wasyncore.loop(timeout=0.02, count=1, map=channels)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield waitress.effective_port
    finally:
        stop.set()
        thread.join()
        waitress.task_dispatcher.shutdown()
        wasyncore.close_all(channels)


def ask(port: int, request: str, *headers: str) -> Answer:
    """The answer to a request sent byte by byte as written."""
    head = "\r\n".join((f"{request} HTTP/1.1", *headers, "Connection: close", "", ""))
    with socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE_S) as sock:
        sock.sendall(head.encode("latin-1"))
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    top, _, body = answer.partition(b"\r\n\r\n")
    line, _, fields = top.partition(b"\r\n")
    return Answer(int(line.split()[1]), BytesParser().parsebytes(fields + b"\r\n\r\n"), body.decode())


@pytest.fixture(scope="module")
def local() -> Iterator[int]:
    """Reachable from this machine alone, and told not to ask for a token."""
    with running(a_server(Policy("127.0.0.1", 8050))) as port:
        yield port


@pytest.fixture(scope="module")
def shared() -> Iterator[int]:
    """Reachable from other machines, with a token."""
    with running(a_server(Policy("0.0.0.0", 8050, TOKEN, ("Box.Example",)))) as port:
        yield port


# ---- the host


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8050", "127.0.0.1", "localhost:8050", "LocalHost:9000", "[::1]:9000", "[0:0:0:0:0:0:0:1]"],
)
def test_own_names_are_answered_on_any_port(local: int, host: str) -> None:
    """An ssh tunnel makes the browser say another port."""
    assert ask(local, "GET /", f"Host: {host}").text == "hello /?"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8050",
        "127.0.0.1.evil.example:8050",
        "localhost.evil.example",
        "evil.localhost",
        "192.168.1.7:8050",
        "0.0.0.0:8050",
        "127.0.0.2",
        "[::ffff:127.0.0.1]:8050",
        "[2001:db8::1]",
        "2130706433",
        "127.1",
    ],
)
def test_foreign_hosts_are_refused(local: int, host: str) -> None:
    """DNS rebinding: the name resolves to us, but it is not ours."""
    answer = ask(local, "GET /", f"Host: {host}", PAGE)
    assert answer.status == 421
    assert host in answer.text
    assert "http://127.0.0.1:8050/" in answer.text
    assert "hello" not in answer.text


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["127.0.0.1", "127.0.0.1"],
        ["127.0.0.1", "evil.example"],
        ["127.0.0.1, evil.example"],
        ["127.0.0.1 evil.example"],
        ["127.0.0.1:"],
        ["127.0.0.1:80:80"],
        ["127.0.0.1:x"],
        ["127.0.0.1@evil.example"],
        ["evil.example#127.0.0.1"],
        ["[::1"],
        ["[:::1]:8050"],
        ["::1"],
        ["localhost/"],
        ["localh\xf6st"],
        ["<img src=x onerror=alert(1)>"],
    ],
)
def test_missing_doubled_and_malformed_hosts_are_refused(local: int, hosts: list[str]) -> None:
    """What cannot be read is not guessed at."""
    answer = ask(local, "GET /", *(f"Host: {host}" for host in hosts), PAGE)
    assert answer.status == 400
    assert "<img" not in answer.text


def test_other_headers_that_name_a_host_do_not_help(local: int) -> None:
    """Proxies' headers are for proxies that were configured; there are none."""
    lies = ("X-Forwarded-Host: 127.0.0.1", "Forwarded: host=127.0.0.1", "Host_: 127.0.0.1")
    assert ask(local, "GET /", "Host: evil.example", *lies).status == 421
    assert ask(local, "GET http://127.0.0.1/", "Host: evil.example").status == 421


@pytest.mark.parametrize(
    "host", ["10.1.2.3:8050", "[2001:db8::1]:8050", "localhost", "box.example:80", socket.gethostname()]
)
def test_addresses_and_own_names_are_answered_on_the_network(shared: int, host: str) -> None:
    """An address cannot be rebound; the machine's names and the allowed ones are ours."""
    assert ask(shared, "GET /", f"Host: {host}", f"Authorization: Bearer {TOKEN}").status == 200


@pytest.mark.parametrize("host", ["evil.example", "sub.box.example", "10.1.2.3.evil.example"])
def test_foreign_names_are_refused_on_the_network_even_with_a_token(shared: int, host: str) -> None:
    """The token does not make a foreign name ours."""
    assert ask(shared, "GET /", f"Host: {host}", f"Authorization: Bearer {TOKEN}").status == 421


def test_an_allowed_host_has_to_be_a_name() -> None:
    """A URL in its place is a mistake worth an error."""
    with pytest.raises(ConfigError, match="http://box"):
        protect(flask.Flask("x"), Policy("127.0.0.1", 8050, allowed_hosts=("http://box/",)))


def test_the_host_listened_on_is_answered() -> None:
    """127.0.0.2 is this machine too, when asked for."""
    with running(a_server(Policy("127.0.0.2", 8050))) as port:
        assert ask(port, "GET /", "Host: 127.0.0.2:8050").status == 200
        assert ask(port, "GET /", "Host: 127.0.0.3:8050").status == 421


# ---- the origin


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8050", "http://127.0.0.1:8050"),
        ("localhost:9000", "http://localhost:9000"),
        ("LOCALHOST:9000", "http://localhost:9000"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("localhost", "https://localhost"),
        ("[::1]:8050", "http://[::1]:8050"),
    ],
)
def test_own_pages_may_ask(local: int, method: str, host: str, origin: str) -> None:
    """Same host, same port, whatever the scheme in front."""
    headers = (f"Host: {host}", f"Origin: {origin}", "Sec-Fetch-Site: same-origin")
    assert ask(local, f"{method} /", *headers).status == 200


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:8051",
        "http://127.0.0.1",
        "http://localhost:8050",
        "https://127.0.0.1",
        "ftp://127.0.0.1:8050",
        "127.0.0.1:8050",
        "http://127.0.0.1:8050.evil.example",
        "http://127.0.0.1:8050, http://evil.example",
        "http://evil.example@127.0.0.1:8050",
        "http://127.0.0.1:8050/",
        "null",
        "",
    ],
)
def test_foreign_origins_are_refused(local: int, method: str, origin: str) -> None:
    """Another port of this machine is another site: a notebook there is not the studio."""
    answer = ask(local, f"{method} /", HERE, f"Origin: {origin}")
    assert answer.status == 403
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_cross_site_requests_without_an_origin_are_refused(local: int, site: str) -> None:
    """Sec-Fetch-Site tells on posts and embedded files that carry no Origin."""
    fetch = f"Sec-Fetch-Site: {site}"
    assert ask(local, "POST /", HERE, fetch, "Sec-Fetch-Mode: navigate").status == 403
    assert (
        ask(local, "GET /x.js", HERE, fetch, "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script").status
        == 403
    )
    assert (
        ask(local, "GET /", HERE, fetch, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe").status == 403
    )


def test_links_from_elsewhere_and_programs_are_answered(local: int) -> None:
    """Views can be linked, and a script with curl is no browser."""
    link = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    assert ask(local, "GET /nodes?run=1", HERE, *link).text == "hello /nodes?run=1"
    assert ask(local, "POST /", HERE, "Sec-Fetch-Site: none").status == 200
    assert ask(local, "POST /", HERE).status == 200


# ---- the token


def test_without_the_token_a_person_is_told_where_it_is(shared: int) -> None:
    """A page for a person, JSON for a script, nothing of the app for either."""
    page = ask(shared, "GET /nodes", HERE, PAGE)
    assert page.status == 401
    assert page.headers.get_content_type() == "text/html"
    assert "address that was printed" in page.text
    assert page.headers["WWW-Authenticate"].startswith("Bearer")
    for request in (
        "POST /_dash-update-component",
        "GET /api/upload",
        "GET /assets/studio.css",
        "GET /missing",
    ):
        answer = ask(shared, request, HERE)
        assert answer.status == 401
        assert "token" in json.loads(answer.text)["error"]["hint"]


@pytest.mark.parametrize(
    "header",
    [
        f"Authorization: Bearer {TOKEN}",
        f"Authorization: bearer  {TOKEN}",
        f"Cookie: {COOKIE}={TOKEN}",
        f"Cookie: a=b; {COOKIE}=old; {COOKIE}={TOKEN}",
    ],
)
def test_the_token_opens_everything(shared: int, header: str) -> None:
    """As a header for scripts, as a cookie for browsers."""
    assert ask(shared, "POST /", HERE, header).status == 200
    assert ask(shared, "GET /", HERE, header, PAGE).status == 200


@pytest.mark.parametrize(
    "header",
    [
        "Authorization: Bearer wrong",
        "Authorization: Bearer",
        f"Authorization: Basic {TOKEN}",
        f"Authorization: Bearer {TOKEN}x",
        f"Authorization: Bearer {TOKEN[:-1]}",
        "Authorization: Bearer t\xf6ken",
        f"Cookie: {_build_cookie_name('of another workspace')}={TOKEN}",
        f"Cookie: token={TOKEN}",
        f"Cookie: {COOKIE}=",
    ],
)
def test_anything_else_does_not(shared: int, header: str) -> None:
    """Neither a part of it nor another studio's."""
    assert ask(shared, "GET /", HERE, header).status == 401


@pytest.mark.parametrize(
    ("asked", "location"),
    [
        (f"/?token={TOKEN}", "/"),
        (f"/nodes?run=1&token={TOKEN}&q=a%20b&q=", "/nodes?run=1&q=a%20b&q="),
        (f"/a%20b%3Fc?token={TOKEN}", "/a%20b%3Fc"),
        # However its name is written, or the answer would lead to the address again, without end.
        (f"/?%74oken={TOKEN}&x=1", "/?x=1"),
        (f"/?x=1&tok%65%6E={TOKEN}", "/?x=1"),
        # No way to elsewhere.
        (f"//evil.example/?token={TOKEN}", "/evil.example/"),
        (f"///evil.example?token={TOKEN}", "/evil.example"),
        (f"/%5Cevil.example/?token={TOKEN}", "/%5Cevil.example/"),
        (f"/%0d%0aSet-Cookie:x=y?token={TOKEN}", "/%0D%0ASet-Cookie%3Ax%3Dy"),
    ],
)
def test_a_token_in_the_address_moves_into_a_cookie(shared: int, asked: str, location: str) -> None:
    """And the address is clean before anybody copies it."""
    answer = ask(shared, f"GET {asked}", HERE, PAGE)
    assert (answer.status, answer.headers["Location"]) == (303, location)
    assert answer.headers["Cache-Control"] == "no-store"
    cookie, *marks = answer.headers["Set-Cookie"].split("; ")
    assert cookie == f"{COOKIE}={TOKEN}"
    kept = {mark for mark in marks if mark.startswith(("Max-Age=", "Expires="))}
    assert "Max-Age=34560000" in kept, "it outlives the browser: bookmarks go on working"
    assert set(marks) - kept == {"HttpOnly", "Path=/", "SameSite=Strict"}
    assert ask(shared, "GET /", HERE, f"Cookie: {cookie}").status == 200


def test_a_browser_that_was_let_in_stays_so_on_every_port(shared: int) -> None:
    """The studio of a workspace may get another port tomorrow; other workspaces have cookies of other names."""
    answer = ask(shared, f"GET /?token={TOKEN}", "Host: localhost:9000", PAGE)
    cookie = answer.headers["Set-Cookie"].split(";")[0]
    assert ask(shared, "GET /", "Host: localhost:8051", f"Cookie: {cookie}").status == 200
    assert _build_cookie_name("of another workspace") != COOKIE


def test_a_program_that_follows_the_printed_address_gets_the_page_and_a_cookie(shared: int) -> None:
    """Not all keep cookies over a redirect."""
    answer = ask(shared, f"GET /nodes?token={TOKEN}", HERE, "Accept: */*")
    assert (answer.status, answer.text) == (200, f"hello /nodes?token={TOKEN}")
    assert answer.headers["Set-Cookie"].startswith(f"{COOKIE}={TOKEN};")


def test_the_browser_that_the_studio_opens_is_let_in_once() -> None:
    """Its command line, which other accounts can list, does not show the token."""
    ticket = Ticket(0)
    with running(a_server(Policy("127.0.0.1", 8050, TOKEN, ticket=ticket))) as port:
        ticket.port = int(port)
        address = f"GET /nodes?run=1&ticket={ticket.secret}"
        assert ask(port, "GET /nodes?ticket=wrong", HERE, PAGE).status == 401
        assert ask(port, f"GET /api/upload?ticket={ticket.secret}", HERE).status == 401
        first = ask(port, address, HERE, PAGE)
        assert (first.status, first.headers["Location"]) == (303, "/nodes?run=1")
        cookie = first.headers["Set-Cookie"].split(";")[0]
        assert ask(port, "GET /", HERE, f"Cookie: {cookie}").status == 200
        assert ask(port, address, HERE, PAGE).status == 401


def test_a_ticket_seen_by_another_account_does_not_let_it_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux tells which account a connection is from; a refused one does not use the ticket up."""
    if not Path("/proc/net/tcp").exists():
        pytest.skip("this system does not list connections in /proc")
    ticket = Ticket(0)
    with running(a_server(Policy("127.0.0.1", 8050, TOKEN, ticket=ticket))) as port:
        ticket.port = int(port)
        with monkeypatch.context() as patch:
            patch.setattr("studio.server.ticket._get_account", lambda: os.geteuid() + 1)
            assert ask(port, f"GET /?ticket={ticket.secret}", HERE, PAGE).status == 401
        assert ask(port, f"GET /?ticket={ticket.secret}", HERE, PAGE).status == 303


def test_a_token_in_the_address_counts_for_pages_only(shared: int) -> None:
    """Scripts have a header for it; addresses end up in logs."""
    assert ask(shared, f"GET /api/upload?token={TOKEN}", HERE, PAGE).status == 401
    assert ask(shared, f"POST /?token={TOKEN}", HERE, PAGE).status == 401
    assert ask(shared, f"GET /x.js?token={TOKEN}", HERE, "Sec-Fetch-Mode: no-cors", PAGE).status == 401
    assert ask(shared, "GET /?token=wrong", HERE, PAGE).status == 401


def test_a_stale_token_in_the_address_is_dropped_for_who_is_signed_in(shared: int) -> None:
    """A bookmark from yesterday still opens the page."""
    cookie = f"Cookie: {COOKIE}={TOKEN}"
    answer = ask(shared, "GET /nodes?token=yesterday", HERE, PAGE, cookie)
    assert (answer.status, answer.headers["Location"]) == (303, "/nodes")


# ---- what answers carry


@pytest.mark.parametrize("path", ["/", "/missing", "/api/upload", "/api/missing"])
def test_every_answer_is_marked(local: int, path: str) -> None:
    """Pages, data and errors alike."""
    headers = ask(local, f"GET {path}", HERE).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_refusals_are_marked_too(local: int, shared: int) -> None:
    """The refusing page runs nothing but its own script."""
    for answer in (ask(local, "GET /", "Host: evil.example", PAGE), ask(shared, "GET /", HERE, PAGE)):
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "self" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"


def test_pages_run_our_scripts_only_and_reach_no_other_host(local: int) -> None:
    """No inline script but the listed ones, no eval, no host outside."""
    policy = ask(local, "GET /", HERE).headers["Content-Security-Policy"]
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == f"'self' {compute_script_hash('ours')}"
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    assert "*" not in policy


@pytest.mark.parametrize(
    "kind",
    [
        "text/html",
        "TEXT/HTML; charset=utf-8",
        "image/svg+xml",
        "application/xhtml+xml",
        "text/xml",
        "text/javascript",
    ],
)
def test_uploaded_content_is_never_served_as_a_page(local: int, kind: str) -> None:
    """Whatever a data route says it is, it neither runs nor is laid out."""
    answer = ask(local, f"GET /api/upload?type={kind.replace(' ', '%20').replace('+', '%2B')}", HERE)
    assert answer.text == SVG
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


def test_data_keeps_its_type(local: int) -> None:
    """Only what is active changes."""
    answer = ask(local, "GET /api/upload?type=application/json", HERE)
    assert answer.headers["Content-Type"] == "application/json"


def test_the_opener_policy_is_left_out_where_browsers_complain_about_it(shared: int) -> None:
    """Over plain HTTP from another machine it does nothing but log an error."""
    answer = ask(shared, "GET /", "Host: box.example:8050", f"Authorization: Bearer {TOKEN}")
    assert answer.status == 200
    assert "Cross-Origin-Opener-Policy" not in answer.headers


def test_hooks_registered_before_see_nothing_of_refused_requests() -> None:
    """The guard comes first, whatever the app did before it was protected."""
    seen: list[str] = []
    server = flask.Flask("early")

    @server.before_request
    def before() -> None:
        seen.append(flask.request.path)

    protect(server, Policy("127.0.0.1", 8050))
    client = server.test_client()
    assert client.get("/refused", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/answered", headers={"Host": "127.0.0.1"}).status_code == 404
    assert seen == ["/answered"]


# ---- in a browser


@pytest.mark.e2e
def test_a_link_from_another_site_finds_a_browser_signed_in(playwright, chromium_path: str) -> None:
    """Strict cookies stay behind on such links; the page asks once more and is answered."""
    from playwright.sync_api import Response

    elsewhere = flask.Flask("elsewhere")
    elsewhere.add_url_rule("/", view_func=lambda: f"<a href='{flask.request.args['to']}'>go</a>")
    with (
        running(a_server(Policy("0.0.0.0", 8050, TOKEN, ("box.test",)))) as port,
        running(elsewhere) as other_port,
    ):
        rules = "--host-resolver-rules=MAP box.test 127.0.0.1, MAP wiki.test 127.0.0.1"
        mapped = playwright.chromium.launch(
            executable_path=chromium_path, args=["--no-sandbox", "--disable-gpu", rules]
        )
        page = mapped.new_page()
        box = f"http://box.test:{port}"
        visits: list[tuple[str, int]] = []

        def note(answer: Response) -> None:
            if answer.request.is_navigation_request() and answer.url.startswith(box):
                visits.append((answer.url.removeprefix(box), answer.status))

        page.on("response", note)

        def follow(path: str) -> None:
            visits.clear()
            page.goto(f"http://wiki.test:{other_port}/?to={quote(box + path)}")
            page.click("a")

        follow("/nodes?run=1")
        page.wait_for_selector("text=address that was printed")
        page.wait_for_load_state("networkidle")
        assert visits == [("/nodes?run=1", 401)] * 2
        follow(f"/nodes?run=2&token={TOKEN}")
        page.wait_for_selector("text=hello /nodes?run=2")
        assert page.url == f"{box}/nodes?run=2"
        follow("/graph?run=3")
        page.wait_for_selector("text=hello /graph?run=3")
        assert visits == [("/graph?run=3", 401), ("/graph?run=3", 200)]
        mapped.close()
