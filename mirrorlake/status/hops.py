"""The verdicts on the hops of a mirror at one snapshot, and the lag of hops over time, as values that show themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

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
_NO_POSITION = "no position is known yet; next: mirrorlake run, and mirrorlake doctor where a cluster does not answer"
_UNKNOWN_LAG = "–: not known; the records that wait are not landed yet, or a cluster did not answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class HopVerdict:
    """The verdict on one hop by its last `samples`, and `since` when it holds, where that is known.

    `rates` are offsets a second of the end and of the position, None where they are not known; `retention` is None if its topic's
    retention is unknown.
    """

    key: HopKey
    verdict: Verdict
    reason: str
    last: LagSample
    samples: int
    catch_up: CatchUp
    retention: RetentionRisk | None
    rates: tuple[float | None, float | None] = (None, None)
    since: datetime | None = None

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
    """The verdicts on the hops of a mirror or of one flow, worst first, and its `status`, of the same snapshot.

    Groups have verdicts of their own (`groups`) and count for nothing else: consumers read when they like.
    """

    hops: tuple[HopVerdict, ...]
    status: Status
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
    def objectives(self) -> tuple[FlowObjectives, ...]:
        return tuple(one.objectives for one in self.status.flows if one.objectives is not None)

    @property
    def tables(self) -> tuple[TableStatus, ...]:
        """The typed tables, whose hop is `in_table`; a status of one flow lacks them."""
        return self.status.tables

    @property
    def groups(self) -> Mapping[str, Verdict]:
        found: dict[str, set[Verdict]] = {}
        for hop in self._of_groups():
            found.setdefault(hop.key.group_id or "", set()).add(hop.verdict)
        return {name: worst(found[name]) for name in sorted(found)}

    def _of_groups(self) -> list[HopVerdict]:
        return [hop for hop in self.hops if hop.key.hop == "consumed"]

    def _of_mirror(self) -> list[HopVerdict]:
        return [hop for hop in self.hops if hop.key.hop != "consumed"]

    @property
    def at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops of the mirror that retention overtakes, the nearest first."""
        found = (hop for hop in self._of_mirror() if hop.at_risk)
        return tuple(sorted(found, key=lambda hop: (hop.retention and hop.retention.left_ms) or 0))

    def at_risk_words(self) -> str:
        keys = [hop.key for hop in self.at_risk]
        return plural(len({(key.source, key.topic, key.partition) for key in keys}), "partition")

    @property
    def is_fine(self) -> bool:
        """Whether no flow and no typed table is worse than OK, retention overtakes none, and no objective is missed.

        Samples that cannot tell yet are no finding; a cluster that does not answer is one.
        """
        verdicts = [*self.flows.values(), *(Verdict[one.verdict] for one in self.tables)]
        verdicts += [hop.verdict for hop in self._of_mirror()]
        missed = any(one.missed for one in self.objectives)
        return {*verdicts} <= {Verdict.OK, Verdict.UNKNOWN, Verdict.WARMING_UP} and not self.at_risk and not missed

    @property
    def rpo_ms(self) -> dict[str, int | None]:
        """The age of the oldest record that would be lost with the source, by flow; None where it is not known."""
        return {one.flow: one.time_lag_ms for one in self.status.flows}

    def by(self, what: By) -> LagVerdict:
        return replace(self, shown_by=what)

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
        groups = self._of_groups()
        facts = [f"{name} {verdict.label}" for name, verdict in self.flows.items()]
        if self.complete < 1:
            facts.append(f"{self.complete:.0%} of {len(self.hops)} hops are known")
        if self.at_risk:
            facts.append(f"retention overtakes {self.at_risk_words()}")
        facts += [f"{one.flow} misses its {' and '.join(one.missed)}" for one in self.objectives if one.missed]
        return Sheet(
            title="lag",
            badge=badge(self.verdict.label),
            facts=tuple(facts),
            parts=(
                *(f"{flow}: {why}" for flow, why in self.reasons.items()),
                *([objectives_table(self.objectives)] if self.objectives else []),
                self._table("", self._of_mirror()),
                *([tables_table("in_table", self.tables)] if self.tables else []),
                *([self._table("groups, which change no verdict of a flow", groups)] if groups else []),
            ),
        )

    def _table(self, title: str, hops: Sequence[HopVerdict]) -> Table:
        if self.shown_by == "partition":
            rows = [[hop] for hop in hops]
        else:
            rows = _group(hops, lambda hop: (hop.key.flow, hop.key.topic, _hop_name(hop.key)))
        columns = ["flow", self.shown_by, "hop", "verdict", "offset lag", "time lag"]
        columns += ["catches up in", "deleted in", "why"]
        # The only flow is in the title.
        start = 0 if len(self.flows) > 1 else 1
        least = ("offset lag", "time lag", "catches up in", "deleted in")
        return table(title, columns[start:], [_row(several, self.shown_by)[start:] for several in rows], least=least)


def hop_urgency(hop: HopVerdict) -> tuple[Any, ...]:
    """Order verdicts, the worst first."""
    return SEVERITY.index(hop.verdict), not hop.at_risk, *_order(hop.key)


def _order(row: Any) -> tuple[Any, ...]:
    """Order hops, or rows with their columns, along the way of records."""
    return (
        *(row.flow, row.topic, row.generation, row.partition),
        *(HOPS.index(row.hop), row.group_id or "", row.cluster or ""),
    )


def _hop_name(row: Any) -> str:
    return describe_hop(row.hop, row.group_id, row.cluster)


def _group(values: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return list(found.values())


def _row(hops: Sequence[HopVerdict], by: By) -> Sequence[object]:
    """Return the row of one hop, or of a topic's, with the verdict of the worst, which is the first."""
    first, total = hops[0], sum_lags(hop.last for hop in hops)
    key, why = first.key, [first.reason]
    if first.catch_up.eta_ms is None and first.verdict not in (Verdict.OK, *_NOT_KNOWN):
        why.append(first.catch_up.reason)
    if first.retention is not None and first.at_risk:
        why.append(first.retention.reason)
    alike = sum(hop.verdict is first.verdict for hop in hops)
    is_same = len({hop.reason for hop in hops}) == 1
    of = "" if is_same else f"{alike} of {len(hops)} partitions, such as {key.partition}: "
    left = (hop.retention.left_ms for hop in hops if hop.retention is not None and hop.at_risk)
    return (
        key.flow,
        key.topic if by == "topic" else f"{key.topic}-{key.partition}",
        _hop_name(key),
        badge(first.verdict.label),
        total.offset_lag,
        to_timedelta(total.time_lag_ms),
        # Nothing to catch up is no forecast.
        to_timedelta(combine_known(max, (hop.catch_up.eta_ms for hop in hops)) or None),
        to_timedelta(min((ms for ms in left if ms is not None), default=None)),
        of + "; ".join(why),
    )


class LagPage(Displayable):
    """The lag of positions, from rows of `Lag.rows`: by `topic` the longest waiting first, by `partition` each in its order.

    Of several samples a position shows the newest, and the longest time lag of all.
    """

    __slots__ = ("_by", "rows", "tables")

    def __init__(self, rows: Iterable[Any], *, by: By = "topic", tables: Sequence[TableStatus] = ()) -> None:
        self.tables = tables
        self.rows = sorted(rows, key=lambda row: (*_order(row), row.observed_at))
        self._by = by

    def sheet(self) -> Sheet:
        positions = _group(self.rows, _order)
        if not positions:
            return Sheet(title="lag", facts=(_NO_POSITION,))
        if self._by == "partition":
            parts = [[one] for one in positions]
        else:
            topics = _group(positions, lambda of: (of[0].flow, of[0].topic))
            topics.sort(key=lambda several: min(map(_longest_first, several)))
            parts = [hop for topic in topics for hop in _group(topic, lambda of: _hop_name(of[0]))]
        rows = [self._row(several) for several in parts]
        columns = ["flow", self._by, "hop", "partitions", "position", "end", "offset lag", "time lag", "at most"]
        # What says nothing of these rows is left out: the only flow, or the largest lag of a single sample.
        without = {"flow"} if len({row.flow for row in self.rows}) == 1 else set()
        without |= {"position", "end"} if self._by == "topic" else {"partitions"}
        without |= {"at most"} if len(positions) == len(self.rows) else set()
        shown = [number for number, name in enumerate(columns) if name not in without]
        found = table(
            "",
            [columns[number] for number in shown],
            [[row[number] for number in shown] for row in rows],
            least=("at most", "end", "position", "partitions"),
        )
        notes = [_UNKNOWN_LAG] if any(of[-1].time_lag_ms is None for of in positions) else []
        tables = [tables_table("in_table", self.tables)] if self.tables else []
        return Sheet(title="lag", facts=(plural(len(positions), "position"),), parts=(found, *tables, *notes))

    def _row(self, positions: Sequence[Sequence[Any]]) -> Sequence[object]:
        last = positions[0][-1]
        total = sum_lags(of[-1] for of in positions)
        life = last.topic if last.generation == 1 else f"{last.topic}~{last.generation}"
        longest = max((row.time_lag_ms for of in positions for row in of if row.time_lag_ms is not None), default=None)
        return (
            last.flow,
            last.topic if self._by == "topic" else f"{life}-{last.partition}",
            *(_hop_name(last), len(positions), str(last.position)),
            None if last.end_position is None else str(last.end_position),
            *(total.offset_lag, to_timedelta(total.time_lag_ms), to_timedelta(longest)),
        )


def _longest_first(samples: Sequence[Any]) -> tuple[bool, int, int]:
    """Return the order of positions by their time lags; an unknown one may be longer than any."""
    last = samples[-1]
    return last.time_lag_ms is not None, -(last.time_lag_ms or 0), -(last.offset_lag or 0)
