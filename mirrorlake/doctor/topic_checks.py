"""Checks of a flow's topics on source and target: leaders, permissions and settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mirrorlake.config.edit import find_unmirrored
from mirrorlake.doctor.check_context import FlowCheckContext, value
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, some, warning
from mirrorlake.doctor.registry import check
from mirrorlake.kafka import TopicSetting, TopicState
from mirrorlake.model.ledger import merged_positions
from mirrorlake.render import format_duration, plural
from mirrorlake.republish import inspect_remote_topics

# -- the source ------------------------------------------------------------------------------------------------------


@check("source.topics", layer="flow", per="flow", fix="correct `topics` of the flow, or create the topic")
def _topics(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Each name and pattern of the flow's list selects a topic of the source, and no rule takes away what is named."""
    flow, topics = at.flow, at.topics
    for one in find_unmirrored(flow, at.all_names):
        found = f"{one.name}: {one.reason}", "correct `topics` of the flow, or the rule"
        yield warning(flow.name, *found) if topics else failure(flow.name, *found)
    if topics:
        partitions = sum(one.partitions for one in topics.values())
        yield fine(flow.name, f"{plural(len(topics), 'topic')}, {plural(partitions, 'partition')} on {flow.source}")


@check("source.permissions", layer="flow", per="flow", fix="the finding is the kafka-acls command")
def _source_permissions(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """This user may see, read and look at the settings of every topic that the flow takes: what it may not see, Kafka hides."""
    at.source.require_topics(at.flow.topics)
    if not at.inputs.is_lake(at.flow.source):
        admin = at.inputs.admin(at.flow.source)
        admin.require(at.topics, "READ")
        admin.configs(at.topics.keys() - at.settings.keys())
    yield fine(at.flow.name, f"may read {plural(len(at.topics), 'topic')} of {at.flow.source}")


@check("source.leaders", layer="flow", per="flow", fix="bring the brokers back; kafka-leader-election for a leader")
def _leaders(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Every partition that the flow takes has a leader: one without is not landed, and all others go on without a word."""
    if at.inputs.is_lake(at.flow.source):
        yield fine(at.flow.name, "a lake cluster has no brokers")
        return
    lost = [f"{name}-{one}" for name, state in at.topics.items() for one in sorted(state.leaderless)]
    if lost:
        fix = f"bring the brokers of {at.flow.source} back; if they are gone for good: mirrorlake failover --flow '{at.flow.name}'"
        yield failure(at.flow.name, f"{plural(len(lost), 'partition')} without a leader: {some(lost)}", fix)
    else:
        yield fine(at.flow.name, "all partitions have leaders")


# -- the target ------------------------------------------------------------------------------------------------------


@check("target.remote-topics", layer="flow", per="flow", fix="the finding names the two commands to choose between")
def _remote_topics(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No remote topic that records were sent to was deleted, created again or cut: nothing is sent to it until a person chooses."""
    held, _ = inspect_remote_topics(at.flow, at.target, merged_positions(at.last_records, at.flow.remote_topic))
    yield from (failure(one.remote, one.cause, one.remedy) for one in held)
    if not held:
        yield fine(at.flow.name, "each is the one that records were sent to")


@check("target.permissions", layer="flow", per="flow", fix="the finding is the kafka-acls command")
def _target_permissions(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """This user may write the remote topics and the ledger, and look at their settings."""
    names = [*(state.name for state in at.remotes.values()), *([at.ledger.name] if at.ledger else [])]
    at.target.require(names, "WRITE")
    at.target.configs({state.name for state in at.remotes.values()} - at.remote_settings.keys())
    yield fine(at.flow.name, f"may write {plural(len(names), 'topic')} of {at.flow.target}")


@check("target.partitions", layer="flow", per="flow", fix="mirrorlake apply --flow F")
def _target_partitions(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Every remote topic has at least as many partitions as its source: a record without a place stops its lane."""
    small = False
    for name, held in at.remotes.items():
        wanted = at.flow.placement.remote_partitions(at.topics[name].partitions)
        if held.partitions < wanted:
            small = True
            said = f"{held.partitions} partitions on {at.flow.target}, {wanted} are needed"
            yield failure(held.name, said, f"mirrorlake apply --flow '{at.flow.name}'")
    if not small:
        yield fine(at.flow.name, f"{plural(len(at.remotes), 'remote topic')} of {len(at.topics)} are there")


def _each(at: FlowCheckContext) -> Iterator[tuple[str, str, Mapping[str, TopicSetting], Mapping[str, TopicSetting]]]:
    """Yield each mirrored topic, its remote topic, and the settings of both, if the target's may be read."""
    for name, held in at.remotes.items():
        if held.name in at.remote_settings:
            yield name, held.name, at.settings.get(name, {}), at.remote_settings[held.name]


@check("target.timestamp-type", layer="flow", per="flow", fix="message.timestamp.type=CreateTime on the remote topic")
def _timestamp_type(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Law C: no remote topic replaces the records' timestamps by its own clock."""
    found = [
        failure(
            remote,
            f"{at.flow.target} replaces record timestamps by the time of arrival (message.timestamp.type)",
            f"set message.timestamp.type=CreateTime on {remote}, or accept that timestamps differ (law C)",
        )
        for _, remote, _, there in _each(at)
        if value(there, "message.timestamp.type") == "LogAppendTime"
    ]
    yield from found or [fine(at.flow.name, "timestamps stay")]


@check(
    "target.max-message-bytes", layer="flow", per="flow", fix="max.message.bytes of the remote topic as the source's"
)
def _max_message_bytes(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Every remote topic accepts records as large as its source does: a larger one stops its lane when it comes, one day."""
    found = []
    for name, remote, here, there in _each(at):
        allowed, accepted = int(value(here, "max.message.bytes", "0")), int(value(there, "max.message.bytes", "0"))
        if accepted < allowed:
            said = f"accepts {accepted} bytes, {name} on the source allows {allowed}"
            found.append(failure(remote, said, f"raise max.message.bytes of {remote} to {allowed}"))
    yield from found or [fine(at.flow.name, "records of any size that the source takes fit")]


@check("target.retention", layer="flow", per="flow", finds="warning", fix="retention.ms of the remote topic")
def _target_retention(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No record is older than its remote topic keeps: Kafka counts from the record's own timestamp and deletes it at once."""
    found = []
    landed = at.inputs.landed(at.flow.source)
    for name, remote, _, there in _each(at):
        retention, policy = int(value(there, "retention.ms", "-1")), value(there, "cleanup.policy", "delete")
        oldest = landed.get(name)
        if "delete" in policy and retention >= 0 and oldest is not None and oldest < at.inputs.now_ms - retention:
            said = f"the relay holds records older than the {format_duration(retention)} that {remote} keeps; the target deletes them"
            fix = f"raise retention.ms of {remote} on {at.flow.target} if they must stay readable there"
            found.append(warning(remote, said, fix))
    yield from found or [fine(at.flow.name, "what was landed may stay on the target")]


@check("target.cleanup-policy", layer="flow", per="flow", fix="cleanup.policy of the remote topic as the source's")
def _cleanup_policy(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No remote topic is compacted where its source is not: it refuses records without a key, and drops all but the last of one."""
    found = []
    for name, remote, here, there in _each(at):
        if "compact" in value(there, "cleanup.policy") and "compact" not in value(here, "cleanup.policy", "delete"):
            said = f"compacted on {at.flow.target}, and {name} is not: records without a key are refused, older ones of a key go"
            found.append(failure(remote, said, f"set cleanup.policy=delete on {remote}"))
    yield from found or [fine(at.flow.name, "no remote topic is compacted where its source is not")]


def _single(at: FlowCheckContext, states: Iterable[TopicState], names: str) -> Iterator[CheckOutcome]:
    brokers = at.inputs.brokers(at.flow.target)
    alone = sorted(one.name for one in states if one.replicas == 1) if brokers > 1 else []
    if alone:
        yield warning(
            at.flow.name,
            f"one replica each on {at.flow.target}, which has {brokers} brokers: {some(alone)}; a lost broker takes them away",
            "kafka-reassign-partitions gives them more replicas; replication_factor of the flow is for new topics",
        )
    else:
        yield fine(at.flow.name, f"{names} stand on as many brokers as {at.flow.target} allows")


@check(
    "target.replication",
    layer="flow",
    per="flow",
    fix="replication_factor; kafka-reassign-partitions for old topics",
)
def _target_replication(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Remote topics survive the loss of a broker, and new ones can be made with the replicas that the settings ask for."""
    flow, brokers, factor = at.flow, at.inputs.brokers(at.flow.target), at.flow.replication_factor
    if factor is not None and factor > brokers:
        yield failure(
            flow.name,
            f"replication_factor is {factor}, and {flow.target} has {plural(brokers, 'broker')}: no topic can be made",
            f"set replication_factor of {flow.name} to {brokers} or less",
        )
    yield from _single(at, at.remotes.values(), "remote topics")
    default = int(at.inputs.broker_configs(flow.target).get("default.replication.factor") or 0)
    if brokers > 1 and (factor or default) == 1:
        by = "replication_factor is 1" if factor else f"{flow.target} has default.replication.factor=1"
        yield warning(
            flow.name,
            f"{by} with {brokers} brokers: each new remote topic stands on one of them only",
            f"set replication_factor: {min(3, brokers)} for {flow.name}",
        )


@check(
    "ledger.replication",
    layer="flow",
    per="flow",
    finds="warning",
    fix="kafka-reassign-partitions gives the ledger three replicas",
)
def _ledger_replication(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """The flow's ledger survives the loss of a broker: it is the truth of what was sent."""
    yield from _single(at, [at.ledger] if at.ledger else [], "the ledger's records")


@check("target.in-sync", layer="flow", per="flow", fix="bring the brokers back, or lower min.insync.replicas")
def _in_sync(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Remote topics and ledger have enough replicas in sync to take a write (min.insync.replicas): else nothing is sent."""
    names = {state.name for state in at.remotes.values()} | ({at.ledger.name} if at.ledger else set())
    layout, settings = at.target.topic_metadata.layout(), at.target.topic_metadata.settings(names)
    refused, thin = [], []
    for name in sorted(names):
        least = int(value(settings.get(name, {}), "min.insync.replicas", "1"))
        for one in layout.get(name, ()):
            if one.leader is None or len(one.isr) < least:
                refused.append(f"{name}-{one.partition} ({len(one.isr)} of {least})")
            elif len(one.isr) < len(one.replicas):
                thin.append(f"{name}-{one.partition}")
    if refused:
        fix = f"bring the brokers of {at.flow.target} back, or lower min.insync.replicas of the topics"
        yield failure(at.flow.name, f"too few replicas in sync to take a write: {some(refused)}", fix)
    if thin:
        fix = f"bring the brokers of {at.flow.target} back"
        yield warning(at.flow.name, f"{plural(len(thin), 'partition')} with replicas out of sync: {some(thin)}", fix)
    if not refused and not thin:
        yield fine(at.flow.name, "all replicas are in sync")


@check(
    "target.transaction-timeout",
    layer="flow",
    per="flow",
    fix="producer: {transaction.timeout.ms: …} up to the brokers' limit",
)
def _transaction_timeout(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """The brokers permit transactions as long as the flow asks for (transaction.max.timeout.ms): else no lane can begin."""
    if at.flow.delivery != "exactly_once":
        yield fine(at.flow.name, "sends without transactions")
        return
    asked = int(at.inputs.context.producer_options(at.flow).get("transaction.timeout.ms", 60_000))
    allowed = at.inputs.broker_configs(at.flow.target).get("transaction.max.timeout.ms")
    if allowed is not None and asked > int(allowed):
        yield failure(
            at.flow.name,
            f"transaction.timeout.ms is {asked}, and {at.flow.target} permits {allowed}: no lane can begin",
            f"set producer: {{transaction.timeout.ms: {allowed}}} for {at.flow.name}, or raise the brokers' limit",
        )
    else:
        yield fine(
            at.flow.name,
            f"{format_duration(asked)} of {format_duration(int(allowed)) if allowed else 'what is permitted'}",
        )
