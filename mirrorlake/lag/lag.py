"""Lag, latency and RPO of a mirror: now, over time, and as SQL views.

What was sampled is reported exactly; what was not sampled is not reported at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirrorlake.config import length_of, when
from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.lag import sql as relay_lag
from mirrorlake.lag.hop_verdicts import LagVerdict
from mirrorlake.lag.judge import RetentionLookup, judge_lag, read_windows
from mirrorlake.lag.lag_queries import LagQueries
from mirrorlake.lag.loss import SNAPSHOTS_APART, Loss, loss_of_flow
from mirrorlake.lag.objectives import judge_objectives, measured_rto
from mirrorlake.lag.snapshot import PositionSnapshot
from mirrorlake.lag.sql import LAG_COLUMNS, LagQuery
from mirrorlake.lag.sql_views import create_views
from mirrorlake.lag.status import Status
from mirrorlake.lag.status_hops import adopt_status
from mirrorlake.lag.table_filter import NothingSampled
from mirrorlake.lag.time_lag import LagSample, Readers, age_ms, read_next_timestamps
from mirrorlake.lag.verdict import WINDOW_SAMPLES
from mirrorlake.lake import (
    OFFSET_MAP,
    POSITIONS,
    SAMPLES,
    Lake,
    PositionKey,
    arrow_table,
    arrow_type,
    sample_row,
    sampled_rows,
)
from mirrorlake.lake import from_micros as utc
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.model.flow import SourcePartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

When = str | timedelta | datetime
"""A time as people write it, or how long ago: `"1h"` (see `mirrorlake.config.when`)."""

KnownRuns = Callable[[Collection[str]], tuple[str, Mapping[str, pa.Table]]]
"""Read the offset map of named flows, their ledgers' newest runs included: what stands for its rows in a question, and tables that
it names."""


class Lag:
    """Offset lag and time lag of each hop of each flow: now, over time, as a verdict.

    Args:
        lake: the lake.
        flows: the flows to report on.
        look: samples all positions now, and writes nothing.
        runs: reads the offset map of the named flows, their ledgers' newest runs included.
        readers: opens a reader of a source's records.
        now: the clock, in UTC.
        retention_of: returns the retention of the topic that a hop reads.
        status: reads the status of the flows; without it, verdicts use the samples alone.
        paused: reads the pauses.
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
        look: Callable[[], PositionSnapshot],
        runs: KnownRuns,
        readers: Readers,
        now: Callable[[], datetime],
        retention_of: RetentionLookup | None = None,
        status: Callable[[], Status] | None = None,
        paused: Callable[[], ControlState] = lambda: NOTHING_ASKED,
        every: timedelta = timedelta(seconds=30),
    ) -> None:
        self._apart = SNAPSHOTS_APART * max(every, timedelta(seconds=1))
        self._retention_of = retention_of
        self._status = status
        self._paused = paused
        self._lake = lake
        self.flows = tuple(flows)
        self._look = look
        self._runs = runs
        self._readers = readers
        self._now = now
        self._asked = LagQueries(lake, self.flows, now=now)

    def now(self) -> DataFrame:
        """Sample all positions and return the present lag, in the columns `lag.sql.LAG_COLUMNS`; writes nothing.

        Where the oldest record that waits is not landed yet, its timestamp is read from the source. A cluster that does not
        answer leaves its figures out.

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
            UsageError: nothing was sampled yet, or the time cannot be read.
        """
        if since is not None:
            return self.query_over(since).rows()
        sample = self._look()
        if not self._lake.exists(self._lake.meta_location(OFFSET_MAP)):
            raise UsageError(
                "nothing was landed yet, so there is no lag", remedy="mirrorlake run --once, then ask again"
            )
        at = sample.observed_at
        # The newest mapped ranges and group positions of a target that did not answer are unknown.
        runs, known = self._runs({look.name for look in sample.looks if look.subject == "flow" and not look.error})
        moments = [sample_row(replace(look, complete=True), at) for look in sample.looks]
        tables = self._asked.filter.all_rows()
        tables = replace(
            tables,
            positions="{seen_positions}",
            samples="{seen_samples}",
            offset_map=f"(SELECT {', '.join(OFFSET_MAP.columns)} FROM {runs})",  # noqa: S608  names of columns
            tables={
                **tables.tables,
                **known,
                "seen_positions": arrow_table(POSITIONS, sampled_rows(sample.positions, at)),
                "seen_samples": arrow_table(SAMPLES, moments),
            },
        )
        return self._fill_in_timestamps(
            self._asked.of_flows(relay_lag.lag(self._asked.filter.limit_to_waiting(tables, oldest=True))).rows(),
            at,
            sample,
        )

    def pandas(self, since: When | None = None) -> Any:
        """Return `rows` as a pandas frame, in the columns of `lag.sql.LAG_COLUMNS`.

        Raises:
            UsageError: nothing was sampled yet, or the time cannot be read.

        Example:
            >>> mirror["east->central"].lag.pandas("1h").groupby("hop").offset_lag.max()  # doctest: +SKIP
        """
        if since is not None:
            return self.query_over(since).pandas()
        return self._now_table().to_pandas()

    def over(self, since: When = "1h", until: When | None = None) -> DataFrame:
        """Return the lag at every sample of a time range, in the columns `lag.sql.LAG_COLUMNS`.

        Raises:
            UsageError: nothing was sampled yet, or a time cannot be read.
        """
        return self.query_over(since, until).frame()

    def query_over(self, since: When = "1h", until: When | None = None) -> LagQuery:
        """Build the query of `over`."""
        start, end = self.span(since, until)
        return self._asked.over(start, end)

    def rpo(self, since: When = "1h", until: When | None = None) -> DataFrame:
        """Return the loss at each sample, had the source been lost then, in the columns `lag.sql.RPO_COLUMNS`.

        Raises:
            UsageError: nothing was sampled yet, or a time cannot be read.
        """
        return self.query_rpo(since, until).frame()

    def query_rpo(self, since: When = "1h", until: When | None = None) -> LagQuery:
        """Build the query of `rpo`."""
        start, end = self.span(since, until)
        return self._asked.rpo(start, end)

    def latency(self, since: When = "1h", until: When | None = None, *, bucket: str | timedelta = "1m") -> DataFrame:
        """Return percentiles of the time from record to target, in the columns `lag.sql.LATENCY_COLUMNS`.

        Every record that reached a target in that time counts; no samples are needed.

        Raises:
            UsageError: a time cannot be read.
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
        return self._asked.latency(start, end, bucket_s=int(bucket_s))

    def at(self, group: str, moment: When) -> DataFrame:
        """Return the positions of a group at a past time, by the newest sample up to it, on sources and targets.

        The rows are those of `over`, of hop `consumed`.

        Raises:
            UsageError: nothing was sampled up to then.
        """
        time = self._moment(moment)
        tables = self._asked.filter.limit_to_time(time, time)
        newest = (
            f"SELECT name, max(observed_at) AS newest_at FROM {tables.samples} "  # noqa: S608  no value enters the text
            "WHERE subject = 'cluster' AND error IS NULL GROUP BY name"
        )
        looks = self._lake.query_rows(newest, **tables.values)
        mine = f"(SELECT * FROM {tables.positions} WHERE group_id IS NULL OR group_id = :group_id)"  # noqa: S608  likewise
        tables = replace(
            tables,
            positions=mine,
            since=min((row.newest_at for row in looks), default=time),
            values={**tables.values, "group_id": group},
        )
        found = self._asked.of_flows(relay_lag.lag(self._asked.filter.limit_to_waiting(tables, oldest=True))).where(
            "group_id = :group_id", group_id=group
        )
        text = (
            f"SELECT {', '.join(f'a.{name}' for name in LAG_COLUMNS)} FROM ({found.text}) AS a "  # noqa: S608  likewise
            f"JOIN ({newest}) AS n ON a.cluster = n.name AND a.observed_at = n.newest_at"
        )
        return replace(found, text=text).frame()

    def loss_at(self, moment: When) -> Loss:
        """Return the loss had the sources died at a past time, by the last sample before it.

        Records that were on the source and not on the target count, withheld ones left out. A look is exact for its own
        moment; one that is older than two intervals of the sampler covers nothing, and the loss is unknown then, as it is
        where the source did not answer.

        Raises:
            UsageError: nothing was landed or sampled yet, or the time cannot be read.

        Example:
            >>> mirror["east->central"].lag.loss_at("3h")[0].records  # doctest: +SKIP
            17
        """
        at = self._moment(moment)
        try:
            tables = self._asked.filter.limit_to_waiting(
                self._asked.filter.limit_to_time(_whole_ms(at - self._apart), at)
            )
            rows = self._asked.of_flows(relay_lag.loss(tables)).rows()
        except NothingSampled:
            rows = []
        return Loss(
            at=at,
            flows=tuple(
                loss_of_flow(flow.name, (row for row in rows if row.flow == flow.name), at=at, apart=self._apart)
                for flow in self.flows
            ),
        )

    def verdict(self) -> LagVerdict:
        """Judge each hop by its newest ten samples, by rule (see `lag.verdict`).

        The verdicts on flows are those of `mirror.status()`, whose look is the last sample. With them come the objectives, the time
        to catch up and whether retention deletes first what waits; for the latter the clusters of hops where records wait are asked
        for the retention of their topics.

        Raises:
            UsageError: nothing was sampled yet.

        Example:
            >>> mirror.lag.verdict().verdict.name  # doctest: +SKIP
            'OK'
        """
        # Read before the queries, because their duration must not count as silence.
        now = self._now()
        start = self._look_before(WINDOW_SAMPLES)
        asked = self.query_over(start)
        status = None if self._status is None else self._status()
        found = judge_lag(asked, now=now, status=status, retention_of=self._retention_of, lake=self._lake)
        if status is not None:
            found = adopt_status(found, status, self._paused())
        objectives = judge_objectives(self.flows, found.rpo_ms, measured_rto(self._lake, self.flows))
        return replace(found, objectives=objectives)

    def windows(self) -> dict[tuple[str, SourcePartition], Sequence[LagSample]]:
        """Read the newest samples of the hop `republished` by flow and partition, oldest first, without a present one.

        Those from before the sampler rested are left out: they say nothing of this moment.

        Raises:
            StoreError: the lake failed.
        """
        begin = max(self._moment(self._look_before(WINDOW_SAMPLES - 1)), self._now() - WINDOW_SAMPLES * self._apart)
        try:
            asked = self.query_over(begin).where("hop = 'republished'")
            found = read_windows(asked, samples=WINDOW_SAMPLES - 1)
        except UsageError:
            # Nothing was sampled, or landed, yet.
            return {}
        return {
            (place.flow, SourcePartition(place.topic, place.generation, place.partition)): window
            for place, window in found.items()
        }

    def _look_before(self, looks: int) -> When:
        text = "SELECT DISTINCT observed_at FROM {samples} WHERE error IS NULL ORDER BY observed_at DESC LIMIT :looks"
        return min((row.observed_at for row in self._lake.query_rows(text, missing_ok=True, looks=looks)), default="1h")

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo` and return their names (see `lag/sql_views.py`)."""
        self._lake.create_all({flow.source for flow in self.flows})
        return create_views(self._lake, self.flows, days=days)

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _fill_in_timestamps(self, rows: list[Any], at: datetime, sample: PositionSnapshot) -> list[Any]:
        """Add what only the source knows: the timestamps of records that are not landed."""
        positions = sample.positions

        def place(row: Any) -> tuple[str, SourcePartition]:
            return row.source, SourcePartition(row.topic, row.generation, row.partition)

        ends = {
            place(row): positions[
                PositionKey(row.source, None, row.topic, row.generation, row.partition, "reached", None)
            ]
            for row in rows
            if row.time_lag_ms is None
        }
        unlanded = read_next_timestamps(self._readers, ends)
        for row in rows:
            if row.time_lag_ms is None and place(row) in unlanded:
                since_ms = unlanded[place(row)]
                row.time_lag_ms = age_ms(since_ms, at)
                row.waiting_since = None if since_ms is None else utc(since_ms * 1000)
        return rows

    def span(self, since: When, until: When | None = None) -> tuple[datetime, datetime]:
        """Parse the start and end of a time range.

        Raises:
            UsageError: a time cannot be read.
        """
        return _whole_ms(self._moment(since)), self._now() if until is None else self._moment(until)

    def _moment(self, text: When) -> datetime:
        return when(text, now=self._now())


def _whole_ms(time: datetime) -> datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
