"""Lag, latency and RPO of a mirror: now, over time, and as SQL views.

What was sampled is reported exactly; what was not sampled is not reported at all. Lag is reported at every snapshot, hop by hop:

    source end  ->  landed  ->  republished  ->  consumed (by a group on the target; or on the source itself)

A snapshot writes the positions that changed, each with the time since when a record waits there: that time does not depend on the
clock, so the lag at a snapshot is its time minus that one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.config import length_of, when
from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake import (
    NAME_SQL,
    OFFSET_MAP,
    POSITIONS,
    SAMPLES,
    SUBJECT_SQL,
    Lake,
    LakeQuery,
    RelayPart,
    arrow_type,
    micros,
    quote,
)
from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import MAX_POINTS
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.loss import SNAPSHOTS_APART, Loss, loss_of_flow
from mirrorlake.status.snapshot import HopKey, PositionSnapshot
from mirrorlake.status.verdict import WINDOW_SAMPLES, LagSample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

When = str | timedelta | datetime
"""A time as people write it, or how long ago: `"1h"` (see `mirrorlake.config.when`)."""

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
    "time_lag_ms": ("bigint", "Age of that record then; 0 when none waited, null when it is not known"),
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
    "records": ("bigint", "Offsets that were on the source and not on the target: at most so many records"),
    "data_ms": ("bigint", "Age of the oldest record among them then; 0 when there was none, null when it is not known"),
}
"""The columns of `rpo`."""

LINE_COLUMNS = ("observed_at", "flow", "hop", "group_id", "offset_lag", "time_lag_ms")
_LATENCY_BUCKET_S = 60
# File statistics cut times to milliseconds: a lower bound needs this margin.
_MARGIN = timedelta(seconds=1)

# -- SQL, as of queries and of views ---------------------------------------------------------------------------------------

_PLACE = "source, topic, generation, partition"
_KINDS = "('last_stable', 'reached', 'republished', 'group', 'consumed')"


def _same(left: str, right: str, names: str = _PLACE) -> str:
    return " AND ".join(f"{left}.{name} = {right}.{name}" for name in names.split(", "))


# {read}: from the last complete samples before the shown time on; {shown}: the time that is reported. A complete sample ends
# positions that it lacks: a sampler that was restarted cannot know what went away before.
LAG = f"""
WITH snapshots AS (
  SELECT subject, name, observed_at, min(CASE WHEN complete THEN observed_at END) OVER (
    PARTITION BY subject, name ORDER BY observed_at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS completed_at
  FROM (
    SELECT subject, name, observed_at, max(complete) AS complete FROM {{samples}} WHERE error IS NULL AND {{read}}
    GROUP BY subject, name, observed_at)
),
spans AS (
  SELECT p.*, least(l.completed_at, lead(p.observed_at) OVER (
    PARTITION BY kind, flow, group_id, {_PLACE} ORDER BY p.observed_at)) AS until
  FROM (
    SELECT kind, flow, group_id, {_PLACE}, position, waits, waiting_since, observed_at, {SUBJECT_SQL} AS subject, {NAME_SQL} AS name
    FROM {{positions}} WHERE kind IN {_KINDS} AND {{read}}) AS p
  JOIN snapshots AS l ON p.subject = l.subject AND p.name = l.name AND p.observed_at = l.observed_at
),
held AS (
  SELECT s.kind, s.flow, s.group_id, s.source, s.topic, s.generation, s.partition, s.position, s.waits, s.waiting_since, l.observed_at
  FROM (SELECT * FROM snapshots WHERE {{shown}}) AS l JOIN spans AS s
    ON s.subject = l.subject AND s.name = l.name AND s.observed_at <= l.observed_at AND coalesce(l.observed_at < s.until, true)
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
# Mapped ranges are split at their holes, so that no record is compared with every hole.
LATENCY = f"""
WITH runs AS (
  SELECT {", ".join(f"m.{name}" for name in _RUN.split(", "))}, f.source, any_value(m.last_upstream) AS last_upstream,
    any_value(m.holes) AS holes, min(m.committed_at) AS committed_at
  FROM {{offset_map}} AS m JOIN {{flows}} AS f ON m.flow = f.flow WHERE m.kind = 'sent' AND {{sent}}
  GROUP BY {", ".join(f"m.{name}" for name in _RUN.split(", "))}, f.source
),
cuts AS (
  SELECT *, first_upstream AS first, CAST(0 AS BIGINT) AS missing FROM runs
  UNION ALL
  SELECT * EXCEPT (hole), hole.first + hole.length, hole.length FROM (SELECT *, explode(holes) AS hole FROM runs)
),
sent AS (
  SELECT flow, source, source_topic, generation, source_partition, committed_at, explode(sequence(first, next - 1)) AS upstream
  FROM (
    SELECT *, coalesce(lead(first - missing) OVER (PARTITION BY {_RUN} ORDER BY first), last_upstream + 1) AS next FROM cuts)
  WHERE first < next
),
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
_SENT_OFFSETS = """
    SELECT f.source, m.source_topic AS topic, m.generation, m.source_partition AS partition,
        min(m.first_upstream) AS lowest, max(m.last_upstream) + 1 AS highest
    FROM {offset_map} AS m JOIN {flows} AS f ON m.flow = f.flow WHERE m.kind = 'sent' AND {sent}
    GROUP BY f.source, m.source_topic, m.generation, m.source_partition
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagQuery:
    """A query with its tables and values; it may be part of another query."""

    lake: Lake
    text: str
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    relays: Mapping[str, tuple[str, RelayPart | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, text: str = "SELECT * FROM {answer}", **values: Any) -> list[Any]:
        """Ask, without Spark where the lake is a folder (`Lake.query`); `{answer}` stands for this question."""
        asked = text.replace("{answer}", f"({self.text})")
        return self.lake.query(asked, tables=self.tables, relays=self.relays, **self.values, **values)

    def table(self) -> pa.Table:
        return self.lake.query_table(self._question)

    def pandas(self) -> Any:
        return self.table().to_pandas()

    def where(self, condition: str, **values: Any) -> LagQuery:
        text = f"SELECT * FROM ({self.text}) WHERE {condition}"  # noqa: S608  values are named in it
        return replace(self, text=text, values={**self.values, **values})

    def frame(self) -> DataFrame:
        return self.lake.query_frame(self._question)

    @property
    def _question(self) -> LakeQuery:
        return LakeQuery(self.text, self.relays, self.tables, self.values)


class Recent(Mapping[HopKey, Sequence[LagSample]]):
    """The samples of each hop at the newest snapshots, oldest first."""

    def __init__(self, snapshots: Iterable[Mapping[HopKey, LagSample]] = ()) -> None:
        self._samples = list(snapshots)[1 - WINDOW_SAMPLES :]
        self._windows: dict[HopKey, list[LagSample]] = {}
        for snapshot in self._samples:
            for key, sample in snapshot.items():
                self._windows.setdefault(key, []).append(sample)

    def followed_by(self, snapshot: Mapping[HopKey, LagSample]) -> Recent:
        return Recent([*self._samples, snapshot])

    def __getitem__(self, key: HopKey) -> Sequence[LagSample]:
        return self._windows[key]

    def __iter__(self) -> Iterator[HopKey]:
        return iter(self._windows)

    def __len__(self) -> int:
        return len(self._windows)


class Lag:
    """Offset lag and time lag of each hop of each flow: now, over time, as a verdict.

    Args:
        lake: the lake.
        flows: the flows to report on.
        read: takes a snapshot of all positions now, and writes nothing.
        judged: judges such a snapshot.
        now: the clock, in UTC.
        every: the sampling interval.

    Example:
        >>> mirror.lag.over(since="1h").where("hop = 'republished'").show()  # doctest: +SKIP
        >>> mirror["east->central"].lag.latency(since="1d", bucket="1h").show()  # doctest: +SKIP
        >>> mirror.lag.at("billing", "2h").show()  # doctest: +SKIP
    """

    def __init__(
        self,
        lake: Lake,
        flows: Sequence[FlowConfig],
        *,
        read: Callable[[], PositionSnapshot],
        judged: Callable[[], LagVerdict],
        now: Callable[[], datetime],
        every: timedelta = timedelta(seconds=30),
    ) -> None:
        self.flows = tuple(flows)
        self._lake = lake
        self._read = read
        self._judged = judged
        self._now = now
        self._apart = SNAPSHOTS_APART * max(every, timedelta(seconds=1))

    def now(self) -> DataFrame:
        """Read all positions and return the present lag, in the columns `LAG_COLUMNS`; writes nothing.

        A cluster that does not answer leaves its figures out.

        Raises:
            StoreError: the lake failed.
        """
        return self._lake.to_frame(self._now_table())

    def _now_table(self) -> pa.Table:
        schema = pa.schema({name: arrow_type(kind) for name, (kind, _) in LAG_COLUMNS.items()})
        return pa.Table.from_pylist([vars(row) for row in self.rows()], schema)

    def rows(self, since: When | None = None) -> list[Any]:
        """Return the rows of `now`, or of `over` since a time, with columns as attributes; a lake in a folder needs no Spark.

        Raises:
            UsageError: nothing was landed or sampled yet, or the time cannot be read.
        """
        if since is not None:
            return self.query_over(since).rows()
        if not self._lake.exists(self._lake.meta_location(OFFSET_MAP)):
            raise UsageError(
                "nothing was landed yet, so there is no lag", remedy="mirrorlake run --once, then ask again"
            )
        found = []
        for place, sample in self._read().hops(self.flows):
            values = {name: getattr(place, name, None) for name in LAG_COLUMNS}
            values |= {name: getattr(sample, name) for name in LagSample.__dataclass_fields__}
            found.append(SimpleNamespace(**values))
        return found

    def pandas(self, since: When | None = None) -> Any:
        """Return `rows` as a pandas frame, in the columns of `LAG_COLUMNS`.

        Raises:
            UsageError: nothing was sampled yet, or the time cannot be read.

        Example:
            >>> mirror["east->central"].lag.pandas("1h").groupby("hop").offset_lag.max()  # doctest: +SKIP
        """
        return self._now_table().to_pandas() if since is None else self.query_over(since).pandas()

    def over(self, since: When = "1h", until: When | None = None) -> DataFrame:
        """Return the lag at every snapshot of a time range, in the columns `LAG_COLUMNS`.

        Raises:
            UsageError: nothing was sampled yet, or a time cannot be read.
        """
        return self.query_over(since, until).frame()

    def query_over(self, since: When = "1h", until: When | None = None) -> LagQuery:
        """Build the query of `over`."""
        return self._sampled(LAG, *self._sampled_span(since, until))

    def rpo(self, since: When = "1h", until: When | None = None) -> DataFrame:
        """Return the loss at each snapshot, had the source been lost then, in the columns `RPO_COLUMNS`.

        Raises:
            UsageError: nothing was sampled yet, or a time cannot be read.
        """
        return self.query_rpo(since, until).frame()

    def query_rpo(self, since: When = "1h", until: When | None = None) -> LagQuery:
        """Build the query of `rpo`."""
        return self._sampled(RPO, *self._sampled_span(since, until))

    def latency(self, since: When = "1h", until: When | None = None, *, bucket: str | timedelta = "1m") -> DataFrame:
        """Return percentiles of the time from record to target, in the columns `LATENCY_COLUMNS`.

        Every record that reached a target in that time counts; no samples are needed.

        Raises:
            UsageError: nothing was landed yet, or a time cannot be read.
        """
        return self.query_latency(since, until, bucket=bucket).frame()

    def query_latency(
        self, since: When = "1h", until: When | None = None, *, bucket: str | timedelta = "1m"
    ) -> LagQuery:
        """Build the query of `latency`."""
        start, end = self.span(since, until)
        bucket_s = length_of(bucket).total_seconds()
        if bucket_s < 1:
            raise UsageError(f"'{bucket}' is too short for a bucket", remedy='write "1s" or more')
        lake = self._lake
        if not any(lake.exists(lake.relay_location(flow.source)) for flow in self.flows):
            raise UsageError("nothing was landed yet", remedy="mirrorlake run --once")
        values: dict[str, Any] = {"start": micros(start), "end": micros(end)}
        sent = "unix_micros(m.committed_at) >= :start AND unix_micros(m.committed_at) <= :end"
        tables = {"flows": self._flows()}
        rows = lake.query(_SENT_OFFSETS.replace("{sent}", sent), tables=tables, **values)
        # Files of the relays without a record that was sent are not read.
        lows: dict[str, dict[SourcePartition, int]] = {flow.source: {} for flow in self.flows}
        highs: dict[str, dict[SourcePartition, int]] = {alias: {} for alias in lows}
        for row in rows:
            source = SourcePartition(row.topic, row.generation, row.partition)
            lows[row.source][source], highs[row.source][source] = row.lowest, row.highest
        parts: dict[str, tuple[str, RelayPart | None]] = {
            f"relay_{number}": (alias, RelayPart(lows[alias], ends=highs[alias], others=False))
            for number, alias in enumerate(sorted(lows))
            if lake.exists(lake.relay_location(alias))
        }
        relays = (
            f"SELECT :{name} AS source, topic, generation, partition, `offset`, timestamp FROM {{{name}}}"  # noqa: S608  numbered
            for name in parts
        )
        text = LATENCY.replace("{sent}", sent).replace("{bucket_us}", str(int(bucket_s) * 1_000_000))
        return LagQuery(
            lake=lake,
            text=text.replace("{relays}", f"({' UNION ALL '.join(relays)})"),
            tables=tables,
            relays=parts,
            values={**values, **{name: alias for name, (alias, _) in parts.items()}},
        )

    def at(self, group: str, moment: When) -> DataFrame:
        """Return the positions of a group at a past time, by the newest sample up to it, on sources and targets.

        The rows are those of `over`, of hop `consumed`.

        Raises:
            UsageError: nothing was sampled up to then.
        """
        _, time = self._sampled_span(moment, moment)
        newest = self._sampled(LAG, self._last_sample(time) or time, time).where("group_id = :group_id", group_id=group)
        ranked = "SELECT *, max(observed_at) OVER (PARTITION BY cluster) AS newest_at FROM ({})"
        columns = ", ".join(LAG_COLUMNS)
        text = f"SELECT {columns} FROM ({ranked.format(newest.text)}) WHERE observed_at = newest_at"  # noqa: S608  no value in it
        return replace(newest, text=text).frame()

    def _last_sample(self, until: datetime) -> datetime | None:
        """Return the oldest of the clusters' newest snapshots up to a time."""
        text = (
            "SELECT max(observed_at) AS at FROM {samples} WHERE subject = 'cluster' AND error IS NULL "
            "AND unix_micros(observed_at) <= :until GROUP BY name"
        )
        return min((row.at for row in self._lake.query(text, until=micros(until), missing_ok=True)), default=None)

    def loss_at(self, moment: When) -> Loss:
        """Return the loss had the sources died at a past time, by the last snapshot before it.

        Offsets that were on the source and not on the target count. A snapshot is exact for its own moment; one that is older than
        two intervals of the sampler covers nothing, and the loss is unknown then, as it is where the source did not answer.

        Raises:
            UsageError: nothing was landed or sampled yet, or the time cannot be read.

        Example:
            >>> mirror["east->central"].lag.loss_at("3h")[0].records  # doctest: +SKIP
            17
        """
        at = self._moment(moment)
        self._sampled_span(at, self._now())
        rows = self._sampled(LAG, at - self._apart, at).where("hop = 'republished'").rows()
        return Loss(
            at=at,
            flows=tuple(
                loss_of_flow(flow.name, (row for row in rows if row.flow == flow.name), at=at, apart=self._apart)
                for flow in self.flows
            ),
        )

    def verdict(self) -> LagVerdict:
        """Take a snapshot, and judge each hop by it and the nine before it, by rule (see `status.verdict`).

        With the verdicts come the status of the flows, the objectives, the time to catch up, and whether retention deletes first
        what waits; for the latter the clusters of hops where records wait are asked for the retention of their topics.

        Example:
            >>> mirror.lag.verdict().verdict.name  # doctest: +SKIP
            'OK'
        """
        return self._judged()

    def recent(self, of: Collection[HopKey], *, sent_only: bool = False) -> Recent:
        """Read the samples `of` hops at the newest snapshots, without a present one; of other hops those of the first snapshot.

        With `sent_only` hops `republished` alone are read. Samples from before the sampler rested are left out: they say nothing
        of this moment.

        Raises:
            StoreError: the lake failed.
        """
        text = "SELECT DISTINCT observed_at FROM {samples} WHERE error IS NULL ORDER BY observed_at DESC LIMIT :count"
        snapshots = self._lake.query(text, missing_ok=True, count=WINDOW_SAMPLES - 1)
        oldest = self._now() - WINDOW_SAMPLES * self._apart
        begin = min((row.observed_at for row in snapshots if row.observed_at >= oldest), default=None)
        if begin is None:
            return Recent()
        text = LAG.replace(_KINDS, "('last_stable', 'republished')") if sent_only else LAG
        lag = self._sampled(text, begin, self._now())
        asked = pa.Table.from_pylist([key._asdict() for key in of], _HOP_KEYS)
        query = replace(
            lag,
            text=_RECENT.replace("{lag}", f"({lag.text})"),
            tables={**lag.tables, "asked": asked},
            values={**lag.values, "begin": micros(begin)},
        )
        found: dict[datetime, dict[HopKey, LagSample]] = {}
        # By columns: there may be ten rows a hop.
        columns = [column.to_pylist() for column in query.table().columns]
        for row in zip(*columns, strict=True):
            sample = LagSample(*row[len(_HOP_KEYS) :])
            found.setdefault(sample.observed_at, {})[HopKey(*row[: len(_HOP_KEYS)])] = sample
        return Recent(found.values())

    def lines(self, since: When = "1h") -> Any:
        """Return the worst total lag of each hop by time bucket, as a pandas frame with as many points as a chart holds.

        Raises:
            UsageError: nothing was sampled yet, or the time cannot be read.
        """
        import pandas as pd

        start, end = self._sampled_span(since)
        bucket_s = max(1, -(-int((end - start).total_seconds()) // MAX_POINTS))
        values = {"since_us": int(start.timestamp()) * 1_000_000, "bucket_us": bucket_s * 1_000_000}
        rows = self._sampled(LAG, start, end).rows(_LINES, **values)
        return pd.DataFrame([vars(row) for row in rows], columns=list(LINE_COLUMNS))

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo`, and return their names.

        On a catalog they stay in its schema. On a path they are temporary and belong to the session: Delta has no place for a
        view in a folder. Each query reads `days` of the tables, whatever it asks for.
        """
        lake = self._lake
        lake.create_all({flow.source for flow in self.flows})
        shown = f"current_timestamp() - INTERVAL '{days}' DAY"
        flows = ", ".join(f"({quote(flow.name)}, {quote(flow.source)}, {quote(flow.target)})" for flow in self.flows)
        relays = " UNION ALL ".join(
            f"SELECT {quote(alias)} AS source, topic, generation, partition, `offset`, timestamp "  # noqa: S608
            f"FROM {lake.sql_name(lake.relay_location(alias))}"
            for alias in sorted({flow.source for flow in self.flows})
        )
        names = {
            "positions": lake.sql_name(lake.meta_location(POSITIONS)),
            "samples": lake.sql_name(lake.meta_location(SAMPLES)),
            "offset_map": lake.sql_name(lake.meta_location(OFFSET_MAP)),
            "flows": f"(SELECT * FROM VALUES {flows} AS f(flow, source, target))",  # noqa: S608
            "relays": f"({relays})",
            # A day more, which has the first complete sample of the shown time.
            "read": f"observed_at >= current_timestamp() - INTERVAL '{days + 1}' DAY",
            "shown": f"observed_at >= {shown}",
            "sent": f"m.committed_at >= {shown}",
            "bucket_us": str(_LATENCY_BUCKET_S * 1_000_000),
        }
        created = []
        for name, text in (("lag", LAG), ("latency", LATENCY), ("rpo", RPO)):
            kind, place = ("VIEW", lake.view_name(name)) if lake.is_catalog else ("TEMPORARY VIEW", name)
            lake.spark.sql(f"CREATE OR REPLACE {kind} {place} AS {text.format(**names)}")
            created.append(place)
        return created

    def span(self, since: When, until: When | None = None) -> tuple[datetime, datetime]:
        """Parse the start and end of a time range.

        Raises:
            UsageError: a time cannot be read.
        """
        return self._moment(since), self._now() if until is None else self._moment(until)

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _sampled_span(self, since: When, until: When | None = None) -> tuple[datetime, datetime]:
        start, end = self.span(since, until)
        text = "SELECT min(observed_at) AS first_at FROM {samples}"
        [first] = self._lake.query(text, missing_ok=True) or [SimpleNamespace(first_at=None)]
        if first.first_at is None:
            raise UsageError("nothing was sampled yet", remedy="mirrorlake run: a running mirror samples")
        if first.first_at > end:
            raise UsageError(
                f"nothing was sampled up to {end.isoformat(timespec='seconds')}", remedy="ask for a later time"
            )
        return start, end

    def _sampled(self, text: str, start: datetime, end: datetime) -> LagQuery:
        """Build a query over the snapshots of a time range."""
        # A flow or cluster that left the settings was sampled long ago; it would make every query read from then on.
        asked = {("flow", flow.name) for flow in self.flows} | {("relay", flow.source) for flow in self.flows}
        asked |= {("cluster", alias) for flow in self.flows for alias in (flow.source, flow.target)}
        firsts = [
            row.at for row in self._lake.query(_COMPLETE, start=micros(start)) if (row.subject, row.name) in asked
        ]
        text = text.replace("{read}", "observed_at >= :read_from AND unix_micros(observed_at) <= :read_to")
        shown = "unix_micros(observed_at) >= :shown_from AND unix_micros(observed_at) <= :read_to"
        return LagQuery(
            lake=self._lake,
            text=text.replace("{shown}", shown),
            tables={"flows": self._flows()},
            values={
                "read_from": min(firsts, default=start) - _MARGIN,
                "read_to": micros(end),
                # Samples of one millisecond are of one sampler.
                "shown_from": micros(start) // 1000 * 1000,
            },
        )

    def _flows(self) -> pa.Table:
        rows = [{"flow": flow.name, "source": flow.source, "target": flow.target} for flow in self.flows]
        return pa.Table.from_pylist(rows, pa.schema(dict.fromkeys(("flow", "source", "target"), pa.string())))

    def _moment(self, text: When) -> datetime:
        return when(text, now=self._now())


_INTEGERS = {"generation": pa.int32(), "partition": pa.int32()}
_HOP_KEYS = pa.schema([(name, _INTEGERS.get(name, pa.string())) for name in HopKey._fields])
_RECENT = f"""
    SELECT {", ".join(f"r.{name}" for name in (*HopKey._fields, *LagSample.__dataclass_fields__))}
    FROM {{lag}} AS r LEFT JOIN {{asked}} AS a ON {_same("r", "a", "flow, topic, generation, partition, hop")}
        AND coalesce(r.group_id, '') = coalesce(a.group_id, '') AND coalesce(r.cluster, '') = coalesce(a.cluster, '')
    WHERE a.flow IS NOT NULL OR unix_micros(r.observed_at) = :begin ORDER BY r.observed_at
"""  # noqa: S608  names of columns
_COMPLETE = """
    SELECT subject, name, max(observed_at) AS at FROM {samples}
    WHERE complete AND error IS NULL AND unix_micros(observed_at) <= :start GROUP BY subject, name
"""
# Partitions are summed as in `sum_lags`: an unknown part makes the sum unknown.
_LINES = """
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
