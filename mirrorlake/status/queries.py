"""The columns and the SQL of lag, RPO and latency, as of queries and of views."""

from __future__ import annotations

from mirrorlake.lake import NAME_SQL, SUBJECT_SQL, dense_ranges
from mirrorlake.status.verdict import HopKey, LagSample

# `position` is the next upstream offset that has not passed the hop (`landed`, `republished` or `consumed`, by a group), on
# `cluster`: the source, or the flow's target. `end_position` is the last stable offset of the source.
LAG_COLUMNS = {
    "observed_at": "timestamp",
    "flow": "string",
    "source": "string",
    "topic": "string",
    "generation": "int",
    "partition": "int",
    "hop": "string",
    "group_id": "string",
    "position": "bigint",
    "end_position": "bigint",
    "offset_lag": "bigint",
    "waiting_since": "timestamp",
    "time_lag_ms": "bigint",
    "cluster": "string",
}
_PLACE = "source, topic, generation, partition"
KINDS = "('last_stable', 'reached', 'republished', 'group', 'consumed')"


def _same(left: str, right: str, names: str = _PLACE) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names.split(", "))


def _has_these_flows(when: str) -> str:
    """Of several settings files on one lake, another one samples other topics and groups of these clusters."""
    return f"""scope IN (
    SELECT o.scope FROM {{samples}} AS o JOIN {{flows}} AS f ON o.name = f.flow WHERE o.subject = 'flow' AND {when})"""  # noqa: S608


# {read}: from the last complete samples before the shown time on; {of}: which positions; {shown}: the time that is reported. A
# complete sample ends positions of its scope that it lacks: a sampler that was restarted cannot know what went away before.
LAG = f"""
WITH snapshots AS (
  SELECT subject, name, scope, observed_at, min(CASE WHEN complete THEN observed_at END) OVER (
    PARTITION BY subject, name, scope ORDER BY observed_at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS completed_at
  FROM (
    SELECT subject, name, scope, observed_at, max(complete) AS complete FROM {{samples}}
    WHERE error IS NULL AND {{read}} AND {_has_these_flows("{read}")} GROUP BY subject, name, scope, observed_at)
),
spans AS (
  SELECT p.*, l.scope, least(l.completed_at, lead(p.observed_at) OVER (
    PARTITION BY kind, flow, group_id, {_PLACE}, l.scope ORDER BY p.observed_at)) AS until
  FROM (
    SELECT kind, flow, group_id, {_PLACE}, position, waits, waiting_since, observed_at, {SUBJECT_SQL} AS subject, {NAME_SQL} AS name
    FROM {{positions}} AS q WHERE kind IN {KINDS} AND {{read}} AND {{of}}) AS p
  JOIN snapshots AS l ON p.subject = l.subject AND p.name = l.name AND p.observed_at = l.observed_at
),
held AS (
  SELECT s.kind, s.flow, s.group_id, s.source, s.topic, s.generation, s.partition, s.position, s.waits, s.waiting_since, l.observed_at
  FROM (SELECT * FROM snapshots WHERE {{shown}}) AS l JOIN spans AS s
    ON {_same("s", "l", "subject, name, scope")} AND s.observed_at <= l.observed_at AND coalesce(l.observed_at < s.until, true)
  WHERE s.position IS NOT NULL
),
places AS (
  SELECT DISTINCT f.flow, f.target, s.source, s.topic, s.generation, s.partition
  FROM spans AS s JOIN {{flows}} AS f ON s.flow = f.flow WHERE s.kind = 'republished'
)
SELECT h.observed_at, p.flow, p.source, p.topic, p.generation, p.partition,
  CASE h.kind WHEN 'reached' THEN 'landed' WHEN 'republished' THEN 'republished' ELSE 'consumed' END AS hop, h.group_id,
  h.position, e.position AS end_position,
  CASE WHEN e.position IS NOT NULL THEN greatest(e.position - h.position, 0) END AS offset_lag,
  CASE WHEN e.position IS NOT NULL THEN h.waiting_since END AS waiting_since,
  CASE WHEN e.position IS NULL THEN NULL
    WHEN h.waiting_since IS NOT NULL THEN greatest(unix_millis(h.observed_at) - unix_millis(h.waiting_since), 0)
    WHEN NOT h.waits OR e.position <= h.position THEN 0 END AS time_lag_ms,
  CASE WHEN h.flow IS NULL THEN p.source ELSE p.target END AS cluster
FROM held AS h JOIN places AS p ON {_same("h", "p")} AND coalesce(h.flow = p.flow, true)
LEFT JOIN (SELECT * FROM held WHERE kind = 'last_stable') AS e ON {_same("h", "e")} AND h.observed_at = e.observed_at
WHERE h.kind <> 'last_stable'
"""  # noqa: S608  no value enters the text

RPO = f"""
SELECT observed_at, flow,
  CASE WHEN count(offset_lag) = count(*) THEN CAST(sum(
    CASE WHEN time_lag_ms = 0 AND waiting_since IS NULL THEN 0 ELSE offset_lag END) AS BIGINT) END AS records,
  CASE WHEN count(time_lag_ms) = count(*) THEN max(time_lag_ms) END AS data_ms
FROM ({LAG}) WHERE hop = 'republished' GROUP BY observed_at, flow
"""  # noqa: S608  no value enters the text

_RUN = "flow, source_topic, generation, source_partition, first_upstream"
_SENT = "flow, source, source_topic, generation, source_partition, committed_at"
# Mapped ranges are split at their holes, so that no record is compared with every hole.
LATENCY = f"""
WITH runs AS (
  SELECT {", ".join(f"m.{name}" for name in _RUN.split(", "))}, f.source, any_value(m.last_upstream) AS last_upstream,
    any_value(m.holes) AS holes, any_value(m.lane) AS lane, any_value(m.ledger_seq) AS ledger_seq, min(m.committed_at) AS committed_at
  FROM {{offset_map}} AS m JOIN {{flows}} AS f ON m.flow = f.flow WHERE m.kind = 'sent' AND {{sent}}
  GROUP BY {", ".join(f"m.{name}" for name in _RUN.split(", "))}, f.source
),
sent AS (SELECT {_SENT}, explode(sequence(first, last)) AS upstream FROM ({dense_ranges("runs", _SENT)})),
records AS (
  SELECT s.flow, s.source_topic AS topic, unix_micros(s.committed_at) - unix_micros(s.committed_at) % {{bucket_us}} AS began,
    greatest(unix_millis(s.committed_at) - unix_millis(r.timestamp), 0) AS ms
  FROM sent AS s JOIN {{relays}} AS r ON r.source = s.source AND r.topic = s.source_topic AND r.generation = s.generation
    AND r.partition = s.source_partition AND r.`offset` = s.upstream
)
SELECT timestamp_micros(began) AS bucket, flow, topic, count(*) AS records, percentile(ms, 0.5) AS p50_ms,
  percentile(ms, 0.95) AS p95_ms, percentile(ms, 0.99) AS p99_ms, max(ms) AS max_ms
FROM records GROUP BY began, flow, topic
"""  # noqa: S608  no value enters the text
SENT_OFFSETS = """
    SELECT f.source, m.source_topic AS topic, m.generation, m.source_partition AS partition,
        min(m.first_upstream) AS lowest, max(m.last_upstream) + 1 AS highest
    FROM {offset_map} AS m JOIN {flows} AS f ON m.flow = f.flow WHERE m.kind = 'sent' AND {sent}
    GROUP BY f.source, m.source_topic, m.generation, m.source_partition
"""
OF_ASKED = f"EXISTS (SELECT 1 FROM {{asked}} AS a WHERE {_same('a', 'q')})"  # noqa: S608  names of columns
RECENT = f"SELECT {', '.join((*HopKey._fields, *LagSample._fields))} FROM {{answer}} ORDER BY observed_at"  # noqa: S608
LAST_LOOKS = f"""
    SELECT max(observed_at) AS at FROM {{samples}} WHERE subject = 'cluster' AND error IS NULL
        AND array_contains(:names, name) AND unix_micros(observed_at) <= :until
        AND {_has_these_flows("unix_micros(o.observed_at) <= :until")} GROUP BY name
"""  # noqa: S608  names of columns
OF_GROUP = f"""
    SELECT {", ".join(LAG_COLUMNS)} FROM (
        SELECT *, max(observed_at) OVER (PARTITION BY cluster) AS newest_at FROM {{answer}} WHERE group_id = :group_id)
    WHERE observed_at = newest_at
"""  # noqa: S608  names of columns
LOSS = """
    SELECT r.observed_at, f.flow, r.records, r.data_ms FROM {flows} AS f LEFT JOIN (
        SELECT *, max(observed_at) OVER (PARTITION BY flow) AS newest_at FROM {answer}) AS r
        ON f.flow = r.flow AND r.observed_at = r.newest_at
    ORDER BY f.flow
"""
# What was not known makes no maximum smaller, so its samples are counted: those of rows without a lag, and those without a row.
LONGEST = f"""
    WITH silent AS (
        SELECT subject, name, count(DISTINCT observed_at) AS samples FROM {{samples}}
        WHERE error IS NOT NULL AND unix_micros(observed_at) >= :shown_from AND unix_micros(observed_at) <= :read_to
            AND {_has_these_flows("unix_micros(o.observed_at) >= :shown_from")}
        GROUP BY subject, name
    ),
    lags AS (
        SELECT observed_at, flow, source, {{place}} AS place, hop, group_id, cluster, max(time_lag_ms) AS time_lag_ms,
            CASE WHEN count(offset_lag) = count(*) THEN CAST(sum(offset_lag) AS BIGINT) END AS offset_lag,
            count(*) - count(time_lag_ms) AS lacking
        FROM {{answer}} GROUP BY observed_at, flow, source, {{place}}, hop, group_id, cluster
    )
    SELECT * FROM (
    SELECT a.flow, a.place, a.hop, a.group_id, a.cluster, max(a.offset_lag) AS offset_lag, max(a.time_lag_ms) AS time_lag_ms,
        count(CASE WHEN a.lacking > 0 THEN 1 END) + coalesce(max(s.samples), 0) AS unknown
    FROM lags AS a LEFT JOIN silent AS s ON s.name = CASE WHEN a.cluster = a.source THEN a.source ELSE a.flow END
        AND s.subject = CASE WHEN a.hop = 'landed' THEN 'relay' WHEN a.cluster = a.source THEN 'cluster' ELSE 'flow' END
    GROUP BY a.flow, a.place, a.hop, a.group_id, a.cluster
    UNION ALL
    SELECT f.flow, '*', 'republished', NULL, f.target, NULL, NULL, s.samples
    FROM silent AS s JOIN {{flows}} AS f ON s.subject = 'flow' AND s.name = f.flow
    WHERE NOT EXISTS (SELECT 1 FROM lags AS l WHERE l.flow = f.flow AND l.hop = 'republished'))
    ORDER BY time_lag_ms DESC NULLS FIRST, flow, place, hop, group_id, cluster
"""  # noqa: S608  names of columns
# A flow or cluster that left the settings was sampled long ago; it would make every query read from then on.
COMPLETE = """
    SELECT max(CASE WHEN complete AND error IS NULL AND unix_micros(observed_at) <= :start THEN observed_at END) AS at
    FROM {samples} WHERE array_contains(:names, name) GROUP BY subject, name, scope
    HAVING max(unix_micros(observed_at)) >= :start
"""
# Partitions are summed as in `sum_lags`: an unknown part makes the sum unknown.
LINES = """
    SELECT max(observed_at) AS observed_at, flow, hop, group_id,
        CASE WHEN count(offset_lag) = count(*) THEN max(offset_lag) END AS offset_lag,
        CASE WHEN count(time_lag_ms) = count(*) THEN max(time_lag_ms) END AS time_lag_ms
    FROM (
        SELECT observed_at, flow, hop, group_id,
            CASE WHEN count(offset_lag) = count(*) THEN CAST(sum(offset_lag) AS BIGINT) END AS offset_lag,
            CASE WHEN count(time_lag_ms) = count(*) THEN max(time_lag_ms) END AS time_lag_ms
        FROM {answer} GROUP BY observed_at, flow, hop, group_id)
    GROUP BY flow, hop, group_id, CAST(floor((unix_micros(observed_at) - :since_us) / :bucket_us) AS BIGINT)
    ORDER BY observed_at, flow, hop, group_id
"""
