"""Displayable records, and the passport of a record: its copies everywhere, or why one is absent (law E)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.late_times import moment_of
from mirrorlake.render import (
    JsonDisplayable,
    LinkedText,
    Mood,
    Sheet,
    StepTime,
    badge,
    by_fields,
    document,
    headers,
    link,
    payload,
    plural,
    table,
)

Status = Literal[
    "republished",
    "filtered",
    "quarantined",
    "not_yet",
    "not_carried",
    "not_landed",
    "in_a_deleted_topic",
    "left_the_relay",
    "unexplained",
]

WHY_MISSING = {
    "transactional": "a transaction's marker, or a record of an aborted transaction",
    "compacted": "the source's log cleaner had removed it before it was landed",
    "expired": "the source's retention had removed it before it was landed",
    "recreated": "the topic was deleted before it was landed",
    "truncated": "the source's log went back; what it holds there now is of a later generation",
    "erased": "what the relay held there was erased on request",
    "expired_from_relay": "what the relay held there left it by its retention",
    "not_landed": "not landed yet",
    "removed": "the cluster's retention has removed it",
    "absent": "a transaction's marker, an aborted record, or one that the log cleaner removed",
    "unexplained": "nobody has accounted for it yet; mirrorlake verify tells more",
}
"""Why an offset has no record, in words, by kind: the kinds of the table `gaps`, and others seen on a cluster or in the relay."""


_MOODS: dict[str, Mood] = {
    "republished": "good",
    "filtered": "note",
    "not_yet": "note",
    "not_landed": "note",
    "quarantined": "warn",
    "in_a_deleted_topic": "warn",
    "unexplained": "bad",
    "not_carried": "off",
    "left_the_relay": "note",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowsedRecord:
    """One record of a cluster or the relay.

    `timestamp_ms` and `landed_at_ms` are milliseconds since 1970 UTC, -1 without a timestamp. `generation` and `landed_at_ms`
    are None on a cluster.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    generation: int | None = None
    landed_at_ms: int | None = None

    @property
    def time(self) -> datetime | None:
        """The record's timestamp, or None."""
        return None if self.timestamp_ms < 0 else moment_of(self.timestamp_ms)

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return sum(len(part or b"") for part in (self.key, self.value, *(value for _, value in self.headers)))

    @property
    def content(self) -> tuple[Any, ...]:
        """The content that law C requires equal on every side."""
        return self.key, self.value, self.headers, self.timestamp_ms

    def __str__(self) -> str:
        time = "–" if self.time is None else self.time.strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{self.topic}-{self.partition}@{self.offset}  {time}  {payload(self.key, 40)}  {payload(self.value)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the record as `--json` prints it."""
        headers = [{"key": key, "value": document(value)} for key, value in self.headers]
        return by_fields(self) | {"headers": headers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Offsets `first..last` of a page without a record, and why (law E); `kind` is a key of `WHY_MISSING`."""

    first: int
    last: int
    kind: str
    json_include: ClassVar[tuple[str, ...]] = ("why",)

    @property
    def why(self) -> str:
        return WHY_MISSING[self.kind]

    def __str__(self) -> str:
        which = f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"
        return f"{which}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedIn:
    """The relay file of a record, and when its batch landed (milliseconds since 1970 UTC)."""

    file: str
    landed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a record in one flow.

    `status`: `republished` (exact target coordinates), `filtered` or `quarantined` (by `rule`, for `reason`), `not_yet`,
    `not_carried` (the flow does not carry the record), `not_landed`, `in_a_deleted_topic` (sent to an earlier incarnation of
    the remote topic), `left_the_relay` (erased or expired there before the flow sent it), `unexplained` (law E is broken, or
    republishing began after the record). `lane` and `ledger_seq` name the flow's ledger record of this outcome,
    `committed_at_ms` is the time of its transaction. `redriven` is True if the flow's redrive sent it.
    """

    flow: str
    target: str
    status: Status
    words: str
    place: TopicPartition | None = None
    offset: int | None = None
    lane: int | None = None
    ledger_seq: int | None = None
    committed_at_ms: int | None = None
    rule: str | None = None
    rule_version: str | None = None
    reason: str | None = None
    redriven: bool = False

    def __str__(self) -> str:
        ledger = "" if self.ledger_seq is None else f" [lane {self.lane}, ledger record {self.ledger_seq}]"
        return f"{self.flow}: {self.words}{ledger}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a record of a remote topic: the flow that wrote it, and its upstream coordinates."""

    flow: str
    cluster: str
    source: SourcePartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Passport(JsonDisplayable):
    """One record from its source through the relay to every target; `words` is a summary in a sentence.

    `cluster`, `source` and `offset` are its upstream coordinates; without a known source, `cluster` is the requested one and
    `source` None. `record` and `landed` are its copy in the relay, `missing` is the reason if there is none (law E). `outcomes`
    has its outcome in each flow. `came_from` has its earlier coordinates if a flow wrote it to the source.
    """

    cluster: str
    source: SourcePartition | None
    offset: int
    words: str
    record: BrowsedRecord | None = None
    landed: LandedIn | None = None
    missing: Missing | None = None
    outcomes: tuple[Outcome, ...] = ()
    came_from: tuple[Origin, ...] = ()
    json_include: ClassVar[tuple[str, ...]] = ("accounted_for",)
    json_exclude: ClassVar[tuple[str, ...]] = ("offset",)

    def sheet(self) -> Sheet:
        """Return the record, its file, its origin, and its outcome in each flow."""
        parts: list[Any] = [
            f"came from {one.cluster} {one.source}@{one.offset} by {one.flow}" for one in self.came_from
        ]
        landed_at = None if self.landed is None else moment_of(self.landed.landed_at_ms)
        if self.record is not None and self.landed is not None:
            r = self.record
            facts = [
                ("timestamp", StepTime(r.time)),
                ("landed at", StepTime(landed_at, r.time)),
                ("generation", str(r.generation)),
                ("file", self.landed.file),
                ("key", _bytes(r.key)),
                ("value", _bytes(r.value)),
                ("headers", headers(r.headers)),
            ]
            parts.append(table("in the relay", ["", ""], facts))
        rows = [
            (
                one.flow,
                badge(one.status, _MOODS[one.status]),
                LinkedText(one.words, link("topic", one.target, one.place.topic))
                if one.status == "republished" and one.place is not None
                else one.words,
                _text(one.lane),
                _text(one.ledger_seq),
                None if one.committed_at_ms is None else StepTime(moment_of(one.committed_at_ms), landed_at),
            )
            for one in self.outcomes
        ]
        if rows:
            columns = ["flow", "outcome", "where or why", "lane", "ledger record", "committed at"]
            parts.append(table("flows", columns, rows, least=("ledger record", "lane")))
        said = badge("accounted for", "good") if self.accounted_for else badge("not accounted for", "bad")
        return Sheet(title=self.words, badge=said, parts=tuple(parts))

    @property
    def accounted_for(self) -> bool:
        """Whether law E is satisfied: landed or explained, and republished or explained in every flow."""
        known = self.landed is not None or (self.missing is not None and self.missing.kind != "unexplained")
        return known and all(outcome.status != "unexplained" for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """Return the passport as `--json` prints it."""
        source = None if self.source is None else {**asdict(self.source), "offset": self.offset}
        return by_fields(self) | {"source": source}


def _bytes(data: bytes | None) -> Any:
    # A None cell is a dash, but a null payload is shown as a word.
    return payload(None) if data is None else data


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def in_words(
    cluster: str, source: SourcePartition, offset: int, missing: Missing | None, outcomes: Sequence[Outcome]
) -> str:
    """Return law E for one offset as a sentence: landed or why not, and its outcomes."""
    where = f"{cluster} {source}@{offset}"
    counts = Counter(outcome.status for outcome in outcomes)
    sent = f"republished by {plural(counts['republished'], 'flow')}" if counts["republished"] else ""
    if missing is not None:
        return f"{where} is not in the relay: {WHY_MISSING[missing.kind]}{sent and f'; {sent}'}"
    explained = counts["filtered"] + counts["quarantined"] + counts["not_yet"] + counts["in_a_deleted_topic"]
    parts = [sent] if sent else []
    parts += [f"explained in {explained}"] if explained else []
    parts += [f"NOT accounted for in {counts['unexplained']}"] if counts["unexplained"] else []
    return f"{where} is in the relay; {', '.join(parts) or 'no flow carries it'}"
