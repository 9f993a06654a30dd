"""Rehearse a failover into a scratch cluster from the relay, while the mirror runs, and judge it by objective.

The source counts as lost: nothing of it is read, and groups use positions that the lake recorded. The scratch cluster is filled
from the relay first; `rto_s` measures the steps after that, which a real failover takes, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import ClassVar, Literal

import msgspec

from mirrorlake.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, FailoverRefused, SafetyError
from mirrorlake.failover.failover import Failover
from mirrorlake.failover.operation_context import DRILL, OperationContext, drain_flow, open_journal, present_topics
from mirrorlake.failover.report import FailoverReport
from mirrorlake.model.control import Subject
from mirrorlake.model.remotes import known_id
from mirrorlake.procedure import DONE
from mirrorlake.render import JsonDisplayable, Mood, Sheet, badge, document, format_duration, plural, table
from mirrorlake.republish import read_sent_positions
from mirrorlake.topics import settings_in_force
from mirrorlake.tracking import TrackedRun, log_run

log = logging.getLogger(__name__)

SANDBOX = "sandbox"
_ALIAS = "mirrorlake-drill"
_MOODS: dict[str, Mood] = {"pass": "good", "fail": "bad", "not judged": "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveResult:
    objective: str
    result: Literal["pass", "fail", "not judged"]
    said: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DrillReport(JsonDisplayable):
    """The report of a drill: `failover` is that of the rehearsed failover, `fill_s` the seconds of filling."""

    flow: str
    scratch: str
    began_at: datetime
    ended_at: datetime
    records: int
    fill_s: float
    failover: FailoverReport
    id: str = ""
    run_id: str | None = None
    json_include: ClassVar[tuple[str, ...]] = ("passed", "verdicts", "rpo_s", "rto_s")

    @property
    def rpo_s(self) -> float | None:
        """The seconds whose records might have been lost, had the source failed when the drill began."""
        return self.failover.rpo_s

    @property
    def rto_s(self) -> float | None:
        """The seconds of the rehearsed failover, without filling the scratch cluster."""
        return self.failover.rto_s

    @property
    def verdicts(self) -> tuple[ObjectiveResult, ...]:
        """The result of each objective."""
        over = self.failover
        proof = over.proof
        proven = proof is not None and not proof.is_skipped and not proof.differences
        again = over.records_again
        return (
            _judge_objective("RPO", over.rpo_s, over.objective_rpo_s),
            _judge_objective("RTO", over.rto_s, over.objective_rto_s),
            ObjectiveResult(objective="records", result="pass" if proven else "fail", said=str(proof)),
            ObjectiveResult(
                objective="groups",
                result="fail" if over.held or again is None else "pass",
                said=f"{plural(len(over.groups), 'position')}, {over.held} held back, records read again: "
                + ("not known" if again is None else str(again)),
            ),
        )

    @property
    def passed(self) -> bool:
        """Whether no objective failed."""
        return all(one.result != "fail" for one in self.verdicts)

    def sheet(self) -> Sheet:
        """Show the verdicts first, then the rehearsed failover."""
        rows = [(one.objective, badge(one.result, _MOODS[one.result]), one.said) for one in self.verdicts]
        return Sheet(
            title=f"drill {self.flow}",
            badge=badge("passed", "good") if self.passed else badge("failed"),
            facts=(
                f"{plural(self.records, 'record')} into {self.scratch} in {format_duration(self.fill_s * 1000)}",
                self.began_at,
            ),
            parts=(table("", ["objective", "result", "found"], rows), self.failover.sheet()),
        )


def _judge_objective(name: str, found: float | None, wanted: float | None) -> ObjectiveResult:
    said = "not known" if found is None else format_duration(found * 1000)
    if wanted is None:
        return ObjectiveResult(objective=name, result="not judged", said=f"{said}; no objective is set")
    met: Literal["pass", "fail"] = "pass" if found is not None and found <= wanted else "fail"
    return ObjectiveResult(objective=name, result=met, said=f"{said}, objective {format_duration(wanted * 1000)}")


def run_drill(context: Context, flow: str, *, into: str | None = None) -> DrillReport:
    """Rehearse a failover of a flow (see `FlowHandle.drill`)."""
    work = OperationContext.of(context, flow)
    with _scratch(context, into) as (alias, cluster):
        operation = work.journal.begin(DRILL, before={"into": alias})
        report = _run_rehearsal(context, work.flow, alias, cluster, name=f"{work.flow.name}.drill-{operation.id}")
        run_id = log_run(context.config, drill_run(report))
        report = replace(report, id=operation.id, run_id=run_id)
        work.journal.write(operation, DONE, after=document(report))
    return report


def list_drills(context: Context, flow: str) -> list[DrillReport]:
    operations = open_journal(context, context.config.flow(flow)).operations()
    done = [one.after(DONE) for one in reversed(operations) if one.command == DRILL and one.is_done]
    return [msgspec.convert(after, DrillReport) for after in done]


def drill_run(report: DrillReport) -> TrackedRun:
    figures = {"passed": float(report.passed), "records": float(report.records), "fill_seconds": report.fill_s}
    more = {"rpo_seconds": report.rpo_s, "rto_seconds": report.rto_s}
    return TrackedRun(
        kind="drill",
        flow=report.flow,
        result="passed" if report.passed else "failed",
        began_at=report.began_at,
        ended_at=report.ended_at,
        parameters={"flow": report.flow, "source": report.failover.source, "scratch": report.scratch},
        figures={**figures, **{name: value for name, value in more.items() if value is not None}},
        report=report,
    )


@contextmanager
def _scratch(context: Context, into: str | None) -> Iterator[tuple[str, ClusterConfig]]:
    config = context.config
    if into is not None and into != SANDBOX:
        cluster = config.cluster(into)
        aliases = {*config.sources, *config.targets}
        used = {address for alias in aliases for address in _servers(context, alias)}
        shared = sorted(used & {*_servers(context, into)})
        if into in aliases or cluster.is_lake or shared:
            why = f"answers at {', '.join(shared)}, as a cluster of a flow does" if shared else "is a lake cluster"
            raise SafetyError(
                f"{into} is a cluster that flows of these settings use" if into in aliases else f"{into} {why}",
                consequence="a drill would mix its records with theirs; nothing was done",
                remedy="name a scratch cluster that no flow uses, or leave --into out for a sandbox of this machine",
                alias=into,
            )
        yield into, cluster
        return
    # Production needs no sandbox, so it is imported here.
    from mirrorlake.sandbox import KafkaCluster

    # Deleted here, because a command exits before finalizers run, and each drill is a copy of the flow.
    with (
        TemporaryDirectory(prefix=f"{_ALIAS}-", ignore_cleanup_errors=True) as folder,
        KafkaCluster(_ALIAS, directory=folder) as broker,
    ):
        yield _ALIAS, ClusterConfig.model_validate({"bootstrap_servers": broker.bootstrap_servers})
        broker.kill()


def _servers(context: Context, alias: str) -> list[str]:
    cluster = context.config.cluster(alias)
    return [] if cluster.is_lake else cluster.servers().split(",")


def _settings(context: Context, flow: FlowConfig, alias: str, cluster: ClusterConfig, name: str) -> MirrorConfig:
    config = context.config
    made = flow.model_copy(update={"name": name, "target": alias, "replication_factor": None})
    made = made.bound_to(config.never_leave(flow.source), adds_hops=False)
    found = config.model_copy(
        update={
            "clusters": {**config.clusters, alias: cluster},
            "flows": (made,),
            "tracking": config.tracking.model_copy(update={"enabled": False}),
        }
    )
    found.read_from(config.path, config.text)
    return found


def _run_rehearsal(context: Context, flow: FlowConfig, alias: str, cluster: ClusterConfig, *, name: str) -> DrillReport:
    scratch = Context(
        _settings(context, flow, alias, cluster, name), spark=context.spark, now=context.now, display=context.no_display
    )
    _require_empty(scratch, flow)
    began_at = context.now()
    try:
        started = time.monotonic()
        records = drain_flow(scratch, scratch.config.flow(name))
        fill_s = time.monotonic() - started
        lost = OperationContext.of(scratch, name, lost=f"{flow.source} is taken for lost")
        over = Failover(lost).run()
    finally:
        subject = Subject(kind="flow", name=name)
        settings_in_force.resume(scratch.control(), subject, reason="the drill has ended")
        if alias != _ALIAS:
            _clear(scratch)
    return DrillReport(
        flow=flow.name,
        scratch=alias,
        began_at=began_at,
        ended_at=context.now(),
        records=records,
        fill_s=fill_s,
        failover=over,
    )


def _require_empty(scratch: Context, flow: FlowConfig) -> None:
    """Refuse a scratch cluster that has a topic named like a remote topic."""
    [drilled] = scratch.config.flows
    names = {drilled.remote_topic(topic) for topic in present_topics(scratch.lake, drilled)}
    if there := sorted(scratch.admin(drilled.target).describe(names)):
        raise FailoverRefused(
            f"{drilled.target} holds {', '.join(there[:5])} already",
            consequence="what stands there would be taken for the mirror's; nothing was done",
            remedy=f"delete them on {drilled.target}, or leave --into out for a sandbox of this machine",
            flow=flow.name,
            reasons=tuple(there),
        )


def _clear(scratch: Context) -> None:
    """Delete the drill's topics from a named scratch cluster by id, because the next drill needs it empty."""
    [flow] = scratch.config.flows
    try:
        admin = scratch.admin(flow.target)
        made = read_sent_positions(scratch, flow).remotes.values()
        states = admin.describe({one.name for one in made})
        for one in {one.name: one for one in made if one.topic_id}.values():
            if one.name in states and known_id(states[one.name].topic_id) == one.topic_id:
                admin.delete(one.name)
        admin.delete(flow.ledger_topic)
    except ClusterError as error:
        log.warning("drill.not_cleared cluster=%s why=%s", flow.target, error)
