"""Access control: every request passes here before anything else sees it.

A program that listens on 127.0.0.1 is within reach of every page the person visits. Three
things go wrong with such programs, and each has its check:

- A foreign page makes the browser send requests here (cross-site requests): `Origin` and
  `Sec-Fetch-Site` say where a request comes from, and foreign ones are refused. Following a
  link to a page of the studio is fine.
- A foreign page waits until its own name resolves to 127.0.0.1, and is then "the same site"
  (DNS rebinding): `Host` still carries its name, and foreign names are refused.
- Every account of this machine can open a port of 127.0.0.1, and where the studio listens for
  other machines, anybody there can: every request has to carry the token of the workspace. The
  address printed at start holds it; a browser that opened that once keeps it in a cookie.

The check wraps the WSGI application rather than hooking into Flask's before_request: no route,
static file, error handler or hook registered earlier can get ahead of it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_plus

import flask
from werkzeug.datastructures import Headers
from werkzeug.http import dump_cookie

from studio.errors import ConfigError
from studio.server.serve import is_loopback
from studio.server.ticket import Ticket

if TYPE_CHECKING:
    from _typeshed import OptExcInfo
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# Routes that answer with data, some of it out of uploaded files.
DATA_PREFIX: Final = "/api/"

# What an address may carry to let a browser in; taken out of it before it is shown.
_SECRETS: Final = frozenset({"token", "ticket"})
# Browsers keep a cookie for 400 days at most; each sign-in starts anew.
_COOKIE_S: Final = 400 * 86_400
_LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_AUTHORITY: Final = r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?"
_HOST: Final = re.compile(_AUTHORITY, re.IGNORECASE)
_ORIGIN: Final = re.compile(rf"(?P<scheme>https?)://{_AUTHORITY}", re.IGNORECASE)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

# What a browser would run, lay out or apply if it came out of an uploaded file.
_ACTIVE_TYPES: Final = frozenset(
    {
        "application/javascript",
        "application/xml",
        "text/css",
        "text/html",
        "text/javascript",
        "text/xml",
    }
)

# Tried in Chromium with Dash 4.4, plotly 7.1 (SVG and WebGL traces, image export), ag-grid 35
# (client-side and infinite rows, value formatters), Cytoscape with dagre, and mantine 2.8:
#
# - script-src: everything comes from files of this server, except Dash's one-line bootstrap and
#   the clientside callbacks written in Python. Both are inline scripts, and Dash hands out their
#   hashes. Neither 'unsafe-inline' nor 'unsafe-eval' is needed: plotly's WebGL traces and
#   ag-grid's expressions work without eval.
# - style-src 'unsafe-inline': React components set style attributes, and ag-grid, mantine and
#   plotly add <style> elements while they run; without it there are 20 violations on one page
#   and a grid without its layout, which then draws every row.
# - img-src data: (plotly draws heatmaps into PNG data URLs, Cytoscape its icons from SVG ones)
#   and blob: (plotly's "download as PNG" draws the SVG through one).
# - connect-src 'self': callbacks, uploads, data.
#
# No other host is in the list, so nothing can leave the machine by accident or by injection.
_CONTENT_POLICY: Final = (
    "default-src 'none'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "manifest-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
)
# Data is looked at by scripts. Opened as a page of its own it gets no rights at all.
_DATA_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)

_ALWAYS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    # Our own requests say which page they come from; other sites learn nothing, run names least of all.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

# A browser that follows a link from another site keeps a SameSite=Strict cookie back, also after
# the redirect that set it, so somebody who is signed in would be asked for the token. Asking once
# more, from a page of this site, brings the cookie. What was asked for last, and in which ten
# seconds, is kept: an address that stays without a cookie is asked for twice, not without end.
_ASK_AGAIN: Final = (
    "const url = location.pathname + location.search;"
    "const asked = url + ' ' + Math.floor(Date.now() / 10000);"
    "if (sessionStorage.getItem('studio-asked') !== asked) {"
    "sessionStorage.setItem('studio-asked', asked);"
    "location.replace(url);"
    "}"
)


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may send requests.

    Attributes:
        host: The host the studio listens on.
        port: The port it listens on.
        token: What every request has to carry; None lets everyone in who can reach the port.
        allowed_hosts: Further names under which the studio may be opened, without a port.
        ticket: What lets the browser in that the studio opens itself.
    """

    host: str
    port: int
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    ticket: Ticket | None = None


@dataclass(frozen=True, slots=True)
class _Host:
    """A parsed host header: the normalised name, and the port if there is one."""

    name: str
    port: int | None

    @property
    def is_address(self) -> bool:
        try:
            ipaddress.ip_address(self.name)
        except ValueError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a request is refused, for the person who sent it."""

    status: HTTPStatus
    message: str
    hint: str
    script: str = ""


def protect(server: flask.Flask, policy: Policy, *, script_hashes: Sequence[str] = ()) -> None:
    """Let only requests that the policy allows reach the server, and mark its answers as safe.

    Args:
        server: The Flask server under the Dash app.
        policy: Who may ask.
        script_hashes: Inline scripts that pages may run, as `Dash.csp_hashes()` (asked after the
            last clientside callback is defined) and `compute_script_hash` give them.

    Raises:
        ConfigError: An allowed host is no host name.
    """
    guarded = server.wsgi_app
    is_allowed = _build_host_rule(policy)
    page_policy = "; ".join((*_CONTENT_POLICY, " ".join(("script-src 'self'", *script_hashes))))

    def guard(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = flask.Request(environ)
        start = _add_headers(start_response, request, page_policy)
        refusal = _refuse_foreign(request, policy, is_allowed)
        if refusal is not None:
            return _answer(refusal, request)(environ, start)
        if policy.token is not None:
            has_ticket = _has_ticket(request, policy.ticket)
            if not has_ticket and not _carries(request, policy.token):
                return _answer(_build_token_refusal(policy), request)(environ, start)
            if _may_sign_in(request) and not request.args.keys().isdisjoint(_SECRETS):
                if has_ticket or _is_navigation(request):
                    return _sign_in(request, policy.token)(environ, start)
                # A program that need not keep cookies to get its answer.
                start = _add_cookie(start, policy.token)
        return guarded(environ, start)

    server.wsgi_app = guard  # type: ignore[method-assign]  # Flask's own way to add middleware


def compute_script_hash(source: str) -> str:
    """Return the entry of `script_hashes` that lets a page run this inline script.

    Example:
        >>> compute_script_hash("")
        "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# ---- where a request comes from


def _build_host_rule(policy: Policy) -> Callable[[_Host], bool]:
    """Return a test of whether a request may be addressed to a host."""
    named = {_parse_allowed_name(host) for host in (policy.host, *policy.allowed_hosts)} | _LOOPBACK_NAMES
    if is_loopback(policy.host):
        # With any port: `ssh -L 9000:localhost:8050` makes the browser say localhost:9000, and
        # the port is no secret a foreign page could fail to know. The name is what it cannot fake.
        return lambda host: host.name in named
    named |= {name.lower() for name in _list_machine_names()}
    # Rebinding needs a name that an attacker can point elsewhere; an address cannot be pointed.
    return lambda host: host.is_address or host.name in named


def _parse_allowed_name(text: str) -> str:
    host = _parse_host(text) or _parse_host(f"[{text}]")
    if host is None or host.port is not None:
        raise ConfigError(
            f"{text!r} is not a host name or address",
            hint="Give it as it stands in the browser's address bar, without http:// and port.",
        )
    return host.name


def _list_machine_names() -> set[str]:
    own = socket.gethostname()
    # The bare name, the one its own network adds a domain to, and the one it announces by mDNS.
    return {own, own.partition(".")[0], socket.getfqdn(), f"{own.partition('.')[0]}.local"}


def _parse_host(text: str) -> _Host | None:
    """Parse a host header; None if it is not one host and at most one port.

    Two Host headers arrive joined by a comma, which no host contains.
    """
    match = _HOST.fullmatch(text)
    return _build_host(match) if match else None


def _build_host(match: re.Match[str]) -> _Host | None:
    name = (match["v6"] or match["name"]).lower()
    if match["v6"]:
        try:
            name = ipaddress.IPv6Address(name).compressed
        except ValueError:
            return None
    return _Host(name, int(match["port"]) if match["port"] else None)


def _refuse_foreign(
    request: flask.Request, policy: Policy, is_allowed: Callable[[_Host], bool]
) -> _Refusal | None:
    # Read as it came: Request.host would fall back to the server's own name.
    header = request.environ.get("HTTP_HOST", "")
    host = _parse_host(header)
    if host is None:
        return _Refusal(
            HTTPStatus.BAD_REQUEST,
            "The request does not say which host it is for, or says it in a way that is not understood.",
            _explain_address(policy),
        )
    if not is_allowed(host):
        return _Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"This is a Chakra Studio, and it does not answer to the name {header!r}.",
            _explain_address(policy),
        )
    if not _is_own_origin(request.headers.get("Origin"), host) or not _is_own_fetch(request):
        return _Refusal(
            HTTPStatus.FORBIDDEN,
            "The request was sent by a page of another site.",
            _explain_address(policy),
        )
    return None


def _explain_address(policy: Policy) -> str:
    if is_loopback(policy.host):
        return f"Open http://127.0.0.1:{policy.port}/ on the machine where the studio runs."
    return f"Open it by the address or the name of the machine where it runs, port {policy.port}."


def _is_own_origin(origin: str | None, host: _Host) -> bool:
    """Return whether the page that sent the request was served under the same host and port.

    "null", which sandboxed frames and local files send, is a foreign origin like any other.
    """
    if origin is None:
        return True
    match = _ORIGIN.fullmatch(origin)
    page = _build_host(match) if match else None
    if match is None or page is None:
        return False
    # A port that belongs to the scheme is left out of both headers.
    default = _DEFAULT_PORTS[match["scheme"].lower()]
    return (page.name, page.port or default) == (host.name, host.port or default)


def _is_own_fetch(request: flask.Request) -> bool:
    """Return whether the browser calls the request same-origin, or a person followed a link here.

    Programs that are no browsers, and browsers that reach the studio over plain HTTP from another
    machine, do not send these headers; for them the check of Origin stands alone.
    """
    if request.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none"):
        return True
    return (
        request.method in ("GET", "HEAD")
        and request.headers.get("Sec-Fetch-Mode") == "navigate"
        and request.headers.get("Sec-Fetch-Dest", "document") == "document"
    )


# ---- the token


def _has_ticket(request: flask.Request, ticket: Ticket | None) -> bool:
    """Return whether this is the browser that the studio opened; uses the ticket up."""
    if ticket is None or request.method != "GET" or not _may_sign_in(request):
        return False
    port = int(request.environ.get("REMOTE_PORT") or 0)
    return any(ticket.admits(shown, port) for shown in request.args.getlist("ticket"))


def _carries(request: flask.Request, token: str) -> bool:
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    shown = request.cookies.getlist(_build_cookie_name(token))
    if scheme.lower() == "bearer":
        shown.append(credentials.strip())
    if _may_sign_in(request):
        shown.extend(request.args.getlist("token"))
    # Constant time: the duration must not reveal how much of a guess was right.
    return any(hmac.compare_digest(text.encode(errors="replace"), token.encode()) for text in shown)


def _build_cookie_name(token: str) -> str:
    """Return the name of the cookie that keeps a token.

    Browsers keep one set of cookies for all ports of a host, so the name tells workspaces apart; the
    studios of one workspace share it, whichever port they got.
    """
    return f"chakra-studio-{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def _may_sign_in(request: flask.Request) -> bool:
    """Return whether a secret in the address counts: where a person or a program asks for a page."""
    return (
        request.method in ("GET", "HEAD")
        and not request.path.startswith(DATA_PREFIX)
        and request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
    )


def _is_navigation(request: flask.Request) -> bool:
    """Return whether a browser will show the answer as a page."""
    if not _may_sign_in(request):
        return False
    return "Sec-Fetch-Mode" in request.headers or "text/html" in request.headers.get("Accept", "")


def _sign_in(request: flask.Request, token: str) -> flask.Response:
    """Keep the token in a cookie and take it out of the address, before it is copied or shared."""
    rest = [
        part
        for part in request.query_string.split(b"&")
        # As the arguments are read, or an encoded name would stay in the address, which is followed without end.
        if unquote_plus(part.partition(b"=")[0].decode("latin-1")) not in _SECRETS
    ]
    query = b"&".join(part for part in rest if part).decode("ascii", "ignore")
    # One slash: //elsewhere would be another host.
    path = f"/{quote((request.root_path + request.path).lstrip('/'))}"
    response = flask.Response(status=HTTPStatus.SEE_OTHER)
    response.headers["Location"] = f"{path}?{query}" if query else path
    response.headers["Cache-Control"] = "no-store"
    response.headers.add("Set-Cookie", _build_cookie(token))
    return response


def _add_cookie(start_response: StartResponse, token: str) -> StartResponse:
    """Wrap `start_response` so that it adds the cookie to the answer."""

    def start(
        status: str, headers: list[tuple[str, str]], exc_info: OptExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        return start_response(status, [*headers, ("Set-Cookie", _build_cookie(token))], exc_info)

    return start


def _build_cookie(token: str) -> str:
    return dump_cookie(_build_cookie_name(token), token, max_age=_COOKIE_S, httponly=True, samesite="Strict")


def _build_token_refusal(policy: Policy) -> _Refusal:
    return _Refusal(
        HTTPStatus.UNAUTHORIZED,
        "This Chakra Studio asks for its token, so that nobody else reads the traces.",
        "Open the address that was printed where chakra-studio was started: it ends with ?token=… or "
        f"&token=… (port {policy.port}). The token is also in the file 'token' of the workspace.",
        script=_ASK_AGAIN,
    )


# ---- answers


def _answer(refusal: _Refusal, request: flask.Request) -> flask.Response:
    """Answer a refused request: a page for a person, JSON for a script."""
    if _is_navigation(request):
        response = flask.Response(_build_page(refusal), refusal.status, mimetype="text/html")
        scripts = compute_script_hash(refusal.script) if refusal.script else "'none'"
        response.headers["Content-Security-Policy"] = (
            f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    else:
        # The form in which the data routes refuse, so that scripts read one.
        body = json.dumps({"error": {"message": refusal.message, "hint": refusal.hint}})
        response = flask.Response(body, refusal.status, mimetype="application/json")
    response.headers["Cache-Control"] = "no-store"
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="chakra-studio"'
    return response


def _build_page(refusal: _Refusal) -> str:
    script = f"<script>{refusal.script}</script>" if refusal.script else ""
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Chakra Studio: {escape(refusal.status.phrase)}</title>{script}
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto; padding: 0 1rem; }}
</style></head>
<body><main><h1>Not answered</h1><p>{escape(refusal.message)}</p><p>{escape(refusal.hint)}</p></main></body>
</html>
"""


def _add_headers(start_response: StartResponse, request: flask.Request, page_policy: str) -> StartResponse:
    """Wrap `start_response` so that it adds security headers to every answer."""
    is_data = request.path.startswith(DATA_PREFIX)
    host = _parse_host(request.environ.get("HTTP_HOST", ""))
    # Over plain HTTP from another machine browsers ignore this header, and log an error about it.
    is_trustworthy = request.is_secure or (host is not None and is_loopback(host.name))

    def start(
        status: str, headers: list[tuple[str, str]], exc_info: OptExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        marked = Headers(headers)
        for name, value in _ALWAYS:
            marked[name] = value
        if is_trustworthy:
            marked["Cross-Origin-Opener-Policy"] = "same-origin"
        marked.setdefault("Content-Security-Policy", _DATA_POLICY if is_data else page_policy)
        if is_data and _is_active(marked.get("Content-Type", "")):
            marked["Content-Type"] = "text/plain; charset=utf-8"
        return start_response(status, marked.to_wsgi_list(), exc_info)

    return start


def _is_active(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in _ACTIVE_TYPES or kind.endswith("+xml")
