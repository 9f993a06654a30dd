"""The plain contents are compared (`config/fingerprint.py`): values that differ from the defaults, secrets as fingerprints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mirrorlake.model.plan import Change

SETTINGS = "settings"
Plain = Mapping[str, Any]


def edits(before: Plain, after: Plain) -> list[Change]:
    """List the changes that turn the settings `before` into `after`; both omit defaults.

    A key that is absent on one side is None in the change: the default.

    >>> [str(change) for change in edits({"flows": {"a->b": {"lanes": 4}}}, {"flows": {"a->b": {}}})]
    ["settings: change flow a->b {'lanes': 4} -> {'lanes': None} (edited in the settings; None is the default)"]
    """
    changes = list(_of("lake", "lake", before.get("lake"), after.get("lake")))
    for kind in ("cluster", "flow", "table"):
        old, new = _by_name(before, kind), _by_name(after, kind)
        for name in sorted({*old, *new}):
            changes += _of(kind, name, old.get(name), new.get(name))
    return changes


def _by_name(content: Plain, kind: str) -> Plain:
    """Return the parts of a kind by name; an entry of typed tables has its topics and sources in the place of `{topic}`, `{source}`."""
    if kind != "table":
        return dict(content.get(f"{kind}s", {}))
    found: dict[str, Plain] = {}
    for entry in content.get("tables", ()):
        name = entry.get("name", "{topic}").replace("{topic}", ", ".join(entry["topics"]))
        found.setdefault(name.replace("{source}", ", ".join(entry.get("sources", ["{source}"]))), entry)
    return found


def _of(kind: str, name: str, before: Plain | None, after: Plain | None) -> Iterator[Change]:
    if before is None and after is not None:
        action, reason = "create", "new in the settings"
    elif before is not None and after is None:
        action, reason = "remove", "no longer in the settings; the topics and records that it wrote stay"
    else:
        action, reason = "change", "edited in the settings; None is the default"
        old, new = _flat(before or {}), _flat(after or {})
        keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        if not keys:
            return
        before, after = {key: old.get(key) for key in keys}, {key: new.get(key) for key in keys}
    flow = name if kind == "flow" else ""
    yield Change(
        where=SETTINGS, kind=kind, name=name, action=action, before=before, after=after, reason=reason, flow=flow
    )


def _flat(content: Plain, above: str = "") -> dict[str, Any]:
    """Return `{"sync": {"groups": False}}` as `{"sync.groups": False}`."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found
