"""Turn a MirrorMaker 2 file (`read.py`) into a settings file, and report the outcome of every key.

    clusters = east, central             aliases; other keys are read by their prefix
    east.bootstrap.servers = …           of a cluster: connection, consumer.*, producer.*, admin.*, worker settings
    east->central.topics = …             of a flow; beats the same key without a prefix
    replication.factor = 3               of all

Secrets never leave the file: passwords, keys and references to config providers become `${env:NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirrorlake.config.mm2.client import Clients, Pair
from mirrorlake.config.mm2.flow import Mm2Flow
from mirrorlake.config.mm2.properties import PropertyLine, Status
from mirrorlake.config.mm2.read import read
from mirrorlake.config.mm2.table import TRANSLATED, why_not
from mirrorlake.config.text.yaml_text import sections
from mirrorlake.errors import ConfigError, Fault

Fate = tuple[Status, str]

_PROVIDERS = "config.providers"
# A dedicated MirrorMaker passes top-level keys of these prefixes to no client: they only count under an alias or a flow.
_NOT_SHARED = ("consumer.", "producer.", "admin.", "source.", "target.")


@dataclass(slots=True, kw_only=True)
class Mm2Import:
    """`report` has one line per key, in the order of the file; `notes` are differences of mirrorlake under equal settings.

    `open` are decisions for a person before the settings do the same as the file; reading them may name more.
    """

    settings: dict[str, Any]
    report: list[PropertyLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    @property
    def yaml(self) -> str:
        return sections(self.settings)


def import_mm2(path: str | Path) -> Mm2Import:
    """Import a MirrorMaker 2 from properties or Strimzi's resource.

    Raises:
        ConfigError: the file cannot be read, is none of these, or names no clusters or flows.

    Example:
        >>> found = import_mm2("mm2.properties")  # doctest: +SKIP
        >>> print(found.yaml)  # doctest: +SKIP
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise ConfigError([Fault(str(path), "", problem, "name an existing file")]) from None
    return import_properties(data, file=str(path))


def import_properties(data: bytes, *, file: str = "mm2.properties") -> Mm2Import:
    source = read(data, file=file)
    properties = source.properties
    aliases = [alias for alias in re.split(r"\s*,\s*", properties.get("clusters", "").strip()) if alias]
    if not aliases:
        problem = "there is no `clusters = a, b`: this is not a properties file of MirrorMaker 2's dedicated mode"
        raise ConfigError([Fault(file, "clusters", problem, "name the clusters by their aliases")])
    scopes = _Scopes(properties, aliases)
    found = Mm2Import(settings={}, report=source.report, notes=source.notes)
    enabled = [pair for pair in scopes.pairs if scopes.effective(pair).get("enabled", "false").lower() == "true"]
    if not enabled:
        remedy = f"set {aliases[0]}->{aliases[-1]}.enabled = true, or as you need it"
        raise ConfigError([Fault(file, "", "no flow is enabled", remedy)])
    flows: dict[Pair, dict[str, Any]] = {}
    translated: dict[str, str] = {}
    for pair in enabled:
        flow = Mm2Flow.of(*pair, scopes.effective(pair))
        if flow.entry:
            flows[pair] = flow.entry
        for key, detail in flow.translated.items():
            translated.setdefault(scopes.written(pair, key), detail)
        found.notes += [f"{pair[0]}->{pair[1]}: {text}" for text in flow.notes]
        found.open += [f"{pair[0]}->{pair[1]}: {text}" for text in flow.open]
    if not flows:
        raise ConfigError([Fault(file, "topics", "no enabled flow selects a topic", "name the topics to mirror")])
    clients = Clients(scopes.clusters, scopes.shared, scopes.flows, list(flows))
    found.settings = {
        "lake": {"root": "./lake"},
        "clusters": clients.clusters(),
        "flows": [clients.with_options(pair, entry) for pair, entry in flows.items()],
    }
    found.notes += clients.notes
    for label, key in source.labels:
        status, detail = _fate(key, scopes, enabled, translated | clients.translated, clients.refused)
        found.report.append(PropertyLine(key=label, status=status, detail=detail))
    return found


class _Scopes:
    def __init__(self, properties: Mapping[str, str], aliases: list[str]) -> None:
        self.pairs = [(a, b) for a in aliases for b in aliases if a != b]
        self.clusters: dict[str, dict[str, str]] = {alias: {} for alias in aliases}
        self.flows: dict[Pair, dict[str, str]] = {pair: {} for pair in self.pairs}
        self.shared: dict[str, str] = {}
        self.place: dict[str, tuple[str | Pair | None, str]] = {}
        # Longest first: an alias may be a prefix of another.
        beginnings: list[tuple[str, str | Pair]] = [(f"{a}->{b}.", (a, b)) for a, b in self.pairs]
        beginnings += [(f"{alias}.", alias) for alias in aliases]
        beginnings.sort(key=lambda item: -len(item[0]))
        for key, value in properties.items():
            start, owner = next(((s, o) for s, o in beginnings if key.startswith(s)), ("", None))
            rest = key.removeprefix(start)
            self.place[key] = (owner, rest)
            if owner is None:
                self.shared[rest] = value
            elif isinstance(owner, str):
                self.clusters[owner][rest] = value
            else:
                self.flows[owner][rest] = value

    def effective(self, pair: Pair) -> dict[str, str]:
        """Return the properties of a flow's connectors, with those that the workers of both ends add (`connectorBaseConfig`)."""
        source, target = pair
        ends = {f"source.{key}": value for key, value in self.clusters[source].items()}
        ends |= {f"target.{key}": value for key, value in self.clusters[target].items()}
        shared = {key: value for key, value in self.shared.items() if not key.startswith(_NOT_SHARED)}
        return {**shared, **ends, **self.flows[pair]}

    def written(self, pair: Pair, key: str) -> str:
        for written, (owner, rest) in self.place.items():
            if owner == pair and rest == key:
                return written
        for end, alias in zip(("source.", "target."), pair, strict=True):
            if key.startswith(end) and key.removeprefix(end) in self.clusters[alias]:
                return f"{alias}.{key.removeprefix(end)}"
        return key


def _fate(
    key: str, scopes: _Scopes, enabled: list[Pair], translated: Mapping[str, str], refused: Mapping[str, str]
) -> Fate:
    owner, rest = scopes.place[key]
    if key == "clusters":
        return "translated", "clusters"
    if isinstance(owner, tuple) and owner not in enabled:
        off = "the flow is off, which is the default" if rest != "enabled" else "a flow that is off is not written"
        return "off", off
    if key in refused:
        return "no_counterpart", refused[key]
    if key in translated:
        return "translated", translated[key]
    if owner is None and rest.startswith(_NOT_SHARED):
        detail = "MirrorMaker passes it to no client: it only counts under a cluster's alias or a flow"
        return "no_counterpart", detail
    if key == _PROVIDERS or key.startswith(f"{_PROVIDERS}."):
        return "no_counterpart", "references became ${env:NAME}; ${secret:scope/key} is another way"
    if owner is None and rest in ("enabled", *(row.key for row in TRANSLATED)):
        return "off", "every flow overrides it, or no flow needs it"
    reason = why_not(rest)
    if reason is not None:
        return "no_counterpart", reason
    return "unknown", "neither MirrorMaker 4.3 nor its clients know it"
