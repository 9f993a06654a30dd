"""The connections of a MirrorMaker 2 file: one `client` section a cluster, one `producer` section a flow, no secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mirrorlake.config import jaas
from mirrorlake.config.client_options import check_client, check_producer
from mirrorlake.config.secrets import has_reference, looks_secret
from mirrorlake.config.written import variable

Pair = tuple[str, str]

_CONNECTION = re.compile(r"(?:security\.|ssl\.|sasl\.)")
_ROLES = ("consumer.", "producer.", "admin.")
_PROVIDED = re.compile(r"\$\{[^{}:]+:[^{}]*\}")
_SET_HERE = {
    "consumer.isolation.level": "always read_committed",
    "consumer.auto.offset.reset": "start",
    "consumer.enable.auto.commit": "never commits on a source (law H)",
}


class Clients:
    """Gather the client settings of a file, by cluster and by flow.

    Args:
        clusters: keys without their beginning, by alias.
        shared: keys that stand without a beginning.
        flows: keys without their beginning, by pair.
        enabled: the pairs that are mirrored.
    """

    def __init__(
        self,
        clusters: Mapping[str, Mapping[str, str]],
        shared: Mapping[str, str],
        flows: Mapping[Pair, Mapping[str, str]],
        enabled: Sequence[Pair],
    ) -> None:
        self._clusters = clusters
        self._shared = shared
        self._flows = flows
        self._enabled = enabled
        self.told: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.notes: list[str] = []

    def clusters(self) -> dict[str, dict[str, Any]]:
        """Return the section `clusters`, without those that no flow names."""
        used = [alias for alias in self._clusters if any(alias in pair for pair in self._enabled)]
        return {alias: self._cluster(alias) for alias in used}

    def with_options(self, pair: Pair, entry: dict[str, Any]) -> dict[str, Any]:
        """Return a flow's entry with its producer options."""
        _, target = pair
        written: dict[str, tuple[str, str]] = {}
        for start, settings in (
            (f"{target}.producer.", _below(self._clusters[target], "producer.")),
            (f"{pair[0]}->{target}.producer.override.", _below(self._flows[pair], "producer.override.")),
            (f"{pair[0]}->{target}.target.producer.", _below(self._flows[pair], "target.producer.")),
        ):
            for key, value in settings.items():
                if not _CONNECTION.match(key):
                    written[key] = (start + key, value)
        options = self._checked(
            {key: self._value(text, f"{target}_producer_{key}") for key, (_, text) in written.items()},
            {key: where for key, (where, _) in written.items()},
            check=check_producer,
            place="producer",
        )
        return {**entry, "producer": options} if options else entry

    def _cluster(self, alias: str) -> dict[str, Any]:
        own = self._clusters[alias]
        servers = own.get("bootstrap.servers", "")
        self.told[f"{alias}.bootstrap.servers"] = f"clusters.{alias}.bootstrap_servers"
        found: dict[str, Any] = {"bootstrap_servers": self._value(servers, f"{alias}_bootstrap_servers")}
        if not servers:
            self.notes.append(f"clusters.{alias}.bootstrap_servers is missing in the file: write it")
        client = self._client(alias)
        return {**found, "client": client} if client else found

    def _client(self, alias: str) -> dict[str, str]:
        written: dict[str, tuple[str, str]] = {}
        own = self._clusters[alias]
        for key, value in self._shared.items():
            if _CONNECTION.match(key):
                written[key] = (key, value)
        for role in _ROLES[:1]:
            for key, value in _below(own, role).items():
                where = f"{alias}.{role}{key}"
                if f"{role}{key}" in _SET_HERE:
                    self.told[where] = _SET_HERE[f"{role}{key}"]
                else:
                    written[key] = (where, value)
        for key, value in own.items():
            if _CONNECTION.match(key):
                written[key] = (f"{alias}.{key}", value)
        values: dict[str, str] = {}
        places: dict[str, str] = {}
        for key, (where, value) in written.items():
            places[key] = where
            if key == "sasl.jaas.config":
                login = self._login(alias, value)
                values |= login
                places |= dict.fromkeys(login, where)
            else:
                values[key] = (
                    self._secret(value, f"{alias}_{key}") if looks_secret(key) else self._value(value, f"{alias}_{key}")
                )
        return self._checked(values, places, check=check_client, place=f"clusters.{alias}.client")

    def _checked(self, values: dict[str, str], places: Mapping[str, str], *, check: Any, place: str) -> dict[str, str]:
        """Drop what is refused here, with its reason, until nothing is."""
        while findings := check(values):
            for finding in findings:
                key = str(finding.place[0])
                self.refused[places[key]] = (
                    f"{finding.problem}; {finding.remedy}" if finding.remedy else finding.problem
                )
                values.pop(key, None)
        for key in values:
            self.told[places[key]] = f"{place}.{key}"
        return values

    def _login(self, alias: str, line: str) -> dict[str, str]:
        """Return a login line's parts; what is secret in it, or cannot be read, is left to the environment."""
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
        """Return a plain value; one that a config provider would fill in is left to the environment."""
        text = text.strip()
        if _PROVIDED.search(text):
            reference = variable(name)
            self.notes.append(f"set the environment variable {reference} to what {text} stood for")
            return f"${{env:{reference}}}"
        return text.replace("${", "$${")

    def _secret(self, text: str, name: str) -> str:
        if has_reference(text) or _PROVIDED.search(text):
            return self._value(text, name)
        reference = variable(name)
        self.notes.append(f"set the environment variable {reference} to the value in the file, which was not copied")
        return f"${{env:{reference}}}"


def _below(settings: Mapping[str, str], start: str) -> dict[str, str]:
    return {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
