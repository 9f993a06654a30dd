"""A webhook on loopback: it records what it gets, and answers what it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Webhook:
    """What a webhook got and how often it was tried.

    `answers` are the next codes (200 without), `reason` stands beside them, `goes_on` lets it answer.
    """

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    goes_on: threading.Event = field(default_factory=threading.Event)
    tried: int = 0
    reason: str | None = None


@contextmanager
def serving_webhook() -> Iterator[Webhook]:
    """Serve a webhook at a free port until the block ends."""
    hook = Webhook()
    hook.goes_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.tried += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.goes_on.wait(20)
            code = hook.answers.pop(0) if hook.answers else 200
            if code == 200:
                hook.bodies.append(json.loads(body))
            self.send_response(code, hook.reason)
            if code == 302:
                self.send_header("Location", hook.url)
            self.end_headers()

        def do_GET(self) -> None:
            # Where a redirect of a message would lead.
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                # The sender gave up.
                return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    hook.url = f"http://127.0.0.1:{server.server_port}/services/T0/s3cret"
    try:
        yield hook
    finally:
        hook.goes_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
