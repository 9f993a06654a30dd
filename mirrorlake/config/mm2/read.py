"""Read what describes a MirrorMaker 2, in any of its forms, as the properties of its dedicated mode.

a properties file       dedicated mode, or one connector as MSK Connect takes it
Kafka Connect's JSON    one connector's configuration, or several: what the REST API takes and gives (`{"name", "config"}`,
                        `?expand=info`), MSK Connect's `{"connectorName", "connectorConfiguration"}`, or a list of these
Strimzi                 a `KafkaMirrorMaker2` resource, YAML or JSON (`mm2_strimzi`)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import javaproperties
import yaml

from mirrorlake.errors import ConfigError, Fault

Status = Literal["translated", "no_counterpart", "unknown", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyLine:
    """What became of one key: `translated` to where, `no_counterpart` and why, `unknown`, or `off` with its flow."""

    key: str
    status: Status
    detail: str


@dataclass(slots=True)
class Mm2File:
    """A file as it was read.

    Attributes:
        properties: as a dedicated MirrorMaker would read them.
        labels: the keys of the file in its order, each with the property it became.
        report: what is known of keys that became no property.
        notes: what a reader should know.
    """

    properties: dict[str, str] = field(default_factory=dict)
    labels: list[tuple[str, str]] = field(default_factory=list)
    report: list[PropertyLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(self, label: str, key: str, value: object) -> None:
        """Take over one key; its first occurrence counts."""
        self.labels.append((label, key))
        self.properties.setdefault(key, text_of(value))

    def off(self, label: str, detail: str) -> None:
        """Note a key that says nothing about a mirror."""
        self.report.append(PropertyLine(key=label, status="off", detail=detail))


def text_of(value: object) -> str:
    """Return a value of JSON or YAML as a properties file would hold it."""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def read(data: bytes, *, file: str) -> Mm2File:
    """Read a file in the form that it has. Raises ConfigError: it has none of them."""
    document = _document(data, file)
    if document is None:
        return _told_apart(read_properties(data, file=file), file)
    resources = list(_resources(document))
    if resources:
        from mirrorlake.config.mm2.strimzi import read_strimzi

        return read_strimzi(resources, file=file)
    from mirrorlake.config.mm2.connect import read_connectors

    return read_connectors(document, file=file)


def read_properties(data: bytes, *, file: str) -> Mm2File:
    """Read properties as Java does (Latin-1, the last of two equal keys counts); blanks at the end of a value are dropped."""
    found = Mm2File()
    try:
        for element in javaproperties.parse(data):
            if isinstance(element, javaproperties.KeyValue):
                if element.key in found.properties:
                    found.off(element.key, "given again further down, which counts")
                    found.labels.remove((element.key, element.key))
                    del found.properties[element.key]
                found.put(element.key, element.key, element.value)
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError([Fault(file, "", f"a malformed escape: {error}", r"write \uXXXX with four digits")]) from None
    if not found.properties:
        raise ConfigError([Fault(file, "", "there is no property in it", "name MirrorMaker's properties file")])
    if not data.isascii():
        found.notes.append(
            "the file holds letters beyond ASCII, which Java reads as Latin-1: check that they were read correctly"
        )
    return found


def _told_apart(found: Mm2File, file: str) -> Mm2File:
    # Amazon's samples for MSK Connect name `clusters`, too, beside the aliases of the connector's ends.
    keys = found.properties.keys()
    if "connector.class" not in keys or ("clusters" in keys and "source.cluster.alias" not in keys):
        return found
    from mirrorlake.config.mm2.connect import read_connectors

    read = read_connectors(found.properties, file=file)
    read.report[:0], read.notes[:0] = found.report, found.notes
    return read


def _document(data: bytes, file: str) -> Any:
    """Return the content of a JSON or YAML file, None for properties."""
    text = data.decode("utf-8", "replace")
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError([Fault(file, "", f"it begins like JSON but is not JSON ({error})", "mend it")]) from None
    if "KafkaMirrorMaker2" not in text:
        return None
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError:
        return None
    return documents if any(isinstance(each, Mapping) for each in documents) else None


def _resources(document: Any) -> Iterator[Mapping[str, Any]]:
    for each in document if isinstance(document, list) else [document]:
        if isinstance(each, Mapping) and each.get("kind") == "KafkaMirrorMaker2":
            yield each
        elif isinstance(each, Mapping) and each.get("kind") == "List":
            yield from _resources(each.get("items", []))
