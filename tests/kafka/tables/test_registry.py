"""The client of schema registries: what a real one answers, and what its errors mean."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from mirrorlake.errors import RegistryError, RegistryRefused, RegistryUnreachable, SchemaUnknown
from mirrorlake.tables.registry import SchemaRegistry
from tests.servers.registry import RegistryServer


def avro(name: str, *fields: tuple[str, object]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields]})


def client_of(url: str) -> SchemaRegistry:
    return SchemaRegistry({"url": url, "max.retries": "0"}, name="of east")


def test_a_schema_is_read_with_all_that_it_refers_to(registry: RegistryServer) -> None:
    raw = SchemaRegistryClient({"url": registry.url})
    raw.register_schema("ref-Zip", Schema(avro("Zip", ("code", "string"))))
    zip_ref = SchemaReference("Zip", "ref-Zip", 1)
    raw.register_schema("ref-Address", Schema(avro("Address", ("zip", "Zip")), references=[zip_ref]))
    address = SchemaReference("Address", "ref-Address", 1)
    text = avro("Customer", ("home", "Address"), ("other", "Zip"))
    schema_id = raw.register_schema("ref-customers-value", Schema(text, references=[address, zip_ref]))
    schema = client_of(registry.url).schema(schema_id)
    assert (json.loads(schema.text)["name"], [*schema.references]) == ("Customer", ["Zip", "Address"])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SchemaRegistryError(401, 401, "Unauthorized"), RegistryRefused),
        (OAuthTokenError("no token"), RegistryRefused),
        (SchemaRegistryError(500, 50002, "timed out"), RegistryUnreachable),
        (json.JSONDecodeError("a portal", "<html>", 0), RegistryUnreachable),
        (SchemaRegistryError(404, 404, "HTTP 404 Not Found"), RegistryError),
        (SchemaRegistryError(404, 40403, "Schema not found"), SchemaUnknown),
    ],
)
def test_an_error_of_the_client_is_raised_as_what_it_means_and_an_unknown_reference_is_no_unknown_id(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[RegistryError]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    client, sale = client_of("http://127.0.0.1:1"), Schema("{}", references=[SchemaReference("Money", "money", 2)])
    monkeypatch.setattr(client, "_client", SimpleNamespace(get_schema=lambda _: sale, get_version=fails))
    with pytest.raises(RegistryError, match="no money version 2, which a schema refers to") as caught:
        client.schema(70)
    assert type(caught.value) is (RegistryError if kind is SchemaUnknown else kind)
    monkeypatch.setattr(client, "_client", SimpleNamespace(get_schema=fails))
    with pytest.raises(RegistryError, match="no schema of id 70") as caught:
        client.schema(70)
    assert (type(caught.value), "Confluent's API" in str(caught.value)) == (kind, kind is RegistryError)


def test_a_schema_that_refers_to_itself_hangs_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    client, node = client_of("http://127.0.0.1:1"), Schema("{}", references=[SchemaReference("Node", "node", 1)])
    answers = SimpleNamespace(get_schema=lambda _: node, get_version=lambda *_, **__: SimpleNamespace(schema=node))
    monkeypatch.setattr(client, "_client", answers)
    assert client.schema(1).references == {"Node": "{}"}
