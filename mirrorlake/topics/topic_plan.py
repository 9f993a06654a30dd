"""Remote topics and what they should be: partitions and settings, as a plan (law G)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.kafka.admin import ClusterAdmin, TopicState
from mirrorlake.lake.metadata import KnownTopic
from mirrorlake.model.loops.collisions import collide
from mirrorlake.model.plan import Change, Plan, TopicSpec, topic_changes
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.model.topic_configs import given_up
from mirrorlake.topics.remote_topics import rival, wanted_remote_topic
from mirrorlake.topics.sources import TopicSource

Configs = Mapping[str, Mapping[str, str]]
Admins = Mapping[str, ClusterAdmin]
Sources = Mapping[str, TopicSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class BothEnds:
    """The topics of one flow on its source and on its target, as they are now.

    Attributes:
        source: the source's topics that the flow carries.
        source_configs: what each of them sets itself.
        remote: the remote topics that exist on the target.
        remote_configs: what each of them sets itself.
        source_names: every topic of the source that may be seen.
        target_names: every topic of the target that may be seen.
    """

    source: Mapping[str, TopicState]
    source_configs: Configs
    remote: Mapping[str, TopicState]
    remote_configs: Configs
    source_names: tuple[str, ...]
    target_names: tuple[str, ...]


def look(flow: FlowConfig, sources: Sources, admins: Admins) -> BothEnds:
    """Read both ends: six requests, however many topics there are.

    Raises:
        NotAuthorized: the source hides its topics, or a topic may not be described.
        ClusterError: a cluster does not answer.
    """
    source, target = sources[flow.source], admins[flow.target]
    source_names, target_names = source.topic_names(), target.topic_names()
    names = [name for name in source_names if flow.carries(name)]
    if not names:
        source.require_topics(flow.topics)
    states = source.describe(names)
    remote = target.describe({flow.remote_topic(name) for name in states})
    return BothEnds(
        source=states,
        source_configs=source.configs(states),
        remote=remote,
        remote_configs=target.configs(remote),
        source_names=tuple(source_names),
        target_names=tuple(target_names),
    )


def require_source(admin: ClusterAdmin, flows: Iterable[FlowConfig]) -> None:
    """Check that the topics of the flows may be seen and read on their source.

    Raises:
        NotAuthorized: names the ACL that is missing.
    """
    names = admin.topic_names()
    for flow in flows:
        carried = [name for name in names if flow.carries(name)]
        if not carried:
            admin.require_topics(flow.topics)
        admin.require(carried, "READ")


def topic_plan(
    flow: FlowConfig, ends: BothEnds, *, copied: Callable[[], Configs], waiting: Iterable[HeldTopic] = ()
) -> Plan:
    """Plan the changes that turn the remote topics into what the flow wants.

    Args:
        flow: the flow.
        ends: its topics on both clusters.
        copied: returns the settings that mirrorlake made on the target; asked for only where one may have to go.
        waiting: remote topics that were lost; nothing of them is made or changed (law F).
    """
    lost = {one.remote: one for one in waiting}
    by_remote: dict[str, list[KnownTopic]] = {}
    for name, state in ends.source.items():
        topic = KnownTopic(
            name=name,
            generation=1,
            topic_id=state.topic_id,
            partitions=state.partitions,
            configs=dict(ends.source_configs.get(name, {})),
        )
        by_remote.setdefault(flow.remote_topic(name), []).append(topic)
    changes = [change for topics in by_remote.values() for topic in topics for change in _unmapped(flow, topic)]
    changes += [_held(one) for one in lost.values()]
    for remote, topics in sorted(by_remote.items()):
        if remote in lost:
            continue
        wanted, held = wanted_remote_topic(flow, topics), ends.remote.get(remote)
        actual: TopicSpec | None = None
        reset: tuple[str, ...] = ()
        if held is not None:
            configs = ends.remote_configs.get(remote, {})
            actual = TopicSpec(name=remote, partitions=held.partitions, configs=configs)
            if configs.keys() - wanted.configs.keys():
                rule = partial(flow.sync.config_sync.rule, min(topic.name for topic in topics))
                reset = given_up(
                    configs,
                    wanted=wanted.configs,
                    copied=copied().get(remote, {}),
                    rule=rule,
                )
        for change in topic_changes(where=flow.target, wanted=wanted, actual=actual, given_up=reset, flow=flow.name):
            if change.action == "add_partitions" and not flow.sync.partitions:
                reason = "the source has more partitions and sync.partitions is false"
                change = replace(change, action="conflict", reason=reason)
            changes.append(change)
    return Plan(tuple(changes))


def name_conflicts(
    flow: FlowConfig, ends: BothEnds, *, others: Iterable[tuple[FlowConfig, Iterable[str]]]
) -> list[Change]:
    """Return the remote topics of a flow that it may not write: another flow does, or Kafka treats two names as one.

    Args:
        flow: the flow.
        ends: its topics on both clusters.
        others: the flows beside it, each with the topics that are known of its source.
    """
    others = [(other, tuple(names)) for other, names in others]
    ours = {flow.remote_topic(name): name for name in sorted(ends.source)}
    theirs = {*ends.target_names, *ours}
    theirs |= {
        other.remote_topic(name)
        for other, names in others
        if other.target == flow.target
        for name in names
        if other.carries(name)
    }
    unified: dict[str, list[str]] = {}
    for name in theirs:
        unified.setdefault(name.replace(".", "_"), []).append(name)
    found = []
    for remote, name in ours.items():
        met = rival(flow, name, others)
        alike = [each for each in sorted(unified[remote.replace(".", "_")]) if collide(each, remote)]
        if met is not None:
            reason = f"{met[0].name} writes it too, from {met[1]} on {met[0].source}, and neither says that they merge"
        elif alike and remote not in ends.target_names:
            reason = f"it differs from {alike[0]} in . and _ only, and Kafka treats them as one in its metrics"
        else:
            continue
        found.append(
            Change(
                where=flow.target,
                kind="topic",
                name=remote,
                action="conflict",
                after=name,
                reason=reason,
                flow=flow.name,
            )
        )
    return found


def _held(one: HeldTopic) -> Change:
    reason, before = f"{one.cause}; {one.remedy}", one.known or None
    after = one.found or "gone"
    return Change(
        where=one.target,
        kind="topic",
        name=one.remote,
        action="held",
        before=before,
        after=after,
        reason=reason,
        flow=one.flow,
    )


def _unmapped(flow: FlowConfig, topic: KnownTopic) -> list[Change]:
    missing = flow.placement.unmapped(topic.name, topic.partitions)
    reason = f"`placement` maps no place for source partition {', '.join(map(str, missing))}; add it to the settings"
    change = Change(
        where=flow.target,
        kind="topic",
        name=flow.remote_topic(topic.name),
        action="conflict",
        after=f"{topic.partitions} source partitions",
        reason=reason,
        flow=flow.name,
    )
    return [change] if missing else []
