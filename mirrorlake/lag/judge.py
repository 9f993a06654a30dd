"""Judge each hop by its newest samples (`lag/verdict.py`) and by the retention of the topic that it reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import overload

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lag.columns import NOTHING, numbers
from mirrorlake.lag.forecast import Earliest, RetentionRisk, catch_up, no_older_than, retention_risk
from mirrorlake.lag.hop_verdicts import HopKey, HopVerdict, LagVerdict
from mirrorlake.lag.sql import LagQuery
from mirrorlake.lag.status import Status
from mirrorlake.lag.status_hops import HopWindows, append_snapshot
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.lag.verdict import WINDOW_SAMPLES, judge
from mirrorlake.lake import Lake, from_micros
from mirrorlake.model.flow import SourcePartition

log = logging.getLogger(__name__)

# A deletion rate needs a few deleted segments; older ones describe another load.
_MAX_CHANGES = 20

_HOP_KEY = ("flow", "source", "topic", "generation", "partition", "hop", "group_id", "cluster")


RetentionLookup = Callable[[Collection[HopKey]], Mapping[HopKey, int | None]]
"""Return the retention of the topics that hops read in milliseconds, None for no limit; hops of unknown retention are left out."""


class Retention:
    """Read `retention.ms` of the topics that hops read, in one request a cluster.

    The hop `republished` reads the relay, which has its own retention. A lake cluster deletes nothing, nor does a topic that
    is only compacted.
    """

    def __init__(self, config: MirrorConfig, *, admin: Callable[[str], ClusterAdmin]) -> None:
        self._config = config
        self._admin = admin
        self._known: dict[tuple[str, str], int | None] = {}

    def __call__(self, hops: Collection[HopKey]) -> dict[HopKey, int | None]:
        """Return the retention by hop; each topic is read once, and left out if its settings may not be read."""
        found: dict[HopKey, int | None] = {}
        topics: dict[HopKey, tuple[str, str]] = {}
        for place in hops:
            flow = self._config.flow(place.flow)
            at_source = place.hop == "landed" or place.cluster == place.source
            alias = flow.source if at_source else flow.target
            if place.hop == "republished":
                relay = self._config.cluster(flow.source).retention_of(place.topic)
                age = None if relay is None else relay.age
                found[place] = None if age is None else age // timedelta(milliseconds=1)
            elif self._config.cluster(alias).is_lake:
                found[place] = None
            else:
                topics[place] = alias, place.topic if at_source else flow.remote_topic(place.topic)
        asked: dict[str, set[str]] = {}
        for alias, topic in topics.values():
            if (alias, topic) not in self._known:
                asked.setdefault(alias, set()).add(topic)
        for alias, names in asked.items():
            self._ask(alias, names)
        return found | {place: self._known[topic] for place, topic in topics.items() if topic in self._known}

    def _ask(self, alias: str, names: Collection[str]) -> None:
        refused: dict[str, MirrorlakeError] = {}
        try:
            settings = self._admin(alias).effective_configs_each(names, refused=refused)
        except MirrorlakeError as error:
            # Verdicts matter most when a cluster is unreachable, so they must not depend on its settings.
            settings, refused = {}, {alias: error}
        for name, why in refused.items():
            log.info("lag.retention_not_known what=%s why=%s", name, why.cause)
        for topic, values in settings.items():
            deletes = "delete" in (values.get("cleanup.policy") or "delete")
            bound = int(values.get("retention.ms") or -1)
            self._known[alias, topic] = None if bound < 0 or not deletes else bound


def judge_lag(
    query: LagQuery,
    *,
    now: datetime,
    status: Status | None = None,
    retention_of: RetentionLookup | None = None,
    lake: Lake | None = None,
) -> LagVerdict:
    """Judge each hop by its newest samples, worst first; runs the query.

    Only the newest generation of a topic is judged: positions of an older one end where the topic was deleted.

    The snapshot of `status` is the last sample; `retention_of` is called for hops where records wait; `lake` holds
    `positions`, for the log start offsets of the sources.
    """
    windows: HopWindows = {place: [*window] for place, window in read_windows(query).items()}
    if status is not None:
        windows = append_snapshot(windows, status)
    waiting = {place for place, window in windows.items() if window[-1].waiting != 0}
    if lake is None or not waiting:
        return judge_windows(windows, now=now, retention_of=retention_of)
    passed = _last_landed(lake, waiting)
    bounded = {
        place: no_older_than(window, passed.get(_source(place))) if place.hop == "landed" else window
        for place, window in windows.items()
    }
    return judge_windows(
        bounded,
        now=now,
        retention_of=retention_of,
        earliest=read_earliest(lake, (place.topic for place in waiting)),
    )


def judge_windows(
    windows: Mapping[HopKey, Sequence[LagSample]],
    *,
    now: datetime,
    retention_of: RetentionLookup | None = None,
    earliest: Mapping[tuple[str, SourcePartition], Sequence[Earliest]] | None = None,
) -> LagVerdict:
    """Judge each hop by its samples, oldest first; `earliest` are log start offsets of the sources over time."""
    waiting = [place for place, window in windows.items() if window[-1].waiting != 0]
    known = dict.fromkeys(waiting) if retention_of is None else retention_of(waiting)
    # Nothing expires if nothing waits; the retention of a hop that waits may be unknown.
    kept = {**dict.fromkeys(windows.keys() - {*waiting}), **known}
    hops = []
    for place, window in windows.items():
        held: Sequence[Earliest] = ()
        if place.hop == "landed" or place.cluster == place.source:
            held = (earliest or {}).get(_source(place), ())
        if held and window[-1].observed_at > held[-1].observed_at:
            # Only changes are written, so the last offset held until the last sample.
            held = (*held, Earliest(observed_at=window[-1].observed_at, offset=held[-1].offset))
        found = judge(window, now=now, is_group=place.hop == "consumed")
        hops.append(
            HopVerdict(
                key=place,
                verdict=found.verdict,
                reason=found.reason,
                last=window[-1],
                samples=len(window),
                catch_up=catch_up(window),
                retention=_risk(place, window, now, kept[place], held) if place in kept else None,
            )
        )
    return LagVerdict(hops=tuple(hops)).worst_first()


def _risk(
    place: HopKey, window: Sequence[LagSample], now: datetime, kept_ms: int | None, held: Sequence[Earliest]
) -> RetentionRisk:
    found = retention_risk(window, now=now, retention_ms=kept_ms, earliest=held)
    if place.hop != "republished" or found.by == "none":
        return found
    # Records that a flow has not sent never leave the relay.
    reason = f"{found.reason} by the relay, which keeps them longer until they are sent"
    return replace(found, by="relay", at_risk=False, reason=reason)


class _Window(Sequence[LagSample]):
    """The samples of one hop, each built on access: a status needs only the first one if nothing waits."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: Sequence[list[int]], rows: range) -> None:
        self._columns = columns
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> LagSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[LagSample]: ...
    def __getitem__(self, index: int | slice) -> LagSample | list[LagSample]:
        if isinstance(index, slice):
            return [self._sample(row) for row in self._rows[index]]
        return self._sample(self._rows[index])

    def _sample(self, row: int) -> LagSample:
        values = (None if column[row] == NOTHING else column[row] for column in self._columns)
        observed_at, position, end_position, offset_lag, waiting_since, time_lag_ms = values
        return LagSample(
            observed_at=from_micros(observed_at or 0),
            position=position or 0,
            end_position=end_position,
            offset_lag=offset_lag,
            waiting_since=None if waiting_since is None else from_micros(waiting_since),
            time_lag_ms=time_lag_ms,
        )


def read_windows(query: LagQuery, *, samples: int = WINDOW_SAMPLES) -> dict[HopKey, Sequence[LagSample]]:
    """Read the newest samples of each hop of each topic's newest generation, oldest first, in one query."""
    table = replace(query, text=_WINDOWS.replace("{answer}", f"({query.text})")).table()
    # As columns, because 10 000 partitions have 100 000 rows.
    table = table.append_column("row", pa.array(np.arange(len(table))))
    hops = table.group_by(list(_HOP_KEY), use_threads=False).aggregate([("row", "list")])
    rows = hops["row_list"].combine_chunks()
    columns = [numbers(table[name].take(rows.flatten())).tolist() for name in _SAMPLE]
    places = [HopKey(**place) for place in hops.select(_HOP_KEY).to_pylist()]
    lives: dict[tuple[str, str], int] = {}
    for place in places:
        lives[place.flow, place.topic] = max(place.generation, lives.get((place.flow, place.topic), 0))
    return {
        place: _Window(columns, range(max(begin, end - samples), end))
        for place, (begin, end) in zip(places, pairwise(rows.offsets.to_pylist()), strict=True)
        if place.generation == lives[place.flow, place.topic]
    }


_SAMPLE = ("observed_at", "position", "end_position", "offset_lag", "waiting_since", "time_lag_ms")
# Callers limit the time to little more than the windows, so numbering rows in SQL would cost more than reading them all.
_WINDOWS = f"SELECT {', '.join((*_HOP_KEY, *_SAMPLE))} FROM {{answer}} ORDER BY observed_at"  # noqa: S608  names of columns


def _source(place: HopKey) -> tuple[str, SourcePartition]:
    return place.source, SourcePartition(place.topic, place.generation, place.partition)


def _last_landed(lake: Lake, places: Iterable[HopKey]) -> dict[tuple[str, SourcePartition], datetime]:
    topics = sorted({place.topic for place in places if place.hop == "landed"})
    rows = lake.query_rows(
        "SELECT source, topic, generation, partition, max_by(record_timestamp, position) AS at FROM {positions} "
        "WHERE kind = 'landed' AND array_contains(:topics, topic) AND record_timestamp IS NOT NULL "
        "GROUP BY source, topic, generation, partition",
        topics=topics,
    )
    return {(row.source, SourcePartition(row.topic, row.generation, row.partition)): row.at for row in rows}


def read_earliest(lake: Lake, topics: Iterable[str]) -> dict[tuple[str, SourcePartition], list[Earliest]]:
    """Read the recent log start offsets of topics' partitions, by alias and partition, oldest first."""
    rows = lake.query_rows(_EARLIEST, topics=sorted(set(topics)), most=_MAX_CHANGES, missing_ok=True)
    found: dict[tuple[str, SourcePartition], list[Earliest]] = {}
    for row in rows:
        place = row.source, SourcePartition(row.topic, row.generation, row.partition)
        found.setdefault(place, []).append(Earliest(observed_at=row.observed_at, offset=row.position))
    return found


_EARLIEST = """
    SELECT source, topic, generation, partition, position, observed_at FROM (
        SELECT *, row_number() OVER (PARTITION BY source, topic, generation, partition ORDER BY observed_at DESC) AS rank
        FROM {positions} WHERE kind = 'earliest' AND array_contains(:topics, topic) AND position IS NOT NULL)
    WHERE rank <= :most ORDER BY observed_at
"""
