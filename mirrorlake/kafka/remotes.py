"""Check whether remote topics are still those that a ledger knows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from mirrorlake.errors import RemoteTopicLost
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.errors import wait_until
from mirrorlake.kafka.topic_metadata import TopicState
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.remotes import LostTopic, is_different_topic, known_id, truncated_id

# A broker learns of a new topic a moment after the controller has created it.
_RETRY_TIMEOUT_S = 2.0


def describe_with_retry(admin: ClusterAdmin, names: Iterable[str]) -> dict[str, TopicState]:
    """Describe topics as `ClusterAdmin.describe` does; retry missing ones until their absence is certain."""
    wanted = set(names)
    found: dict[str, TopicState] = {}

    def describe() -> bool:
        found.update(admin.describe(wanted - found.keys()))
        return wanted == found.keys()

    wait_until(describe, timeout_s=_RETRY_TIMEOUT_S, interval_s=0.2)
    return found


def check_topic_ids(admin: ClusterAdmin, ids: Mapping[str, str], *, flow: str) -> None:
    """Check that each remote topic exists with the id that the ledger knows (law F); an empty id is not compared."""
    found = describe_with_retry(admin, ids)
    for name, topic_id in sorted(ids.items()):
        now = known_id(found[name].topic_id) if name in found else None
        if now is None or is_different_topic(topic_id, now):
            raise lost_topic_error(
                LostTopic(flow=flow, target=admin.alias, remote=name, topics=(), known=topic_id, found=now)
            )


def find_truncated_topics(
    admin: ClusterAdmin, sent: Mapping[TopicPartition, int], ids: Mapping[str, str]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Find remote topics whose log ends before what was sent. Return by partition the log's end, and the end of what was sent.

    `sent` is the offset after the last confirmed record, `ids` the topics' ids; topics that are gone or have another id are
    omitted. A high watermark comes from a leader that knows it (KIP-207), and a confirmed record lies below it, so only a
    truncated log ends before it. A deposed leader that has not noticed reports an old end, and a person deletes what is found
    here: so partitions with missing records are read again, over new connections.

    Partitions that do not answer are omitted: what is written to them is compared before its commit.
    """
    states = admin.describe({tp.topic for tp in sent if ids.get(tp.topic)})
    expected = {
        tp: end
        for tp, end in sent.items()
        if (state := states.get(tp.topic)) is not None
        and known_id(state.topic_id) == ids[tp.topic]
        and tp.partition not in state.leaderless
    }
    short = _shorter_logs(admin, expected)
    again, until = admin.reconnect() if short else admin, time.monotonic() + _RETRY_TIMEOUT_S
    while short and time.monotonic() < until:
        time.sleep(_RETRY_TIMEOUT_S / 4)
        still = _shorter_logs(again, {tp: expected[tp] for tp in short})
        # The first read tells the truncation: transaction markers may follow it later.
        short = {tp: end for tp, end in short.items() if tp in still}
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for tp, end in short.items():
        found.setdefault(tp.topic, {})[tp.partition] = end, expected[tp]
    return found


def _shorter_logs(admin: ClusterAdmin, sent: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {tp: end for tp, end in admin.topic_metadata.high_watermarks(sent).items() if end < sent[tp]}


def truncated_topic_error(
    flow: str, target: str, remote: str, topic_id: str, missing: Mapping[int, tuple[int, int]]
) -> RemoteTopicLost:
    known = truncated_id(topic_id, missing)
    return lost_topic_error(LostTopic(flow=flow, target=target, remote=remote, topics=(), known=known, found=topic_id))


def lost_topic_error(*topics: LostTopic) -> RemoteTopicLost:
    """Return the refusal to continue without a person's choice, for one or several topics of a flow."""
    first = topics[0]
    return RemoteTopicLost(
        "; ".join(one.cause for one in topics),
        consequence="nothing is sent to it until you choose; the relay keeps its records, and other topics continue",
        remedy="; ".join(one.remedy for one in topics),
        flow=first.flow,
        alias=first.target,
        topic=first.remote,
        cut=first.known if first.is_truncated else None,
    )
