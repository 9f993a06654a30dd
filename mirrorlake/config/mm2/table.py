"""Map each setting of MirrorMaker 2 to its outcome, from `table.yml`."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import yaml

from mirrorlake.config.client.names import BY_NAME, JAVA_ONLY


class FlowProperty(NamedTuple):
    key: str
    setting: str
    kind: str
    default: str | None = None


_TABLE = yaml.safe_load(files("mirrorlake.config.mm2").joinpath("table.yml").read_text(encoding="utf-8"))
TRANSLATED = tuple(FlowProperty(*row) for row in _TABLE["translated"])
POLICIES: dict[str, str] = _TABLE["policies"]
NO_COUNTERPART: dict[str, str] = {key: why for why, keys in _TABLE["no_counterpart"].items() for key in keys.split()}


def why_not(key: str) -> str | None:
    """Return why a setting has no counterpart, or None if it is unknown.

    >>> why_not("rest.port"), why_not("tasks.maximum")
    ('it runs no Connect workers', None)
    """
    if key in NO_COUNTERPART:
        return NO_COUNTERPART[key]
    if key in BY_NAME or key in JAVA_ONLY:
        return (
            "it tunes the clients of Connect's own workers; write it under client of the cluster to tune the mirror's"
        )
    families = (family for family in NO_COUNTERPART if family.endswith(".") and key.startswith(family))
    return next(map(NO_COUNTERPART.__getitem__, families), None)
