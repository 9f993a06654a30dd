"""Translate the effective settings of a MirrorMaker 2 flow into a flow of a settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.config.mm2.table import POLICIES, TRANSLATED
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.model.patterns import PatternError, parse_patterns

# The default of a number, and mirrorlake's bounds.
_NUMBERS = {"lanes": (1, 1, 64), "mm2.offset_lag_max": (100, 1, 2**31)}


@dataclass(slots=True)
class Mm2Flow:
    """`entry` is empty if MirrorMaker mirrors nothing; `notes` has the differences, `open` the decisions for a person."""

    given: Mapping[str, str]
    entry: dict[str, Any] = field(default_factory=dict)
    translated: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, source: str, target: str, given: Mapping[str, str]) -> Mm2Flow:
        given = {key: text.strip() for key, text in given.items()}
        flow = cls(given, {"source": source, "target": target}, {"enabled": f"the flow {source}->{target}"})
        for key, setting, kind, default in TRANSLATED:
            if key in given and (kind == "other_section" or setting not in flow.translated.values()):
                flow.translated[key] = setting
                flow._translate(key, setting, kind, given[key])
            elif default is not None and key not in given:
                flow._translate(key, setting, kind, default)
        flow._tell_differences(source, target)
        if flow.entry["topics"] == []:
            flow.notes.append("the flow is not written: `topics` is blank, so MirrorMaker mirrors nothing with it")
            flow.entry.clear()
        return flow

    def _translate(self, key: str, setting: str, kind: str, text: str) -> None:
        if kind == "selection":
            self._put(setting, self._selection(setting, text))
        elif kind == "flag":
            self._flag(key, setting, text.lower())
        elif kind == "policy":
            self._policy(text)
        elif kind == "number":
            self._number(key, setting, text)
        elif kind == "seconds" and text:
            self._put(setting, f"{text}s")
        elif kind == "start" and text == "latest":
            self._put(setting, text)
        elif kind == "factor" and text.isdigit():
            # -1 is the broker's default in both.
            self._put(setting, int(text))

    def _put(self, setting: str, value: Any) -> None:
        section, _, name = setting.rpartition(".")
        (self.entry.setdefault(section, {}) if section else self.entry)[name] = value

    def _selection(self, setting: str, text: str) -> Any:
        try:
            items = list(parse_patterns(text, required=False).expressions)
        except PatternError as error:
            # Unchanged: reading the settings file reports it with its line.
            items = [text]
            self.notes.append(f"{setting} must be rewritten: {error}")
        return items[0] if len(items) == 1 else items

    def _flag(self, key: str, setting: str, text: str) -> None:
        if text not in ("true", "false"):
            self.open.append(
                f"{key} is '{text}', neither true nor false, and MirrorMaker refuses it; false was assumed"
            )
        section, _, name = setting.partition(".")
        if (text == "true") != getattr(FlowConfig.model_fields[section].get_default(call_default_factory=True), name):
            self._put(setting, text == "true")

    def _number(self, key: str, setting: str, text: str) -> None:
        default, least, most = _NUMBERS[setting]
        if not text.isdigit():
            self.notes.append(f"{key} is not a number; {default} was written")
        self._put(setting, min(most, max(least, int(text) if text.isdigit() else default)))

    def _policy(self, name: str) -> None:
        """Translate the replication policy; an unknown class stays, so that the settings do not load."""
        separator = self.given.get("replication.policy.separator", ".")
        if name not in POLICIES:
            self.open.append(f"policy: {name} is not known here; write a template that makes the same names")
            self.entry["policy"] = name
            return
        kind = POLICIES[name]
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

    def _tell_differences(self, source: str, target: str) -> None:
        given, entry = self.given, self.entry
        if "groups" in entry.get("sync", {}):
            self.notes.append(
                "group positions are not written to the target, as MirrorMaker was configured or by its default; "
                "sync.groups: true writes exact ones"
            )
        if "sync.topic.acls.enabled" not in given:
            self.notes.append("ACLs are not copied unless sync.acls: true is set; MirrorMaker copies them by default")
        if "offset_syncs" in entry.get("mm2", {}) and given.get("offset-syncs.topic.location") != "target":
            del entry["mm2"]["offset_syncs"]
            if not entry["mm2"]:
                del entry["mm2"]
            self.notes.append(
                "offset syncs are not written to the source (law H); mm2.offset_syncs: true writes them to the target"
            )
        if "start" in entry:
            self.notes.append("start: latest; for `mirrorlake takeover` set it to earliest")
        if given.get("target.exactly.once.source.support") != "enabled":
            self.notes.append(f"records reach {target} exactly once; MirrorMaker, as it was set, at least once")
        isolation = [given.get(key) for key in ("consumer.isolation.level", "source.consumer.isolation.level")]
        if "read_committed" not in isolation:
            self.notes.append(f"aborted records of {source} are not mirrored; MirrorMaker, as it was set, mirrors them")
        if "replication.factor" not in given:
            self.notes.append("topics get the target's default replication factor; MirrorMaker's default is 2")
        for key in ("transforms", "predicates"):
            if given.get(key):
                self.open.append(
                    f"{key}: {given[key]} is not translated, so records would be mirrored as they are; "
                    "write `rules:` of the flow that do the same"
                )
