"""Status: source end, landed, republished and lag per flow and partition, at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.ledger_reader import LedgerReader
from mirrorlake.lag.status_model import FlowStatus, PartitionStatus
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landed import LandedPositions, landed_positions
from mirrorlake.lake.metadata import SourceTopics
from mirrorlake.lake.read_to import read_to, standing
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.parked import Parked
from mirrorlake.republish.fencing import merged_positions, merged_remotes, read_lanes
from mirrorlake.republish.settling import look_at_remotes
from mirrorlake.topics.sources import TopicSource


def flow_status(
    flow: FlowConfig,
    *,
    source: TopicSource,
    target: ClusterAdmin,
    ledger: LedgerReader,
    lake: Lake,
    now: Callable[[], datetime],
    paused: Callable[[str], object] = lambda _: None,
    parked: tuple[Parked, ...] = (),
) -> FlowStatus:
    """Compare the source's ends, the relay and the ledger of a flow.

    Raises:
        ClusterError: source or target do not answer.
    """
    topics = {name: state for name, state in source.describe(source.topic_names()).items() if flow.carries(name)}
    partitions = [TopicPartition(name, p) for name, state in topics.items() for p in range(state.partitions)]
    ends = source.latest(partitions)
    landed = (
        landed_positions(lake, flow.source)
        if lake.exists(lake.relay_location(flow.source))
        else LandedPositions({}, {})
    )
    seen = read_to(lake, flow.source)
    last = read_lanes(ledger, target, flow.ledger_topic)
    republished = merged_positions(last)
    held, _ = look_at_remotes(flow, target, merged_remotes(last), republished)
    waiting = {topic for one in held for topic in one.topics}
    newest = _newest_lives(landed.reached)
    # A life that begins in the middle of a log is rare, and what tells is looked up only then.
    is_new = any(key.generation > 1 and key not in republished for key in newest.values())
    cuts = SourceTopics(lake, flow.source).load() if is_new else {}
    rows = []
    for tp in sorted(partitions):
        key = newest.get(tp, SourcePartition(tp.topic, 1, tp.partition))
        done = republished.get(key, cuts[tp.topic].starts_at(tp.partition) if tp.topic in cuts else 0)
        reached, sent = standing(holds=landed.reached.get(key), seen=seen.get(tp, 0), end=ends[tp], sent=done)
        lag = max(0, ends[tp] - sent)
        rows.append(
            PartitionStatus(
                topic=tp.topic,
                partition=tp.partition,
                source_end=ends[tp],
                landed=reached,
                republished=sent,
                offset_lag=lag,
                time_lag_ms=0 if lag == 0 else _time_lag(lake, flow.source, key, sent, now()),
                verdict="held"
                if tp.topic in waiting
                else "paused"
                if paused(tp.topic)
                else _verdict(lag, is_landed=key in landed.reached),
            )
        )
    return FlowStatus(flow=flow.name, partitions=tuple(rows), observed_at=now(), held=tuple(held), parked=parked)


def _verdict(lag: int, *, is_landed: bool) -> str:
    return "in_step" if lag == 0 else "behind" if is_landed else "not_started"


def _newest_lives(reached: Mapping[SourcePartition, int]) -> dict[TopicPartition, SourcePartition]:
    newest: dict[TopicPartition, SourcePartition] = {}
    for source in sorted(reached):
        # Sorted by topic and life: a partition keeps the newest it has.
        newest[TopicPartition(source.topic, source.partition)] = source
    return newest


_OLDEST = """
    SELECT min(CASE WHEN `offset` >= :position THEN unix_millis(timestamp) END) AS waiting,
        max(unix_millis(timestamp)) AS last
    FROM {relay}
    WHERE topic = :topic AND generation = :generation AND partition = :partition AND `offset` >= :position - 1
"""


def _time_lag(lake: Lake, alias: str, key: SourcePartition, position: int, now: datetime) -> int | None:
    """Return how old the oldest record is that the target lacks; None while nothing of the partition was landed.

    A record that is not even landed has no known timestamp; the last landed one bounds its age from above.
    """
    if not lake.exists(lake.relay_location(alias)):
        return None
    [row] = lake.ask(
        _OLDEST,
        relay=alias,
        part=RelayPart({key: position - 1}),
        topic=key.topic,
        generation=key.generation,
        partition=key.partition,
        position=position,
    )
    oldest: Any = row.waiting if row.waiting is not None else row.last
    return None if oldest is None else max(0, int(now.astimezone(timezone.utc).timestamp() * 1000) - int(oldest))
