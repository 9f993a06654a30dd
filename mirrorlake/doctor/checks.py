"""Doctor: look at every layer a mirror stands on; name the one that fails and the fix. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka import ClusterAdmin, TopicState
from mirrorlake.lake import CLUSTER_PROPERTY, Lake, landed_positions, look_at_store, read_to
from mirrorlake.landing import refuse_other_cluster
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.render import Sheet, Shown, badge, plural, table
from mirrorlake.topics import Admins, Sources, TopicSource, refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at: its layer, whether it is fine, what was seen, and the fix where it is not."""

    layer: str
    subject: str
    ok: bool
    detail: str
    fix: str = ""


def _fine(layer: str, subject: str, detail: str) -> Finding:
    return Finding(layer=layer, subject=subject, ok=True, detail=detail)


def _problem(layer: str, subject: str, detail: str, fix: str) -> Finding:
    return Finding(layer=layer, subject=subject, ok=False, detail=detail, fix=fix)


class Findings(Shown, list[Finding]):
    """What was looked at, in the order of the layers: a list of `Finding` that shows itself."""

    def sheet(self) -> Sheet:
        """List the problems first, each with its fix."""
        bad = [one for one in self if not one.ok]
        rows = [
            (badge("ok" if one.ok else "failed"), one.layer, one.subject, one.detail, None if one.ok else one.fix)
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
    probed: Mapping[str, Mapping[str, str]],
) -> Findings:
    """Examine settings, clusters, topics and the lake, in the order of the layers.

    `probed` is what `kafka.probe` just found.
    """
    findings = Findings([_fine("settings", *_settings(config))])
    reached = set()
    for alias in sorted({*config.sources, *config.targets}):
        if alias in admins:
            finding = _cluster(alias, admins[alias], lake)
        else:
            finding = _fine("cluster", alias, "a lake cluster: applications publish into its relay")
        findings.append(finding)
        if finding.ok:
            findings += _silent(alias, probed.get(alias, {}))
            reached.add(alias)
    for flow in config.flows:
        if flow.sync.groups and (why := refused(flow, config.flows)):
            findings.append(
                _problem(
                    "groups",
                    flow.name,
                    f"groups are held back: {why}",
                    f"set sync: {{groups: false}} on {flow.name}, or leave placement and delivery as they are by default",
                )
            )
    for flow in config.flows:
        if {flow.source, flow.target} <= reached:
            looks = _FlowLooks(flow, sources[flow.source], admins[flow.target], lake, held, now)
            findings += _guarded(flow, looks.all)
            findings += _guarded(flow, looks.lost)
    findings += _lake(config, lake)
    return findings


def _settings(config: MirrorConfig) -> tuple[str, str]:
    """Name the file and the lake as they are found, whatever the working directory is."""
    file = "given as values" if config.path is None else str(config.path.absolute())
    place = config.lake.location() or ".".join(config.lake.namespace() or ())
    return file, f"{plural(len(config.flows), 'flow')}, lake {place}"


def _cluster(alias: str, admin: ClusterAdmin, lake: Lake) -> Finding:
    layer = "cluster"
    try:
        brokers, cluster_id = admin.broker_count(), admin.cluster_id()
        layer = "settings"
        refuse_other_cluster(alias, _recorded_cluster(lake, alias), cluster_id)
    except MirrorlakeError as error:
        return _problem(layer, alias, error.cause, error.remedy)
    return _fine("cluster", alias, f"{plural(brokers, 'broker')}, id {cluster_id}")


def _silent(alias: str, problems: Mapping[str, str]) -> Iterator[Finding]:
    """Name the addresses that do not listen, of a cluster that answers at another."""
    for address, problem in problems.items():
        if problem:
            fix = f"correct bootstrap_servers of {alias}, or start that broker: clients begin at any of its addresses"
            yield _problem("address", alias, f"{address} {problem}", fix)


def _recorded_cluster(lake: Lake, alias: str) -> str | None:
    location = lake.relay_location(alias)
    # A lake that does not answer is a finding of its own.
    with suppress(Exception):
        return lake.properties(location).get(CLUSTER_PROPERTY) if lake.exists(location) else None
    return None


def _guarded(flow: FlowConfig, look: Callable[[], Iterable[Finding]]) -> Iterable[Finding]:
    try:
        return list(look())
    except MirrorlakeError as error:
        return [_problem("permission", flow.name, error.cause, error.remedy)]


@dataclass(frozen=True, slots=True)
class _FlowLooks:
    """Look at the topics of one flow on both sides."""

    flow: FlowConfig
    source: TopicSource
    target: ClusterAdmin
    lake: Lake
    held: Callable[[FlowConfig], Iterable[HeldTopic]]
    now: datetime

    def lost(self) -> Iterator[Finding]:
        return (_problem("topics", one.remote, one.cause, one.remedy) for one in self.held(self.flow))

    def all(self) -> Iterator[Finding]:
        flow = self.flow
        topics = self.source.describe(name for name in self.source.topic_names() if flow.carries(name))
        configs, landed = self.source.configs(topics), self._landed()
        read = self._read_to() if landed else {}
        yield Finding(
            layer="topics",
            subject=flow.name,
            ok=bool(topics),
            detail=f"{len(topics)} topic(s), {sum(t.partitions for t in topics.values())} partition(s) on {flow.source}",
            fix=f"check `topics` of the flow against the topics of {flow.source}",
        )
        remotes = self.target.describe({flow.remote_topic(name) for name in topics})
        yield from self._replication([*remotes.values(), *self.target.describe([flow.ledger_topic]).values()])
        for name, topic in sorted(topics.items()):
            remote = flow.remote_topic(name)
            if remote in remotes:
                wanted = flow.placement.remote_partitions(name, topic.partitions)
                yield from self._remote(name, remotes[remote], wanted)
                if name in landed:
                    yield from self._target_retention(remote, landed[name].oldest)
            if name in landed:
                yield from self._source_retention(topic, configs.get(name, {}), landed[name].newest, read)

    def _landed(self) -> dict[str, Any]:
        if not self.lake.exists(self.lake.relay_location(self.flow.source)):
            return {}
        return {row.topic: row for row in self.lake.ask(_LANDED, relay=self.flow.source)}

    def _read_to(self) -> dict[TopicPartition, int]:
        """Read how far each partition is landed; control records at its end count."""
        found = read_to(self.lake, self.flow.source)
        # The newest life of a topic comes last.
        held = dict(sorted(landed_positions(self.lake, self.flow.source).reached.items()))
        newest = {TopicPartition(source.topic, source.partition): position for source, position in held.items()}
        return found | {tp: max(position, found.get(tp, 0)) for tp, position in newest.items()}

    def _replication(self, made: Iterable[TopicState]) -> Iterator[Finding]:
        """Say which topics a single broker's loss would take away, the ledger and its positions among them."""
        flow, brokers, factor = self.flow, self.target.broker_count(), self.flow.replication_factor
        if factor is not None and factor > brokers:
            yield _problem(
                "replication",
                flow.name,
                f"replication_factor is {factor}, and {flow.target} has {plural(brokers, 'broker')}: no topic can be made",
                f"set replication_factor of {flow.name} to {brokers} or less",
            )
        if brokers == 1:
            return
        single = sorted(state.name for state in made if state.replicas == 1)
        if single:
            shown = ", ".join(single[:3]) + (f" and {len(single) - 3} more" if len(single) > 3 else "")
            yield _problem(
                "replication",
                flow.name,
                f"one replica each on {flow.target}, which has {brokers} brokers: {shown}; a lost broker takes them away",
                "kafka-reassign-partitions gives them more replicas; replication_factor of the flow is for new topics",
            )
        if (factor or self.target.default_replication_factor()) == 1:
            by = "replication_factor is 1" if factor else f"{flow.target} has default.replication.factor=1"
            yield _problem(
                "replication",
                flow.name,
                f"{by} with {brokers} brokers: each new remote topic stands on one of them only",
                f"set replication_factor: {min(3, brokers)} for {flow.name}",
            )

    def _remote(self, name: str, held: TopicState, wanted: int) -> Iterator[Finding]:
        flow, remote = self.flow, held.name
        if held.partitions < wanted:
            yield _problem(
                "topics",
                remote,
                f"{held.partitions} partitions on {flow.target}, {wanted} are needed",
                f"mirrorlake apply --flow '{flow.name}'",
            )
        if self.target.config_value(remote, "message.timestamp.type") == "LogAppendTime":
            yield _problem(
                "topics",
                remote,
                f"{flow.target} replaces record timestamps by the time of arrival (message.timestamp.type)",
                f"set message.timestamp.type=CreateTime on {remote}, or accept that timestamps differ (law C)",
            )
        allowed = int(self.source.config_value(name, "max.message.bytes") or 0)
        accepted = int(self.target.config_value(remote, "max.message.bytes") or 0)
        if accepted < allowed:
            yield _problem(
                "sizes",
                remote,
                f"accepts {accepted} bytes, {name} on the source allows {allowed}",
                f"raise max.message.bytes of {remote} to {allowed}",
            )

    def _target_retention(self, remote: str, oldest_ms: int) -> Iterator[Finding]:
        """Say which records a target would delete at once because their timestamps are older than its retention."""
        retention = int(self.target.config_value(remote, "retention.ms") or -1)
        deletes = "delete" in (self.target.config_value(remote, "cleanup.policy") or "delete")
        if deletes and retention >= 0 and oldest_ms < self.now.timestamp() * 1000 - retention:
            yield _problem(
                "retention",
                remote,
                f"the relay holds records older than the {retention} ms that {remote} keeps; the target deletes them",
                f"raise retention.ms of {remote} on {self.flow.target} if they must stay readable there",
            )

    def _source_retention(
        self, topic: TopicState, configs: Mapping[str, str], newest_ms: int, landed: Mapping[TopicPartition, int]
    ) -> Iterator[Finding]:
        """Law E: say what the source deleted before it was landed, and what it will soon; nobody waits in an idle topic."""
        name, alias = topic.name, self.flow.source
        places = [TopicPartition(name, partition) for partition in range(topic.partitions)]
        ends = self.source.latest(places)
        waiting = [tp for tp in places if ends.get(tp, 0) > landed.get(tp, 0)]
        if not waiting:
            return
        first = self.source.earliest(waiting)
        gone = {tp: offset - landed.get(tp, 0) for tp, offset in first.items() if tp in landed and offset > landed[tp]}
        if gone:
            yield _problem(
                "retention",
                name,
                f"{sum(gone.values())} offsets of {plural(len(gone), 'partition')} left {alias} before they were landed",
                f"mirrorlake land --source {alias} --once says which; raise retention.ms or retention.bytes of {name}",
            )
        retention = int(configs.get("retention.ms") or self.source.config_value(name, "retention.ms") or -1)
        deletes = "delete" in (self.source.config_value(name, "cleanup.policy") or "delete")
        age_ms = self.now.timestamp() * 1000 - newest_ms
        if not deletes or retention <= 0 or age_ms <= retention * 0.8:
            return
        left_h = max(0.0, retention - age_ms) / 3.6e6
        yield _problem(
            "retention",
            name,
            f"records of {plural(len(waiting), 'partition')} are not landed, and {alias} may delete them in {left_h:.1f} h: the "
            f"newest landed record is {age_ms / 3.6e6:.1f} h old, {retention / 3.6e6:.1f} h are kept",
            f"mirrorlake land --source {alias} --once now, or raise retention.ms of {name}",
        )


_LANDED = """
    SELECT topic, min(unix_millis(timestamp)) AS oldest, max(unix_millis(timestamp)) AS newest FROM {relay} GROUP BY topic
"""


def _store(lake: Lake) -> Iterator[Finding]:
    """Try what a lake asks of its object store; nothing stays there."""
    for look in () if lake.store is None else look_at_store(lake.store):
        if look.problem:
            yield _problem("lake", look.what, look.problem, look.fix)
        else:
            yield _fine("lake", look.what, f"works below {lake.store.root if lake.store else ''}")


def _lake(config: MirrorConfig, lake: Lake) -> Iterable[Finding]:
    looks = list(_store(lake))
    yield from looks
    if not all(look.ok for look in looks):
        return
    try:
        missing = lake.missing(config.sources)
    except Exception as error:
        text = str(error).strip().splitlines()
        detail = text[0][:300] if text else type(error).__name__
        yield _problem("lake", "tables", detail, "check lake.root and its permissions")
        return
    detail = f"{len(missing)} table(s) to create with the first run" if missing else "all tables exist"
    yield _fine("lake", "tables", detail)
    for alias in config.sources:
        location = lake.relay_location(alias)
        if location not in missing:
            files, size = lake.size(location)
            yield _fine("lake", f"relay of {alias}", f"{files} files, {size:,} bytes")
