"""A draft of one cluster: what a person has filled in, and what of it is written into the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml.comments import CommentedMap

from mirrorlake.config.edit.selections import COMMAS, line_of, write_selection
from mirrorlake.config.edit.yaml_text import own, put, put_below, remove
from mirrorlake.config.secrets import is_bare_reference, variable
from mirrorlake.errors import UsageError

SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDraft:
    """One cluster: `servers` as `host:port,...`; `password` is a reference; `rest` is the cluster's part of the file."""

    alias: str
    servers: str = ""
    security: str = "PLAINTEXT"
    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = ""
    ca: str = ""
    never_leave: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, alias: str, settings: Mapping[str, Any]) -> ClusterDraft:
        """Return the draft of a cluster as a file has it."""
        client = settings.get("client") or {}
        return cls(
            alias=alias,
            servers=line_of(settings.get("bootstrap_servers") or "", ","),
            security=str(client.get("security.protocol", "PLAINTEXT")),
            mechanism=str(client.get("sasl.mechanism", "SCRAM-SHA-512")),
            username=str(client.get("sasl.username", "")),
            password=str(client.get("sasl.password", "")),
            ca=str(client.get("ssl.ca.location", "")),
            never_leave=line_of(settings.get("never_leave") or ""),
            rest=settings,
        )

    @property
    def usual_reference(self) -> str:
        """The reference that stands for the password where nobody named another."""
        return f"${{env:{variable(self.alias, 'sasl.password')}}}"

    @property
    def logs_in(self) -> bool:
        """Whether user and password are needed."""
        return self.security.startswith("SASL")

    def write(self, node: Any) -> None:
        """Write what differs into the cluster's part of a file.

        Raises:
            UsageError: the password is not a reference; it is not repeated.
        """
        before = ClusterDraft.of(self.alias, node)
        if node.get("kind") != "lake":
            if self.servers != before.servers or not node:
                servers = COMMAS.split(self.servers.strip())
                put(node, "bootstrap_servers", servers if len(servers) > 1 else servers[0])
            if replace(self, servers=before.servers, never_leave=before.never_leave, rest=node) != before:
                self._write_client(node)
        if self.never_leave != before.never_leave:
            write_selection(node, "never_leave", self.never_leave or None)

    def written(self) -> CommentedMap:
        """Return the cluster's part of a new file; raises as `write` does."""
        node = CommentedMap(deepcopy(dict(self.rest)))
        self.write(node)
        return node

    def _write_client(self, node: Any) -> None:
        wanted = {
            "security.protocol": "" if self.security == "PLAINTEXT" else self.security,
            "ssl.ca.location": self.ca,
        }
        client = node.get("client") or {}
        if "sasl.jaas.config" not in client:
            wanted |= self._login()
        if not any(wanted.values()) and wanted.keys() >= client.keys():
            remove(node, "client")
            return
        for key, value in wanted.items():
            if value:
                put_below(node, "client", key, value)
            elif key in client:
                remove(own(node, "client"), key)

    def _login(self) -> dict[str, str]:
        if not self.logs_in:
            return dict.fromkeys(("sasl.mechanism", "sasl.username", "sasl.password"), "")
        password = self.password or self.usual_reference
        if not is_bare_reference(password):
            raise UsageError(
                f"the password of {self.alias} is not a reference",
                consequence="it is not kept: a settings file is not the place for a password",
                remedy=f"write {self.usual_reference} or ${{secret:scope/key}}, and type the password where it is hidden",
            )
        return {"sasl.mechanism": self.mechanism, "sasl.username": self.username, "sasl.password": password}
