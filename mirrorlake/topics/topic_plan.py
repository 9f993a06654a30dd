"""Plan the partitions and settings of remote topics (law G)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, TopicState
from mirrorlake.lake import Audit, KnownTopic
from mirrorlake.model.loops.collisions import unified
from mirrorlake.model.plan import Change, Plan, TopicSpec, topic_changes
from mirrorlake.model.policy import name_fault
from mirrorlake.model.remotes import LostTopic
from mirrorlake.model.topic_configs import given_up
from mirrorlake.topics.filled_topics import FilledTopics
from mirrorlake.topics.remote_conflicts import rivals
from mirrorlake.topics.remote_topics import wanted_remote_topic
from mirrorlake.topics.sources import TopicSource

Configs = Mapping[str, Mapping[str, str]]
Admins = Mapping[str, ClusterAdmin]
Sources = Mapping[str, TopicSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class BothEnds:
    """`source_configs` and `remote_configs` are the topics' own settings, `source_names` and `target_names` all visible topics."""

    source: Mapping[str, TopicState]
    source_configs: Configs
    remote: Mapping[str, TopicState]
    remote_configs: Configs
    target_names: tuple[str, ...]
    source_names: tuple[str, ...] = ()


def look(
    flow: FlowConfig,
    sources: Sources,
    admins: Admins,
    *,
    tell: Callable[[int, int], None] = lambda _done, _total: None,
) -> BothEnds:
    """Read both ends in six requests for any number of topics; `tell` gets the count of topics read."""
    source, target = sources[flow.source], admins[flow.target]
    source_names, target_names = source.topic_names(), target.topic_names()
    names = [name for name in source_names if flow.carries(name)]
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
        source_names=tuple(source_names),
    )


def require_source(admin: ClusterAdmin, flows: Iterable[FlowConfig]) -> None:
    """Check that the principal may see and read the topics of the flows on their source."""
    names = admin.topic_names()
    for flow in flows:
        carried = [name for name in names if flow.carries(name)]
        if not carried:
            admin.require_topics(flow.topics)
        admin.require(carried, "READ")


def topic_plan(
    flow: FlowConfig,
    ends: BothEnds,
    audit: Audit,
    *,
    waiting: Iterable[LostTopic] = (),
    beside: Iterable[FlowConfig] = (),
    led: Collection[str] = (),
) -> Plan:
    """Plan the changes that the flow's remote topics need; lost remote topics (`waiting`) are neither made nor changed (law F).

    Law G: no two flows overwrite each other's settings of one topic (`SettingsOfPair`; `led` has those that another flow decides).
    """
    lost = {one.remote: one for one in waiting}
    pair = SettingsOfPair(flow, tuple(beside), audit)
    by_remote: dict[str, list[KnownTopic]] = {}
    for name, state in ends.source.items():
        configs = ends.source_configs.get(name, {})
        topic = KnownTopic(name=name, partitions=state.partitions, configs=configs)
        by_remote.setdefault(flow.remote_topic(name), []).append(topic)
    changes = [_held(one) for one in lost.values()]
    unnamable = {remote: fault for remote in sorted(by_remote) if (fault := name_fault(remote))}
    for remote, fault in unnamable.items():
        reason, names = f"{fault.cause}; {fault.remedy}", ", ".join(topic.name for topic in by_remote[remote])
        changes.append(_change(flow, remote, "held", names, reason))
    wanted = {
        remote: wanted_remote_topic(flow, topics)
        for remote, topics in sorted(by_remote.items())
        if remote not in lost and remote not in unnamable
    }
    actual = {
        name: TopicSpec(name=name, partitions=state.partitions, configs=ends.remote_configs.get(name, {}))
        for name, state in ends.remote.items()
    }
    for name in wanted.keys() & actual.keys():
        origin = min(one.name for one in by_remote[name])
        configs = actual[name].configs if name in led else pair.kept(origin, wanted[name], actual[name])
        wanted[name] = replace(wanted[name], configs=configs)
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


class SettingsOfPair:
    """Choose the settings that a flow copies if another flow carries its topics back (law G).

    A setting that mirrorlake copied to the source came from the target and is not copied back. If both clusters set a value
    themselves, the source of the flow that comes first in the file decides.
    """

    def __init__(self, flow: FlowConfig, flows: Sequence[FlowConfig], audit: Audit) -> None:
        self._flow = flow
        self._audit = audit
        self._back = [
            each
            for each in flows
            if (each.source, each.target) == (flow.target, flow.source) and each.sync.config_sync.enabled
        ]
        names = [each.name for each in flows]
        self._first = {flow.name, *names[: names.index(flow.name) + 1 if flow.name in names else 0]}

    def kept(self, topic: str, wanted: TopicSpec, actual: TopicSpec) -> Mapping[str, str]:
        back = next((e for e in self._back if e.carries(wanted.name) and e.remote_topic(wanted.name) == topic), None)
        differing = {key for key, value in wanted.configs.items() if actual.configs.get(key) != value}
        if back is None or not differing:
            return wanted.configs
        flow = self._flow
        to_source = self._copied[flow.source].get(topic, {})
        to_target = self._copied[flow.target].get(wanted.name, {})

        def goes(key: str) -> bool:
            if flow.sync.config_sync.rule(topic, key).sync_class == "overridden":
                return True
            held = actual.configs.get(key)
            is_own_there = held is not None and held != to_target.get(key)
            return wanted.configs[key] != to_source.get(key) and (back.name not in self._first or not is_own_there)

        stays = {key for key in differing if not goes(key)}
        there = {key: actual.configs[key] for key in stays if key in actual.configs}
        return {key: value for key, value in wanted.configs.items() if key not in stays} | there

    @cached_property
    def _copied(self) -> dict[str, dict[str, dict[str, str]]]:
        return {alias: self._audit.copied_configs(alias) for alias in (self._flow.source, self._flow.target)}


def led_by_others(
    flow: FlowConfig, flows: Iterable[FlowConfig], *, names: Callable[[FlowConfig], Iterable[str]]
) -> set[str]:
    """List the remote topics whose settings an earlier flow of the file decides, because it writes them, too.

    `names` returns the known topics of a flow's source.
    """
    before = takewhile(lambda other: other.name != flow.name, flows)
    return {
        other.remote_topic(name)
        for other in before
        if other.target == flow.target and other.sync.config_sync.enabled and flow.may_share(other)
        for name in names(other)
        if other.carries(name)
    }


def name_conflicts(
    flow: FlowConfig, ends: BothEnds, *, others: Iterable[tuple[FlowConfig, Iterable[str]]]
) -> list[Change]:
    """Find the remote topics that another flow writes, or whose name Kafka's metrics treat as that of another topic.

    `others` are the other flows, each with the known topics of its source.
    """
    others = [(other, tuple(names)) for other, names in others]
    names = {flow.remote_topic(name): name for name in sorted(ends.source)}
    ours = {remote: name for remote, name in names.items() if not name_fault(remote)}
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
            reason = f"{met[0].name} also writes it, from {met[1]} on {met[0].source}, and no template merges the two"
        elif alike and remote not in ends.target_names:
            reason = f"it differs from {alike[0]} in . and _ only, so Kafka's metrics would mix the two"
        else:
            continue
        found.append(_change(flow, remote, "conflict", name, reason))
    return found


def filled_conflicts(flow: FlowConfig, ends: BothEnds, filled: FilledTopics) -> list[Change]:
    sources: dict[str, list[str]] = {}
    for name in sorted(ends.source):
        sources.setdefault(flow.remote_topic(name), []).append(name)
    found = filled.refuse(ends.remote, sources)
    return [
        _change(flow, one, "conflict", sources[one][0], f"{why.cause}; {why.remedy}")
        for one, why in sorted(found.items())
    ]


def rivals_of(flow: FlowConfig, flows: Iterable[FlowConfig]) -> list[FlowConfig]:
    return [other for other in flows if other.target == flow.target and other.name != flow.name]


def _held(one: LostTopic) -> Change:
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


def _change(flow: FlowConfig, remote: str, action: str, after: str, reason: str) -> Change:
    return Change(
        where=flow.target, kind="topic", name=remote, action=action, after=after, reason=reason, flow=flow.name
    )
