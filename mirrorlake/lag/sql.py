"""Lag, latency and RPO over time: one SQL text each, for DataFrames here and for the views of `lag/sql_views.py`.

Lag is reported as of every sampling moment (`samples`), hop by hop:

    source end  ->  landed  ->  republished  ->  consumed (by a group on the target; or on the source itself)

The law of time lag is `lag/moment.py`'s. A record that was landed only later is looked up, too, so the past is exact (law E).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timezone

from pyspark.sql import DataFrame

from mirrorlake.lag.moment import TIME_LAG

LAG_COLUMNS = {
    "observed_at": ("timestamp", "Sampling moment"),
    "flow": ("string", "Flow"),
    "source": ("string", "Alias of the flow's source cluster"),
    "topic": ("string", "Source topic"),
    "generation": ("int", "Life of the topic"),
    "partition": ("int", "Source partition"),
    "hop": ("string", "landed | republished | consumed"),
    "group_id": ("string", "Consumer group of the hop consumed, null for the others"),
    "position": ("bigint", "Next upstream offset that has not passed the hop"),
    "end_position": ("bigint", "Last stable offset of the source; null where it did not answer"),
    "offset_lag": (
        "bigint",
        "Offsets between both, markers of transactions among them; null where the end is not known",
    ),
    "waiting_since": (
        "timestamp",
        "Timestamp of the oldest record that had not passed the hop; null when none waited, or when it is not known",
    ),
    "time_lag_ms": ("bigint", "Age of that record then; 0 when none waited, null when it is not known yet"),
    "cluster": ("string", "Where the position is held: the source, or the flow's target"),
}
"""The columns of `lag`, with type and meaning."""

LATENCY_COLUMNS = {
    "bucket": ("timestamp", "Beginning of the time bucket, by the time of the target transaction"),
    "flow": ("string", "Flow"),
    "topic": ("string", "Source topic"),
    "records": ("bigint", "Records that reached the target"),
    "p50_ms": ("double", "Half of them were on the target within this time after their own timestamp"),
    "p95_ms": ("double", "95 % of them"),
    "p99_ms": ("double", "99 % of them"),
    "max_ms": ("bigint", "All of them"),
}
"""The columns of `latency`; each figure is exact, from every record of the bucket."""

RPO_COLUMNS = {
    "observed_at": ("timestamp", "Sampling moment"),
    "flow": ("string", "Flow"),
    "records": ("bigint", "Records that were on the source and not on the target, filtered ones left out"),
    "data_ms": ("bigint", "Age of the oldest of them then; 0 when there was none, null when it is not known yet"),
    "is_exact": ("boolean", "False while some of them are not landed: each of their offsets counts as a record then"),
}
"""The columns of `rpo`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTables:
    """The tables that lag is computed from.

    `positions`, `samples`, `offset_map` and `withheld` are the side tables; `relays` holds the rows of all relays with a column
    `source`, the alias; `flows` has `flow`, `source` and `target`. Each may be cut to what a question needs: positions and
    samples from a complete look on, relays to the offsets between positions and ends. Moments before `since` say where
    positions stood, and are not shown themselves.
    """

    positions: DataFrame
    samples: DataFrame
    offset_map: DataFrame
    withheld: DataFrame
    relays: DataFrame
    flows: DataFrame
    since: datetime | None = None
    bounds: DataFrame | None = None


def lag(tables: LagTables) -> DataFrame:
    """Return the lag of each hop at every sampling moment, in the columns of `LAG_COLUMNS`.

    A moment at which a cluster did not answer has no rows of what only the cluster knows. What was not looked at is left out;
    what was looked at and had not changed is there. A position of a group on a target is that of its oldest unread record on
    the source (law A); where several source partitions feed one target partition, it has a row for each.

    Example:
        >>> lag(tables).where("hop = 'republished'").orderBy("observed_at").show()  # doctest: +SKIP
    """
    return _frame(LAG, tables)


def latency(tables: LagTables, *, bucket_s: int = 60) -> DataFrame:
    """Return percentiles of the time from a record's timestamp to its target transaction, in `LATENCY_COLUMNS`.

    Args:
        tables: `offset_map`, `relays` and `flows` count.
        bucket_s: length of a time bucket in seconds.
    """
    return _frame(with_bucket(LATENCY, bucket_s), tables)


def with_bucket(text: str, bucket_s: int) -> str:
    """Return the text of `latency` with the length of its time buckets filled in."""
    return text.replace("{bucket_us}", str(bucket_s * 1_000_000))


def bounds(tables: LagTables) -> DataFrame:
    """Return between which offsets records waited: `source`, `topic`, `generation`, `partition`, `lowest`, `highest`.

    `lag` and `rpo` need no other records of the relays; `highest` is the first offset that they do not need. They make it
    themselves where `tables.bounds` is None; made once beforehand, it also cuts the relays.
    """
    return _frame(f"WITH {_HOPS} SELECT * FROM {WAITED}", tables)  # noqa: S608  no value enters the text


def rpo(tables: LagTables) -> DataFrame:
    """Compute the loss at each sampling moment, had the source been lost then, in `RPO_COLUMNS`."""
    return _frame(RPO, tables)


def _frame(text: str, tables: LagTables) -> DataFrame:
    frames = {each.name: getattr(tables, each.name) for each in fields(tables) if each.name != "since"}
    if tables.bounds is None:
        text = text.replace("{bounds}", WAITED)
    named = {name: frame for name, frame in frames.items() if f"{{{name}}}" in text}
    since = (tables.since or datetime(1970, 1, 1, tzinfo=timezone.utc)).astimezone(timezone.utc)
    text = text.replace("{since}", f"timestamp'{since:%Y-%m-%dT%H:%M:%S.%fZ}'")
    return tables.flows.sparkSession.sql(text, **named)


_KEY = "source, topic, generation, partition"

# Where each position stood from which look to which other one. A complete look ends what it does not name: a sampler that
# was restarted cannot know what went away before.
_HOPS = f"""
looks AS (
  SELECT *, last(IF(complete, look, NULL), true) OVER (
      PARTITION BY subject, name ORDER BY look DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS next_complete,
    max(look) OVER (PARTITION BY subject, name) AS newest,
    min(IF(observed_at >= {{since}}, look, NULL)) OVER (PARTITION BY subject, name) AS first_shown
  FROM (
    SELECT subject, name, observed_at, max(complete) AS complete,
      row_number() OVER (PARTITION BY subject, name ORDER BY observed_at) AS look
    FROM {{samples}} WHERE error IS NULL GROUP BY subject, name, observed_at)
),
held AS (
  SELECT /*+ BROADCAST(looks) */ kind, flow, {_KEY}, group_id, position, subject, name,
    greatest(look, coalesce(first_shown, newest + 1)) AS first_look,
    least(next_complete, newest + 1, lead(look) OVER (PARTITION BY kind, flow, {_KEY}, group_id ORDER BY look)) - 1 AS last_look,
    collect_set(IF(kind = 'republished', flow, NULL)) OVER (PARTITION BY {_KEY}) AS carrying
  FROM (
    SELECT *, CASE kind WHEN 'reached' THEN 'relay' WHEN 'republished' THEN 'flow' ELSE 'cluster' END AS subject,
      IF(kind = 'republished', flow, source) AS name
    FROM {{positions}} WHERE kind IN ('last_stable', 'reached', 'republished', 'group'))
  JOIN looks USING (subject, name, observed_at)
),
runs AS (SELECT f.source, f.target, m.* FROM {{offset_map}} m JOIN {{flows}} f USING (flow)),
ways AS (
  SELECT DISTINCT flow, source, source_topic, generation, source_partition, target, target_topic, target_partition FROM runs
),
on_targets AS (
  SELECT /*+ BROADCAST(w) */ w.flow, w.source, w.source_topic, w.generation, w.source_partition, w.target, w.target_topic,
    w.target_partition, h.group_id, h.position, h.subject, h.name, h.first_look, h.last_look
  FROM held h JOIN ways w ON h.source = w.target AND h.topic = w.target_topic AND h.partition = w.target_partition
  WHERE h.kind = 'group' AND h.position IS NOT NULL
),
merged AS (
  SELECT *, last(run, true) OVER (
    PARTITION BY flow, source, source_topic, generation, source_partition, target_topic, target_partition
    ORDER BY at DESC, is_run DESC ROWS UNBOUNDED PRECEDING) AS unread
  FROM (
    SELECT flow, source, source_topic, generation, source_partition, target, target_topic, target_partition,
      group_id, subject, name, first_look, last_look, position AS at, 0 AS is_run,
      CAST(NULL AS STRUCT<first_upstream: BIGINT, first_downstream: BIGINT,
        holes: ARRAY<STRUCT<first: BIGINT, length: BIGINT>>>) AS run
    FROM on_targets
    UNION ALL
    SELECT flow, source, source_topic, generation, source_partition, target, target_topic, target_partition,
      NULL, NULL, NULL, NULL, NULL, first_downstream + record_count - 1, 1,
      struct(first_upstream, first_downstream, holes)
    FROM runs)
),
standing AS (
  SELECT /*+ BROADCAST(f) */ h.kind, f.flow, h.source, h.topic, h.generation, h.partition, h.group_id, h.position,
    IF(h.kind = 'republished', f.target, h.source) AS cluster, false AS is_translated,
    h.subject, h.name, h.first_look, h.last_look
  FROM (SELECT *, explode(IF(kind = 'republished', array(flow), carrying)) AS carrier FROM held WHERE position IS NOT NULL) h
  JOIN {{flows}} f ON f.flow = h.carrier
  UNION ALL
  SELECT 'group', flow, source, source_topic, generation, source_partition, group_id,
    CASE WHEN unread IS NULL THEN NULL
      WHEN at <= unread.first_downstream THEN unread.first_upstream
      ELSE aggregate(unread.holes, unread.first_upstream + at - unread.first_downstream,
        (offset, hole) -> IF(hole.first <= offset, offset + hole.length, offset)) END,
    target, true, subject, name, first_look, last_look
  FROM merged WHERE is_run = 0
),
seen AS (
  SELECT /*+ BROADCAST(l) */ l.observed_at, s.kind, s.flow, s.source, s.topic, s.generation, s.partition, s.group_id,
    s.position, s.cluster, s.is_translated,
    max(IF(kind = 'last_stable', position, NULL)) OVER together AS end_position,
    max(IF(kind = 'reached', position, NULL)) OVER together AS landed,
    max(IF(kind = 'republished', position, NULL)) OVER together AS republished
  FROM (SELECT *, explode(sequence(first_look, last_look)) AS look FROM standing WHERE last_look >= first_look) s
  JOIN (SELECT subject, name, look, observed_at FROM looks) l USING (subject, name, look)
  WINDOW together AS (PARTITION BY l.observed_at, s.flow, s.source, s.topic, s.generation, s.partition)
),
hops AS (
  SELECT *, coalesce(end_position, landed) AS known_end, IF(hop = 'republished' OR is_translated, flow, '') AS scope
  FROM (
    SELECT observed_at, flow, {_KEY}, group_id, cluster, is_translated, end_position, landed,
      CASE kind WHEN 'reached' THEN 'landed' WHEN 'republished' THEN 'republished' ELSE 'consumed' END AS hop,
      min(IF(is_translated, least(coalesce(position, republished), republished), position)) AS position
    FROM seen WHERE kind <> 'last_stable' AND landed IS NOT NULL
    GROUP BY observed_at, flow, {_KEY}, group_id, cluster, is_translated, end_position, landed, kind)
  WHERE position IS NOT NULL
)
"""  # noqa: S608  no value enters the text

_RECORDS = f"""
bounds AS (SELECT * FROM {{bounds}}),
withheld_offsets AS (
  SELECT scope, {_KEY}, explode(flatten(transform(ranges, r -> sequence(r.first, r.first + r.length - 1)))) AS offset
  FROM (
    SELECT /*+ BROADCAST(b) */ b.scope, b.source, w.topic, w.generation, w.partition, w.ranges
    FROM {{withheld}} w JOIN bounds b ON w.flow = b.scope AND w.topic = b.topic AND w.generation = b.generation
      AND w.partition = b.partition AND w.last_offset >= b.lowest AND w.first_offset < b.highest)
),
records AS (
  SELECT /*+ BROADCAST(b) */ b.scope, r.source, r.topic, r.generation, r.partition, r.offset, r.timestamp
  FROM {{relays}} r JOIN bounds b ON r.source = b.source AND r.topic = b.topic AND r.generation = b.generation
    AND r.partition = b.partition AND r.offset >= b.lowest AND r.offset < b.highest
  LEFT ANTI JOIN withheld_offsets k ON k.scope = b.scope AND k.source = r.source AND k.topic = r.topic
    AND k.generation = r.generation AND k.partition = r.partition AND k.offset = r.offset
),
newest AS (SELECT {_KEY}, max(position) AS newest_landed FROM {{positions}} WHERE kind = 'reached' GROUP BY {_KEY})
"""  # noqa: S608  no value enters the text

LAG = f"""
WITH {_HOPS}, {_RECORDS},
merged_records AS (
  SELECT *, last(record, true) OVER (
    PARTITION BY scope, {_KEY} ORDER BY at DESC, is_record DESC ROWS UNBOUNDED PRECEDING) AS oldest
  FROM (
    SELECT observed_at, flow, scope, {_KEY}, hop, group_id, position, end_position, known_end, cluster,
      position AS at, 0 AS is_record, CAST(NULL AS STRUCT<offset: BIGINT, timestamp: TIMESTAMP>) AS record
    FROM hops
    UNION ALL
    SELECT NULL, NULL, scope, {_KEY}, NULL, NULL, NULL, NULL, NULL, NULL, offset, 1, struct(offset, timestamp)
    FROM records)
)
SELECT observed_at, flow, source, topic, generation, partition, hop, group_id, position, end_position,
  IF(end_position IS NULL, NULL, greatest(end_position - position, 0)) AS offset_lag, waiting_since,
  {TIME_LAG} AS time_lag_ms, cluster
FROM (
  SELECT /*+ BROADCAST(n) */ b.*, n.newest_landed AS landed,
    IF(position < known_end AND oldest.offset < known_end, oldest.timestamp, NULL) AS waiting_since
  FROM merged_records b JOIN newest n ON b.source = n.source AND b.topic = n.topic AND b.generation = n.generation
    AND b.partition = n.partition
  WHERE is_record = 0)
"""  # noqa: S608  no value enters the text

# Between which offsets records waited: no other records of the relays are needed.
WAITED = f"""(
  SELECT scope, {_KEY}, min(position) AS lowest, max(known_end) AS highest
  FROM hops WHERE position < known_end GROUP BY scope, {_KEY})"""  # noqa: S608  no value enters the text

# Every record between a position and the end counts once: the records from the one on, less those from the other on.
RPO = f"""
WITH {_HOPS}, {_RECORDS},
marks AS (
  SELECT observed_at, flow, scope, {_KEY}, position, known_end, at.*
  FROM (SELECT * FROM hops WHERE hop = 'republished')
  LATERAL VIEW inline(array(struct(position AS place, 1 AS sign), struct(known_end AS place, -1 AS sign))) at
),
counted AS (
  SELECT *, sum(is_record) OVER (
      PARTITION BY scope, {_KEY} ORDER BY place DESC, is_record DESC ROWS UNBOUNDED PRECEDING) AS records_after,
    last(record, true) OVER (
      PARTITION BY scope, {_KEY} ORDER BY place DESC, is_record DESC ROWS UNBOUNDED PRECEDING) AS oldest
  FROM (
    SELECT observed_at, flow, scope, {_KEY}, position, known_end, place, sign, 0 AS is_record,
      CAST(NULL AS STRUCT<offset: BIGINT, timestamp: TIMESTAMP>) AS record
    FROM marks
    UNION ALL
    SELECT NULL, NULL, scope, {_KEY}, NULL, NULL, offset, NULL, 1, struct(offset, timestamp) FROM records)
),
partitions AS (
  SELECT /*+ BROADCAST(n) */ observed_at, flow, c.source, c.topic, c.generation, c.partition, known_end,
    any_value(n.newest_landed) AS landed, position, sum(sign * records_after) AS records,
    max(IF(sign = 1 AND oldest.offset < known_end, oldest.timestamp, NULL)) AS waiting_since
  FROM counted c JOIN newest n ON c.source = n.source AND c.topic = n.topic AND c.generation = n.generation
    AND c.partition = n.partition
  WHERE is_record = 0
  GROUP BY observed_at, flow, c.source, c.topic, c.generation, c.partition, known_end, position
)
SELECT observed_at, flow,
  sum(IF(position < known_end, records + greatest(known_end - greatest(position, landed), 0), 0)) AS records,
  IF(count(time_lag_ms) = count(*), max(time_lag_ms), NULL) AS data_ms,
  min(position >= known_end OR landed >= known_end) AS is_exact
FROM (SELECT *, {TIME_LAG} AS time_lag_ms FROM partitions) GROUP BY observed_at, flow
"""  # noqa: S608  no value enters the text

# Runs are cut at their holes into stretches, so that no record has to be compared with every hole.
LATENCY = """
WITH parts AS (
  SELECT flow, source_topic, generation, source_partition, committed_at,
    concat(array(first_upstream), transform(holes, hole -> hole.first + hole.length)) AS firsts,
    concat(transform(holes, hole -> hole.first - 1), array(last_upstream)) AS lasts
  FROM (
    SELECT flow, source_topic, generation, source_partition, first_upstream, any_value(last_upstream) AS last_upstream,
      any_value(holes) AS holes, min(committed_at) AS committed_at
    FROM {offset_map} GROUP BY flow, source_topic, generation, source_partition, first_upstream)
),
stretches AS (
  SELECT flow, source_topic, generation, source_partition, committed_at, stretch.*
  FROM parts LATERAL VIEW inline(arrays_zip(firsts, lasts)) stretch AS first, last
),
sent AS (
  SELECT f.flow, f.source, s.source_topic, s.generation, s.source_partition, s.committed_at,
    explode(sequence(s.first, s.last)) AS upstream
  FROM stretches s JOIN {flows} f ON f.flow = s.flow WHERE s.last >= s.first
),
records AS (
  SELECT s.flow, s.source_topic AS topic,
    timestamp_micros(unix_micros(s.committed_at) - pmod(unix_micros(s.committed_at), {bucket_us})) AS bucket,
    greatest(unix_millis(s.committed_at) - unix_millis(r.timestamp), 0) AS ms
  FROM sent s JOIN {relays} r ON r.source = s.source AND r.topic = s.source_topic AND r.generation = s.generation
    AND r.partition = s.source_partition AND r.offset = s.upstream
)
SELECT bucket, flow, topic, records,
  figures[0] AS p50_ms, figures[1] AS p95_ms, figures[2] AS p99_ms, max_ms
FROM (
  SELECT bucket, flow, topic, count(*) AS records, percentile(ms, array(0.5D, 0.95D, 0.99D)) AS figures, max(ms) AS max_ms
  FROM records GROUP BY bucket, flow, topic)
"""
