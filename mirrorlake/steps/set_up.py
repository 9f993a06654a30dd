"""Plan and apply: relay tables, ledgers and remote topics as the settings want them (law G: shown first)."""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import TopicConflict
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.ledger import ledger_spec
from mirrorlake.kafka.mm2 import mm2_topics
from mirrorlake.model.plan import Change, Plan, TopicSpec, topic_changes
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import AUDIT
from mirrorlake.streams.targets import wanted_remote_topic
from mirrorlake.streams.topics import KnownTopic

Admins = Mapping[str, ClusterAdmin]


def make_plan(flows: Iterable[FlowConfig], *, admins: Admins, lake: Lake) -> Plan:
    """Return what has to change for the flows; reads the clusters and the lake and changes nothing.

    Raises:
        ClusterError: a cluster does not answer or does not allow the look.
    """
    flows = list(flows)
    missing = lake.missing(sorted({flow.source for flow in flows}))
    changes = [
        Change(where="lake", kind="table", name=location, action="create", after="table", reason="missing in the lake")
        for location in missing
    ]
    for flow in flows:
        changes += _ledger_changes(flow, admins[flow.target])
        changes += _topic_changes(flow, admins)
        changes += _mm2_changes(flow, admins[flow.target])
    return Plan(tuple(changes))


def _ledger_changes(flow: FlowConfig, target: ClusterAdmin) -> list[Change]:
    actual = target.describe([flow.ledger_topic]).get(flow.ledger_topic)
    spec = ledger_spec(flow.ledger_topic, flow.lanes)
    held = None if actual is None else TopicSpec(name=actual.name, partitions=actual.partitions, configs=spec.configs)
    return topic_changes(where=flow.target, wanted=spec, actual=held)


def _mm2_changes(flow: FlowConfig, target: ClusterAdmin) -> list[Change]:
    wanted = mm2_topics(flow)
    actual = target.describe(spec.name for spec in wanted)
    return [
        change
        for spec in wanted
        if spec.name not in actual
        for change in topic_changes(where=flow.target, wanted=spec, actual=None)
    ]


def _topic_changes(flow: FlowConfig, admins: Admins) -> list[Change]:
    source, target = admins[flow.source], admins[flow.target]
    names = [name for name in source.topic_names() if flow.carries(name)]
    states, configs = source.describe(names), source.configs(names)
    by_remote: dict[str, list[KnownTopic]] = {}
    for name, state in states.items():
        topic = KnownTopic(
            name=name, generation=1, topic_id=state.topic_id, partitions=state.partitions, configs=configs.get(name, {})
        )
        by_remote.setdefault(flow.remote_topic(name), []).append(topic)
    actual, actual_configs = target.describe(by_remote), target.configs(target.describe(by_remote))
    changes = []
    for remote, topics in sorted(by_remote.items()):
        held = actual.get(remote)
        spec = None
        if held is not None:
            spec = TopicSpec(name=remote, partitions=held.partitions, configs=actual_configs.get(remote, {}))
        for change in topic_changes(where=flow.target, wanted=wanted_remote_topic(flow, topics), actual=spec):
            may_grow = change.action != "add_partitions" or flow.sync.partitions
            changes.append(change if may_grow else _conflict(change))
    return changes


def _conflict(change: Change) -> Change:
    return Change(
        where=change.where,
        kind=change.kind,
        name=change.name,
        action="conflict",
        before=change.before,
        after=change.after,
        reason="the source has more partitions and sync.partitions is false",
    )


def apply_plan(plan: Plan, *, sources: Iterable[str], admins: Admins, lake: Lake, now: Callable[[], datetime]) -> None:
    """Carry a plan out in its order and write what was done to `audit`; applied twice it changes nothing (law G).

    Raises:
        TopicConflict: the plan holds a conflict; nothing was changed.
        ClusterError: a cluster refused a change; those before it stand.
    """
    if plan.conflicts:
        first = plan.conflicts[0]
        raise TopicConflict(
            f"the plan holds a conflict: {first}",
            consequence="nothing was changed",
            remedy="set sync.partitions: true, grow the topic yourself, or exclude it",
            topic=first.name,
        )
    lake.create_all(sources)
    for change in plan.changes:
        if change.where != "lake":
            _apply(change, admins[change.where])
    record_changes(lake, plan, command="apply", now=now())


def record_changes(lake: Lake, plan: Plan, *, command: str, now: datetime) -> None:
    """Write to `audit` who changed what, with which command."""
    digest = hashlib.sha256(str(plan).encode()).hexdigest()
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    rows = [
        (
            now,
            who,
            command,
            digest,
            change.where,
            f"{change.kind} {change.name}",
            change.action,
            json.dumps(change.before),
            json.dumps(change.after),
        )
        for change in plan.changes
    ]
    lake.append_rows(AUDIT, rows)


def _apply(change: Change, admin: ClusterAdmin) -> None:
    if change.action == "create":
        admin.create(
            TopicSpec(name=change.name, partitions=change.after["partitions"], configs=change.after["configs"])
        )
    elif change.action == "add_partitions":
        admin.grow(change.name, change.after)
    elif change.action == "set_configs":
        admin.set_configs(change.name, change.after)
