"""The verdicts on the hops of a mirror, and the resulting verdict of each flow and group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mirrorlake.lag.forecast import CatchUp, RetentionRisk
from mirrorlake.lag.objectives import FlowObjectives, objectives_table
from mirrorlake.lag.partition_status import to_timedelta
from mirrorlake.lag.status import By, Status
from mirrorlake.lag.time_lag import LagSample, combine_known, sum_lags
from mirrorlake.lag.verdict import SEVERITY, Verdict, worst_hop_verdict
from mirrorlake.render import Displayable, Sheet, Table, badge, by_fields, plural, table
from mirrorlake.tables import TableStatus, tables_table

HOPS = ("landed", "republished", "consumed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HopKey:
    """One hop of one source partition; `group_id` of the hop `consumed`, and `cluster` that holds the position."""

    flow: str
    source: str
    topic: str
    generation: int
    partition: int
    hop: str
    group_id: str | None = None
    cluster: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} {describe_hop(self.hop, self.group_id)}"


def describe_hop(hop: str, group: str | None, cluster: str | None = None) -> str:
    return f"{hop} by {group}{f' on {cluster}' if cluster else ''}" if group else hop


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
            **asdict(self.key),
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

    `status` is the look that flows are judged by; without it, by the samples of their own hops. Groups have verdicts of their own
    (`groups`, `groups_at_risk`) and count for nothing else: consumers read when they like.
    """

    hops: tuple[HopVerdict, ...]
    objectives: tuple[FlowObjectives, ...] = ()
    status: Status | None = None
    shown_by: By = "topic"

    @property
    def verdict(self) -> Verdict:
        return worst_hop_verdict(self.flows.values())

    @property
    def complete(self) -> float:
        """The share of hops with a known verdict, 0 to 1; 1 without hops (Burrow's `complete`)."""
        known = sum(hop.verdict not in _NOT_KNOWN for hop in self.hops)
        return known / len(self.hops) if self.hops else 1.0

    @property
    def flows(self) -> Mapping[str, Verdict]:
        """The verdict of each flow: that of its status, or the worst of its own hops."""
        if self.status is not None:
            return {one.flow: Verdict[one.verdict] for one in self.status.flows}
        found: dict[str, set[Verdict]] = {}
        for hop in self.hops:
            own = found.setdefault(hop.key.flow, set())
            if hop.key.hop != "consumed":
                own.add(hop.verdict)
        return {name: worst_hop_verdict(found[name]) for name in sorted(found)}

    @property
    def reasons(self) -> Mapping[str, str]:
        """The reason of each flow's verdict; empty without a status."""
        return {} if self.status is None else {one.flow: one.reason for one in self.status.flows}

    @property
    def tables(self) -> tuple[TableStatus, ...]:
        """The typed tables, whose hop is `in_table`; none without a status of all flows."""
        return () if self.status is None else self.status.tables

    @property
    def groups(self) -> Mapping[str, Verdict]:
        found: dict[str, set[Verdict]] = {}
        for hop in self.hops:
            if hop.key.hop == "consumed":
                found.setdefault(hop.key.group_id or "", set()).add(hop.verdict)
        return {name: worst_hop_verdict(found[name]) for name in sorted(found)}

    @property
    def at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops of the mirror that retention overtakes, the nearest first."""
        return _nearest_first(hop for hop in self.hops if hop.at_risk and hop.key.hop != "consumed")

    @property
    def groups_at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops `consumed` of groups that retention overtakes, the nearest first."""
        return _nearest_first(hop for hop in self.hops if hop.at_risk and hop.key.hop == "consumed")

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
        if self.status is not None:
            return {one.flow: one.time_lag_ms for one in self.status.flows}
        return {
            flow: sum_lags(hop.last for hop in hops).time_lag_ms
            for flow, hops in sorted(self.by_flow("republished").items())
        }

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
        if not self.hops and self.status is None:
            return Sheet(title="lag", badge=badge("UNKNOWN"), facts=("nothing was sampled yet",))
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


def _nearest_first(hops: Iterable[HopVerdict]) -> tuple[HopVerdict, ...]:
    return tuple(sorted(hops, key=lambda hop: (hop.retention and hop.retention.left_ms) or 0))


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


_NOT_KNOWN = (Verdict.UNKNOWN, Verdict.WARMING_UP, Verdict.CLUSTER_AWAY)
_COLUMNS = ["verdict", "offset lag", "time lag", "catches up in", "deleted in", "why"]


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
