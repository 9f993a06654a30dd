"""Judge: the newest samples of each hop out of the frame of lag, and what they mean by the rules of `lag/verdict.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from mirrorlake.errors import MirrorlakeError
from mirrorlake.lag.forecast import CatchUp, Earliest, RetentionRisk, catch_up, no_older_than, retention_risk
from mirrorlake.lag.verdict import HOPS, WINDOW_SAMPLES, Judgement, Sample, Verdict, completeness, judge, worst
from mirrorlake.lake.times import from_micros
from mirrorlake.model.control import ControlState
from mirrorlake.render import Shown, badge, table
from mirrorlake.render.table import Sheet

log = logging.getLogger(__name__)

# A rate of deletion needs a few deleted segments; older ones describe other times.
MOST_CHANGES = 20

_PLACE = ("flow", "source", "topic", "generation", "partition", "hop", "group_id", "cluster")


_Partition = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HopPlace:
    """One hop of one source partition: `group_id` where it is consumed, `cluster` where the position is held."""

    flow: str
    source: str
    topic: str
    generation: int
    partition: int
    hop: str
    group_id: str | None = None
    cluster: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} {self.hop}{f' by {self.group_id}' if self.group_id else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HopVerdict:
    """The verdict on one hop; `retention` is None where it is not known how long its topic is kept."""

    place: HopPlace
    judgement: Judgement
    catch_up: CatchUp
    retention: RetentionRisk | None

    @property
    def verdict(self) -> Verdict:
        """The verdict by rule."""
        return self.judgement.verdict

    @property
    def at_risk(self) -> bool:
        """Whether retention deletes first what has not passed."""
        return self.retention is not None and self.retention.at_risk

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document; times in milliseconds, lags in offsets."""
        place, found, risk = self.place, self.judgement, self.retention
        return {
            **{name: getattr(place, name) for name in _PLACE},
            "verdict": found.verdict.name,
            "reason": found.reason,
            "position": found.position,
            "end_position": found.end_position,
            "offset_lag": found.offset_lag,
            "time_lag_ms": found.time_lag_ms,
            "observed_at": None if found.observed_at is None else found.observed_at.isoformat(),
            "samples": found.samples,
            "eta_ms": self.catch_up.eta_ms,
            "eta_reason": self.catch_up.reason,
            "retention_risk": None if risk is None else risk.at_risk,
            "retention_left_ms": None if risk is None else risk.left_ms,
            "retention_reason": None if risk is None else risk.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LagVerdict(Shown):
    """The verdicts of a mirror or of one flow; the worst counts.

    Example:
        >>> LagVerdict(hops=()).verdict.name
        'UNKNOWN'
    """

    hops: tuple[HopVerdict, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all hops."""
        return worst(hop.judgement for hop in self.hops)

    @property
    def complete(self) -> float:
        """The share of hops of which something is known, 0 to 1."""
        return completeness([hop.judgement for hop in self.hops])

    @property
    def flows(self) -> Mapping[str, Verdict]:
        """The worst verdict of each flow."""
        names = sorted({hop.place.flow for hop in self.hops})
        return {name: worst(hop.judgement for hop in self.hops if hop.place.flow == name) for name in names}

    @property
    def at_risk(self) -> tuple[HopVerdict, ...]:
        """The hops that retention overtakes, the nearest first."""
        found = [hop for hop in self.hops if hop.at_risk]
        return tuple(sorted(found, key=lambda hop: (hop.retention and hop.retention.left_ms) or 0))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "verdict": self.verdict.name,
            "complete": self.complete,
            "flows": {name: verdict.name for name, verdict in self.flows.items()},
            "hops": [hop.as_dict() for hop in self.hops],
        }

    def sheet(self) -> Sheet:
        """Return the worst first."""
        if not self.hops:
            return Sheet(title="lag", badge=badge("UNKNOWN"), facts=("nothing was sampled yet",))
        facts = [f"{name} {verdict.name}" for name, verdict in self.flows.items()]
        if self.complete < 1:
            facts.append(f"{self.complete:.0%} of {len(self.hops)} hops are known")
        if self.at_risk:
            facts.append(f"retention overtakes {len(self.at_risk)}")
        columns = [
            "flow",
            "partition",
            "hop",
            "verdict",
            "offset lag",
            "time lag",
            "catches up in",
            "deleted in",
            "why",
        ]
        return Sheet(
            title="lag",
            badge=badge(self.verdict.name),
            facts=tuple(facts),
            parts=(table("", columns, [_row(hop) for hop in self.hops]),),
        )


def _row(hop: HopVerdict) -> Sequence[object]:
    place, found, risk = hop.place, hop.judgement, hop.retention
    why = [found.reason]
    if hop.catch_up.eta_ms is None and found.verdict > Verdict.OK:
        why.append(hop.catch_up.reason)
    if risk is not None and risk.at_risk:
        why.append(risk.reason)
    return (
        place.flow,
        f"{place.topic}-{place.partition}",
        f"{place.hop} by {place.group_id}" if place.group_id else place.hop,
        badge(found.verdict.name),
        found.offset_lag,
        _span(found.time_lag_ms),
        _span(hop.catch_up.eta_ms),
        _span(risk.left_ms if risk is not None and risk.at_risk else None),
        "; ".join(why),
    )


def _span(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


Kept = Callable[[HopPlace], int | None]
"""Return `retention.ms` of the topic that a hop reads from, None where age deletes nothing there; may fail."""


def judge_lag(
    frame: DataFrame, *, now: datetime, kept: Kept | None = None, positions: DataFrame | None = None
) -> LagVerdict:
    """Judge each hop by its newest samples, worst first; runs an action on the frame.

    Only the newest life of a topic is judged: the positions of an older one end where it was deleted.

    Args:
        frame: lag as `lag/sql.py` computes it.
        now: the present.
        kept: says how long the topic is kept that a hop reads from; asked for hops that are behind only.
        positions: the table of positions, for the earliest offsets of the sources.
    """
    windows = read_windows(frame)
    behind = {place for place, window in windows.items() if window[-1].waiting != 0}
    if positions is None or not behind:
        return judge_windows(windows, now=now, kept=kept)
    earliest, passed = _earliest(positions, behind), _last_landed(positions, behind)
    bounded = {
        place: no_older_than(window, passed.get(_partition(place))) if place.hop == "landed" else window
        for place, window in windows.items()
    }
    return judge_windows(bounded, now=now, kept=kept, earliest=earliest)


def judge_windows(
    windows: Mapping[HopPlace, Sequence[Sample]],
    *,
    now: datetime,
    kept: Kept | None = None,
    earliest: Mapping[_Partition, Sequence[Earliest]] | None = None,
) -> LagVerdict:
    """Judge each hop by a window that is already at hand, worst first.

    Args:
        windows: samples by hop, oldest first.
        now: the present.
        kept: as in `judge_lag`.
        earliest: the first offsets that sources held, by alias, topic, generation and partition.
    """
    hops = []
    for place, window in windows.items():
        held: Sequence[Earliest] = ()
        if place.hop == "landed" or place.cluster == place.source:
            held = (earliest or {}).get(_partition(place), ())
        if held and window[-1].observed_at > held[-1].observed_at:
            # Only changes are written down: it stood there until the last look.
            held = (*held, Earliest(observed_at=window[-1].observed_at, offset=held[-1].offset))
        hops.append(
            HopVerdict(
                place=place,
                judgement=judge(window, now=now),
                catch_up=catch_up(window),
                retention=_risk(place, window, now, kept, held),
            )
        )
    return LagVerdict(hops=tuple(sorted(hops, key=_worst_first)))


def name_pauses(found: LagVerdict, state: ControlState, targets: Mapping[str, str]) -> LagVerdict:
    """Return the verdicts, of which those worse than OK say whose pause holds them; records wait all the same.

    Args:
        found: verdicts.
        state: what is paused.
        targets: the target of each flow.
    """

    def named(hop: HopVerdict) -> HopVerdict:
        place, pause = hop.place, None
        if hop.verdict > Verdict.OK and place.hop == "landed":
            pause = state.of_cluster(place.source)
        elif hop.verdict > Verdict.OK and place.hop == "republished":
            target = targets.get(place.flow, "")
            pause = state.of_stream(place.flow, target) or state.topics_of(place.flow).get(place.topic)
        if pause is None:
            return hop
        return replace(hop, judgement=replace(hop.judgement, reason=f"{pause}; {hop.judgement.reason}"))

    return LagVerdict(hops=tuple(map(named, found.hops)))


def _worst_first(hop: HopVerdict) -> tuple[Any, ...]:
    place, order = hop.place, HOPS.index(hop.place.hop) if hop.place.hop in HOPS else len(HOPS)
    return (-hop.verdict, not hop.at_risk, place.flow, place.topic, place.partition, order, place.group_id or "")


def _risk(
    place: HopPlace, window: Sequence[Sample], now: datetime, kept: Kept | None, held: Sequence[Earliest]
) -> RetentionRisk | None:
    retention_ms = None
    if window[-1].waiting != 0:
        try:
            retention_ms = kept(place) if kept is not None else None
        except MirrorlakeError as error:
            # A verdict is wanted most when a cluster is away.
            log.info("lag.retention_not_known what=%s why=%s", place, error.cause)
            return None
    return retention_risk(window, now=now, retention_ms=retention_ms, earliest=held)


def read_windows(frame: DataFrame, *, samples: int = WINDOW_SAMPLES) -> dict[HopPlace, list[Sample]]:
    """Return the newest samples of each hop of each topic's newest life, oldest first; one action."""
    if "cluster" not in frame.columns:
        frame = frame.withColumn("cluster", F.lit(None).cast("string"))
    newest = Window.partitionBy(*_PLACE).orderBy(F.desc("observed_at"))
    rows = (
        frame.withColumn("life", F.max("generation").over(Window.partitionBy("flow", "topic")))
        .where("generation = life")
        .withColumn("rank", F.row_number().over(newest))
        .where(F.col("rank") <= samples)
        .select(
            *_PLACE,
            F.unix_micros("observed_at").alias("seen"),
            "position",
            "end_position",
            "offset_lag",
            F.unix_micros("waiting_since").alias("waiting"),
            "time_lag_ms",
        )
        .orderBy("observed_at")
        .collect()
    )
    windows: dict[HopPlace, list[Sample]] = {}
    for row in rows:
        place = HopPlace(**{name: row[name] for name in _PLACE})
        windows.setdefault(place, []).append(
            Sample(
                observed_at=from_micros(row.seen),
                position=row.position,
                end_position=row.end_position,
                offset_lag=row.offset_lag,
                waiting_since=None if row.waiting is None else from_micros(row.waiting),
                time_lag_ms=row.time_lag_ms,
            )
        )
    return windows


def _partition(place: HopPlace) -> _Partition:
    return place.source, place.topic, place.generation, place.partition


def _last_landed(positions: DataFrame, places: Iterable[HopPlace]) -> dict[_Partition, datetime]:
    """Return the timestamp of the last landed record of each partition."""
    topics = sorted({place.topic for place in places if place.hop == "landed"})
    newest = F.max_by("record_timestamp", "position")
    rows = (
        positions.where(
            (F.col("kind") == "landed") & F.col("topic").isin(topics) & F.col("record_timestamp").isNotNull()
        )
        .groupBy("source", "topic", "generation", "partition")
        .agg(F.unix_micros(newest).alias("at"))
        .collect()
    )
    return {(row.source, row.topic, row.generation, row.partition): from_micros(row["at"]) for row in rows}


def _earliest(positions: DataFrame, places: Iterable[HopPlace]) -> dict[_Partition, list[Earliest]]:
    topics = sorted({place.topic for place in places})
    key = ("source", "topic", "generation", "partition")
    newest = Window.partitionBy(*key).orderBy(F.desc("observed_at"))
    rows = (
        positions.where((F.col("kind") == "earliest") & F.col("topic").isin(topics) & F.col("position").isNotNull())
        .withColumn("rank", F.row_number().over(newest))
        .where(F.col("rank") <= MOST_CHANGES)
        .select(*key, "position", F.unix_micros("observed_at").alias("seen"))
        .orderBy("observed_at")
        .collect()
    )
    found: dict[_Partition, list[Earliest]] = {}
    for row in rows:
        one = Earliest(observed_at=from_micros(row.seen), offset=row.position)
        found.setdefault((row.source, row.topic, row.generation, row.partition), []).append(one)
    return found
