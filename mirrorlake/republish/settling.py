"""Compare a flow's remote topics with those its ledger knows, and settle those that were lost as a person chose (law F)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin, TopicState
from mirrorlake.kafka.remotes import describe_surely
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.observed import Observations
from mirrorlake.lake.rows import position_row
from mirrorlake.lake.schema import POSITIONS
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.remotes import (
    ACCEPT_EMPTY,
    BEGUN_AGAIN,
    Choice,
    HeldTopic,
    Remote,
    Settled,
    held_topics,
    known_id,
    settle,
)

Positions = Mapping[SourcePartition, int]


def look_at_remotes(
    flow: FlowConfig, target: ClusterAdmin, known: Mapping[str, Remote], positions: Positions
) -> tuple[list[HeldTopic], dict[str, TopicState]]:
    """Return the remote topics that were lost, and those that are there, of what the flow carries and has sent.

    Raises:
        ClusterError: the target does not answer.
    """
    sent = [source for source, at in positions.items() if at > 0 and flow.carries(source.topic)]
    states = describe_surely(target, {flow.remote_topic(source.topic) for source in sent})
    held = held_topics(
        flow=flow.name,
        target=flow.target,
        known=known,
        positions=sent,
        found={name: known_id(state.topic_id) for name, state in states.items()},
        remote_topic=flow.remote_topic,
    )
    return held, states


class Settling:
    """Settle the remote topics of one flow while it is taken over.

    Args:
        lake: where new lives of remote topics are recorded, so that look-ups leave earlier ones out.
        target: the target's admin.
        flow: the flow.
        choices: what a person chose.
        make: makes the remote topics of source partitions that are missing.
        now: the clock, in UTC.
    """

    def __init__(
        self,
        lake: Lake,
        target: ClusterAdmin,
        flow: FlowConfig,
        *,
        choices: Iterable[Choice],
        make: Callable[[list[SourcePartition]], None],
        now: Callable[[], datetime],
    ) -> None:
        self._lake = lake
        self._target = target
        self._flow = flow
        self._choices = tuple(choices)
        self._make = make
        self._now = now

    def settle(self, known: Mapping[str, Remote], positions: Positions) -> Settled:
        """Decide what is claimed; lost topics that a person has chosen for are there afterwards.

        The lake learns of a new life before the ledger does: what is known of the old one no longer counts in between.

        Raises:
            ClusterError: the target does not answer, or refuses to make a topic.
        """
        flow = self._flow
        held, states = look_at_remotes(flow, self._target, known, positions)
        waiting = [one for one in held if not any(choice.settles(one) for choice in self._choices)]
        # Chosen for, or under a new name after an edit of `policy`: a claim names the topic that its positions hold for.
        left = {one.remote for one in waiting} | states.keys()
        missing = [s for s, at in positions.items() if at > 0 and flow.carries(s.topic)]
        missing = [source for source in missing if flow.remote_topic(source.topic) not in left]
        if missing:
            self._make(missing)
            states |= describe_surely(self._target, {flow.remote_topic(source.topic) for source in missing})
        if held:
            self._record(held, states)
        settled = settle(
            held=held,
            choices=self._choices,
            known=known,
            positions=positions,
            found={name: known_id(state.topic_id) for name, state in states.items()},
            remote_topic=self._flow.remote_topic,
        )
        self._record_beginnings(settled, positions)
        return settled

    def _record(self, held: Iterable[HeldTopic], states: Mapping[str, TopicState]) -> None:
        names = {one.remote for one in held}
        seen = Observations(self._lake, now=self._now)
        there = {name: state for name, state in states.items() if name in names}
        seen.lives(
            self._flow.target,
            {one.remote: one.known for one in held},
            there,
            self._target.configs(there),
        )

    def _record_beginnings(self, settled: Settled, positions: Positions) -> None:
        """Record the first offset that the new topics hold; what comes before it is no longer due there, or due again."""
        at, flow = self._now(), self._flow
        begins = {
            source: position if choice.action == ACCEPT_EMPTY else 0
            for one, choice in settled.chosen
            for source, position in positions.items()
            if source.topic in one.topics
        }
        self._lake.append_rows(
            POSITIONS,
            [
                position_row(flow.source, source, BEGUN_AGAIN, position, at, flow=flow.name)
                for source, position in sorted(begins.items())
            ],
        )
