"""`mirrorlake console`: the fragments of a mirror as a read-only page at real links, behind a token.

Only GET exists, so that nobody can change anything. Links (`mirrorlake.render.link`) name what is shown:

    status, events, topics, groups, records, tables, recovery     a tab
    flow/<flow>                                                   its status
    topic/<cluster>/<topic>                                       its page
    group/<flow>/<group>                                          its positions
    table/<table>                                                 its page
    passport/<cluster>/<topic>/<partition>/<offset>               a record, and what happened to it
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from urllib.parse import unquote, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mirrorlake.errors import MirrorlakeError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.notebook import fragments
from mirrorlake.notebook.fragments import SIDES, SPANS, Fragment, RecordsQuery, error_html, error_text
from mirrorlake.render import OPENS, breakable, escape, format_time

log = logging.getLogger(__name__)

TABS = ("status", "events", "topics", "groups", "records", "tables", "recovery")
# What asks no cluster for content, or little: the page is loaded again by itself.
_REFRESHED = ("status", "flow", "events", "tables")
_REFRESH_INTERVAL_S = 30
# Whoever opens a link that somebody else has just opened gets the same answer: a status calls every cluster.
SHARED_FOR = timedelta(seconds=5)
_LOCKS = 16
# Nothing of another site is loaded, nothing is sent there, and no script but ours runs.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data: blob:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_SCRIPT = """
const { refresh } = document.body.dataset;
// Neither while nobody looks nor while somebody fills in a field.
const rests = () => document.hidden || document.activeElement.matches("input, select");
if (refresh) setInterval(() => rests() || location.reload(), refresh * 1000);
for (const area of document.querySelectorAll("[data-figure]")) {
  const { data, layout } = JSON.parse(area.dataset.figure);
  Plotly.newPlot(area, data, layout, { responsive: true, displaylogo: false });
}
"""
_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --back: #fff; --line: #767676; --link: #0b57a4;
  --jp-ui-font-color1: var(--text); --jp-ui-font-color2: #555; --jp-ui-font-size1: 14px; }
@media (prefers-color-scheme: dark) {
  :root { --text: #eee; --back: #16181b; --line: #8a8f98; --link: #7db7ff; --jp-ui-font-color2: #bbb; }
}
body { margin: 0; padding: .5em 1em; color: var(--text); background: var(--back); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.2em; margin: .3em 0; }
nav { display: flex; flex-wrap: wrap; gap: .2em 1em; border-bottom: 1px solid var(--line); padding: .3em 0; }
a[href] { color: var(--link); }
nav a[aria-current] { font-weight: 700; text-decoration: none; }
form { display: flex; flex-wrap: wrap; gap: .4em 1em; margin: .6em 0; align-items: end; }
label { display: flex; flex-direction: column; }
input, select, button { font: inherit; color: inherit; background: transparent; border: 1px solid var(--line); padding: .2em .4em; }
option { color: CanvasText; background: Canvas; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
main { overflow-x: auto; }
tbody tr:hover { background: rgba(128, 128, 128, .15); }
.age { font-size: .9em; }
"""
_FIELDS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "status": (("flow", "Flow", ""), ("since", "Lag over", "1h")),
    "events": (("since", "Of the last", "24h"),),
    "topics": (("cluster", "Cluster", ""), ("matching", "Matching", "")),
    "groups": (("flow", "Flow", ""),),
    "records": (
        ("flow", "Flow", ""),
        ("topic", "Source topic", ""),
        ("partition", "Partition", ""),
        ("side", "Side of the offset", SIDES[0]),
        ("offset", "From offset", ""),
        ("at", "From time (UTC)", ""),
        ("count", "Records", "20"),
        ("key", "Key is", ""),
        ("contains", "Value contains", ""),
        ("where", "Where", ""),
    ),
    "recovery": (("flow", "Flow", ""),),
}


class Pages:
    """Find what a link names, and answer it; answers are shared for a moment."""

    def __init__(self, mirror: Mirror, *, now: Callable[[], datetime]) -> None:
        self._mirror = mirror
        self._now = now
        self._flows = [flow.name for flow in mirror.config.flows]
        self._answers: dict[str, tuple[datetime, Fragment]] = {}
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def answer(self, path: str, query: Mapping[str, str]) -> tuple[datetime, Fragment]:
        """Return the fragment that a link names, and when it was read."""
        key = f"{path}?{urlencode(sorted(query.items()))}"
        with self._locks[hash(key) % _LOCKS]:
            known = self._answers.get(key)
            if known is None or self._now() - known[0] > SHARED_FOR:
                known = self._now(), self._fragment([unquote(part) for part in path.split("/")], query)
                self._answers = {name: one for name, one in self._answers.items() if self._now() - one[0] <= SHARED_FOR}
                self._answers[key] = known
            return known

    def _fragment(self, names: list[str], query: Mapping[str, str]) -> Fragment:
        mirror = self._mirror
        flow, cluster = query.get("flow") or self._flows[0], query.get("cluster") or next(iter(mirror.config.clusters))
        match names:
            case ["status"]:
                return fragments.status(mirror, query.get("flow") or None, query.get("since") or "1h")
            case ["flow", name]:
                return fragments.status(mirror, name)
            case ["events"]:
                return fragments.events(mirror, query.get("since") or "24h")
            case ["topics"]:
                return fragments.topics(mirror, cluster, query.get("matching", ""))
            case ["topic", alias, name]:
                return fragments.topic(mirror, alias, name)
            case ["groups"]:
                return fragments.groups(mirror, flow)
            case ["group", name, group]:
                return fragments.groups(mirror, name, group)
            case ["records"]:
                return fragments.records(mirror, _records_query(flow, query)) if query.get("topic") else Fragment("")
            case ["tables"]:
                return fragments.tables(mirror)
            case ["table", name]:
                return fragments.one_table(mirror, name)
            case ["recovery"]:
                return fragments.recovery(mirror, flow)
            case ["passport", alias, name, partition, offset] if partition.isdecimal() and offset.isdecimal():
                return fragments.passport(mirror, alias, name, int(partition), int(offset))
        raise UsageError(f"the link {'/'.join(names)} names nothing on this page", remedy="choose a tab")

    def form(self, tab: str, query: Mapping[str, str]) -> str:
        """Return the fields of a tab, as they were sent."""
        if tab not in _FIELDS:
            return ""
        options = {
            "flow": (["", *self._flows] if tab == "status" else self._flows),
            "cluster": [*self._mirror.config.clusters],
            "since": list(SPANS),
            "side": list(SIDES),
        }
        inputs = []
        for name, title, default in _FIELDS[tab]:
            value = query.get(name, default)
            if name in options:
                marked = "".join(
                    f'<option value="{escape(one)}"{" selected" if one == value else ""}>{escape(one or "all")}</option>'
                    for one in options[name]
                )
                inputs.append(f'<label>{title}<select name="{name}">{marked}</select></label>')
            else:
                inputs.append(f'<label>{title}<input name="{name}" value="{escape(value)}"></label>')
        return f'<form action="/{tab}">{"".join(inputs)}<button>Show</button></form>'


def _records_query(flow: str, query: Mapping[str, str]) -> RecordsQuery:
    def number(name: str) -> int | None:
        typed = query.get(name, "").strip()
        if typed and not typed.isdecimal():
            raise UsageError(f"{name}: '{typed}' is not a number", remedy="write digits only, or nothing")
        return int(typed) if typed else None

    side = query.get("side", SIDES[0])
    texts = {name: query.get(name, "").strip() for name in ("topic", "at")} | {
        name: query.get(name, "") for name in ("key", "contains", "where")
    }
    return RecordsQuery(
        flow=flow,
        partition=number("partition"),
        offset=number("offset"),
        side=side if side in SIDES else SIDES[0],
        count=min(number("count") or 20, 1000),
        **texts,
    )


def build_app(mirror: Mirror, *, token: str, port: int, now: Callable[[], datetime]) -> ASGIApp:
    """Return the page as an ASGI application behind its token."""
    pages = Pages(mirror, now=now)

    async def show(request: Request) -> Response:
        # The raw path: a name may contain an encoded slash.
        path = request.scope["raw_path"].decode("ascii").partition("?")[0].strip("/")
        if not path:
            return RedirectResponse("/status", headers=_HEADERS)
        query, status = dict(request.query_params), 200
        kind = path.partition("/")[0]
        try:
            at, fragment = await run_in_threadpool(pages.answer, path, query)
        except Exception as error:  # the page says why it has no answer
            if not isinstance(error, MirrorlakeError):
                log.warning("console.failed path=%s", path, exc_info=error)
            at, fragment = now(), Fragment(error_html(error_text(error)))
            status = 404 if isinstance(error, UsageError) else 502
        return HTMLResponse(_document(kind, path, pages.form(kind, query), fragment, at), status, _HEADERS)

    async def script(request: Request) -> Response:
        text = (
            _SCRIPT
            if request.url.path == "/page.js"
            else files("plotly.package_data").joinpath("plotly.min.js").read_text("utf-8")
        )
        return PlainTextResponse(
            text, media_type="text/javascript", headers={**_HEADERS, "Cache-Control": "max-age=3600"}
        )

    routes = [Route(f"/{name}", script, methods=["GET"]) for name in ("page.js", "plotly.js")]
    return Gate(Starlette(routes=[*routes, Route("/{path:path}", show, methods=["GET"])]), token, port)


def _document(kind: str, path: str, form: str, fragment: Fragment, at: datetime) -> str:
    current = {"flow": "status", "topic": "topics", "group": "groups", "table": "tables", "passport": "records"}.get(
        kind, kind
    )
    tabs = "".join(
        f'<a href="/{tab}"{" aria-current=page" if tab == current else ""}>{tab.capitalize()}</a>' for tab in TABS
    )
    refresh = f' data-refresh="{_REFRESH_INTERVAL_S}"' if kind in _REFRESHED else ""
    figure = plotly = ""
    if fragment.figure is not None:
        figure = f'<div data-figure="{escape(json.dumps(json.loads(fragment.figure.to_json())))}"></div>'
        plotly = '<script src="/plotly.js"></script>'
    # Foreign text is escaped: no tag is its own.
    shown = fragment.html.replace(f'<a {OPENS}="', '<a href="/')
    title = breakable(unquote(path))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>mirrorlake {escape(unquote(path))}</title><style>{_STYLE}</style></head><body{refresh}>"
        f"<nav aria-label=tabs>{tabs}</nav><main><h1>{title}</h1>{form}{shown}{figure}"
        f'<p class="age">as of {breakable(format_time(at))} · read-only</p></main>{plotly}'
        '<script src="/page.js"></script></body></html>'
    )


class Gate:
    """Pass requests with the token, or the cookie that it was exchanged for, to the application; refuse all others.

    It comes before the application's routes, so that it also guards addresses nobody thought of. `port` makes the cookie's name unique,
    because browsers send cookies to all ports of a host.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = f"mirrorlake-console-{port}"
        # The cookie must not reveal the token, which could be pasted into another browser.
        self._pass = hmac.new(token.encode(), b"cookie", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await self._answer(Request(scope))(scope, receive, send)

    def _answer(self, request: Request) -> ASGIApp:
        tokens = request.query_params.getlist("token")
        if request.method == "GET" and any(_equal(token, self._token) for token in tokens):
            rest = urlencode([(key, value) for key, value in request.query_params.multi_items() if key != "token"])
            # One slash: two would name another host.
            path = "/" + request.scope["raw_path"].decode("ascii").partition("?")[0].lstrip("/")
            exchanged = RedirectResponse(f"{path}?{rest}" if rest else path, 303, headers=_HEADERS)
            # Lax: a link from a ticket is admitted, a request of another site's script is not.
            exchanged.set_cookie(self._cookie, self._pass, httponly=True, samesite="lax")
            return exchanged
        if _equal(request.cookies.get(self._cookie, ""), self._pass):
            return self._app
        return HTMLResponse(_REFUSED, 403, headers=_HEADERS)


_REFUSED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>mirrorlake console</title>
<h1>This console needs the token of its link</h1>
<p>Open the link that <code>mirrorlake console</code> printed when it started, once in this browser; then open this page again.
</p></html>"""


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


async def serve(app: ASGIApp, *, host: str, port: int, ready: Callable[[], None]) -> None:
    """Serve the page until SIGTERM or Ctrl-C; `ready` is called when it listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"the console cannot listen at {host}:{port}: {error.strerror or error}",
            consequence="nothing was started",
            remedy="end what listens there, or choose another --port",
        ) from None
    options: dict[str, Any] = {"log_config": None, "access_log": False, "lifespan": "off", "ws": "none"}
    server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=3, server_header=False, **options))
    # Its own handlers repeat the signal at the end, and the exit code would be that of a killed process.
    server.capture_signals = nullcontext  # type: ignore[assignment]
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, setattr, server, "should_exit", True)
    ready()
    await server.serve(sockets=[listener])
