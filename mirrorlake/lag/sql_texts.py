"""The texts of lag, RPO and latency, in Spark's SQL with `{names}` for what `lag/sql.py` fills in.

Names are numbered where a table is read, and only the numbers go through windows and joins: of a month these hold millions of
rows, and sorting the names with them took 13 times as long (2026-11-22).

    place    one position that is followed: kind, flow, source partition, group
    line     a source partition as one flow carries it; `spot` is the same of all flows
    way      a source partition and a target partition that it goes to
    reader   a group on one cluster; 0 is the mirror itself
    pile     the records that a hop waits for: of a spot, or of a line without what its flow withheld
"""

from __future__ import annotations

from mirrorlake.lag.moment import TIME_LAG

KEY = "source, topic, generation, partition"
_RUN = "flow, source_topic, generation, source_partition, first_upstream"
_OF_RUN = ", ".join(f"m.{name}" for name in _RUN.split(", "))
_WAY = "flow, source, source_topic, generation, source_partition, target, target_topic, target_partition"
_PLACE = f"kind, flow, {KEY}, group_id"
_PRECEDING = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"

# Spark computes a common table again wherever it is named, unless its rows might differ each time; a plan of these would hold
# hundreds of scans.
_ONCE = "rand() >= 0"


def _same(left: str, right: str, names: str = KEY) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names.split(", "))


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
        PARTITION BY {_RUN} ORDER BY first {_PRECEDING}) AS BIGINT) AS downstream,
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
_PLACES = f"""
subjects AS (
  SELECT subject, name, CAST(row_number() OVER (ORDER BY subject, name) AS INT) AS asked
  FROM (SELECT DISTINCT subject, name FROM {{samples}} WHERE error IS NULL)
),
looks AS (
  SELECT *,
    min(IF(complete, look, NULL)) OVER (
      PARTITION BY asked ORDER BY look ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next_complete,
    max(look) OVER (PARTITION BY asked) AS newest,
    min(IF(unix_micros(observed_at) >= {{since}}, look, NULL)) OVER (PARTITION BY asked) AS first_shown
  FROM (
    SELECT /*+ BROADCAST(s) */ s.asked, l.observed_at, max(l.complete) AS complete,
      CAST(row_number() OVER (PARTITION BY s.asked ORDER BY l.observed_at) AS INT) AS look
    FROM {{samples}} l JOIN subjects s ON l.subject = s.subject AND l.name = s.name
    WHERE l.error IS NULL GROUP BY s.asked, l.observed_at)
),
listed AS (
  SELECT {_PLACE}, CASE kind WHEN 'reached' THEN 'relay' WHEN 'republished' THEN 'flow' ELSE 'cluster' END AS subject,
    IF(kind = 'republished', flow, source) AS name, collect_list(seen) AS stood, max(position) AS furthest
  FROM (
    SELECT kind, coalesce(flow, '') AS flow, {KEY}, coalesce(group_id, '') AS group_id, position,
      named_struct('seen_at', observed_at, 'position', position) AS seen
    FROM {{positions}} WHERE kind IN ('last_stable', 'reached', 'republished', 'group'))
  GROUP BY {_PLACE}
),
places AS (
  SELECT CAST(row_number() OVER (ORDER BY {_PLACE}) AS INT) AS place, {_PLACE}, asked,
    CAST(IF(kind = 'group', dense_rank() OVER (ORDER BY group_id, source), 0) AS INT) AS reader
  FROM (SELECT {_PLACE}, subject, name FROM listed) JOIN subjects USING (subject, name)
),
held AS (
  SELECT place, asked, position, greatest(look, coalesce(first_shown, newest + 1)) AS first_look,
    least(next_complete, newest + 1, lead(look) OVER (PARTITION BY place ORDER BY look)) - 1 AS last_look
  FROM (
    SELECT /*+ BROADCAST(l) */ s.place, s.asked, s.seen.position AS position, l.look, l.first_shown, l.newest, l.next_complete
    FROM (SELECT place, asked, explode(stood) AS seen FROM listed JOIN places USING ({_PLACE})) s
    JOIN looks l ON s.asked = l.asked AND s.seen.seen_at = l.observed_at)
  WHERE {_ONCE}
),
lines AS (
  SELECT CAST(row_number() OVER (ORDER BY p.flow, p.source, p.topic, p.generation, p.partition) AS INT) AS line,
    CAST(dense_rank() OVER (ORDER BY p.source, p.topic, p.generation, p.partition) AS INT) AS spot,
    p.flow, p.source, p.topic, p.generation, p.partition, f.target
  FROM places p JOIN {{flows}} f ON f.flow = p.flow
  WHERE p.kind = 'republished'
)
"""  # noqa: S608  no value enters the text

# A position of a group on a target is that of its oldest unread record on the source (law A).
_TRANSLATED = f"""
group_places AS (SELECT DISTINCT source, topic, partition FROM places WHERE kind = 'group'),
{_runs("JOIN group_places g ON g.source = f.target AND g.topic = m.target_topic AND g.partition = m.target_partition")},
{_STRETCHES},
ways AS (
  SELECT CAST(row_number() OVER (ORDER BY {", ".join(f"r.{name}" for name in _WAY.split(", "))}) AS INT) AS way, r.*, l.line, l.spot
  FROM (SELECT DISTINCT {_WAY} FROM runs) r JOIN lines l
    ON l.flow = r.flow AND l.source = r.source AND l.topic = r.source_topic AND l.generation = r.generation
    AND l.partition = r.source_partition
),
merged AS (
  SELECT *, last_value(first) IGNORE NULLS OVER (PARTITION BY way ORDER BY at DESC, is_run DESC {_PRECEDING}) AS unread,
    last_value(downstream) IGNORE NULLS OVER (PARTITION BY way ORDER BY at DESC, is_run DESC {_PRECEDING}) AS unread_at
  FROM (
    SELECT /*+ BROADCAST(w) */ w.way, w.line, w.spot, w.reader, h.asked, h.first_look, h.last_look, h.position AS at, 0 AS is_run,
      CAST(NULL AS BIGINT) AS first, CAST(NULL AS BIGINT) AS downstream
    FROM held h JOIN (
      SELECT p.place, p.reader, y.way, y.line, y.spot
      FROM places p JOIN ways y ON p.source = y.target AND p.topic = y.target_topic AND p.partition = y.target_partition
      WHERE p.kind = 'group') w ON h.place = w.place
    WHERE h.position IS NOT NULL
    UNION ALL
    SELECT w.way, NULL, NULL, NULL, NULL, NULL, NULL, s.downstream + s.length - 1, 1, s.first, s.downstream
    FROM stretches s JOIN ways w ON {_same("s", "w", _WAY)})
)
"""  # noqa: S608  no value enters the text

PILES = f"""
piles AS (
  SELECT pile.pile AS pile, pile.scope AS scope, {KEY}
  FROM (
    SELECT DISTINCT explode(array(named_struct('pile', line, 'scope', flow), named_struct('pile', -spot, 'scope', ''))) AS pile, {KEY}
    FROM lines)
)
"""  # noqa: S608  no value enters the text

_SEEN = f"""
{_PLACES},
{_TRANSLATED},
standing AS (
  SELECT /*+ BROADCAST(s) */ s.line, s.spot, s.reader, s.what, h.asked, h.position, h.first_look, h.last_look
  FROM held h JOIN (
    SELECT p.place, l.line, l.spot, p.reader,
      CASE p.kind WHEN 'last_stable' THEN 1 WHEN 'reached' THEN 2 WHEN 'republished' THEN 3 ELSE 4 END AS what
    FROM places p JOIN lines l ON {_same("p", "l")} WHERE p.kind <> 'republished' OR p.flow = l.flow) s ON h.place = s.place
  WHERE h.position IS NOT NULL
  UNION ALL
  SELECT line, spot, reader, 5, asked, unread + greatest(at - unread_at, 0), first_look, last_look FROM merged WHERE is_run = 0
),
seen AS (
  SELECT /*+ BROADCAST(l) */ l.observed_at, s.line, s.spot, s.reader, s.what, s.position
  FROM (SELECT *, explode(sequence(first_look, last_look)) AS look FROM standing WHERE last_look >= first_look) s
  JOIN looks l ON s.asked = l.asked AND s.look = l.look WHERE {_ONCE}
)
"""  # noqa: S608  no value enters the text
_SIDES = f"""
readers AS (SELECT DISTINCT reader, group_id, source AS cluster FROM places WHERE kind = 'group'),
reached AS (SELECT {KEY}, furthest FROM listed WHERE kind = 'reached'),
{PILES}
"""  # noqa: S608  no value enters the text

# Spark checks and plans a common table again wherever it is named: with two names for each table the views took minutes to plan.
HOPS = f"""
{_SEEN},
stood AS (
  SELECT line, spot, reader, observed_at, max(IF(what = 1, position, NULL)) AS end_position,
    max(IF(what = 2, position, NULL)) AS landed, max(IF(what = 3, position, NULL)) AS republished, max(what) = 5 AS is_translated,
    min(IF(what = 5, coalesce(position, 9223372036854775807), position)) AS consumed
  FROM seen GROUP BY line, spot, reader, observed_at
),
hops AS (
  SELECT line, hop, reader, IF(hop = 1 OR is_translated, line, -spot) AS pile, observed_at, position, end_position,
    coalesce(end_position, landed) AS known_end
  FROM (
    SELECT *, CASE WHEN hop = 0 THEN landed WHEN hop = 1 THEN republished WHEN NOT is_translated THEN consumed
      WHEN republished IS NOT NULL THEN least(consumed, republished) END AS position
    FROM (
      SELECT *, explode(IF(reader = 0, array(0, 1), array(2))) AS hop
      FROM (
        SELECT line, spot, reader, observed_at, is_translated, consumed, max(end_position) OVER of_line AS end_position,
          max(landed) OVER of_line AS landed, max(republished) OVER of_line AS republished
        FROM stood WINDOW of_line AS (PARTITION BY line, observed_at))))
  WHERE position IS NOT NULL AND landed IS NOT NULL AND {_ONCE}
),
{_SIDES}
"""  # noqa: S608  no value enters the text

# The same for DuckDB, which makes a common table once, and joins faster than it sorts.
_HOPS_JOINED = f"""
{_SEEN},
marks AS (
  SELECT line, spot, observed_at, max(IF(what = 1, position, NULL)) AS end_position, max(IF(what = 2, position, NULL)) AS landed,
    max(IF(what = 3, position, NULL)) AS republished
  FROM seen WHERE what <= 3 GROUP BY line, spot, observed_at
),
consumed AS (
  SELECT line, reader, observed_at, max(what) = 5 AS is_translated,
    min(IF(what = 5, coalesce(position, 9223372036854775807), position)) AS position
  FROM seen WHERE what >= 4 GROUP BY line, reader, observed_at
),
hops AS (
  SELECT line, hop, reader, pile, observed_at, position, end_position, coalesce(end_position, landed) AS known_end
  FROM (
    SELECT line, hop, 0 AS reader, IF(hop = 0, -spot, line) AS pile, observed_at, IF(hop = 0, landed, republished) AS position,
      end_position, landed
    FROM (SELECT *, explode(array(0, 1)) AS hop FROM marks)
    UNION ALL
    SELECT c.line, 2, c.reader, IF(c.is_translated, c.line, -m.spot), c.observed_at,
      IF(c.is_translated, IF(m.republished IS NULL, NULL, least(c.position, m.republished)), c.position), m.end_position, m.landed
    FROM consumed c JOIN marks m ON c.line = m.line AND c.observed_at = m.observed_at)
  WHERE position IS NOT NULL AND landed IS NOT NULL
),
{_SIDES}
"""  # noqa: S608  no value enters the text

# What `_HOPS_JOINED` made, as one row of lists: made once, it serves two questions.
MADE = f"""
WITH {_HOPS_JOINED}
SELECT
  (SELECT collect_list(named_struct('line', line, 'hop', hop, 'reader', reader, 'pile', pile, 'observed_at', observed_at,
    'position', position, 'end_position', end_position, 'known_end', known_end)) FROM hops) AS hops,
  (SELECT collect_list(named_struct('line', line, 'spot', spot, 'flow', flow, 'source', source, 'topic', topic,
    'generation', generation, 'partition', partition, 'target', target)) FROM lines) AS lines,
  (SELECT collect_list(named_struct('reader', reader, 'group_id', group_id, 'cluster', cluster)) FROM readers) AS readers,
  (SELECT collect_list(named_struct('source', source, 'topic', topic, 'generation', generation, 'partition', partition,
    'furthest', furthest)) FROM reached) AS reached
"""  # noqa: S608  no value enters the text
KNOWN_HOPS = f"""
hops AS (SELECT * FROM {{made_hops}}),
lines AS (SELECT * FROM {{made_lines}}),
readers AS (SELECT * FROM {{made_readers}}),
reached AS (SELECT * FROM {{made_reached}}),
{PILES}
"""  # noqa: S608  no value enters the text

# Between which offsets records waited: no other records of the relays are needed.
WAITED = f"""(
  SELECT p.scope, {", ".join(f"p.{name}" for name in KEY.split(", "))}, w.lowest, w.highest
  FROM (SELECT pile, min(position) AS lowest, max(known_end) AS highest FROM hops WHERE position < known_end GROUP BY pile) w
  JOIN piles p ON w.pile = p.pile)"""  # noqa: S608  no value enters the text

_RECORDS = f"""
bounds AS (SELECT p.pile, b.* FROM {{bounds}} b JOIN piles p ON p.scope = b.scope AND {_same("p", "b")}),
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
  FROM {{relays}} r JOIN bounds b ON {_same("r", "b")} AND r.`offset` >= b.lowest AND r.`offset` < b.highest
  LEFT ANTI JOIN withheld_offsets k ON k.pile = b.pile AND k.`offset` = r.`offset`
),
newest AS (
  SELECT {KEY}, max(position) AS newest_landed
  FROM (SELECT {KEY}, furthest AS position FROM reached UNION ALL SELECT {KEY}, position FROM {{later}})
  GROUP BY {KEY}
),
known_lines AS (SELECT l.*, n.newest_landed FROM lines l JOIN newest n ON {_same("l", "n")})
"""  # noqa: S608  no value enters the text


def _oldest(column: str) -> str:
    """Write what the oldest record at or past an offset holds."""
    return (
        f"last_value({column}) IGNORE NULLS OVER (PARTITION BY pile ORDER BY place DESC, is_record DESC {_PRECEDING})"
    )


# The oldest record at or past each place of `asked`, and how many there are. Spark analyses a common table again wherever it is
# named, so that it gets one window.
FOUND = f"""
found AS (
  SELECT * FROM (
    SELECT *, {_oldest("record")} AS oldest, {_oldest("stamp")} AS oldest_stamp,
      sum(is_record) OVER (PARTITION BY pile ORDER BY place DESC, is_record DESC {_PRECEDING}) AS records_after
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
  LEFT ANTI JOIN records b ON r.pile = b.pile AND r.`offset` = b.`offset` + 1
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
