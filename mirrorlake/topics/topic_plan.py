"""Remote topics and what they should be: partitions and settings, as a plan (law G)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, TopicState
from mirrorlake.lake import Audit, KnownTopic
from mirrorlake.model.loops.collisions import unified
from mirrorlake.model.plan import Change, Plan, TopicSpec, topic_changes
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.model.topic_configs import given_up
from mirrorlake.topics.remote_topics import rivals, wanted_remote_topic
from mirrorlake.topics.sources import TopicSource

Configs = Mapping[str, Mapping[str, str]]
Admins = Mapping[str, ClusterAdmin]
Sources = Mapping[str, TopicSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class BothEnds:
    """The topics that a flow carries, and their remote topics that exist, as they are now.

    `configs` are the settings that each topic makes itself, `names` every topic of the cluster that may be seen.
    """

    source: Mapping[str, TopicState]
    source_configs: Configs
    remote: Mapping[str, TopicState]
    remote_configs: Configs
    target_names: tuple[str, ...]


def look(
    flow: FlowConfig,
    sources: Sources,
    admins: Admins,
    *,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> BothEnds:
    """Read both ends: six requests, however many topics there are; `tell` gets how many were read on both ends.

    Raises:
        NotAuthorized: the source hides its topics, or a topic may not be described.
        ClusterError: a cluster does not answer.
    """
    source, target = sources[flow.source], admins[flow.target]
    names, target_names = [name for name in source.topic_names() if flow.carries(name)], target.topic_names()
    if not names:
        source.require_topics(flow.topics)
    tell(0, len(names))
    states = source.describe(names)
    source_configs = source.configs(states)
    tell(len(names) // 2, len(names))
    remote = target.describe({flow.remote_topic(name) for name in states})
    remote_configs = target.configs(remote)
    tell(len(names), len(names))
    return BothEnds(
        source=states,
        source_configs=source_configs,
        remote=remote,
        remote_configs=remote_configs,
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


def topic_plan(flow: FlowConfig, ends: BothEnds, audit: Audit, *, waiting: Iterable[HeldTopic] = ()) -> Plan:
    """Plan the changes that turn the remote topics into what the flow wants.

    `audit` knows the settings that mirrorlake made on the target; `waiting` are remote topics that were lost: nothing of them
    is made or changed (law F).
    """
    lost = {one.remote: one for one in waiting}
    by_remote: dict[str, list[KnownTopic]] = {}
    for name, state in ends.source.items():
        configs = ends.source_configs.get(name, {})
        topic = KnownTopic(name=name, partitions=state.partitions, configs=configs)
        by_remote.setdefault(flow.remote_topic(name), []).append(topic)
    changes = [change for topics in by_remote.values() for topic in topics for change in _unmapped(flow, topic)]
    changes += [_held(one) for one in lost.values()]
    wanted = {r: wanted_remote_topic(flow, topics) for r, topics in sorted(by_remote.items()) if r not in lost}
    actual = {
        name: TopicSpec(name=name, partitions=state.partitions, configs=ends.remote_configs.get(name, {}))
        for name, state in ends.remote.items()
    }
    others = {
        name for name, spec in wanted.items() if name in actual and actual[name].configs.keys() - spec.configs.keys()
    }
    copied = audit.copied_configs(flow.target) if others else {}
    for name, spec in wanted.items():
        reset: tuple[str, ...] = ()
        if name in others:
            rule = partial(flow.sync.config_sync.rule, min(topic.name for topic in by_remote[name]))
            reset = given_up(actual[name].configs, wanted=spec.configs, copied=copied.get(name, {}), rule=rule)
        found = topic_changes(where=flow.target, wanted=spec, actual=actual.get(name), given_up=reset, flow=flow.name)
        for change in found:
            if change.action == "add_partitions" and not flow.sync.partitions:
                reason = "the source has more partitions and sync.partitions is false"
                change = replace(change, action="conflict", reason=reason)
            changes.append(change)
    return Plan(tuple(changes))


def name_conflicts(
    flow: FlowConfig, ends: BothEnds, *, others: Iterable[tuple[FlowConfig, Iterable[str]]]
) -> list[Change]:
    """Find the remote topics of a flow that it may not write: another flow does, or Kafka treats two names as one.

    `others` are the other flows, each with the topics that are known of its source.
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
    by_unified: dict[str, list[str]] = {}
    for name in theirs:
        by_unified.setdefault(unified(name), []).append(name)
    written = rivals(flow, others)
    found = []
    for remote, name in ours.items():
        met = written.get(remote)
        alike = [each for each in sorted(by_unified[unified(remote)]) if each != remote]
        if met is not None:
            reason = f"{met[0].name} writes it too, from {met[1]} on {met[0].source}, and neither says that they merge"
        elif alike and remote not in ends.target_names:
            reason = f"it differs from {alike[0]} in . and _ only, and Kafka treats them as one in its metrics"
        else:
            continue
        found.append(_conflict(flow, remote, name, reason))
    return found


def rivals_of(flow: FlowConfig, flows: Iterable[FlowConfig]) -> list[FlowConfig]:
    """List the other flows to the same target."""
    return [other for other in flows if other.target == flow.target and other.name != flow.name]


def _held(one: HeldTopic) -> Change:
    return Change(
        where=one.target,
        kind="topic",
        name=one.remote,
        action="held",
        before=one.known or None,
        after=one.found or "gone",
        reason=f"{one.cause}; {one.remedy}",
        flow=one.flow,
    )


def _unmapped(flow: FlowConfig, topic: KnownTopic) -> list[Change]:
    missing = flow.placement.unmapped(topic.name, topic.partitions)
    if not missing:
        return []
    reason = f"`placement` maps no place for source partition {', '.join(map(str, missing))}; add it to the settings"
    return [_conflict(flow, flow.remote_topic(topic.name), f"{topic.partitions} source partitions", reason)]


def _conflict(flow: FlowConfig, remote: str, after: str, reason: str) -> Change:
    return Change(
        where=flow.target, kind="topic", name=remote, action="conflict", after=after, reason=reason, flow=flow.name
    )
