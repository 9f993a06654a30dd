"""Read a YAML document as plain values with the line of every key, by the rules of PyYAML's safe loader.

Unlike there, keys stay as written (an alias `no` is not a truth value), a repeated key is a fault, and times stay text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from mirrorlake.config import secrets
from mirrorlake.config.faults import Place, SettingsFault
from mirrorlake.errors import ConfigError, Fault

_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = {_TAG + name for name in ("null", "bool", "int", "float", "str")}
_TEXT_TAGS = {_TAG + "timestamp", _TAG + "value"}
_MAX_NODES = 100_000
_DEEPEST = 32
# Resolved at use, so that the settings contain the reference; checks need the value of everything else.
_LATE = {("clusters", part) for part in ("client", "bootstrap_servers", "registry")} | {
    ("flows", "producer"),
    ("tables", "registry"),
}
_LATE_IN_RULES = ("hash", "key")


@dataclass
class Document:
    file: str
    data: Any = None
    findings: list[SettingsFault] = field(default_factory=list)
    _lines: dict[Place, int] = field(default_factory=dict)
    _unresolved: set[Place] = field(default_factory=set)
    _nodes: int = 0

    def is_unresolved(self, place: Place) -> bool:
        return any(known == place or (known[:-1] == place and isinstance(known[-1], int)) for known in self._unresolved)

    def line(self, place: Place) -> int | None:
        """Return the line (from 1) of the path, or of its nearest parent in the file."""
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place)

    def add(self, node: Node, place: Place, line: int | None = None) -> Any:
        """Return the node's plain value, and record lines and findings."""
        self._lines.setdefault(place, line or node.start_mark.line + 1)
        self._nodes += 1
        if self._nodes > _MAX_NODES or len(place) > _DEEPEST:
            problem, remedy = "the file unfolds without end", "remove the YAML anchors"
            raise ConfigError([Fault(self.file, "", problem, remedy, self.line(place))])
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if isinstance(node, SequenceNode):
            return [self.add(item, (*place, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        own: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in own and key.tag != _TAG + "merge":
                problem = f"'{name}' is given twice (lines {own[name]} and {line})"
                self.findings.append(SettingsFault((*place, name), problem, "keep one of them"))
            own[name] = line
        try:
            SafeConstructor().flatten_mapping(node)
        except ConstructorError as error:
            self.findings.append(SettingsFault(place, f"<<: {error.problem}", "merge a mapping, or a list of mappings"))
        result: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.findings.append(SettingsFault(place, "a key that is not a plain word", "write `key: value`"))
                continue
            result[key.value] = self.add(value, (*place, key.value), key.start_mark.line + 1)
        return result

    def _scalar(self, node: Node, place: Place) -> Any:
        text = str(node.value)
        if node.tag in _TEXT_TAGS:
            return text
        if node.tag not in _KNOWN_TAGS:
            problem = f"the YAML tag {node.tag} is not read here"
            self.findings.append(SettingsFault(place, problem, "write a plain value"))
            return text
        if node.tag == _TAG + "str":
            return self._text(text, place)
        try:
            return SafeConstructor().construct_object(node)
        except (ValueError, KeyError):
            # `!!int x`, or a number without digits such as 0b_. Hidden, since it may be a password.
            problem = f"the value (hidden) is not a YAML {node.tag.removeprefix(_TAG)}"
            self.findings.append(SettingsFault(place, problem, "write a plain value, or quote it"))
            self._unresolved.add(place)
            return text

    def _text(self, text: str, place: Place) -> str:
        part = (place[0], *place[2:3])
        late = (
            place[:1] in (("lake",), ("tracking",))
            or part in _LATE
            or (part == ("flows", "rules") and place[4:] == _LATE_IN_RULES)
        )
        try:
            secrets.check(text)
            if late or "${" not in text:
                return text
            if secrets.has_secret(text):
                raise secrets.BadReferenceError("a secret is not allowed here", "write the value, or use ${env:NAME}")
            return secrets.expand(text)
        except secrets.BadReferenceError as fault:
            self.findings.append(SettingsFault(place, fault.problem, fault.remedy))
            self._unresolved.add(place)
            return text


def read(text: str, file: str) -> Document:
    """Return the plain values of a YAML text. Raises ConfigError: it is empty, does not parse, or is not a mapping."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" (column {mark.column + 1})" if mark else ""
        problem = f"not valid YAML{where}: {error.problem or error.context}"
        fault = Fault(file, "", problem, "check indentation and quotes there", mark.line + 1 if mark else None)
        raise ConfigError([fault]) from None
    except yaml.YAMLError as error:
        raise ConfigError(
            [Fault(file, "", f"not valid YAML: {error}".splitlines()[0], "save it as plain UTF-8 text")]
        ) from None
    if node is None:
        raise ConfigError([Fault(file, "", "the file is empty", "begin with conf/example.yml")])
    if not isinstance(node, MappingNode):
        raise ConfigError(
            [Fault(file, "", "the file holds no mapping", "begin with `lake:`, `clusters:` and `flows:`", 1)]
        )
    document = Document(file)
    document.data = document.add(node, ())
    return document
