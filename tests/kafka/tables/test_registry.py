"""The client of schema registries, asked of a real one that lives, dies and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest
from confluent_kafka.schema_registry import Schema as RawSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from mirrorlake.config.schema import RegistryConfig
from mirrorlake.errors import RegistryError, RegistryRefused, RegistryUnreachable, SchemaUnknown
from mirrorlake.sandbox.ports import LOOPBACK, free_ports
from mirrorlake.tables.registry import SchemaRegistry
from tests.servers.registry import RegistryServer


def avro(name: str, *fields: tuple[str, object]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields]})


def client_of(url: str, **options: str) -> SchemaRegistry:
    names = {key.replace("_", "."): value for key, value in options.items()}
    quick = {"max.retries": "0", "timeout": "5"}
    return SchemaRegistry(RegistryConfig(url=url, client=quick | names).options(), name="east")


def test_a_schema_is_read_with_all_that_it_refers_to(registry: RegistryServer) -> None:
    raw = SchemaRegistryClient({"url": registry.url})
    raw.register_schema("ref-Zip", RawSchema(avro("Zip", ("code", "string"))))
    zip_ref = SchemaReference("Zip", "ref-Zip", 1)
    raw.register_schema("ref-Address", RawSchema(avro("Address", ("zip", "Zip")), references=[zip_ref]))
    address = SchemaReference("Address", "ref-Address", 1)
    text = avro("Customer", ("home", "Address"), ("other", "Zip"))
    schema_id = raw.register_schema("ref-customers-value", RawSchema(text, references=[address, zip_ref]))

    schema = client_of(registry.url).schema(schema_id)
    assert json.loads(schema.text)["name"] == "Customer"
    assert [*schema.references] == ["Zip", "Address"], "what is needed first comes first"


def test_an_unknown_id_is_asked_again_after_a_while_and_a_known_one_never(
    make_registry: Callable[[str], RegistryServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, now = make_registry("unknown"), [0.0]
    client = client_of(server.url)
    monkeypatch.setattr("mirrorlake.tables.registry.monotonic", lambda: now[0])
    with pytest.raises(SchemaUnknown) as caught:
        client.schema(1)
    assert caught.value.schema_id == 1
    schema_id = SchemaRegistryClient({"url": server.url}).register_schema(
        "late-value", RawSchema(avro("L", ("x", "int")))
    )
    assert schema_id == 1
    with pytest.raises(SchemaUnknown):
        client.schema(1)
    now[0] = 11.0
    schema = client.schema(1)

    server.kill()
    assert client.schema(1) == schema, "an id never changes"
    with pytest.raises(RegistryUnreachable):
        client.schema(2)
    server.start()
    assert client_of(server.url).schema(1) == schema, "it kept what it was given"
    with pytest.raises(SchemaUnknown):
        client.schema(2)


def test_another_server_at_the_address_is_named(registry: RegistryServer) -> None:
    with pytest.raises(RegistryError, match="Confluent's API") as caught:
        client_of(registry.url.replace("/v7", "/v99")).schema(1)
    assert type(caught.value) is RegistryError


def test_a_schema_without_what_it_refers_to_is_no_unknown_id(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of("http://127.0.0.1:1")
    raw = RawSchema(avro("Sale", ("amount", "Money")), references=[SchemaReference("Money", "money", 2)])

    def unknown(*_: object, **__: object) -> None:
        raise SchemaRegistryError(404, 40402, "Version not found")

    monkeypatch.setattr(client, "_client", SimpleNamespace(get_schema=lambda _: raw, get_version=unknown))
    with pytest.raises(RegistryError, match="no money version 2, which a schema refers to") as caught:
        client.schema(70)
    assert type(caught.value) is RegistryError


@pytest.fixture
def answering() -> Iterator[Callable[[int, str], str]]:
    """Serve one answer to every request, at the returned address."""
    servers: list[HTTPServer] = []

    def serve(status: int, text: str) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        server = HTTPServer((LOOPBACK, free_ports(1)[0]), Answer)
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://{LOOPBACK}:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (401, '{"error_code": 401, "message": "Unauthorized"}', RegistryRefused),
        (403, '{"error_code": 40301, "message": "no"}', RegistryRefused),
        (503, "a proxy", RegistryUnreachable),
        (500, '{"error_code": 50002, "message": "timed out"}', RegistryUnreachable),
        (200, "<html>a portal</html>", RegistryUnreachable),
        (404, '{"error_code": 404, "message": "HTTP 404 Not Found"}', RegistryError),
        (404, '{"error_code": 40403, "message": "Schema not found"}', SchemaUnknown),
    ],
)
def test_an_answer_that_is_no_schema_has_its_error(
    answering: Callable[[int, str], str], status: int, text: str, kind: type[RegistryError]
) -> None:
    with pytest.raises(RegistryError) as caught:
        client_of(answering(status, text)).schema(1)
    assert type(caught.value) is kind
