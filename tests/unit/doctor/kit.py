"""A doctor over settings whose clusters do not listen, and a lake in a folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from mirrorlake.config import load
from mirrorlake.context import Context, utc_now
from mirrorlake.doctor import Findings, examine


def settings(east: Mapping[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    clusters = {
        "east": {"bootstrap_servers": "127.0.0.1:1", **(east or {})},
        "west": {"bootstrap_servers": "127.0.0.1:1"},
    }
    flows = [{"source": "east", "target": "west", "topics": "orders"}]
    return {"lake": {"root": "./lake"}, "clusters": clusters, "flows": flows, **top}


def examined(
    folder: Path,
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    now: datetime | None = None,
    given: Mapping[str, Any] | None = None,
) -> Findings:
    """Write the settings, and examine them."""
    return examine(context_of(folder, now=now, given=given), only=only, skip=skip)


def context_of(folder: Path, *, now: datetime | None = None, given: Mapping[str, Any] | None = None) -> Context:
    """Write the settings, and return their context."""
    file = folder / "mirror.yml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(dict(given or settings())))
    return Context(load(file), spark=None, now=utc_now if now is None else lambda: now, display=lambda: None)


def bad(folder: Path, *only: str, **more: Any) -> list[tuple[str, str]]:
    """Return subject and detail of what some checks find."""
    return [(one.subject, one.detail) for one in examined(folder, only=only, **more).bad]
