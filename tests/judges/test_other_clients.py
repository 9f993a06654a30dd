"""Other clients beside the mirror: Java's read back what Java's wrote, and find no trace of it on the source (law H)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from mirrorlake import Exact, Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.kit.java import CONSUMER, PRODUCER, java
from tests.kit.records import (
    Where,
    address_of,
    assert_equal_topics,
    commit,
    committed,
    consume,
    create_topic,
    topic_name,
)
from tests.servers.guarded import Acl, listed, set_acls
from tests.servers.lakes import MakeMirror


def traces(where: Where) -> dict[str, object]:
    """Return all that whoever looks for a trace of the mirror could find on a cluster; to look leaves none."""
    admin = AdminClient({"bootstrap.servers": address_of(where)})
    metadata = admin.list_topics(timeout=60)
    topics = {
        name: (str(future.result().topic_id), len(future.result().partitions))
        for name, future in admin.describe_topics(TopicCollection(list(metadata.topics))).items()
    }
    places = [TopicPartition(name, number) for name, (_, count) in topics.items() for number in range(count)]
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    resources += [ConfigResource(ResourceType.BROKER, str(broker)) for broker in metadata.brokers]
    anything = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY),
        *(None, None, AclOperation.ANY, AclPermissionType.ANY),
    )
    groups = admin.list_consumer_groups().result()
    assert not groups.errors
    return {
        "topics": topics,
        "configs": {
            str(resource): {name: entry.value for name, entry in future.result().items()}
            for resource, future in admin.describe_configs(resources).items()
        },
        "groups": sorted((group.group_id, str(group.state)) for group in groups.valid),
        # What is committed for a group, and any sign of a member or a transaction, is a record of an internal topic.
        **{
            kind: {str(place): future.result().offset for place, future in admin.list_offsets(wanted).items()}
            for kind, wanted in (
                ("first offsets", dict.fromkeys(places, OffsetSpec.earliest())),
                ("ends", dict.fromkeys(places, OffsetSpec.latest())),
            )
            if wanted
        },
        "acls": sorted(map(str, admin.describe_acls(anything).result())),
    }


def mirror_once(mirror: Mirror, flow: str) -> None:
    """Set a flow up, and mirror its source."""
    mirror.doctor()
    mirror.preview(flow)
    mirror.apply()
    mirror.land("east", once=True)
    mirror.republish(flow, once=True)
    mirror.sample()
    assert mirror.status()[flow].sheet()


def ask_and_carry_on(mirror: Mirror, flow: str, topic: str) -> None:
    """Ask all that can be asked about a flow, and keep it and its groups in step."""
    mirror.plan()
    mirror.run(once=True)
    assert mirror.lag.now().collect()
    mirror.plan_groups(flow)
    mirror.apply_groups(flow)
    assert isinstance(mirror.translate(flow, topic=topic, partition=0, offset=0), Exact)
    assert len(mirror.browse("east", topic, 0).records) == 20


@pytest.mark.law("C", "H")
def test_java_writes_and_java_reads_and_the_source_is_untouched(
    guarded_clusters: Mapping[str, KafkaCluster], make_mirror: MakeMirror
) -> None:
    """Law H: nothing on the source differs before and after everything that a mirror does."""
    east, central, topic = guarded_clusters["east"], guarded_clusters["central"], topic_name()
    create_topic(east, topic, 2, retention_ms="86400000")
    lines = [f"a:1,b:{number}\tkey-{number}\tvälue-{number}" for number in range(200)]
    java(
        PRODUCER,
        *("--bootstrap-server", east.bootstrap_servers, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        stdin="\n".join(lines) + "\n",
    )
    flow = {"source": "east", "target": "central", "topics": topic, "sync": {"acls": True}}
    flow["mm2"] = {"heartbeats": True, "checkpoints": True, "offset_syncs": True}
    mirror = make_mirror(dict(guarded_clusters), [flow])
    before = traces(east)
    # A broker makes the topic of its groups when somebody first asks for one.
    assert set(before["topics"]) == {topic}, "nobody ever consumed from it"
    mirror_once(mirror, "east->central")
    found = traces(east)
    assert found["topics"] == before["topics"], "law H"
    assert found == before, "law H"

    # `verify` reads as any reader does, for whose first one a broker makes the topic of its groups by itself.
    consume(east, topic)
    before = traces(east)
    assert mirror.verify()[0].equal
    assert traces(east) == before, "law H"

    commit(east, "readers", topic, {0: 50})
    set_acls(east, add=[Acl(topic)])
    before = traces(east)
    ask_and_carry_on(mirror, "east->central", topic)
    differing = {kind for kind, held in traces(east).items() if held != before[kind]}
    assert not differing, "law H: with groups and ACLs to carry"
    assert committed(central, "readers", f"east.{topic}", 2) == {0: 50}
    assert listed(central) == [Acl(f"east.{topic}")]

    printed = java(
        CONSUMER,
        *("--bootstrap-server", central.bootstrap_servers, "--topic", f"east.{topic}", "--from-beginning"),
        *("--max-messages", "200", "--isolation-level", "read_committed"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
    )
    assert sorted(printed.splitlines()) == sorted(lines)
    source, target = consume(east, topic), consume(central, f"east.{topic}")
    assert all(len(records) > 50 for records in source.values())
    assert_equal_topics(source, target)
