"""A source, its relay, and what is known of it: read from the lake at once, from the source on demand."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cached_property

from mirrorlake.context import Context
from mirrorlake.kafka import ClusterAdmin, describe_with_leaders, format_partitions
from mirrorlake.lake import newest_topics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ranges import OffsetRange
from mirrorlake.model.remotes import is_different_topic, known_id
from mirrorlake.verify.scope import count_explained_offsets, read_removed_ranges

log = logging.getLogger(__name__)


class SourceEnd:
    """A source and its relay at the present version.

    `is_lake`: it has no brokers, its relay is the source. `is_lost`: it is not asked. `removed` are the offsets that left its
    relay, `leaderless` partitions of which nothing can be asked.
    """

    def __init__(self, context: Context, alias: str, *, is_lost: bool = False) -> None:
        self._context, lake = context, context.lake
        self.alias = alias
        self.relay = lake.fixed_relay(alias)
        self.is_lake, self.is_lost = context.config.cluster(alias).is_lake, is_lost
        self.recorded = newest_topics(lake, alias, "source")
        self.removed = read_removed_ranges(lake, alias)
        self.explained = count_explained_offsets(lake, alias)
        self.leaderless: frozenset[TopicPartition] = frozenset()

    @property
    def is_asked(self) -> bool:
        return not self.is_lake and not self.is_lost

    @cached_property
    def ids(self) -> dict[str, str]:
        return {name: topic.topic_id for name, topic in self.recorded.items()}

    @cached_property
    def default_cleanup(self) -> str:
        """The policy of topics that set none, or "" if unknown."""
        if not self.is_asked:
            return ""
        admin, recorded = self._context.admin(self.alias), self.recorded
        return admin.default_cleanup(
            [t for t in admin.topic_names() if t in recorded and recorded[t].inherits_cleanup_policy]
        )

    def compacts(self, topic: str) -> bool:
        known = self.recorded.get(topic)
        return known is not None and known.may_compact(self.default_cleanup)

    def find_leaderless(self, topics: Iterable[str]) -> None:
        if not self.is_asked:
            return
        _, self.leaderless = describe_with_leaders(self._context.admin(self.alias), set(topics))
        if self.leaderless:
            log.warning("verify.no_leader source=%s partitions=%s", self.alias, format_partitions(self.leaderless))


def read_log_ranges(
    admin: ClusterAdmin, ids: Mapping[str, str], sources: Iterable[SourcePartition]
) -> dict[SourcePartition, OffsetRange]:
    """Return the ranges that a source still holds of some partitions in their newest generation; `ids` are recorded topic ids."""
    sources = list(sources)
    states = admin.describe({source.topic for source in sources})
    newest: dict[TopicPartition, SourcePartition] = {}
    for source in sources:
        tp = source.tp
        newest[tp] = max(source, newest.get(tp, source))
    # A topic that was created again holds other records than the landed ones.
    newest = {
        tp: source
        for tp, source in newest.items()
        if tp.topic in states
        and tp.partition < states[tp.topic].partitions
        and not is_different_topic(ids.get(tp.topic, ""), known_id(states[tp.topic].topic_id))
    }
    earliest, ends = admin.log_start_offsets(newest), admin.last_stable_offsets(newest)
    # A truncated log ends before the landed records.
    return {source: OffsetRange(earliest[tp], ends[tp]) for tp, source in newest.items()}
