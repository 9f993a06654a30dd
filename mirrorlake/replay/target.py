"""Plan the topic that a replay writes, and refuse one whose settings would reject or delete its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.context import Context
from mirrorlake.kafka import ClusterAdmin, TopicState
from mirrorlake.lake import KnownTopic, Lake, newest_topics
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.plan import Change, topic_changes
from mirrorlake.model.replay import Definition
from mirrorlake.procedure import Refusal
from mirrorlake.render import format_duration
from mirrorlake.replay.request import ReplayConsent
from mirrorlake.topics import wanted_remote_topic

# Broker names of the settings that a topic inherits; a missing one has Kafka's default.
_INHERITED = {
    "retention.ms": "log.retention.ms",
    "cleanup.policy": "log.cleanup.policy",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
}
_LONGER = {"log.retention.minutes": timedelta(minutes=1), "log.retention.hours": timedelta(hours=1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLook:
    """The changes, refusals and notes of a replay's remote topic."""

    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


def look_at_target(
    context: Context, definition: Definition, flow: FlowConfig, *, begun: bool, leave: ReplayConsent
) -> TargetLook:
    """Check the topic that a replay writes; if it was `begun`, the records in it are its own."""
    config, admin, topic = context.config, context.admin(flow.target), definition.topic
    spec = wanted_remote_topic(flow, [KnownTopic(name=topic.name, partitions=topic.partitions, configs=topic.configs)])
    state = admin.describe([spec.name]).get(spec.name)
    changes: Iterable[Change] = ()
    refusals: list[Refusal] = []
    if state is None:
        settings: Mapping[str, str | None] = {**_broker_defaults(admin), **spec.configs}
        changes = topic_changes(where=flow.target, wanted=spec, actual=None, flow=flow.name)
    else:
        settings = admin.effective_configs(spec.name)
        if state.partitions < spec.partitions or (spec.is_keyed and state.partitions != spec.partitions):
            counts = f"{state.partitions} partitions on {flow.target}, and the replay needs {spec.partitions}"
            refusals.append(Refusal(why=f"{spec.name} has {counts}", remedy="name another topic with --into"))
        if not begun and not leave.append:
            refusals += _content(admin, state, flow)
    age = _ages(definition, context.now())
    if age is not None:
        refusals += _expiring(spec.name, settings, *age, is_made=state is None, accept=leave.accept_expiry)
    refusals += _written_by_flows(spec.name, flow, config, context.lake)
    return TargetLook(
        changes=tuple(changes), refusals=tuple(refusals), notes=tuple(_onward(definition, spec.name, flow, config))
    )


def _ages(definition: Definition, now: datetime) -> tuple[timedelta, timedelta] | None:
    stamps = [
        definition.sent_ms(ms) for span in definition.spans for ms in (span.oldest_ms, span.newest_ms) if ms is not None
    ]
    now_ms = int(now.timestamp() * 1000)
    ages = [timedelta(milliseconds=now_ms - stamp) for stamp in stamps]
    return (max(ages), min(ages)) if ages else None


def _broker_defaults(admin: ClusterAdmin) -> dict[str, str | None]:
    broker = admin.broker_configs()
    found = {name: broker.get(origin) for name, origin in _INHERITED.items()}
    if found["retention.ms"] is None:
        for name, unit in _LONGER.items():
            if (value := broker.get(name)) is not None:
                length = int(value) * (unit // timedelta(milliseconds=1))
                found["retention.ms"] = str(length) if int(value) >= 0 else "-1"
                break
    return found


def _expiring(
    topic: str,
    settings: Mapping[str, str | None],
    oldest: timedelta,
    newest: timedelta,
    *,
    is_made: bool,
    accept: bool,
) -> list[Refusal]:
    if settings.get("message.timestamp.type") == "LogAppendTime":
        # The broker overwrites the records' timestamps.
        return []
    found = []
    before, after = (_length(settings.get(f"message.timestamp.{way}.max.ms")) for way in ("before", "after"))
    other = "--timestamps shifted keeps the distances and ends at now"
    if before is not None and oldest > before:
        found.append(
            Refusal(
                why=f"{topic} refuses records older than {format_duration(before)} (message.timestamp.before.max.ms), and the oldest "
                f"is {format_duration(oldest)} old",
                remedy=f"raise the setting, or {other}",
            )
        )
    if after is not None and -newest > after:
        found.append(
            Refusal(
                why=f"{topic} refuses records of more than {format_duration(after)} ahead (message.timestamp.after.max.ms), and the "
                f"newest is {format_duration(-newest)} ahead",
                remedy=f"raise the setting, or {other}",
            )
        )
    retention = _length(settings.get("retention.ms"))
    if retention is not None and oldest > retention and "delete" in (settings.get("cleanup.policy") or "delete"):
        keep = "--hold-retention makes the topic without an end of its records; " if is_made else ""
        if not accept:
            found.append(
                Refusal(
                    why=f"{topic} keeps records for {format_duration(retention)} (retention.ms), and the oldest is "
                    f"{format_duration(oldest)} old: what is older would be deleted as soon as it is sent",
                    remedy=f"{keep}{other}",
                    flag="--accept-expiry",
                )
            )
    return found


def _length(text: str | None) -> timedelta | None:
    """Parse milliseconds; None if unset or unlimited."""
    value = int(text) if text is not None else -1
    # Kafka's default is the largest int64, which exceeds Python's `timedelta`.
    return None if value < 0 or value >= 10**15 else timedelta(milliseconds=value)


def _content(admin: ClusterAdmin, state: TopicState, flow: FlowConfig) -> list[Refusal]:
    partitions = [TopicPartition(state.name, number) for number in range(state.partitions)]
    first, end = admin.log_start_offsets(partitions), admin.high_watermarks(partitions)
    held = sum(end[tp] - first[tp] for tp in partitions)
    if not held:
        return []
    return [
        Refusal(
            why=f"{state.name} on {flow.target} holds {held:,} offsets that this replay did not write",
            remedy="name another topic with --into",
            flag="--append",
        )
    ]


def _written_by_flows(remote: str, flow: FlowConfig, config: MirrorConfig, lake: Lake) -> Iterable[Refusal]:
    for other in config.flows_to(flow.target):
        known = newest_topics(lake, other.source, "source", missing_ok=True)
        if remote in {other.remote_topic(name) for name in known if other.carries(name)}:
            yield Refusal(
                why=f"{other.name} writes {remote} on {flow.target}: its offset map, its groups and its verification "
                "would meet records that are not its own",
                remedy="name another topic with --into",
            )


def _onward(definition: Definition, remote: str, flow: FlowConfig, config: MirrorConfig) -> Iterable[str]:
    for other in config.flows_from(flow.target):
        if other.carries(remote) and definition.hops and other.adds_hops:
            yield f"{other.name} selects {remote}; a header keeps what comes from {flow.source} from going back there"
        elif other.carries(remote):
            yield (
                f"{other.name} mirrors {remote} on to {other.target} as {other.remote_topic(remote)}, as it does "
                f"with every topic of {flow.target} that it selects"
            )
