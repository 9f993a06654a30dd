"""MirrorMaker 2's properties files: every key translated, or told why not; no secret leaves the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config import loads
from mirrorlake.config.mm2 import import_mm2
from mirrorlake.config.mm2.importer import Mm2Import, import_properties
from mirrorlake.config.mm2.table import NO_COUNTERPART, TRANSLATED
from mirrorlake.errors import ConfigError
from tests.kit.commands import run_cli

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


def flow(found: Mm2Import) -> dict[str, Any]:
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
    assert mirrored.replication_factor == 3
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
    assert "hunter" not in found.yaml + str(found.report) + str(found.notes)
    east, central = (found.settings["clusters"][alias]["client"] for alias in ("east", "central"))
    assert (east["sasl.username"], east["sasl.password"]) == ("mm2", "${env:EAST_SASL_PASSWORD}")
    assert "${env:CENTRAL_CLIENTSECRET}" in central["sasl.jaas.config"]
    assert central["sasl.oauthbearer.token.endpoint.url"] == "${env:CENTRAL_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL}"
    assert any("EAST_SASL_PASSWORD" in note for note in found.notes)
    assert any("/etc/mm2.properties:url" in note for note in found.notes)
    assert status(found, "east.ssl.truststore.location") == "no_counterpart", "librdkafka reads no JKS"
    with pytest.raises(ConfigError, match="JKS") as refused:
        loads(found.yaml)
    assert "hunter" not in str(refused.value)


def test_an_unreadable_login_line_is_left_to_the_environment() -> None:
    found = imported('east.security.protocol=SASL_SSL\neast.sasl.mechanism=PLAIN\neast.sasl.jaas.config = "hunter2\n')
    assert "hunter" not in found.yaml + str(found.report) + str(found.notes)


def test_aliases_that_begin_alike_are_told_apart() -> None:
    found = imported(
        base="clusters = a, a-b, c\na.bootstrap.servers=a:1\na-b.bootstrap.servers=b:1\nc.bootstrap.servers=c:1\n"
        "a->c.enabled=true\na-b->c.enabled=true\na-b->c.topics=x\na->c.topics=y\n"
    )
    config = loads(found.yaml)
    assert [config.flow(name).topics.expressions for name in ("a->c", "a-b->c")] == [("y",), ("x",)]


IAM = """
east.security.protocol = SASL_SSL
east.sasl.mechanism = AWS_MSK_IAM
east.sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="mirror";
east.sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""
KERBEROS = """
east.security.protocol = SASL_SSL
east.sasl.mechanism = GSSAPI
east.sasl.kerberos.service.name = kafka
east.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="m";
"""
OWN_HANDLER = """
east.security.protocol = SASL_SSL
east.sasl.mechanism = OAUTHBEARER
east.sasl.login.callback.handler.class = io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler
east.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
    oauth.client.id="m" oauth.client.secret="hunter2" oauth.token.endpoint.uri="https://idp/token";
"""
JKS = (
    "east.security.protocol = SSL\neast.ssl.truststore.location = /trust.jks\neast.ssl.truststore.password = hunter2\n"
)
UNREADABLE = "east.security.protocol = SSL\neast.ssl.engine.factory.clazz = x\n"
ONE_CLIENT = "east.security.protocol = SSL\neast.admin.security.protocol = SASL_SSL\n"
OF_A_FLOW = "east.security.protocol = SSL\neast->central.consumer.sasl.mechanism = GSSAPI\n"
ON_TOP = "producer.sasl.mechanism = GSSAPI\n"
WITHOUT_PROTOCOL = "east.ssl.truststore.location = /ca.pem\n"


@pytest.mark.parametrize(
    "lines", [KERBEROS, OWN_HANDLER, JKS, UNREADABLE, ONE_CLIENT, OF_A_FLOW, ON_TOP, WITHOUT_PROTOCOL]
)
def test_a_security_setting_that_is_refused_keeps_the_cluster_unusable(lines: str) -> None:
    """Never weaker by leaving out: what cannot be translated stays in `client`, and the settings do not load."""
    found = imported(lines)
    client = found.settings["clusters"]["east"]["client"]
    assert "no_counterpart" in {line.status for line in found.report}
    assert client.get("security.protocol") == ("SSL" if "protocol = SSL" in lines else client.get("security.protocol"))
    with pytest.raises(ConfigError, match=r"clusters\.east\.client"):
        loads(found.yaml)
    assert "hunter" not in found.yaml + str(found.report) + str(found.notes)


def test_a_refused_security_setting_ends_the_command_with_exit_1(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    for lines, code in ((KERBEROS, 1), (IAM, 0), ("", 0), ("transforms = mask\n", 1)):
        file.write_text(SMALLEST + lines)
        done = run_cli("import-mm2", str(file), "--json")
        assert done.returncode == code, lines
        assert bool(json.loads(done.stdout)["faults"]) == (code == 1)


def test_a_login_that_only_one_client_is_told_reaches_the_cluster() -> None:
    found = imported("east.consumer.security.protocol = SSL\ncentral.producer.security.protocol = SSL\n")
    config = loads(found.yaml)
    assert [config.cluster(alias).client["security.protocol"] for alias in ("east", "central")] == ["SSL", "SSL"]
    assert {line.status for line in found.report} == {"translated"}


@pytest.mark.parametrize(
    ("lines", "told", "entry"),
    [
        ("tasks.max = 4\t\nsync.group.offsets.enabled = TRUE ", {"tasks.max": "translated"}, {"lanes": 4}),
        ("consumer.auto.offset.reset = latest ", {"consumer.auto.offset.reset": "no_counterpart"}, {"start": None}),
        ("east.consumer.auto.offset.reset = latest", {}, {"start": "latest"}),
        ("east->central.consumer.auto.offset.reset = latest", {}, {"start": "latest"}),
        ("central.consumer.auto.offset.reset = latest", {}, {"start": None}),
        ("central->east.topics = .*\ncentral->east.enabled = false", {"central->east.topics": "off"}, {}),
        ("east.request.timeout.ms = 1", {"east.request.timeout.ms": "no_counterpart"}, {}),
        ("tasks.maximum = 1", {"tasks.maximum": "unknown"}, {}),
        ("east.sasl.jaas.confg = x", {"east.sasl.jaas.confg": "no_counterpart"}, {}),
    ],
)
def test_each_key_is_told_with_what_becomes_of_it(lines: str, told: dict[str, str], entry: dict[str, Any]) -> None:
    found = imported(f"{lines}\n")
    assert {key: status(found, key) for key in told} == told
    assert {key: flow(found).get(key) for key in entry} == entry


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sync.topic.configs.enabled = yes", "neither true nor false"),
        ("east->central.topics = orders*", "must be rewritten, as orders.*"),
        ("config.properties.exclude = orders*", "must be rewritten, as orders.*"),
    ],
)
def test_what_is_left_to_a_person_is_told(line: str, says: str) -> None:
    found = imported(f"{line}\n")
    assert any(all(word in text for word in says.split(", as ")) for text in (*found.open, *found.notes))


def test_a_policy_of_one_s_own_is_an_error() -> None:
    found = imported("replication.policy.class = com.acme.Names\n")
    assert any("com.acme.Names" in text for text in found.open)
    with pytest.raises(ConfigError, match="is not a replication policy"):
        loads(found.yaml)


def test_a_flow_without_topics_is_not_written() -> None:
    more = "central->east.enabled = true\ncentral->east.topics = \n"
    found = imported(more)
    assert [entry["source"] for entry in found.settings["flows"]] == ["east"]
    assert any("central->east" in note and "blank" in note for note in found.notes)
    with pytest.raises(ConfigError, match="no enabled flow selects a topic"):
        imported("topics = \n")


STRIMZI = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mm2}
spec:
  version: 4.1.0
  replicas: 1
  connectCluster: central
  clusters:
    - alias: east
      bootstrapServers: east:9093
      tls: {trustedCertificates: [{secretName: ca, certificate: ca.crt}]}
      authentication: {type: scram-sha-512, username: mm2, passwordSecret: {secretName: mm2, password: pw}}
    - alias: central
      bootstrapServers: central:9092
      config: {config.storage.replication.factor: -1}
  mirrors:
    - sourceCluster: east
      targetCluster: central
      topicsPattern: "orders|clicks.*"
      groupsPattern: "billing"
      sourceConnector:
        tasksMax: 4
        config: {replication.factor: -1, sync.topic.acls.enabled: "false", replication.policy.separator: ""}
      checkpointConnector: {config: {sync.group.offsets.enabled: true}}
"""


def test_strimzi_s_resource_is_read() -> None:
    identity = 'replication.policy.class: "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy", '
    text = STRIMZI.replace("replication.policy.separator", identity + "replication.policy.separator")
    found = import_properties(text.encode())
    config = loads(found.yaml)
    mirrored = config.flow("east->central")
    assert mirrored.topics.expressions == ("orders", "clicks.*")
    assert (mirrored.lanes, mirrored.sync.groups, mirrored.mm2.heartbeats) == (4, True, False)
    assert mirrored.remote_topic("orders") == "orders", "an empty separator beside identity"
    assert mirrored.replication_factor is None, "-1 is the target's own"
    client = config.cluster("east").client
    assert client["security.protocol"] == "SASL_SSL"
    assert client["sasl.password"] == "${env:EAST_SASL_PASSWORD}"
    assert client["ssl.truststore.certificates"].startswith("${env:")
    assert not [line for line in found.report if line.status == "unknown"]
    assert any("strimzi:mm2/pw" in note for note in found.notes)


def test_strimzi_s_newer_resource_is_read() -> None:
    found = import_properties(
        b"""
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
spec:
  target: {alias: central, bootstrapServers: "central:9092", groupId: g}
  mirrors:
    - source: {alias: east, bootstrapServers: "east:9092", authentication: {type: kerberos, ticket: t}}
      topicsPattern: orders
      sourceConnector: {}
    - source: {alias: west, bootstrapServers: "west:9092", trustedCertificates: [{secretName: ca, pattern: "*.crt"}]}
      topicsPattern: orders
      sourceConnector: {}
    - source: {alias: north, bootstrapServers: "north:9092", encryption: strong}
      topicsPattern: orders
      sourceConnector: {}
"""
    )
    assert found.settings["clusters"]["west"]["client"]["security.protocol"] == "SSL"
    assert found.settings["clusters"]["north"]["client"], "what is not known may be about security"
    assert [entry["source"] for entry in found.settings["flows"]] == ["east", "west", "north"]
    with pytest.raises(ConfigError) as refused:
        loads(found.yaml)
    for place in ("clusters.east.client.sasl.mechanism", "clusters.north.client.security.strimzi.encryption"):
        assert place in str(refused.value)


def test_java_s_way_of_writing_is_read() -> None:
    found = imported(
        "east->central.topics:ord\\u0065rs,\\\n      \tclicks\n! a comment\n# another\neast->central.groups b\n"
        "tasks.max=1\ntasks.max=2\n"
    )
    assert (flow(found)["topics"], flow(found)["groups"]) == (["orders", "clicks"], "b")
    assert flow(found)["lanes"] == 2
    assert [line.status for line in found.report if line.key == "tasks.max"] == ["off", "translated"]


@pytest.mark.parametrize("key", sorted({"enabled", *(row.key for row in TRANSLATED), *NO_COUNTERPART}))
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
        ('{"name": "msc", "config": {"topics": "orders"}}', "neither properties nor a KafkaMirrorMaker2"),
        ("connector.class = MirrorSourceConnector\nsource.cluster.alias = a", "there is no `clusters = a, b`"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        import_properties(text.encode())
    with pytest.raises(ConfigError, match="cannot be read"):
        import_mm2("/nowhere/mm2.properties")


def test_the_settings_get_the_folder_that_they_are_to_stand_in(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(SMALLEST)
    out = tmp_path / "conf" / "mirror.yml"
    assert run_cli("import-mm2", str(file), "--out", str(out)).returncode == 0
    assert loads(out.read_text()).flow("east->central").target == "central"
    assert "root: ../lake" in out.read_text(), "the lake stands beside conf/, as in its examples"
    beside = tmp_path / "mirror.yml"
    assert run_cli("import-mm2", str(file), "--out", str(beside)).returncode == 0
    assert "root: ./lake" in beside.read_text()
    done = run_cli("import-mm2", str(file), "--out", str(file / "conf" / "mirror.yml"))
    assert (done.returncode, "cannot be written (Not a directory)" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("spec", ["5", "{clusters: 5}", "{clusters: [5]}", "{mirrors: {a: b}}", "{mirrors: [5]}"])
def test_a_resource_of_another_shape_is_refused_as_a_whole(spec: str) -> None:
    with pytest.raises(ConfigError, match="spec: its `spec` is not that of a KafkaMirrorMaker2"):
        import_properties(f"kind: KafkaMirrorMaker2\nspec: {spec}\n".encode())
