"""Compare a flow's remote topics with those its ledger knows, and settle those that were lost as a person chose (law F)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, TopicState, describe_surely
from mirrorlake.lake import POSITIONS, Lake, Observations, SourceTopics, position_row
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
    sharing,
    whole_id,
)
from mirrorlake.topics import RemoteTopics

Positions = Mapping[SourcePartition, int]


def look_at_remotes(
    flow: FlowConfig, target: ClusterAdmin, known: Mapping[str, Remote], positions: Positions
) -> tuple[list[HeldTopic], dict[str, TopicState]]:
    """Return the remote topics that were lost, and those that exist, of what the flow carries and has sent."""
    remotes = {
        topic: flow.remote_topic(topic) for topic in {source.topic for source in positions} if flow.carries(topic)
    }
    sent = [source for source, at in positions.items() if at > 0 and source.topic in remotes]
    states = describe_surely(target, {remotes[source.topic] for source in sent})
    held = held_topics(
        flow=flow.name,
        target=flow.target,
        known=known,
        positions=sent,
        found=_ids(states),
        remote_topic=remotes.__getitem__,
    )
    return held, states


def settle_remotes(
    lake: Lake,
    target: ClusterAdmin,
    flow: FlowConfig,
    *,
    known: Mapping[str, Remote],
    positions: Positions,
    choices: Iterable[Choice],
    remotes: RemoteTopics,
    topics: SourceTopics,
    at: datetime,
) -> Settled:
    """Decide what a new owner of the flow claims; lost topics that a person has chosen for exist afterwards.

    The lake learns of a new life before the ledger does: what is known of the old one no longer counts in between. `known`
    and `positions` are those of the ledger; `remotes` makes what is missing.
    """
    choices = tuple(choices)
    held, states = look_at_remotes(flow, target, known, positions)
    waiting = {one.remote for one in held if not any(choice.settles(one) for choice in choices)}
    # Chosen for, or under a new name after an edit of `policy`: a claim names the topic that its positions hold for.
    missing = [
        source
        for source, position in positions.items()
        if position > 0
        and flow.carries(source.topic)
        and flow.remote_topic(source.topic) not in waiting | states.keys()
    ]
    if missing:
        remotes.ensure(missing, topics.known, mirrored_before={source.topic for source in positions})
        states |= describe_surely(target, {flow.remote_topic(source.topic) for source in missing})
    if others := [one for one in held if not one.is_cut]:
        found = {one.remote: states[one.remote] for one in others if one.remote in states}
        seen = Observations(lake, now=lambda: at)
        seen.lives(flow.target, {one.remote: whole_id(one.known) for one in others}, found, target.configs(found))
    settled = settle(
        held=held,
        choices=choices,
        known=known,
        positions=positions,
        found=_ids(states),
        remote_topic=flow.remote_topic,
    )
    # The first offset that a new topic holds: what comes before it is no longer due there, or due again.
    begins = {
        source: position if choice.action == ACCEPT_EMPTY else 0
        for one, choice in settled.chosen
        for topics in [sharing(one, known, flow.remote_topic)]
        for source, position in positions.items()
        if source.topic in topics
    }
    lake.append_rows(
        POSITIONS,
        [
            position_row(flow.source, source, BEGUN_AGAIN, position, at, flow=flow.name)
            for source, position in sorted(begins.items())
        ],
    )
    return settled


def _ids(states: Mapping[str, TopicState]) -> dict[str, str]:
    return {name: known_id(state.topic_id) for name, state in states.items()}
