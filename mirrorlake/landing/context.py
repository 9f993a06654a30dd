"""Compare a source with its relay before a start, and account for what was landed after it. Both drivers land from here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime

from mirrorlake.errors import LanderReplaced
from mirrorlake.kafka import (
    ClusterAdmin,
    TopicState,
    describe_with_leaders,
    format_partitions,
    leaderless_error,
)
from mirrorlake.lake import (
    FencedRelayWriter,
    Lake,
    LandedPositions,
    LandingLog,
    OffsetAccounts,
    SourceTopics,
    kafka_positions,
    land_checkpoint_path,
    landed_positions,
)
from mirrorlake.landing.settings import LandSettings
from mirrorlake.landing.source_state import SourceState, ended_generations, inspect_source
from mirrorlake.landing.start import (
    checkpoint_offsets,
    forget_lost_positions,
    read_landing_state,
    refuse_other_cluster,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.timing import timing

log = logging.getLogger(__name__)


class LandingContext:
    """Know the source and the relay of one lander.

    `backlog` are the offsets per partition that were not landed at the start. `log` follows what this lander's tasks land; None
    while a query lands. `landing_at` is the time of a batch that is being written and may be landed.
    """

    def __init__(
        self,
        lake: Lake,
        admin: ClusterAdmin,
        settings: LandSettings,
        *,
        now: Callable[[], datetime],
        writer: FencedRelayWriter | None = None,
    ) -> None:
        self.lake = lake
        self.admin = admin
        self.settings = settings
        self.now = now
        self.topics = SourceTopics(lake, settings.alias)
        self.writer = writer or FencedRelayWriter(lake, settings.alias)
        self.accounts = OffsetAccounts(lake, self.topics, alias=settings.alias, now=now)
        self.current: Mapping[TopicPartition, SourcePartition] = {}
        self.backlog: Mapping[TopicPartition, int] = {}
        self.leaderless: frozenset[TopicPartition] = frozenset()
        # A topic that appears after the first start is landed from its beginning, even if it is the first topic.
        self.is_drained = self._has_begun = False
        self.log: LandingLog | None = None
        self.batches = 0
        self.landed_until: datetime | None = None
        self.landing_at: datetime | None = None

    @property
    def checkpoint_path(self) -> str:
        return land_checkpoint_path(self.lake, self.settings.alias, self.writer.number)

    # -- before a start -------------------------------------------------------------------------------------------

    def prepare(
        self, *, once: bool, rebuild: bool, is_live: bool, may_resume: Callable[[], bool] = lambda: True
    ) -> dict[TopicPartition, int] | None:
        """Compare relay, commits and source. Return the offsets to start at, or None if a query resumes from its checkpoint location.

        Raises:
            LanderReplaced: another lander has claimed the relay.
        """
        alias, writer = self.settings.alias, self.writer
        writer.refresh()
        cluster_id = self.admin.cluster_id()
        refuse_other_cluster(alias, writer.cluster_id, cluster_id)
        self.topics.load()
        rebuild = forget_lost_positions(self.lake, alias, writer) or rebuild
        resumes = not (is_live or rebuild)
        landed, known = read_landing_state(self.lake, alias, writer, self.topics, resumes=resumes)
        read = writer.history.read_to
        if read is None:
            # Read before recreated topics are recorded: offsets of an earlier generation mean nothing in the new one.
            read = {} if rebuild else checkpoint_offsets(self.lake, alias, writer.number, self.topics.known)
        names = self.settings.list_topics(self.admin)
        states, self.leaderless = describe_with_leaders(self.admin, names, timeout_s=timing().election_timeout_s)
        if self.leaderless:
            log.warning("land.no_leader source=%s partitions=%s", alias, format_partitions(self.leaderless))
            if not is_live:
                # Spark's Kafka source reads all partitions of a topic or none.
                raise leaderless_error(alias, self.leaderless, landed="nothing of this source was landed")
        recreated = self.topics.recreated(states)
        # Claimed first, recorded second: a crash in between cannot give old offsets to a new generation of a topic.
        if recreated:
            landed, read = self._claim(cluster_id, landed, read)
        # Recorded before the new generations: a start that fails later would leave the old ones' ends unexplained (law E).
        self.accounts.record_new_gaps(ended_generations(landed.reached, recreated))
        self.topics.observe(states, self.admin, at=self.now(), read_leader_epochs=self.leader_epochs)
        # A missing record proves neither a truncation nor a transaction where the log cleaner runs.
        bare = [name for name in states if self.topics.known[name].inherits_cleanup_policy]
        self.topics.default_cleanup = self.admin.default_cleanup(bare)
        for name in recreated:
            generation = self.topics.known[name].generation
            log.warning("land.topic_recreated source=%s topic=%s generation=%s", alias, name, generation)
        source = self._inspect_source(names, landed, read)
        can_resume = writer.is_claimed and source.is_whole and not (rebuild or recreated)
        self.is_drained = can_resume and source.is_drained and landed.is_accounted
        self.landed_until = writer.newest_landed_at()
        resumes = resumes and known.has_progress
        resumes = resumes and source.can_resume_from(kafka_positions(known.planned or {}))
        if can_resume and ((once and self.is_drained) or (resumes and may_resume())):
            writer.keeps_number = True
            writer.record_cluster(cluster_id)
            self.topics.record_truncations({}, source.leader_epochs, self.now())
            self.accounts.resume(landed, [])
            return None
        # The claim fences older landers, so the positions read after it stay true.
        if not recreated:
            before = landed, read
            landed, read = self._claim(cluster_id, landed, read)
            if (landed, read) != before:
                source = self._inspect_source(names, landed, read)
                self.landed_until = writer.newest_landed_at()
        self.current = source.current
        self._record_skipped_ranges(source)
        self.accounts.resume(landed, source.expired_gaps)
        is_first = not (landed.reached or self._has_begun)
        first = self.settings.first_offsets(self.admin, sorted(source.current)) if is_first else {}
        start = source.start_offsets(first)
        self.accounts.open_accounts(self.key_by_source(start))
        self._has_begun = True
        self.backlog = {tp: max(0, source.high_watermarks[tp] - offset) for tp, offset in start.items()}
        return start

    def _claim(
        self, cluster_id: str, landed: LandedPositions, read: Mapping[SourcePartition, int]
    ) -> tuple[LandedPositions, Mapping[SourcePartition, int]]:
        """Claim the relay with the positions read so far. Return the landed and read positions as of the claim."""
        if self.writer.claim(cluster_id, read):
            landed = landed_positions(self.lake, self.settings.alias)
        return landed, self.writer.history.read_to or {}

    def _inspect_source(
        self, names: list[str], landed: LandedPositions, read: Mapping[SourcePartition, int]
    ) -> SourceState:
        seen = landed.reached, read, self.leaderless
        return inspect_source(self.lake, self.admin, self.settings, self.topics, names, *seen)

    def _record_skipped_ranges(self, source: SourceState) -> None:
        """Persist the gaps and log truncations that this start skips.

        Truncations are recorded last: a lander that dies earlier finds them again at its next start.
        """
        source.log_gaps(self.settings.alias)
        self.accounts.record_new_gaps([*source.expired_gaps, *source.truncated_gaps])
        self.accounts.write_positions({gap.source: (gap.last_offset + 1, None) for gap in source.expired_gaps})
        self.topics.record_truncations(source.truncations, source.leader_epochs, self.now())

    # -- of a source that is landed -------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, TopicState]:
        return self.admin.describe(self.settings.list_topics(self.admin))

    def leader_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self.admin.high_watermarks_and_epochs(tp for tp in partitions if tp not in self.leaderless)
        return {tp: epoch for tp, (_, epoch) in found.items() if epoch >= 0}

    def key_by_source(self, offsets: Mapping[TopicPartition, int]) -> dict[SourcePartition, int]:
        return {self.current[tp]: offset for tp, offset in offsets.items()}

    @property
    def read_to(self) -> dict[SourcePartition, int]:
        """The next offsets to read by the relay's commits, also of partitions that the start left out; present generations only."""
        known, read = self.topics.known, self.writer.history.read_to or {}
        return {
            source: offset
            for source, offset in read.items()
            if source.topic in known and known[source.topic].generation_of(source.partition) == source.generation
        }

    # -- while it lands -------------------------------------------------------------------------------------------

    def update_landed(self) -> None:
        newest = self.log.newest_landed_at() if self.log is not None else None
        if newest is not None and newest != self.landed_until:
            self.landed_until = newest
            self.batches += 1

    def account_for_landed(self) -> None:
        """Account for what was landed since the last call. The successor of a fenced lander accounts for its batches."""
        if self.batches or self.accounts.is_due:
            with suppress(LanderReplaced):
                self.accounts.flush_accounts(self.landed_until or self.now(), self._newest_landed_at)

    def _newest_landed_at(self) -> datetime | None:
        newest = None if self.log is None else self.log.newest_landed_at()
        return max(filter(None, (newest, self.landing_at, self.landed_until)), default=None)
