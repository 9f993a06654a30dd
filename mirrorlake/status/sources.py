"""Read the positions of one source: its ends, how far it is landed, how far each flow has sent it, and since when records wait."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
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
from mirrorlake.model.ledger import SentPositions
from mirrorlake.republish import UnsentPositions
from mirrorlake.status.ages import Ages, Waiting, WaitPosition

log = logging.getLogger(__name__)

_Offsets = dict[TopicPartition, int]
Positions = dict[Subject, dict[PositionKey, int]]
_NOTHING_LANDED = LandedPositions({}, {})


class SourceReader:
    """Read the positions of one source, and of the flows from it, at each sample; it remembers what the last one found."""

    def __init__(self, context: Context, alias: str) -> None:
        self._context = context
        self._alias = alias
        self._topics: Mapping[str, KnownTopic] | None = None
        self._recorded: Mapping[str, KnownTopic] = {}
        self._unexpected: set[str] = set()
        self._landed = _NOTHING_LANDED
        self._read_to: Mapping[SourcePartition, int] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._unsent = UnsentPositions(context.lake)
        self._ages = Ages(context.lake, alias)
        self._logged_leaderless = ""
        self._has_groups_topic = False

    @property
    def topics(self) -> Mapping[str, KnownTopic]:
        """The flows' topics when the source answered last; before that those that the lake knows."""
        if self._topics is None:
            self._topics = self._load_recorded()
        return self._topics

    @property
    def partitions(self) -> dict[TopicPartition, int]:
        return {source.tp: source.generation for topic in self.topics.values() for source in topic.sources()}

    def read_topics(self, flows: Sequence[FlowConfig], *, is_full: bool) -> None:
        """Read the flows' topics; `is_full` forgets ages and unsent positions, and asks the lake anew about what differs."""
        if is_full:
            self._unsent.forget()
            # Records may have been erased meanwhile.
            self._ages = Ages(self._context.lake, self._alias)
        source = self._context.source(self._alias)
        names = source.topic_names()
        # The first consumer makes a broker create `__consumer_offsets` (law H): records are read only where that topic is there.
        self._has_groups_topic = GROUPS_TOPIC in names
        states = source.describe(name for name in names if any(flow.carries(name) for flow in flows))

        def unexpected() -> set[str]:
            known, landed = self._recorded, self._landed.reached
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

    def _load_recorded(self) -> dict[str, KnownTopic]:
        return newest_topics(self._context.lake, self._alias, "source", missing_ok=True)

    def read_landed(self) -> LandedPositions:
        lake, alias = self._context.lake, self._alias
        if not lake.exists(lake.relay_location(alias)):
            self._landed, self._read_to = _NOTHING_LANDED, {}
            return self._landed
        # Read before the relay, so that offsets which were read but are not in the relay are markers.
        self._read_to = read_landing_positions(lake, alias)
        # A lake cluster has several publishers, so the times of its batches may be out of order.
        if self._landed is _NOTHING_LANDED or self._context.config.cluster(self._alias).is_lake:
            self._landed = landed_positions(lake, alias)
        else:
            self._landed = update_landed_positions(lake, alias, self._landed)
        return self._landed

    def read_ends(self) -> dict[PositionKey, int]:
        partitions = self.partitions
        if self._context.config.cluster(self._alias).is_lake:
            # Published records are landed at once, and a topic of a lake cluster has one generation.
            first = dict.fromkeys(partitions, 0)
            self._ends = {
                tp: self._landed.reached.get(SourcePartition(tp.topic, 1, tp.partition), 0) for tp in partitions
            }
        else:
            first, self._ends = self._read_cluster_ends(partitions)
        return {
            self._key(SourcePartition(tp.topic, partitions[tp], tp.partition), kind): offset
            for kind, offsets in (("earliest", first), ("last_stable", self._ends))
            for tp, offset in offsets.items()
        }

    def _read_cluster_ends(self, partitions: Collection[TopicPartition]) -> tuple[_Offsets, _Offsets]:
        source = self._context.source(self._alias)
        try:
            ends = source.log_start_offsets(partitions), source.last_stable_offsets(partitions)
        except ClusterError:
            admin = self._context.admin(self._alias)
            _, leaderless = describe_with_leaders(admin, {tp.topic for tp in partitions})
            led = [tp for tp in partitions if tp not in leaderless]
            if len(led) == len(partitions):
                raise
            names = format_partitions(leaderless & {*partitions})
            if self._logged_leaderless != names:
                text = "sample.no_leader source=%s partitions=%s why=they are left out until a broker leads them"
                log.warning(text, self._alias, names)
            self._logged_leaderless = names
            return admin.log_start_offsets(led), admin.last_stable_offsets(led)
        # The next loss of leaders is logged again.
        self._logged_leaderless = ""
        return ends

    def flow_positions(self, flows: Sequence[FlowConfig], sent: Mapping[str, SentPositions]) -> Positions:
        """Return the landed and republished positions of all partitions; `sent` is the ledger of each flow that answered."""
        found, landed = Positions(), self._landed.reached
        flows = [flow for flow in flows if flow.name in sent]
        done_by = [(flow, self._unsent.read(flow, sent[flow.name].positions, landed)) for flow in flows]

        def put(subject: Subject, source: SourcePartition, kind: str, offset: int, flow: str | None = None) -> None:
            found.setdefault(subject, {})[self._key(source, kind, flow)] = offset

        relay, cluster = ("relay", self._alias), ("cluster", self._alias)
        for name, topic in self.topics.items():
            carrying = [(flow, done) for flow, done in done_by if flow.carries(name)]
            for source in topic.sources():
                holds = landed.get(source)
                # A generation that landing has not seen has no id yet, and landing's positions are of another one.
                read = self._read_to.get(source, 0) if topic.topic_id else 0
                end = self._ends.get(source.tp, holds or 0)
                place = partial(landed_and_republished, holds=holds, seen=read, end=end)
                put(relay, source, "reached", place(sent=0)[0])
                for flow, done in carrying:
                    sent_to = place(sent=done.get(source, topic.starts_at(source.partition)))[1]
                    put(("flow", flow.name), source, "republished", sent_to, flow.name)
        # An earlier generation of a topic is sampled until all flows have sent it.
        for source, holds in landed.items():
            newest = self.topics.get(source.topic)
            if newest is not None and source.generation >= newest.generation_of(source.partition):
                continue
            waiting = [(flow, done.get(source, 0)) for flow, done in done_by if flow.carries(source.topic)]
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
        readers = self._context.reader if self._has_groups_topic else None
        return self._ages.find(places, landed=self._landed.reached, ends=ends, readers=readers)

    def _key(self, source: SourcePartition, kind: str, flow: str | None = None) -> PositionKey:
        return PositionKey(self._alias, flow, source.topic, source.generation, source.partition, kind, None)
