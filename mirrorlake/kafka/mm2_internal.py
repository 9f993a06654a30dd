"""Write MirrorMaker 2's internal topics on a target, so that their readers need no change (`RemoteClusterUtils`, KIP-382).

Law H (source untouched): everything here goes to the target. MirrorMaker writes a flow's heartbeats to its source, too, and
mirrors them from there; the mirrored ones are written to the target directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from confluent_kafka import KafkaError, Producer

from mirrorlake.config.schema import ClusterConfig, FlowConfig
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.errors import ClientErrors, Need, client_log
from mirrorlake.kafka.options import librdkafka_options
from mirrorlake.kafka.record_reader import RawRecord, RecordReader
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.mm2 import (
    HEARTBEATS,
    INTERNAL_TOPIC_CONFIGS,
    Checkpoint,
    Heartbeat,
    OffsetSync,
    checkpoints_of,
    decode_all,
)
from mirrorlake.model.plan import TopicSpec

_FLUSH_S = 30.0
# MirrorMaker's readers read only partition 0.
_PARTITION = 0
# All flows of a target repeat their heartbeats in one topic: its last records are enough.
_MAX_HEARTBEATS = 1_000
# topic, key, value, timestamp in ms
_Record = tuple[str, bytes | None, bytes | None, int]


def mm2_topic(name: str, replication_factor: int | None = None) -> TopicSpec:
    """Return the spec of an internal topic as MirrorMaker creates it: one partition, compacted."""
    factor = replication_factor or -1
    return TopicSpec(name=name, partitions=1, configs=INTERNAL_TOPIC_CONFIGS, replication_factor=factor)


def mm2_topics(flow: FlowConfig) -> list[TopicSpec]:
    names, mm2 = flow.mm2_names, flow.mm2
    wanted = {
        HEARTBEATS: mm2.heartbeats,
        names.remote_heartbeats(flow.source): mm2.heartbeats,
        names.checkpoints(flow.source): mm2.checkpoints,
        names.offset_syncs(flow.source): mm2.offset_syncs,
    }
    return [mm2_topic(name, flow.replication_factor) for name, is_wanted in wanted.items() if is_wanted]


class Mm2Writer:
    """Write heartbeats, checkpoints and offset syncs of one flow on its target.

    What a topic holds already is not written again, so a repeated step adds nothing (law G). One thread at a time.
    """

    def __init__(
        self,
        flow: FlowConfig,
        target: ClusterAdmin,
        *,
        producer_options: Mapping[str, Any],
        reader_options: Mapping[str, Any],
        now_ms: Callable[[], int],
    ) -> None:
        self._flow = flow
        self._names = flow.mm2_names
        self._target = target
        self._producer_options = dict(producer_options)
        self._reader_options = dict(reader_options)
        self._now_ms = now_ms
        self._producer: Producer | None = None
        self._ready: set[str] = set()
        self._checkpoints: dict[tuple[str, str, int], Checkpoint] | None = None
        self._syncs: dict[tuple[str, int], OffsetSync] | None = None
        self._beaten_ms: int | None = None
        self._refused: KafkaError | None = None

    def write_heartbeats(
        self, landed_ms: int, *, relayed: Iterable[tuple[str, RawRecord]] = (), is_mirrored: bool = False
    ) -> int:
        """Write one heartbeat of the flow, and one as if mirrored from the source. Return how many were written.

            heartbeats             source -> target    what the flow's own heartbeat connector writes
            <source>.heartbeats    target -> source    what the opposite connector writes on the source, mirrored here

        Clients derive the topology from the names of these topics (`MirrorClient.upstreamClusters`, `replicationHops`). The time is
        `landed_ms`, when landing last worked: none is written twice. The source's own heartbeats (`relayed`) get one more hop.
        `is_mirrored`: `heartbeats` of the source is mirrored with the records, and nobody else writes its remote topic.
        """
        flow = self._flow
        own, back = Heartbeat(flow.source, flow.target, landed_ms), Heartbeat(flow.target, flow.source, landed_ms)
        if self._beaten_ms is None:
            held = self._load(HEARTBEATS, Heartbeat.from_record, newest=_MAX_HEARTBEATS)
            self._beaten_ms = max((one.timestamp_ms for one in held if one.key() == own.key()), default=-1)
        if landed_ms <= self._beaten_ms:
            return 0
        records: list[_Record] = [(HEARTBEATS, own.key(), own.value(), landed_ms)]
        if not is_mirrored:
            records.append((self._names.remote_heartbeats(flow.source), back.key(), back.value(), landed_ms))
        for topic, record in relayed:
            remote = self._names.remote_heartbeats(flow.source, topic)
            records.append((remote, record.key, record.value, max(record.timestamp_ms, 0) or landed_ms))
        for name in {record[0] for record in records}:
            self._ensure(name)
        count = self._write(records)
        self._beaten_ms = landed_ms
        return count

    def write_checkpoints(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Write the checkpoints that the topic does not hold yet. Return how many.

        MirrorMaker emits a checkpoint if it is the first of its group and partition, if the group went back on the source, or
        if it got further on the target (`MirrorCheckpointTask.checkpointIsMoreRecent`). Here every change is written, because
        the offset map is exact and never moves back by itself (law B).
        """
        topic = self._names.checkpoints(self._flow.source)
        if self._checkpoints is None:
            held = self._load(topic, Checkpoint.from_record)
            self._checkpoints = {(c.group, c.topic, c.partition): c for c in held}
        known = self._checkpoints
        new = {key: c for c in checkpoints if known.get(key := (c.group, c.topic, c.partition)) != c}
        now = self._now_ms()
        count = self._write([(topic, c.key(), c.value(), now) for c in new.values()])
        known.update(new)
        return count

    def write_offset_syncs(
        self, syncs: Iterable[OffsetSync], *, is_outdated: Callable[[OffsetSync], bool] = lambda _: False
    ) -> int:
        """Write the offset syncs that come after those in the topic. Return how many.

        Readers forget everything if a sync goes back upstream (`OffsetSyncStore`), so an older one is not written again. A
        recreated topic starts over upstream and continues downstream, which makes its syncs newer. Syncs of one partition
        come in the order of their records.

        `is_outdated` tells whether a partition's newest sync in the topic is obsolete; then all are written.
        """
        topic = self._names.offset_syncs(self._flow.source)
        if self._syncs is None:
            self._syncs = {(s.topic, s.partition): s for s in self._load(topic, OffsetSync.from_record)}
        reached = {place: sync for place, sync in self._syncs.items() if not is_outdated(sync)}
        new = []
        for sync in syncs:
            last = reached.get((sync.topic, sync.partition))
            is_newer = last is None or (
                sync.upstream_offset > last.upstream_offset or sync.downstream_offset > last.downstream_offset
            )
            if is_newer:
                reached[(sync.topic, sync.partition)] = sync
                new.append(sync)
        now = self._now_ms()
        count = self._write([(topic, s.key(), s.value(), now) for s in new])
        self._syncs = reached
        return count

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _ensure(self, topic: str) -> bool:
        """Create the topic if it is missing. Return whether it may hold records."""
        if topic in self._ready:
            return True
        exists = topic in self._target.describe([topic])
        if not exists:
            self._target.create(mm2_topic(topic, self._flow.replication_factor))
        self._ready.add(topic)
        return exists

    def _load(
        self, topic: str, decode: Callable[[bytes | None, bytes | None], Any], *, newest: int | None = None
    ) -> list[Any]:
        if not self._ensure(topic):
            return []
        with RecordReader(self._flow.target, self._reader_options) as reader:
            low, high = reader.ends(topic, _PARTITION)
            low = low if newest is None else max(low, high - newest)
            found = decode_all(topic, reader.read(topic, _PARTITION, low) if high > low else (), decode)
        for skipped in found.skipped[:10]:
            client_log.warning("mm2.skipped flow=%s count=%s record=%s", self._flow.name, len(found.skipped), skipped)
        return found.values

    def _write(self, records: Sequence[_Record]) -> int:
        if not records:
            return 0
        alias, doing = self._flow.target, f"write {records[0][0]}"
        errors = ClientErrors.from_options(alias, self._producer_options)
        self._refused = None
        need = Need("WRITE", "TOPIC", records[0][0])
        try:
            with errors.translating(doing, need):
                # Compared with None: a producer with an empty queue is falsy.
                if self._producer is None:
                    self._producer = Producer(self._producer_options, logger=client_log)
                for topic, key, value, timestamp in records:
                    self._producer.produce(
                        topic, value, key, _PARTITION, timestamp=timestamp, on_delivery=self._on_delivery
                    )
                    self._producer.poll(0)
                left = self._producer.flush(_FLUSH_S)
            if self._refused is not None:
                raise errors.to_cluster_error(self._refused, doing, need)
            if left:
                raise ClusterUnreachable(
                    f"cluster {alias} did not confirm {left} records of MirrorMaker 2's topics within {_FLUSH_S:.0f} s",
                    consequence="they are written again at the next turn",
                    remedy=f"check clusters.{alias} with `mirrorlake doctor`",
                    alias=alias,
                )
        except Exception:
            # The topic may be gone, or the records may have arrived: read everything again.
            self.close()
            self._ready.clear()
            self._checkpoints = self._syncs = None
            raise
        return len(records)

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        self._refused = self._refused or error


def mm2_writer(
    flow: FlowConfig, cluster: ClusterConfig, target: ClusterAdmin, *, now: Callable[[], datetime]
) -> Mm2Writer:
    return Mm2Writer(
        flow,
        target,
        producer_options=librdkafka_options(cluster, role="producer"),
        reader_options=librdkafka_options(cluster, role="consumer"),
        now_ms=lambda: int(now().timestamp() * 1000),
    )


def write_plan_checkpoints(writer: Mm2Writer, plan: GroupPlan) -> int:
    """Write a group plan as checkpoints. Return how many were new."""
    return writer.write_checkpoints(checkpoints_of(plan))
