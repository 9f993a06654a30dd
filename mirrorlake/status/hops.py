"""The verdicts on the hops of a mirror at one snapshot, and the lag of hops over time, as values that show themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from mirrorlake.render import Displayable, Sheet, Table, badge, by_fields, plural, table
from mirrorlake.status.objectives import FlowObjectives, objectives_table
from mirrorlake.status.snapshot import HOPS, HopKey, describe_hop
from mirrorlake.status.status import By, Status, to_timedelta
from mirrorlake.status.verdict import (
    SEVERITY,
    CatchUp,
    LagSample,
    RetentionRisk,
    Verdict,
    combine_known,
    sum_lags,
    worst,
)
from mirrorlake.tables import TableStatus, tables_table

T = TypeVar("T")
_NOT_KNOWN = (Verdict.UNKNOWN, Verdict.WARMING_UP, Verdict.CLUSTER_AWAY)
_COLUMNS = ["verdict", "offset lag", "time lag", "catches up in", "deleted in", "why"]
_MAX_WAITING = 5
_NO_POSITION = "no position is known yet; next: mirrorlake run, and mirrorlake doctor where a cluster does not answer"
_UNKNOWN_LAG = "–: not known; the records that wait are not landed yet, or a cluster did not answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class HopVerdict:
    """The verdict on one hop by its last `samples`; `retention` is None if its topic's retention is unknown."""

    key: HopKey
    verdict: Verdict
    reason: str
    last: LagSample
    samples: int
    catch_up: CatchUp
    retention: RetentionRisk | None

    @property
    def at_risk(self) -> bool:
        """Whether retention deletes records before they pass the hop; of a hop `consumed` before the group reads them."""
        return self.retention is not None and self.retention.at_risk

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document; times in milliseconds, lags in offsets."""
        last, risk = self.last, self.retention
        return {
            **self.key._asdict(),
            "verdict": self.verdict.name,
            "reason": self.reason,
            "position": last.position,
            "end_position": last.end_position,
            "offset_lag": last.offset_lag,
            "time_lag_ms": last.time_lag_ms,
            "observed_at": last.observed_at.isoformat(),
            "samples": self.samples,
            "eta_ms": self.catch_up.eta_ms,
            "eta_reason": self.catch_up.reason,
            "retention_risk": None if risk is None else risk.at_risk,
            "retention_left_ms": None if risk is None else risk.left_ms,
            "retention_soonest_ms": None if risk is None else risk.soonest_ms,
            "retention_reason": None if risk is None else risk.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LagVerdict(Displayable):
    """The verdicts of a mirror or of one flow; the worst counts.

    `status` is of the same snapshot. Groups have verdicts of their own (`groups`) and count for nothing else: consumers read when
    they like.
    """

    hops: tuple[HopVerdict, ...]
    status: Status
    objectives: tuple[FlowObjectives, ...] = ()
    shown_by: By = "topic"

    @property
    def verdict(self) -> Verdict:
        return worst(self.flows.values())

    @property
    def complete(self) -> float:
        """The share of hops with a known verdict, 0 to 1; 1 without hops (Burrow's `complete`)."""
        known = sum(hop.verdict not in _NOT_KNOWN for hop in self.hops)
        return known / len(self.hops) if self.hops else 1.0

    @property
    def flows(self) -> Mapping[str, Verdict]:
        """The verdict of each flow."""
        return {one.flow: Verdict[one.verdict] for one in self.status.flows}

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reason of each flow's verdict."""
        return {one.flow: one.reason for one in self.status.flows}

    @property
    def tables(self) -> tuple[TableStatus, ...]:
        """The typed tables, whose hop is `in_table`; a status of one flow lacks them."""
        return self.status.tables

    @property
    def groups(self) -> Mapping[str, Verdict]:
        found: dict[str, set[Verdict]] = {}
        for hop in self.hops:
            if hop.key.hop == "consumed":
                found.setdefault(hop.key.group_id or "", set()).add(hop.verdict)
        return {name: worst(found[name]) for name in sorted(found)}

    @property
    def at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops of the mirror that retention overtakes, the nearest first."""
        return self._at_risk(lambda hop: hop != "consumed")

    @property
    def groups_at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops `consumed` of groups that retention overtakes, the nearest first."""
        return self._at_risk(lambda hop: hop == "consumed")

    def _at_risk(self, which: Callable[[str], bool]) -> tuple[HopVerdict, ...]:
        found = (hop for hop in self.hops if hop.at_risk and which(hop.key.hop))
        return tuple(sorted(found, key=lambda hop: (hop.retention and hop.retention.left_ms) or 0))

    @property
    def is_fine(self) -> bool:
        """Whether no flow and no typed table is worse than OK, retention overtakes none, and no objective is missed.

        Samples that cannot tell yet are no finding; a cluster that does not answer is one.
        """
        found = {
            *self.flows.values(),
            *(Verdict[one.verdict] for one in self.tables),
            *(hop.verdict for hop in self.hops if hop.key.hop != "consumed"),
        }
        missed = any(one.missed for one in self.objectives)
        return found <= {Verdict.OK, Verdict.UNKNOWN, Verdict.WARMING_UP} and not self.at_risk and not missed

    @property
    def rpo_ms(self) -> dict[str, int | None]:
        """The age of the oldest record that would be lost with the source, by flow; None where it is not known."""
        return {one.flow: one.time_lag_ms for one in self.status.flows}

    def by(self, what: By) -> LagVerdict:
        return replace(self, shown_by=what)

    def worst_first(self) -> LagVerdict:
        return replace(self, hops=tuple(sorted(self.hops, key=_urgency)))

    def at_risk_words(self) -> str:
        keys = [hop.key for hop in self.at_risk]
        return plural(len({(key.source, key.topic, key.partition) for key in keys}), "partition")

    def by_flow(self, hop: str) -> dict[str, list[HopVerdict]]:
        """List the verdicts on one hop, by flow; a flow without any is left out."""
        found: dict[str, list[HopVerdict]] = {}
        for one in self.hops:
            if one.key.hop == hop:
                found.setdefault(one.key.flow, []).append(one)
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.name,
            "complete": self.complete,
            "flows": {name: verdict.name for name, verdict in self.flows.items()},
            "reasons": dict(self.reasons),
            "groups": {name: verdict.name for name, verdict in self.groups.items()},
            "objectives": {one.flow: one.as_dict() for one in self.objectives},
            "hops": [hop.as_dict() for hop in self.hops],
            "tables": [by_fields(one) for one in self.tables],
        }

    def sheet(self) -> Sheet:
        groups = [hop for hop in self.hops if hop.key.hop == "consumed"]
        missed = [f"{one.flow} misses its {' and '.join(one.missed)}" for one in self.objectives if one.missed]
        facts = [f"{name} {verdict.label}" for name, verdict in self.flows.items()]
        if self.complete < 1:
            facts.append(f"{self.complete:.0%} of {len(self.hops)} hops are known")
        if self.at_risk:
            facts.append(f"retention overtakes {self.at_risk_words()}")
        return Sheet(
            title="lag",
            badge=badge(self.verdict.label),
            facts=(*facts, *missed),
            parts=(
                *(f"{flow}: {why}" for flow, why in self.reasons.items()),
                *([objectives_table(self.objectives)] if self.objectives else []),
                self._hop_table("", [hop for hop in self.hops if hop.key.hop != "consumed"]),
                *([tables_table("in_table", self.tables)] if self.tables else []),
                *([self._hop_table("groups, which change no verdict of a flow", groups)] if groups else []),
            ),
        )

    def _hop_table(self, title: str, hops: Sequence[HopVerdict]) -> Table:
        rows = [[hop] for hop in hops] if self.shown_by == "partition" else _by_topic(hops)
        columns = ["flow", self.shown_by, "hop", *_COLUMNS]
        least = ("offset lag", "time lag", "catches up in", "deleted in")
        # The only flow is in the title.
        start = 0 if len(self.flows) > 1 else 1
        return table(title, columns[start:], [_row(several, by=self.shown_by)[start:] for several in rows], least=least)


def _urgency(hop: HopVerdict) -> tuple[Any, ...]:
    place = hop.key
    return (
        SEVERITY.index(hop.verdict),
        not hop.at_risk,
        place.flow,
        place.topic,
        place.partition,
        HOPS.index(place.hop),
        place.group_id or "",
    )


def _by_topic(hops: Iterable[HopVerdict]) -> list[list[HopVerdict]]:
    """Group the verdicts of each hop of a topic over its partitions, the worst first in each group and of all groups."""
    found: dict[tuple[str, str, str], list[HopVerdict]] = {}
    for hop in sorted(hops, key=_urgency):
        found.setdefault((hop.key.flow, hop.key.topic, _hop_name(hop.key)), []).append(hop)
    return list(found.values())


def _hop_name(place: HopKey) -> str:
    return describe_hop(place.hop, place.group_id, place.cluster)


def _row(hops: Sequence[HopVerdict], *, by: By) -> Sequence[object]:
    """Return the row of one hop, or of a topic's, with the verdict of the worst, which is the first."""
    worst, total = hops[0], sum_lags(hop.last for hop in hops)
    place, why = worst.key, [worst.reason]
    if worst.catch_up.eta_ms is None and worst.verdict not in (Verdict.OK, *_NOT_KNOWN):
        why.append(worst.catch_up.reason)
    if worst.retention is not None and worst.at_risk:
        why.append(worst.retention.reason)
    alike = sum(hop.verdict is worst.verdict for hop in hops)
    is_same = len({hop.reason for hop in hops}) == 1
    of = "" if is_same else f"{alike} of {len(hops)} partitions, such as {place.partition}: "
    left = (hop.retention.left_ms for hop in hops if hop.retention is not None and hop.at_risk)
    return (
        place.flow,
        place.topic if by == "topic" else f"{place.topic}-{place.partition}",
        _hop_name(place),
        badge(worst.verdict.label),
        total.offset_lag,
        to_timedelta(total.time_lag_ms),
        # Nothing to catch up is no forecast.
        to_timedelta(combine_known(max, (hop.catch_up.eta_ms for hop in hops)) or None),
        to_timedelta(min((ms for ms in left if ms is not None), default=None)),
        of + "; ".join(why),
    )


# -- the lag of positions, over time ---------------------------------------------------------------------------------------


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
        return Sheet(title="lag", facts=facts, parts=(*parts, *([_UNKNOWN_LAG] if unknown else [])))

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
