"""Draft settings: what a person has filled in so far, and the settings file that results.

A draft never holds a secret: where one belongs it holds a reference, `${env:NAME}` or `${secret:scope/key}`. Only what a
person changed is written; the rest of the file stays as its author wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from mirrorlake.config.edit.cluster_draft import ClusterDraft
from mirrorlake.config.edit.selections import line_of, write_selection
from mirrorlake.config.edit.yaml_text import (
    YamlText,
    append,
    own,
    put,
    put_below,
    quoted,
    remove,
    remove_with_comment,
    sections,
)
from mirrorlake.config.loading import loads
from mirrorlake.config.schema.cluster import ClusterConfig
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.errors import UsageError
from mirrorlake.model.patterns import DEFAULT_EXCLUDE_GROUPS, DEFAULT_EXCLUDE_TOPICS, PatternError, parse_patterns
from mirrorlake.model.policy import DEFAULT_SEPARATOR

POLICIES = ("default", "identity", "template")
# The rules that a draft writes, by the field they come from; rules of other names stay as they are.
_RULES = {"keep": "only", "drop": "without", "mask": "masked", "remove": "removed"}
_SYNC = ("groups", "configs", "acls")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDraft:
    """One flow. Selections are spelled as in a settings file; None leaves the default.

    `keep` and `drop` are predicates over records, `mask` and `remove` paths of JSON members with commas between. `place` is
    where the file has the flow that this one was made from: it is changed there, and under another name copied.
    """

    source: str = ""
    target: str = ""
    name: str = ""
    topics: str = ""
    exclude_topics: str | None = None
    policy: str = "default"
    template: str = ""
    separator: str = DEFAULT_SEPARATOR
    keep: str = ""
    drop: str = ""
    mask: str = ""
    remove: str = ""
    groups: str = ".*"
    exclude_groups: str | None = None
    sync_groups: bool = True
    sync_configs: bool = True
    sync_acls: bool = False
    place: int | None = None

    @classmethod
    def of(cls, config: FlowConfig, settings: Mapping[str, Any], place: int) -> FlowDraft:
        """Return the draft of a flow: choices as they were read, selections and rules as the file spells them."""
        rules = {rule.get("name"): rule for rule in settings.get("rules") or ()}
        own = {key: line_of(rules.get(name, {}).get(key, "")) for key, name in _RULES.items()}
        exclude, exclude_groups = settings.get("exclude_topics"), settings.get("exclude_groups")
        return cls(
            source=config.source,
            target=config.target,
            name=settings.get("name") or "",
            topics=line_of(settings["topics"]),
            exclude_topics=None if config.exclude_topics == DEFAULT_EXCLUDE_TOPICS else line_of(exclude),
            policy=config.policy.kind,
            template=config.policy.template or "",
            separator=config.policy.separator,
            groups=line_of(settings.get("groups", ".*")),
            exclude_groups=None if config.exclude_groups == DEFAULT_EXCLUDE_GROUPS else line_of(exclude_groups),
            sync_groups=config.sync.groups,
            sync_configs=config.sync.configs,
            sync_acls=config.sync.acls,
            place=place,
            **own,
        )

    @property
    def called(self) -> str:
        """The flow's name, by its ends where it has none of its own."""
        return self.name or f"{self.source}->{self.target}"

    def write(self, node: Any, before: FlowDraft) -> None:
        """Write what differs from `before` into the flow's part of a file."""
        for key in ("name", "source", "target", "topics", "exclude_topics"):
            self._write_text(node, key, before)
        if (self.policy, self.template, self.separator) != (before.policy, before.template, before.separator):
            put(node, "policy", self._policy())
        for key in ("groups", "exclude_groups"):
            self._write_text(node, key, before)
        for key in _SYNC:
            if (wanted := getattr(self, f"sync_{key}")) != getattr(before, f"sync_{key}"):
                put_below(node, "sync", key, wanted)
        for key in _RULES:
            if getattr(self, key) != getattr(before, key):
                self._write_rule(node, key)

    def written(self) -> CommentedMap:
        """Return the flow's part of a file that does not have it yet."""
        node = CommentedMap()
        self.write(node, FlowDraft())
        return node

    def _write_text(self, node: Any, key: str, before: FlowDraft) -> None:
        text = getattr(self, key)
        if text != getattr(before, key):
            # A name is often the first key of its flow, which cannot go without the comment above it.
            write_selection(node, key, self.called if key == "name" else text)

    def _policy(self) -> Any:
        if self.policy == "template":
            return {"template": self.template}
        plain = self.separator in ("", DEFAULT_SEPARATOR)
        return self.policy if plain else {"name": self.policy, "separator": self.separator}

    def _write_rule(self, node: Any, key: str) -> None:
        name, text, rules = _RULES[key], getattr(self, key).strip(), own(node, "rules") if node.get("rules") else []
        place = next((place for place, rule in enumerate(rules) if rule.get("name") == name), None)
        value = text if key in ("keep", "drop") else [part.strip() for part in text.split(",") if part.strip()]
        if text and place is not None:
            put(rules[place], key, value)
        elif text and rules:
            earlier = list(_RULES.values())[: list(_RULES).index(key)]
            rules.insert(sum(rule.get("name") in earlier for rule in rules), quoted({"name": name, key: value}))
        elif text:
            put(node, "rules", [{"name": name, key: value}])
        elif place is not None and len(rules) > 1:
            remove(rules, place)
        elif place is not None:
            remove(node, "rules")


def check_cluster(draft: ClusterDraft) -> ClusterConfig:
    """Return a cluster's part of the settings, checked as in a file where it is the source of a flow.

    Raises:
        ConfigError: it has faults; all of them are named.
        UsageError: the password is not a reference, or never_leave is not a selection.
    """
    other = ClusterDraft(alias="other-end" if draft.alias != "other-end" else "other", servers="127.0.0.1:9092")
    flow = FlowDraft(source=draft.alias, target=other.alias, topics="any")
    try:
        NameMatcher(parse_patterns(draft.never_leave, required=False))
    except PatternError as error:
        raise UsageError(f"never_leave of {draft.alias}: {error.problem}", remedy=error.remedy) from None
    # What may not leave is judged with the flow that takes topics from it.
    whole = Draft(clusters=(replace(draft, never_leave=""), other), flow=flow).config()
    return whole.cluster(draft.alias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Draft settings: clusters, and one flow beside those that the file has already.

    Attributes:
        clusters: all of them.
        flow: the flow that is new, or that is changed; `FlowDraft()` for none.
        root: the lake's root.
        text: the file that is edited; empty for a new one.
        flows: those that the file has already.
        removed: the names of those among them that go.
        path: the file, where it is known: relative paths count from its folder.

    Example:
        >>> east, west = ClusterDraft(alias="east", servers="e:9092"), ClusterDraft(alias="west", servers="w:9092")
        >>> draft = Draft(clusters=(east, west), flow=FlowDraft(source="east", target="west", topics="orders"))
        >>> print(draft.yaml.split("flows:")[1])
        <BLANKLINE>
          - source: east
            target: west
            topics: orders
        <BLANKLINE>
    """

    clusters: tuple[ClusterDraft, ...] = ()
    flow: FlowDraft = FlowDraft()
    root: str = "./lake"
    text: str = ""
    flows: tuple[FlowDraft, ...] = ()
    removed: tuple[str, ...] = ()
    path: Path | None = None

    @classmethod
    def of(cls, text: str, flow: str | None = None, *, path: Path | None = None) -> Draft:
        """Return the draft of a settings file without secrets (`without_secrets`), at one of its flows or at none.

        Raises:
            ConfigError: the text is not a settings file.
        """
        config = loads(text)
        text = str(document := YamlText(text))
        root = document.root
        flows = tuple(
            FlowDraft.of(one, node, place)
            for place, (one, node) in enumerate(zip(config.flows, root["flows"], strict=True))
        )
        return cls(
            clusters=tuple(ClusterDraft.of(str(alias), settings) for alias, settings in root["clusters"].items()),
            flow=next((one for one in flows if one.called == flow), FlowDraft()),
            root=root["lake"].get("root", ""),
            text=text,
            flows=flows,
            path=path,
        )

    def kept(self) -> Draft:
        """Return the draft that holds the flow among its flows, with room for another one; raises as `config` does."""
        kept = Draft.of(replace(self, removed=()).yaml, path=self.path)
        return replace(kept, removed=self.removed)

    @property
    def free_name(self) -> str | None:
        """A free name for the flow where another one has its name; None where the name is its own."""
        own = None if self.flow.place is None else self.flows[self.flow.place].called
        taken = {one.called for one in self.flows} - {own}
        if self.flow.called not in taken:
            return None
        return next(name for number in count(2) if (name := f"{self.flow.called}-{number}") not in {*taken, own})

    def config(self) -> MirrorConfig:
        """Return the settings.

        Raises:
            ConfigError: they have faults, such as a new flow with the name of another; all of them are named.
            UsageError: a password is not a reference.
        """
        config = loads(text := self._written())
        if self.path is not None:
            config.read_from(self.path, text)
        return config

    @property
    def yaml(self) -> str:
        """The settings file as a person would write it; raises as `config` does."""
        return self.config().text

    def _written(self) -> str:
        if not self.text:
            clusters = {cluster.alias: cluster.written() for cluster in self.clusters}
            return sections({"lake": {"root": self.root}, "clusters": clusters, "flows": [self.flow.written()]})
        document = YamlText(self.text)
        root = document.root
        if "catalog" not in root["lake"] and self.root != root["lake"].get("root"):
            put(root["lake"], "root", self.root)
        known = root["clusters"]
        for alias in [alias for alias in known if str(alias) not in [cluster.alias for cluster in self.clusters]]:
            remove(known, alias)
        for cluster in self.clusters:
            if cluster.alias not in known:
                put(known, cluster.alias, cluster.written())
            elif cluster != ClusterDraft.of(cluster.alias, known[cluster.alias]):
                cluster.write(own(known, cluster.alias))
        before = None if self.flow.place is None else self.flows[self.flow.place]
        if before is None:
            if self.flow != FlowDraft():
                append(root["flows"], self.flow.written())
        elif before.called == self.flow.called:
            self.flow.write(root["flows"][before.place], before)
        else:
            # Another name is another ledger: the flow of the old name is not given up by an edit.
            copy = YamlText(self.text).root["flows"][before.place]
            self.flow.write(copy, before)
            append(root["flows"], copy)
        # Last, from the end: places are those of the file.
        gone = [place for place, one in enumerate(self.flows) if one.called in self.removed]
        for place in reversed(gone):
            remove_with_comment(root["flows"], place)
        return str(document)
