"""Read MirrorMaker 2's connectors on Kafka Connect as the properties of its dedicated mode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mirrorlake.config.mm2.properties import Mm2File, text_of
from mirrorlake.errors import ConfigError, Fault

Config = tuple[str, Mapping[str, Any]]

_CONNECTION = re.compile(r"(?:security\.|ssl\.|sasl\.|bootstrap\.servers$)")
_KINDS = {"Source": "source", "Checkpoint": "checkpoint", "Heartbeat": "heartbeat"}
_CLASS = re.compile(r"(?:org\.apache\.kafka\.connect\.mirror\.)?Mirror(Source|Checkpoint|Heartbeat)(?:Connector)?")
_ALIASES = ("source.cluster.alias", "target.cluster.alias")
_DEFAULT_TARGET = "target"


def read_connectors(document: Any, *, file: str) -> Mm2File:
    """Read connector configurations; the connectors of one pair become one flow.

    Raises:
        ConfigError: there is no MirrorSourceConnector, or a connector lacks its source's alias.
    """
    found = Mm2File()
    kinds: dict[tuple[str, str], set[str]] = {}
    configs = sorted(_configs(document, ""), key=lambda config: "Source" not in str(config[1].get("connector.class")))
    for name, config in configs:
        kind = _CLASS.fullmatch(text_of(config.get("connector.class", "")))
        prefix = f"{name}: " if len(configs) > 1 else ""
        if kind is None:
            found.off(f"{prefix}connector.class", "no connector of MirrorMaker 2")
            continue
        pair = _pair(config, name, file)
        kinds.setdefault(pair, set()).add(_KINDS[kind.group(1)])
        _take(found, prefix, config, pair, main=kind.group(1) == "Source")
    mirrored = [pair for pair, there in kinds.items() if "source" in there]
    if not mirrored:
        problem = "there is no MirrorSourceConnector in it, so it mirrors no records"
        raise ConfigError([Fault(file, "", problem, "name the file with its configuration, or several in a JSON list")])
    complete(found, {pair: kinds[pair] for pair in mirrored})
    return found


def complete(found: Mm2File, kinds: Mapping[tuple[str, str], set[str]]) -> None:
    """Add the properties that follow from the present and absent connectors."""
    found.properties["clusters"] = ", ".join(dict.fromkeys(alias for pair in kinds for alias in pair))
    for (source, target), there in kinds.items():
        start = f"{source}->{target}."
        found.properties.setdefault(f"{start}enabled", "true")
        if "checkpoint" not in there:
            found.properties |= {
                f"{start}emit.checkpoints.enabled": "false",
                f"{start}sync.group.offsets.enabled": "false",
            }
            found.notes.append(
                f"{source}->{target}: there is no checkpoint connector, so no groups; is it in another file?"
            )
        if "heartbeat" not in there:
            found.properties[f"{start}emit.heartbeats.enabled"] = "false"


def _configs(document: Any, name: str) -> Iterator[Config]:
    """Yield every connector's name and configuration."""
    if isinstance(document, list):
        for each in document:
            yield from _configs(each, name)
        return
    if not isinstance(document, Mapping):
        return
    if "connector.class" in document:
        yield text_of(document.get("name", name)), document
        return
    for own, config in (("connectorName", "connectorConfiguration"), ("name", "config"), ("name", "info")):
        if isinstance(document.get(config), Mapping):
            yield from _configs(document[config], text_of(document.get(own, name)))
            return
    for key, value in document.items():
        yield from _configs(value, str(key))


def _pair(config: Mapping[str, Any], name: str, file: str) -> tuple[str, str]:
    source = text_of(config.get(_ALIASES[0], ""))
    if not source:
        problem = f"{_ALIASES[0]} is missing{f' in {name}' if name else ''}, and MirrorMaker does not start without it"
        raise ConfigError([Fault(file, _ALIASES[0], problem, "name the source's alias")])
    return source, text_of(config.get(_ALIASES[1], _DEFAULT_TARGET))


def _take(found: Mm2File, prefix: str, config: Mapping[str, Any], pair: tuple[str, str], *, main: bool) -> None:
    source, target = pair
    for key, value in config.items():
        label = f"{prefix}{key}"
        if key in ("name", "connector.class", "clusters", *_ALIASES):
            found.off(label, f"it makes the flow {source}->{target}")
        elif key == "tasks.max" and not main:
            found.off(label, "groups and heartbeats take no lanes")
        elif isinstance(value, Mapping | list):
            found.off(label, "not a value that a connector's configuration can hold")
        else:
            found.put(label, _property(found, key, text_of(value), pair), value)


def _property(found: Mm2File, key: str, value: str, pair: tuple[str, str]) -> str:
    """Return the name of the same property in a dedicated MirrorMaker."""
    source, target = pair
    if key == "config.providers" or key.startswith("config.providers."):
        return key
    for end, alias in (("source.", source), ("target.", target)):
        rest = key.removeprefix(f"{end}cluster.")
        if rest != key:
            # Two connectors may log in differently to one cluster: the second's setting gets a name that is refused.
            same = found.properties.get(f"{alias}.{rest}", value) == value
            return f"{alias}.{rest}" if same or not _CONNECTION.match(rest) else f"{source}->{target}.{end}admin.{rest}"
    for start in ("source.consumer.", "consumer."):
        rest = key.removeprefix(start)
        if rest != key and found.properties.get(f"{source}.consumer.{rest}", value) == value:
            return f"{source}.consumer.{rest}"
    return f"{source}->{target}.{key}"
