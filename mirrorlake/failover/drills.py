"""Run drills: set up a scratch cluster, rehearse a failover into it, and store the report."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory

import msgspec

from mirrorlake.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, FailoverRefused, SafetyError
from mirrorlake.failover.drill import DrillReport, drill_run
from mirrorlake.failover.failover import Failover, FailoverOptions
from mirrorlake.failover.journal import DRILL, open_journal
from mirrorlake.failover.operation_context import OperationContext, drain_flow, present_topics
from mirrorlake.model.control import Subject
from mirrorlake.model.remotes import known_id
from mirrorlake.procedure import DONE
from mirrorlake.render import document
from mirrorlake.republish import read_sent_positions
from mirrorlake.topics import settings_in_force
from mirrorlake.tracking import log_run

log = logging.getLogger(__name__)

SANDBOX = "sandbox"
_ALIAS = "mirrorlake-drill"


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
        over = Failover(lost, FailoverOptions()).run()
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
