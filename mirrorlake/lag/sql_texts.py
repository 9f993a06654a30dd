"""SQL texts of lag, RPO and latency in Spark's dialect, with `{names}` that `lag/sql.py` fills in."""

from __future__ import annotations

from mirrorlake.lag.sql_hops import DENSE_RANGES, KEY, PRECEDING, runs, same
from mirrorlake.lag.time_lag import TIME_LAG

_WITHHELD_PARTS = f"""
bounds AS (
  SELECT p.backlog, b.* FROM (
    SELECT scope, {KEY}, min(lowest) OVER (PARTITION BY {KEY}) AS lowest, max(highest) OVER (PARTITION BY {KEY}) AS highest
    FROM {{bounds}}) b
  JOIN backlogs p ON p.scope = b.scope AND {same("p", "b")}),
withheld_parts AS (
  SELECT /*+ BROADCAST(b) */ b.backlog, explode(w.ranges) AS part
  FROM {{withheld}} w JOIN bounds b ON w.flow = b.scope AND w.topic = b.topic AND w.generation = b.generation
    AND w.partition = b.partition AND w.last_offset >= b.lowest AND w.first_offset < b.highest
)
"""  # noqa: S608  no value enters the text
_RECORDS = f"""
{_WITHHELD_PARTS},
withheld_offsets AS (
  SELECT backlog, explode(sequence(part.first, part.first + part.length - 1)) AS `offset` FROM withheld_parts
),
records AS (
  SELECT /*+ BROADCAST(b) */ b.backlog, r.`offset`, r.timestamp
  FROM {{relays}} r JOIN bounds b ON {same("r", "b")} AND r.`offset` >= b.lowest AND r.`offset` < b.highest
  LEFT ANTI JOIN withheld_offsets k ON k.backlog = b.backlog AND k.`offset` = r.`offset`
)
"""  # noqa: S608  no value enters the text
_NEWEST = f"""
newest AS (
  SELECT {KEY}, max(position) AS newest_landed
  FROM (SELECT {KEY}, furthest AS position FROM reached UNION ALL SELECT {KEY}, position FROM {{later}})
  GROUP BY {KEY}
),
known_flow_partitions AS (SELECT l.*, n.newest_landed FROM flow_partitions l JOIN newest n ON {same("l", "n")})
"""  # noqa: S608  no value enters the text


def _past(which: str) -> str:
    """Return a window expression over the records at or past an offset, the newest first."""
    return f"{which} OVER (PARTITION BY backlog ORDER BY place DESC, is_record DESC {PRECEDING})"


# The oldest and the newest record at or past each place of `asked`, and how many there are. Spark analyses a common table again
# wherever it is named, so that it gets one window.
_FOUND = f"""
found AS (
  SELECT * FROM (
    SELECT *, {_past("last_value(record) IGNORE NULLS")} AS oldest, {_past("last_value(stamp) IGNORE NULLS")} AS oldest_stamp,
      {_past("first_value(record) IGNORE NULLS")} AS newest, {_past("sum(is_record)")} AS records_after
    FROM (
      SELECT *, 0 AS is_record, CAST(NULL AS BIGINT) AS record, CAST(NULL AS TIMESTAMP) AS stamp FROM asked
      UNION ALL
      SELECT NULL, NULL, NULL, backlog, NULL, NULL, NULL, NULL, `offset`, NULL, 1, `offset`, timestamp FROM records))
  WHERE is_record = 0
)
"""  # noqa: S608  no value enters the text
_SINCE = "place IS NOT NULL AND oldest < known_end"

# The time of the oldest waiting record at each position.
WAITED_SINCE = f"""
{_RECORDS},
asked AS (
  SELECT flow_partition, hop, reader, backlog, observed_at, position, end_position, known_end, IF(position < known_end,
    position, NULL) AS place,
    1 AS sign
  FROM hops
),
{_FOUND},
waited AS (SELECT *, IF({_SINCE}, oldest_stamp, NULL) AS waiting_since FROM found)
"""  # noqa: S608  no value enters the text

# The same of the hop `republished`, and how many records waited. Every record between a position and the end counts once: the
# records from the one on, less those from the other on. `held` is the offset past the newest record of the relay.
WAITED_COUNTED = f"""
{_RECORDS},
asked AS (
  SELECT flow_partition, hop, reader, flow_partition AS backlog, observed_at, position, end_position, known_end,
    IF(position < known_end, edge.place, NULL) AS place, edge.sign AS sign
  FROM (
    SELECT *, explode(array(named_struct('place', position, 'sign', 1), named_struct('place', known_end, 'sign', -1))) AS edge
    FROM hops WHERE hop = 1)
),
{_FOUND},
waited AS (
  SELECT flow_partition, hop, observed_at, position, end_position, known_end, sum(sign * records_after) AS records,
    max(newest) + 1 AS held,
    max(IF(sign = 1 AND {_SINCE}, oldest_stamp, NULL)) AS waiting_since
  FROM found GROUP BY flow_partition, hop, observed_at, position, end_position, known_end
)
"""  # noqa: S608  no value enters the text

# Input and output of `lag/waiting.py`, which computes the same.
KNOWN_WAITED = "waited AS (SELECT * FROM {made_waited})"
WITHHELD_BY_BACKLOG = f"""
WITH {{hops}}, {_WITHHELD_PARTS} SELECT backlog, part.first AS first, part.length AS length FROM withheld_parts
"""  # noqa: S608  no value enters the text
RECORDS_BY_PARTITION = f"""
WITH {{hops}},
needed AS (SELECT {KEY}, min(lowest) AS lowest, max(highest) AS highest FROM {{bounds}} GROUP BY {KEY})
SELECT {", ".join(f"r.{name}" for name in KEY.split(", "))},
  collect_list(named_struct('offset', r.`offset`, 'stamp', r.timestamp)) AS records
FROM {{relays}} r JOIN needed n ON {same("r", "n")} AND r.`offset` >= n.lowest AND r.`offset` < n.highest
GROUP BY {", ".join(f"r.{name}" for name in KEY.split(", "))}
"""  # noqa: S608  no value enters the text


LAG = f"""
WITH {{hops}}, {{waited}}, {_NEWEST}
SELECT observed_at, flow, source, topic, generation, partition, hop, group_id, position, end_position,
  IF(end_position IS NULL, NULL, greatest(end_position - position, 0)) AS offset_lag, waiting_since,
  {TIME_LAG} AS time_lag_ms, cluster
FROM (
  SELECT /*+ BROADCAST(l), BROADCAST(g) */ r.observed_at, l.flow, l.source, l.topic, l.generation, l.partition,
    CASE r.hop WHEN 0 THEN 'landed' WHEN 1 THEN 'republished' ELSE 'consumed' END AS hop, g.group_id,
    r.position, r.end_position, r.known_end, l.newest_landed AS landed,
    CASE r.hop WHEN 0 THEN l.source WHEN 1 THEN l.target ELSE g.cluster END AS cluster, r.waiting_since
  FROM waited r JOIN known_flow_partitions l ON r.flow_partition = l.flow_partition LEFT JOIN readers g ON r.reader = g.reader)
"""  # noqa: S608  no value enters the text

_COUNTED = f"""
WITH {{hops}}, {{waited}}, {_NEWEST},
lost AS (
  SELECT observed_at, flow, source, topic, generation, partition, position, end_position,
    CAST(IF(position < known_end, records + greatest(known_end - greatest(position, landed), 0), 0) AS BIGINT) AS records,
    {TIME_LAG} AS data_ms, position >= known_end OR landed >= known_end AS is_exact
  FROM (
    SELECT /*+ BROADCAST(l) */ w.observed_at, l.flow, l.source, l.topic, l.generation, l.partition, w.position, w.end_position,
      w.known_end, w.records, w.waiting_since, greatest(l.newest_landed, w.held) AS landed
    FROM waited w JOIN known_flow_partitions l ON w.flow_partition = l.flow_partition WHERE w.hop = 1)
)
"""  # noqa: S608  no value enters the text

RPO = f"""
{_COUNTED}
SELECT observed_at, flow, CAST(sum(records) AS BIGINT) AS records,
  IF(count(data_ms) = count(*), max(data_ms), NULL) AS data_ms, min(is_exact) AS is_exact
FROM lost GROUP BY observed_at, flow
"""  # noqa: S608  no value enters the text

LOSS = f"{_COUNTED} SELECT * FROM lost"  # noqa: S608  no value enters the text

LATENCY = f"""
WITH {runs("")},
{DENSE_RANGES},
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
