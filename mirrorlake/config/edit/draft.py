"""Draft settings: what a person has filled in so far, and the settings that result.

A draft never holds a secret: where one belongs it holds a reference, `${env:NAME}` or `${secret:scope/key}`. What a settings
file says beyond the fields here is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mirrorlake.config.edit.yaml_writer import variable, written, yaml_of
from mirrorlake.config.load import loads
from mirrorlake.config.schema.mirror import ClusterConfig, MirrorConfig
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.config.secrets import is_reference
from mirrorlake.config.values import policy as read_policy
from mirrorlake.errors import UsageError
from mirrorlake.model.patterns import PatternError, parse_patterns
from mirrorlake.model.policy import DEFAULT_SEPARATOR

SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
POLICIES = ("default", "identity", "template")
# The rules that a draft writes, by the field they come from; rules of other names stay as they are.
_RULES = {"keep": "only", "drop": "without", "mask": "masked", "remove": "removed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDraft:
    """One cluster: `servers` as `host:port,...`; `password` is a reference; `rest` is what the file says beyond."""

    alias: str
    servers: str = ""
    security: str = "PLAINTEXT"
    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = ""
    ca: str = ""
    never_leave: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, alias: str, settings: Mapping[str, Any]) -> ClusterDraft:
        """Return the draft of a cluster as `config/edit/yaml_writer.py` writes it."""
        client = dict(settings.get("client", {}))
        return cls(
            alias=alias,
            servers=_line(settings.get("bootstrap_servers", ""), ","),
            security=client.get("security.protocol", "PLAINTEXT"),
            mechanism=client.get("sasl.mechanism", "SCRAM-SHA-512"),
            username=client.get("sasl.username", ""),
            password=client.get("sasl.password", ""),
            ca=client.get("ssl.ca.location", ""),
            never_leave=_line(settings.get("never_leave", "")),
            rest=settings,
        )

    @property
    def usual_reference(self) -> str:
        """The reference that stands for the password where nobody named another."""
        return f"${{env:{variable(self.alias, 'sasl.password')}}}"

    @property
    def logs_in(self) -> bool:
        """Whether user and password are needed."""
        return self.security.startswith("SASL")

    def settings(self) -> dict[str, Any]:
        """Return the cluster's part of a settings file.

        Raises:
            UsageError: the password is not a reference; it is not repeated.
        """
        if self.rest.get("kind") == "lake":
            return {**self.rest, "never_leave": self.never_leave}
        wanted = {
            "security.protocol": "" if self.security == "PLAINTEXT" else self.security,
            "ssl.ca.location": self.ca,
        }
        client = dict(self.rest.get("client", {}))
        if "sasl.jaas.config" not in client:
            wanted |= self._login()
        for key, value in wanted.items():
            client.pop(key, None) if not value else client.update({key: value})
        others = {key: value for key, value in self.rest.items() if key not in ("bootstrap_servers", "client")}
        # Commas inside ${env:NAME:-default} do not separate.
        servers = {"bootstrap_servers": re.split(r"\s*,(?![^{]*\})\s*", self.servers.strip())}
        return {**others, **servers, **({"client": client} if client else {}), "never_leave": self.never_leave}

    def _login(self) -> dict[str, str]:
        if not self.logs_in:
            return dict.fromkeys(("sasl.mechanism", "sasl.username", "sasl.password"), "")
        password = self.password or self.usual_reference
        if not is_reference(password) or ":-" in password:
            raise UsageError(
                f"the password of {self.alias} is not a reference",
                consequence="it is not kept: a settings file is not the place for a password",
                remedy=f"write {self.usual_reference} or ${{secret:scope/key}}, and type the password where it is hidden",
            )
        return {"sasl.mechanism": self.mechanism, "sasl.username": self.username, "sasl.password": password}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDraft:
    """One flow. Selections are spelled as in a settings file; None leaves the default; `rest` is what the file says beyond.

    `keep` and `drop` are predicates over records, `mask` and `remove` paths of JSON members with commas between.
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
    rest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> FlowDraft:
        """Return the draft of a flow as `config/edit/yaml_writer.py` writes it."""
        choice, sync = read_policy(settings.get("policy", "default")), settings.get("sync", {})
        rules = {rule.get("name"): rule for rule in settings.get("rules", ())}
        own = {key: rules.get(name, {}).get(key, "") for key, name in _RULES.items()}
        exclude, exclude_groups = settings.get("exclude_topics"), settings.get("exclude_groups")
        return cls(
            source=settings["source"],
            target=settings["target"],
            name=settings.get("name", ""),
            topics=_line(settings["topics"]),
            exclude_topics=None if exclude is None else _line(exclude),
            policy=choice.kind,
            template=choice.template or "",
            separator=choice.separator,
            groups=_line(settings.get("groups", ".*")),
            exclude_groups=None if exclude_groups is None else _line(exclude_groups),
            sync_groups=sync.get("groups", True),
            sync_configs=sync.get("configs", True),
            sync_acls=sync.get("acls", False),
            rest=dict(settings),
            **{key: _line(value) for key, value in own.items()},
        )

    @property
    def called(self) -> str:
        """The flow's name, by its ends where it has none of its own."""
        return self.name or f"{self.source}->{self.target}"

    def settings(self) -> dict[str, Any]:
        """Return the flow's part of a settings file."""
        found: dict[str, Any] = {**self.rest, "source": self.source, "target": self.target, "topics": self.topics}
        optional = {
            "name": self.name or None,
            "exclude_topics": self.exclude_topics,
            "exclude_groups": self.exclude_groups,
        }
        for key, value in optional.items():
            found.pop(key, None)
            if value is not None:
                found[key] = value
        found["policy"] = self._policy()
        found["groups"] = self.groups
        switches = {"groups": self.sync_groups, "configs": self.sync_configs, "acls": self.sync_acls}
        found["sync"] = {**self.rest.get("sync", {}), **switches}
        found["rules"] = self._rules()
        return found

    def _policy(self) -> Any:
        if self.policy == "template":
            return {"template": self.template}
        plain = self.separator in ("", DEFAULT_SEPARATOR)
        return self.policy if plain else {"name": self.policy, "separator": self.separator}

    def _rules(self) -> list[dict[str, Any]]:
        others = [rule for rule in self.rest.get("rules", ()) if rule.get("name") not in _RULES.values()]
        own = []
        for key, name in _RULES.items():
            text = getattr(self, key).strip()
            if text:
                before = next((dict(rule) for rule in self.rest.get("rules", ()) if rule.get("name") == name), {})
                value = text if key in ("keep", "drop") else [part.strip() for part in text.split(",") if part.strip()]
                own.append({**before, "name": name, key: value})
        return [*own, *others]


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
    base: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any], flow: str | None = None) -> Draft:
        """Return the draft of settings as `config/edit/yaml_writer.py` writes them, at one of their flows or at a new one.

        Args:
            content: what `written(config).content` holds.
            flow: the name of a flow; None for a new one.
        """
        clusters = tuple(ClusterDraft.of(alias, settings) for alias, settings in content["clusters"].items())
        drafts = [FlowDraft.of(settings) for settings in content["flows"]]
        chosen = next((one for one in drafts if one.called == flow), FlowDraft())
        return cls(clusters=clusters, flow=chosen, root=content["lake"].get("root", ""), base=content)

    @property
    def flows(self) -> tuple[FlowDraft, ...]:
        """The flows that the file has already."""
        return tuple(FlowDraft.of(settings) for settings in self.base.get("flows", ()))

    def content(self) -> dict[str, Any]:
        """Return the settings as `from_settings` takes them; nothing is checked yet but passwords."""
        lake = self.base.get("lake", {})
        mine = self.flow.settings()
        flows = [mine if FlowDraft.of(flow).called == self.flow.called else flow for flow in self.base.get("flows", ())]
        if mine not in flows:
            flows.append(mine)
        return {
            **self.base,
            "lake": lake if "catalog" in lake else {**lake, "root": self.root},
            "clusters": {cluster.alias: cluster.settings() for cluster in self.clusters},
            "flows": flows,
        }

    def config(self) -> MirrorConfig:
        """Return the settings.

        Raises:
            ConfigError: they have faults; all of them are named.
            UsageError: a password is not a reference.
        """
        return loads(yaml_of(self.content()))

    @property
    def yaml(self) -> str:
        """The settings file as a person would write it; raises as `config` does."""
        return written(self.config()).yaml


def _line(value: Any, separator: str = ", ") -> str:
    return value if isinstance(value, str) else separator.join(str(item) for item in value)
