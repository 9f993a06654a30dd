"""List the rules of a flow, note their pitfalls, and try them on records of the relay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa

from mirrorlake.config.schema import HIDING, FlowConfig, RuleConfig
from mirrorlake.errors import UsageError
from mirrorlake.lake import COLUMNS, Audit, Lake
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import Change, Note
from mirrorlake.model.withheld import FILTERED, QUARANTINED
from mirrorlake.render import Displayable, Sheet, format_count, plural, table
from mirrorlake.rules import View


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleShown:
    """`does` is the rule in a line, `definition` in full without secrets; `version` is its fingerprint."""

    rule: str
    version: str
    topics: tuple[str, ...]
    does: str
    on_error: str
    definition: dict[str, Any]


class RulesShown(Displayable, list[RuleShown]):
    """The rules of a flow in the order in which they apply: a list of `RuleShown` that shows itself."""

    def sheet(self) -> Sheet:
        """Return a row a rule."""
        columns = ["rule", "version", "topics", "does", "on error"]
        return Sheet(
            title="rules", facts=(plural(len(self), "rule"),), parts=(table("", columns, self),) if self else ()
        )


def list_rules(flow: FlowConfig) -> RulesShown:
    """List the rules of a flow in the order in which they apply."""
    return RulesShown(
        RuleShown(
            rule=rule.name,
            version=rule.version,
            topics=rule.topics.expressions,
            does=str(rule),
            on_error=rule.on_error,
            definition=rule.definition,
        )
        for rule in flow.rules
    )


def rule_changes(flow: FlowConfig, audit: Audit) -> list[Change]:
    """Return definitions of the rules that `audit` lacks: they explain withheld records years later."""
    if not flow.rules:
        return []
    known = {(entry.flow, entry.object, entry.after["version"]) for entry in audit.entries("lake", "rule")}
    return [
        Change(
            where="lake",
            kind="rule",
            name=rule.name,
            action="define",
            after={"version": rule.version, "definition": rule.definition},
            reason="new or changed",
            flow=flow.name,
        )
        for rule in flow.rules
        if (flow.name, rule.name, rule.version) not in known
    ]


def rule_notes(flow: FlowConfig, topics: Iterable[str]) -> list[Note]:
    """Return notes on rules that match none of the given source topics or let values pass unread."""
    topics = list(topics)
    return [
        Note(where=flow.name, kind="rule", name=rule.name, reason=reason)
        for rule in flow.rules
        for reason in _reasons(rule, topics)
    ]


def _reasons(rule: RuleConfig, topics: list[str]) -> Iterable[str]:
    if topics and not rule.matcher.select(topics):
        yield f"no topic of the flow matches {', '.join(rule.topics.expressions)}, so it does nothing"
    if rule.action in HIDING:
        yield "values that a schema registry framed pass with all their fields"
    if rule.action in HIDING and rule.on_error == "pass":
        yield "values that are not JSON pass as they are; set on_error to quarantine or drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReason:
    kind: str
    rule: str
    version: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RuleTrial(Displayable):
    """The effect of a flow's rules on the newest records of a topic.

    Of the `records`, `sent` would be sent, and `changed` of these with other content.
    """

    flow: str
    topic: str
    view: str | None
    records: int
    sent: int
    changed: int
    filtered: int
    quarantined: int
    reasons: tuple[TrialReason, ...]

    def sheet(self) -> Sheet:
        """Return how many records would be sent, changed and withheld, and why."""
        columns = ["kind", "rule", "version", "reason", "records"]
        return Sheet(
            title=f"rules of {self.flow} on the newest {plural(self.records, 'record')} of {self.topic}",
            facts=(
                f"{format_count(self.sent)} sent ({format_count(self.changed)} changed)",
                f"{format_count(self.filtered)} filtered",
                f"{format_count(self.quarantined)} quarantined",
            ),
            parts=(table("", columns, self.reasons),) if self.reasons else (),
        )


def try_rules(lake: Lake, flow: FlowConfig, view: View | None, *, topic: str, newest: int) -> RuleTrial:
    """Try a flow's view (None without one) on the newest records of a source topic; change nothing."""
    if not flow.carries(topic):
        raise UsageError(f"{flow.name} does not carry the topic '{topic}'", remedy="name a source topic of the flow")
    records = sent = changed = 0
    held: Counter[tuple[str, str, str, str]] = Counter()
    for source, batch in _newest(lake, flow, topic, newest):
        records += len(batch)
        if view is None:
            sent += len(batch)
            continue
        viewed = view(source, batch)
        sent += len(viewed.records)
        known = {row["offset"]: row for row in batch.to_pylist()}
        changed += sum(known[row["offset"]] != row for row in viewed.records.to_pylist())
        for one in viewed.withheld:
            held[one.kind, one.rule, one.version, one.reason] += one.ranges.count
    reasons = tuple(
        TrialReason(kind=kind, rule=rule, version=version, reason=reason, records=count)
        for (kind, rule, version, reason), count in sorted(held.items())
    )
    return RuleTrial(
        flow=flow.name,
        topic=topic,
        view=None if view is None else view.version,
        records=records,
        sent=sent,
        changed=changed,
        filtered=sum(one.records for one in reasons if one.kind == FILTERED),
        quarantined=sum(one.records for one in reasons if one.kind == QUARANTINED),
        reasons=reasons,
    )


def _newest(lake: Lake, flow: FlowConfig, topic: str, newest: int) -> Iterable[tuple[SourcePartition, pa.RecordBatch]]:
    from pyspark.sql import functions as F

    relay = lake.relay(flow.source).where(F.col("topic") == topic)
    ends = relay.groupBy("generation", "partition").agg(F.max("offset").alias("end")).collect()
    if not ends:
        return
    # File statistics answer these conditions: only the newest files are read.
    late = [
        (F.col("generation") == row.generation)
        & (F.col("partition") == row.partition)
        & (F.col("offset") > row.end - newest)
        for row in ends
    ]
    rows = (
        relay.where(reduce(or_, late))
        .orderBy(F.desc("timestamp"), F.desc("offset"))
        .limit(newest)
        .orderBy("generation", "partition", "offset")
        .select("generation", "partition", *COLUMNS)
        .toArrow()
    )
    lives = zip(rows.column("generation").to_pylist(), rows.column("partition").to_pylist(), strict=True)
    start = 0
    for (generation, partition), length in Counter(lives).items():
        part = rows.slice(start, length).select(list(COLUMNS)).combine_chunks()
        start += length
        yield SourcePartition(topic, generation, partition), part.to_batches()[0]
