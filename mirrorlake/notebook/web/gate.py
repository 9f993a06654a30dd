"""Refuse every request that does not know the token of the link."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import urlencode

from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.routing import Router
from tornado.web import Application, RequestHandler

_REFUSED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>mirrorlake console</title>
<h1>This console needs the token of its link</h1>
<p>Open the link that <code>mirrorlake console</code> printed when it started, once in this browser; then open this page again.
</p></html>"""


class Gate(Router):
    """Pass requests with the token, or the cookie that it was exchanged for, to the application; refuse all others.

    It comes before the application's routes, so that it also guards scripts, websockets and addresses nobody thought of. `port` makes
    the cookie's name unique, because browsers send cookies to all ports of a host.
    """

    def __init__(self, application: Application, token: str, port: int) -> None:
        self._application = application
        self._token = token
        self._cookie = f"mirrorlake-console-{port}"
        # The cookie must not reveal the token, which could be pasted into another browser.
        self._pass = hmac.new(token.encode(), b"cookie", hashlib.sha256).hexdigest()

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate:
        tokens = request.query_arguments.get("token", [])
        if any(_equal(token, self._token) for token in tokens):
            exchange = {"cookie": self._cookie, "value": self._pass}
            return self._application.get_handler_delegate(request, _Exchange, exchange)
        cookie = request.cookies.get(self._cookie)
        if cookie is not None and _equal(cookie.value.encode(), self._pass):
            return self._application.find_handler(request)
        return self._application.get_handler_delegate(request, _Refusal)


class _Exchange(RequestHandler):
    def initialize(self, *, cookie: str, value: str) -> None:
        self._given = cookie, value

    def get(self) -> None:
        name, value = self._given
        # Lax: a link from a ticket is admitted, a request of another site's script is not.
        self.set_cookie(name, value, httponly=True, samesite="Lax")
        self.set_header("Cache-Control", "no-store")
        # One slash: two would name another host.
        path = "/" + self.request.path.lstrip("/")
        others = [(key, value) for key, values in self.request.query_arguments.items() for value in values]
        rest = urlencode([(key, value) for key, value in others if key != "token"])
        self.redirect(f"{path}?{rest}" if rest else path)


class _Refusal(RequestHandler):
    def prepare(self) -> None:
        self.set_status(403)
        self.set_header("Cache-Control", "no-store")
        self.finish(_REFUSED)


def _equal(given: bytes, expected: str) -> bool:
    return hmac.compare_digest(given, expected.encode())
