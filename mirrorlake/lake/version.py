"""The version of a lake's formats, in a property of the table `gaps`; a lake of another version is refused.

It increases where this release must not use a lake of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping

from mirrorlake.errors import SafetyError

LAKE_VERSION = "4"
VERSION_PROPERTY = "mirrorlake.lakeVersion"


def refuse_other_version(properties: Mapping[str, str], place: str) -> None:
    version = properties.get(VERSION_PROPERTY, "none")
    if version != LAKE_VERSION:
        raise SafetyError(
            f"the lake {place} is of another release: its version is {version}, and this release reads only {LAKE_VERSION}",
            consequence="nothing was read or changed",
            remedy="run the release that made it, or name a new lake in the settings (docs/upgrades.md)",
        )
