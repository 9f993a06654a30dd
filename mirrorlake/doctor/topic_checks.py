"""Checks of clusters, of flows, and of their topics on source and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from mirrorlake.config import find_unmirrored
from mirrorlake.doctor.examination import Problem, Severity, check, some
from mirrorlake.doctor.inputs import FlowInputs, Inputs, value
from mirrorlake.errors import MirrorlakeError, NotAuthorized
from mirrorlake.kafka import TopicSetting, TopicState
from mirrorlake.kafka.lane import ledger_spec
from mirrorlake.lake import CLUSTER_PROPERTY
from mirrorlake.landing import refuse_other_cluster
from mirrorlake.model.ledger import merged_positions
from mirrorlake.render import format_duration, plural
from mirrorlake.republish import inspect_remote_topics
from mirrorlake.topics import refused

# -- clusters --------------------------------------------------------------------------------------------------------

_NO_ID = {"", "AAAAAAAAAAAAAAAAAAAAAA"}
_cluster_check = partial(check, layer="cluster", per="answering cluster")


@check("kafka.reachable", layer="cluster", per="cluster", fix="start it, or correct its bootstrap_servers and client")
def _reachable(inputs: Inputs, alias: str) -> Iterator[Problem]:
    """Each cluster of a flow answers as it is configured, address, encryption and login, and its brokers where they advertise it."""
    if inputs.config.cluster(alias).is_lake:
        return
    try:
        inputs.brokers(alias)
        if error := inputs.admin(alias).advertised_error():
            raise error
    except MirrorlakeError as error:
        # Settings that do not resolve are a finding of `settings.references`, too, under other names.
        yield Problem(error.cause, error.remedy)


@_cluster_check("kafka.same-cluster", fix="mend bootstrap_servers; a new cluster wants an alias of its own")
def _same_cluster(inputs: Inputs, alias: str) -> None:
    """The cluster that answers is the one whose records the lake holds: offsets of two clusters must never mix."""
    if inputs.has_relay(alias):
        known = inputs.lake.properties(inputs.lake.relay_location(alias)).get(CLUSTER_PROPERTY)
        refuse_other_cluster(alias, known, inputs.admin(alias).cluster_id())


@_cluster_check("kafka.topic-ids", finds="warning", fix="brokers of Kafka 2.8 or later")
def _topic_ids(inputs: Inputs, alias: str) -> Iterator[Problem]:
    """The brokers tell topic ids (Kafka 2.8): without them a topic that was deleted and created again looks like the old one."""
    admin = inputs.admin(alias)
    first = [name for name in admin.topic_names() if not name.startswith("__")][:1]
    if any(state.topic_id in _NO_ID for state in admin.describe(first).values()):
        fix = "raise its brokers to Kafka 2.8 or later, and never create a mirrored topic again under its name"
        yield Problem("its brokers tell no topic ids: a topic created again is taken for the old one", fix)


@_cluster_check("kafka.internal-topics", fix="kafka-reassign-partitions gives the topic more replicas")
def _internal_topics(inputs: Inputs, alias: str) -> Iterator[Problem]:
    """Targets of several brokers keep transactions and group offsets on more than one, and have brokers enough to make them.

    With transaction.state.log.replication.factor above the number of brokers no transaction ever begins.
    """
    if alias not in inputs.config.targets:
        return
    brokers, layout = inputs.brokers(alias), inputs.admin(alias).topic_metadata.layout()
    setting = "transaction.state.log.replication.factor"
    wanted = inputs.broker_setting(alias, setting) or 0
    if "__transaction_state" not in layout and wanted > brokers:
        detail = f"{setting} is {wanted}, and {plural(brokers, 'broker')} answer: no transaction begins"
        yield Problem(detail, f"start the other brokers of {alias}, or lower the setting on its brokers")
    kept = {name: layout.get(name, ()) for name in ("__transaction_state", "__consumer_offsets")}
    thin = [name for name, partitions in kept.items() if any(len(one.replicas) == 1 for one in partitions)]
    if thin and brokers > 1:
        detail = f"one replica each, of {brokers} brokers: {some(thin)}"
        yield Problem(detail, "kafka-reassign-partitions gives them three replicas", severity="warning")


# -- flows -----------------------------------------------------------------------------------------------------------

# A pause is a person's, and what is not known yet comes with the first run.
_NO_FAULT = ("OK", "PAUSED", "WARMING_UP", "UNKNOWN")
_flow_check = partial(check, layer="flow", per="flow")


@_flow_check("status", fix="mirrorlake status --flow F --by partition")
def _status(at: FlowInputs) -> Iterator[Problem]:
    """The flow keeps up, by its verdict: no lag that grows, no retention that runs out, no hanging transaction, no parked stream."""
    status = at.inputs.statuses[at.flow.name]
    if status.verdict not in _NO_FAULT:
        severity: Severity = "warning" if status.verdict == "WARNING" else "failure"
        fix = f"mirrorlake status --flow '{at.flow.name}' --by partition"
        yield Problem(f"{status.verdict}: {status.reason}", fix, severity=severity)


@_flow_check("ledger.settings", fix="kafka-configs sets the ledger's settings as the finding says")
def _ledger_settings(at: FlowInputs) -> Iterator[Problem]:
    """Nobody gave the flow's ledger a retention: a ledger without its last records has forgotten what was sent."""
    name = at.flow.ledger_topic
    wanted, held = ledger_spec(name, 1).configs, at.target.topic_metadata.settings([name]).get(name, {})
    for one in ("cleanup.policy", "retention.ms", "retention.bytes"):
        if one in held and value(held, one) != wanted[one]:
            fix = f"kafka-configs --bootstrap-server … --alter --topic {name} --add-config {one}={wanted[one]}"
            yield Problem(f"has {one}={value(held, one)} on {at.flow.target}", fix, name)


@_flow_check("ledger.state", fix="mirrorlake republish --flow F --restore-ledger")
def _ledger_state(at: FlowInputs) -> Iterator[Problem]:
    """The flow's ledger can be read, and knows no less than its copy in the lake."""
    sql = "SELECT lane, max(ledger_seq) AS seq FROM {offset_map} WHERE flow = :flow GROUP BY lane"
    copied = at.inputs.lake.query(sql, flow=at.flow.name, missing_ok=True)
    restore = f"mirrorlake republish --flow '{at.flow.name}' --restore-ledger"
    if at.ledger is None:
        if copied:
            yield Problem(f"its ledger is gone from {at.flow.target}, and the lake holds a copy", restore)
        return
    for row in copied:
        last = at.last_records.get(row.lane)
        if last is None or last.seq < row.seq:
            ends = "holds no record" if last is None else f"ends at {last.seq}"
            yield Problem(f"lane {row.lane} of its ledger {ends}, and its copy in the lake at {row.seq}", restore)


@check("groups.held-back", layer="flow", finds="warning", fix="sync.groups: false, or default placement and delivery")
def _groups_held_back(inputs: Inputs) -> Iterator[Problem]:
    """Consumer groups of every flow can be kept in step (law A): where clusters mirror each other, some settings make it guesswork."""
    for flow in inputs.config.flows:
        if why := refused(flow, inputs.config.flows) if flow.sync.groups else "":
            fix = f"set sync: {{groups: false}} on {flow.name}, or leave placement and delivery as they are by default"
            yield Problem(f"groups are held back: {why}", fix, flow.name)


@_flow_check("mm2.beside", fix="stop MirrorMaker 2; mirrorlake takeover goes on where it ended")
def _mm2_beside(at: FlowInputs) -> Iterator[Problem]:
    """No MirrorMaker 2 mirrors the same pair: with the same names of topics every record would arrive twice."""
    group = f"{at.flow.source}-mm2"
    try:
        members = at.target.members(group)
    except NotAuthorized:
        # Only this check needs the permission.
        yield Problem(f"MirrorMaker 2 is not looked for: group {group} may not be described", severity="ok")
        return
    if members:
        detail = f"group {group} of MirrorMaker 2 has {plural(members, 'worker')} on {at.flow.target}"
        yield Problem(detail, f"stop it, then mirrorlake takeover --flow '{at.flow.name}'")


@_flow_check("flow.filled", fix="another policy, or existing: append")
def _filled(at: FlowInputs) -> Iterator[Problem]:
    """No remote topic holds records of others: nothing is sent to one that does."""
    remotes = {state.name: state for state in at.remotes.values()}
    sources: dict[str, list[str]] = {}
    for name in at.topics:
        sources.setdefault(at.flow.remote_topic(name), []).append(name)
    for remote, why in sorted(at.inputs.context.filled_topics(at.flow).refuse(remotes, sources).items()):
        yield Problem(f"{at.flow.name} does not send to it: {why.cause}", why.remedy, remote)


# -- their topics ----------------------------------------------------------------------------------------------------


@_flow_check("source.topics", fix="correct `topics` of the flow, or create the topic")
def _topics(at: FlowInputs) -> Iterator[Problem]:
    """Each name and pattern of the flow's list selects a topic of the source, and no rule takes away what is named."""
    severity: Severity = "warning" if at.topics else "failure"
    for one in find_unmirrored(at.flow, at.names):
        yield Problem(f"{one.name}: {one.reason}", "correct `topics` of the flow, or the rule", severity=severity)


@_flow_check("source.permissions", fix="the finding is the kafka-acls command")
def _source_permissions(at: FlowInputs) -> None:
    """This user may see, read and look at the settings of every topic that the flow takes: what it may not see, Kafka hides."""
    at.source.require_topics(at.flow.topics)
    if not at.inputs.config.cluster(at.flow.source).is_lake:
        admin = at.inputs.admin(at.flow.source)
        admin.require(at.topics, "READ")
        admin.configs(at.topics.keys() - at.settings.keys())


@_flow_check("source.leaders", fix="bring the brokers back; kafka-leader-election for a leader")
def _leaders(at: FlowInputs) -> Iterator[Problem]:
    """Every partition that the flow takes has a leader: one without is not landed, and all others go on without a word."""
    lost = [f"{name}-{one}" for name, state in at.topics.items() for one in sorted(state.leaderless)]
    if lost:
        fix = f"bring the brokers of {at.flow.source} back; if they are gone for good: mirrorlake failover --flow '{at.flow.name}'"
        yield Problem(f"{plural(len(lost), 'partition')} without a leader: {some(lost)}", fix)


class _Pair(NamedTuple):
    """A mirrored topic, its remote topic, and the settings in force of both."""

    topic: str
    remote: str
    here: Mapping[str, TopicSetting]
    there: Mapping[str, TopicSetting]


def _pairs(at: FlowInputs) -> list[_Pair]:
    """Return the topics whose remote topic's settings may be read."""
    there = at.remote_settings
    remotes = {name: state.name for name, state in at.remotes.items() if state.name in there}
    return [_Pair(name, remote, at.settings.get(name, {}), there[remote]) for name, remote in remotes.items()]


@_flow_check("target.remote-topics", fix="the finding names the two commands to choose between")
def _remote_topics(at: FlowInputs) -> Iterator[Problem]:
    """No remote topic that records were sent to was deleted, created again or cut: nothing is sent to it until a person chooses."""
    lost, _ = inspect_remote_topics(at.flow, at.target, merged_positions(at.last_records, at.flow.remote_topic))
    yield from (Problem(one.cause, one.remedy, one.remote) for one in lost)


@_flow_check("target.permissions", fix="the finding is the kafka-acls command")
def _target_permissions(at: FlowInputs) -> None:
    """This user may write the remote topics and the ledger, and look at their settings."""
    at.target.require(at.written, "WRITE")
    at.target.configs({state.name for state in at.remotes.values()} - at.remote_settings.keys())


@_flow_check("target.partitions", fix="mirrorlake apply --flow F")
def _target_partitions(at: FlowInputs) -> Iterator[Problem]:
    """Every remote topic has at least as many partitions as its source: a record without a place stops its lane."""
    for name, held in at.remotes.items():
        wanted = at.flow.placement.remote_partitions(at.topics[name].partitions)
        if held.partitions < wanted:
            detail = f"{held.partitions} partitions on {at.flow.target}, {wanted} are needed"
            yield Problem(detail, f"mirrorlake apply --flow '{at.flow.name}'", held.name)


@_flow_check("target.timestamp-type", fix="message.timestamp.type=CreateTime on the remote topic")
def _timestamp_type(at: FlowInputs) -> Iterator[Problem]:
    """Law C: no remote topic replaces the records' timestamps by its own clock."""
    for one in _pairs(at):
        if value(one.there, "message.timestamp.type") == "LogAppendTime":
            detail = f"{at.flow.target} replaces record timestamps by the time of arrival (message.timestamp.type)"
            fix = f"set message.timestamp.type=CreateTime on {one.remote}, or accept that timestamps differ (law C)"
            yield Problem(detail, fix, one.remote)


@_flow_check("target.max-message-bytes", fix="max.message.bytes of the remote topic as the source's")
def _max_message_bytes(at: FlowInputs) -> Iterator[Problem]:
    """Every remote topic accepts records as large as its source does: a larger one stops its lane when it comes, one day."""
    for one in _pairs(at):
        allowed, accepted = (int(value(held, "max.message.bytes", "0")) for held in (one.here, one.there))
        if accepted < allowed:
            detail = f"accepts {accepted} bytes, {one.topic} on the source allows {allowed}"
            yield Problem(detail, f"raise max.message.bytes of {one.remote} to {allowed}", one.remote)


@check("target.retention", layer="flow", per="relay", finds="warning", fix="retention.ms of the remote topic")
def _target_retention(inputs: Inputs, alias: str) -> Iterator[Problem]:
    """No record is older than its remote topic keeps: Kafka counts from the record's own timestamp and deletes it at once."""
    flows = [at for at in inputs.flows if at.flow.source == alias]
    # Of a large relay this is the doctor's longest question, so its flows ask it once.
    sql = "SELECT topic, min(unix_millis(timestamp)) AS oldest FROM {relay} GROUP BY topic"
    oldest = {row.topic: row.oldest for row in (inputs.lake.query(sql, relay=alias) if flows else ())}
    for at, one in ((flow, pair) for flow in flows for pair in _pairs(flow)):
        retention = int(value(one.there, "retention.ms", "-1"))
        deletes = "delete" in value(one.there, "cleanup.policy", "delete") and retention >= 0
        if deletes and oldest.get(one.topic, inputs.now_ms) < inputs.now_ms - retention:
            kept = f"the {format_duration(retention)} that {one.remote} keeps"
            detail = f"the relay holds records older than {kept}; the target deletes them"
            fix = f"raise retention.ms of {one.remote} on {at.flow.target} if they must stay readable there"
            yield Problem(detail, fix, one.remote)


@_flow_check("target.cleanup-policy", fix="cleanup.policy of the remote topic as the source's")
def _cleanup_policy(at: FlowInputs) -> Iterator[Problem]:
    """No remote topic is compacted where its source is not: it refuses records without a key, and drops all but the last of one."""
    for one in _pairs(at):
        here, there = (value(held, "cleanup.policy", "delete") for held in (one.here, one.there))
        if "compact" in there and "compact" not in here:
            detail = f"compacted on {at.flow.target}, and {one.topic} is not: records without a key are refused, older ones of a key go"
            yield Problem(detail, f"set cleanup.policy=delete on {one.remote}", one.remote)


def _single(at: FlowInputs, states: Iterable[TopicState]) -> Iterator[Problem]:
    brokers = at.inputs.brokers(at.flow.target)
    alone = sorted(one.name for one in states if one.replicas == 1)
    if alone and brokers > 1:
        detail = f"one replica each on {at.flow.target}, which has {brokers} brokers: {some(alone)}; a lost broker takes them away"
        fix = "kafka-reassign-partitions gives them more replicas; replication_factor of the flow is for new topics"
        yield Problem(detail, fix, severity="warning")


@_flow_check("target.replication", fix="replication_factor; kafka-reassign-partitions for old topics")
def _target_replication(at: FlowInputs) -> Iterator[Problem]:
    """Remote topics survive the loss of a broker, and new ones can be made with the replicas that the settings ask for."""
    flow, brokers, factor = at.flow, at.inputs.brokers(at.flow.target), at.flow.replication_factor
    if factor is not None and factor > brokers:
        detail = f"replication_factor is {factor}, and {flow.target} has {plural(brokers, 'broker')}: no topic is made"
        yield Problem(detail, f"set replication_factor of {flow.name} to {brokers} or less")
    yield from _single(at, at.remotes.values())
    default = at.inputs.broker_setting(flow.target, "default.replication.factor")
    if brokers > 1 and (factor or default) == 1:
        by = "replication_factor is 1" if factor else f"{flow.target} has default.replication.factor=1"
        detail = f"{by} with {brokers} brokers: each new remote topic stands on one of them only"
        yield Problem(detail, f"set replication_factor: {min(3, brokers)} for {flow.name}", severity="warning")


@_flow_check("ledger.replication", finds="warning", fix="kafka-reassign-partitions gives the ledger three replicas")
def _ledger_replication(at: FlowInputs) -> Iterator[Problem]:
    """The flow's ledger survives the loss of a broker: it is the truth of what was sent."""
    return _single(at, [at.ledger] if at.ledger else [])


@_flow_check("target.in-sync", fix="bring the brokers back, or lower min.insync.replicas")
def _in_sync(at: FlowInputs) -> Iterator[Problem]:
    """Remote topics and ledger have enough replicas in sync to take a write (min.insync.replicas): else nothing is sent."""
    layout, settings = at.target.topic_metadata.layout(), at.target.topic_metadata.settings(at.written)
    too_few, thin = [], []
    for name in sorted(at.written):
        least = int(value(settings.get(name, {}), "min.insync.replicas", "1"))
        for one in layout.get(name, ()):
            if one.leader is None or len(one.isr) < least:
                too_few.append(f"{name}-{one.partition} ({len(one.isr)} of {least})")
            elif len(one.isr) < len(one.replicas):
                thin.append(f"{name}-{one.partition}")
    fix = f"bring the brokers of {at.flow.target} back"
    if too_few:
        detail = f"too few replicas in sync to take a write: {some(too_few)}"
        yield Problem(detail, f"{fix}, or lower min.insync.replicas of the topics")
    if thin:
        detail = f"{plural(len(thin), 'partition')} with replicas out of sync: {some(thin)}"
        yield Problem(detail, fix, severity="warning")


@_flow_check("target.transaction-timeout", fix="producer: {transaction.timeout.ms: …} up to the brokers' limit")
def _transaction_timeout(at: FlowInputs) -> Iterator[Problem]:
    """The brokers permit transactions as long as the flow asks for (transaction.max.timeout.ms): else no lane can begin."""
    asked = int(at.inputs.context.producer_options(at.flow).get("transaction.timeout.ms", 60_000))
    allowed = at.inputs.broker_setting(at.flow.target, "transaction.max.timeout.ms")
    if at.flow.delivery == "exactly_once" and allowed is not None and asked > allowed:
        detail = f"transaction.timeout.ms is {asked}, and {at.flow.target} permits {allowed}: no lane can begin"
        fix = f"set producer: {{transaction.timeout.ms: {allowed}}} for {at.flow.name}, or raise the brokers' limit"
        yield Problem(detail, fix)
