"""Every setting of MirrorMaker 2 (4.3, dedicated mode and connectors), and what becomes of it here.

From `MirrorConnectorConfig`, `MirrorSourceConfig`, `MirrorCheckpointConfig`, `MirrorHeartbeatConfig`, `MirrorMakerConfig`
and Connect's `DistributedConfig`.
"""

from __future__ import annotations

from mirrorlake.config.client.names import BY_NAME, JAVA_ONLY

_ITSELF = "mirrorlake does this by itself"
_NO_WORKERS = "it runs no Connect workers"
_BYTES = "bytes are mirrored as they are (law C)"
_JAVA = "a Java class cannot be called"
_RULES = "a Java class cannot be called; write `rules:` of the flow, which filter, mask and change records"
_ERRORS = "`unsendable` of the flow says what happens to a record that cannot be sent: halt, or quarantine (law E)"
_FACTOR = "replication_factor of the flow says it for every topic that mirrorlake creates"

# Settings of a flow that a function of their own translates (`mm2_flow`).
TRANSLATED = frozenset(
    {
        "enabled",
        "topics",
        "topics.exclude",
        "topics.blacklist",
        "groups",
        "groups.exclude",
        "groups.blacklist",
        "replication.policy.class",
        "replication.policy.separator",
        "replication.policy.internal.topic.separator.enabled",
        "sync.topic.configs.enabled",
        "sync.topic.acls.enabled",
        "sync.group.offsets.enabled",
        "emit.heartbeats.enabled",
        "emit.heartbeats.interval.seconds",
        "emit.checkpoints.enabled",
        "emit.offset-syncs.enabled",
        "offset-syncs.topic.location",
        "offset.lag.max",
        "tasks.max",
        "replication.factor",
    }
)

# `replication_factor` of a flow takes the place of all of them.
FACTORS = (
    "replication.factor",
    *(f"{name}.topic.replication.factor" for name in ("offset-syncs", "checkpoints", "heartbeats")),
)

# Settings without a counterpart, and why.
NO_COUNTERPART: dict[str, str] = {
    "admin.timeout.ms": "request.timeout.ms under client of the cluster is the nearest",
    "forwarding.admin.class": _JAVA,
    "metric.reporters": "mirrorlake status and the tables of the lake replace JMX",
    "metric.names.formats": "mirrorlake status and the tables of the lake replace JMX",
    "add.source.alias.to.metrics": "mirrorlake status and the tables of the lake replace JMX",
    "topic.filter.class": f"{_JAVA}; topics and exclude_topics select",
    "group.filter.class": f"{_JAVA}; groups and exclude_groups select",
    "config.property.filter.class": _JAVA,
    "config.properties.exclude": "MirrorMaker's default list is used",
    "config.properties.blacklist": "MirrorMaker's default list is used",
    "sync.topic.configs.interval.seconds": f"{_ITSELF}, with the records",
    "use.defaults.from": "settings that stand at their default on the source are not copied",
    "use.incremental.alter.configs": "always incremental (KIP-339)",
    "consumer.poll.timeout.ms": "Spark polls; `trigger` under `land` paces it",
    "refresh.topics.enabled": f"{_ITSELF}: new topics and partitions are found while landing",
    "refresh.topics.interval.seconds": f"{_ITSELF}: new topics and partitions are found while landing",
    "refresh.groups.enabled": f"{_ITSELF}: groups are looked up each time",
    "refresh.groups.interval.seconds": f"{_ITSELF}: groups are looked up each time",
    "sync.topic.acls.interval.seconds": f"{_ITSELF}, with configurations and partitions",
    "sync.group.offsets.interval.seconds": f"{_ITSELF}; sync.groups_interval paces it",
    "emit.checkpoints.interval.seconds": "checkpoints are written with the groups; sync.groups_interval paces them",
    "heartbeats.replication.enabled": "with mm2.heartbeats, heartbeats topics of the source get one more hop",
    "offset-syncs.topic.replication.factor": _FACTOR,
    "checkpoints.topic.replication.factor": _FACTOR,
    "heartbeats.topic.replication.factor": _FACTOR,
    "dedicated.mode.enable.internal.rest": _NO_WORKERS,
    "listeners": _NO_WORKERS,
    "group.id": f"{_NO_WORKERS}; give it to `mirrorlake takeover` as --connect-group",
    "offset.storage.topic": f"{_NO_WORKERS}; give it to `mirrorlake takeover` as --offsets-topic",
    "offsets.storage.topic": f"{_NO_WORKERS}; give it to `mirrorlake takeover` as --offsets-topic",
    "config.storage.topic": _NO_WORKERS,
    "status.storage.topic": _NO_WORKERS,
    "offset.flush.interval.ms": "positions are committed with the records, in one transaction",
    "offset.flush.timeout.ms": "positions are committed with the records, in one transaction",
    "exactly.once.support": "delivery is exactly_once unless set otherwise",
    "exactly.once.source.support": "delivery is exactly_once unless set otherwise",
    "transaction.boundary": "chunk_records and chunk_bytes bound a transaction",
    "transaction.boundary.interval.ms": "chunk_records and chunk_bytes bound a transaction",
    "key.converter": _BYTES,
    "value.converter": _BYTES,
    "header.converter": _BYTES,
    "transforms": _RULES,
    "predicates": _RULES,
    "errors.tolerance": _ERRORS,
    "name": "a flow is named by its ends",
    "connector.class": _NO_WORKERS,
    "client.id": "clients are named mirrorlake-…",
    "source.cluster.alias": "the flow's ends set it",
    "target.cluster.alias": "the flow's ends set it",
    "plugin.path": _NO_WORKERS,
    "plugin.discovery": _NO_WORKERS,
    "session.timeout.ms": _NO_WORKERS,
    "heartbeat.interval.ms": _NO_WORKERS,
    "rebalance.timeout.ms": _NO_WORKERS,
    "connect.protocol": _NO_WORKERS,
    "connector.client.config.override.policy": _NO_WORKERS,
}

# The same for whole families, by their beginning.
NO_COUNTERPART_FAMILIES: dict[str, str] = {
    "config.storage.": _NO_WORKERS,
    "offset.storage.": _NO_WORKERS,
    "status.storage.": _NO_WORKERS,
    "rest.": _NO_WORKERS,
    "listeners.": _NO_WORKERS,
    "worker.": _NO_WORKERS,
    "task.": _NO_WORKERS,
    "scheduled.rebalance.": _NO_WORKERS,
    "inter.worker.": _NO_WORKERS,
    "topic.tracking.": _NO_WORKERS,
    "key.converter.": _BYTES,
    "value.converter.": _BYTES,
    "header.converter.": _BYTES,
    "transforms.": NO_COUNTERPART["transforms"],
    "predicates.": NO_COUNTERPART["predicates"],
    "errors.": NO_COUNTERPART["errors.tolerance"],
    "topic.filter.": NO_COUNTERPART["topic.filter.class"],
    "metrics.": NO_COUNTERPART["metric.reporters"],
    "topic.creation.": "topics are created like their source",
    "admin.": "the admin takes what stands under client of the cluster",
    "consumer.": "write it under client of the source cluster",
    "source.": "write it under client of the source cluster",
    "producer.": "write it under producer of the flow; nothing else is produced (law H)",
    "target.": "write it under producer of the flow, or client of the target cluster",
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
    return next((why for start, why in NO_COUNTERPART_FAMILIES.items() if key.startswith(start)), None)
