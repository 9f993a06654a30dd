"""The verdicts on the hops of a mirror by one snapshot, as values that show themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mirrorlake.render import Displayable, Sheet, Table, badge, document, plural
from mirrorlake.status.status import By, Status, grouped, objectives_table, table_of, to_timedelta
from mirrorlake.status.verdict import NEVER, HopKey, LagSample, RetentionRisk, Verdict, combine_known, sum_lags, worst
from mirrorlake.tables import tables_table

_HOPS = ("landed", "republished", "consumed")
_NO_POSITION = "no position is known yet; next: mirrorlake run, and mirrorlake doctor where a cluster does not answer"


def hop_name(key: Any) -> str:
    """Return a hop, or the hop of a row of lag, with its group and where that is."""
    return f"{key.hop} by {key.group_id} on {key.cluster}" if key.group_id else str(key.hop)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopVerdict:
    """The verdict on one hop by its last `samples`, and `since` when it holds, where that is known.

    `eta_ms` is that of `catch_up`; `rates` are offsets a second of the end and of the position, None where they are not known;
    `retention` is None if its topic's retention is unknown.
    """

    key: HopKey
    verdict: Verdict
    reason: str
    last: LagSample
    samples: int
    eta_ms: float | None
    retention: RetentionRisk | None
    rates: tuple[float | None, float | None] = (None, None)
    since: datetime | None = None

    @property
    def at_risk(self) -> bool:
        """Whether retention deletes records before they pass the hop; of a hop `consumed` before the group reads them."""
        return self.retention is not None and self.retention.at_risk

    @property
    def urgency(self) -> tuple[Any, ...]:
        """The place among other hops, the worst first; equal ones along the way of records."""
        key = self.key
        place = key.flow, key.topic, key.generation, key.partition, _HOPS.index(key.hop), key.group_id or ""
        return self.verdict.rank, not self.at_risk, *place, key.cluster

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document; times in milliseconds, lags in offsets."""
        of_retention = ("left_ms", "soonest_ms", "reason")
        return {
            **self.key._asdict(),
            **document(self.last._asdict()),
            "verdict": self.verdict.name,
            "reason": self.reason,
            "samples": self.samples,
            "eta_ms": None if self.eta_ms == NEVER else self.eta_ms,
            "eta_never": self.eta_ms == NEVER,
            "retention_risk": getattr(self.retention, "at_risk", None),
            **{f"retention_{name}": getattr(self.retention, name, None) for name in of_retention},
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
    def flows(self) -> Mapping[str, Verdict]:
        return {one.flow: Verdict[one.verdict] for one in self.status.flows}

    @property
    def groups(self) -> Mapping[str, Verdict]:
        several = grouped(self._hops(of_groups=True), lambda hop: hop.key.group_id or "")
        return {name: worst(hop.verdict for hop in hops) for name, hops in sorted(several.items())}

    def _hops(self, *, of_groups: bool) -> list[HopVerdict]:
        return [hop for hop in self.hops if (hop.key.hop == "consumed") is of_groups]

    @property
    def at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops of the mirror that retention overtakes, the nearest first."""
        found = (hop for hop in self._hops(of_groups=False) if hop.at_risk)
        return tuple(sorted(found, key=lambda hop: (hop.retention and hop.retention.left_ms) or 0))

    @property
    def is_fine(self) -> bool:
        """Whether no flow and no typed table is worse than OK, retention overtakes none, and no objective is missed.

        Samples that cannot tell yet are no finding; a cluster that does not answer is one.
        """
        verdicts = [*self.flows.values(), *(Verdict[one.verdict] for one in self.status.tables)]
        verdicts += [hop.verdict for hop in self._hops(of_groups=False)]
        missed = any(one.met == "missed" for flow in self.status.flows for one in flow.objectives)
        return {*verdicts} <= {Verdict.OK, Verdict.UNKNOWN, Verdict.WARMING_UP} and not self.at_risk and not missed

    def by(self, what: By) -> LagVerdict:
        return replace(self, shown_by=what)

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.name,
            "flows": {name: verdict.name for name, verdict in self.flows.items()},
            "reasons": {one.flow: one.reason for one in self.status.flows},
            "groups": {name: verdict.name for name, verdict in self.groups.items()},
            "objectives": {one.flow: document(one.objectives) for one in self.status.flows if one.objectives},
            "lag": [hop.as_dict() for hop in self.hops],
            "tables": document(self.status.tables),
        }

    def sheet(self) -> Sheet:
        flows, tables = self.status.flows, self.status.tables
        of_mirror, of_groups = self._hops(of_groups=False), self._hops(of_groups=True)
        facts = [f"{name} {verdict.label}" for name, verdict in self.flows.items()]
        if at_risk := {(hop.key.source, hop.key.topic, hop.key.partition) for hop in self.at_risk}:
            facts.append(f"retention overtakes {plural(len(at_risk), 'partition')}")
        missed = {one.flow: [of.name for of in one.objectives if of.met == "missed"] for one in flows}
        facts += [f"{flow} misses its {' and '.join(names)}" for flow, names in missed.items() if names]
        parts: tuple[str | Table, ...] = (
            *(f"{one.flow}: {one.reason}" for one in flows),
            *objectives_table(flows),
            *([] if self.hops else [_NO_POSITION]),
            *([self._table("", of_mirror)] if of_mirror else []),
            *([tables_table("in_table", tables)] if tables else []),
            *([self._table("groups, which change no verdict of a flow", of_groups)] if of_groups else []),
        )
        return Sheet(title="lag", badge=badge(self.verdict.label), facts=tuple(facts), parts=parts)

    def _table(self, title: str, hops: Sequence[HopVerdict]) -> Table:
        if self.shown_by == "partition":
            parts = [[hop] for hop in hops]
        else:
            parts = [*grouped(hops, lambda hop: (hop.key.flow, hop.key.topic, hop_name(hop.key))).values()]
        rows = [_verdict_row(several, self.shown_by) for several in parts]
        # The only flow is in the title.
        without = {"flow"} if len(self.flows) == 1 else set()
        without |= {"position", "end"} if self.shown_by == "topic" else set()
        without |= {name for name in ("catches up in", "deleted in") if all(row[name] is None for row in rows)}
        least = ("position", "end", "deleted in", "catches up in")
        return table_of(title, rows, without=without, least=least)


def longest_eta(hops: Iterable[HopVerdict]) -> float | None:
    """Return when the last of several hops catches up; `NEVER` where one never does, None where it is not known of another."""
    found = [hop.eta_ms for hop in hops]
    return NEVER if NEVER in found else combine_known(max, found)


def _verdict_row(hops: Sequence[HopVerdict], by: By) -> dict[str, object]:
    """Return the row of one hop, or of a topic's, with the verdict of the worst, which is the first."""
    first, total = hops[0], sum_lags(hop.last for hop in hops)
    key, why = first.key, [first.reason]
    if first.retention is not None and first.at_risk:
        why.append(first.retention.reason)
    alike = sum(hop.verdict is first.verdict for hop in hops)
    is_same = len({hop.reason for hop in hops}) == 1
    of = "" if is_same else f"{alike} of {len(hops)} partitions, such as {key.partition}: "
    eta_ms = longest_eta(hops)
    left = (hop.retention.left_ms for hop in hops if hop.retention is not None and hop.at_risk)
    return {
        "flow": key.flow,
        by: key.topic if by == "topic" else f"{key.topic}-{key.partition}",
        "hop": hop_name(key),
        "verdict": badge(first.verdict.label),
        "position": str(first.last.position),
        "end": None if first.last.end_position is None else str(first.last.end_position),
        "offset lag": total.offset_lag,
        "time lag": to_timedelta(total.time_lag_ms),
        # Nothing to catch up is no forecast.
        "catches up in": "never" if eta_ms == NEVER else to_timedelta(eta_ms or None),
        "deleted in": to_timedelta(min((ms for ms in left if ms is not None), default=None)),
        "why": of + "; ".join(why),
    }
