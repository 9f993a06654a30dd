"""Read the properties of MirrorMaker 2's dedicated mode, with their keys in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import javaproperties

from mirrorlake.errors import ConfigError, Fault

Status = Literal["translated", "no_counterpart", "unknown", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyLine:
    """The outcome of one key: `translated` with its setting, `no_counterpart` with the reason, `unknown`, or `off` with its flow."""

    key: str
    status: Status
    detail: str


@dataclass(slots=True)
class Mm2File:
    """`labels` are the keys in the order of the file, each with its property; `report` has the outcomes of keys without one."""

    properties: dict[str, str] = field(default_factory=dict)
    labels: list[tuple[str, str]] = field(default_factory=list)
    report: list[PropertyLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(self, label: str, key: str, value: object) -> None:
        """Add the property of a key; its first occurrence counts."""
        self.labels.append((label, key))
        self.properties.setdefault(key, text_of(value))

    def off(self, label: str, detail: str) -> None:
        self.report.append(PropertyLine(key=label, status="off", detail=detail))


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


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
