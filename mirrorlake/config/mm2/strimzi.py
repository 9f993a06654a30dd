"""Read Strimzi's `KafkaMirrorMaker2` resources (`v1beta2` and `v1`) as the properties of MirrorMaker 2's dedicated mode.

A value in a Kubernetes Secret becomes `${strimzi:SECRET/KEY}`, which the import turns into an environment reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorlake.config.mm2.properties import Mm2File
from mirrorlake.errors import ConfigError, Fault

_PATTERNS = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.exclude",
}
_CONNECTORS = {"sourceConnector": "source", "checkpointConnector": "checkpoint", "heartbeatConnector": "heartbeat"}
_OAUTH = {
    "tokenEndpointUri": "sasl.oauthbearer.token.endpoint.url",
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_CLUSTER_KEYS = ("alias", "bootstrapServers", "config", "tls", "trustedCertificates", "authentication")
_OF_CONNECT = ("groupId", "configStorageTopic", "offsetStorageTopic", "statusStorageTopic")
_PODS = "about the pods of Kafka Connect, which mirrorlake does not run"


def read_strimzi(resources: Sequence[Mapping[str, Any]], *, file: str) -> Mm2File:
    found = Mm2File()
    kinds: dict[tuple[str, str], set[str]] = {}
    for resource in resources:
        _Resource(found, resource.get("spec") or {}, file).take(kinds)
    mirrored = {pair: there for pair, there in kinds.items() if "source" in there}
    if not mirrored:
        problem = "no mirror in it has a sourceConnector, so it mirrors no records"
        raise ConfigError([Fault(file, "spec.mirrors", problem, "name a KafkaMirrorMaker2 that mirrors topics")])
    _complete(found, mirrored)
    return found


def _complete(found: Mm2File, kinds: Mapping[tuple[str, str], set[str]]) -> None:
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


@dataclass(frozen=True)
class _Resource:
    found: Mm2File
    spec: Mapping[str, Any]
    file: str

    def take(self, kinds: dict[tuple[str, str], set[str]]) -> None:
        for index, cluster in enumerate(self.spec.get("clusters") or ()):
            self._cluster(cluster, f"spec.clusters[{index}]")
        target = self.spec.get("target")
        if target:
            self._cluster(target, "spec.target")
        for index, mirror in enumerate(self.spec.get("mirrors") or ()):
            place = f"spec.mirrors[{index}]"
            if mirror.get("source"):
                self._cluster(mirror["source"], f"{place}.source")
            pair = (
                self._alias(mirror, "source", place),
                self._alias({"target": target} | mirror if target else mirror, "target", place),
            )
            kinds.setdefault(pair, set()).update(_CONNECTORS[key] for key in _CONNECTORS if mirror.get(key) is not None)
            self._mirror(mirror, pair, place)
        for key in self.spec:
            if key not in ("clusters", "target", "mirrors"):
                self.found.off(f"spec.{key}", _PODS)

    def _alias(self, mirror: Mapping[str, Any], end: str, place: str) -> str:
        alias = (mirror.get(end) or {}).get("alias") or mirror.get(f"{end}Cluster")
        if not alias:
            raise ConfigError([Fault(self.file, place, f"the {end} is not named", f"write {end}Cluster")])
        return str(alias)

    def _cluster(self, cluster: Mapping[str, Any], place: str) -> None:
        alias = str(cluster.get("alias") or "")
        if not alias:
            raise ConfigError([Fault(self.file, place, "a cluster without an alias", "write its alias")])
        for key, value in cluster.items():
            if key == "bootstrapServers":
                self.found.put(f"{place}.{key}", f"{alias}.bootstrap.servers", value)
            elif key == "config":
                for name, each in (value or {}).items():
                    self.found.put(f"{place}.config.{name}", f"{alias}.{name}", each)
            elif key in _OF_CONNECT:
                self.found.off(f"{place}.{key}", _PODS)
            elif key not in _CLUSTER_KEYS:
                # An unknown key may be about security: it stays, and is refused.
                self.found.put(f"{place}.{key}", f"{alias}.security.strimzi.{key}", "unknown")
        tls, login = cluster.get("tls"), cluster.get("authentication") or {}
        # Strimzi's own example has the certificates one level too high, where its operator ignores them.
        if cluster.get("trustedCertificates"):
            tls = {**(tls or {}), "trustedCertificates": cluster["trustedCertificates"]}
        kind = str(login.get("type") or "")
        sasl = bool(login) and kind != "tls" and login.get("sasl", True) is not False
        encrypted = tls is not None or kind == "tls"
        if encrypted or sasl:
            protocol = f"{'SASL_' if sasl else ''}{'SSL' if encrypted else 'PLAINTEXT'}"
            self.found.put(
                f"{place}.{'tls' if encrypted else 'authentication'}", f"{alias}.security.protocol", protocol
            )
        if tls and tls.get("trustedCertificates"):
            names = "+".join(_secret_name(each) for each in tls["trustedCertificates"])
            label = f"{place}.tls.trustedCertificates"
            self.found.put(label, f"{alias}.ssl.truststore.certificates", f"${{strimzi:{names}}}")
        for label, key, value in _login(kind, login, f"{place}.authentication"):
            self.found.put(label, f"{alias}.{key}", value)

    def _mirror(self, mirror: Mapping[str, Any], pair: tuple[str, str], place: str) -> None:
        start = f"{pair[0]}->{pair[1]}."
        for key, value in mirror.items():
            label = f"{place}.{key}"
            if key in _PATTERNS:
                self.found.put(label, f"{start}{_PATTERNS[key]}", value)
            elif key in _CONNECTORS:
                self._connector(value or {}, start, label, main=key == "sourceConnector")
            elif key not in ("source", "sourceCluster", "targetCluster"):
                self.found.off(label, _PODS)

    def _connector(self, connector: Mapping[str, Any], start: str, place: str, *, main: bool) -> None:
        for key, value in connector.items():
            if key == "config":
                for name, each in (value or {}).items():
                    self.found.put(f"{place}.config.{name}", f"{start}{name}", each)
            elif key == "tasksMax" and main:
                self.found.put(f"{place}.{key}", f"{start}tasks.max", value)
            else:
                self.found.off(f"{place}.{key}", "pause and resume are commands: mirrorlake pause, mirrorlake resume")


def _login(kind: str, login: Mapping[str, Any], place: str) -> list[tuple[str, str, Any]]:
    """Return the label, client setting and value of each key of `authentication`; unknown keys get a refused setting."""
    found: list[tuple[str, str, Any]] = []
    if not login:
        return found
    if kind == "tls":
        secret = login.get("certificateAndKey") or {}
        for part, key in (("certificate", "ssl.keystore.certificate.chain"), ("key", "ssl.keystore.key")):
            found.append((f"{place}.certificateAndKey", key, f"${{strimzi:{_secret_name(secret, part)}}}"))
        return found
    if kind == "custom":
        return [(f"{place}.config.{name}", name, value) for name, value in (login.get("config") or {}).items()]
    found.append((f"{place}.type", "sasl.mechanism", "OAUTHBEARER" if kind == "oauth" else kind.upper()))
    for key, value in login.items():
        label = f"{place}.{key}"
        if key == "username" and kind != "oauth":
            found.append((label, "sasl.username", value))
        elif key == "passwordSecret" and kind != "oauth":
            found.append((label, "sasl.password", f"${{strimzi:{_secret_name(value, 'password')}}}"))
        elif kind == "oauth" and key in _OAUTH:
            text = f"${{strimzi:{_secret_name(value, 'key')}}}" if isinstance(value, Mapping) else value
            found.append((label, _OAUTH[key], text))
        elif key != "type":
            found.append((label, f"sasl.strimzi.{key}", _secret_name(value) if isinstance(value, Mapping) else value))
    return found


def _secret_name(secret: Mapping[str, Any], part: str = "certificate") -> str:
    key = secret.get(part) or secret.get("pattern") or secret.get("key") or ""
    return f"{secret.get('secretName', '')}/{key}"
