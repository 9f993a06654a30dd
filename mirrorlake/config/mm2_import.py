"""Turn an MirrorMaker 2 properties file into a settings file, and say what became of every key.

    clusters = east, central             aliases; other keys are read by their beginning
    east.bootstrap.servers = …           a cluster's: connection, consumer.*, producer.*, admin.*, worker settings
    east->central.topics = …             a flow's; beats the same key without a beginning
    replication.factor = 3               everybody's

Secrets never leave the file: passwords, keys and references to config providers become `${env:NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import javaproperties

from mirrorlake.config.mm2_client import Clients
from mirrorlake.config.mm2_flow import flow_settings
from mirrorlake.config.mm2_names import TRANSLATED, why_not
from mirrorlake.config.written import yaml_of
from mirrorlake.errors import ConfigError, Fault

Status = Literal["translated", "no_counterpart", "unknown", "off"]

_PROVIDERS = "config.providers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What became of one key: `translated` to where, `no_counterpart` and why, `unknown`, or `off` with its flow."""

    key: str
    status: Status
    detail: str


@dataclass(slots=True, kw_only=True)
class Mm2Import:
    """An imported file: the settings, what became of each key, and what will behave differently.

    Attributes:
        settings: as `from_settings` takes them.
        report: one line a key, in the order of the file.
        notes: where mirrorlake differs although the settings say the same.
    """

    settings: dict[str, Any]
    report: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def yaml(self) -> str:
        """The settings file, as it would be written by hand."""
        return yaml_of(self.settings)


def import_mm2(path: str | Path) -> Mm2Import:
    """Read an MirrorMaker 2 properties file.

    Raises:
        ConfigError: the file cannot be read, is no properties file, or names no clusters or flows.

    Example:
        >>> found = import_mm2("mm2.properties")  # doctest: +SKIP
        >>> print(found.yaml)  # doctest: +SKIP
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            [Fault(str(path), "", f"cannot be read ({error.strerror})", "name an existing file")]
        ) from None
    return import_properties(data, file=str(path))


def import_properties(data: bytes, *, file: str = "mm2.properties") -> Mm2Import:
    """Turn the bytes of a properties file into settings; see `import_mm2`."""
    properties, report, notes = _read(data, file)
    aliases = [alias for alias in re.split(r"\s*,\s*", properties.get("clusters", "").strip()) if alias]
    if not aliases:
        problem = "there is no `clusters = a, b`: this is no properties file of MirrorMaker 2's dedicated mode"
        raise ConfigError([Fault(file, "clusters", problem, "name the clusters by their aliases")])
    scopes = _Scopes(properties, aliases)
    found = Mm2Import(settings={}, report=report, notes=notes)
    enabled = [pair for pair in scopes.pairs if scopes.effective(pair).get("enabled", "false").lower() == "true"]
    if not enabled:
        raise ConfigError(
            [
                Fault(
                    file, "", "no flow is enabled", f"set {aliases[0]}->{aliases[-1]}.enabled = true, or as you need it"
                )
            ]
        )
    flows = []
    told: dict[str, str] = {}
    for pair in enabled:
        entry, where, differs = flow_settings(*pair, scopes.effective(pair))
        flows.append(entry)
        for key, detail in where.items():
            told.setdefault(scopes.written(pair, key), detail)
        notes += [f"{pair[0]}->{pair[1]}: {text}" for text in differs]
    clients = Clients(scopes.clusters, scopes.shared, scopes.flows, enabled)
    found.settings = {
        "lake": {"root": "./lake"},
        "clusters": clients.clusters(),
        "flows": [clients.with_options(pair, entry) for pair, entry in zip(enabled, flows, strict=True)],
    }
    notes += clients.notes
    for key in properties:
        report.append(_line(key, scopes, enabled, told | clients.told, clients.refused))
    return found


def _read(data: bytes, file: str) -> tuple[dict[str, str], list[Line], list[str]]:
    """Return the properties as Java reads them (Latin-1), lines for keys that are overwritten, and notes."""
    properties: dict[str, str] = {}
    report = []
    try:
        for element in javaproperties.parse(data):
            if isinstance(element, javaproperties.KeyValue):
                if element.key in properties:
                    report.append(Line(key=element.key, status="off", detail="given again further down, which counts"))
                properties[element.key] = element.value
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError([Fault(file, "", f"a malformed escape: {error}", r"write \uXXXX with four digits")]) from None
    if not properties:
        raise ConfigError([Fault(file, "", "there is no property in it", "name MirrorMaker's properties file")])
    notes = []
    if not data.isascii():
        notes.append("the file holds letters beyond ASCII, which Java reads as Latin-1: see that they came over right")
    return properties, report, notes


class _Scopes:
    """The properties by whom they speak of."""

    def __init__(self, properties: Mapping[str, str], aliases: list[str]) -> None:
        self.pairs = [(a, b) for a in aliases for b in aliases if a != b]
        self.clusters: dict[str, dict[str, str]] = {alias: {} for alias in aliases}
        self.flows: dict[tuple[str, str], dict[str, str]] = {pair: {} for pair in self.pairs}
        self.shared: dict[str, str] = {}
        self.place: dict[str, tuple[str | tuple[str, str] | None, str]] = {}
        # Longest first: one alias may begin like another.
        beginnings: list[tuple[str, str | tuple[str, str]]] = [(f"{a}->{b}.", (a, b)) for a, b in self.pairs]
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

    def effective(self, pair: tuple[str, str]) -> dict[str, str]:
        """Return what a flow's connectors are told, with what the ends' workers add (`connectorBaseConfig`)."""
        source, target = pair
        ends = {f"source.{key}": value for key, value in self.clusters[source].items()}
        ends |= {f"target.{key}": value for key, value in self.clusters[target].items()}
        return {**self.shared, **ends, **self.flows[pair]}

    def written(self, pair: tuple[str, str], key: str) -> str:
        """Return the key as it stands in the file for what a flow was told."""
        for written, (owner, rest) in self.place.items():
            if owner == pair and rest == key:
                return written
        for end, alias in zip(("source.", "target."), pair, strict=True):
            if key.startswith(end) and key.removeprefix(end) in self.clusters[alias]:
                return f"{alias}.{key.removeprefix(end)}"
        return key


def _line(
    key: str,
    scopes: _Scopes,
    enabled: list[tuple[str, str]],
    told: Mapping[str, str],
    refused: Mapping[str, str],
) -> Line:
    owner, rest = scopes.place[key]
    if key == "clusters":
        return Line(key=key, status="translated", detail="clusters")
    if isinstance(owner, tuple) and owner not in enabled:
        off = "the flow is off, which is the default" if rest != "enabled" else "a flow that is off is not written"
        return Line(key=key, status="off", detail=off)
    if key in refused:
        return Line(key=key, status="no_counterpart", detail=refused[key])
    if key in told:
        return Line(key=key, status="translated", detail=told[key])
    if key == _PROVIDERS or key.startswith(f"{_PROVIDERS}."):
        return Line(
            key=key, status="no_counterpart", detail="references became ${env:NAME}; ${secret:scope/key} is another way"
        )
    if owner is None and rest in TRANSLATED:
        return Line(key=key, status="off", detail="every flow says otherwise, or no flow needs it")
    reason = why_not(rest)
    if reason is not None:
        return Line(key=key, status="no_counterpart", detail=reason)
    return Line(key=key, status="unknown", detail="neither MirrorMaker 4.3 nor its clients know it")
