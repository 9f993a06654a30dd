"""Find remote topics that were deleted or created again on the target, and record a person's choice for them (law F)."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.kafka import ClusterAdmin, TopicState, describe_with_retry
from mirrorlake.lake import Control
from mirrorlake.model.control import Subject
from mirrorlake.model.ledger import SentPositions
from mirrorlake.model.plan import Note
from mirrorlake.model.remotes import ACCEPT_EMPTY, SEND_AGAIN, LostTopic, detect_lost_topics, known_id
from mirrorlake.republish.fencing import read_last_records, read_sent_positions


def inspect_remote_topics(
    flow: FlowConfig, target: ClusterAdmin, known: SentPositions
) -> tuple[list[LostTopic], dict[str, TopicState]]:
    """Return the lost and the existing remote topics among those that the flow carries and has sent to."""
    remotes = {
        topic: flow.remote_topic(topic) for topic in {source.topic for source in known.positions} if flow.carries(topic)
    }
    sent = [source for source, at in known.positions.items() if at > 0 and source.topic in remotes]
    states = describe_with_retry(target, {remotes[source.topic] for source in sent})
    lost_topics = detect_lost_topics(
        flow=flow.name,
        target=flow.target,
        known=known.remotes,
        positions=sent,
        found={name: known_id(state.topic_id) for name, state in states.items()},
        remote_topic=remotes.__getitem__,
    )
    return lost_topics, states


def find_lost_topics(context: Context, flow: FlowConfig) -> list[LostTopic]:
    """Find the remote topics of a flow that differ from its ledger's and wait for a choice."""
    return inspect_remote_topics(flow, context.admin(flow.target), read_sent_positions(context, flow))[0]


def list_renamed_topics(context: Context, flow: FlowConfig) -> list[Note]:
    """List the remote topics that a changed policy leaves, each with what its source topic begins with in the new one."""
    sent, notes = read_sent_positions(context, flow), list[Note]()
    start = "its first record" if flow.start.kind == "earliest" else f"its start ({flow.start.plain()})"
    for topic, remote in sorted(sent.renamed.items()):
        if flow.carries(topic):
            begin = "where it ended there" if topic in sent.remotes else start
            reason = f"{topic} goes to {flow.remote_topic(topic)} from now on, from {begin}"
            notes.append(Note(where=flow.target, kind="remote topic", name=remote.name, reason=reason))
    return notes


def read_owner(context: Context, flow: FlowConfig) -> str:
    """Read the owner of a flow's newest claim, or return "" without a claim."""
    claims = (one.claim for one in read_last_records(context, flow).values() if one)
    newest = max(claims, key=lambda claim: claim.epoch, default=None)
    return newest.owner if newest is not None else ""


def resolve_lost_topic(
    control: Control, flow: FlowConfig, topic: str | None, lost_topics: Iterable[LostTopic], *, send_again: bool
) -> LostTopic | None:
    """Record a person's choice for a lost remote topic; the flow carries it out at its next claim.

    `topic` is the remote topic, or a source topic that goes there. Returns None if the same choice was made before and
    carried out.

    Raises:
        UsageError: no topic is named, it is not lost, or its log was truncated and it still has records.
    """
    lost_topics, action = list(lost_topics), SEND_AGAIN if send_again else ACCEPT_EMPTY
    lost_topic = next((one for one in lost_topics if topic in (one.remote, *one.topics)), None)
    if lost_topic is not None and lost_topic.is_truncated:
        raise UsageError(
            f"{lost_topic.cause}",
            consequence=f"{action} needs an empty topic: here new records would get offsets of lost ones; nothing was changed",
            remedy=lost_topic.remedy,
            flow=flow.name,
        )
    if lost_topic is not None:
        subject = Subject(kind="remote", name=lost_topic.remote, flow=flow.name)
        control.append(action, subject, value={"known": lost_topic.known})
        return lost_topic
    names = {topic, flow.remote_topic(topic)} if topic and flow.carries(topic) else {topic}
    before = control.state().choices
    if any(one.flow == flow.name and one.remote in names and one.action == action for one in before):
        return None
    lost = ", ".join(one.remote for one in lost_topics) or "none; `mirrorlake status` shows topics that wait"
    raise UsageError(
        f"{topic} of {flow.name} was not lost on {flow.target}" if topic else "no topic is named",
        consequence="nothing was changed",
        remedy=f"name a topic that waits for a choice: {lost}",
        flow=flow.name,
    )
