"""Every value that shows itself, built around one text that somebody else wrote."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from mirrorlake.config.edit import FlowPreview
from mirrorlake.config.edit.flow_preview import TopicPreview
from mirrorlake.doctor import Findings, Tried
from mirrorlake.doctor.findings import Finding
from mirrorlake.doctor.registry import Catalogue, Check
from mirrorlake.failover import CutoverReport, DrillReport, FailbackReport, FailoverReport
from mirrorlake.failover.cutover import ChecklistLine
from mirrorlake.failover.drill import LiveLag
from mirrorlake.failover.loss import PossibleLoss
from mirrorlake.failover.records import TailRecord
from mirrorlake.failover.report import PlacedGroup, ProofSummary, ReportedStep, TopicEndpoints
from mirrorlake.failover.tail import TailPart
from mirrorlake.lag import FlowStatus, Report, Status
from mirrorlake.lag.hop_verdicts import LagVerdict
from mirrorlake.lag.judge import RetentionLimits, judge_windows
from mirrorlake.lag.loss import FlowLoss, Loss
from mirrorlake.lag.others import OtherFlow
from mirrorlake.lag.series import LagPoint, LatencyPoint, RpoPoint
from mirrorlake.lag.status import PartitionStatus
from mirrorlake.lake import RangeProof
from mirrorlake.maintenance import Erasure, Maintained, Retirement
from mirrorlake.maintenance.erasure_results import ErasedPart, OnTarget
from mirrorlake.maintenance.results import Compacted, KeptTable, TrimmedLedger
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult
from mirrorlake.mm2 import TakeoverPlan
from mirrorlake.mm2.takeover import PartitionTakeover
from mirrorlake.model.acls import Acl
from mirrorlake.model.control import Pause, Subject
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.group_overview import (
    ABSENT,
    GroupMember,
    GroupOnCluster,
    GroupOverview,
    GroupOverviewPart,
    GroupOverviewRow,
)
from mirrorlake.model.groups import GroupPlan, GroupPosition, Resume
from mirrorlake.model.history import GroupPlace, HistoryChange, HistoryChanges, HistoryState, Observed
from mirrorlake.model.needed_acls import NeededAcl, NeededAcls
from mirrorlake.model.offset_map import (
    BeforeFirst,
    DeletedTopic,
    Exact,
    Filtered,
    NoRecord,
    NotYetRepublished,
    OtherGeneration,
    Quarantined,
    UnknownPartition,
)
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Change, Note, Plan
from mirrorlake.model.remotes import Chosen, LostTopic
from mirrorlake.model.replay import Definition, Span, TopicThen
from mirrorlake.model.verify import Difference, PartitionProof, VerifyReport, VerifyReports
from mirrorlake.offsets import MovedPositions, RebuildPlan
from mirrorlake.offsets.rebuild import RebuildPartition
from mirrorlake.records import Page, Passport, SideBySide
from mirrorlake.records.record import LandedIn as InRelay
from mirrorlake.records.record import Missing, Origin, Outcome
from mirrorlake.render import Displayable
from mirrorlake.replay import Replay, Restore
from mirrorlake.replay.as_of import GroupAsOf
from mirrorlake.replay.plan import ReplayPlan, ReplayResult
from mirrorlake.replay.replays import ReplayConsent
from mirrorlake.replay.restored import RestorePlan, RestoreReport
from mirrorlake.replay.target import ReplayRefusal
from mirrorlake.topics import RulesShown, RuleTrial, TopicLine, TopicList, TopicPage
from mirrorlake.topics.rules_plan import RuleShown, TrialReason
from mirrorlake.topics.topic_list import Mirroring, PartitionLine, TopicReader
from mirrorlake.verify import ProofReport, Repair
from mirrorlake.verify.repair import Doubled
from mirrorlake.verify.side_repair import BrokenTable
from tests.builders import browsed, hop_place, page_of, passport_of, sample

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


def partition_status(
    topic: str = "orders", partition: int = 0, state: str = "in_step", lag: int = 0
) -> PartitionStatus:
    """Return where a partition stands, its time lag a second an offset, with the verdict that its state mostly has."""
    return PartitionStatus(
        topic=topic,
        partition=partition,
        source_end=1000,
        landed=1000,
        republished=1000 - lag,
        offset_lag=lag,
        time_lag_ms=None if state == "not_started" else lag * 1000,
        verdict={"in_step": "OK", "behind": "WARNING", "not_started": "UNKNOWN", "paused": "PAUSED"}.get(
            state, "STALL"
        ),
        state=state,
        reason=f"it is {state}",
    )


def status(text: str = "east->central", *rows: PartitionStatus) -> FlowStatus:
    """Return a status of one flow."""
    return FlowStatus(flow=text, partitions=rows or (partition_status(text),), observed_at=NOON)


def topic_line(text: str) -> TopicLine:
    """Return a topic of a cluster that a flow mirrors."""
    mirroring = Mirroring(flow=text, how="mirrored", cluster=text, other=text)
    return TopicLine(topic=text, partitions=1, records=9, cleanup="delete", retention_ms=-1, mirrorings=(mirroring,))


def proof(text: str) -> RangeProof:
    """Return what was proven of a partition."""
    return RangeProof(
        kind="relay-target",
        source=text,
        partition=SourcePartition(text, 1, 0),
        first_upstream=0,
        last_upstream=8,
        begins_at=0,
        how="full",
        records=9,
        flow=text,
        digest=text,
        target_topic=text,
        target_partition=0,
        relay_version=3,
        source_topic_id=text,
        target_topic_id=text,
    )


def report(text: str, *, equal: bool = False) -> VerifyReport:
    """Return a report with one partition and, where it is not equal, one difference."""
    proof = PartitionProof(
        topic=text, generation=1, partition=0, landed=9, republished=9, withheld=0, verified=9 * equal
    )
    found = Difference(where="target", problem="altered", topic=text, partition=0, offset=7)
    return VerifyReport(flow=text, equal=equal, partitions=(proof,), differences=() if equal else (found,))


def needed_acls(text: str) -> NeededAcls:
    """Return one ACL that a principal needs."""
    acl = NeededAcl(cluster=text, resource="TOPIC", name=text, operations=("READ",), purpose=text)
    return NeededAcls(flows=(text,), principal=text, acls=(acl,), servers={text: text}, notes=(text,))


def group_position(group: str, action: Any = "move", metadata: str = "", reason: str = "exact") -> GroupPosition:
    """Return one position of a group."""
    resume = Resume(
        source=SourcePartition(group, 1, 0),
        upstream_offset=12345,
        target=TopicPartition(f"east.{group}", 0),
        downstream_offset=None if action == "hold" else 12300,
        exact=False,
        records_again=1200,
    )
    return GroupPosition(
        group=group, resume=resume, metadata=metadata, target_offset=None, action=action, reason=reason
    )


def group_standing(text: str) -> GroupOverview:
    """Return a group with a member on one side."""
    there = GroupOnCluster(state="stable", members=(GroupMember(client_id=text, host=text, partitions=1),), lag=5)
    parts = (GroupOverviewPart(position=group_position(text, reason=text), source_lag=5, target_lag=None),)
    group = GroupOverviewRow(group=text, source=there, target=GroupOnCluster(state=ABSENT), parts=parts)
    return GroupOverview(flow=text, source=text, target=text, groups=(group,))


def page(text: str) -> Page:
    """Return a page with one record, all of it by somebody else."""
    content = text.encode("utf-8", "surrogatepass")
    record = browsed(7, topic=text, key=content, value=content, headers=((text, content),))
    missing = (Missing(first=8, last=9, kind="absent"),)
    return page_of([record], start=7, end=10, cluster=text, topic=text, missing=missing)


def passport(text: str) -> Passport:
    """Return the passport of that record."""
    outcome = Outcome(
        flow=text, target=text, status="filtered", words=text, lane=0, ledger_seq=3, rule=text, reason=text
    )
    source = SourcePartition(text, 1, 0)
    ends = {"source": source, "came_from": (Origin(flow=text, cluster=text, source=source, offset=6),)}
    landed, record = InRelay(file=text, landed_at_ms=0), page(text).records[0]
    return passport_of(7, outcome, cluster=text, words=text, record=record, landed=landed, **ends)


def lag_verdict(text: str) -> LagVerdict:
    """Return the verdict on a group that stands still and is overtaken by retention."""
    place = hop_place("consumed", text, flow=text, source=text, topic=text, cluster=text)
    looks = [NOON + timedelta(seconds=second) for second in range(3)]
    window = [sample(at, 7, 9, waiting=NOON, lag_ms=second * 1000) for second, at in enumerate(looks)]
    return judge_windows(
        {place: window},
        now=NOON + timedelta(seconds=2),
        retention_of=lambda of: dict.fromkeys(of, RetentionLimits(ms=60_000)),
    )


def report_page(text: str) -> Report:
    """Return a report with everything in it."""
    return Report(
        start=NOON,
        end=NOON + timedelta(minutes=1),
        settings=text,
        verdict=lag_verdict(text),
        lag=tuple(LagPoint(at=NOON, line=text, time_lag_ms=ms, offset_lag=ms) for ms in (5, 7)),
        latency=(LatencyPoint(at=NOON, flow=text, topic=text, records=5, p50_ms=1.0, p95_ms=2.0, p99_ms=3.0),),
        rpo=(RpoPoint(at=NOON, flow=text, records=5, data_ms=7),),
        verifications=(report(text),),
        verified_at=NOON,
    )


def failed_over(text: str) -> FailoverReport:
    """Return a failover with one row of everything."""
    return FailoverReport(
        flow=text,
        source=text,
        target=text,
        state="done",
        began_at=NOON,
        source_note=text,
        refusals=(text,),
        steps=(ReportedStep(name=text, at=NOON, said=text),),
        partitions=(PossibleLoss(topic=text, generation=1, partition=0, landed=5, republished=5, seen_end=7),),
        proof=ProofSummary(verified=9, differences=(text,)),
        groups=(PlacedGroup.of(group_position(text, "hold", reason=text)),),
        topics=(TopicEndpoints(topic=text, write_to=text, read_from=(text, text), goes_back_by=text),),
        fence=(text,),
    )


def failed_back(text: str) -> FailbackReport:
    """Return a failback with one row of everything."""
    return FailbackReport(
        flow=text,
        source=text,
        target=text,
        state="done",
        refusals=(text,),
        tail=(TailPart(topic=text, generation=1, partition=0, first=5, end=7, records=2),),
        records=(TailRecord(topic=text, generation=1, partition=0, offset=5, value=text.encode(), headers=text),),
        choice="drop",
        back={text: 3},
        groups=(PlacedGroup.of(group_position(text, "hold", reason=text)),),
        unfenced=(text,),
    )


def replays(text: str) -> list[Displayable]:
    """Return a replay and a restore, planned and done, with one row of everything."""
    source, wrong = (
        SourcePartition(text, 1, 0),
        Difference(where="target", problem="missing", topic=text, partition=0, offset=7),
    )
    definition = Definition(
        name=text,
        asked={},
        source=text,
        target=text,
        into=text,
        topics=(TopicThen(name=text, partitions=2, configs={text: text}),),
        spans=(Span(topic=text, generation=1, partition=0, first=5, end=14, records=9, oldest_ms=0, newest_ms=1),),
        planned_at_ms=0,
        predicates=((text, text),),
        through=text,
    )
    made = Change(where=text, kind="topic", name=text, action="create", before=None, after={text: text}, reason=text)
    refusal = ReplayRefusal(why=text, remedy=text, flag=text)
    plan = ReplayPlan(definition=definition, changes=(made,), refusals=(refusal,), notes=(text,))
    whole = RestorePlan(records=plan, at=NOON, acls=(made,), groups=(GroupAsOf(text, source, 7),), notes=(text,))
    unused: Any = None
    return [
        plan,
        Replay(unused, plan, leave=ReplayConsent()),
        ReplayResult(name=text, sent=3, records=9),
        whole,
        Restore(unused, whole, leave=ReplayConsent()),
        RestoreReport(name=text, at=NOON, topics=1, records=9, differences=(wrong,), held=(text,)),
    ]


def erasure(text: str) -> Erasure:
    """Return an erasure with one row of everything."""
    return Erasure(
        source=text,
        topic=text,
        by=text,
        reason=text,
        planned=False,
        parts=(ErasedPart(source=SourcePartition(text, 1, 0), records=2, first_offset=5, last_offset=7),),
        targets=(OnTarget(flow=text, target=text, topic=text, passed=1, unsent=1, keeps=text),),
        removal=text,
        deleted_files=(text,),
    )


def every(text: str) -> list[Displayable]:
    """Return one value of each kind, with `text` wherever text may come from others."""
    place, pause = (
        TopicPartition(text, 3),
        Pause(subject=Subject(kind="topic", name=text, flow=text), who=text, since=NOON, reason=text),
    )
    acl = Acl(
        resource="TOPIC", name=text, pattern="LITERAL", principal=text, host=text, operation="READ", permission="ALLOW"
    )
    settings = {"partitions": 3, "configs": {text: text}}
    changes = [
        Change(where=text, kind="topic", name=text, action=action, before=settings, after=settings, reason=text)
        for action in ("create", "conflict", text)
    ]
    seen = Observed(at=NOON, cluster=text, topic=text, partitions=2, configs={text: text})
    took = PartitionTakeover(topic=text, partition=0, remote=text, stored=None, position=7, refused=text)
    reason = TrialReason(kind="filtered", rule=text, version=text, reason=text, records=3)
    shown = RuleShown(rule=text, version=text, topics=(text,), does=text, on_error="drop", framed=None, definition={})
    landing, sending = LandResult(text, 1234, (pause,)), RepublishResult(text, 5)
    drilled = DrillReport(
        flow=text,
        scratch=text,
        began_at=NOON,
        ended_at=NOON,
        records=9,
        fill_s=1.0,
        failover=failed_over(text),
        lag=LiveLag(before_ms=1.0, while_ms=2.0),
    )
    check = ChecklistLine(name=text, state="open", said=text, next=text)
    return [
        failed_over(text),
        failed_back(text),
        CutoverReport(flow=text, source=text, target=text, state="open", checks=(check,)),
        drilled,
        Plan(tuple(changes), (Note(where=text, kind="topic", name=text, reason=text),)),
        status(text),
        Status(flows=(status(text),), observed_at=NOON),
        report(text),
        VerifyReports([report(text), report(text, equal=True)]),
        GroupPlan(text, (group_position(text, metadata=text, reason=text), group_position(text, "hold", reason=text))),
        Exact(12, place),
        NoRecord(14, text),
        Filtered(14, text, text),
        Quarantined(14, text, text, text),
        OtherGeneration(2, 7),
        DeletedTopic(text),
        Chosen(flow=text, topic=text, choice="send_again", waits=True),
        LostTopic(flow=text, target=text, remote=text, topics=(text,), known=text),
        NotYetRepublished(9),
        BeforeFirst(5),
        UnknownPartition(text),
        HistoryState(topics={(text, text): seen}, acls={text: {acl}}, groups={GroupPlace(text, text, text, 0): 17}),
        HistoryChanges(
            [HistoryChange(at=NOON, where=text, kind="group", name=text, action=text, before=text, after=7)]
        ),
        needed_acls(text),
        TakeoverPlan(flow=text, partitions=(took,), reasons=(text,), notes=(text,)),
        RebuildPlan(
            like=text,
            target=text,
            flows=((text, text),),
            partitions=(RebuildPartition(topic=text, partition=0, records=9, waiting=3, stretches=1),),
        ),
        Maintained(
            planned=False,
            tables=(KeptTable(table=text, files=3, compacted=Compacted(files=64, bytes=81_920, into=2), deleted=5),),
            ledgers=(TrimmedLedger(flow=text, why_not=text),),
        ),
        Retirement(flow=text, state="planned", waiting={text: 300}),
        OtherFlow(flow=text, source=text, target=text, waiting=300, state="paused", reason=text, worked_at=NOON),
        ProofReport(verification=text, at=NOON, proofs=(proof(text),), reports=(report(text),)),
        Repair(
            source=text,
            doubled=(Doubled(SourcePartition(text, 1, 0), 5, 9, 5, 1),),
            removed=2,
            tables=(BrokenTable(name=text, files=1, rows=2, then=text, next_step=text),),
        ),
        RuleTrial(
            flow=text, topic=text, view=None, records=9, sent=6, changed=2, filtered=3, quarantined=0, reasons=(reason,)
        ),
        RulesShown([shown]),
        Findings([Finding(check=text, layer=text, subject=text, severity="failure", detail=text, fix=text)]),
        Catalogue([Check(name=text, layer="flow", per="flow", finds="warning", about=text, fix=text, run=list)]),
        MovedPositions(document={text: {"0": 7}}, resumes=(group_position(text).resume,)),
        pause,
        Parked(stream=text, since=NOON, error=text, cause=text, remedy=text),
        landing,
        sending,
        Ran([landing], [sending]),
        page(text),
        passport(text),
        SideBySide(flow=text, source=page(text), notes=(text,)),
        group_standing(text),
        FlowPreview(flow=text, topics=(TopicPreview(topic=text, verdict="mirrored", remote=text),), others=3),
        TopicList(cluster=text, topics=(topic_line(text),)),
        TopicPage(
            cluster=text,
            line=topic_line(text),
            partitions=(PartitionLine(partition=0, leader=1, replicas=(1,), isr=(1,), earliest=0, end=9),),
            settings={text: text},
            readers=(TopicReader(group=text, state=text, partitions=1, offset_lag=7),),
        ),
        Tried(alias=text, ok=False, problem=text, remedy=text),
        lag_verdict(text),
        Loss(at=NOON, flows=(FlowLoss(flow=text, observed_at=None, reason=text),)),
        report_page(text),
        erasure(text),
        *replays(text),
    ]
