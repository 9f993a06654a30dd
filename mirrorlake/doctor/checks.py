"""Doctor: look at every layer a mirror stands on; name the one that fails and the fix. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pyspark.sql import functions as F

from mirrorlake.config.schema.mirror import FlowConfig, MirrorConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka.admin import ClusterAdmin, TopicState
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.one_writer import CLUSTER_PROPERTY
from mirrorlake.landing.start import refuse_other_cluster
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.render import Sheet, Shown, badge, plural, table
from mirrorlake.topics.group_refusal import refused
from mirrorlake.topics.sources import TopicSource
from mirrorlake.topics.topic_plan import Admins, Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at: its layer, whether it is fine, what was seen, and the fix where it is not."""

    layer: str
    subject: str
    ok: bool
    detail: str
    fix: str = ""


class Findings(Shown, list[Finding]):
    """What was looked at, in the order of the layers: a list of `Finding` that shows itself."""

    def sheet(self) -> Sheet:
        """List the findings first, each with its fix, then the checks that passed."""
        bad = [one for one in self if not one.ok]
        rows = [
            (badge("ok" if one.ok else "failed"), one.layer, one.subject, one.detail, one.fix or None)
            for one in (*bad, *(one for one in self if one.ok))
        ]
        return Sheet(
            title="doctor",
            badge=badge(plural(len(bad), "finding"), "bad") if bad else badge("ok"),
            facts=(f"looked at {plural(len(self), 'thing')}",),
            parts=(table("", ["", "layer", "subject", "finding", "next"], rows),),
        )


def examine(
    config: MirrorConfig,
    *,
    sources: Sources,
    admins: Admins,
    lake: Lake,
    held: Callable[[FlowConfig], Iterable[HeldTopic]],
    now: datetime,
) -> Findings:
    """Examine settings, clusters, topics and the lake, and return what was found, in the order of the layers."""
    findings = Findings(
        [Finding(layer="settings", subject=str(config.path), ok=True, detail=f"{len(config.flows)} flow(s)")]
    )
    reached = set()
    for alias in sorted({*config.sources, *config.targets}):
        finding = _cluster(alias, admins[alias], lake) if alias in admins else _lake_cluster(alias)
        findings.append(finding)
        if finding.ok:
            reached.add(alias)
    findings += _groups(config.flows)
    for flow in config.flows:
        if {flow.source, flow.target} <= reached:
            source, target = sources[flow.source], admins[flow.target]
            findings += _guarded(flow, partial(_flow, flow, source, target, lake, now))
            findings += _guarded(flow, partial(_all_lost, held, flow))
    findings += _lake(config, lake)
    return findings


def _groups(flows: Iterable[FlowConfig]) -> Iterable[Finding]:
    flows = list(flows)
    for flow in flows:
        why = refused(flow, flows) if flow.sync.groups else ""
        if why:
            yield Finding(
                layer="groups",
                subject=flow.name,
                ok=False,
                detail=f"groups are held back: {why}",
                fix=f"set sync: {{groups: false}} on {flow.name}, or leave placement and delivery as they are by default",
            )


def _cluster(alias: str, admin: ClusterAdmin, lake: Lake) -> Finding:
    try:
        brokers, cluster_id = admin.broker_count(), admin.cluster_id()
    except MirrorlakeError as error:
        return Finding(layer="cluster", subject=alias, ok=False, detail=error.cause, fix=error.remedy)
    try:
        refuse_other_cluster(alias, _recorded_cluster(lake, alias), cluster_id)
    except MirrorlakeError as error:
        return Finding(layer="settings", subject=alias, ok=False, detail=error.cause, fix=error.remedy)
    return Finding(layer="cluster", subject=alias, ok=True, detail=f"{brokers} broker(s), id {cluster_id}")


def _recorded_cluster(lake: Lake, alias: str) -> str | None:
    location = lake.relay_location(alias)
    # A lake that does not answer is a finding of its own.
    with suppress(Exception):
        return lake.properties(location).get(CLUSTER_PROPERTY) if lake.exists(location) else None
    return None


def _lake_cluster(alias: str) -> Finding:
    detail = "a lake cluster: applications publish into its relay"
    return Finding(layer="cluster", subject=alias, ok=True, detail=detail)


def _guarded(flow: FlowConfig, look: Callable[[], Iterable[Finding]]) -> Iterable[Finding]:
    try:
        return list(look())
    except MirrorlakeError as error:
        return [Finding(layer="permission", subject=flow.name, ok=False, detail=error.cause, fix=error.remedy)]


def _all_lost(held: Callable[[FlowConfig], Iterable[HeldTopic]], flow: FlowConfig) -> Iterable[Finding]:
    return map(_lost, held(flow))


def _lost(one: HeldTopic) -> Finding:
    return Finding(layer="topics", subject=one.remote, ok=False, detail=one.cause, fix=one.remedy)


def _flow(flow: FlowConfig, source: TopicSource, target: ClusterAdmin, lake: Lake, now: datetime) -> Iterable[Finding]:
    topics = source.describe(name for name in source.topic_names() if flow.carries(name))
    configs = source.configs(topics)
    yield Finding(
        layer="topics",
        subject=flow.name,
        ok=bool(topics),
        detail=f"{len(topics)} topic(s), {sum(t.partitions for t in topics.values())} partition(s) on {flow.source}",
        fix=f"check `topics` of the flow against the topics of {flow.source}",
    )
    remotes = target.describe({flow.remote_topic(name) for name in topics})
    yield from _replication(flow, target, [*remotes.values(), *target.describe([flow.ledger_topic]).values()])
    for name, topic in sorted(topics.items()):
        remote = flow.remote_topic(name)
        if remote in remotes:
            wanted = flow.placement.remote_partitions(name, topic.partitions)
            yield from _remote(flow, target, remote, partitions=wanted, held=remotes[remote].partitions)
            yield from _sizes(name, source, remote, target)
            yield from _target_retention(lake, flow, name, remote, target, now)
        yield from _source_retention(lake, flow, name, topic.partitions, source, configs.get(name, {}), now)


def _replication(flow: FlowConfig, target: ClusterAdmin, made: Iterable[TopicState]) -> Iterable[Finding]:
    """Say which topics a single broker's loss would take away, the ledger and its positions among them."""
    brokers, factor = target.broker_count(), flow.replication_factor
    if factor is not None and factor > brokers:
        yield Finding(
            layer="replication",
            subject=flow.name,
            ok=False,
            detail=f"replication_factor is {factor}, and {flow.target} has {plural(brokers, 'broker')}: no topic can be made",
            fix=f"set replication_factor of {flow.name} to {brokers} or less",
        )
    if brokers == 1:
        return
    single = sorted(state.name for state in made if state.replicas == 1)
    if single:
        shown = ", ".join(single[:3]) + (f" and {len(single) - 3} more" if len(single) > 3 else "")
        yield Finding(
            layer="replication",
            subject=flow.name,
            ok=False,
            detail=f"one replica each on {flow.target}, which has {brokers} brokers: {shown}; a lost broker takes them away",
            fix="kafka-reassign-partitions gives them more replicas; replication_factor of the flow is for new topics",
        )
    if (factor or target.default_replication_factor()) == 1:
        by = "replication_factor is 1" if factor else f"{flow.target} has default.replication.factor=1"
        yield Finding(
            layer="replication",
            subject=flow.name,
            ok=False,
            detail=f"{by} with {brokers} brokers: each new remote topic stands on one of them only",
            fix=f"set replication_factor: {min(3, brokers)} for {flow.name}",
        )


def _remote(flow: FlowConfig, target: ClusterAdmin, remote: str, *, partitions: int, held: int) -> Iterable[Finding]:
    if held < partitions:
        yield Finding(
            layer="topics",
            subject=remote,
            ok=False,
            detail=f"{held} partitions on {flow.target}, {partitions} are needed",
            fix=f"mirrorlake apply --flow '{flow.name}'",
        )
    if target.config_value(remote, "message.timestamp.type") == "LogAppendTime":
        yield Finding(
            layer="topics",
            subject=remote,
            ok=False,
            detail=f"{flow.target} replaces record timestamps by the time of arrival (message.timestamp.type)",
            fix=f"set message.timestamp.type=CreateTime on {remote}, or accept that timestamps differ (law C)",
        )


def _sizes(name: str, source: TopicSource, remote: str, target: ClusterAdmin) -> Iterable[Finding]:
    allowed = int(source.config_value(name, "max.message.bytes") or 0)
    accepted = int(target.config_value(remote, "max.message.bytes") or 0)
    if accepted < allowed:
        yield Finding(
            layer="sizes",
            subject=remote,
            ok=False,
            detail=f"accepts {accepted} bytes, {name} on the source allows {allowed}",
            fix=f"raise max.message.bytes of {remote} to {allowed}",
        )


def _target_retention(
    lake: Lake, flow: FlowConfig, name: str, remote: str, target: ClusterAdmin, now: datetime
) -> Iterable[Finding]:
    """Say which records a target would delete at once because their timestamps are older than its retention."""
    retention = int(target.config_value(remote, "retention.ms") or -1)
    location = lake.relay_location(flow.source)
    policy = target.config_value(remote, "cleanup.policy") or "delete"
    if retention < 0 or "delete" not in policy or not lake.exists(location):
        return
    oldest = (
        lake.relay(flow.source).where(F.col("topic") == name).agg(F.unix_millis(F.min("timestamp"))).collect()[0][0]
    )
    if oldest is not None and oldest < now.timestamp() * 1000 - retention:
        yield Finding(
            layer="retention",
            subject=remote,
            ok=False,
            detail=f"the relay holds records older than the {retention} ms that {remote} keeps; the target deletes them",
            fix=f"raise retention.ms of {remote} on {flow.target} if they must stay readable there",
        )


def _source_retention(
    lake: Lake,
    flow: FlowConfig,
    name: str,
    partitions: int,
    source: TopicSource,
    configs: Mapping[str, str],
    now: datetime,
) -> Iterable[Finding]:
    """Warn when what is not landed yet is close to leaving the source."""
    retention = int(configs.get("retention.ms") or source.config_value(name, "retention.ms") or -1)
    location = lake.relay_location(flow.source)
    if retention < 0 or not lake.exists(location):
        return
    [row] = (
        lake.relay(flow.source)
        .where(F.col("topic") == name)
        .agg(F.unix_millis(F.max("timestamp")).alias("newest"))
        .collect()
    )
    ends = source.latest([TopicPartition(name, partition) for partition in range(partitions)])
    if row.newest is None or not any(ends.values()):
        return
    behind = now.timestamp() * 1000 - row.newest
    if behind > retention * 0.8 and retention > 0:
        yield Finding(
            layer="retention",
            subject=name,
            ok=False,
            detail=f"the newest landed record is {behind / 3.6e6:.1f} h old, {flow.source} keeps {retention / 3.6e6:.1f} h",
            fix=f"mirrorlake land --source {flow.source} --once now, or raise retention.ms of {name}",
        )


def _lake(config: MirrorConfig, lake: Lake) -> Iterable[Finding]:
    try:
        missing = lake.missing(config.sources)
    except Exception as error:
        text = str(error).strip().splitlines()
        detail = text[0][:300] if text else type(error).__name__
        yield Finding(
            layer="lake", subject="tables", ok=False, detail=detail, fix="check lake.root and its permissions"
        )
        return
    detail = f"{len(missing)} table(s) to create with the first run" if missing else "all tables exist"
    yield Finding(layer="lake", subject="tables", ok=True, detail=detail)
    for alias in config.sources:
        location = lake.relay_location(alias)
        if location not in missing:
            files, size = lake.size(location)
            yield Finding(layer="lake", subject=f"relay of {alias}", ok=True, detail=f"{files} files, {size:,} bytes")
