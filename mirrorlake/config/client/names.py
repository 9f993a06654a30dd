"""The settings of the two Kafka clients, and their translation.

Java: names of `ConsumerConfig`, `ProducerConfig` and `AdminClientConfig` of kafka-clients 3.9.0 (inside Spark 4.0) and
4.3.1. librdkafka: `rd_kafka_conf_properties_show` of 2.16.1. Deprecated names are omitted; TLS and SASL have their own files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast

from mirrorlake.config.faults import SettingsFault

Scope = Literal["any", "consumer", "producer"]


class KeyFiles(Protocol):
    def read(self, path: str) -> str: ...

    def trusted(self, path: str, password: str | None) -> str:
        """Return the certificates of a PKCS#12 trust store as PEM."""

    def plain_key(self, pem: str, password: str | None) -> str:
        """Return a private key as unencrypted PKCS#8."""


@dataclass
class Sides:
    """A client section, its translation for each client, and its faults; `files` is None if it is only checked.

    `options` have references resolved unless they are only checked; `shaded`: Java's classes have Databricks' prefix.
    """

    options: Mapping[str, str] = field(repr=False)
    files: KeyFiles | None = None
    shaded: bool = False
    java: dict[str, str] = field(default_factory=dict, repr=False)
    librdkafka: dict[str, str] = field(default_factory=dict, repr=False)
    findings: list[SettingsFault] = field(default_factory=list)

    def fault(self, key: str, problem: str, remedy: str = "remove it") -> None:
        """Add the fault of a setting; the texts never contain its value."""
        self.findings.append(SettingsFault((key,), problem, remedy))

    def both(self, key: str, value: str) -> None:
        self.java[key] = self.librdkafka[key] = value


Convert = Callable[[str], str]


def _same(value: str) -> str:
    return value


@dataclass(frozen=True)
class SharedSetting:
    java: str
    librdkafka: str
    scope: Scope
    aliases: tuple[str, ...] = ()
    to_librdkafka: Convert = _same
    to_java: Convert = _same


# -1 in Java and 0 in librdkafka leave the size to the system.
_BUFFER: tuple[Convert, Convert] = (
    lambda value: "0" if value == "-1" else value,
    lambda value: "-1" if value == "0" else value,
)
_CONVERTED: dict[str, tuple[Convert, Convert]] = {
    "send.buffer.bytes": _BUFFER,
    "receive.buffer.bytes": _BUFFER,
    "buffer.memory": (
        lambda value: str(-(-int(value) // 1024)) if value.isdigit() else value,
        lambda value: str(int(value) * 1024) if value.isdigit() else value,
    ),
    "metadata.recovery.strategy": (str.lower, _same),
}
# Scope, Java's name, librdkafka's name if it differs, librdkafka's aliases. False friends: librdkafka's `request.timeout.ms` is
# the broker's wait for acks, its `metadata.max.age.ms` the age of a cache entry; both names get Java's meaning.
_BOTH = """
any       request.timeout.ms                       socket.timeout.ms
any       metadata.max.age.ms                      topic.metadata.refresh.interval.ms
any       send.buffer.bytes                        socket.send.buffer.bytes
any       receive.buffer.bytes                     socket.receive.buffer.bytes
any       metadata.recovery.strategy
any       client.dns.lookup
any       client.id
any       client.rack
any       connections.max.idle.ms
any       enable.metrics.push
any       metadata.recovery.rebootstrap.trigger.ms
any       reconnect.backoff.max.ms
any       reconnect.backoff.ms
any       retry.backoff.max.ms
any       retry.backoff.ms
any       socket.connection.setup.timeout.ms
consumer  fetch.max.wait.ms                        fetch.wait.max.ms
consumer  max.partition.fetch.bytes                fetch.message.max.bytes
consumer  check.crcs
consumer  fetch.max.bytes
consumer  fetch.min.bytes
producer  max.request.size                         message.max.bytes
producer  buffer.memory                            queue.buffering.max.kbytes
producer  delivery.timeout.ms                      delivery.timeout.ms                      message.timeout.ms
producer  linger.ms                                linger.ms                                queue.buffering.max.ms
producer  retries                                  retries                                  message.send.max.retries
producer  compression.type                         compression.type                         compression.codec
producer  max.in.flight.requests.per.connection    max.in.flight.requests.per.connection    max.in.flight
producer  batch.size
producer  transaction.timeout.ms
"""
_JAVA_ONLY = """
auto.include.jmx.reporter default.api.timeout.ms max.poll.records metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name security.providers
socket.connection.setup.timeout.max.ms ssl.enabled.protocols ssl.engine.factory.class ssl.keymanager.algorithm
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
"""
_LIBRDKAFKA_ONLY: dict[Scope, str] = {
    "any": """
        api.version.request.timeout.ms broker.address.family broker.address.ttl debug enable.random.seed
        https.ca.location https.ca.pem log.connection.close log.thread.name log_level message.copy.max.bytes
        receive.message.max.bytes socket.keepalive.enable socket.max.fails socket.nagle.disable ssl.crl.location
        ssl.curves.list ssl.providers ssl.sigalgs.list topic.metadata.propagation.max.ms
        topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse""",
    "consumer": """
        coordinator.query.interval.ms fetch.error.backoff.ms fetch.queue.backoff.ms queued.max.messages.kbytes
        queued.min.messages""",
    "producer": """
        batch.num.messages compression.level queue.buffering.backpressure.threshold queue.buffering.max.messages
        sticky.partitioning.linger.ms""",
}
_OWNED = "the mirror sets it itself"
_NO_JAVA_PRODUCER = "it belongs to Java's producer; mirrorlake produces with librdkafka"
_ELSEWHERE = "write bootstrap_servers beside client"
# Refused names: the reason, and the remedy unless it is to remove the name.
_REFUSED: dict[str, tuple[str, ...]] = {
    "bootstrap.servers metadata.broker.list": ("it is a setting of the cluster itself", _ELSEWHERE),
    "bootstrap.controllers": ("the mirror speaks to brokers", _ELSEWHERE),
    "isolation.level": (f"{_OWNED}: read_committed, so that aborted records are never mirrored",),
    "enable.idempotence": (f"{_OWNED}: without it a retry may repeat or reorder records (law D)",),
    "acks request.required.acks": (f"{_OWNED}: all, or a record could be lost after it was counted (law E)",),
    "transactional.id": (f"{_OWNED}: it fences the older holder of a lane (law F)",),
    "group.id": ("the mirror stores positions itself, and Spark refuses it",),
    "auto.offset.reset": ("a reset would skip records silently, and Spark refuses it", "use `start:` of the flow"),
    "enable.auto.commit": ("the mirror writes nothing to a source (law H), and Spark refuses it",),
    "auto.commit.enable auto.commit.interval.ms": ("the mirror writes nothing to a source (law H)",),
    "allow.auto.create.topics": (f"{_OWNED}: false, so that reading never creates a topic (law H)",),
    "exclude.internal.topics": (f"{_OWNED}: internal topics are never mirrored",),
    "key.deserializer value.deserializer key.serializer value.serializer": (
        "bytes are mirrored as they are (law C), and Spark refuses it",
    ),
    "interceptor.classes": ("an interceptor may change records (law C), and Spark refuses it",),
    "plugin.library.paths": ("it loads native code into the mirror",),
    "config.providers": (
        "references in this file do the same for both clients",
        "write ${env:NAME} or ${secret:scope/key}",
    ),
    "partitioner partitioner.class": ("the mirror places every record itself (law D)",),
    "delivery.report.only.error": (f"{_OWNED}: reports prove the offset map",),
    "enable.gapless.guarantee enable.partition.eof": (_OWNED,),
    "statistics.interval.ms": (f"{_OWNED}: nothing listens to the statistics",),
    "max.block.ms": ("librdkafka does not block; a full queue is waited for by the mirror",),
    "compression.gzip.level compression.lz4.level compression.zstd.level": (
        _NO_JAVA_PRODUCER,
        "write compression.level",
    ),
    """metadata.max.idle.ms transaction.two.phase.commit.enable partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.ignore.keys""": (_NO_JAVA_PRODUCER,),
    """group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
    max.poll.interval.ms partition.assignment.strategy session.timeout.ms enable.auto.offset.store
    offset.store.method share.acknowledgement.mode share.acquire.mode""": (
        "the mirror assigns partitions itself and joins no group",
    ),
    """error_cb throttle_cb stats_cb log_cb oauth_cb on_delivery on_commit logger background_event_cb socket_cb
    connect_cb closesocket_cb open_cb resolve_cb dr_cb dr_msg_cb consume_cb rebalance_cb offset_commit_cb
    opaque default.topic.config default_topic_conf oauthbearer_token_refresh_cb ssl.certificate.verify_cb
    partitioner_cb interceptors""": ("a settings file cannot hold a function",),
}


def _row(scope: str, java: str, librdkafka: str = "", *aliases: str) -> SharedSetting:
    return SharedSetting(java, librdkafka or java, cast("Scope", scope), aliases, *_CONVERTED.get(java, (_same, _same)))


ROWS = tuple(_row(*line.split()) for line in _BOTH.strip().splitlines())
JAVA_ONLY: dict[str, Scope] = dict.fromkeys(_JAVA_ONLY.split(), "any")
LIBRDKAFKA_ONLY: dict[str, Scope] = {name: who for who, names in _LIBRDKAFKA_ONLY.items() for name in names.split()}
REFUSED = {name: (why, *remedy) for names, (why, *remedy) in _REFUSED.items() for name in names.split()}
# Every accepted spelling; if the clients disagree on a name, Java's meaning wins.
BY_NAME = {name: row for row in ROWS for name in (row.librdkafka, *row.aliases)} | {row.java: row for row in ROWS}
