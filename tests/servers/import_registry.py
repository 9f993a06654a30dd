"""A registry with Confluent's import mode, in this process: its own server is not among the packages that tests can have.

It follows what that server does with modes, ids and versions (`AbstractSchemaRegistry.java`, and the notes of its tests): a
schema with an id is refused outside of import mode, one without it inside; another schema's id is refused; a version that
exists is written over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import RLock, Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from mirrorlake.sandbox.ports import LOOPBACK


class Refused(Exception):
    """A refusal: HTTP status, Confluent's error code, and a message."""


class ImportRegistry:
    """`schemas` by id, `subjects` as version -> id, and the `modes` of subjects; `requests` are those that wrote."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, dict[int, int]] = {}
        self.modes: dict[str, str] = {}
        self.requests: list[str] = []
        self._lock = RLock()
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, query: str, body: dict[str, Any]) -> Any:
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["mode"]:
                return {"mode": "READWRITE"}
            case "GET", ["mode", subject]:
                return {"mode": self.modes[subject]} if subject in self.modes else self._unknown(40409, subject)
            case "PUT", ["mode", subject]:
                if body["mode"] == "IMPORT" and subject in self.subjects and "force=true" not in query.lower():
                    raise Refused(422, 42205, "Cannot import since found existing subjects")
                self.modes[subject] = body["mode"]
                return body
            case "DELETE", ["mode", subject]:
                return {"mode": self.modes.pop(subject)}
            case "GET", ["schemas", "ids", text]:
                return self.schemas.get(int(text)) or self._unknown(40403, "Schema")
            case "GET", ["schemas", "ids", text, "versions"]:
                found = [(s, v) for s, versions in self.subjects.items() for v, n in versions.items() if n == int(text)]
                return [{"subject": subject, "version": version} for subject, version in found]
            case "GET", ["subjects", subject, "versions", text]:
                if subject not in self.subjects:
                    self._unknown(40401, subject)
                if (number := self.subjects[subject].get(int(text))) is None:
                    return self._unknown(40402, text)
                return {"subject": subject, "version": int(text), "id": number, **self.schemas[number]}
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
        return self._unknown(404, path)

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        is_import = self.modes.get(subject) == "IMPORT"
        schema = {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}
        for one in schema.get("references", ()):
            if one["version"] not in self.subjects.get(one["subject"], {}):
                raise Refused(422, 42201, f"no schema reference found for {one}")
        if body.get("id", -1) < 0:
            if is_import:
                raise Refused(422, 42205, f"Subject {subject} is not in read-write mode")
            body = {"id": max(self.schemas, default=0) + 1, "version": len(self.subjects.get(subject, {})) + 1}
        elif not is_import:
            raise Refused(422, 42205, f"Subject {subject} is not in import mode")
        if self.schemas.get(body["id"], schema) != schema:
            raise Refused(422, 42205, f"Overwrite new schema with id {body['id']} is not permitted.")
        self.schemas[body["id"]] = schema
        self.subjects.setdefault(subject, {})[body["version"]] = body["id"]
        return {"id": body["id"]}

    @staticmethod
    def _unknown(code: int, what: str) -> Any:
        raise Refused(404, code, f"{what} not found")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                url = urlsplit(self.path)
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
                with registry._lock:
                    if self.command != "GET":
                        registry.requests.append(f"{self.command} {url.path}")
                    try:
                        status, document = 200, registry.answer(self.command, url.path, url.query, body)
                    except Refused as refused:
                        status, code, message = refused.args
                        document = {"error_code": code, "message": message}
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the names that the server calls

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def import_registry() -> Iterator[ImportRegistry]:
    registry = ImportRegistry()
    yield registry
    registry.close()
