"""The recipe of docs/schemas.md: a registry over the mirrored topic of another one knows its schemas under their ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import wait_until
from tests.kit.records import assert_equal_topics, consume
from tests.servers.lakes import Pair
from tests.servers.registry import RegistryServer
from tests.servers.schemas import Writer

SALE = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
REBATE = SALE.replace("]}", ', {"name": "rebate", "type": "int"}]}')


@pytest.fixture
def registry_in(pair: Pair, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[KafkaCluster], RegistryServer]:
    """Start a registry that keeps its schemas in a topic of a cluster."""

    def start(cluster: KafkaCluster) -> RegistryServer:
        server = RegistryServer(
            tmp_path / f"registry-{cluster.alias}",
            **{
                "apicurio.storage.kind": "kafkasql",
                "apicurio.kafkasql.bootstrap.servers": cluster.bootstrap_servers,
                "apicurio.kafkasql.topic": f"_{pair.topic}",
                "apicurio.datasource.url": f"jdbc:h2:mem:{cluster.alias}",
            },
        )
        request.addfinalizer(server.kill)
        return server.start()

    return start


def test_a_registry_over_the_mirrored_topic_knows_the_ids(
    pair: Pair, registry_in: Callable[[KafkaCluster], RegistryServer]
) -> None:
    pair.create(partitions=1)
    schemas = f"_{pair.topic}"
    east = registry_in(pair.east)
    writer, producer = Writer(east, pair.topic), Producer({"bootstrap.servers": pair.east.bootstrap_servers})
    # An id of its own is not the next one on a registry that begins empty.
    writer.register("other-value", '"string"')
    producer.produce(pair.topic, writer(SALE, {"amount": 7}))
    assert producer.flush(60) == 0
    of_schemas = pair.flow(name="schemas", topics=schemas, policy="identity", sync={"groups": False})
    mirror = pair.mirror(pair.flow(), of_schemas)
    mirror.apply()
    mirror.run(once=True)
    assert_equal_topics(consume(pair.east, schemas), consume(pair.central, schemas))

    central = registry_in(pair.central)
    producer.produce(pair.topic, writer(REBATE, {"amount": 7, "rebate": 1}))
    assert producer.flush(60) == 0
    mirror.run(once=True)
    clients = [SchemaRegistryClient({"url": one.url}) for one in (east, central)]
    wait_until(lambda: clients[1].get_versions(f"{pair.topic}-value") == [1, 2], "the second version is known")
    assert [sorted(one.get_subjects()) for one in clients] == [sorted(["other-value", f"{pair.topic}-value"])] * 2
    read = AvroDeserializer(clients[1])
    values = [record.value for record in pair.target()[0]]
    assert [read(value, SerializationContext(pair.remote, MessageField.VALUE)) for value in values] == [
        {"amount": 7},
        {"amount": 7, "rebate": 1},
    ]
