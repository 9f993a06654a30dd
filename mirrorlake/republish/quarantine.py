"""Quarantine: list the records that a rule put aside, and send them again after their cause is fixed.

A redrive is a flow of its own, `<flow>.redrive`, with one lane and a ledger. It sends each record exactly once, while the
flow itself may run (law F). The records arrive late, after those that followed them on the source: law D holds among records
of one partition that are redriven together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, lost_topic_error
from mirrorlake.lake import (
    OFFSET_MAP,
    QUARANTINE,
    WITHHELD,
    Audit,
    Lake,
    each_offset,
    load_incarnation_filter,
    with_downstream,
)
from mirrorlake.model.flow import SOURCE_KEY
from mirrorlake.model.remotes import LostTopic
from mirrorlake.model.withheld import QUARANTINED
from mirrorlake.progress import Board
from mirrorlake.republish.republisher import Republisher
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.topics import rule_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RECORD = [*SOURCE_KEY, "offset"]


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

    def __init__(
        self,
        lake: Lake,
        target: ClusterAdmin,
        settings: RepublishSettings,
        *,
        audit: Audit,
        watching: Callable[[], Board],
        lost_topics: Callable[[], Sequence[LostTopic]],
    ) -> None:
        self._lake = lake
        self._target = target
        self._settings = settings
        self._flow: FlowConfig = settings.flow
        self._audit = audit
        self._watching = watching
        self._lost_topics = lost_topics

    def records(self) -> DataFrame:
        """Return the quarantined records that were neither sent nor filtered since, with bytes and reason."""
        from pyspark.sql import functions as F

        mine = self._lake.meta(QUARANTINE).where(F.col("flow") == self._flow.name).dropDuplicates(_RECORD)
        again = self._flow.redrive_name
        # Records that went into a deleted remote topic must be sent again, and none that the flow itself has sent since.
        runs = (
            load_incarnation_filter(self._lake, [self._flow])
            .current_rows(self._lake.meta(OFFSET_MAP))
            .where(F.col("flow").isin(again, self._flow.name))
        )
        sent = with_downstream(mine, runs).select(
            F.col("source_topic").alias("topic"),
            "generation",
            F.col("source_partition").alias("partition"),
            F.col("upstream_offset").alias("offset"),
        )
        withheld = self._lake.meta(WITHHELD).where((F.col("flow") == again) & (F.col("kind") != QUARANTINED))
        filtered = each_offset(withheld).select(*_RECORD)
        return mine.join(sent.unionByName(filtered), _RECORD, "left_anti").select(*mine.columns)

    def summary(self) -> list[QuarantinedRecords]:
        """Count the quarantined records by topic, rule and reason."""
        from pyspark.sql import functions as F

        rows = (
            self.records()
            .groupBy("topic", "rule", "rule_version", "reason")
            .agg(
                F.count("*").alias("records"),
                F.min("offset").alias("first_offset"),
                F.max("offset").alias("last_offset"),
            )
            .orderBy("topic", "rule", "reason")
            .collect()
        )
        return [QuarantinedRecords(**row.asDict()) for row in rows]

    def redrive(self) -> Redriven:
        """Send the quarantined records through the flow's present rules to the target, each once.

        It may be killed at any instruction and called again, because its ledger records each sent record (law F).

        Raises:
            RemoteTopicLost: the remote topic of some of them waits for a choice; nothing was sent (law F).
            LaneFenced: another redrive of the flow started meanwhile.
            UnsendableRecord, RecordTooLarge, TopicConflict: as for the flow itself.
            ClusterError, StoreError: the target or the lake failed.
        """
        if held := self._lost_topics():
            topics = {one.topic for one in self.summary()}
            if waiting := [one for one in held if topics & set(one.topics)]:
                raise lost_topic_error(*waiting)
        self._audit.record(rule_changes(self._flow, self._audit), command="redrive")
        # It writes the remote topics of this flow on purpose.
        others = [flow for flow in self._settings.all_flows if flow.name != self._flow.name]
        again = replace(self._settings, flow=self._flow.redrive(), all_flows=others, filled_topics=None)
        with self._watching() as board:
            sender = Republisher(self._lake, self._target, again, audit=self._audit, tell=board.tell)
            withheld = [item for record in sender.resend(self.records) for item in record.withheld]
        return Redriven(
            flow=self._flow.name,
            sent=sender.records,
            filtered=sum(item.count for item in withheld if item.kind != QUARANTINED),
            still_quarantined=sum(item.count for item in withheld if item.kind == QUARANTINED),
        )
