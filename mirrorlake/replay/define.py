"""Turn a replay request into a definition with exact offsets.

The relay's records in a range are found by file statistics, then by timestamps in the files that remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import TopicDenied, UsageError
from mirrorlake.lake import KnownTopic, Lake, RelayPart, newest_topics
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.replay import Definition, TimedRange, TopicThen, chain
from mirrorlake.replay.flows import NEVER_EXPIRES, flow_of
from mirrorlake.replay.request import NO_CONSENT, ReplayConsent, ReplayRequest
from mirrorlake.rules import Placer

_EVER = 2**62
_ASKED = pa.schema(
    {
        "topic": pa.string(),
        "generation": pa.int32(),
        "partition": pa.int32(),
        "begins": pa.int64(),
        "stops": pa.int64(),
    }
)
_COUNTED = """
    SELECT topic, generation, partition, count(*) AS records, min(offset) AS first, max(offset) AS last,
        min(unix_micros(timestamp)) AS oldest, max(unix_micros(timestamp)) AS newest
    FROM {relay} JOIN {asked} USING (topic, generation, partition)
    WHERE offset >= begins AND offset < stops
        AND unix_micros(timestamp) >= :since AND unix_micros(timestamp) < :until
    GROUP BY topic, generation, partition
"""
_HELD = """
    SELECT topic, generation, partition, min(offset) AS first, max(offset) AS last
    FROM {relay} GROUP BY topic, generation, partition
"""


Extent = Mapping[SourcePartition, tuple[int, int]]
"""The source partitions of a relay, with their first and last offset."""


def read_extent(context: Context, alias: str) -> Extent:
    """Return the extent of a cluster's relay. Raises UsageError: the cluster is unknown, or none of its records was landed."""
    context.config.cluster(alias)
    ends: dict[SourcePartition, tuple[int, int]] = {}
    if context.lake.exists(context.lake.relay_location(alias)):
        ends = _read_ends(context.lake, alias)
    if not ends:
        raise UsageError(
            f"the relay holds nothing of {alias}",
            consequence="nothing was sent",
            remedy=f"mirrorlake land --source {alias} --once, or name a cluster that was landed",
        )
    return ends


def _read_ends(lake: Lake, alias: str) -> dict[SourcePartition, tuple[int, int]]:
    """Read no record of a relay that lies in a folder."""
    log = lake.relay_log(alias)
    if log is None:
        rows = lake.query(_HELD, relay=alias)
        return {SourcePartition(r.topic, r.generation, r.partition): (r.first, r.last) for r in rows}
    ends: dict[SourcePartition, tuple[int, int]] = {}
    for file in log.files({}):
        first, last = ends.get(file.source, (file.first_offset, file.last_offset))
        ends[file.source] = min(first, file.first_offset), max(last, file.last_offset)
    return ends


def _spans_of(
    lake: Lake, request: ReplayRequest, topic: KnownTopic, held: Extent, since_ms: int | None, until_ms: int | None
) -> list[TimedRange]:
    """Return the requested spans, each with its record count and timestamps; omit partitions without a record."""
    asked: dict[SourcePartition, tuple[int, int]] = {}
    for source, (first, last) in held.items():
        limit = _limit(request, topic, source)
        if limit is not None:
            begins = max(first, limit[0])
            stops = last + 1 if limit[1] is None else min(last + 1, limit[1])
            if begins < stops:
                asked[source] = begins, stops
    if not asked:
        return []
    columns = {name: [getattr(source, name) for source in asked] for name in SOURCE_KEY}
    begins_at, stops_at = ([ends[place] for ends in asked.values()] for place in (0, 1))
    rows = lake.query(
        _COUNTED,
        relay=request.source,
        part=RelayPart(
            {source: begins for source, (begins, _) in asked.items()},
            others=False,
            ends={source: stops for source, (_, stops) in asked.items()},
        ),
        tables={"asked": pa.table({**columns, "begins": begins_at, "stops": stops_at}, schema=_ASKED)},
        since=-_EVER if since_ms is None else since_ms * 1000,
        until=_EVER if until_ms is None else until_ms * 1000,
    )
    return sorted(
        TimedRange(
            topic=row.topic,
            generation=row.generation,
            partition=row.partition,
            first=int(row.first),
            end=int(row.last) + 1,
            records=int(row.records),
            oldest_ms=int(row.oldest) // 1000,
            newest_ms=int(row.newest) // 1000,
        )
        for row in rows
    )


def define(
    context: Context,
    asked: ReplayRequest,
    name: str,
    *,
    target: str,
    into: str,
    leave: ReplayConsent = NO_CONSENT,
) -> Definition:
    config, now = context.config, context.now()
    held = read_extent(context, asked.source)
    if asked.through:
        config.flow(asked.through)
    start, end = asked.times(now=now)
    since, until = (None if at is None else int(at.timestamp() * 1000) for at in (start, end))
    topic = _topic(context, asked, held)

    spans = _spans_of(context.lake, asked, topic, held, since, until)
    if not spans:
        raise _outside(asked, held)
    newest = max(span.newest_ms for span in spans if span.newest_ms is not None)
    now_ms = int(now.timestamp() * 1000)
    definition = Definition(
        name=name,
        asked=asked.words(),
        source=asked.source,
        target=target,
        into=into,
        topic=TopicThen(name=topic.name, partitions=topic.partitions, configs=dict(topic.configs)),
        spans=tuple(spans),
        since_ms=since,
        until_ms=until,
        predicates=asked.predicates(),
        through=asked.through,
        shift_ms=now_ms - newest if asked.timestamps == "shifted" else 0,
        fixed_ms=now_ms if asked.timestamps == "now" else None,
        overrides=NEVER_EXPIRES if leave.hold_retention else {},
        planned_at_ms=now_ms,
        # Flows that mirror a topic both ways must know where its records come from.
        hops=any(each.adds_hops and each.carries(into) for each in config.flows_from(target)),
    )
    config.cluster(target)
    flow = flow_of(definition, config)
    if flow.denies(asked.topic):
        raise TopicDenied(
            f"{asked.topic} may never leave {asked.source} (clusters.{asked.source}.never_leave)",
            consequence="nothing was sent",
            remedy="choose another topic",
            flow=name,
            topic=asked.topic,
        )
    if not flow.carries(asked.topic):
        raise UsageError(
            f"{asked.topic} is an internal topic", consequence="nothing was sent", remedy="name another one"
        )
    return replace(definition, rules=lent_rules(flow))


def _topic(context: Context, asked: ReplayRequest, held: Extent) -> KnownTopic:
    mine = [source for source in held if source.topic == asked.topic]
    if not mine:
        topics = sorted({source.topic for source in held})
        shown = ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "")
        raise UsageError(
            f"the relay of {asked.source} holds nothing of a topic '{asked.topic}'", remedy=f"it holds: {shown}"
        )
    lives = sorted({source.generation for source in mine})
    known = newest_topics(context.lake, asked.source, "source").get(asked.topic, KnownTopic(name=asked.topic))
    if known.generation not in lives and not known.truncations:
        # Created again, and no record of the new generation was landed yet.
        known = replace(known, generation=lives[-1])
    if asked.generation is not None:
        if asked.generation not in lives:
            raise UsageError(
                f"the relay holds no generation {asked.generation} of {asked.topic}",
                remedy=f"it holds: {', '.join(map(str, lives))}",
            )
        known = replace(known, generation=asked.generation, truncations=())
    cluster = context.config.cluster(asked.source)
    counts = [known.partitions, *(source.partition + 1 for source in mine)]
    return replace(known, partitions=max(*counts, cluster.partitions_of(asked.topic) if cluster.is_lake else 1))


def _limit(request: ReplayRequest, topic: KnownTopic, source: SourcePartition) -> tuple[int, int | None] | None:
    """Return the requested offsets `[first, end)` of a source partition (end None: unbounded), or None for none.

    They lie in the present history of the topic, without what was cut off its logs since.
    """
    if source.topic != topic.name or (request.partitions and source.partition not in request.partitions):
        return None
    cuts = [(cut.generation, cut.first_offset) for cut in topic.truncations if cut.partition == source.partition]
    lives = chain(cuts, topic.generation)
    if source.generation not in lives:
        return None
    first, end = lives[source.generation]
    stops = [at for at in (end, request.to_offset) if at is not None]
    return max(first, request.from_offset or 0), min(stops, default=None)


def _outside(asked: ReplayRequest, held: Extent) -> UsageError:
    ends = sorted((source, first, last) for source, (first, last) in held.items() if source.topic == asked.topic)
    shown = ", ".join(f"{source} from {first} to {last}" for source, first, last in ends[:8])
    return UsageError(
        f"the relay of {asked.source} holds no record of {asked.topic} in this range",
        consequence="nothing was sent",
        remedy=f"the relay holds {shown}{', ...' if len(ends) > 8 else ''}; `mirrorlake browse` shows their times",
    )


def lent_rules(flow: FlowConfig) -> str:
    """Return the fingerprint of the borrowed flow's rules in their order, and of its placement."""
    rules = [f"{rule.name}={rule.version}" for rule in flow.rules]
    return " ".join([*rules, Placer(flow.placement).version]).strip()
