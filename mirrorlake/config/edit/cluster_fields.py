"""Read and write a form's fields of one cluster in a settings file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.config.edit.yaml_text import COMMAS, line_of, own, put, put_below, remove, write_selection
from mirrorlake.config.secrets import is_bare_reference, variable
from mirrorlake.errors import UsageError

SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# The fields below `client`, with their option and its default.
_CLIENT = {
    "security": ("security.protocol", "PLAINTEXT"),
    "ca": ("ssl.ca.location", ""),
    "mechanism": ("sasl.mechanism", "SCRAM-SHA-512"),
    "username": ("sasl.username", ""),
    "password": ("sasl.password", ""),
}
BLANK_CLUSTER: Mapping[str, str] = {
    "servers": "",
    **{key: default for key, (_, default) in _CLIENT.items()},
    "never_leave": "",
}
"""The fields of a new cluster with their defaults; the password is a reference."""


def usual_reference(alias: str) -> str:
    return f"${{env:{variable(alias, 'sasl.password')}}}"


def read_cluster(node: Any) -> dict[str, str]:
    client = node.get("client") or {}
    return {
        "servers": line_of(node.get("bootstrap_servers") or "", ","),
        **{key: str(client.get(option, default)) for key, (option, default) in _CLIENT.items()},
        "never_leave": line_of(node.get("never_leave") or ""),
    }


def write_cluster(node: Any, alias: str, fields: Mapping[str, str]) -> None:
    """Write the changed fields into a cluster's part of a file; refuse a password that is no reference, without naming it."""
    before = read_cluster(node)
    changed = [key for key in BLANK_CLUSTER if fields[key] != before[key]]
    if "servers" in changed or not node:
        servers = COMMAS.split(fields["servers"].strip())
        put(node, "bootstrap_servers", servers if len(servers) > 1 else servers[0])
    if any(key in _CLIENT for key in changed):
        _write_client(node, alias, fields)
    if "never_leave" in changed:
        write_selection(node, "never_leave", fields["never_leave"] or None)


def _write_client(node: Any, alias: str, fields: Mapping[str, str]) -> None:
    client = node.get("client") or {}
    wanted = {option: fields[key] for key, (option, _) in _CLIENT.items()}
    if fields["security"] == "PLAINTEXT":
        wanted["security.protocol"] = ""
    if "sasl.jaas.config" in client:
        wanted = {option: value for option, value in wanted.items() if not option.startswith("sasl.")}
    elif fields["security"].startswith("SASL"):
        wanted["sasl.password"] = _reference(alias, fields["password"])
    else:
        wanted |= dict.fromkeys(("sasl.mechanism", "sasl.username", "sasl.password"), "")
    if not any(wanted.values()) and wanted.keys() >= client.keys():
        remove(node, "client")
        return
    for option, value in wanted.items():
        if value:
            put_below(node, "client", option, value)
        elif option in client:
            remove(own(node, "client"), option)


def _reference(alias: str, password: str) -> str:
    reference = password or usual_reference(alias)
    if not is_bare_reference(reference):
        raise UsageError(
            f"the password of {alias} is not a reference",
            consequence="it was not stored: a settings file must not hold a password",
            remedy=f"write {usual_reference(alias)} or ${{secret:scope/key}}, and store the password in that secret",
        )
    return reference
