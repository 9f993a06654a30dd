"""Every table that mirrorlake owns: columns, units and comments."""

from __future__ import annotations

from mirrorlake.lake.table_schema import APPEND_ONLY, REMOVABLE, TableSchema
from mirrorlake.lake.version import LAKE_VERSION, VERSION_PROPERTY

_HEADERS = "array<struct<key:string,value:binary>>"
_RANGES = "array<struct<first:bigint,length:bigint>>"
_SOURCE_PARTITION = {
    "topic": ("string", "Source topic"),
    "generation": ("int", "Generation of the partition"),
    "partition": ("int", "Source partition"),
}
RELAY = TableSchema(
    name="relay",
    comment="Records of one source cluster, byte for byte; a file a batch, then large ones of one partition in offset order",
    columns={
        **_SOURCE_PARTITION,
        "generation": (
            "int",
            "Generation of the partition's offsets: 1, 2, ...; grows with each topic id (KIP-516) and truncation of the log",
        ),
        "offset": ("bigint", "Upstream offset"),
        "timestamp": ("timestamp", "Record timestamp in whole milliseconds; outside of the years 1 to 9999 a mark"),
        "timestamp_type": ("int", "0 CreateTime, 1 LogAppendTime"),
        "key": ("binary", "Key bytes; null and empty are different"),
        "value": ("binary", "Value bytes; null is a tombstone"),
        "headers": (_HEADERS, "Headers in order, duplicates and null values kept; null when there are none"),
        "landed_at": ("timestamp", "Time of the batch that landed the record"),
    },
    properties={
        **APPEND_ONLY,
        "delta.dataSkippingStatsColumns": "topic,generation,partition,offset,timestamp,landed_at",
        # Payload values rarely repeat, so dictionaries only cost (0.91 -> 0.64 CPU-us a record of 100 B).
        **{f"parquet.enable.dictionary#{name}": "false" for name in ("key", "value", "offset", "timestamp")},
        # Level 1 is faster than 3 and was smaller on JSON-like values.
        "parquet.compression.codec.zstd.level": "1",
    },
)

OFFSET_MAP = TableSchema(
    name="offset_map",
    comment="What became of each landed record in each flow (law E), in runs of one fate; the copy of each flow's ledger",
    columns={
        "flow": ("string", "Flow, e.g. east->central"),
        "source_topic": ("string", "Source topic"),
        "generation": ("int", "Generation of the source partition"),
        "source_partition": ("int", "Source partition"),
        "first_upstream": ("bigint", "First upstream offset of the run"),
        "last_upstream": ("bigint", "Last upstream offset of the run"),
        "holes": (
            _RANGES,
            "Upstream offsets between the two that are not of the run: no record, or a record of another run",
        ),
        "kind": (
            "string",
            "sent | filtered (withheld by a rule) | quarantined (withheld because a rule could not judge it, or the target "
            "refuses it)",
        ),
        "target_topic": ("string", "Remote topic that they went to, or would have gone to"),
        "target_partition": ("int", "Target partition; null if withheld"),
        "first_downstream": (
            "bigint",
            "Downstream offset of the first record; the run is dense from here; null if withheld",
        ),
        "record_count": ("bigint", "Records in the run"),
        "lane": ("int", "Lane that wrote the run"),
        "ledger_seq": ("bigint", "Number of the lane's ledger record that holds the run, or the last of it"),
        "epoch": ("bigint", "Epoch of the flow's owner: grows with every owner, seconds since 1970 at first"),
        "committed_at": (
            "timestamp",
            "Time of the target transaction, or of the last where several follow one another",
        ),
        "view": ("string", "Version of the rules that sent records went through; null if they were sent unchanged"),
        "target_topic_id": ("string", "Kafka's id of the remote topic then; null if it was not known"),
        "rule": ("string", "The rule that withheld them; null if sent"),
        "rule_version": ("string", "Fingerprint of the rule's definition; the table audit holds the definition"),
        "reason": ("string", "Why, where the rule could not judge; never holds a part of the record"),
    },
    properties={
        **APPEND_ONLY,
        # Maintenance also sorts by these columns, in this order: by source first.
        "delta.dataSkippingStatsColumns": (
            "flow,source_topic,source_partition,first_upstream,last_upstream,lane,ledger_seq,"
            "target_topic,target_partition,first_downstream,kind"
        ),
    },
)

GAPS = TableSchema(
    name="gaps",
    comment="Upstream offsets that were never landed, explained (law E)",
    columns={
        "source": ("string", "Alias of the source cluster"),
        **_SOURCE_PARTITION,
        "first_offset": ("bigint", "First upstream offset of the range"),
        "last_offset": ("bigint", "Last upstream offset of the range; below the first when its end is unknown"),
        "missing": ("bigint", "Offsets of the range that hold no landed record"),
        "kind": (
            "string",
            "expired (left the source unlanded) | recreated (the topic was deleted) | truncated (the log was truncated below what "
            "was landed, which the relay keeps) | transactional (control or aborted) | compacted",
        ),
        "detected_at": ("timestamp", "Time of detection"),
    },
    properties={**APPEND_ONLY, VERSION_PROPERTY: LAKE_VERSION},
)

REMOVED = TableSchema(
    name="removed",
    comment="Records that were landed and left the relay: expired by its retention or erased on request (law E)",
    columns={
        "removal": (
            "string",
            "Id of the removal; a row without relay_version announces it, one with it confirms it",
        ),
        "source": ("string", "Alias of the source cluster"),
        **_SOURCE_PARTITION,
        "first_offset": ("bigint", "First upstream offset that left"),
        "last_offset": ("bigint", "Last upstream offset that left"),
        "ranges": (_RANGES, "The removed offsets; null if all from the first to the last were removed"),
        "record_count": ("bigint", "Records that left"),
        "kind": ("string", "expired (the relay's retention) | erased (on request, for good)"),
        "reason": ("string", "The setting, or the person's reason"),
        "evidence": ("string", "JSON: files and versions of the relay; never a key or a value in clear"),
        "relay_version": ("bigint", "Version of the relay from which on they are gone; null before that commit"),
        "removed_at": ("timestamp", "Time of the decision"),
    },
)

POSITIONS = TableSchema(
    name="positions",
    comment="Positions over time, per source partition: source ends, landed, republished, group commits",
    columns={
        "source": ("string", "Alias of the cluster that the offset belongs to"),
        "flow": ("string", "Flow, null for positions of the source itself"),
        "topic": ("string", "Topic"),
        "generation": ("int", "Generation of the partition"),
        "partition": ("int", "Partition"),
        "kind": (
            "string",
            "earliest | last_stable | reached (landing has read to here) | republished | group | "
            "consumed (a group's position on the flow's target, by its oldest unread record on the source) | "
            "group_set (mirrorlake set it for the group) | landed (accounted for by landing, law E) | taken_over | "
            "begun_again (a remote topic that was lost holds records from here on)",
        ),
        "group_id": ("string", "Consumer group, for kinds group and consumed"),
        "position": ("bigint", "Next offset to read, Kafka's meaning of a position; null when a sample found it gone"),
        "record_timestamp": ("timestamp", "Timestamp of the last record before the position, where known"),
        "observed_at": ("timestamp", "Time of the observation"),
        "landed_at": ("timestamp", "For kind landed: no batch that the position accounts for is newer"),
        "target_topic": ("string", "Remote topic, for kinds taken_over and begun_again"),
        "waits": ("boolean", "Whether a record waits at a sampled position; null where it is not known"),
        "waiting_since": ("timestamp", "Timestamp of the oldest record that waits; null where none does, or not known"),
        "verdict": ("string", "For kind republished: the verdict of `status` on the partition"),
    },
    properties={**APPEND_ONLY, **REMOVABLE},  # old samples are removed (sampling.keep)
)

SAMPLES = TableSchema(
    name="samples",
    comment="Samples of positions, one row a time and subject: a time without changes differs from one without a sample",
    columns={
        "observed_at": ("timestamp", "Time of the sample; rows of positions that changed have the same"),
        "subject": (
            "string",
            "What was sampled: cluster (ends and groups) | relay (how far landing has read) | flow (its ledger)",
        ),
        "name": ("string", "Alias of the cluster or of the relay's source, or the flow"),
        "complete": ("boolean", "Every position of the subject was written to positions, not only what had changed"),
        "scope": (
            "string",
            "Digest of the names of the sampler's flows; what a sampler does not find is gone for its own scope",
        ),
        "positions": ("bigint", "Positions that were seen"),
        "changed": ("bigint", "Positions that moved, or all of a complete sample"),
        "took_ms": ("bigint", "Duration of the sample"),
        "error": ("string", "Why there was no answer; null where there was one"),
    },
    properties={**APPEND_ONLY, **REMOVABLE},
)

METADATA = TableSchema(
    name="metadata",
    comment="Topics and ACLs as they changed, one row a change: ids, partition counts, configurations, permissions",
    columns={
        "cluster": ("string", "Alias of the cluster"),
        "role": ("string", "source | target: side of a flow that was read; null for ACLs"),
        "kind": ("string", "topic | acl"),
        "topic": ("string", "Topic; null for ACLs"),
        "generation": ("int", "Generation of the topic, counted from 1"),
        "topic_id": ("string", "Kafka's id of this life (KIP-516)"),
        "partitions": ("int", "Partition count"),
        "configs": ("map<string,string>", "Settings made on the topic itself, defaults left out"),
        "acl": (
            "struct<resource:string,name:string,pattern:string,principal:string,host:string,operation:string,permission:string>",
            "The ACL; null for topics",
        ),
        "present": ("boolean", "False: it existed before and is gone"),
        "observed_at": ("timestamp", "Time of the observation"),
        "cuts": (
            "array<struct<partition:int,generation:int,first_offset:bigint>>",
            "Partitions whose log was truncated: from first_offset on they are of the generation named here; null for none",
        ),
        "leader_epochs": (
            "map<int,int>",
            "Newest leader epoch of each partition that still held all landed records; null if never checked",
        ),
    },
)

BAD_RECORDS = TableSchema(
    name="bad_records",
    comment="Records that are no rows of a typed table, with their bytes and the reason",
    columns={
        "table_name": ("string", "Typed table"),
        "source": ("string", "Alias of the source cluster"),
        **_SOURCE_PARTITION,
        "offset": ("bigint", "Upstream offset"),
        "timestamp": ("timestamp", "Record timestamp"),
        "key": ("binary", "Key bytes"),
        "value": ("binary", "Value bytes"),
        "reason": ("string", "Why it is no row; never holds a part of the record"),
        "recorded_at": ("timestamp", "Time of the batch"),
    },
    properties={**APPEND_ONLY, **REMOVABLE},  # rows leave with their relay's records
)

PROOFS = TableSchema(
    name="proofs",
    comment="Ranges of offsets that verify found equal at two ends, each with its digest; they are not read again",
    columns={
        "verification": ("string", "Id of the verification; its rows are one commit"),
        "kind": ("string", "source-relay | relay-target: the two ends that were compared"),
        "source": ("string", "Alias of the source cluster"),
        "flow": ("string", "Flow; null for source-relay, which is true of every flow from that source"),
        **_SOURCE_PARTITION,
        "first_upstream": ("bigint", "First upstream offset of the range, with or without a record"),
        "last_upstream": ("bigint", "Last upstream offset of the range, with or without a record"),
        "begins_at": (
            "bigint",
            "First upstream offset that had to be proven then: the start of landing or of the flow",
        ),
        "how": (
            "string",
            "full | present (each record is in its place; rules that the settings no longer have made its content) | gone (an "
            "end no longer held the range when it came to be compared) | different (no earlier proof of it counts any more)",
        ),
        "target_topic": ("string", "Remote topic; null for source-relay"),
        "target_partition": ("int", "Target partition; null where the range has no record there"),
        "first_downstream": ("bigint", "Downstream offset of the first compared record"),
        "last_downstream": ("bigint", "Downstream offset of the last compared record"),
        "records": ("bigint", "Records that were compared"),
        "digest": (
            "string",
            "Digest of the compared records; mirrorlake.verify.content.Digest defines it; null without content",
        ),
        "view": ("string", "Version of the rules that the records went through; null if they were sent unchanged"),
        "relay_version": ("bigint", "Version of the relay that was read"),
        "source_topic_id": ("string", "Kafka's id of the source topic then; null if it was not read"),
        "target_topic_id": ("string", "Kafka's id of the remote topic then; null for source-relay"),
        "proven_at": ("timestamp", "Time of the verification"),
        "upstream_end": (
            "bigint",
            "End offset of the cut: past the last landed record for source-relay, the flow's position for others",
        ),
        "downstream_end": ("bigint", "End offset of the target partition's log at the cut; null without one"),
    },
    properties={
        **APPEND_ONLY,
        "delta.dataSkippingStatsColumns": "source,flow,topic,partition,first_upstream,last_upstream",
    },
)

CHECKPOINTS = TableSchema(
    name="checkpoints",
    comment="Translated positions of consumer groups (Kafka's meaning of checkpoint)",
    columns={
        "flow": ("string", "Flow"),
        "group_id": ("string", "Consumer group"),
        "target_topic": ("string", "Remote topic"),
        "target_partition": ("int", "Target partition"),
        "upstream_offset": ("bigint", "Position on the source"),
        "downstream_offset": ("bigint", "Position on the target"),
        "metadata": ("string", "Metadata string of the commit"),
        "observed_at": ("timestamp", "Time of the translation"),
    },
)

AUDIT = TableSchema(
    name="audit",
    comment="Who changed what on which cluster: the plan's hash, before and after",
    columns={
        "at": ("timestamp", "Time of the change"),
        "who": ("string", "User and host"),
        "command": ("string", "Command"),
        "plan_hash": ("string", "SHA-256 of the plan as it was shown"),
        "where": ("string", "Cluster alias or lake"),
        "flow": ("string", "The flow, if it was done for one"),
        "object": ("string", "Kind and name"),
        "action": ("string", "What was done"),
        "before": ("string", "JSON before"),
        "after": ("string", "JSON after"),
    },
)

CONTROL = TableSchema(
    name="control",
    comment="What a person wants of the mirror, and which of its streams failed; the newest row of a subject counts",
    columns={
        "at": ("timestamp", "Time of the command"),
        "who": ("string", "User and host"),
        "action": (
            "string",
            "apply | pause | resume | send_again | accept_empty (of a remote topic that was lost); park and clear by the "
            "mirror itself",
        ),
        "kind": ("string", "What it is about: settings | cluster | flow | topic | remote | stream"),
        "name": ("string", "Its name: alias, flow, source topic, remote topic or stream; empty for settings"),
        "flow": ("string", "Flow of a topic, null otherwise"),
        "value": (
            "string",
            "JSON: for apply the settings without defaults, secrets and client options as fingerprints; for a remote topic "
            "the id that the ledger knew; for park the error",
        ),
        "reason": ("string", "The reason, if one was given"),
    },
)

SIDE_TABLES = (
    OFFSET_MAP,
    BAD_RECORDS,
    GAPS,
    REMOVED,
    PROOFS,
    CHECKPOINTS,
    POSITIONS,
    SAMPLES,
    METADATA,
    AUDIT,
    CONTROL,
)
