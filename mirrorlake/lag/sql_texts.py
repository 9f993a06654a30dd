"""The texts of lag, RPO and latency, in Spark's SQL with `{names}` for what `lag/sql.py` fills in.

Their words are those of `lag/sql_hops.py`.
"""

from __future__ import annotations

from mirrorlake.lag.moment import TIME_LAG
from mirrorlake.lag.sql_hops import KEY, PRECEDING, STRETCHES, runs, same

_RECORDS = f"""
bounds AS (SELECT p.pile, b.* FROM {{bounds}} b JOIN piles p ON p.scope = b.scope AND {same("p", "b")}),
withheld_parts AS (
  SELECT /*+ BROADCAST(b) */ b.pile, explode(w.ranges) AS part
  FROM {{withheld}} w JOIN bounds b ON w.flow = b.scope AND w.topic = b.topic AND w.generation = b.generation
    AND w.partition = b.partition AND w.last_offset >= b.lowest AND w.first_offset < b.highest
),
withheld_offsets AS (
  SELECT pile, explode(sequence(part.first, part.first + part.length - 1)) AS `offset` FROM withheld_parts
),
records AS (
  SELECT /*+ BROADCAST(b) */ b.pile, r.`offset`, r.timestamp
  FROM {{relays}} r JOIN bounds b ON {same("r", "b")} AND r.`offset` >= b.lowest AND r.`offset` < b.highest
  LEFT ANTI JOIN withheld_offsets k ON k.pile = b.pile AND k.`offset` = r.`offset`
),
newest AS (
  SELECT {KEY}, max(position) AS newest_landed
  FROM (SELECT {KEY}, furthest AS position FROM reached UNION ALL SELECT {KEY}, position FROM {{later}})
  GROUP BY {KEY}
),
known_lines AS (SELECT l.*, n.newest_landed FROM lines l JOIN newest n ON {same("l", "n")})
"""  # noqa: S608  no value enters the text


def _oldest(column: str) -> str:
    """Write what the oldest record at or past an offset holds."""
    return f"last_value({column}) IGNORE NULLS OVER (PARTITION BY pile ORDER BY place DESC, is_record DESC {PRECEDING})"


# The oldest record at or past each place of `asked`, and how many there are. Spark analyses a common table again wherever it is
# named, so that it gets one window.
FOUND = f"""
found AS (
  SELECT * FROM (
    SELECT *, {_oldest("record")} AS oldest, {_oldest("stamp")} AS oldest_stamp,
      sum(is_record) OVER (PARTITION BY pile ORDER BY place DESC, is_record DESC {PRECEDING}) AS records_after
    FROM (
      SELECT *, 0 AS is_record, CAST(NULL AS BIGINT) AS record, CAST(NULL AS TIMESTAMP) AS stamp FROM asked
      UNION ALL
      SELECT NULL, NULL, NULL, pile, NULL, NULL, NULL, NULL, `offset`, NULL, 1, `offset`, timestamp FROM records))
  WHERE is_record = 0
)
"""  # noqa: S608  no value enters the text

# The same for DuckDB, where `hops` is made. Most places hold a record: sorting places among records took 3 times as long. What
# follows a place without one begins a stretch of records.
JOINED = f"""
numbered AS (SELECT *, row_number() OVER (PARTITION BY pile ORDER BY `offset` DESC) AS following FROM records),
laid AS (
  SELECT a.*, r.`offset` AS here, r.timestamp AS stamp, r.following
  FROM asked a LEFT JOIN numbered r ON a.pile = r.pile AND a.place = r.`offset`
),
empty AS (SELECT DISTINCT pile, place FROM laid WHERE place IS NOT NULL AND here IS NULL),
beginnings AS (
  SELECT r.* FROM numbered r LEFT SEMI JOIN empty e ON r.pile = e.pile
  LEFT ANTI JOIN (SELECT b.pile, b.`offset` FROM records b LEFT SEMI JOIN empty e ON b.pile = e.pile) b
    ON r.pile = b.pile AND r.`offset` = b.`offset` + 1
),
next AS (
  SELECT *, {_oldest("record")} AS oldest, {_oldest("stamp")} AS oldest_stamp, {_oldest("following")} AS oldest_following
  FROM (
    SELECT pile, place, 0 AS is_record, CAST(NULL AS BIGINT) AS record, CAST(NULL AS TIMESTAMP) AS stamp,
      CAST(NULL AS BIGINT) AS following
    FROM empty
    UNION ALL
    SELECT pile, `offset`, 1, `offset`, timestamp, following FROM beginnings)
),
found AS (
  SELECT l.*, coalesce(l.here, n.oldest) AS oldest, coalesce(l.stamp, n.oldest_stamp) AS oldest_stamp,
    coalesce(l.following, n.oldest_following, 0) AS records_after
  FROM laid l LEFT JOIN next n ON n.is_record = 0 AND l.here IS NULL AND l.pile = n.pile AND l.place = n.place
)
"""  # noqa: S608  no value enters the text


LAG = f"""
WITH {{hops}}, {_RECORDS},
asked AS (
  SELECT line, hop, reader, pile, observed_at, position, end_position, known_end, IF(position < known_end, position, NULL) AS place,
    1 AS sign
  FROM hops
),
{{found}}
SELECT observed_at, flow, source, topic, generation, partition, hop, group_id, position, end_position,
  IF(end_position IS NULL, NULL, greatest(end_position - position, 0)) AS offset_lag, waiting_since,
  {TIME_LAG} AS time_lag_ms, cluster
FROM (
  SELECT /*+ BROADCAST(l), BROADCAST(g) */ r.observed_at, l.flow, l.source, l.topic, l.generation, l.partition,
    CASE r.hop WHEN 0 THEN 'landed' WHEN 1 THEN 'republished' ELSE 'consumed' END AS hop, g.group_id,
    r.position, r.end_position, r.known_end, l.newest_landed AS landed,
    CASE r.hop WHEN 0 THEN l.source WHEN 1 THEN l.target ELSE g.cluster END AS cluster,
    IF(r.place IS NOT NULL AND r.oldest < r.known_end, r.oldest_stamp, NULL) AS waiting_since
  FROM found r JOIN known_lines l ON r.line = l.line LEFT JOIN readers g ON r.reader = g.reader)
"""  # noqa: S608  no value enters the text

# Every record between a position and the end counts once: the records from the one on, less those from the other on.
_COUNTED = f"""
WITH {{hops}}, {_RECORDS},
asked AS (
  SELECT line, hop, reader, line AS pile, observed_at, position, end_position, known_end,
    IF(position < known_end, edge.place, NULL) AS place, edge.sign AS sign
  FROM (
    SELECT *, explode(array(named_struct('place', position, 'sign', 1), named_struct('place', known_end, 'sign', -1))) AS edge
    FROM hops WHERE hop = 1)
),
{{found}},
partitions AS (
  SELECT /*+ BROADCAST(l) */ c.observed_at, c.pile, c.known_end, c.end_position, l.newest_landed AS landed, c.position,
    sum(c.sign * c.records_after) AS records,
    max(IF(c.sign = 1 AND c.place IS NOT NULL AND c.oldest < c.known_end, c.oldest_stamp, NULL)) AS waiting_since
  FROM found c JOIN known_lines l ON c.pile = l.line
  GROUP BY c.observed_at, c.pile, c.known_end, c.end_position, l.newest_landed, c.position
),
lost AS (
  SELECT /*+ BROADCAST(l) */ p.observed_at, l.flow, l.source, l.topic, l.generation, l.partition, p.position, p.end_position,
    CAST(IF(p.position < p.known_end, p.records + greatest(p.known_end - greatest(p.position, p.landed), 0), 0) AS BIGINT) AS records,
    p.time_lag_ms AS data_ms, p.position >= p.known_end OR p.landed >= p.known_end AS is_exact
  FROM (SELECT *, {TIME_LAG} AS time_lag_ms FROM partitions) p JOIN lines l ON p.pile = l.line
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
{STRETCHES},
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
