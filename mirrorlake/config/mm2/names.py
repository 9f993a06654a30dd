"""Every setting of MirrorMaker 2 (4.3, dedicated mode and connectors), and what becomes of it here.

From `MirrorConnectorConfig`, `MirrorSourceConfig`, `MirrorCheckpointConfig`, `MirrorHeartbeatConfig`, `MirrorMakerConfig`
and Connect's `DistributedConfig`.
"""

from __future__ import annotations

from mirrorlake.config.client.names import BY_NAME, JAVA_ONLY

_WORKERS = "it runs no Connect workers"
_BYTES = "bytes are mirrored as they are (law C)"
_JAVA = "a Java class cannot be called"
_ITSELF = "mirrorlake does this by itself"
_RULES = f"{_JAVA}; write `rules:` of the flow, which filter, mask and change records"
_ERRORS = "`unsendable` of the flow says what happens to a record that cannot be sent: halt, or quarantine (law E)"
_METRICS = "mirrorlake status and the tables of the lake replace JMX"
_TOPIC_FILTER = f"{_JAVA}; topics and exclude_topics select"

# `replication_factor` of a flow takes the place of all of them.
FACTORS = (
    "replication.factor",
    *(f"{name}.topic.replication.factor" for name in ("offset-syncs", "checkpoints", "heartbeats")),
)
# Settings of a flow that `flow.py` translates.
_TRANSLATED = """
    enabled topics topics.exclude topics.blacklist groups groups.exclude groups.blacklist replication.policy.class
    replication.policy.separator replication.policy.internal.topic.separator.enabled sync.topic.configs.enabled
    sync.topic.acls.enabled sync.group.offsets.enabled emit.heartbeats.enabled emit.heartbeats.interval.seconds
    emit.checkpoints.enabled emit.offset-syncs.enabled offset-syncs.topic.location offset.lag.max tasks.max replication.factor
"""
TRANSLATED = frozenset(_TRANSLATED.split())
# Settings without a counterpart, by the reason.
_NO_COUNTERPART = {
    "request.timeout.ms under client of the cluster is the nearest": "admin.timeout.ms",
    _JAVA: "forwarding.admin.class config.property.filter.class",
    _METRICS: "metric.reporters metric.names.formats add.source.alias.to.metrics",
    _TOPIC_FILTER: "topic.filter.class",
    f"{_JAVA}; groups and exclude_groups select": "group.filter.class",
    "MirrorMaker's default list is used": "config.properties.exclude config.properties.blacklist",
    f"{_ITSELF}, with the records": "sync.topic.configs.interval.seconds",
    "settings that stand at their default on the source are not copied": "use.defaults.from",
    "always incremental (KIP-339)": "use.incremental.alter.configs",
    "Spark polls; `trigger` under `land` paces it": "consumer.poll.timeout.ms",
    f"{_ITSELF}: new topics and partitions are found while landing": (
        "refresh.topics.enabled refresh.topics.interval.seconds"
    ),
    f"{_ITSELF}: groups are looked up each time": "refresh.groups.enabled refresh.groups.interval.seconds",
    f"{_ITSELF}, with configurations and partitions": "sync.topic.acls.interval.seconds",
    f"{_ITSELF}; sync.groups_interval paces it": "sync.group.offsets.interval.seconds",
    "checkpoints are written with the groups; sync.groups_interval paces them": "emit.checkpoints.interval.seconds",
    "with mm2.heartbeats, heartbeats topics of the source get one more hop": "heartbeats.replication.enabled",
    "replication_factor of the flow says it for every topic that mirrorlake creates": " ".join(FACTORS[1:]),
    f"{_WORKERS}; give it to `mirrorlake takeover` as --connect-group": "group.id",
    f"{_WORKERS}; give it to `mirrorlake takeover` as --offsets-topic": "offset.storage.topic offsets.storage.topic",
    "positions are committed with the records, in one transaction": "offset.flush.interval.ms offset.flush.timeout.ms",
    "delivery is exactly_once unless set otherwise": "exactly.once.support exactly.once.source.support",
    "chunk_records and chunk_bytes bound a transaction": "transaction.boundary transaction.boundary.interval.ms",
    _BYTES: "key.converter value.converter header.converter",
    _RULES: "transforms predicates",
    _ERRORS: "errors.tolerance",
    "a flow is named by its ends": "name",
    "clients are named mirrorlake-…": "client.id",
    "the flow's ends set it": "source.cluster.alias target.cluster.alias",
    _WORKERS: """
        dedicated.mode.enable.internal.rest listeners config.storage.topic status.storage.topic connector.class plugin.path
        plugin.discovery session.timeout.ms heartbeat.interval.ms rebalance.timeout.ms connect.protocol
        connector.client.config.override.policy""",
}
NO_COUNTERPART = {key: why for why, keys in _NO_COUNTERPART.items() for key in keys.split()}
# The same for whole families, by their beginnings.
_FAMILIES = {
    _WORKERS: """
        config.storage. offset.storage. status.storage. rest. listeners. worker. task. scheduled.rebalance. inter.worker.
        topic.tracking.""",
    _BYTES: "key.converter. value.converter. header.converter.",
    _RULES: "transforms. predicates.",
    _ERRORS: "errors.",
    _TOPIC_FILTER: "topic.filter.",
    _METRICS: "metrics.",
    "topics are created like their source": "topic.creation.",
    "the admin takes what stands under client of the cluster": "admin.",
    "write it under client of the source cluster": "consumer. source.",
    "write it under producer of the flow; nothing else is produced (law H)": "producer.",
    "write it under producer of the flow, or client of the target cluster": "target.",
}

DEFAULT_POLICIES = ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy",)
IDENTITY_POLICIES = (
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
    # Amazon's sample for MSK Connect and its migration tool: names stay as they are.
    "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
)


def why_not(key: str) -> str | None:
    """Return why a setting has no counterpart, None where it is not known at all.

    >>> why_not("rest.port"), why_not("tasks.maximum")
    ('it runs no Connect workers', None)
    """
    if key in NO_COUNTERPART:
        return NO_COUNTERPART[key]
    if key in BY_NAME or key in JAVA_ONLY:
        return (
            "it tunes the clients of Connect's own workers; write it under client of the cluster to tune the mirror's"
        )
    return next((why for why, starts in _FAMILIES.items() if key.startswith(tuple(starts.split()))), None)
