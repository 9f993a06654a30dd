"""Quarantine: list the records that a rule put aside, and send them again after their cause is fixed.

A redrive is a flow of its own, `<flow>.redrive`, with one lane and a ledger. It sends each record exactly once, while the
flow itself may run (law F). The records arrive late, after those that followed them on the source: law D holds among records
of one partition that are redriven together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.kafka import lost_topic_error
from mirrorlake.lake import RELAY, Lake, LakeQuery, RelayPart, load_incarnation_filter, ranges_of, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.withheld import QUARANTINED
from mirrorlake.republish.lost_topics import find_lost_topics
from mirrorlake.republish.prepare import sending_settings
from mirrorlake.republish.republisher import Republisher
from mirrorlake.topics import rule_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecords:
    """Records of one topic that one rule quarantined for one reason, and that are not on the target yet."""

    topic: str
    rule: str
    rule_version: str
    reason: str
    records: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The result of a redrive: records sent, filtered by a rule that can judge them now, and quarantined again."""

    flow: str
    sent: int
    filtered: int
    still_quarantined: int


class Quarantine:
    """The quarantined records of one flow.

    Example:
        >>> mirror["east->central"].quarantine.summary()  # doctest: +SKIP
        >>> mirror["east->central"].quarantine.redrive()  # doctest: +SKIP
        Redriven(flow='east->central', sent=12, filtered=0, still_quarantined=0)
    """

    def __init__(self, context: Context, flow: FlowConfig) -> None:
        self._context = context
        self._flow = flow
        context.lake.create_all([flow.source])

    def records(self) -> DataFrame:
        """Return the quarantined records that were neither sent nor filtered since, with bytes and reason."""
        waiting = find_waiting(self._context.lake, self._flow)
        rows = [
            {**asdict(source), "offset": offset, **cause._asdict()}
            for source, several in waiting.items()
            for offset, cause in several.items()
        ]
        firsts = {source: min(several) for source, several in waiting.items()}
        ends = {source: max(several) + 1 for source, several in waiting.items()}
        relays = {RELAY.name: (self._flow.source, RelayPart(firsts, ends=ends, others=False))}
        tables = {"waiting": pa.Table.from_pylist(rows, _WAITING)}
        return self._context.lake.query_frame(LakeQuery(_RECORDS, relays, tables))

    def summary(self) -> list[QuarantinedRecords]:
        """Count the quarantined records by topic, rule and reason."""
        offsets: dict[tuple[str, Cause], list[int]] = {}
        for source, several in find_waiting(self._context.lake, self._flow).items():
            for offset, cause in several.items():
                offsets.setdefault((source.topic, cause), []).append(offset)
        return [
            QuarantinedRecords(
                topic=topic,
                **cause._asdict(),
                records=len(several),
                first_offset=min(several),
                last_offset=max(several),
            )
            for (topic, cause), several in sorted(offsets.items())
        ]

    def redrive(self) -> Redriven:
        """Send the quarantined records through the flow's present rules to the target, each once.

        It may be killed at any instruction and called again, because its ledger records each sent record (law F).

        Raises:
            RemoteTopicLost: the remote topic of some of them waits for a choice; nothing was sent (law F).
            LaneFenced: another redrive of the flow started meanwhile.
            UnsendableRecord, RecordTooLarge, TopicConflict: as for the flow itself.
            ClusterError, StoreError: the target or the lake failed.
        """
        context, audit = self._context, self._context.audit()
        if lost := find_lost_topics(context, self._flow):
            topics = {one.topic for one in self.summary()}
            if waiting := [one for one in lost if topics & set(one.topics)]:
                raise lost_topic_error(*waiting)
        settings = sending_settings(context, self._flow)
        audit.record(rule_changes(settings.flow, audit), command="redrive")
        # It writes the remote topics of this flow on purpose.
        others = [flow for flow in settings.all_flows if flow.name != self._flow.name]
        again = replace(settings, flow=settings.flow.redrive(), all_flows=others, filled_topics=None)
        with context.board() as board:
            sender = Republisher(context.lake, context.admin(self._flow.target), again, audit=audit, tell=board.tell)
            withheld = [item for record in sender.resend(self.records) for item in record.withheld]
        return Redriven(
            flow=self._flow.name,
            sent=sender.records,
            filtered=sum(item.ranges.count for item in withheld if item.kind != QUARANTINED),
            still_quarantined=sum(item.ranges.count for item in withheld if item.kind == QUARANTINED),
        )


class Cause(NamedTuple):
    """The rule that quarantined a record, its version, and why."""

    rule: str
    rule_version: str
    reason: str


def find_waiting(lake: Lake, flow: FlowConfig) -> dict[SourcePartition, dict[int, Cause]]:
    """Return the offsets that a flow quarantined, that were neither sent nor filtered since, and that did not leave the relay.

    A record that went into a remote topic that was deleted since waits again.
    """
    waiting: dict[SourcePartition, dict[int, Cause]] = {}
    for row in lake.query(_QUARANTINED, flow=flow.name, missing_ok=True):
        several = waiting.setdefault(SourcePartition(row.topic, row.generation, row.partition), {})
        cause = Cause(row.rule, row.rule_version, row.reason or "")
        several.update((offset, cause) for span in ranges_of(row) for offset in range(*span))
    if not waiting:
        return {}
    spans = [{**asdict(source), "first": min(held), "last": max(held)} for source, held in waiting.items()]
    text = _DONE.replace("<current>", load_incarnation_filter(lake, [flow]).current_sql())
    tables = {"spans": pa.Table.from_pylist(spans, _SPANS)}
    done: dict[SourcePartition, list[Ranges]] = {}
    for row in lake.query(text, tables=tables, flow=flow.name, again=flow.redrive_name):
        done.setdefault(SourcePartition(row.topic, row.generation, row.partition), []).append(ranges_of(row))
    for one in removed_from(lake, flow.source):
        done.setdefault(one.source, []).append(one.ranges)
    for source, several in waiting.items():
        for span in Ranges.of(several) & Ranges.union(done.get(source, ())):
            for offset in range(*span):
                del several[offset]
    return {source: several for source, several in waiting.items() if several}


_SOURCE = [("topic", pa.string()), ("generation", pa.int32()), ("partition", pa.int32())]
_SPANS = pa.schema([*_SOURCE, ("first", pa.int64()), ("last", pa.int64())])
_WAITING = pa.schema([*_SOURCE, ("offset", pa.int64()), *((name, pa.string()) for name in Cause._fields)])
_ROW = """m.source_topic AS topic, m.generation, m.source_partition AS partition, m.first_upstream, m.last_upstream, m.holes"""
_QUARANTINED = f"""
    SELECT {_ROW}, m.rule, m.rule_version, m.reason FROM {{offset_map}} AS m
    WHERE m.flow = :flow AND m.kind = 'quarantined' ORDER BY m.committed_at
"""  # noqa: S608  names of columns
# What a redrive filtered stays so in each incarnation of the remote topic.
_DONE = f"""
    SELECT {_ROW} FROM {{offset_map}} AS m JOIN {{spans}} AS s
        ON m.source_topic = s.topic AND m.generation = s.generation AND m.source_partition = s.partition
        AND m.last_upstream >= s.first AND m.first_upstream <= s.last
    WHERE m.flow IN (:flow, :again) AND m.kind <> 'quarantined'
        AND ((m.flow = :again AND m.kind = 'filtered') OR (<current>))
"""  # noqa: S608  likewise
_RECORDS = """
    SELECT r.topic, r.generation, r.partition, r.`offset`, r.timestamp, r.key, r.value, r.headers, w.rule, w.rule_version, w.reason
    FROM {relay} AS r JOIN {waiting} AS w
        ON r.topic = w.topic AND r.generation = w.generation AND r.partition = w.partition AND r.`offset` = w.`offset`
"""
