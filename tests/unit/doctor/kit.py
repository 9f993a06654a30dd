"""A doctor over settings whose clusters do not listen, and a lake in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mirrorlake.config import load
from mirrorlake.context import Context, utc_now
from mirrorlake.doctor import examine


def settings(east: Mapping[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    address = {"bootstrap_servers": "127.0.0.1:1"}
    clusters = {"east": {**address, **(east or {})}, "west": address}
    flows = [{"source": "east", "target": "west", "topics": "orders"}]
    return {"lake": {"root": "./lake"}, "clusters": clusters, "flows": flows, **top}


def context_of(folder: Path, *, given: Mapping[str, Any] | None = None) -> Context:
    """Write the settings, and return their context."""
    file = folder / "mirror.yml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(dict(given or settings())))
    return Context(load(file), spark=None, now=utc_now, display=lambda: None)


def bad(folder: Path, *only: str, given: Mapping[str, Any] | None = None) -> list[tuple[str, str, str]]:
    """Return severity, subject and detail of what some checks find."""
    found = examine(context_of(folder, given=given), only=only).bad
    assert all(one.fix for one in found)
    return [(one.severity, one.subject, one.detail) for one in found]
