"""Settings as a person would write them: defaults left out, the order of conf/example.yml, references for secrets.

Law of the round trip: reading what is written here gives the same settings, but for secrets that stood in place. These are
never written: each becomes a reference `${env:NAME}`, and the caller learns which variable now has to hold it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from mirrorlake.config.client import jaas
from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.config.secrets import has_reference, is_reference, looks_secret
from mirrorlake.model.patterns import parse_patterns

_SELECTIONS = {"topics", "exclude_topics", "groups", "exclude_groups", "never_leave", "configs_exclude"}
_LONGEST_LINE = 90  # characters of a selection in one line; a longer one is a list
# What is read as it is written; `$${` is unescaped everywhere else (`config/document.py`).
_VERBATIM = {"lake", "bootstrap_servers", "client", "producer"}
_FREE = {"client", "producer", "configs", "configs_override", "acls_principals", "rules"}
_INTERVAL, _SIZE = re.compile(r"(\d+)ms"), re.compile(r"(\d+) B")
_TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


Keep = Callable[[str, str], None]


@dataclass(slots=True)
class Written:
    """Settings as plain content in the order of a settings file.

    Attributes:
        content: as `from_settings` takes it.
        replaced: environment variables by the place of the secret that stood there in the open; values are not kept.
    """

    content: dict[str, Any]
    replaced: dict[str, str] = field(default_factory=dict)

    @property
    def yaml(self) -> str:
        """The settings file."""
        return yaml_of(self.content)


def written(config: MirrorConfig, *, keep: Keep = lambda *_: None) -> Written:
    """Return the settings as a person would write them; resolves no reference and holds no secret.

    Args:
        config: the settings.
        keep: called with each reference that replaces a secret, and with that secret.

    Example:
        >>> from mirrorlake.config.load import loads
        >>> config = loads('''
        ... lake: {root: ./lake}
        ... clusters: {east: {bootstrap_servers: ["e:9092"]}, west: {bootstrap_servers: "w:9092"}}
        ... flows: [{source: east, target: west, topics: [orders, clicks.*], lanes: 2, trigger: 90s}]
        ... ''')
        >>> print(written(config).yaml.split("flows:")[1])
        <BLANKLINE>
          - source: east
            target: west
            topics: orders, clicks.*
            trigger: 90s
        <BLANKLINE>
    """
    content = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    found = Written({})
    for key, value in content.items():
        # A section that knows where it was written differs from its default by that alone.
        if value != {}:
            found.content[key] = _plain(value, key)
    for alias, cluster in found.content["clusters"].items():
        for options in (
            cluster.get("client", {}),
            *(one.get("configs", {}) for one in cluster.get("topics", {}).values()),
        ):
            _unquote(options)
        servers = cluster.get("bootstrap_servers")
        if servers is not None:
            cluster["bootstrap_servers"] = servers[0] if len(servers) == 1 else servers
        _hide(cluster.get("client", {}), f"clusters.{alias}.client", alias, found, keep)
    for index, flow in enumerate(found.content["flows"]):
        name = flow["name"]
        if name == f"{flow['source']}->{flow['target']}":
            del flow["name"]
        _hide(flow.get("producer", {}), f"flows[{index}].producer", f"{name}_producer", found, keep)
        for options in (flow.get("producer", {}), *flow.get("sync", {}).get("configs_override", {}).values()):
            _unquote(options)
        placement = flow.get("placement")
        if isinstance(placement, dict) and "map" in placement:
            placement["map"] = {_number(key): _numbered(pairs) for key, pairs in placement["map"].items()}
        for place, rule in enumerate(flow.get("rules", ())):
            _rule(rule, place, f"flows[{index}].rules[{place}]", name, found, keep)
    return found


def yaml_of(content: Mapping[str, Any]) -> str:
    """Return plain content as YAML: lists below their key, a blank line between sections."""
    return "\n".join(
        yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
        for key, value in content.items()
    )


def variable(*parts: str) -> str:
    """Return the name of the environment variable for a secret.

    >>> variable("east", "sasl.password")
    'EAST_SASL_PASSWORD'
    """
    return re.sub(r"\W+", "_", "_".join(parts)).upper()


class _Dumper(yaml.SafeDumper):
    """Indent lists below their key, as people do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)


def _plain(value: Any, key: str, *, free: bool = False) -> Any:
    if isinstance(value, Mapping):
        # `topics` of a lake cluster is a mapping with settings of the topics' own below.
        inner = free or key in _FREE
        return {name: _plain(item, key if key in _VERBATIM else name, free=inner) for name, item in value.items()}
    if isinstance(value, list):
        if key in _SELECTIONS and all(isinstance(item, str) for item in value):
            return _escaped(_selection(value), key)
        return [_plain(item, key, free=free) for item in value]
    if isinstance(value, str):
        return _escaped(value if free else _with_unit(value), key)
    return value


def _escaped(value: Any, key: str) -> Any:
    if key in _VERBATIM:
        return value
    return value.replace("${", "$${") if isinstance(value, str) else [item.replace("${", "$${") for item in value]


def _selection(expressions: list[str]) -> str | list[str]:
    """Return a selection in one line where it is short, else as the list it is."""
    line = ", ".join(expressions)
    short = len(line) <= _LONGEST_LINE and bool(expressions)
    return line if short and parse_patterns(line).expressions == tuple(expressions) else expressions


def _with_unit(text: str) -> str:
    if found := _INTERVAL.fullmatch(text):
        length = int(found.group(1))
        if not length:
            return "0s"
        for unit, word in _TIMES:
            # 90s, not 1.5m; 60s, not 1m: people count in small units until there are many.
            if length % unit == 0 and (length >= 2 * unit or unit == 1000):
                return f"{length // unit}{word}"
    if found := _SIZE.fullmatch(text):
        length = int(found.group(1))
        for unit, word in _BYTES:
            if length % unit == 0:
                return f"{length // unit} {word}"
    return text


def _unquote(options: dict[str, Any]) -> None:
    """Write `30000` and `true` for options that both clients take as text, as people do."""
    for key, text in options.items():
        if text in ("true", "false"):
            options[key] = text == "true"
        elif text.isdecimal() and text.isascii() and str(int(text)) == text:
            options[key] = int(text)


def _hide(options: dict[str, Any], place: str, owner: str, found: Written, keep: Keep) -> None:
    for key in [key for key, text in options.items() if not _may_be_shown(key, str(text))]:
        name, secret = variable(owner, key), str(options[key])
        options[key] = _reference(f"{place}.{key}", name, found)
        keep(options[key], secret)


def _may_be_shown(key: str, text: str) -> bool:
    if not looks_secret(key):
        return True
    if key == "sasl.jaas.config":
        try:
            options = jaas.parse(text).options
        except jaas.JaasError:
            return is_reference(text) and ":-" not in text
        return all(is_reference(value) and ":-" not in value for name, value in options.items() if looks_secret(name))
    # A default of ${env:NAME:-default} would be the secret itself.
    return is_reference(text) and ":-" not in text


def _reference(place: str, name: str, found: Written) -> str:
    found.replaced[place] = name
    return f"${{env:{name}}}"


def _rule(rule: dict[str, Any], place: int, where: str, flow: str, found: Written, keep: Keep) -> None:
    name = rule.pop("name", "")
    for action in ("mask", "remove", "null"):
        if action in rule:
            rule[action] = [_path(text) for text in rule[action]]
    hashed = rule.get("hash")
    if hashed is not None:
        hashed["fields"] = [_path(text) for text in hashed["fields"]]
        key = hashed["key"].replace("$${", "${") if has_reference(hashed["key"].replace("$${", "${")) else hashed["key"]
        shown = is_reference(key) and ":-" not in key
        hashed["key"] = key if shown else _reference(f"{where}.hash.key", variable(flow, name, "key"), found)
        if not shown:
            keep(hashed["key"], key)
    if name != f"rule-{place + 1}":
        rule_content = {"name": name, **rule}
        rule.clear()
        rule.update(rule_content)


def _path(text: str) -> str:
    """Return a JSON path without its `$`, as people write it."""
    if text.startswith("$.."):
        return text[1:]
    return text[2:] if text.startswith("$.") else text


def _number(key: Any) -> Any:
    return int(key) if isinstance(key, str) and key.isdigit() else key


def _numbered(pairs: Any) -> Any:
    return {_number(key): value for key, value in pairs.items()} if isinstance(pairs, Mapping) else pairs
