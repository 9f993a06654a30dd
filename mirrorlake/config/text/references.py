"""Replace literal secrets by references, so that a console never shows or saves a secret."""

from __future__ import annotations

from typing import Any

from mirrorlake.config.client import jaas
from mirrorlake.config.secrets import is_bare_reference, looks_secret, variable
from mirrorlake.config.text.yaml_text import YamlText


def without_secrets(text: str) -> tuple[str, dict[str, str]]:
    """Return a settings file with a reference for each literal secret, and the secrets by their references.

    Example:
        >>> without_secrets("clusters: {east: {client: {sasl.password: hunter2}}}")[1]
        {'${env:EAST_SASL_PASSWORD}': 'hunter2'}
    """
    document = YamlText(text)
    found: dict[str, str] = {}
    for alias, cluster in document.root.get("clusters", {}).items():
        _hide(cluster.get("client"), str(alias), found)
    for flow in document.root.get("flows", ()):
        name = flow.get("name") or f"{flow['source']}->{flow['target']}"
        _hide(flow.get("producer"), f"{name}_producer", found)
        for place, rule in enumerate(flow.get("rules") or (), start=1):
            _hide(rule.get("hash"), f"{name}_{rule.get('name') or f'rule-{place}'}", found)
    return (str(document), found) if found else (text, found)


def _hide(options: Any, owner: str, found: dict[str, str]) -> None:
    for key, value in (options or {}).items():
        if not _may_be_shown(key, value):
            reference = f"${{env:{variable(owner, key)}}}"
            found[reference] = str(value)
            options[key] = reference


def _may_be_shown(key: str, value: Any) -> bool:
    text = str(value)
    if not looks_secret(key):
        return True
    if key == "sasl.jaas.config":
        try:
            options = jaas.parse(text).options
        except jaas.JaasError:
            return is_bare_reference(text)
        return all(is_bare_reference(value) for name, value in options.items() if looks_secret(name))
    return is_bare_reference(text)
