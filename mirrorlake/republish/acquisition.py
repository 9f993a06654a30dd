"""Acquire a flow: fence older owners, read their positions, decide which of them count, claim."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, stop_when_event_set, wait_random_exponential

from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka import ClusterAdmin, TopicState, describe_with_retry, find_truncated_topics
from mirrorlake.kafka.lane import LedgerReader, find_ends, is_contested
from mirrorlake.lake import CLUSTER_PROPERTY, POSITIONS, Audit, Lake, Observations, SourceTopics, position_row
from mirrorlake.model.checkpoint_scope import CheckpointScope
from mirrorlake.model.flow import SourcePartition, TopicPartition, furthest
from mirrorlake.model.ledger import Claim, SentPositions
from mirrorlake.model.remotes import (
    ACCEPT_EMPTY,
    BEGUN_AGAIN,
    LossResolution,
    LostTopic,
    Remote,
    base_id,
    find_sharing_topics,
    known_id,
    resolve_losses,
    truncated_id,
)
from mirrorlake.republish.fencing import FencedLanes, FlowClaims, fence
from mirrorlake.republish.ledger_tables import LedgerCopy
from mirrorlake.republish.lost_topics import inspect_remote_topics
from mirrorlake.republish.owned_flow import OwnedFlow
from mirrorlake.republish.relay_progress import RelayProgress
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.republish.start import (
    StreamLocation,
    check_generations,
    check_ledger,
    check_origin,
    check_slice,
    check_whole,
    choose_location,
)
from mirrorlake.republish.tenure import Tenure
from mirrorlake.topics import RemoteTopics

log = logging.getLogger(__name__)

NO_TRUNCATIONS: Mapping[str, str] = {}
# Four or five attempts against an older owner that fences its lanes again.
_CLAIM_TIMEOUT_S = 120.0

Acquired = TypeVar("Acquired")


def retry_contested(claim: Callable[[], Acquired], *, flow: str, stop: threading.Event) -> Acquired:
    """Claim a flow; retry, with growing waits, while its older owner fences the claimant."""
    return Retrying(
        retry=retry_if_exception(is_contested),
        stop=stop_after_delay(_CLAIM_TIMEOUT_S) | stop_when_event_set(stop),
        wait=wait_random_exponential(multiplier=0.2, max=2),
        before_sleep=lambda _: log.info("republish.claims_again flow=%s", flow),
        reraise=True,
    )(claim)


class FlowAcquisition:
    """Acquire one flow, once; its methods return the flow with its new owner.

    `waiting` are topics that a stream skips for now; it does not resume from its checkpoint location once they are sent.
    """

    def __init__(
        self,
        lake: Lake,
        target: ClusterAdmin,
        settings: RepublishSettings,
        audit: Audit,
        progress: RelayProgress,
        tenure: Tenure,
        *,
        waiting: Collection[str] = (),
    ) -> None:
        flow = settings.flow
        self._lake = lake
        self._target = target
        self._settings = settings
        self._flow = flow
        self._audit = audit
        self._progress = progress
        self._tenure = tenure
        self._waiting = frozenset(waiting)
        self._topics = SourceTopics(lake, flow.source)
        self._topics.load()
        if settings.relay_slice is not None:
            self._topics.known |= settings.relay_slice.topics
        self._copy = LedgerCopy(lake, flow)
        self._copy.load()
        self._remotes = RemoteTopics(
            target,
            flow,
            audit,
            lake,
            all_flows=settings.all_flows,
            filled=None if settings.relay_slice else settings.filled_topics,
        )
        cluster_id = lake.properties(lake.relay_location(flow.source)).get(CLUSTER_PROPERTY, "")
        claim = Claim(flow=flow.name, lanes=flow.lanes, epoch=self._copy.copied_epoch, cluster_id=cluster_id)
        self._spec = settings.lane_spec(claim, self._remotes)

    def acquire_to_continue(
        self,
        *,
        streams: bool,
        rebuild: bool,
        restore_ledger: bool,
        truncated: Mapping[str, str],
    ) -> tuple[OwnedFlow, StreamLocation]:
        """Claim the flow at its ledger's positions, and repair the lake's copies of the ledger.

        `truncated` are remote topics whose logs a lane found truncated, each with the id that the claim gives it.

        A flow that does not stream claims the number of a checkpoint location that it leaves empty: a later stream begins
        with a backfill.

        Raises:
            LaneFenced, LedgerLost, CheckpointLost, SafetyError: the flow cannot be owned, or not without a loss. After a
                contested claim, another `FlowAcquisition` may succeed.
        """
        self._tenure.require_claimable()
        with fence(self._target, self._spec, self._flow.remote_topic, self._tenure.new_owner()) as lanes:
            check_origin(self._flow, lanes.last, self._spec.claim.cluster_id)
            check_generations(self._flow, lanes.sent.positions, self._topics.known)
            check_ledger(self._flow, lanes.last, self._copy, restore=restore_ledger)
            if self._settings.relay_slice is not None:
                check_slice(self._flow, lanes, self._settings.selection)
            known = self._add_copied(lanes.sent, restore=restore_ledger)
            sent, remotes = self._find_truncations(known.remotes, lanes, truncated)
            resolution = self._resolve_lost_topics(replace(known, remotes=remotes))
            location = StreamLocation(lanes.checkpoint_location + 1, "")
            if streams:
                location = choose_location(
                    self._lake, self._flow, lanes, self._scope(resolution), rebuild=rebuild or resolution.sends_again
                )
            claims = self._claim(lanes, resolution, location.number)
            # The ends of a topic that waits or starts again do not count.
            going_on = resolution.continuing(remotes)
            claims.ends.update({place: end for place, end in sent.items() if place.topic in going_on})
        return self._build_owned_flow(claims, resolution), location

    def acquire_for_resend(self) -> OwnedFlow:
        """Claim the flow for a redrive, ignoring the ledger's positions.

        Raises:
            LedgerLost: the ledger of its redrives lacks its last full record.
        """
        with fence(self._target, self._spec, self._flow.remote_topic, self._tenure.new_owner()) as lanes:
            check_whole(self._flow, lanes.last)
            resolution = self._resolve_lost_topics(replace(lanes.sent, positions={}))
            claims = self._claim(lanes, resolution, lanes.checkpoint_location + 1)
        return self._build_owned_flow(claims, resolution)

    def _add_copied(self, sent: SentPositions, *, restore: bool) -> SentPositions:
        """Add positions that only the lake has: of a lost ledger, or in a topic whose name counts again since it was restored."""
        again = {topic for topic in sent.renamed.keys() - sent.remotes.keys() if self._flow.carries(topic)}
        if again:
            log.warning("republish.renamed flow=%s topics=%s", self._flow.name, ",".join(sorted(again)))
        elif not restore:
            return sent
        remotes = {topic: one for topic, one in self._copy.remotes().items() if restore or topic in again}
        copied = {s: at for s, at in self._copy.positions().items() if restore or s.topic in again}
        return replace(sent, remotes={**remotes, **sent.remotes}, positions=furthest((sent.positions, copied)))

    def _resolve_lost_topics(self, sent: SentPositions) -> LossResolution:
        flow, remote_topic = self._flow, self._flow.remote_topic
        known, positions = sent.remotes, sent.positions
        lost_topics, states = inspect_remote_topics(flow, self._target, sent)
        waiting = {
            one.remote for one in lost_topics if not any(choice.resolves(one) for choice in self._settings.choices)
        }
        # Resolved by a choice: a claim names the topics that its positions are of.
        missing = [
            source
            for source, position in positions.items()
            if position > 0 and flow.carries(source.topic) and remote_topic(source.topic) not in waiting | states.keys()
        ]
        if missing:
            # Such a topic waits when it is made ready to be sent.
            conflicts = dict[str, MirrorlakeError]()
            mirrored = {source.topic for source in positions}
            self._remotes.ensure(missing, self._topics.known, mirrored_before=mirrored, conflicts=conflicts)
            remotes = {remote_topic(source.topic) for source in missing} - conflicts.keys()
            states |= describe_with_retry(self._target, remotes)
        ids = {name: known_id(state.topic_id) for name, state in states.items()}
        resolution = resolve_losses(
            lost=lost_topics,
            choices=self._settings.choices,
            known=known,
            positions=positions,
            found=ids,
            remote_topic=remote_topic,
        )
        self._record_incarnations(lost_topics, resolution, states, known, positions)
        topics = {source.topic for source, at in resolution.positions.items() if at > 0} - resolution.waiting
        self._remotes.expect(
            resolution.remotes[topic] for topic in topics & resolution.remotes.keys() if flow.carries(topic)
        )
        return resolution

    def _record_incarnations(
        self,
        lost_topics: Iterable[LostTopic],
        resolution: LossResolution,
        states: Mapping[str, TopicState],
        known: Mapping[str, Remote],
        positions: Mapping[SourcePartition, int],
    ) -> None:
        """Record new incarnations in the lake before the ledger: in between, no position of an old incarnation counts."""
        flow, at = self._flow, self._audit.now()
        if others := [one for one in lost_topics if not one.is_truncated]:
            found = {one.remote: states[one.remote] for one in others if one.remote in states}
            seen = Observations(self._lake, now=lambda: at)
            before = {one.remote: base_id(one.known) for one in others}
            seen.record_incarnations(flow.target, before, found, self._target.configs(found))
        # The first offset to send to the new topic: earlier ones are dropped (accepted as empty), or sent again from 0.
        begins = {
            source: position if choice.action == ACCEPT_EMPTY else 0
            for one, choice in resolution.chosen
            for topics in [find_sharing_topics(one, known, flow.remote_topic)]
            for source, position in positions.items()
            if source.topic in topics
        }
        rows = [
            position_row(flow.source, source, BEGUN_AGAIN, position, at, flow=flow.name)
            | {"target_topic": flow.remote_topic(source.topic)}
            for source, position in sorted(begins.items())
        ]
        self._lake.append(POSITIONS, rows)

    def _find_truncations(
        self, known: Mapping[str, Remote], lanes: FencedLanes, truncated: Mapping[str, str]
    ) -> tuple[dict[TopicPartition, int], dict[str, Remote]]:
        """Return the offsets after the last records sent to the remote topics, and these topics with the ids to claim."""
        ids = {one.name: one.topic_id for topic, one in known.items() if self._flow.carries(topic)}
        ends = self._copy.ends(ids)
        # The table may lack the last records of an owner that died.
        for record in filter(None, lanes.last.values()):
            same = {one.name for one in record.remotes.values() if ids.get(one.name) == one.topic_id}
            for place, end in find_ends(run for run in record.runs if run.target.topic in same).items():
                ends[place] = max(ends.get(place, 0), end)
        found = {
            remote: truncated_id(ids[remote], lacking)
            for remote, lacking in find_truncated_topics(self._target, ends, ids).items()
        }
        found |= {remote: name for remote, name in truncated.items() if ids.get(remote) == base_id(name)}
        return ends, {topic: replace(one, topic_id=found.get(one.name, one.topic_id)) for topic, one in known.items()}

    def _scope(self, resolution: LossResolution) -> CheckpointScope:
        return CheckpointScope(self._settings.selection, self._settings.paused | resolution.waiting | self._waiting)

    def _claim(self, lanes: FencedLanes, resolution: LossResolution, checkpoint_location: int) -> FlowClaims:
        self._tenure.require_claimable(record.claim for record in lanes.last.values() if record)
        self._tenure.record_owner(lanes.owner)
        claims = lanes.claim(
            resolution,
            checkpoint_location=checkpoint_location,
            scope=self._scope(resolution),
            copied_seqs=self._copy.copied_seqs,
            copied_epoch=self._copy.copied_epoch,
        )
        self._tenure.record_claim(claims.claim)
        return claims

    def _build_owned_flow(self, claims: FlowClaims, resolution: LossResolution) -> OwnedFlow:
        flow, copy = self._flow, self._copy.owned_by(claims.claim.epoch)
        with LedgerReader(flow.target, flow.ledger_topic, self._settings.reader_options) as reader:
            missing = copy.repair(reader, self._target, sorted(claims.seqs))
        owned = OwnedFlow(
            lake=self._lake,
            settings=self._settings,
            topics=self._topics,
            remotes=self._remotes,
            copy=copy,
            claims=claims,
            resolution=resolution,
            progress=self._progress,
            tenure=self._tenure,
        )
        owned.count(self._tenure.find_uncounted(missing))
        return owned
