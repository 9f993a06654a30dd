"""Build client options: resolve references, read files, and add what each role needs.

Spark's options travel in its plan: the session's `spark.redaction.regex` must cover `jaas`, `keystore` and `password`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.config.client import (
    TOKEN,
    ClientOptions,
    OptionError,
    Role,
    resolve,
    translate,
)
from mirrorlake.config.schema import ClusterConfig
from mirrorlake.errors import ConfigError, Fault
from mirrorlake.kafka.client_files import ClientFiles
from mirrorlake.kafka.msk import msk_token

_ANY = {
    # KIP-714: a client pushes its metrics to the brokers unless told not to; a source is left alone (law H).
    "enable.metrics.push": "false",
}
_ROLES: dict[Role, dict[str, str]] = {
    "admin": {"client.id": "mirrorlake-admin"},
    "consumer": {
        "client.id": "mirrorlake-consumer",
        # librdkafka requires the name of a group; the mirror assigns partitions and commits nothing.
        "group.id": "mirrorlake",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",
        # Off by default in librdkafka, on in Java.
        "check.crcs": "true",
    },
    "producer": {
        "client.id": "mirrorlake-producer",
        "enable.idempotence": "true",
        "acks": "all",
        "max.in.flight.requests.per.connection": "5",
        "compression.type": "lz4",
        # A commit waits for the last linger, so transactions need a short one.
        "linger.ms": "5",
        "batch.size": "1000000",
        "batch.num.messages": "100000",
        # Large enough that one chunk always fits and `produce` never meets a full queue.
        "queue.buffering.max.messages": "2000000",
        "queue.buffering.max.kbytes": "1048576",
        # Only for a record without a partition; every record names one.
        "partitioner": "murmur2_random",
    },
}
_JAVA = {
    "enable.metrics.push": "false",
    "isolation.level": "read_committed",
    # True by default in Java's consumer: reading a topic would create it on the source (law H).
    "allow.auto.create.topics": "false",
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": "8388608",
}


def librdkafka_options(cluster: ClusterConfig, *, role: Role, extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Build the options of confluent-kafka for a cluster: texts, and the callback that signs tokens for MSK.

    `extra` is a flow's `producer` section, which overrides the cluster's `client`.
    """
    own = _options(cluster, cluster.client).librdkafka_for(role)
    more = _options(cluster, extra or {}, section="producer").librdkafka_for(role)
    found: dict[str, Any] = {**_ANY, **_ROLES[role], **own, **more, "bootstrap.servers": cluster.servers()}
    if TOKEN in found:
        spec = found.pop(TOKEN)
        found["oauth_cb"] = msk_token(spec, cluster.servers(), file=cluster.file, place=cluster.place)
    return found


def java_options(cluster: ClusterConfig, *, shaded: bool = False) -> dict[str, str]:
    """Build the options of Java's consumer inside Spark, without Spark's prefix."""
    own = _options(cluster, cluster.client, shaded=shaded).java_for("consumer")
    return {**_JAVA, **own, "bootstrap.servers": cluster.servers()}


def spark_options(cluster: ClusterConfig, *, shaded: bool = False) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in java_options(cluster, shaded=shaded).items()}


def _options(
    cluster: ClusterConfig, options: Mapping[str, str], *, section: str = "client", shaded: bool = False
) -> ClientOptions:
    def expand(key: str, text: str) -> str:
        value = cluster.resolved(text, f"{section}.{key}")
        # Java's clients run in the JVM's folder, librdkafka's in this process's or a worker's.
        return cluster.beside_file(value) if key.endswith(".location") and value not in ("", "probe") else value

    def wrong(problem: str, remedy: str) -> ConfigError:
        return ConfigError([Fault(cluster.file, f"{cluster.place}.{section}", problem, remedy)])

    try:
        return translate(resolve(options, expand), files=ClientFiles(wrong), shaded=shaded)
    except OptionError as error:
        place = f"{cluster.place}.{section}"
        faults = [Fault(cluster.file, f"{place}.{one.place[0]}", one.problem, one.remedy) for one in error.findings]
        raise ConfigError(faults) from None
