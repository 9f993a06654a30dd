"""Read and write a form's fields of one flow in a settings file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.config.edit.yaml_text import line_of, own, put, put_below, quoted, remove, write_selection
from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.model.patterns import DEFAULT_EXCLUDE_GROUPS, DEFAULT_EXCLUDE_TOPICS
from mirrorlake.model.policy import DEFAULT_SEPARATOR

POLICIES = ("default", "identity", "template")
BLANK_FLOW: Mapping[str, Any] = {
    **dict.fromkeys(("name", "source", "target", "topics"), ""),
    "exclude_topics": str(DEFAULT_EXCLUDE_TOPICS),
    "policy": "default",
    "template": "",
    "separator": DEFAULT_SEPARATOR,
    "groups": ".*",
    "exclude_groups": str(DEFAULT_EXCLUDE_GROUPS),
    "sync_groups": True,
    "sync_configs": True,
    "sync_acls": False,
    **dict.fromkeys(("keep", "drop", "mask", "remove"), ""),
}
"""The fields of a new flow with their defaults. `keep` and `drop` are predicates, `mask` and `remove` paths with commas."""
# The rules that a form writes, by their field; rules of other names do not change.
_RULES = {"keep": "only", "drop": "without", "mask": "masked", "remove": "removed"}


def flow_name(fields: Mapping[str, Any]) -> str:
    """Return the name of a form's flow: its own, or that of its ends."""
    return str(fields["name"]) or f"{fields['source']}->{fields['target']}"


def read_flow(config: FlowConfig, node: Any) -> dict[str, Any]:
    """Return the fields of a flow: choices as parsed, selections and rules as written."""
    rules = {rule.get("name"): rule for rule in node.get("rules") or ()}
    spelled = ("topics", "exclude_topics", "groups", "exclude_groups")
    found = {**BLANK_FLOW, **{key: line_of(node[key]) for key in spelled if node.get(key) is not None}}
    for key in ("exclude_topics", "exclude_groups"):
        if str(getattr(config, key)) == BLANK_FLOW[key]:
            found[key] = BLANK_FLOW[key]
    return {
        **found,
        "name": node.get("name") or "",
        "source": config.source,
        "target": config.target,
        "policy": config.policy.kind,
        "template": config.policy.template or "",
        "separator": config.policy.separator,
        **{f"sync_{key}": getattr(config.sync, key) for key in ("groups", "configs", "acls")},
        **{key: line_of(rules.get(name, {}).get(key, "")) for key, name in _RULES.items()},
    }


def write_flow(node: Any, fields: Mapping[str, Any], before: Mapping[str, Any] = BLANK_FLOW) -> None:
    """Write the fields that differ from `before` into a flow's part of a file."""
    for key in [key for key in BLANK_FLOW if fields[key] != before[key]]:
        if key in ("policy", "template", "separator"):
            put(node, "policy", _policy(fields))
        elif key in _RULES:
            _write_rule(node, key, fields[key].strip())
        elif key.startswith("sync_"):
            put_below(node, "sync", key.removeprefix("sync_"), fields[key])
        elif key.startswith("exclude_") and fields[key] == BLANK_FLOW[key]:
            remove(node, key)
        else:
            # A name is often the first key of its flow, and removing it would remove the comment above it.
            write_selection(node, key, flow_name(fields) if key == "name" else fields[key])


def _policy(fields: Mapping[str, Any]) -> Any:
    if fields["policy"] == "template":
        return {"template": fields["template"]}
    is_plain = fields["separator"] in ("", DEFAULT_SEPARATOR)
    return fields["policy"] if is_plain else {"name": fields["policy"], "separator": fields["separator"]}


def _write_rule(node: Any, key: str, text: str) -> None:
    name, rules = _RULES[key], own(node, "rules") if node.get("rules") else []
    place = next((place for place, rule in enumerate(rules) if rule.get("name") == name), None)
    value = text if key in ("keep", "drop") else [part.strip() for part in text.split(",") if part.strip()]
    if text and place is not None:
        put(rules[place], key, value)
    elif text and rules:
        earlier = list(_RULES.values())[: list(_RULES).index(key)]
        rules.insert(sum(rule.get("name") in earlier for rule in rules), quoted({"name": name, key: value}))
    elif text:
        put(node, "rules", [{"name": name, key: value}])
    elif place is not None and len(rules) > 1:
        remove(rules, place)
    elif place is not None:
        remove(node, "rules")
