"""History: the state of clusters at a time, the changes between two times, and the plan back.

metadata    ──fold──>  state at T1   state at T2
└── every change between, in order
└── plan from T2 back to T1: settings and ACLs; the rest is named
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any

from mirrorlake.model.acls import Acl
from mirrorlake.model.plan import Change, Note, Plan
from mirrorlake.render import Displayable, Sheet, plural, table

_ANY_TIME = datetime.min.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One observation of a topic or an ACL from a time on; not `present` means that it was gone."""

    at: datetime
    cluster: str
    role: str | None = None
    topic: str | None = None
    generation: int = 0
    topic_id: str = ""
    partitions: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    acl: Acl | None = None
    present: bool = True


@dataclass(frozen=True, slots=True, order=True)
class GroupPlace:
    """A partition that a consumer group reads: cluster, group, topic and partition."""

    cluster: str
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HistoryState(Displayable):
    """The known state at a time.

    `topics` is the last observation by (cluster, topic), also of topics that were gone. `acls` are those of each
    cluster. `groups` is the next offset to read by partition.
    """

    topics: dict[tuple[str, str], Observed] = field(default_factory=dict)
    acls: dict[str, set[Acl]] = field(default_factory=dict)
    groups: Mapping[GroupPlace, int] = field(default_factory=dict)

    def sheet(self) -> Sheet:
        """Return topics, ACLs and group positions, a table each, without topics that were gone."""
        known, text = self.as_dict(), ("partition", "position")
        tables = {
            "topics": ("cluster", "topic", "partitions", "configs"),
            "acls": ("cluster", "principal", "permission", "operation", "resource", "pattern", "name", "host"),
            "groups": ("cluster", "group", "topic", "partition", "position"),
        }
        return Sheet(
            title="known then",
            facts=(
                plural(len(known["topics"]), "topic"),
                plural(len(known["acls"]), "ACL"),
                plural(len(known["groups"]), "group position"),
            ),
            parts=tuple(
                table(name, columns, [[str(row[c]) if c in text else row[c] for c in columns] for row in known[name]])
                for name, columns in tables.items()
                if known[name]
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the state as a JSON-ready document, without topics that were gone."""
        return {
            "topics": [
                {
                    "cluster": cluster,
                    "topic": topic,
                    "partitions": seen.partitions,
                    "configs": dict(seen.configs),
                    "topic_id": seen.topic_id,
                    "generation": seen.generation,
                }
                for (cluster, topic), seen in sorted(self.topics.items())
                if seen.present
            ],
            "acls": [{"cluster": c, **acl.as_dict()} for c, acls in sorted(self.acls.items()) for acl in sorted(acls)],
            "groups": [{**asdict(place), "position": position} for place, position in sorted(self.groups.items())],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChange:
    """One observed change: time, cluster, subject, and the values before and after.

    Actions: `create`, `delete`, `recreate` (a new topic id), `add_partitions`, `set_configs` (None is the default),
    and `move` of a group.
    """

    at: datetime
    where: str
    kind: str
    name: str
    action: str
    before: Any = None
    after: Any = None


class HistoryChanges(Displayable, list[HistoryChange]):
    """The changes between two times, oldest first."""

    def sheet(self) -> Sheet:
        """Return the changes in a table."""
        columns = ["at", "where", "action", "kind", "name", "before", "after"]
        # An ACL's name is complete.
        rows = [
            (c.at, c.where, c.action, c.kind, c.name, *((None, None) if c.kind == "acl" else (c.before, c.after)))
            for c in self
        ]
        return Sheet(
            title="history", facts=(plural(len(self), "change"),), parts=(table("", columns, rows),) if rows else ()
        )


def state_of(seen: Iterable[Observed], *, groups: Mapping[GroupPlace, int] | None = None) -> HistoryState:
    """Fold observations, oldest first, into the state they lead to."""
    state = HistoryState(groups=groups or {})
    for one in seen:
        _take(state, one)
    return state


def _take(state: HistoryState, one: Observed) -> None:
    if one.acl is not None:
        held = state.acls.setdefault(one.cluster, set())
        (held.add if one.present else held.discard)(one.acl)
    else:
        state.topics[one.cluster, one.topic or ""] = one


def changes_between(seen: Iterable[Observed], start: datetime, end: datetime) -> list[HistoryChange]:
    """List every change of topics and ACLs after `start` and up to `end`, in the order of observation."""
    state, found = HistoryState(), []
    for one in seen:
        if one.at > end:
            break
        if one.at > start:
            found += _changes(state, one)
        _take(state, one)
    return found


def _changes(state: HistoryState, one: Observed) -> list[HistoryChange]:
    change = partial(HistoryChange, at=one.at, where=one.cluster)
    if one.acl is not None:
        if one.present == (one.acl in state.acls.get(one.cluster, ())):
            return []
        change, content = partial(change, kind="acl", name=str(one.acl)), one.acl.as_dict()
        return [change(action="create", after=content) if one.present else change(action="delete", before=content)]
    name = one.topic or ""
    change, before = partial(change, kind="topic", name=name), state.topics.get((one.cluster, name))
    here = {"partitions": one.partitions, "configs": dict(one.configs)}
    if before is None or not before.present:
        return [change(action="create", after=here)] if one.present else []
    there = {"partitions": before.partitions, "configs": dict(before.configs)}
    if not one.present:
        return [change(action="delete", before=there)]
    if before.topic_id != one.topic_id:
        return [change(action="recreate", before=there, after=here)]
    found = []
    if before.partitions != one.partitions:
        found.append(change(action="add_partitions", before=before.partitions, after=one.partitions))
    keys = sorted(k for k in {*before.configs, *one.configs} if before.configs.get(k) != one.configs.get(k))
    if keys:
        was, now = ({k: side.get(k) for k in keys} for side in (before.configs, one.configs))
        found.append(change(action="set_configs", before=was, after=now))
    return found


def group_moves(
    before: Mapping[GroupPlace, int], after: Mapping[GroupPlace, int], *, at: datetime
) -> list[HistoryChange]:
    """List the group positions that differ from before; each once, however often the group committed in between."""
    return [
        HistoryChange(
            at=at,
            where=place.cluster,
            kind="group",
            name=f"{place.group} {place.topic}-{place.partition}",
            action="move",
            before=before.get(place),
            after=position,
        )
        for place, position in sorted(after.items())
        if before.get(place) != position
    ]


def plan_back(then: HistoryState, now: HistoryState, *, owner: Callable[[str, Acl], str | None]) -> Plan:
    """Plan the changes that restore the targets' settings and ACLs to an earlier state.

    A plan does not bring back records, topics, partitions and group positions; a note names each, and the command
    that does. `owner` returns the flow that made an ACL of a cluster, or None for an ACL of somebody else, which is
    not deleted.
    """
    changes: list[Change] = []
    notes: list[Note] = []
    for (cluster, name), was in sorted(then.topics.items()):
        is_now = now.topics.get((cluster, name))

        def note(reason: str, *, cluster: str = cluster, name: str = name) -> None:
            notes.append(Note(where=cluster, kind="topic", name=name, reason=reason))

        if not was.present:
            continue
        if is_now is None or not is_now.present:
            note("it was deleted since; apply creates it, and republish --topic T --send-again fills it")
            continue
        if is_now.topic_id != was.topic_id:
            note("it was deleted and created again since; its settings are compared, its records are not")
        if is_now.partitions > was.partitions:
            note(f"it has {is_now.partitions} partitions, had {was.partitions}; Kafka removes no partitions")
        changes += _settings_back(cluster, name, was, is_now)
    for (cluster, name), is_now in sorted(now.topics.items()):
        old = then.topics.get((cluster, name))
        if is_now.present and (old is None or not old.present):
            notes.append(
                Note(
                    where=cluster, kind="topic", name=name, reason="it was created since; mirrorlake deletes no topics"
                )
            )
    for cluster in sorted({*then.acls, *now.acls}):
        held, had = now.acls.get(cluster, set()), then.acls.get(cluster, set())
        for acl in sorted(had - held):
            flow = owner(cluster, acl) or ""
            changes.append(acl.change("create", where=cluster, reason="it was there then", flow=flow))
        for acl in sorted(held - had):
            maker = owner(cluster, acl)
            if maker is None:
                notes.append(Note(where=cluster, kind="acl", name=str(acl), reason="somebody else made it since"))
                continue
            changes.append(acl.change("delete", where=cluster, reason="mirrorlake made it since", flow=maker))
    for move in group_moves(now.groups, then.groups, at=_ANY_TIME):
        reason = f"it is at {move.before} and was at {move.after}; `mirrorlake groups` moves groups"
        notes.append(Note(where=move.where, kind="group", name=move.name, reason=reason))
    return Plan(tuple(changes), tuple(notes))


def _settings_back(cluster: str, name: str, was: Observed, is_now: Observed) -> list[Change]:
    change = partial(Change, where=cluster, kind="topic", name=name, reason="as it was then")
    found = []
    if different := {k: v for k, v in was.configs.items() if is_now.configs.get(k) != v}:
        before = {k: is_now.configs.get(k) for k in different}
        found.append(change(action="set_configs", before=before, after=different))
    if added := sorted(is_now.configs.keys() - was.configs.keys()):
        before = {k: is_now.configs[k] for k in added}
        found.append(change(action="reset_configs", before=before, after=dict.fromkeys(added)))
    return found
