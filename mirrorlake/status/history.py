"""Lag, latency and RPO of a mirror: now, over time, and as SQL views.

What was sampled is reported exactly; what was not sampled is not reported at all. Lag is reported at every snapshot, hop by hop:

    source end  ->  landed  ->  republished  ->  consumed (by a group on the target; or on the source itself)

A snapshot writes the positions that changed, each with the time since when a record waits there: that time does not depend on the
clock, so the lag at a snapshot is its time minus that one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.config import length_of, when
from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.lake import OFFSET_MAP, SIDE_TABLES, Lake, LakeQuery, RelayPart, arrow_type, micros, quote, to_rows
from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import MAX_POINTS
from mirrorlake.status import queries
from mirrorlake.status.hops import LagVerdict
from mirrorlake.status.snapshot import PositionSnapshot
from mirrorlake.status.status import By
from mirrorlake.status.verdict import WINDOW_SAMPLES, HopKey, LagSample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

When = str | timedelta | datetime
"""A time as people write it, or how long ago: `"1h"` (see `mirrorlake.config.when`)."""

# `Lag.latency` takes its bucket as an argument; a view cannot.
_VIEW_BUCKET_S = 60
# File statistics cut times to milliseconds: a lower bound needs this margin.
_MARGIN = timedelta(seconds=1)
# A snapshot that is late, or fails once, still covers the time up to the next one.
_MAX_INTERVALS_APART = 2

# -- answers ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer about lag, that is read when it is asked for: `rows` and `pandas` need no Spark where the lake is a folder.

    It has all methods of a Spark frame, too.

    Example:
        >>> mirror.lag.over("1h").where("hop = 'republished'").pandas()  # doctest: +SKIP
        >>> mirror.lag.over("1h").groupBy("flow").max("time_lag_ms").show()  # doctest: +SKIP
    """

    lake: Lake
    query: LakeQuery

    def rows(self) -> list[Any]:
        """Return the rows, with their columns as attributes."""
        return to_rows(self.table())

    def table(self) -> pa.Table:
        return self.lake.query_table(self.query)

    def pandas(self) -> Any:
        return self.table().to_pandas()

    def frame(self) -> DataFrame:
        return self.lake.query_frame(self.query)

    def ask(self, text: str, **values: Any) -> Answer:
        """Ask further in SQL, where `{answer}` stands for this answer and `:name` for a value."""
        text, known = text.replace("{answer}", f"({self.query.text})"), self.query.values
        return replace(self, query=replace(self.query, text=text, values={**known, **values}))

    def where(self, condition: str, **values: Any) -> Answer:
        return self.ask(f"SELECT * FROM {{answer}} WHERE {condition}", **values)  # noqa: S608  values are named in it

    def __getattr__(self, name: str) -> Any:
        # Whoever shows a value, or copies it, asks for private names; neither they nor a slip of the pen may start Spark.
        if not name.startswith("_"):
            from pyspark.sql import DataFrame

            if hasattr(DataFrame, name):
                return getattr(self.frame(), name)
        raise AttributeError(f"an answer has no '{name}'", name=name, obj=self)


Windows = Mapping[HopKey, Sequence[LagSample]]
"""The newest samples of each hop before a snapshot, oldest first."""


def windows_of(snapshots: Sequence[Mapping[HopKey, LagSample]], of: Collection[HopKey] | None = None) -> Windows:
    """Return the samples of hops in snapshots, oldest first; of hops that are not among `of` the first snapshot has one."""
    found = {key: [sample] for key, sample in snapshots[0].items()} if snapshots else {}
    for snapshot in snapshots[1:]:
        for key in snapshot if of is None else of:
            if (sample := snapshot.get(key)) is not None:
                found.setdefault(key, []).append(sample)
    return found


_ASKED = pa.schema({"source": pa.string(), "topic": pa.string(), "generation": pa.int32(), "partition": pa.int32()})


class Lag:
    """Offset lag and time lag of each hop of each flow: now, over time, as a verdict.

    `read` takes a snapshot of all positions now, and writes nothing; `judge` takes one of its own, and judges it. A time that cannot
    be read, and one of which nothing was sampled or landed, is a `UsageError`.

    Example:
        >>> mirror.lag.over(since="1h").where("hop = 'republished'").show()  # doctest: +SKIP
        >>> mirror["east->central"].lag.latency(since="1d", bucket="1h").show()  # doctest: +SKIP
        >>> mirror.lag.at("billing", "2h").show()  # doctest: +SKIP
    """

    def __init__(
        self,
        context: Context,
        flows: Sequence[FlowConfig],
        *,
        read: Callable[[], PositionSnapshot],
        judge: Callable[[], LagVerdict],
    ) -> None:
        self.flows = tuple(flows)
        self._lake, self._now = context.lake, context.now
        self._read, self._judge = read, judge
        self._apart = _MAX_INTERVALS_APART * max(context.config.sampling.every, timedelta(seconds=1))

    # -- now -------------------------------------------------------------------------------------------------------------

    def rows(self, since: When | None = None) -> list[Any]:
        """Return the rows of `now`, or of `over` since a time, with columns as attributes."""
        return (self.now() if since is None else self.over(since)).rows()

    def now(self) -> Answer:
        """Read all positions and return the present lag, in the columns of the view `lag`; writes nothing.

        A cluster that does not answer leaves its figures out.
        """
        if not self._lake.exists(self._lake.meta_location(OFFSET_MAP)):
            remedy = "mirrorlake run --once, then ask again"
            raise UsageError("nothing was landed yet, so there is no lag", remedy=remedy)
        hops = [{**key._asdict(), **sample._asdict()} for key, sample in self._read().hops(self.flows)]
        schema = pa.schema({name: arrow_type(kind) for name, kind in queries.LAG_COLUMNS.items()})
        present = pa.Table.from_pylist(hops, schema)
        return Answer(self._lake, LakeQuery("SELECT * FROM {present}", tables={"present": present}))

    def verdict(self) -> LagVerdict:
        """Take a snapshot, and judge each hop by it and the nine before it, by rule (see `status.verdict`).

        With the verdicts come the status of the flows, the objectives, the time to catch up, and whether retention deletes first
        what waits; for the latter the clusters of hops where records wait are asked for the retention of their topics.

        Example:
            >>> mirror.lag.verdict().verdict.name  # doctest: +SKIP
            'OK'
        """
        return self._judge()

    # -- over time -------------------------------------------------------------------------------------------------------

    def over(self, since: When = "1h", until: When | None = None) -> Answer:
        """Return the lag at every snapshot of a time range, in the columns of the view `lag`."""
        return self._sampled(queries.LAG, *self._span(since, until))

    def longest(self, since: When = "1h", *, by: By = "topic") -> Answer:
        """Return the longest lags of each hop of each topic, or `by` partition, since a time, unknown ones first.

        The columns are `flow`, `place`, `hop`, `group_id`, `cluster`, `offset_lag`, `time_lag_ms`, and in how many samples the time lag
        was `unknown`.
        """
        place = "topic" if by == "topic" else "concat(topic, '-', partition)"
        return self.over(since).ask(queries.LONGEST.replace("{place}", place))

    def rpo(self, since: When = "1h", until: When | None = None) -> Answer:
        """Return the loss at each snapshot, had the source been lost then.

        `records` are offsets that were on the source and not on the target: at most so many records; `data_ms` is the age of the
        oldest then, 0 of none. What is null is not known.
        """
        return self._sampled(queries.RPO, *self._span(since, until))

    def latency(self, since: When = "1h", until: When | None = None, *, bucket: str | timedelta = "1m") -> Answer:
        """Return percentiles of the time from record to target: `p50_ms`, `p95_ms`, `p99_ms`, `max_ms` by `bucket`, flow and topic.

        Every record that reached a target in that time counts; no samples are needed.
        """
        start, end = self._moments(since, until)
        bucket_s = length_of(bucket).total_seconds()
        if bucket_s < 1:
            raise UsageError(f"'{bucket}' is too short for a bucket", remedy='write "1s" or more')
        lake = self._lake
        landed = [a for a in sorted({f.source for f in self.flows}) if lake.exists(lake.relay_location(a))]
        if not landed:
            raise UsageError("nothing was landed yet", remedy="mirrorlake run --once")
        values: dict[str, Any] = {"start": micros(start), "end": micros(end)}
        sent = "unix_micros(m.committed_at) >= :start AND unix_micros(m.committed_at) <= :end"
        tables = {"flows": self._flow_table()}
        # Files of the relays without a record that was sent are not read.
        lows: dict[str, dict[SourcePartition, int]] = {alias: {} for alias in landed}
        highs: dict[str, dict[SourcePartition, int]] = {alias: {} for alias in landed}
        for row in lake.query(queries.SENT_OFFSETS.replace("{sent}", sent), tables=tables, **values):
            source = SourcePartition(row.topic, row.generation, row.partition)
            lows[row.source][source], highs[row.source][source] = row.lowest, row.highest
        relays = {f"relay_{number}": alias for number, alias in enumerate(landed)}
        of_relays = " UNION ALL ".join(
            f"SELECT :{name} AS source, topic, generation, partition, `offset`, timestamp FROM {{{name}}}"  # noqa: S608  numbered
            for name in relays
        )
        text = queries.LATENCY.replace("{sent}", sent).replace("{bucket_us}", str(int(bucket_s) * 1_000_000))
        text = text.replace("{relays}", f"({of_relays})")
        parts = {n: (a, RelayPart(lows[a], ends=highs[a], others=False)) for n, a in relays.items()}
        return Answer(lake, LakeQuery(text, parts, tables, {**values, **relays}))

    def at(self, group: str, moment: When) -> Answer:
        """Return the positions of a group at a past time, by the newest sample up to it, on sources and targets.

        The rows are those of `over`, of hop `consumed`.
        """
        _, time = self._span(moment, moment)
        # From the oldest of the clusters' newest snapshots on.
        names = sorted({alias for flow in self.flows for alias in (flow.source, flow.target)})
        tables = {"flows": self._flow_table()}
        newest = self._lake.query(queries.LAST_LOOKS, tables=tables, until=micros(time), names=names, missing_ok=True)
        known = self._sampled(queries.LAG, min((row.at for row in newest), default=time), time)
        return known.ask(queries.OF_GROUP, group_id=group)

    def loss_at(self, moment: When) -> Answer:
        """Return the loss had the sources died at a past time, by the last snapshot before it: a row a flow, as of `rpo`.

        Offsets that were on the source and not on the target count. What is null is not known, which is not zero (law E): without
        `observed_at` no snapshot was taken in two intervals before.

        Example:
            >>> mirror["east->central"].lag.loss_at("3h").rows()[0].records  # doctest: +SKIP
            17
        """
        time, _ = self._span(moment)
        return self._sampled(queries.RPO, time - self._apart, time).ask(queries.LOSS)

    def lines(self, since: When = "1h") -> Any:
        """Return the worst total lag of each hop by time bucket, as a pandas frame with as many points as a chart holds."""
        start, end = self._span(since)
        bucket_s = max(1, -(-int((end - start).total_seconds()) // MAX_POINTS))
        values = {"since_us": int(start.timestamp()) * 1_000_000, "bucket_us": bucket_s * 1_000_000}
        return self._sampled(queries.LAG, start, end).ask(queries.LINES, **values).pandas()

    def recent(self, of: Collection[HopKey] | None, *, sent_only: bool = False) -> list[dict[HopKey, LagSample]]:
        """Read the newest snapshots `of` hops, oldest first, without a present one; of other hops the first of these snapshots.

        None reads all hops, with `sent_only` those named `republished` alone. Snapshots from before the sampler rested are left out:
        they say nothing of this moment.
        """
        text = (
            "SELECT DISTINCT observed_at FROM {samples} WHERE subject = 'flow' AND array_contains(:names, name) "
            "AND error IS NULL ORDER BY observed_at DESC LIMIT :count"
        )
        names = [flow.name for flow in self.flows]
        snapshots = self._lake.query(text, missing_ok=True, names=names, count=WINDOW_SAMPLES - 1)
        oldest = self._now() - WINDOW_SAMPLES * self._apart
        begin = min((row.observed_at for row in snapshots if row.observed_at >= oldest), default=None)
        if begin is None:
            return []
        text = queries.LAG.replace(queries.KINDS, "('last_stable', 'republished')") if sent_only else queries.LAG
        if of is None:
            answers = [self._sampled(text, begin, self._now())]
        else:
            asked = pa.Table.from_pylist([{name: getattr(key, name) for name in _ASKED.names} for key in of], _ASKED)
            later = self._sampled(text.replace("{of}", queries.OF_ASKED), begin, self._now(), asked=asked)
            answers = [self._sampled(text, begin, begin), later]
        found: dict[datetime, dict[HopKey, LagSample]] = {}
        for lag in answers:
            # By columns: there may be ten rows a hop.
            columns = [column.to_pylist() for column in lag.ask(queries.RECENT).table().columns]
            for row in zip(*columns, strict=True):
                sample = LagSample(*row[len(HopKey._fields) :])
                found.setdefault(sample.observed_at, {})[HopKey(*row[: len(HopKey._fields)])] = sample
        return [*found.values()]

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo`, and return their names.

        On a catalog they stay in its schema. On a path they are temporary and belong to the session. Each query reads `days` of the
        tables, whatever it asks for.
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
            **{one.name: lake.sql_name(lake.meta_location(one)) for one in SIDE_TABLES},
            "flows": f"(SELECT * FROM VALUES {flows} AS f(flow, source, target))",  # noqa: S608
            "relays": f"({relays})",
            # A day more, which has the first complete sample of the shown time.
            "read": f"observed_at >= current_timestamp() - INTERVAL '{days + 1}' DAY",
            "shown": f"observed_at >= {shown}",
            "of": "true",
            "sent": f"m.committed_at >= {shown}",
            "bucket_us": str(_VIEW_BUCKET_S * 1_000_000),
        }
        texts = (("lag", queries.LAG), ("latency", queries.LATENCY), ("rpo", queries.RPO))
        return [lake.create_view(name, text.format(**names)) for name, text in texts]

    # -- pieces ----------------------------------------------------------------------------------------------------------

    def _moments(self, since: When, until: When | None) -> tuple[datetime, datetime]:
        now = self._now()
        return when(since, now=now), now if until is None else when(until, now=now)

    def _span(self, since: When, until: When | None = None) -> tuple[datetime, datetime]:
        """Return the start and the end of a time up to which something was sampled."""
        start, end = self._moments(since, until)
        rows = self._lake.query("SELECT min(observed_at) AS first_at FROM {samples}", missing_ok=True)
        first_at = rows[0].first_at if rows else None
        if first_at is None:
            raise UsageError("nothing was sampled yet", remedy="mirrorlake run: a running mirror samples")
        if first_at > end:
            said = f"nothing was sampled up to {end.isoformat(timespec='seconds')}"
            raise UsageError(said, remedy="ask for a later time")
        return start, end

    def _sampled(self, text: str, start: datetime, end: datetime, **tables: pa.Table) -> Answer:
        """Ask for the snapshots of a time range."""
        names = sorted({name for flow in self.flows for name in (flow.name, flow.source, flow.target)})
        complete = self._lake.query(queries.COMPLETE, start=micros(start), names=names)
        firsts = [row.at for row in complete if row.at is not None]
        text = text.replace("{read}", "observed_at >= :read_from AND unix_micros(observed_at) <= :read_to")
        shown = "unix_micros(observed_at) >= :shown_from AND unix_micros(observed_at) <= :read_to"
        # Samples of one millisecond are of one sampler.
        shown_from = micros(start) // 1000 * 1000
        values = {"read_from": min(firsts, default=start) - _MARGIN, "read_to": micros(end), "shown_from": shown_from}
        text = text.replace("{shown}", shown).replace("{of}", "true")
        return Answer(self._lake, LakeQuery(text, tables={"flows": self._flow_table(), **tables}, values=values))

    def _flow_table(self) -> pa.Table:
        rows = [{"flow": flow.name, "source": flow.source, "target": flow.target} for flow in self.flows]
        return pa.Table.from_pylist(rows, pa.schema(dict.fromkeys(("flow", "source", "target"), pa.string())))
