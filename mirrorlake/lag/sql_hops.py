"""SQL texts of the positions of each hop of a flow: the first half of the texts of `lag/sql_texts.py`.

Names are numbered where a table is read, and only the numbers go through windows and joins: of a month these hold millions of
rows, and sorting the names with them took 13 times as long (2026-11-22).

    place            one position that is sampled: kind, flow, source partition, group
    flow_partition   a source partition in one flow; `source_number` is the same for all flows
    route            a source partition and a target partition that it feeds
    reader           a group on one cluster; 0 is the mirror itself
    backlog          the records that a hop waits for: of a source partition, or of a flow_partition without withheld ones
"""

from __future__ import annotations

KEY = "source, topic, generation, partition"
_RUN = "flow, source_topic, generation, source_partition, first_upstream"
_OF_RUN = ", ".join(f"m.{name}" for name in _RUN.split(", "))
_WAY = "flow, source, source_topic, generation, source_partition, target, target_topic, target_partition"
_PLACE = f"kind, flow, {KEY}, group_id"
PRECEDING = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"

# Spark computes a common table again wherever it is named, unless its rows may differ each time; otherwise a plan would hold
# hundreds of scans.
_ONCE = "rand() >= 0"


def same(left: str, right: str, names: str = KEY) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names.split(", "))


# Mapped ranges are split at their holes, so that no record is compared with every hole.
DENSE_RANGES = f"""
cuts AS (
  SELECT *, first_upstream AS first, CAST(0 AS BIGINT) AS missing FROM runs
  UNION ALL
  SELECT * EXCEPT (hole), hole.first + hole.length, hole.length FROM (SELECT *, explode(holes) AS hole FROM runs)
),
stretches AS (
  SELECT * FROM (
    SELECT {_RUN}, source, target, target_topic, target_partition, committed_at, first,
      first_downstream + first - first_upstream - CAST(sum(missing) OVER (
        PARTITION BY {_RUN} ORDER BY first {PRECEDING}) AS BIGINT) AS downstream,
      coalesce(lead(first - missing) OVER (PARTITION BY {_RUN} ORDER BY first), last_upstream + 1) - first AS length
    FROM cuts)
  WHERE length > 0
)
"""  # noqa: S608  no value enters the text


def runs(which: str) -> str:
    """Return the SQL text of the mapped ranges that a condition holds for, each once."""
    return f"""
runs AS (
  SELECT {_OF_RUN}, f.source, f.target, any_value(m.last_upstream) AS last_upstream, any_value(m.holes) AS holes,
    any_value(m.target_topic) AS target_topic, any_value(m.target_partition) AS target_partition,
    any_value(m.first_downstream) AS first_downstream, min(m.committed_at) AS committed_at
  FROM {{offset_map}} m JOIN {{flows}} f ON m.flow = f.flow {which}
  GROUP BY {_OF_RUN}, f.source, f.target
)"""  # noqa: S608  no value enters the text


# The sampled values of each position.
LISTED = f"""
listed AS (
  SELECT {_PLACE}, CASE kind WHEN 'reached' THEN 'relay' WHEN 'republished' THEN 'flow' ELSE 'cluster' END AS subject,
    IF(kind = 'republished', flow, source) AS name, collect_list(seen) AS samples, max(position) AS furthest
  FROM (
    SELECT kind, coalesce(flow, '') AS flow, {KEY}, coalesce(group_id, '') AS group_id, position,
      named_struct('seen_at', observed_at, 'position', position) AS seen
    FROM {{positions}} WHERE kind IN ('last_stable', 'reached', 'republished', 'group'))
  GROUP BY {_PLACE}
)
"""  # noqa: S608  no value enters the text

# The value of each position from a sample to a sample. A complete sample ends positions that it lacks: a sampler that
# was restarted cannot know what went away before.
_PLACES = f"""
subjects AS (
  SELECT subject, name, CAST(row_number() OVER (ORDER BY subject, name) AS INT) AS asked
  FROM (SELECT DISTINCT subject, name FROM {{samples}} WHERE error IS NULL)
),
looks AS (
  SELECT asked, observed_at, look,
    greatest(look, coalesce(min(IF(unix_micros(observed_at) >= {{since}}, look, NULL)) OVER of_subject,
      max(look) OVER of_subject + 1)) AS first_look,
    least(min(IF(complete, look, NULL)) OVER (
      PARTITION BY asked ORDER BY look DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), max(look) OVER of_subject + 1) AS ended
  FROM (
    SELECT /*+ BROADCAST(s) */ s.asked, l.observed_at, max(l.complete) AS complete,
      CAST(row_number() OVER (PARTITION BY s.asked ORDER BY l.observed_at) AS INT) AS look
    FROM {{samples}} l JOIN subjects s ON l.subject = s.subject AND l.name = s.name
    WHERE l.error IS NULL GROUP BY s.asked, l.observed_at)
  WINDOW of_subject AS (PARTITION BY asked)
),
{LISTED},
places AS (
  SELECT CAST(row_number() OVER (ORDER BY {_PLACE}) AS INT) AS place, {_PLACE}, asked, furthest,
    CAST(IF(kind = 'group', dense_rank() OVER (ORDER BY group_id, source), 0) AS INT) AS reader
  FROM (SELECT {_PLACE}, subject, name, furthest FROM listed) JOIN subjects USING (subject, name)
  WHERE {_ONCE}
),
held AS (
  SELECT place, asked, position, first_look, least(ended, lead(look) OVER (PARTITION BY place ORDER BY look)) - 1 AS last_look
  FROM (
    SELECT /*+ BROADCAST(l) */ s.place, s.asked, s.seen.position AS position, l.look, l.first_look, l.ended
    FROM (SELECT place, asked, explode(samples) AS seen FROM listed JOIN places USING ({_PLACE})) s
    JOIN looks l ON s.asked = l.asked AND s.seen.seen_at = l.observed_at)
  WHERE {_ONCE}
),
flow_partitions AS (
  SELECT CAST(row_number() OVER (ORDER BY p.flow, p.source, p.topic, p.generation, p.partition) AS INT) AS flow_partition,
    CAST(dense_rank() OVER (ORDER BY p.source, p.topic, p.generation, p.partition) AS INT) AS source_number,
    p.flow, p.source, p.topic, p.generation, p.partition, f.target
  FROM places p JOIN {{flows}} f ON f.flow = p.flow
  WHERE p.kind = 'republished'
)
"""  # noqa: S608  no value enters the text

# A position of a group on a target is that of its oldest unread record on the source (law A).
_TRANSLATED = f"""
group_places AS (SELECT DISTINCT source, topic, partition FROM places WHERE kind = 'group'),
{runs("JOIN group_places g ON g.source = f.target AND g.topic = m.target_topic AND g.partition = m.target_partition")},
{DENSE_RANGES},
routes AS (
  SELECT CAST(row_number() OVER (ORDER BY {", ".join(f"r.{name}" for name in _WAY.split(", "))}) AS INT) AS route, r.*,
    l.flow_partition, l.source_number
  FROM (SELECT DISTINCT {_WAY} FROM runs) r JOIN flow_partitions l
    ON l.flow = r.flow AND l.source = r.source AND l.topic = r.source_topic AND l.generation = r.generation
    AND l.partition = r.source_partition
),
merged AS (
  SELECT *, last_value(first) IGNORE NULLS OVER (PARTITION BY route ORDER BY at DESC, is_run DESC {PRECEDING}) AS unread,
    last_value(downstream) IGNORE NULLS OVER (PARTITION BY route ORDER BY at DESC, is_run DESC {PRECEDING}) AS unread_at
  FROM (
    SELECT /*+ BROADCAST(w) */ w.route, w.flow_partition, w.source_number, w.reader, h.asked, h.first_look, h.last_look,
      h.position AS at, 0 AS is_run,
      CAST(NULL AS BIGINT) AS first, CAST(NULL AS BIGINT) AS downstream
    FROM held h JOIN (
      SELECT p.place, p.reader, y.route, y.flow_partition, y.source_number
      FROM places p JOIN routes y ON p.source = y.target AND p.topic = y.target_topic AND p.partition = y.target_partition
      WHERE p.kind = 'group') w ON h.place = w.place
    WHERE h.position IS NOT NULL
    UNION ALL
    SELECT w.route, NULL, NULL, NULL, NULL, NULL, NULL, s.downstream + s.length - 1, 1, s.first, s.downstream
    FROM stretches s JOIN routes w ON {same("s", "w", _WAY)})
)
"""  # noqa: S608  no value enters the text

BACKLOGS = f"""
backlogs AS (
  SELECT backlog.backlog AS backlog, backlog.scope AS scope, {KEY}
  FROM (
    SELECT DISTINCT explode(array(named_struct('backlog', flow_partition, 'scope', flow), named_struct('backlog', -source_number,
      'scope', ''))) AS backlog, {KEY}
    FROM flow_partitions)
)
"""  # noqa: S608  no value enters the text

_SEEN = f"""
{_PLACES},
{_TRANSLATED},
position_intervals AS (
  SELECT /*+ BROADCAST(s) */ s.flow_partition, s.source_number, s.reader, s.what, h.asked, h.position, h.first_look, h.last_look
  FROM held h JOIN (
    SELECT p.place, l.flow_partition, l.source_number, p.reader,
      CASE p.kind WHEN 'last_stable' THEN 1 WHEN 'reached' THEN 2 WHEN 'republished' THEN 3 ELSE 4 END AS what
    FROM places p JOIN flow_partitions l ON {same("p", "l")} WHERE p.kind <> 'republished' OR p.flow = l.flow) s ON h.place = s.place
  WHERE h.position IS NOT NULL
  UNION ALL
  SELECT flow_partition, source_number, reader, 5, asked, unread + greatest(at - unread_at, 0), first_look,
    last_look FROM merged WHERE is_run = 0
),
seen AS (
  SELECT /*+ BROADCAST(l) */ l.observed_at, s.flow_partition, s.source_number, s.reader, s.what, s.position
  FROM (SELECT *, explode(sequence(first_look, last_look)) AS look FROM position_intervals WHERE last_look >= first_look) s
  JOIN looks l ON s.asked = l.asked AND s.look = l.look WHERE {_ONCE}
)
"""  # noqa: S608  no value enters the text
_SIDES = f"""
readers AS (SELECT DISTINCT reader, group_id, source AS cluster FROM places WHERE kind = 'group'),
reached AS (SELECT {KEY}, furthest FROM places WHERE kind = 'reached'),
{BACKLOGS}
"""  # noqa: S608  no value enters the text

# Spark checks and plans a common table again wherever it is named: with two names for each table the views took minutes to plan.
HOPS = f"""
{_SEEN},
hop_positions AS (
  SELECT flow_partition, source_number, reader, observed_at, max(IF(what = 1, position, NULL)) AS end_position,
    max(IF(what = 2, position, NULL)) AS landed, max(IF(what = 3, position, NULL)) AS republished, max(what) = 5 AS is_translated,
    min(IF(what = 5, coalesce(position, 9223372036854775807), position)) AS consumed
  FROM seen GROUP BY flow_partition, source_number, reader, observed_at
),
hops AS (
  SELECT flow_partition, hop, reader, IF(hop = 1 OR is_translated, flow_partition, -source_number) AS backlog, observed_at, position,
    end_position,
    coalesce(end_position, landed) AS known_end
  FROM (
    SELECT *, CASE WHEN hop = 0 THEN landed WHEN hop = 1 THEN republished WHEN NOT is_translated THEN consumed
      WHEN republished IS NOT NULL THEN least(consumed, republished) END AS position
    FROM (
      SELECT *, explode(IF(reader = 0, array(0, 1), array(2))) AS hop
      FROM (
        SELECT flow_partition, source_number, reader, observed_at, is_translated, consumed,
          max(end_position) OVER of_flow_partition AS end_position,
          max(landed) OVER of_flow_partition AS landed, max(republished) OVER of_flow_partition AS republished
        FROM hop_positions WINDOW of_flow_partition AS (PARTITION BY flow_partition, observed_at))))
  WHERE position IS NOT NULL AND landed IS NOT NULL AND {_ONCE}
),
{_SIDES}
"""  # noqa: S608  no value enters the text

# Input and output of `lag/position_history.py`.
SAMPLED_POSITIONS = f"WITH {LISTED} SELECT * FROM listed ORDER BY subject, name"  # noqa: S608  no value enters the text
SAMPLE_TIMES = """
SELECT subject, name, collect_list(named_struct('seen_at', observed_at, 'complete', complete)) AS looks
FROM {samples} WHERE error IS NULL GROUP BY subject, name
"""
_HAS_HOLES = "coalesce(size(m.holes), 0) > 0"
_TO_GROUPS = (
    "JOIN {read_targets} g ON g.source = f.target AND g.topic = m.target_topic AND g.partition = m.target_partition"
)
# Most mapped ranges have no hole and are taken as they are; a duplicate has no effect.
DENSE_RANGES_BY_ROUTE = f"""
WITH {runs(f"{_TO_GROUPS} WHERE {_HAS_HOLES}")}, {DENSE_RANGES}
SELECT {_WAY}, collect_list(named_struct('first', first, 'downstream', downstream, 'length', length)) AS stretches
FROM (
  SELECT {_WAY}, first, downstream, length FROM stretches
  UNION ALL
  SELECT m.flow, f.source, m.source_topic, m.generation, m.source_partition, f.target, m.target_topic, m.target_partition,
    m.first_upstream, m.first_downstream, m.last_upstream + 1 - m.first_upstream
  FROM {{offset_map}} m JOIN {{flows}} f ON m.flow = f.flow {_TO_GROUPS} WHERE NOT {_HAS_HOLES})
GROUP BY {_WAY}
"""  # noqa: S608  no value enters the text
KNOWN_SIDES = f"""
flow_partitions AS (SELECT * FROM {{made_flow_partitions}}),
readers AS (SELECT * FROM {{made_readers}}),
reached AS (SELECT * FROM {{made_reached}}),
{BACKLOGS}
"""  # noqa: S608  no value enters the text
KNOWN_HOPS = f"hops AS (SELECT * FROM {{made_hops}}), {KNOWN_SIDES}"  # noqa: S608  no value enters the text

# The offset ranges in which records waited; no other records of the relays are needed.
WAITED = f"""(
  SELECT p.scope, {", ".join(f"p.{name}" for name in KEY.split(", "))}, w.lowest, w.highest
  FROM (SELECT backlog, min(position) AS lowest, max(known_end) AS highest FROM hops WHERE position < known_end GROUP BY backlog) w
  JOIN backlogs p ON w.backlog = p.backlog)"""  # noqa: S608  no value enters the text
