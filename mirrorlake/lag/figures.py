"""The figures of a mirror at one moment, from its tables, for the metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mirrorlake.errors import UsageError
from mirrorlake.lag.hop_verdicts import LagVerdict
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.series import LatencyPoint, latency_points
from mirrorlake.lake import GAPS, WITHHELD, Lake, TableSchema
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.withheld import FILTERED, QUARANTINED

_LATENCY_SPAN, _LATENCY_BUCKET = "10m", "5m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one read: verdicts and lags of every hop, and the newest latency by flow and topic.

    `gaps` are offsets that were never landed, by source and kind (law E); `withheld` records that were kept from the target,
    by flow and kind (`filtered`, `quarantined`); both are 0 before their first event.
    """

    at: datetime
    lag: LagVerdict
    latency: Sequence[LatencyPoint] = ()
    gaps: Mapping[tuple[str, str], int] = field(default_factory=dict)
    withheld: Mapping[tuple[str, str], int] = field(default_factory=dict)


def measure(lake: Lake, lag: Lag, *, now: Callable[[], datetime]) -> Figures:
    try:
        verdict = lag.verdict()
    except UsageError:
        # Nothing was sampled yet.
        verdict = LagVerdict(hops=())
    try:
        latency = latency_points(lag.query_latency(_LATENCY_SPAN, bucket=_LATENCY_BUCKET))
    except UsageError:
        latency = ()
    gaps, withheld = _sums(lake, GAPS, "source", "missing"), _sums(lake, WITHHELD, "flow", "record_count")
    return Figures(
        at=now(),
        lag=verdict,
        latency=tuple({(one.flow, one.topic): one for one in latency}.values()),
        # Series start at 0, because an alert misses the first event of a series that begins with it.
        gaps={(flow.source, kind): 0 for flow in lag.flows for kind in GAP_KINDS} | gaps,
        withheld={(flow.name, kind): 0 for flow in lag.flows for kind in (FILTERED, QUARANTINED)} | withheld,
    )


def _sums(lake: Lake, table: TableSchema, place: str, column: str) -> dict[tuple[str, str], int]:
    text = f"SELECT {place} AS place, kind, sum({column}) AS total FROM {{{table.name}}} GROUP BY {place}, kind"  # noqa: S608
    return {(row.place, row.kind): int(row.total or 0) for row in lake.query_rows(text, missing_ok=True)}
