"""Read facts about the topics of one source from the lake and, unless it is lost, from the source."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cached_property

from mirrorlake.context import Context
from mirrorlake.kafka import describe_with_leaders, format_partitions
from mirrorlake.lake import newest_topics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.verify.direct import read_available_ranges
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.scope import count_explained_offsets, read_erased_ranges, read_removed_ranges

log = logging.getLogger(__name__)


class SourceFacts:
    """Facts about a source: those of the lake read now, those of the source on demand.

    Args:
        context: of the mirror.
        alias: the source.
        is_lost: whether the source is not asked.

    Attributes:
        is_asked: whether the source has brokers, and is not lost.
        recorded: its newest topics, by name.
        removed: the offsets that left its relay.
        erased: those of them that an erasure took.
        explained: counts of missing offsets, by topic.
        leaderless: partitions of which nothing can be asked, because nobody leads them.
    """

    def __init__(self, context: Context, alias: str, *, is_lost: bool) -> None:
        self._context, lake = context, context.lake
        self._alias = alias
        self.is_asked = not is_lost and not context.config.cluster(alias).is_lake
        self.recorded = newest_topics(lake, alias, "source")
        self.removed = read_removed_ranges(lake, alias)
        self.erased = read_erased_ranges(lake, alias)
        self.explained = count_explained_offsets(lake, alias)
        self.leaderless: frozenset[TopicPartition] = frozenset()

    @property
    def ids(self) -> dict[str, str]:
        """The recorded ids of the topics."""
        return {name: topic.topic_id for name, topic in self.recorded.items()}

    @cached_property
    def default_cleanup(self) -> str:
        """The policy of topics that set none, or "" if unknown."""
        if not self.is_asked:
            return ""
        admin, recorded = self._context.admin(self._alias), self.recorded
        return admin.default_cleanup(
            [t for t in admin.topic_names() if t in recorded and recorded[t].inherits_cleanup_policy]
        )

    def find_leaderless(self, topics: Iterable[str]) -> None:
        """Find and log the leaderless partitions of topics."""
        if not self.is_asked:
            return
        _, self.leaderless = describe_with_leaders(self._context.admin(self._alias), set(topics))
        if self.leaderless:
            log.warning("verify.no_leader source=%s partitions=%s", self._alias, format_partitions(self.leaderless))

    def available_ranges(self, sources: Iterable[SourcePartition]) -> dict[SourcePartition, OffsetRange]:
        """Return the ranges that the source still holds complete, of partitions with a leader."""
        led = [s for s in sources if TopicPartition(s.topic, s.partition) not in self.leaderless]
        admin = self._context.admin(self._alias)
        return read_available_ranges(admin, self.recorded, led, default_cleanup=self.default_cleanup)
