"""MirrorMaker 2's properties files: every key translated, or told why not; no secret leaves the file."""

from __future__ import annotations

import json

import pytest

from mirrorlake.config.load import loads
from mirrorlake.config.mm2_import import Mm2Import, import_mm2, import_properties
from mirrorlake.config.mm2_names import NO_COUNTERPART, TRANSLATED
from mirrorlake.errors import ConfigError

SMALLEST = """
clusters = east, central
east.bootstrap.servers = east:9092
central.bootstrap.servers = central:9092
east->central.enabled = true
"""


def imported(more: str = "", *, base: str = SMALLEST) -> Mm2Import:
    return import_properties((base + more).encode("latin-1"))


def status(found: Mm2Import, key: str) -> str:
    [line] = [line for line in found.report if line.key == key]
    return line.status


def flow(found: Mm2Import) -> dict[str, object]:
    [entry] = found.settings["flows"]
    return entry


def test_the_smallest_file_becomes_settings_that_load() -> None:
    found = imported()
    config = loads(found.yaml)
    assert config.flow("east->central").topics.expressions == (".*",), "MirrorMaker's default"
    assert not config.flow("east->central").sync.groups, "off by default there"
    assert config.flow("east->central").mm2.heartbeats, "on by default there"
    assert config.cluster("east").servers() == "east:9092"
    assert {line.status for line in found.report} == {"translated"}


def test_a_file_as_it_is_in_production_is_translated() -> None:
    found = imported(
        r"""
# two data centres
east->central.topics = orders, clicks.*, \
    payments
topics.exclude = .*[\-\.]internal, .*\\.replica
east->central.groups : billing.*
groups.exclude = connect-.*
sync.group.offsets.enabled = true
sync.topic.configs.enabled = false
sync.topic.acls.enabled = true
emit.heartbeats.interval.seconds = 5
east->central.emit.checkpoints.enabled = false
offset-syncs.topic.location = target
offset.lag.max = 0
tasks.max = 8
replication.factor = 3
refresh.topics.interval.seconds = 30
replication.policy.separator = _
replication.policy.internal.topic.separator.enabled = false
east.consumer.auto.offset.reset = earliest
east.consumer.isolation.level = read_committed
east.consumer.max.poll.records = 5000
central.exactly.once.source.support = enabled
central.producer.compression.type = zstd
central.producer.acks = 1
central.offset.flush.interval.ms = 5000
"""
    )
    config = loads(found.yaml)
    mirrored = config.flow("east->central")
    assert mirrored.topics.expressions == ("orders", "clicks.*", "payments")
    assert mirrored.groups.expressions == ("billing.*",)
    assert (mirrored.sync.groups, mirrored.sync.configs, mirrored.sync.acls) == (True, False, True)
    assert mirrored.remote_topic("orders") == "east_orders"
    assert mirrored.mm2_names.checkpoints("east") == "east.checkpoints.internal"
    assert (mirrored.mm2.checkpoints, mirrored.mm2.offset_syncs, mirrored.mm2.offset_lag_max) == (False, True, 1)
    assert mirrored.mm2.heartbeat_interval.total_seconds() == 5
    assert mirrored.lanes == 8
    assert mirrored.producer == {"compression.type": "zstd"}
    assert config.cluster("east").client == {"max.poll.records": "5000"}
    assert status(found, "central.producer.acks") == "no_counterpart"
    assert status(found, "replication.factor") == "no_counterpart"
    assert status(found, "east.consumer.isolation.level") == "translated"
    assert not [line for line in found.report if line.status == "unknown"]
    assert not [note for note in found.notes if "aborted" in note or "at least once" in note]


def test_what_mirrormaker_does_by_default_and_mirrorlake_does_not_is_told() -> None:
    notes = "\n".join(imported().notes)
    for word in ("group positions", "ACLs", "exactly once", "aborted records", "offset syncs"):
        assert word in notes, word


def test_no_secret_leaves_the_file() -> None:
    found = imported(
        """
east.security.protocol = SASL_SSL
east.sasl.mechanism = SCRAM-SHA-512
east.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required username="mm2" password="hunter2";
east.ssl.key.password = hunter3
east.ssl.truststore.location = /etc/trust.jks
east.ssl.truststore.password = hunter4
central.security.protocol = SASL_SSL
central.sasl.mechanism = OAUTHBEARER
central.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
    clientId="me" clientSecret="hunter5";
central.producer.sasl.password = hunter6
config.providers = file
config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
central.sasl.oauthbearer.token.endpoint.url = ${file:/etc/mm2.properties:url}
"""
    )
    text = found.yaml + json.dumps([vars_of(line) for line in found.report]) + "\n".join(found.notes)
    assert "hunter" not in text
    east, central = (found.settings["clusters"][alias]["client"] for alias in ("east", "central"))
    assert (east["sasl.username"], east["sasl.password"]) == ("mm2", "${env:EAST_SASL_PASSWORD}")
    assert "${env:CENTRAL_CLIENTSECRET}" in central["sasl.jaas.config"]
    assert central["sasl.oauthbearer.token.endpoint.url"] == "${env:CENTRAL_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL}"
    assert any("EAST_SASL_PASSWORD" in note for note in found.notes)
    assert any("/etc/mm2.properties:url" in note for note in found.notes)
    assert status(found, "east.ssl.truststore.location") == "no_counterpart", "librdkafka reads no JKS"
    loads(found.yaml)


def vars_of(line: object) -> dict[str, str]:
    return {name: getattr(line, name) for name in ("key", "status", "detail")}


def test_an_unreadable_login_line_is_left_to_the_environment() -> None:
    found = imported('east.security.protocol=SASL_SSL\neast.sasl.mechanism=PLAIN\neast.sasl.jaas.config = "hunter2\n')
    assert "hunter" not in found.yaml + str(found.report) + str(found.notes)


def test_flows_that_are_off_are_not_written() -> None:
    found = imported("central->east.topics = .*\ncentral->east.enabled = false\n")
    assert len(found.settings["flows"]) == 1
    assert status(found, "central->east.topics") == "off"


def test_aliases_that_begin_alike_are_told_apart() -> None:
    found = imported(
        base="clusters = a, a-b, c\na.bootstrap.servers=a:1\na-b.bootstrap.servers=b:1\nc.bootstrap.servers=c:1\n"
        "a->c.enabled=true\na-b->c.enabled=true\na-b->c.topics=x\na->c.topics=y\n"
    )
    config = loads(found.yaml)
    assert [config.flow(name).topics.expressions for name in ("a->c", "a-b->c")] == [("y",), ("x",)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "identity"),
        ("replication.policy.class = io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy", "identity"),
        ("replication.policy.separator = -", {"name": "default", "separator": "-"}),
    ],
)
def test_policies_keep_their_names(line: str, expected: object) -> None:
    assert flow(imported(line))["policy"] == expected


def test_java_s_way_of_writing_is_read() -> None:
    found = imported(
        "east->central.topics:ord\\u0065rs,\\\n      \tclicks\n! a comment\n# another\neast->central.groups b\n"
        "tasks.max=1\ntasks.max=2\n"
    )
    assert (flow(found)["topics"], flow(found)["groups"]) == (["orders", "clicks"], "b")
    assert flow(found)["lanes"] == 2
    assert [line.status for line in found.report if line.key == "tasks.max"] == ["off", "translated"]


def test_an_expression_that_must_be_written_anew_is_named() -> None:
    found = imported("east->central.topics = orders*\n")
    assert any("topics must be written anew" in note and "orders.*" in note for note in found.notes)
    with pytest.raises(ConfigError, match="dangling star"):
        loads(found.yaml)


def test_a_key_that_nobody_knows_is_unknown() -> None:
    found = imported("tasks.maximum = 1\neast.sasl.jaas.confg = x\n")
    assert [status(found, key) for key in ("tasks.maximum", "east.sasl.jaas.confg")] == ["unknown", "no_counterpart"]


@pytest.mark.parametrize("key", sorted(TRANSLATED | NO_COUNTERPART.keys()))
def test_every_key_of_mirrormaker_is_accounted_for(key: str) -> None:
    """Wherever it stands, a known key is translated or told why not, never unknown."""
    value = "source" if key.endswith("location") else "1"
    for line in (f"{key} = {value}\n", f"east->central.{key} = {value}\n"):
        if key == "enabled" and "->" in line:
            continue
        found = imported(line)
        assert status(found, line.split(" =")[0]) in ("translated", "no_counterpart", "off"), line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no property in it"),
        ("a = b", "there is no `clusters = a, b`"),
        ("clusters = a, b", "no flow is enabled"),
        ("clusters = a, b\na->b.enabled=true\nx = \\u12", "malformed escape"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        import_properties(text.encode())


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        import_mm2("/nowhere/mm2.properties")
