"""Build the queries of lag, RPO and latency over a time range, from the lake's tables alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lag import sql as relay_lag
from mirrorlake.lag.sql import LagQuery
from mirrorlake.lag.table_filter import LagTableFilter
from mirrorlake.lake import Lake, micros


class LagQueries:
    def __init__(self, lake: Lake, flows: Sequence[FlowConfig], *, now: Callable[[], datetime]) -> None:
        self.filter = LagTableFilter(lake, flows, now=now)
        self._lake = lake
        self._names = [flow.name for flow in flows]

    def over(self, start: datetime, end: datetime) -> LagQuery:
        """Query the lag at every sample of a time range, in the columns `lag.sql.LAG_COLUMNS`."""
        return self._within(
            relay_lag.lag(self.filter.limit_to_waiting(self.filter.limit_to_time(start, end), oldest=True)), start, end
        )

    def rpo(self, start: datetime, end: datetime) -> LagQuery:
        """Query the possible loss at every sample of a time range, in the columns `lag.sql.RPO_COLUMNS`."""
        return self._within(
            relay_lag.rpo(self.filter.limit_to_waiting(self.filter.limit_to_time(start, end))), start, end
        )

    def latency(self, start: datetime, end: datetime, *, bucket_s: int) -> LagQuery:
        """Query percentiles of the time from record to target, in the columns `lag.sql.LATENCY_COLUMNS`."""
        tables = self.filter.all_rows()
        values: dict[str, Any] = {"names": self._names, "start": micros(start), "end": micros(end)}
        runs = (
            "(SELECT * FROM {offset_map} WHERE array_contains(:names, flow) "
            "AND unix_micros(committed_at) >= :start AND unix_micros(committed_at) <= :end)"
        )
        tables = replace(tables, offset_map=runs, values=values)
        rows = self._lake.query_rows(_SENT.replace("{runs}", runs), tables=tables.tables, **values)
        return relay_lag.latency(self.filter.limit_to_offsets(tables, rows), bucket_s=bucket_s)

    def of_flows(self, answer: LagQuery) -> LagQuery:
        return answer.where("array_contains(:names, flow)", names=self._names)

    def _within(self, answer: LagQuery, start: datetime, end: datetime) -> LagQuery:
        return self.of_flows(answer).where(
            "unix_micros(observed_at) >= :shown_from AND unix_micros(observed_at) <= :shown_to",
            shown_from=micros(start),
            shown_to=micros(end),
        )


_SENT = """
    SELECT f.source, m.source_topic AS topic, m.generation, m.source_partition AS partition,
        min(m.first_upstream) AS lowest, max(m.last_upstream) + 1 AS highest
    FROM {runs} AS m JOIN {flows} AS f ON m.flow = f.flow
    GROUP BY f.source, m.source_topic, m.generation, m.source_partition
"""
