"""One flow of MirrorMaker 2 as one of ours: its effective settings in, the flow's entry out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.config.mm2.names import DEFAULT_POLICIES, FACTORS, IDENTITY_POLICIES
from mirrorlake.model.patterns import PatternError, parse_patterns

_MAX_LANES = 64


@dataclass(slots=True)
class Mm2Flow:
    """One flow from the effective properties of its connectors; `entry` is empty where MirrorMaker mirrors nothing.

    `notes` say what differs, `open` what a person has to settle.
    """

    given: Mapping[str, str]
    entry: dict[str, Any] = field(default_factory=dict)
    translated: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, source: str, target: str, given: Mapping[str, str]) -> Mm2Flow:
        """Translate one flow."""
        flow = cls(given, {"source": source, "target": target}, {"enabled": f"the flow {source}->{target}"})
        flow._selection("topics", "topics", default=".*")
        flow._selection("topics.exclude", "exclude_topics", "topics.blacklist")
        flow._policy()
        flow._selection("groups", "groups")
        flow._selection("groups.exclude", "exclude_groups", "groups.blacklist")
        flow._sync()
        flow._mm2()
        flow._delivery(source, target)
        flow._factor()
        flow._rules()
        if flow.entry["topics"] == []:
            flow.notes.append("the flow is not written: `topics` is blank, so MirrorMaker mirrors nothing with it")
            flow.entry.clear()
        return flow

    def _selection(self, key: str, place: str, former: str = "", *, default: str | None = None) -> None:
        used = key if key in self.given else former
        text = self.given.get(used, default)
        if text is None:
            return
        try:
            items = list(parse_patterns(text, required=False).expressions)
        except PatternError as error:
            # Kept as it is: reading the settings file names it again, with the line.
            items = [text]
            self.notes.append(f"{place} must be rewritten: {error}")
        self.entry[place] = items[0] if len(items) == 1 else items
        if used in self.given:
            self.translated[used] = place

    def _policy(self) -> None:
        """Take over the naming of remote topics; an unknown class stays, so that the settings do not load."""
        name = self._take("replication.policy.class", "policy", DEFAULT_POLICIES[0])
        separator = self._take("replication.policy.separator", "policy.separator", ".")
        if name not in (*DEFAULT_POLICIES, *IDENTITY_POLICIES):
            self.open.append(f"policy: {name} is a class of its own; write a template that makes the same names")
            self.entry["policy"] = name
            return
        kind = "identity" if name in IDENTITY_POLICIES else "default"
        if kind == "identity" and not separator:
            self.notes.append(
                "the empty separator is left out: topics keep their names, but `heartbeats` and MirrorMaker's own topics "
                "get names with dots"
            )
            separator = "."
        if separator != ".":
            self.entry["policy"] = {"name": kind, "separator": separator}
        elif kind == "identity":
            self.entry["policy"] = kind

    def _sync(self) -> None:
        # Where MirrorMaker's default is another one, it is written.
        sync: dict[str, Any] = {}
        if not self._flag("sync.group.offsets.enabled", "sync.groups", default=False):
            sync["groups"] = False
            self.notes.append(
                "group positions are not written to the target, as MirrorMaker was configured or by its default; "
                "sync.groups: true writes exact ones"
            )
        if not self._flag("sync.topic.configs.enabled", "sync.configs", default=True):
            sync["configs"] = False
        acls = "sync.topic.acls.enabled"
        if acls not in self.given:
            self.notes.append("ACLs are not copied unless sync.acls: true is set; MirrorMaker copies them by default")
        elif self._flag(acls, "sync.acls", default=True):
            sync["acls"] = True
        for key in ("config.properties.exclude", "config.properties.blacklist"):
            if key in self.given:
                text = self._take(key, "sync.configs_exclude")
                sync["configs_exclude"] = list(parse_patterns(text, required=False).expressions)
        if seconds := self._take("sync.topic.configs.interval.seconds", "sync.interval"):
            sync["interval"] = f"{seconds}s"
        for key in ("sync.group.offsets.interval.seconds", "emit.checkpoints.interval.seconds"):
            if "groups_interval" not in sync and (seconds := self._take(key, "sync.groups_interval")):
                sync["groups_interval"] = f"{seconds}s"
        if sync:
            self.entry["sync"] = sync

    def _mm2(self) -> None:
        """Go on writing the topics that clients of MirrorMaker read, as far as the target has them."""
        mm2: dict[str, Any] = {}
        for place in ("heartbeats", "checkpoints"):
            if self._flag(f"emit.{place}.enabled", f"mm2.{place}", default=True):
                mm2[place] = True
        on_target = self._take("offset-syncs.topic.location", "mm2.offset_syncs") == "target"
        if self._flag("emit.offset-syncs.enabled", "mm2.offset_syncs", default=True):
            if on_target:
                mm2["offset_syncs"] = True
            else:
                self.notes.append(
                    "offset syncs are not written to the source (law H); mm2.offset_syncs: true writes them to the target"
                )
        interval = "emit.heartbeats.interval.seconds"
        if "heartbeats" in mm2 and (seconds := self._take(interval, "mm2.heartbeat_interval")):
            mm2["heartbeat_interval"] = f"{seconds}s"
        if "offset.lag.max" in self.given:
            mm2["offset_lag_max"] = max(1, self._number("offset.lag.max", 100, "mm2.offset_lag_max"))
        separator = "replication.policy.internal.topic.separator.enabled"
        if not self._flag(separator, "mm2.separator_in_internal", default=True):
            mm2["separator_in_internal"] = False
        if mm2:
            self.entry["mm2"] = mm2

    def _delivery(self, source: str, target: str) -> None:
        # The flow's own setting beats the source's; what stands at the top level or below the target reaches no consumer.
        for key in ("source.consumer.auto.offset.reset", "consumer.auto.offset.reset"):
            if key in self.given:
                self.translated[key] = "start"
                self.entry.pop("start", None)
                if self.given[key] == "latest":
                    self.entry["start"] = "latest"
        if "start" in self.entry:
            self.notes.append("start: latest; for `mirrorlake takeover` set it to earliest")
        if "tasks.max" in self.given:
            self.entry["lanes"] = min(_MAX_LANES, max(1, self._number("tasks.max", 1, "lanes")))
        for key in ("target.exactly.once.source.support", "exactly.once.source.support"):
            self._take(key, "delivery: exactly_once, the default")
        if self.given.get("target.exactly.once.source.support", "disabled") != "enabled":
            self.notes.append(f"records reach {target} exactly once; MirrorMaker, as it was set, at least once")
        isolation = [self.given.get(key) for key in ("consumer.isolation.level", "source.consumer.isolation.level")]
        if "read_committed" not in isolation:
            self.notes.append(f"aborted records of {source} are not mirrored; MirrorMaker, as it was set, mirrors them")

    def _rules(self) -> None:
        for key in ("transforms", "predicates"):
            if self.given.get(key):
                self.open.append(
                    f"{key}: {self.given[key]} is not translated, so records would be mirrored as they are; "
                    "write `rules:` of the flow that do the same"
                )

    def _factor(self) -> None:
        # -1 is the broker's default in both.
        for key in FACTORS:
            self._take(key, "replication_factor")
        if "replication.factor" not in self.given:
            self.notes.append("topics get the target's default replication factor; MirrorMaker's default is 2")
        elif self.given["replication.factor"].isdigit():
            self.entry["replication_factor"] = int(self.given["replication.factor"])

    def _take(self, key: str, place: str, default: str = "") -> str:
        if key in self.given:
            self.translated[key] = place
        return self.given.get(key, default).strip()

    def _flag(self, key: str, place: str, *, default: bool) -> bool:
        text = self._take(key, place, str(default)).lower()
        if text not in ("true", "false"):
            self.open.append(
                f"{key} is '{text}', neither true nor false, and MirrorMaker refuses it; false was assumed"
            )
        return text == "true"

    def _number(self, key: str, default: int, place: str) -> int:
        text = self._take(key, place)
        if not text.isdigit():
            self.notes.append(f"{key} is not a number; {default} was written")
            return default
        return int(text)
