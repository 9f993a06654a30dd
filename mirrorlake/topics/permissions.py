"""List the ACLs that a flow's principal needs, from the settings alone: works while the cluster still refuses everything.

| cluster | resource | for |
|---|---|---|
| source | topics of the flow | landing, `verify`, reading offsets and settings: nothing is written (law H) |
| source | groups of the flow | their positions |
| target | remote topics | records, their topics and settings, `verify`, positions of groups |
| target | topics and transactional ids `mirrorlake.<flow>.*` | ledger, lanes, redrives, tombstones |
| both | groups `mirrorlake*` | the names of consumers that never join a group |

A failback writes to the source, and a fence changes its ACLs or settings: only if `extras` asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Literal

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.errors import UsageError
from mirrorlake.kafka import mm2_topics
from mirrorlake.model.flow import kafka_name
from mirrorlake.model.needed_acls import CLUSTER_NAME, EVERY, AclNames, NeededAcl, NeededAcls, acl_names_of, merged
from mirrorlake.model.patterns import shape_of
from mirrorlake.model.policy import TopicNameError

Extra = Literal["fence-acl", "fence-topic", "failover", "failback"]
EXTRAS: tuple[Extra, ...] = ("fence-acl", "fence-topic", "failover", "failback")
_GROUPS_TOPIC = "__consumer_offsets"
_HEARTBEATS = "heartbeats"


def needed_acls(
    config: MirrorConfig,
    flows: Iterable[FlowConfig],
    *,
    principal: str,
    ways_home: Iterable[FlowConfig] = (),
    extras: Collection[str] = (),
    host: str = "*",
    command_config: str = "",
) -> NeededAcls:
    """List the ACLs that a principal needs to run these flows with all that their settings turn on.

    `ways_home` are the return flows of a failback.

    Raises:
        UsageError: `principal` is not `Type:name`, or an extra is unknown.
        ConfigError: the address of a cluster cannot be resolved.
    """
    if ":" not in principal or not all(principal.partition(":")[::2]):
        raise UsageError(f"'{principal}' is not a principal of Kafka", remedy="write User:name, as the broker sees it")
    unknown = sorted(set(extras) - set(EXTRAS))
    if unknown:
        raise UsageError(f"'{unknown[0]}' is not a use to add ACLs for", remedy=f"choose from: {', '.join(EXTRAS)}")
    chosen, home = list(flows), list(ways_home) if "failback" in extras else []
    notes: dict[str, None] = {}
    found = [acl for flow in (*chosen, *home) for acl in _of_flow(config, flow, notes)]
    for flow in chosen:
        found += _extra(config, flow, extras)
    acls = merged(sorted(found, key=lambda one: (one.cluster, _RANK.index(one.resource))))
    return NeededAcls(
        flows=tuple(flow.name for flow in chosen),
        principal=principal,
        acls=acls,
        servers={alias: config.cluster(alias).servers() for alias in dict.fromkeys(one.cluster for one in acls)},
        host=host,
        config=command_config,
        notes=tuple(notes),
    )


_RANK = ("TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER")


def _of_flow(config: MirrorConfig, flow: FlowConfig, notes: dict[str, None]) -> Iterator[NeededAcl]:
    if not config.cluster(flow.source).is_lake:
        yield from _on_source(config, flow, notes)
    yield from _on_target(config, flow, notes)


def _on_source(config: MirrorConfig, flow: FlowConfig, notes: dict[str, None]) -> Iterator[NeededAcl]:
    alias, places = flow.source, acl_names_of(flow.topics)
    for place in places:
        _note_wide(place, "topic", alias, notes)
        yield _topic(alias, place, ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"), f"land and verify {flow.name}")
    _note_denied(config, flow, places, notes)
    purpose = "see whether the topic exists: if not, reading would create it (law H)"
    yield NeededAcl(cluster=alias, resource="TOPIC", name=_GROUPS_TOPIC, operations=("DESCRIBE",), purpose=purpose)
    yield _own_readers(alias)
    if _asks_groups(config, flow):
        for place in acl_names_of(flow.groups):
            _note_wide(place, "group", alias, notes)
            yield _group(alias, place, ("DESCRIBE",), f"positions of the groups of {flow.name}")
    if flow.mm2.heartbeats:
        name = AclNames("LITERAL", _HEARTBEATS)
        yield _topic(alias, name, ("READ", "DESCRIBE"), f"heartbeats that {flow.name} passes on")
    if flow.sync.acls:
        yield _cluster(alias, ("DESCRIBE",), f"read the ACLs that {flow.name} keeps in step")


def _on_target(config: MirrorConfig, flow: FlowConfig, notes: dict[str, None]) -> Iterator[NeededAcl]:
    alias, sync = flow.target, flow.sync
    operations = ["READ", "WRITE", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"]
    operations += ["ALTER"] if sync.partitions else []
    operations += ["ALTER_CONFIGS"] if sync.configs or sync.configs_override else []
    for place in _remote_places(flow):
        _note_wide(place, "topic", alias, notes)
        yield _topic(alias, place, operations, f"remote topics of {flow.name}")
    own = AclNames("PREFIXED", f"mirrorlake.{kafka_name(flow.name)}.")
    of_ledger = ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE")
    yield _topic(alias, own, of_ledger, f"ledger of {flow.name}; DELETE trims its old records")
    yield NeededAcl(
        cluster=alias,
        resource="TRANSACTIONAL_ID",
        name=own.name,
        pattern=own.pattern,
        operations=("WRITE", "DESCRIBE"),
        purpose=f"lanes of {flow.name}",
    )
    yield _own_readers(alias)
    if _asks_groups(config, flow):
        for place in acl_names_of(flow.groups):
            _note_wide(place, "group", alias, notes)
            told = ("READ", "DESCRIBE") if sync.groups else ("DESCRIBE",)
            does = "set" if sync.groups else "tell"
            yield _group(alias, place, told, f"{does} the positions of the groups of {flow.name}")
    for spec in mm2_topics(flow):
        name = AclNames("LITERAL", spec.name)
        yield _topic(alias, name, ("READ", "WRITE", "CREATE", "DESCRIBE"), f"MirrorMaker 2's topics of {flow.name}")
    if sync.acls:
        yield _cluster(alias, ("ALTER", "DESCRIBE"), f"ACLs of the remote topics of {flow.name}")


def _extra(config: MirrorConfig, flow: FlowConfig, extras: Collection[str]) -> Iterator[NeededAcl]:
    if config.cluster(flow.source).is_lake:
        return
    if "fence-acl" in extras:
        yield _cluster(flow.source, ("ALTER", "DESCRIBE"), f"keep producers off {flow.source} (--fence-source acl)")
    if "fence-topic" in extras:
        purpose = f"keep producers off {flow.source} (--fence-source topic)"
        for place in acl_names_of(flow.topics):
            yield _topic(flow.source, place, ("DESCRIBE_CONFIGS", "ALTER_CONFIGS"), purpose)
    if "failover" in extras:
        # With `sync.groups` on, the flow's own ACLs include these.
        for place in acl_names_of(flow.groups):
            yield _group(flow.source, place, ("DESCRIBE",), f"positions of the groups of {flow.name}")
            yield _group(flow.target, place, ("READ", "DESCRIBE"), f"place the groups of {flow.name} in a failover")
    if "failback" in extras:
        for place in acl_names_of(flow.groups):
            purpose = f"bring the groups of {flow.name} home"
            yield _group(flow.source, place, ("READ", "DESCRIBE"), purpose)


def _asks_groups(config: MirrorConfig, flow: FlowConfig) -> bool:
    # Group checkpoints need the positions even if the flow sets no group.
    is_asked = flow.sync.groups or flow.mm2.checkpoints
    return is_asked and bool(flow.groups) and not config.cluster(flow.source).is_lake


def _remote_places(flow: FlowConfig) -> list[AclNames]:
    """Return the ACL names of the flow's remote topics."""
    found = []
    for place in acl_names_of(flow.topics):
        prefix = "" if (place.pattern, place.name) == EVERY else place.name
        if place.pattern == "LITERAL" and prefix:
            name = _remote(flow, prefix)
            found += [AclNames("LITERAL", name)] if name else []
        elif getattr(flow.replication_policy, "merges_topics", False):
            found.append(AclNames("LITERAL", _remote(flow, "x") or "x"))
        elif beginning := flow.replication_policy.remote_prefix(flow.source, flow.target, prefix):
            found.append(replace(place, pattern="PREFIXED", name=beginning))
        else:
            wide = "" if flow.policy.kind == "identity" and not prefix else str(flow.topics)
            found.append(AclNames(*EVERY, wider_than=wide or place.wider_than))
    return list(dict.fromkeys(found))


def _remote(flow: FlowConfig, topic: str) -> str | None:
    try:
        return flow.remote_topic(topic)
    except TopicNameError:
        return None


def _topic(alias: str, place: AclNames, operations: Iterable[str], purpose: str) -> NeededAcl:
    return NeededAcl(
        cluster=alias,
        resource="TOPIC",
        name=place.name,
        pattern=place.pattern,
        operations=tuple(operations),
        purpose=purpose,
    )


def _group(alias: str, place: AclNames, operations: Iterable[str], purpose: str) -> NeededAcl:
    return replace(_topic(alias, place, operations, purpose), resource="GROUP")


def _own_readers(alias: str) -> NeededAcl:
    return _group(
        alias, AclNames("PREFIXED", "mirrorlake"), ("DESCRIBE",), "names of readers, which never join a group"
    )


def _cluster(alias: str, operations: Iterable[str], purpose: str) -> NeededAcl:
    return NeededAcl(
        cluster=alias, resource="CLUSTER", name=CLUSTER_NAME, operations=tuple(operations), purpose=purpose
    )


def _note_wide(place: AclNames, kind: str, alias: str, notes: dict[str, None]) -> None:
    if place.wider_than:
        covered = "every name" if (place.pattern, place.name) == EVERY else f"every name that begins with {place.name}"
        notes[
            f"an ACL cannot express the {kind}s {place.wider_than}, only names and prefixes: on {alias} it covers "
            f"{covered}"
        ] = None


def _note_denied(config: MirrorConfig, flow: FlowConfig, places: Iterable[AclNames], notes: dict[str, None]) -> None:
    """Note where these ACLs cover topics that `never_leave` denies: mirrorlake does not read them, but could."""
    for expression in config.cluster(flow.source).never_leave.expressions:
        shape = shape_of(expression)
        reached = any(
            shape.meet(shape_of(f"{one.name}.*" if one.pattern == "PREFIXED" else one.name)) is not None
            for one in places
            if (one.pattern, one.name) != EVERY
        ) or any((one.pattern, one.name) == EVERY for one in places)
        if reached:
            notes[
                f"mirrorlake does not read {expression} of clusters.{flow.source}.never_leave, but these ACLs allow it: deny READ "
                "on it if the broker is to refuse it, too"
            ] = None
