"""Checks of a flow's topics on source and target: records lost, refused or deleted there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mirrorlake.doctor.check_context import FlowCheckContext, value
from mirrorlake.doctor.findings import CheckOutcome, failure, fine, some, warning
from mirrorlake.doctor.registry import check
from mirrorlake.kafka import TopicSetting, TopicState
from mirrorlake.lag import Monitor, age_ms, read_offset_bytes
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import merged_remotes
from mirrorlake.model.patterns import shape_of
from mirrorlake.render import format_count, format_duration, format_size, plural
from mirrorlake.republish import inspect_remote_topics, merged_positions

_AHEAD_MS = 60_000
# `transaction.max.timeout.ms` of a broker, by default.
_HUNG_MS = 15 * 60_000
# Early enough before a retention ends that somebody can act.
_SHARE = 0.8


# -- the source ------------------------------------------------------------------------------------------------------


@check("source.topics", layer="flow", per="flow", fix="correct `topics` of the flow, or create the topic")
def _topics(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """The flow selects topics that the source has, and each plain name of its list is one: a name with a typing error is silent."""
    flow, topics = at.flow, at.topics
    partitions = sum(one.partitions for one in topics.values())
    if not topics:
        fix = f"check `topics` of the flow against the topics of {flow.source}"
        yield failure(flow.name, f"0 topics selected of {format_count(len(at.all_names))} on {flow.source}", fix)
        return
    names = [shape_of(one).literal for one in flow.topics.expressions]
    absent = [name for name in names if name and name not in at.all_names]
    if absent:
        fix = f"correct `topics` of the flow, or create the topic on {flow.source}"
        yield warning(flow.name, f"{flow.source} has no topic {some(absent)}", fix)
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


@check(
    "source.retention",
    layer="flow",
    per="flow",
    fix="mirrorlake land --source A --once now; raise retention.ms of the topic",
)
def _source_retention(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """Law E: the source deleted nothing before it was landed, and will not soon; in an idle topic nobody waits."""
    at.snapshot.require(("cluster", at.flow.source), ("relay", at.flow.source))
    seen, waiting = at.snapshot.positions, dict[str, list[_Unlanded]]()
    for key, landed in seen.items():
        end = seen.get(key._replace(kind="last_stable"), 0)
        if key.kind == "reached" and landed < end and at.flow.carries(key.topic):
            first = seen.get(key._replace(kind="earliest"), 0)
            waiting.setdefault(key.topic, []).append(_Unlanded(SourcePartition(*key[2:5]), first, landed, end))
    found = [outcome for name, rows in waiting.items() for outcome in _expiring(at, name, rows)]
    yield from found or [fine(at.flow.name, "nothing was or will soon be deleted before it is landed")]


class _Unlanded(NamedTuple):
    """A source partition with offsets that are not landed: its first offset, the next one to land, and its end."""

    source: SourcePartition
    first: int
    landed: int
    end: int


def _expiring(at: FlowCheckContext, name: str, waiting: Sequence[_Unlanded]) -> Iterator[CheckOutcome]:
    alias = at.flow.source
    span = at.inputs.landed(alias).get(name)
    if span is None:
        return
    gone = [row.first - row.landed for row in waiting if row.first > row.landed]
    if gone:
        yield failure(
            name,
            f"{sum(gone)} offsets of {plural(len(gone), 'partition')} left {alias} before they were landed",
            f"mirrorlake land --source {alias} --once says which; raise retention.ms or retention.bytes of {name}",
        )
    settings = at.settings.get(name, {})
    retention, policy = int(value(settings, "retention.ms", "-1")), value(settings, "cleanup.policy", "delete")
    age_ms = at.inputs.now_ms - span.newest
    if "delete" in policy and retention > 0 and age_ms > retention * _SHARE:
        yield failure(
            name,
            f"records of {plural(len(waiting), 'partition')} are not landed, and {alias} may delete them in "
            f"{format_duration(max(0, retention - age_ms))}: the newest landed record is {format_duration(age_ms)} old, "
            f"{format_duration(retention)} are kept",
            f"mirrorlake land --source {alias} --once now, or raise retention.ms of {name}",
        )
    keeps = int(value(settings, "retention.bytes", "-1"))
    if "delete" in policy and keeps >= 0:
        yield from _filling(at, name, waiting, keeps)
    tombstones = int(value(settings, "delete.retention.ms", "-1"))
    if "compact" in policy and 0 <= tombstones < age_ms:
        yield warning(
            name,
            f"compacted, and landing stands {format_duration(age_ms)} back: {alias} keeps tombstones for "
            f"{format_duration(tombstones)}, so keys that were deleted since may stay on the target",
            f"mirrorlake land --source {alias} --once, then compare with mirrorlake verify; raise delete.retention.ms of {name}",
        )


def _filling(at: FlowCheckContext, name: str, waiting: Sequence[_Unlanded], keeps: int) -> Iterator[CheckOutcome]:
    """Yield a failure if nearly as many bytes wait as the source retains, by an estimate that is never too small."""
    alias = at.flow.source
    sizes = read_offset_bytes(at.inputs.lake, {(alias, row.source): row.landed for row in waiting})
    most = [(row.end - row.landed) * sizes.get((alias, row.source), 0) for row in waiting]
    full = [each for each in most if each > keeps * _SHARE]
    if full:
        yield failure(
            name,
            f"by estimate up to {format_size(max(full))} of a partition are not landed, and {alias} keeps {format_size(keeps)} "
            f"(retention.bytes): {plural(len(full), 'partition')} may lose records soon",
            f"mirrorlake land --source {alias} --once now, or raise retention.bytes of {name}",
        )


@check("transactions.open", layer="flow", per="flow", fix="kafka-transactions find-hanging, then abort, on the source")
def _transactions_open(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No transaction on the source is open for a minute: records after it are hidden from every reader, this one too.

    A broker ends a transaction within a quarter of an hour, unless it hangs or a longer time-out is allowed: then it is a failure.
    """
    source, inputs = at.flow.source, at.inputs
    stable = {} if inputs.is_lake(source) else inputs.admin(source).last_stable_offsets(at.partitions)
    found = inputs.context.shared(Monitor).find_hanging_transactions(source, stable)
    for tp, one in sorted(found.items()):
        outcome = failure if age_ms(one.since_ms, inputs.now) > _HUNG_MS else warning
        abort = f"abort --topic {tp.topic} --partition {tp.partition} --start-offset {one.offset}"
        yield outcome(
            str(tp), one.describe(inputs.now), f"kafka-transactions --bootstrap-server … {abort}, on {source}"
        )
    yield fine(at.flow.name, f"{plural(len(found), 'partition')} with a transaction that is open for a minute")


@check("clock.skew", layer="flow", per="flow", finds="warning", fix="NTP on this machine and on the producers'")
def _clock_skew(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No record is from the future, by this machine's clock: time lag, RPO and retention are wrong by as much as clocks differ."""
    if at.inputs.is_lake(at.flow.source):
        yield fine(at.flow.name, "applications publish by this machine's clock")
        return
    newest = at.inputs.admin(at.flow.source).topic_metadata.newest_times(at.partitions)
    ahead = {tp: ms - at.inputs.now_ms for tp, ms in newest.items() if ms - at.inputs.now_ms > _AHEAD_MS}
    if ahead:
        worst = max(ahead, key=lambda tp: ahead[tp])
        yield warning(
            at.flow.name,
            f"records of {plural(len(ahead), 'partition')} are from the future, those of {worst} by {format_duration(ahead[worst])}",
            f"compare the clocks of this machine and of {at.flow.source}'s producers (NTP)",
        )
    else:
        yield fine(at.flow.name, "no record is from the future")


# -- the target ------------------------------------------------------------------------------------------------------


@check("target.remote-topics", layer="flow", per="flow", fix="the finding names the two commands to choose between")
def _remote_topics(at: FlowCheckContext) -> Iterator[CheckOutcome]:
    """No remote topic that records were sent to was deleted, created again or cut: nothing is sent to it until a person chooses."""
    last = at.last_records
    held, _ = inspect_remote_topics(at.flow, at.target, merged_remotes(last), merged_positions(last))
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
        wanted = at.flow.placement.remote_partitions(name, at.topics[name].partitions)
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
    spans = at.inputs.landed(at.flow.source)
    for name, remote, _, there in _each(at):
        retention, policy = int(value(there, "retention.ms", "-1")), value(there, "cleanup.policy", "delete")
        oldest = spans[name].oldest if name in spans else None
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
