"""Show the lag of each hop of each topic on one page, the longest waiting partitions below; or each position with its lag."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from mirrorlake.lag.hop_verdicts import HOPS, describe_hop
from mirrorlake.lag.partition_status import to_timedelta
from mirrorlake.lag.status import By
from mirrorlake.lag.time_lag import combine_known, sum_lags
from mirrorlake.render import Displayable, Sheet, Table, plural, table
from mirrorlake.tables import TableStatus, tables_table

T = TypeVar("T")

_MAX_WAITING = 5
_NO_POSITION = "no position is known yet; next: mirrorlake run, and mirrorlake doctor where a cluster does not answer"
_NOT_KNOWN = "–: not known; the records that wait are not landed yet, or a cluster did not answer"


class _Position(NamedTuple):
    """The newest sample of one hop of one partition, with the largest time lag of all its samples."""

    flow: str
    topic: str
    partition: int
    hop: str
    position: int
    end: int | None
    offset_lag: int | None
    time_lag_ms: int | None
    max_time_lag_ms: int | None


class LagPage(Displayable):
    """The lag of positions, from rows of `Lag.rows`; by `topic` it fits a page, by `partition` it has every position."""

    __slots__ = ("_by", "_is_over_time", "_positions", "rows", "tables")

    def __init__(self, rows: Iterable[Any], *, by: By = "topic", tables: Sequence[TableStatus] = ()) -> None:
        self.tables = tables
        self.rows = sorted(rows, key=_position_key)
        samples = _group(self.rows, _position_key)
        self._positions = [_newest(several) for several in samples]
        self._is_over_time = any(len(several) > 1 for several in samples)
        self._by = by

    def sheet(self) -> Sheet:
        """Return the topics with the longest waiting first, or each position in order."""
        if not self._positions:
            return Sheet(title="lag", facts=(_NO_POSITION,))
        if self._by == "partition":
            parts = [self._table("", self._positions)]
        else:
            waiting = sorted((one for one in self._positions if one.offset_lag != 0), key=_longest_first)
            parts = [self._topics()]
            if waiting:
                title = f"longest waiting of {plural(len(waiting), 'position')}; --by partition shows every one"
                parts.append(self._table(title, waiting[:_MAX_WAITING]))
        unknown = any(one.time_lag_ms is None for one in self._positions)
        facts = (plural(len(self._positions), "position"),)
        parts += [tables_table("in_table", self.tables)] if self.tables else []
        return Sheet(title="lag", facts=facts, parts=(*parts, *([_NOT_KNOWN] if unknown else [])))

    def _topics(self) -> Table:
        topics = _group(self._positions, lambda one: (one.flow, one.topic))
        topics.sort(key=lambda several: min(map(_longest_first, several)))
        rows = []
        for several in (hop for topic in topics for hop in _group(topic, lambda one: one.hop)):
            first, total = several[0], sum_lags(several)
            longest = combine_known(max, (one.max_time_lag_ms for one in several))
            lags = (total.offset_lag, to_timedelta(total.time_lag_ms), to_timedelta(longest))
            rows.append((first.flow, first.topic, first.hop, len(several), *lags))
        return self._cut("", ["flow", "topic", "hop", "partitions", "offset lag", "time lag", "at most"], rows)

    def _table(self, title: str, positions: Sequence[_Position]) -> Table:
        columns = ["flow", "partition", "hop", "position", "end", "offset lag", "time lag", "at most"]
        rows = [
            (
                one.flow,
                f"{one.topic}-{one.partition}",
                one.hop,
                str(one.position),
                None if one.end is None else str(one.end),
                one.offset_lag,
                to_timedelta(one.time_lag_ms),
                to_timedelta(one.max_time_lag_ms),
            )
            for one in positions
        ]
        return self._cut(title, columns, rows)

    def _cut(self, title: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> Table:
        """Return the table without the largest lag of a single sample, and without the only flow."""
        end = len(columns) if self._is_over_time else -1
        start = 0 if len({one.flow for one in self._positions}) > 1 else 1
        least = ("at most", "end", "position", "partitions")
        return table(title, columns[start:end], [row[start:end] for row in rows], least=least)


def _group(values: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return list(found.values())


def _position_key(row: Any) -> tuple[Any, ...]:
    return (
        *(row.flow, row.topic, row.generation, row.partition),
        *(HOPS.index(row.hop), row.group_id or "", row.cluster or ""),
    )


def _longest_first(position: _Position) -> tuple[bool, int, int]:
    """Return the order of positions by their time lags; an unknown one may be longer than any."""
    return position.time_lag_ms is not None, -(position.time_lag_ms or 0), -(position.offset_lag or 0)


def _newest(samples: Sequence[Any]) -> _Position:
    last = max(samples, key=lambda row: row.observed_at)
    lags = [row.time_lag_ms for row in samples if row.time_lag_ms is not None]
    return _Position(
        flow=last.flow,
        topic=last.topic if last.generation == 1 else f"{last.topic}~{last.generation}",
        partition=last.partition,
        hop=describe_hop(last.hop, last.group_id, last.cluster),
        position=last.position,
        end=last.end_position,
        offset_lag=last.offset_lag,
        time_lag_ms=last.time_lag_ms,
        max_time_lag_ms=max(lags, default=None),
    )
