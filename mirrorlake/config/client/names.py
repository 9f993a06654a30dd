"""The names that the two Kafka clients know, and how one becomes the other.

Java: names of `ConsumerConfig`, `ProducerConfig` and `AdminClientConfig` of kafka-clients 3.9.0 (inside Spark 4.0) and
4.3.1. librdkafka: `rd_kafka_conf_properties_show` of 2.16.1. Callbacks and deprecated names are left out; TLS and SASL
login settings are in `client_tls` and `client_sasl`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from mirrorlake.config.faults import SettingsFault

Scope = Literal["any", "consumer", "producer"]


@dataclass
class Sides:
    """The same settings as each client spells them, and what was wrong with them."""

    java: dict[str, str] = field(default_factory=dict, repr=False)
    librdkafka: dict[str, str] = field(default_factory=dict, repr=False)
    findings: list[SettingsFault] = field(default_factory=list)

    def fault(self, key: str, problem: str, remedy: str) -> None:
        """Note what is wrong with a setting; the texts never hold its value."""
        self.findings.append(SettingsFault((key,), problem, remedy))

    def add(self, other: Sides) -> None:
        """Merge another part's settings and findings into this one."""
        self.java |= other.java
        self.librdkafka |= other.librdkafka
        self.findings += other.findings


def words(text: str) -> list[str]:
    """Return the names in a text, so that a long list stays readable."""
    return text.split()


def _same(value: str) -> str:
    return value


def _lower(value: str) -> str:
    return value.lower()


def _kib(value: str) -> str:
    return str(-(-int(value) // 1024)) if value.isdigit() else value


def _bytes(value: str) -> str:
    return str(int(value) * 1024) if value.isdigit() else value


@dataclass(frozen=True)
class Row:
    """One setting that both clients have.

    Attributes:
        java: its name in Java.
        librdkafka: its name in librdkafka.
        scope: which clients take it.
        aliases: further librdkafka names.
        to_librdkafka: how a Java value is written for librdkafka.
        to_java: how a librdkafka value is written for Java.
    """

    java: str
    librdkafka: str
    scope: Scope = "any"
    aliases: tuple[str, ...] = ()
    to_librdkafka: Callable[[str], str] = _same
    to_java: Callable[[str], str] = _same


def _named_alike(scope: Scope, names: str) -> tuple[Row, ...]:
    return tuple(Row(name, name, scope) for name in names.split())


def _socket_buffer(java: str, librdkafka: str) -> Row:
    # Java says -1 where librdkafka says 0: leave the size to the system.
    return Row(
        java,
        librdkafka,
        to_librdkafka=lambda value: "0" if value == "-1" else value,
        to_java=lambda value: "-1" if value == "0" else value,
    )


ROWS: tuple[Row, ...] = (
    # False friends: librdkafka's own `request.timeout.ms` is the broker's wait for acks, its own `metadata.max.age.ms`
    # the age of a cache entry. Both names are read as Java means them.
    Row("request.timeout.ms", "socket.timeout.ms"),
    Row("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"),
    _socket_buffer("send.buffer.bytes", "socket.send.buffer.bytes"),
    _socket_buffer("receive.buffer.bytes", "socket.receive.buffer.bytes"),
    Row("fetch.max.wait.ms", "fetch.wait.max.ms", "consumer"),
    Row("max.partition.fetch.bytes", "fetch.message.max.bytes", "consumer"),
    Row("max.request.size", "message.max.bytes", "producer"),
    Row("buffer.memory", "queue.buffering.max.kbytes", "producer", to_librdkafka=_kib, to_java=_bytes),
    Row("delivery.timeout.ms", "delivery.timeout.ms", "producer", ("message.timeout.ms",)),
    Row("linger.ms", "linger.ms", "producer", ("queue.buffering.max.ms",)),
    Row("retries", "retries", "producer", ("message.send.max.retries",)),
    Row("compression.type", "compression.type", "producer", ("compression.codec",)),
    Row(
        "max.in.flight.requests.per.connection", "max.in.flight.requests.per.connection", "producer", ("max.in.flight",)
    ),
    Row("metadata.recovery.strategy", "metadata.recovery.strategy", to_librdkafka=_lower),
    *_named_alike(
        "any",
        """client.dns.lookup client.id client.rack connections.max.idle.ms enable.metrics.push
        metadata.recovery.rebootstrap.trigger.ms reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms
        retry.backoff.ms socket.connection.setup.timeout.ms""",
    ),
    *_named_alike("consumer", "check.crcs fetch.max.bytes fetch.min.bytes"),
    *_named_alike("producer", "batch.size transaction.timeout.ms"),
)

JAVA_ONLY: dict[str, Scope] = dict.fromkeys(
    words(
        """
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
    ),
    "any",
)

LIBRDKAFKA_ONLY: dict[str, Scope] = {
    **dict.fromkeys(
        words(
            """
            api.version.request.timeout.ms broker.address.family broker.address.ttl debug enable.random.seed
            https.ca.location https.ca.pem log.connection.close log.thread.name log_level message.copy.max.bytes
            receive.message.max.bytes socket.keepalive.enable socket.max.fails socket.nagle.disable ssl.crl.location
            ssl.curves.list ssl.providers ssl.sigalgs.list topic.metadata.propagation.max.ms
            topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
            """
        ),
        "any",
    ),
    **dict.fromkeys(
        words(
            """
            coordinator.query.interval.ms fetch.error.backoff.ms fetch.queue.backoff.ms queued.max.messages.kbytes
            queued.min.messages
            """
        ),
        "consumer",
    ),
    **dict.fromkeys(
        words(
            """
            batch.num.messages compression.level queue.buffering.backpressure.threshold queue.buffering.max.messages
            sticky.partitioning.linger.ms
            """
        ),
        "producer",
    ),
}

_OWNED = "the mirror sets it itself"
_NO_GROUP = "the mirror assigns partitions itself and joins no group"
_CALLBACK = "a function cannot stand in a file"
_NO_JAVA_PRODUCER = "it belongs to Java's producer; mirrorlake produces with librdkafka"

REFUSED: dict[str, tuple[str, str]] = {
    "bootstrap.servers": ("it has a place of its own", "write bootstrap_servers beside client"),
    "metadata.broker.list": ("it has a place of its own", "write bootstrap_servers beside client"),
    "bootstrap.controllers": ("the mirror speaks to brokers", "write bootstrap_servers beside client"),
    "isolation.level": (f"{_OWNED}: read_committed, so that aborted records are never mirrored", "remove it"),
    "enable.idempotence": (f"{_OWNED}: without it a retry may repeat or reorder records (law D)", "remove it"),
    "acks": (f"{_OWNED}: all, or a record could be lost after it was counted (law E)", "remove it"),
    "request.required.acks": (f"{_OWNED}: all, or a record could be lost after it was counted (law E)", "remove it"),
    "transactional.id": (f"{_OWNED}: it fences the older holder of a lane (law F)", "remove it"),
    "group.id": ("positions are kept by the mirror, and Spark refuses it", "remove it"),
    "auto.offset.reset": (
        "a reset would skip records silently, and Spark refuses it",
        "use `start:` of the flow",
    ),
    "enable.auto.commit": ("the mirror writes nothing to a source (law H), and Spark refuses it", "remove it"),
    "auto.commit.enable": ("the mirror writes nothing to a source (law H)", "remove it"),
    "auto.commit.interval.ms": ("the mirror writes nothing to a source (law H)", "remove it"),
    "allow.auto.create.topics": (f"{_OWNED}: false, so that reading never creates a topic (law H)", "remove it"),
    "exclude.internal.topics": (f"{_OWNED}: internal topics are never mirrored", "remove it"),
    "key.deserializer": ("bytes are mirrored as they are (law C), and Spark refuses it", "remove it"),
    "value.deserializer": ("bytes are mirrored as they are (law C), and Spark refuses it", "remove it"),
    "key.serializer": ("bytes are mirrored as they are (law C), and Spark refuses it", "remove it"),
    "value.serializer": ("bytes are mirrored as they are (law C), and Spark refuses it", "remove it"),
    "interceptor.classes": ("an interceptor may change records (law C), and Spark refuses it", "remove it"),
    "plugin.library.paths": ("it loads native code into the mirror", "remove it"),
    "config.providers": (
        "references in this file do the same for both clients",
        "write ${env:NAME} or ${secret:scope/key}",
    ),
    "partitioner": ("the mirror places every record itself (law D)", "remove it"),
    "partitioner.class": ("the mirror places every record itself (law D)", "remove it"),
    "delivery.report.only.error": (f"{_OWNED}: reports prove the offset map", "remove it"),
    "enable.gapless.guarantee": (f"{_OWNED}", "remove it"),
    "enable.partition.eof": (f"{_OWNED}", "remove it"),
    "statistics.interval.ms": (f"{_OWNED}: nothing listens to the statistics", "remove it"),
    "max.block.ms": ("librdkafka does not block; a full queue is waited for by the mirror", "remove it"),
    "compression.gzip.level": (_NO_JAVA_PRODUCER, "write compression.level"),
    "compression.lz4.level": (_NO_JAVA_PRODUCER, "write compression.level"),
    "compression.zstd.level": (_NO_JAVA_PRODUCER, "write compression.level"),
    "metadata.max.idle.ms": (_NO_JAVA_PRODUCER, "remove it"),
    "transaction.two.phase.commit.enable": (_NO_JAVA_PRODUCER, "remove it"),
    **dict.fromkeys(
        ["partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.ignore.keys"],
        (_NO_JAVA_PRODUCER, "remove it"),
    ),
    **dict.fromkeys(
        words(
            """
            group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
            max.poll.interval.ms partition.assignment.strategy session.timeout.ms enable.auto.offset.store
            offset.store.method share.acknowledgement.mode share.acquire.mode
            """
        ),
        (_NO_GROUP, "remove it"),
    ),
    **dict.fromkeys(
        words(
            """
            error_cb throttle_cb stats_cb log_cb oauth_cb on_delivery on_commit logger background_event_cb socket_cb
            connect_cb closesocket_cb open_cb resolve_cb dr_cb dr_msg_cb consume_cb rebalance_cb offset_commit_cb
            opaque default.topic.config default_topic_conf oauthbearer_token_refresh_cb ssl.certificate.verify_cb
            partitioner_cb interceptors
            """
        ),
        (_CALLBACK, "remove it"),
    ),
}

BY_NAME: dict[str, Row] = {name: row for row in ROWS for name in (row.librdkafka, *row.aliases)} | {
    row.java: row for row in ROWS
}
"""Every accepted spelling; where the clients disagree on a name, Java's meaning wins."""
