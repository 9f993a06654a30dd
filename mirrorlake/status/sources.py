"""Read the positions of one source: its ends, how far it is landed, how far each flow has sent it, and since when records wait."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import GROUPS_TOPIC, describe_with_leaders, format_partitions
from mirrorlake.lake import (
    KnownTopic,
    LandedPositions,
    PositionKey,
    Subject,
    landed_and_republished,
    landed_positions,
    newest_topics,
    next_generation,
    read_landing_positions,
    update_landed_positions,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.republish import UnsentPositions
from mirrorlake.status.ages import Ages, Waiting, WaitPosition

log = logging.getLogger(__name__)

Positions = dict[Subject, dict[PositionKey, int]]
_NOTHING_LANDED = LandedPositions({}, {})


class SourceReader:
    """Read the positions of one source at each sample; it remembers what the last sample found.

    `flows` are the flows from this source; set them before each sample.
    """

    def __init__(self, context: Context, alias: str) -> None:
        self._context = context
        self._alias = alias
        self.flows: Sequence[FlowConfig] = ()
        self._topics: Mapping[str, KnownTopic] | None = None
        self._recorded: Mapping[str, KnownTopic] = {}
        self._unexpected: set[str] = set()
        self._landed: LandedPositions | None = None
        self._ends: Mapping[TopicPartition, int] = {}
        self._unsent = UnsentPositions(context.lake)
        self._ages = Ages(context.lake, alias)
        self._logged_leaderless = ""
        self._has_groups_topic = False

    @property
    def topics(self) -> Mapping[str, KnownTopic]:
        """The flows' topics when the source answered last; before that those that the lake knows."""
        return self._topics or {}

    @property
    def partitions(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(name, partition): topic.generation_of(partition)
            for name, topic in self.topics.items()
            for partition in range(topic.partitions)
        }

    @property
    def _is_lake(self) -> bool:
        return self._alias in self._context.config.lake_clusters

    def read_topics(self, *, is_full: bool) -> None:
        """Read the topics of the flows.

        With `is_full`, forget ages and unsent positions, and read topics that differ from the lake's there again.
        """
        if is_full:
            self._unsent.forget()
            self._ages.forget()
        source = self._context.source(self._alias)
        names = source.topic_names()
        # The first consumer makes a broker create `__consumer_offsets` (law H): records are read only where that topic is there.
        self._has_groups_topic = GROUPS_TOPIC in names
        states = source.describe(name for name in names if any(flow.carries(name) for flow in self.flows))

        def unexpected() -> set[str]:
            known, landed = self._recorded, (self._landed or _NOTHING_LANDED).reached
            newer = (s for s in landed if s.topic in known and s.generation > known[s.topic].generation_of(s.partition))
            return {s.topic for s in newer} | {
                n for n, state in states.items() if n not in known or known[n].topic_id != state.topic_id
            }

        # A topic that nobody lands stays unknown, so it must not cause a read at each sample.
        if (now := unexpected()) and (now != self._unexpected or is_full):
            self._recorded = self._load_recorded()
            self._unexpected = unexpected()
        self._topics = {
            name: replace(next_generation(self._recorded.get(name), state), partitions=state.partitions)
            for name, state in states.items()
        }

    def use_recorded_topics(self) -> None:
        """Take the topics from the lake if the source has not answered yet."""
        if self._topics is None:
            self._topics = self._load_recorded()

    def _load_recorded(self) -> dict[str, KnownTopic]:
        return newest_topics(self._context.lake, self._alias, "source", missing_ok=True)

    def read_landed(self) -> tuple[LandedPositions, Mapping[SourcePartition, int]]:
        lake, alias = self._context.lake, self._alias
        if not lake.exists(lake.relay_location(alias)):
            return _NOTHING_LANDED, {}
        # Read before the relay, so that offsets which were read but are not in the relay are markers.
        read_to = read_landing_positions(lake, alias)
        # A lake cluster has several publishers, so the times of its batches may be out of order.
        if self._landed is None or self._is_lake:
            self._landed = landed_positions(lake, alias)
        else:
            self._landed = update_landed_positions(lake, alias, self._landed)
        return self._landed, read_to

    def read_ends(self) -> dict[PositionKey, int]:
        partitions = self.partitions
        if self._is_lake:
            # Published records are landed at once, and a topic of a lake cluster has one generation.
            landed = (self._landed or _NOTHING_LANDED).reached
            first = dict.fromkeys(partitions, 0)
            self._ends = {tp: landed.get(SourcePartition(tp.topic, 1, tp.partition), 0) for tp in partitions}
        else:
            first, self._ends = self._read_cluster_ends(list(partitions))
        return {
            self._key(SourcePartition(tp.topic, partitions[tp], tp.partition), kind): offset
            for kind, offsets in (("earliest", first), ("last_stable", self._ends))
            for tp, offset in offsets.items()
        }

    def _read_cluster_ends(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        source = self._context.source(self._alias)
        try:
            ends = source.log_start_offsets(partitions), source.last_stable_offsets(partitions)
        except ClusterError:
            admin = self._context.admin(self._alias)
            _, leaderless = describe_with_leaders(admin, {tp.topic for tp in partitions})
            led = [tp for tp in partitions if tp not in leaderless]
            if len(led) == len(partitions):
                raise
            self._log_leaderless(format_partitions(leaderless & {*partitions}))
            return admin.log_start_offsets(led), admin.last_stable_offsets(led)
        # The next loss of leaders is logged again.
        self._logged_leaderless = ""
        return ends

    def _log_leaderless(self, names: str) -> None:
        if self._logged_leaderless != names:
            log.warning(
                "sample.no_leader source=%s partitions=%s why=they are left out until a broker leads them",
                self._alias,
                names,
            )
        self._logged_leaderless = names

    def flow_positions(
        self,
        landed: LandedPositions,
        read_to: Mapping[SourcePartition, int],
        sent: Mapping[Subject, Mapping[SourcePartition, int]],
    ) -> Positions:
        """Return the landed and republished positions of all partitions; `sent` is the ledger of each flow that answered."""
        found: Positions = {}
        flows = [
            (flow, self._unsent.read(flow, sent["flow", flow.name], landed.reached))
            for flow in self.flows
            if ("flow", flow.name) in sent
        ]

        def put(subject: Subject, source: SourcePartition, kind: str, offset: int, flow: str | None = None) -> None:
            found.setdefault(subject, {})[self._key(source, kind, flow)] = offset

        relay, cluster = ("relay", self._alias), ("cluster", self._alias)
        for name, topic in self.topics.items():
            carrying = [(flow, done) for flow, done in flows if flow.carries(name)]
            for partition in range(topic.partitions):
                source = SourcePartition(name, topic.generation_of(partition), partition)
                tp, starts_at = TopicPartition(name, partition), topic.starts_at(partition)
                holds = landed.reached.get(source)
                # A generation that landing has not seen has no id yet, and landing's positions are of another one.
                read = read_to.get(source, 0) if topic.topic_id else 0
                place = partial(landed_and_republished, holds=holds, seen=read, end=self._ends.get(tp, holds or 0))
                put(relay, source, "reached", place(sent=0)[0])
                for flow, done in carrying:
                    sent_to = place(sent=done.get(source, starts_at))[1]
                    put(("flow", flow.name), source, "republished", sent_to, flow.name)
        # An earlier generation of a topic is sampled until all flows have sent it.
        for source, holds in landed.reached.items():
            newest = self.topics.get(source.topic)
            if newest is not None and source.generation >= newest.generation_of(source.partition):
                continue
            waiting = [(flow, done.get(source, 0)) for flow, done in flows if flow.carries(source.topic)]
            if any(offset < holds for _, offset in waiting):
                put(relay, source, "reached", holds)
                put(cluster, source, "last_stable", holds)
                for flow, offset in waiting:
                    put(("flow", flow.name), source, "republished", offset, flow.name)
        return found

    def find_waiting(self, positions: Mapping[PositionKey, int]) -> Waiting:
        """Return since when records wait at positions of this source; nothing of it is known where the source did not answer."""
        ends = {key.source_partition: offset for key, offset in positions.items() if key.kind == "last_stable"}
        places = {
            key: WaitPosition(key.flow, key.source_partition, offset)
            for key, offset in positions.items()
            if key.kind in ("reached", "republished", "group", "consumed")
        }
        landed = (self._landed or _NOTHING_LANDED).reached
        readers = self._context.reader if self._has_groups_topic else None
        return self._ages.find(places, landed=landed, ends=ends, readers=readers)

    def _key(self, source: SourcePartition, kind: str, flow: str | None = None) -> PositionKey:
        return PositionKey(self._alias, flow, source.topic, source.generation, source.partition, kind, None)
