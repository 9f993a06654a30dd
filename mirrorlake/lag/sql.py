"""Lag, latency and RPO over time: one SQL text each, for questions, for frames, and for the views of `lag/sql_views.py`.

Lag is reported as of every sampling moment (`samples`), hop by hop:

    source end  ->  landed  ->  republished  ->  consumed (by a group on the target; or on the source itself)

The law of time lag is `lag/moment.py`'s. A record that was landed only later is looked up, too, so the past is exact (law E).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.lag.moment import TIME_LAG
from mirrorlake.lake import Lake, RelayPart, micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
class Answer:
    """A question and all that it is about; asked as it stands, or as a part of another question."""

    lake: Lake
    text: str
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    relays: Mapping[str, tuple[str, RelayPart | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, text: str = "SELECT * FROM {answer}", **values: Any) -> list[Any]:
        """Ask, without Spark where the lake is a folder (`Lake.ask`); `{answer}` stands for this question."""
        asked = text.replace("{answer}", f"({self.text})")
        return self.lake.ask(asked, tables=self.tables, relays=self.relays, **self.values, **values)

    def where(self, condition: str, **values: Any) -> Answer:
        """Narrow it by a condition in SQL."""
        text = f"SELECT * FROM ({self.text}) WHERE {condition}"  # noqa: S608  values are named in it
        return replace(self, text=text, values={**self.values, **values})

    def frame(self) -> DataFrame:
        """Give the answer as a frame of the session."""
        return self.lake.frame(self.text, tables=self.tables, relays=self.relays, **self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTables:
    """The tables that lag is computed from, each as what stands for it in the text of a question.

    `positions`, `samples`, `offset_map` and `withheld` are the side tables; `relays` holds the rows of all relays with a column
    `source`, the alias; `flows` is a table of `flow`, `source` and `target`. Each may be cut to what a question needs: positions
    and samples from a complete look on, relays to the offsets between positions and ends. Moments before `since` say where
    positions stood, and are not shown themselves. What the texts name is in the lake, in `tables`, `parts` or `values`.
    """

    lake: Lake
    positions: str = "{positions}"
    samples: str = "{samples}"
    offset_map: str = "{offset_map}"
    withheld: str = "{withheld}"
    relays: str
    flows: str = "{flows}"
    bounds: str = ""
    since: datetime | None = None
    tables: Mapping[str, pa.Table]
    parts: Mapping[str, tuple[str, RelayPart | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def lag(tables: LagTables) -> Answer:
    """Ask for the lag of each hop at every sampling moment, in the columns of `LAG_COLUMNS`.

    A moment at which a cluster did not answer has no rows of what only the cluster knows. What was not looked at is left out;
    what was looked at and had not changed is there. A position of a group on a target is that of its oldest unread record on
    the source (law A); where several source partitions feed one target partition, it has a row for each.

    Example:
        >>> lag(tables).frame().where("hop = 'republished'").orderBy("observed_at").show()  # doctest: +SKIP
    """
    return _answer(LAG, tables)


def latency(tables: LagTables, *, bucket_s: int = 60) -> Answer:
    """Ask for percentiles of the time from a record's timestamp to its target transaction, in `LATENCY_COLUMNS`.

    Args:
        tables: `offset_map`, `relays` and `flows` count.
        bucket_s: length of a time bucket in seconds.
    """
    return _answer(with_bucket(LATENCY, bucket_s), tables)


def with_bucket(text: str, bucket_s: int) -> str:
    """Return the text of `latency` with the length of its time buckets filled in."""
    return text.replace("{bucket_us}", str(bucket_s * 1_000_000))


def bounds(tables: LagTables) -> Answer:
    """Ask between which offsets records waited: `scope`, `source`, `topic`, `generation`, `partition`, `lowest`, `highest`.

    `lag` and `rpo` need no other records of the relays; `highest` is the first offset that they do not need. They make it
    themselves where `tables.bounds` is empty; made once beforehand, it also cuts the relays.
    """
    return _answer(f"WITH {_HOPS} SELECT * FROM {WAITED}", tables)  # noqa: S608  no value enters the text


def rpo(tables: LagTables) -> Answer:
    """Ask for the loss at each sampling moment, had the source been lost then, in `RPO_COLUMNS`."""
    return _answer(RPO, tables)


def _answer(text: str, tables: LagTables) -> Answer:
    text = text.replace("{bounds}", tables.bounds or WAITED)
    text = text.replace("{since}", str(micros(tables.since) if tables.since else 0))
    for name in ("positions", "samples", "offset_map", "withheld", "relays", "flows"):
        # Once each: what stands for a table may name it.
        text = getattr(tables, name).join(text.split(f"{{{name}}}"))
    return Answer(lake=tables.lake, text=text, tables=tables.tables, relays=tables.parts, values=tables.values)


_KEY = "source, topic, generation, partition"
_RUN = "flow, source_topic, generation, source_partition, first_upstream"
_OF_RUN = ", ".join(f"m.{name}" for name in _RUN.split(", "))

# Runs are cut at their holes into stretches, so that no record has to be compared with every hole.
_STRETCHES = f"""
cuts AS (
  SELECT *, first_upstream AS first, CAST(0 AS BIGINT) AS missing FROM runs
  UNION ALL
  SELECT * EXCEPT (hole), hole.first + hole.length, hole.length FROM (SELECT *, explode(holes) AS hole FROM runs)
),
stretches AS (
  SELECT * FROM (
    SELECT {_RUN}, source, target, target_topic, target_partition, committed_at, first,
      first_downstream + first - first_upstream - CAST(sum(missing) OVER (
        PARTITION BY {_RUN} ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS downstream,
      coalesce(lead(first - missing) OVER (PARTITION BY {_RUN} ORDER BY first), last_upstream + 1) - first AS length
    FROM cuts)
  WHERE length > 0
)
"""  # noqa: S608  no value enters the text


def _runs(which: str) -> str:
    """Write the runs of flows, each once, that a condition holds for."""
    return f"""
runs AS (
  SELECT {_OF_RUN}, f.source, f.target, any_value(m.last_upstream) AS last_upstream, any_value(m.holes) AS holes,
    any_value(m.target_topic) AS target_topic, any_value(m.target_partition) AS target_partition,
    any_value(m.first_downstream) AS first_downstream, min(m.committed_at) AS committed_at
  FROM {{offset_map}} m JOIN {{flows}} f ON m.flow = f.flow {which}
  GROUP BY {_OF_RUN}, f.source, f.target
)"""  # noqa: S608  no value enters the text


# Where each position stood from which look to which other one. A complete look ends what it does not name: a sampler that
# was restarted cannot know what went away before.
_HOPS = f"""
looks AS (
  SELECT *,
    min(IF(complete, look, NULL)) OVER (
      PARTITION BY subject, name ORDER BY look ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next_complete,
    max(look) OVER (PARTITION BY subject, name) AS newest,
    min(IF(unix_micros(observed_at) >= {{since}}, look, NULL)) OVER (PARTITION BY subject, name) AS first_shown
  FROM (
    SELECT subject, name, observed_at, max(complete) AS complete,
      row_number() OVER (PARTITION BY subject, name ORDER BY observed_at) AS look
    FROM {{samples}} WHERE error IS NULL GROUP BY subject, name, observed_at)
),
held AS (
  SELECT /*+ BROADCAST(looks) */ kind, flow, {_KEY}, group_id, position, subject, name,
    greatest(look, coalesce(first_shown, newest + 1)) AS first_look,
    least(next_complete, newest + 1, lead(look) OVER (PARTITION BY kind, flow, {_KEY}, group_id ORDER BY look)) - 1 AS last_look
  FROM (
    SELECT *, CASE kind WHEN 'reached' THEN 'relay' WHEN 'republished' THEN 'flow' ELSE 'cluster' END AS subject,
      IF(kind = 'republished', flow, source) AS name
    FROM {{positions}} WHERE kind IN ('last_stable', 'reached', 'republished', 'group'))
  JOIN looks USING (subject, name, observed_at)
),
carriers AS (SELECT DISTINCT flow AS carrier, {_KEY} FROM held WHERE kind = 'republished'),
group_places AS (SELECT DISTINCT source, topic, partition FROM held WHERE kind = 'group' AND position IS NOT NULL),
{_runs("JOIN group_places g ON g.source = f.target AND g.topic = m.target_topic AND g.partition = m.target_partition")},
{_STRETCHES},
ways AS (
  SELECT DISTINCT flow, source, source_topic, generation, source_partition, target, target_topic, target_partition FROM runs
),
merged AS (
  SELECT *, last_value(first) IGNORE NULLS OVER (
      PARTITION BY flow, source, source_topic, generation, source_partition, target_topic, target_partition
      ORDER BY at DESC, is_run DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS unread,
    last_value(downstream) IGNORE NULLS OVER (
      PARTITION BY flow, source, source_topic, generation, source_partition, target_topic, target_partition
      ORDER BY at DESC, is_run DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS unread_at
  FROM (
    SELECT w.flow, w.source, w.source_topic, w.generation, w.source_partition, w.target, w.target_topic, w.target_partition,
      h.group_id, h.subject, h.name, h.first_look, h.last_look, h.position AS at, 0 AS is_run,
      CAST(NULL AS BIGINT) AS first, CAST(NULL AS BIGINT) AS downstream
    FROM held h JOIN ways w ON h.source = w.target AND h.topic = w.target_topic AND h.partition = w.target_partition
    WHERE h.kind = 'group' AND h.position IS NOT NULL
    UNION ALL
    SELECT flow, source, source_topic, generation, source_partition, target, target_topic, target_partition,
      NULL, NULL, NULL, NULL, NULL, downstream + length - 1, 1, first, downstream
    FROM stretches)
),
standing AS (
  SELECT h.kind, h.flow, h.source, h.topic, h.generation, h.partition, h.group_id, h.position, f.target AS cluster,
    false AS is_translated, h.subject, h.name, h.first_look, h.last_look
  FROM held h JOIN {{flows}} f ON f.flow = h.flow WHERE h.kind = 'republished' AND h.position IS NOT NULL
  UNION ALL
  SELECT /*+ BROADCAST(f) */ h.kind, f.flow, h.source, h.topic, h.generation, h.partition, h.group_id, h.position, h.source,
    false, h.subject, h.name, h.first_look, h.last_look
  FROM held h JOIN carriers c
    ON h.source = c.source AND h.topic = c.topic AND h.generation = c.generation AND h.partition = c.partition
  JOIN {{flows}} f ON f.flow = c.carrier WHERE h.kind <> 'republished' AND h.position IS NOT NULL
  UNION ALL
  SELECT 'group', flow, source, source_topic, generation, source_partition, group_id,
    unread + greatest(at - unread_at, 0), target, true, subject, name, first_look, last_look
  FROM merged WHERE is_run = 0
),
seen AS (
  SELECT /*+ BROADCAST(l) */ l.observed_at, s.kind, s.flow, s.source, s.topic, s.generation, s.partition, s.group_id,
    s.position, s.cluster, s.is_translated
  FROM (SELECT *, explode(sequence(first_look, last_look)) AS look FROM standing WHERE last_look >= first_look) s
  JOIN looks l ON s.subject = l.subject AND s.name = l.name AND s.look = l.look
),
marks AS (
  SELECT observed_at, flow, {_KEY}, max(IF(kind = 'last_stable', position, NULL)) AS end_position,
    max(IF(kind = 'reached', position, NULL)) AS landed, max(IF(kind = 'republished', position, NULL)) AS republished
  FROM seen WHERE kind <> 'group' GROUP BY observed_at, flow, {_KEY}
),
hops AS (
  SELECT *, coalesce(end_position, landed) AS known_end, IF(hop = 'republished' OR is_translated, flow, '') AS scope
  FROM (
    SELECT observed_at, flow, {_KEY}, CAST(NULL AS STRING) AS group_id, source AS cluster, false AS is_translated, end_position,
      landed, 'landed' AS hop, landed AS position
    FROM marks
    UNION ALL
    SELECT /*+ BROADCAST(f) */ m.observed_at, m.flow, m.source, m.topic, m.generation, m.partition, NULL, f.target, false,
      m.end_position, m.landed, 'republished', m.republished
    FROM marks m JOIN {{flows}} f ON f.flow = m.flow
    UNION ALL
    SELECT s.observed_at, s.flow, s.source, s.topic, s.generation, s.partition, s.group_id, s.cluster, s.is_translated,
      m.end_position, m.landed, 'consumed',
      min(IF(s.is_translated, least(coalesce(s.position, m.republished), m.republished), s.position))
    FROM seen s JOIN marks m ON s.observed_at = m.observed_at AND s.flow = m.flow AND s.source = m.source
      AND s.topic = m.topic AND s.generation = m.generation AND s.partition = m.partition
    WHERE s.kind = 'group'
    GROUP BY s.observed_at, s.flow, s.source, s.topic, s.generation, s.partition, s.group_id, s.cluster, s.is_translated,
      m.end_position, m.landed)
  WHERE position IS NOT NULL AND landed IS NOT NULL
)
"""  # noqa: S608  no value enters the text

_RECORDS = f"""
bounds AS (SELECT * FROM {{bounds}}),
withheld_parts AS (
  SELECT /*+ BROADCAST(b) */ b.scope, b.source, w.topic, w.generation, w.partition, explode(w.ranges) AS part
  FROM {{withheld}} w JOIN bounds b ON w.flow = b.scope AND w.topic = b.topic AND w.generation = b.generation
    AND w.partition = b.partition AND w.last_offset >= b.lowest AND w.first_offset < b.highest
),
withheld_offsets AS (
  SELECT scope, {_KEY}, explode(sequence(part.first, part.first + part.length - 1)) AS `offset` FROM withheld_parts
),
records AS (
  SELECT /*+ BROADCAST(b) */ b.scope, r.source, r.topic, r.generation, r.partition, r.`offset`, r.timestamp
  FROM {{relays}} r JOIN bounds b ON r.source = b.source AND r.topic = b.topic AND r.generation = b.generation
    AND r.partition = b.partition AND r.`offset` >= b.lowest AND r.`offset` < b.highest
  LEFT ANTI JOIN withheld_offsets k ON k.scope = b.scope AND k.source = r.source AND k.topic = r.topic
    AND k.generation = r.generation AND k.partition = r.partition AND k.`offset` = r.`offset`
),
newest AS (SELECT {_KEY}, max(position) AS newest_landed FROM {{positions}} WHERE kind = 'reached' GROUP BY {_KEY})
"""  # noqa: S608  no value enters the text


def _oldest(column: str) -> str:
    """Write what the oldest record at or past an offset holds."""
    return (
        f"last_value({column}) IGNORE NULLS OVER (PARTITION BY scope, {_KEY} ORDER BY place DESC, is_record DESC "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )


LAG = f"""
WITH {_HOPS}, {_RECORDS},
merged_records AS (
  SELECT *, {_oldest("record")} AS oldest, {_oldest("stamp")} AS oldest_stamp
  FROM (
    SELECT observed_at, flow, scope, {_KEY}, hop, group_id, position, end_position, known_end, cluster,
      position AS place, 0 AS is_record, CAST(NULL AS BIGINT) AS record, CAST(NULL AS TIMESTAMP) AS stamp
    FROM hops
    UNION ALL
    SELECT NULL, NULL, scope, {_KEY}, NULL, NULL, NULL, NULL, NULL, NULL, `offset`, 1, `offset`, timestamp
    FROM records)
)
SELECT observed_at, flow, source, topic, generation, partition, hop, group_id, position, end_position,
  IF(end_position IS NULL, NULL, greatest(end_position - position, 0)) AS offset_lag, waiting_since,
  {TIME_LAG} AS time_lag_ms, cluster
FROM (
  SELECT /*+ BROADCAST(n) */ b.*, n.newest_landed AS landed,
    IF(position < known_end AND oldest < known_end, oldest_stamp, NULL) AS waiting_since
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
marked AS (
  SELECT observed_at, flow, scope, {_KEY}, position, known_end, position AS place, 1 AS sign FROM hops WHERE hop = 'republished'
  UNION ALL
  SELECT observed_at, flow, scope, {_KEY}, position, known_end, known_end, -1 FROM hops WHERE hop = 'republished'
),
counted AS (
  SELECT *, sum(is_record) OVER (
      PARTITION BY scope, {_KEY} ORDER BY place DESC, is_record DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS records_after,
    {_oldest("record")} AS oldest, {_oldest("stamp")} AS oldest_stamp
  FROM (
    SELECT observed_at, flow, scope, {_KEY}, position, known_end, place, sign, 0 AS is_record,
      CAST(NULL AS BIGINT) AS record, CAST(NULL AS TIMESTAMP) AS stamp
    FROM marked
    UNION ALL
    SELECT NULL, NULL, scope, {_KEY}, NULL, NULL, `offset`, NULL, 1, `offset`, timestamp FROM records)
),
partitions AS (
  SELECT /*+ BROADCAST(n) */ observed_at, flow, c.source, c.topic, c.generation, c.partition, known_end,
    any_value(n.newest_landed) AS landed, position, sum(sign * records_after) AS records,
    max(IF(sign = 1 AND oldest < known_end, oldest_stamp, NULL)) AS waiting_since
  FROM counted c JOIN newest n ON c.source = n.source AND c.topic = n.topic AND c.generation = n.generation
    AND c.partition = n.partition
  WHERE is_record = 0
  GROUP BY observed_at, flow, c.source, c.topic, c.generation, c.partition, known_end, position
)
SELECT observed_at, flow,
  CAST(sum(IF(position < known_end, records + greatest(known_end - greatest(position, landed), 0), 0)) AS BIGINT) AS records,
  IF(count(time_lag_ms) = count(*), max(time_lag_ms), NULL) AS data_ms,
  min(position >= known_end OR landed >= known_end) AS is_exact
FROM (SELECT *, {TIME_LAG} AS time_lag_ms FROM partitions) GROUP BY observed_at, flow
"""  # noqa: S608  no value enters the text

LATENCY = f"""
WITH {_runs("")},
{_STRETCHES},
sent AS (
  SELECT flow, source, source_topic, generation, source_partition, committed_at,
    explode(sequence(first, first + length - 1)) AS upstream
  FROM stretches
),
records AS (
  SELECT s.flow, s.source_topic AS topic, unix_micros(s.committed_at) - unix_micros(s.committed_at) % {{bucket_us}} AS began,
    greatest(unix_millis(s.committed_at) - unix_millis(r.timestamp), 0) AS ms
  FROM sent s JOIN {{relays}} r ON r.source = s.source AND r.topic = s.source_topic AND r.generation = s.generation
    AND r.partition = s.source_partition AND r.`offset` = s.upstream
)
SELECT timestamp_micros(began) AS bucket, flow, topic, count(*) AS records, percentile(ms, 0.5) AS p50_ms,
  percentile(ms, 0.95) AS p95_ms, percentile(ms, 0.99) AS p99_ms, max(ms) AS max_ms
FROM records GROUP BY began, flow, topic
"""  # noqa: S608  no value enters the text
