"""Plans: every change to a cluster or the lake as a value that is shown first and applied afterwards (law G)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mirrorlake.model.patterns import INTERNAL_TOPICS
from mirrorlake.render import Displayable, LinkedText, Sheet, Table, badge, condensed, link, plural, table

# Topics shown unfolded, and the rows from which any other table is folded.
_FIRST_TOPICS, _OPEN_ROWS = 20, 10
_INTERNAL = re.compile(INTERNAL_TOPICS.java_regex)
_COLUMNS = ("where", "action", "kind", "name", "before", "after", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as it is or should be: partitions and the settings that differ from the cluster's defaults.

    `is_keyed`: keys decide the partition, so an existing topic with another number of partitions cannot be used.
    `replication_factor`: -1 for the cluster's default; it counts only when the topic is created.
    """

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = -1
    is_keyed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: `action` on `kind` `name` at `where` (a cluster alias, `lake` or `settings`), with the reason in a sentence.

    Actions on topics: `create`, `add_partitions`, `set_configs`, `reset_configs` (to the cluster's default),
    `adopt_configs` (changes nothing: another mirror copied them, and from now on this one does), `conflict` (is
    shown, and nothing of the plan is applied) and `held` (a remote topic that was lost: is shown, and waits for a
    choice). Actions on ACLs: `create`, `delete`, and `adopt`, `share` and `release`, which change nothing on the
    cluster but record whose an ACL is. Actions on parts of the settings: `create`, `change`, `remove`. `flow` is the
    flow it is done for.
    """

    where: str
    kind: str
    name: str
    action: str
    before: Any = None
    after: Any = None
    reason: str = ""
    flow: str = ""

    def __str__(self) -> str:
        if self.kind == "acl":
            return f"{self.where}: {self.action} acl {self.name} ({self.reason})"
        moved = f" {self.before} -> {self.after}" if self.before is not None else f" {self.after}"
        return f"{self.where}: {self.action} {self.kind} {self.name}{moved} ({self.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that a plan leaves unchanged and that a person should know: subject, cluster and reason.

    For a rule (`where` is then the flow), `reason` is what the rule does not do; for a topic, why the flow does not mirror it.
    """

    where: str
    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        if self.kind == "rule":
            return f"{self.where}: rule {self.name}: {self.reason}"
        if self.kind == "topic":
            return f"{self.where}: `topics` names {self.name}, which is not mirrored: {self.reason}"
        return f"{self.where}: {self.kind} {self.name} is left as it is: {self.reason}"


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Displayable):
    """Changes in the order in which they are applied; empty if everything is as it should be.

    `notes` are things left unchanged, and why; a plan that has only notes is empty.

    Example:
        >>> made = Change(where="central", kind="topic", name="east.orders", action="create", after={"partitions": 3},
        ...               reason="missing on the target")
        >>> print(Plan((made,)))
        plan: · 1 change · 1 topic
          1 topic
          where    action  kind   name         after         reason
          central  create  topic  east.orders  partitions=3  missing on the target
        >>> print(Plan())
        plan: ✓ nothing to change
    """

    changes: tuple[Change, ...] = ()
    notes: tuple[Note, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __add__(self, other: Plan) -> Plan:
        return Plan(self.changes + other.changes, self.notes + other.notes)

    def sheet(self) -> Sheet:
        """Return conflicts first, then topics, then the rest, whose long lists are folded; the notes last."""
        conflicts, parts = self.conflicts, self._parts()
        notes = table(plural(len(self.notes), "note"), ["note"], [[str(note)] for note in self.notes])
        return Sheet(
            title="plan",
            badge=badge(plural(len(self), "change"), "note") if self else badge("nothing to change"),
            facts=(
                badge(plural(len(conflicts), "conflict"), "bad") if conflicts else None,
                self.counts or None,
                plural(len(self.notes), "note") if self.notes else None,
            ),
            parts=(
                *([_table(plural(len(conflicts), "conflict"), conflicts)] if conflicts else []),
                *(part for word, changes in parts.items() for part in _tables(word, changes)),
                *([notes] if self.notes else []),
            ),
        )

    @property
    def counts(self) -> str:
        """The number of changes of each kind, other than conflicts, such as "2 topics, 1 ledger"."""
        return ", ".join(plural(len(changes), word) for word, changes in self._parts().items())

    @property
    def held(self) -> Plan:
        """The changes that are not applied, because they wait for a person's choice."""
        return Plan(tuple(change for change in self.changes if change.action == "held"))

    @property
    def to_apply(self) -> Plan:
        """The other changes, without the notes."""
        return Plan(tuple(change for change in self.changes if change.action != "held"))

    def _parts(self) -> dict[str, list[Change]]:
        """Group the changes other than conflicts by a person's word for them, topics first."""
        found: dict[str, list[Change]] = {word: [] for word in _WORDS}
        for change in self.changes:
            if change.action != "conflict":
                found[_word(change)].append(change)
        return {word: changes for word, changes in found.items() if changes}

    @property
    def conflicts(self) -> tuple[Change, ...]:
        """The changes that a person has to decide about."""
        return tuple(change for change in self.changes if change.action == "conflict")


_WORDS = ("topic", "setting", "rule", "ACL", "other change", "ledger", "internal topic", "lake table")


def _word(change: Change) -> str:
    if change.where == "settings":
        return "setting"
    if change.kind == "topic" and change.name.startswith("mirrorlake.") and change.name.endswith(".ledger"):
        return "ledger"
    if change.kind == "topic":
        return "internal topic" if _INTERNAL.fullmatch(change.name) else "topic"
    return {"rule": "rule", "acl": "ACL", "table": "lake table"}.get(change.kind, "other change")


def _tables(word: str, changes: Sequence[Change]) -> list[Table]:
    title = plural(len(changes), word)
    if word == "topic":
        first, more = changes[:_FIRST_TOPICS], changes[_FIRST_TOPICS:]
        return [_table(title, first), *([_table(f"and {plural(len(more), 'more topic')}", more, True)] if more else [])]
    return [_table(title, changes, word in ("ledger", "internal topic", "lake table") or len(changes) > _OPEN_ROWS)]


def _table(title: str, changes: Sequence[Change], folded: bool = False) -> Table:
    rows = [
        (c.where, badge(c.action) if c.action == "conflict" else c.action, c.kind, _name(c), *_shown(c), c.reason)
        for c in changes
    ]
    return condensed(title, _COLUMNS, rows, keep="name", folded=folded)


def _name(change: Change) -> str | LinkedText:
    # A topic that is to be created has no page yet.
    if change.kind == "topic" and change.action not in ("create", "held"):
        return LinkedText(change.name, link("topic", change.where, change.name))
    return change.name


def _shown(change: Change) -> tuple[Any, Any]:
    # An ACL's name is complete.
    return (None, None) if change.kind == "acl" else (change.before, change.after)


def made_by(change: Change) -> TopicSpec:
    """Return the topic that a change creates.

    >>> [change] = topic_changes(where="west", wanted=TopicSpec(name="t", partitions=3, replication_factor=2), actual=None)
    >>> made_by(change) == TopicSpec(name="t", partitions=3, replication_factor=2)
    True
    """
    made = change.after
    return TopicSpec(
        name=change.name,
        partitions=made["partitions"],
        configs=made["configs"],
        replication_factor=made.get("replication_factor", -1),
    )


def topic_changes(
    *, where: str, wanted: TopicSpec, actual: TopicSpec | None, given_up: Iterable[str] = (), flow: str = ""
) -> list[Change]:
    """Return the changes that turn `actual` into `wanted`; an existing topic is only ever grown (KIP-195), never shrunk.

    `given_up` are settings of `actual` that go back to the cluster's default.

    >>> topic_changes(where="west", wanted=TopicSpec(name="t", partitions=3), actual=TopicSpec(name="t", partitions=3))
    []
    """
    change = partial(Change, where=where, kind="topic", name=wanted.name, flow=flow)
    if actual is None:
        made: dict[str, Any] = {"partitions": wanted.partitions, "configs": dict(wanted.configs)}
        if wanted.replication_factor > 0:
            made["replication_factor"] = wanted.replication_factor
        return [change(action="create", after=made, reason="missing on the target")]
    changes = []
    if wanted.is_keyed and actual.partitions != wanted.partitions:
        reason = (
            f"placement by key counts {wanted.partitions} partitions: over {actual.partitions}, keys stand in others, "
            "and the order per key would break where the count changes"
        )
        changes.append(change(action="conflict", before=actual.partitions, after=wanted.partitions, reason=reason))
    elif actual.partitions < wanted.partitions:
        changes.append(
            change(
                action="add_partitions",
                before=actual.partitions,
                after=wanted.partitions,
                reason="the source has more partitions; keys of other producers may change partition",
            )
        )
    differing = {key: value for key, value in wanted.configs.items() if actual.configs.get(key) != value}
    if differing:
        changes.append(
            change(
                action="set_configs",
                before={key: actual.configs.get(key) for key in differing},
                after=differing,
                reason="differs from the source",
            )
        )
    if reset := sorted(given_up):
        changes.append(
            change(
                action="reset_configs",
                before={key: actual.configs.get(key) for key in reset},
                after=dict.fromkeys(reset),
                reason="was copied from the source, which uses its default now",
            )
        )
    return changes
