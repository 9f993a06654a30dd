"""Import the connections of a MirrorMaker 2 file: a `client` section per cluster, a `producer` section per flow, no secrets.

An imported connection is never weaker than in the file: a refused security setting stays in `client` as written, so that the
settings do not load until a person resolves it. A refused tuning setting is omitted and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.config.client import jaas
from mirrorlake.config.client.options import check_client, check_producer
from mirrorlake.config.secrets import has_reference, looks_secret, variable

Pair = tuple[str, str]

_CONNECTION = re.compile(r"(?:security\.|ssl\.|sasl\.)")
# Prefixes of MirrorMaker and Connect for the settings of one client, by the end of the flow that it connects to.
_OF_SOURCE = ("source.cluster.", "source.consumer.", "source.producer.", "source.admin.", "consumer.")
_OF_TARGET = (
    *(f"target.{role}." for role in ("cluster", "consumer", "producer", "admin")),
    *("producer.override.", "producer.", "admin.override.", "admin."),
)
_OF_CLUSTER = ("consumer.", "producer.", "admin.")
_PROVIDED = re.compile(r"\$\{[^{}:]+:[^{}]*\}")
_SET_HERE = {
    "isolation.level": "always read_committed",
    "auto.offset.reset": "start",
    "enable.auto.commit": "never commits on a source (law H)",
}
_NO_EFFECT = "MirrorMaker never reads with it: it reads from the source only"


@dataclass(slots=True)
class Clients:
    of_clusters: Mapping[str, Mapping[str, str]]
    shared: Mapping[str, str]
    of_flows: Mapping[Pair, Mapping[str, str]]
    enabled: Sequence[Pair]
    translated: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def clusters(self) -> dict[str, dict[str, Any]]:
        used = [alias for alias in self.of_clusters if any(alias in pair for pair in self.enabled)]
        return {alias: self._cluster(alias) for alias in used}

    def with_options(self, pair: Pair, entry: dict[str, Any]) -> dict[str, Any]:
        source, target = pair
        values: dict[str, str] = {}
        places: dict[str, str] = {}
        for owner, start, settings in (
            (target, "producer.", self.of_clusters[target]),
            (f"{source}->{target}", "producer.override.", self.of_flows[pair]),
            (f"{source}->{target}", "target.producer.", self.of_flows[pair]),
        ):
            for key, text in _below(settings, start).items():
                if not _CONNECTION.match(key):
                    values[key], places[key] = text, f"{owner}.{start}{key}"
        values = {key: self._value(text, f"{target}_producer_{key}") for key, text in values.items()}
        options = self._checked(values, places, check=check_producer, place="producer")
        return {**entry, "producer": options} if options else entry

    def _cluster(self, alias: str) -> dict[str, Any]:
        own = self.of_clusters[alias]
        servers = own.get("bootstrap.servers", "")
        self.translated[f"{alias}.bootstrap.servers"] = f"clusters.{alias}.bootstrap_servers"
        found: dict[str, Any] = {"bootstrap_servers": self._value(servers, f"{alias}_bootstrap_servers")}
        if not servers:
            self.notes.append(f"clusters.{alias}.bootstrap_servers is missing in the file: write it")
        client = self._client(alias)
        return {**found, "client": client} if client else found

    def _client(self, alias: str) -> dict[str, str]:
        written = self._tuning(alias) | self._connection(alias)
        values: dict[str, str] = {}
        places: dict[str, str] = {}
        for key, (where, value) in written.items():
            places[key] = where
            if key == "sasl.jaas.config":
                login = self._login(alias, value)
                values |= login
                places |= dict.fromkeys(login, where)
            else:
                values[key] = (self._secret if looks_secret(key) else self._value)(value, f"{alias}_{key}")
        return self._checked(values, places, check=check_client, place=f"clusters.{alias}.client")

    def _tuning(self, alias: str) -> dict[str, Pair]:
        found = {}
        for key, value in _below(self.of_clusters[alias], "consumer.").items():
            where = f"{alias}.consumer.{key}"
            if key in _SET_HERE and not any(alias == source for source, _ in self.enabled):
                self.refused[where] = _NO_EFFECT
            elif key in _SET_HERE:
                self.translated[where] = _SET_HERE[key]
            elif not _CONNECTION.match(key):
                found[key] = (where, value)
        return found

    def _connection(self, alias: str) -> dict[str, Pair]:
        """Return every security setting of the cluster, for whichever client MirrorMaker uses it.

        mirrorlake has one connection for all clients of a cluster. A setting of one client that differs from the cluster's stays
        under its own name, which no client accepts.
        """
        found = {key: (key, value) for key, value in self.shared.items() if _CONNECTION.match(key)}
        own = self.of_clusters[alias]
        found |= {key: (f"{alias}.{key}", value) for key, value in own.items() if _CONNECTION.match(key)}
        for start, beginnings, settings in self._beside(alias):
            for beginning in beginnings:
                for key, value in _below(settings, beginning).items():
                    if not _CONNECTION.match(key):
                        continue
                    where = f"{start}{beginning}{key}"
                    if found.setdefault(key, (where, value))[1] != value:
                        found[f"{beginning}{key}"] = (where, value)
                    elif found[key][0] != where:
                        self.translated[where] = f"clusters.{alias}.client.{key}"
        return found

    def _beside(self, alias: str) -> Iterator[tuple[str, tuple[str, ...], Mapping[str, str]]]:
        """Yield the settings of single clients of the cluster: the prefix in the file, the clients' prefixes, the settings."""
        yield f"{alias}.", _OF_CLUSTER, self.of_clusters[alias]
        ends: list[tuple[str, ...]] = []
        for source, target in self.enabled:
            if alias in (source, target):
                ends.append(_OF_SOURCE if alias == source else _OF_TARGET)
                yield f"{source}->{target}.", ends[-1], self.of_flows[source, target]
        beginnings = dict.fromkeys(beginning for end in ends for beginning in end)
        yield "", tuple(dict.fromkeys((*beginnings, *_OF_CLUSTER))), self.shared

    def _checked(self, values: dict[str, str], places: Mapping[str, str], *, check: Any, place: str) -> dict[str, str]:
        """Drop refused settings and record the reasons; a security setting stays and is still refused."""
        while findings := check(values):
            dropped = set()
            for finding in findings:
                key = str(finding.place[0])
                self.refused[places.get(key, key)] = "; ".join(filter(None, (finding.problem, finding.remedy)))
                if key in values and not _is_security(key):
                    dropped.add(key)
            if not dropped:
                break
            values = {key: value for key, value in values.items() if key not in dropped}
        for key in values:
            self.translated[places[key]] = f"{place}.{key}"
        return values

    def _login(self, alias: str, line: str) -> dict[str, str]:
        """Return the parts of a login line; its secrets, or an unreadable line, become environment references."""
        try:
            login = jaas.parse(line)
        except jaas.JaasError:
            return {"sasl.jaas.config": self._secret(line, f"{alias}_sasl.jaas.config")}
        options = dict(login.options)
        if login.module in set(jaas.MODULES.values()) and options.keys() == {"username", "password"}:
            return {
                "sasl.username": self._value(options["username"], f"{alias}_sasl.username"),
                "sasl.password": self._secret(options["password"], f"{alias}_sasl.password"),
            }
        for name, value in options.items():
            hide = looks_secret(name) or name.lower().endswith("secret")
            options[name] = (self._secret if hide else self._value)(value, f"{alias}_{name}")
        try:
            return {"sasl.jaas.config": jaas.build(jaas.Login(login.module, options))}
        except jaas.JaasError:
            return {"sasl.jaas.config": self._secret(line, f"{alias}_sasl.jaas.config")}

    def _value(self, text: str, name: str) -> str:
        # A value of a config provider becomes an environment reference.
        text = text.strip()
        if _PROVIDED.search(text):
            reference = variable(name)
            self.notes.append(f"set the environment variable {reference} to the value of {text}")
            return f"${{env:{reference}}}"
        return text.replace("${", "$${")

    def _secret(self, text: str, name: str) -> str:
        if has_reference(text) or _PROVIDED.search(text):
            return self._value(text, name)
        reference = variable(name)
        self.notes.append(f"set the environment variable {reference} to the value in the file, which was not copied")
        return f"${{env:{reference}}}"


def _is_security(key: str) -> bool:
    beginning = next((start for start in (*_OF_SOURCE, *_OF_TARGET) if key.startswith(start)), "")
    return _CONNECTION.match(key.removeprefix(beginning)) is not None


def _below(settings: Mapping[str, str], start: str) -> dict[str, str]:
    return {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
