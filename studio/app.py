"""The web app: creates the Dash app, with its frame, pages and routes."""

from __future__ import annotations

import json
import os
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import dash
import flask
from dash import Dash
from dash.exceptions import DependencyException
from werkzeug.exceptions import HTTPException, NotFound

from studio.jobs.simulations import Simulations
from studio.pages.frame.connect import connect_frame
from studio.pages.frame.layout import draw_frame
from studio.server.collectives import build_collectives_blueprint
from studio.server.compare import build_compare_blueprint
from studio.server.graph import build_graph_blueprint
from studio.server.guard import DATA_PREFIX, compute_script_hash
from studio.server.nodes import build_nodes_blueprint
from studio.server.palette import build_palette_blueprint
from studio.server.report import build_report_blueprint
from studio.server.sql import build_sql_blueprint
from studio.server.status import build_status_blueprint
from studio.server.timeline import build_timeline_blueprint
from studio.server.traffic import build_traffic_blueprint
from studio.server.uploads import build_uploads_blueprint
from studio.session import Session
from studio.store.imports import Registry
from studio.units import time_unit

THEME_SCRIPT = (
    "(function(){var k='mantine-color-scheme-value',s;try{s=localStorage.getItem(k)}catch(e){}"
    "if(s!=='light'&&s!=='dark'){s=matchMedia('(prefers-color-scheme: dark)').matches?'dark':'light'}"
    "document.documentElement.setAttribute('data-mantine-color-scheme',s)})()"
)
"""Runs before anything is drawn, so that a dark page never flashes white."""
NATIVES_SCRIPT = "window.studioNatives={numbers:{parseFloat,parseInt},trim:String.prototype.trim}"
"""Keeps what Dash's polyfill replaces by slower ones in every browser, since it takes U+180E for a space; see `assets/loader.js`."""

_BLUEPRINTS = (
    build_nodes_blueprint,
    build_timeline_blueprint,
    build_graph_blueprint,
    build_palette_blueprint,
    build_report_blueprint,
    build_sql_blueprint,
    build_collectives_blueprint,
    build_traffic_blueprint,
    build_compare_blueprint,
    build_status_blueprint,
)

_LIBRARY_SCRIPT = re.compile(r'<script src="([^"]*/_dash-component-suites/(\w+)/[^"]*)"></script>\n?')
_STATIC_IMPORT = re.compile(r'^import .*?from "(\.[^"]+)";$', re.MULTILINE | re.DOTALL)
_INDEX = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{%title%}}</title>
<script>{THEME_SCRIPT}</script><script>{NATIVES_SCRIPT}</script>
<meta name="theme-color" content="#7a4fd6">
<link rel="icon" type="image/svg+xml" href="/assets/logo.svg">
<link rel="manifest" crossorigin="use-credentials" href="/assets/studio.webmanifest">
{{%css%}}
</head>
<body>
{{%app_entry%}}
<footer>{{%config%}}{{%scripts%}}{{%renderer%}}</footer>
</body>
</html>"""


def find_assets_folder() -> Path:
    """Return where the stylesheets and scripts are: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "assets"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "assets"


@cache
def _index_modules() -> dict[str, str]:
    """Return the address of each module that others import, with its checksum: a new version has a new address."""
    folder = find_assets_folder()
    # The entry is listed by Dash itself, under an address of its own.
    paths = [path for path in sorted(folder.rglob("*.mjs")) if path != folder / "studio.mjs"]
    names = [f"/assets/{path.relative_to(folder).as_posix()}" for path in paths]
    return {
        name: f"{name}?m={zlib.crc32(path.read_bytes()):08x}" for name, path in zip(names, paths, strict=True)
    }


def _import_map() -> str:
    """Return the import map, by which `import "./x.mjs"` asks for the versioned address."""
    return json.dumps({"imports": _index_modules()})


@cache
def _index_preloads() -> dict[str, str]:
    """Return, for each folder of a page, links to the modules needed at first: the browser asks for all at once.

    "" holds those of pages without modules of their own.
    """
    pages = {path.parent.name: path for path in find_assets_folder().glob("*/page.mjs")}
    return {
        name: _build_preload(path)
        for name, path in {**pages, "": find_assets_folder() / "studio.mjs"}.items()
    }


def _build_preload(page: Path) -> str:
    paths, needed = [find_assets_folder() / "studio.mjs", page], set()
    while paths:
        path = paths.pop()
        if path not in needed:
            needed.add(path)
            names = _STATIC_IMPORT.findall(path.read_text(encoding="utf-8"))
            paths += [Path(os.path.normpath(path.parent / name)) for name in names]
    names = [f"/assets/{path.relative_to(find_assets_folder()).as_posix()}" for path in sorted(needed)]
    return "".join(
        f'<link rel="modulepreload" href="{_index_modules()[name]}">'
        for name in names
        if name in _index_modules()
    )


def _build_index() -> str:
    """Return the HTML page of the app, with the import map."""
    return _INDEX.replace("{%css%}", f'<script type="importmap">{_import_map()}</script>\n{{%css%}}')


def _keep_versions(response: flask.Response) -> flask.Response:
    """Let browsers cache scripts and styles whose address names their version; others are revalidated."""
    if flask.request.path.startswith("/assets/") and "m" in flask.request.args:
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response


def _put_off_libraries(scripts: str, shown: str) -> str:
    """Leave out scripts of libraries that only other pages draw with; `bringLibraries` in `assets/base/dash.mjs` brings them.

    Pages name theirs as `libraries` where they register. Running those of tables and graphs took every page longer than
    all modules of its own.

    Args:
        scripts: The scripts of Dash, as HTML.
        shown: The path of the page that is opened.
    """
    users: dict[str, list[str]] = {}
    for page in dash.page_registry.values():
        for library in page.get("libraries", ()):
            users.setdefault(library, []).append(page["path"])
    later: dict[str, list[str]] = {}

    def put_off(script: re.Match[str]) -> str:
        if shown in (paths := users.get(script[2], [shown])):
            return script[0]
        for path in paths:
            later.setdefault(path, []).append(script[1])
        return ""

    kept = _LIBRARY_SCRIPT.sub(put_off, scripts)
    return f'<script id="studio-later" type="application/json">{json.dumps(later)}</script>{kept}'


class _Studio(Dash):
    """Dash that starts once the studio's modules have run: scripts of type module run in the order of the page.

    The page names the modules it needs at first, and has the scripts of the libraries that it draws with.
    """

    def interpolate_index(self, **parts: Any) -> str:  # type: ignore[override]  # as Dash's own example does
        parts["renderer"] = parts["renderer"].replace('type="application/javascript"', 'type="module"', 1)
        shown = flask.request.path.strip("/")
        _begin_answer(flask.request.path)
        parts["scripts"] = _put_off_libraries(parts["scripts"], f"/{shown}")
        parts["css"] += _index_preloads().get(shown, _index_preloads()[""])
        return str(super().interpolate_index(**parts))  # type: ignore[no-untyped-call]  # Dash annotates some only


def create_app(session: Session, registry: Registry, simulations: Simulations) -> Dash:
    """Return the app on a session. One per process: Dash keeps its pages in a global registry."""
    app = _Studio(
        "studio",
        use_pages=True,
        pages_folder=str(Path(__file__).parent / "pages"),
        assets_folder=str(find_assets_folder()),
        # Dash adds "?m=..." to the modules it lists: one that others import as well would run twice.
        assets_ignore=r"(?<!^studio)\.mjs$",
        index_string=_build_index(),
        title="Chakra Studio",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        on_error=_handle_error,
    )
    app.server.config["SESSION"] = session
    app.server.config["IMPORTS"] = registry
    app.server.config["SIMULATIONS"] = simulations
    app.server.config["PAGES"] = _list_pages()
    app.server.register_error_handler(Exception, _refuse)
    app.server.before_request(_use_chosen_unit)
    app.server.after_request(_keep_versions)
    app.server.before_request(_begin_awaiting)
    app.server.teardown_request(_end_awaiting)
    app.server.register_blueprint(build_uploads_blueprint(registry))
    for blueprint in _BLUEPRINTS:
        app.server.register_blueprint(blueprint())
    app.server.add_url_rule(f"{DATA_PREFIX}<path:address>", "unknown_data", _refuse_unknown_data)
    app.layout = draw_frame(_list_pages())
    connect_frame(app)
    # Only now are all pages and callbacks known.
    return app


def _begin_awaiting() -> None:
    """Count the request among what somebody waits for."""
    flask.current_app.config["SESSION"].awaited.begin()
    flask.g.is_awaited = True


def _end_awaiting(_error: BaseException | None) -> None:
    """Count the request no more, where it was: what goes before may have refused it."""
    if flask.g.pop("is_awaited", False):
        flask.current_app.config["SESSION"].awaited.end()


def _begin_answer(path: str) -> None:
    """Begin what the first callback of a page will ask for, while the browser still loads and runs the page's scripts.

    Pages with such work register it as `ahead`, a function of the view.
    """
    page = next((page for page in dash.page_registry.values() if page["path"] == path), None)
    if page is not None and "ahead" in page:
        page["ahead"](flask.request.args.to_dict())


def compute_script_hashes(app: Dash) -> list[str]:
    """Return the hashes of inline scripts that the content security policy allows."""
    # Dash adds the inline script of its page router only when it answers its first request.
    app.server.test_client().get("/_dash-layout")
    return [*app.csp_hashes(), *map(compute_script_hash, (THEME_SCRIPT, NATIVES_SCRIPT, _import_map()))]


def _list_pages() -> list[tuple[str, str]]:
    """Return name and path of each page, in order."""
    # The page for wrong addresses is none to go to.
    placed = (page for page in dash.page_registry.values() if not page["module"].endswith("not_found_404"))
    return [(page["name"], page["path"]) for page in sorted(placed, key=lambda page: page["order"])]


def _use_chosen_unit() -> None:
    """Use the unit of times that the user chose, for this request."""
    time_unit.set(flask.request.cookies.get("studio-time", ""))


def _refuse_unknown_data(address: str) -> Any:
    """Answer a data address that no route has; Dash has a page for all addresses, which a program would take for the data."""
    message = f"There is no data at {DATA_PREFIX}{address[:80]}."
    return flask.jsonify({"error": {"message": message, "hint": "Look at the address."}}), 404


def _refuse(error: Exception) -> Any:
    """Answer a request that no route and no callback understood; what callbacks raise comes to `_handle_error`."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, DependencyException):
        # No such script: what Dash makes an error of its own is an address like any other that leads nowhere.
        return NotFound()
    import logging

    is_callback = flask.request.path == "/_dash-update-component"
    what = "a request for a callback was not understood" if is_callback else f"{flask.request.path} failed"
    logging.getLogger(__name__).error(what, exc_info=error)
    message = (
        "This is no request that a page of the studio sends." if is_callback else "Something went wrong."
    )
    answer = flask.jsonify({"error": {"message": message, "hint": "Load the page anew."}})
    return answer, 400 if is_callback else 500


def _handle_error(error: Exception) -> None:
    """Show what a callback did not handle, in place of a page that silently stops working."""
    import logging

    logging.getLogger(__name__).error("callback failed", exc_info=error)
    message = f"Something went wrong inside the studio ({type(error).__name__}). The terminal says where the details are."
    dash.set_props("toast", {"children": message})
