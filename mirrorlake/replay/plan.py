"""Displayable plans and results of replays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar

from mirrorlake.model.plan import Change, Plan
from mirrorlake.model.replay import Definition
from mirrorlake.procedure import Refusal
from mirrorlake.render import JsonDisplayable, Sheet, badge, by_fields, document, plural, table


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReplayPlan(JsonDisplayable):
    """The records, changes and refusals of a replay; shown first, then run (law G).

    A `state` of begun continues, and of done sends nothing.
    """

    definition: Definition
    state: str = "new"
    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    done_at: datetime | None = None
    json_exclude: ClassVar[tuple[str, ...]] = ("definition",)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def records(self) -> int:
        """The number of relay records in the range, before predicates and rules."""
        return self.definition.records

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as `--json` prints it."""
        known = self.definition
        found: dict[str, Any] = document(
            {
                "name": self.name,
                "source": known.source,
                "target": known.target,
                "into": known.into,
                "records": self.records,
                "oldest": known.oldest,
                "newest": known.newest,
                **by_fields(self),
                "partitions": known.spans,
                "predicates": [text for _, text in known.predicates],
                "through": known.through,
            }
        )
        return found

    def sheet(self) -> Sheet:
        known = self.definition
        what = {
            "done": badge("done", "good"),
            "begun": badge("begun: it goes on", "note"),
            "new": badge("to send", "note"),
        }[self.state]
        columns = ["topic", "generation", "partition", "from offset", "to offset", "records", "oldest", "newest"]
        rows = [
            (
                s.topic,
                str(s.generation),
                str(s.partition),
                str(s.first),
                str(s.end),
                s.records,
                *map(_at, (s.oldest_ms, s.newest_ms)),
            )
            for s in known.spans
        ]
        times: tuple[str, ...] = ()
        if known.oldest is not None and known.newest is not None:
            times = (f"timestamps on the target from {_utc(known.oldest)} to {_utc(known.newest)}",)
        return Sheet(
            title=f"{self.name}: {known.source} -> {known.target}",
            badge=badge("refused", "bad") if self.refusals else what,
            facts=(f"{plural(self.records, 'record')} in the range",),
            parts=(
                *(f"refused: {one.why}. Next: {_next(one)}" for one in self.refusals),
                table("", columns, rows),
                *times,
                *(f"only where {text}" for _, text in known.predicates),
                *([f"through the rules of {known.through}"] if known.through else []),
                *([Plan(self.changes).sheet()] if self.changes else []),
                *(f"note: {note}" for note in self.notes),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReplayResult(JsonDisplayable):
    """The record counts of a replay.

    `sent` is by this call, `total` over all calls. `records` are those of the range in the relay. `unjudged` are filtered records that
    a predicate could not judge. `gone` are records of the range that left the relay after it was planned, before they were sent.
    """

    name: str
    sent: int
    records: int
    total: int = 0
    filtered: int = 0
    unjudged: int = 0
    quarantined: int = 0
    gone: int = 0
    done: bool = True
    took_s: float = 0.0
    json_include: ClassVar[tuple[str, ...]] = ("missing",)

    @property
    def missing(self) -> int:
        """The number of records of the range that are neither sent, nor withheld, nor gone from the relay (law E)."""
        return max(0, self.records - self.total - self.filtered - self.quarantined - self.gone) if self.done else 0

    def sheet(self) -> Sheet:
        word = badge("done", "good") if self.done else badge("stopped; the same command goes on", "warn")
        return Sheet(
            title=self.name,
            badge=badge(f"{plural(self.missing, 'record')} missing", "bad") if self.missing else word,
            facts=(
                f"{plural(self.sent, 'record')} sent now",
                f"{plural(self.total, 'record')} of {self.records:,} in all",
                f"{plural(self.filtered, 'record')} kept back" if self.filtered else None,
                f"{plural(self.unjudged, 'record')} of these could not be judged" if self.unjudged else None,
                f"{plural(self.quarantined, 'record')} quarantined" if self.quarantined else None,
                f"up to {plural(self.gone, 'record')} had left the relay" if self.gone else None,
            ),
        )


def _next(refusal: Refusal) -> str:
    return f"{refusal.remedy}; {refusal.flag} does it all the same" if refusal.flag else refusal.remedy


def _at(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, tz=timezone.utc)


def _utc(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
