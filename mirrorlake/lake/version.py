"""The version of a lake's formats, in a property of one table, and the migrations from one version to the next.

It increases only if an earlier release must not use the lake any more, or a migration is needed first. New tables and nullable
columns need neither: readers do without them, and writers create them. A lake without a version has version 1 (release 0.1.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlake.errors import SafetyError

if TYPE_CHECKING:
    from mirrorlake.lake.lake import Lake

LAKE_VERSION = 1
VERSION_PROPERTY = "mirrorlake.lakeVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A step that brings a lake to version `to`; a killed step may run again (law F)."""

    to: int
    reason: str
    do: Callable[[Lake], None]


MIGRATIONS: tuple[Migration, ...] = ()
"""All steps in order; each must run before this release writes to an older lake."""


def stamp(version: int = LAKE_VERSION) -> dict[str, str]:
    """Return the table property of a version."""
    return {VERSION_PROPERTY: str(version)}


def version_in(properties: Mapping[str, str]) -> int | None:
    """Return the version in a table's properties, or None without one.

    >>> version_in({}), version_in(stamp(3))
    (None, 3)
    """
    text = properties.get(VERSION_PROPERTY)
    return None if text is None else int(text)


def refuse_newer(properties: Mapping[str, str], place: str) -> None:
    """Refuse a lake with formats of a later release.

    Raises:
        SafetyError: the lake's version is newer, or not a number.
    """
    text = properties.get(VERSION_PROPERTY, "1")
    if not text.isdigit() or int(text) > LAKE_VERSION:
        raise SafetyError(
            f"the lake {place} has version {text}, but this release knows versions up to {LAKE_VERSION} only",
            consequence="nothing was read or changed: this release may misread what a later one wrote",
            remedy="run the release that upgraded it, or a later one (pip install --upgrade mirrorlake; docs/upgrades.md)",
        )


def due(version: int) -> list[Migration]:
    """List the steps from a version to that of this release."""
    return [one for one in MIGRATIONS if one.to > version]


def refuse_unmigrated(properties: Mapping[str, str], place: str) -> None:
    """Refuse to write to a lake that needs a step first.

    Raises:
        SafetyError: a step is due.
    """
    version = version_in(properties) or 1
    if due(version):
        raise SafetyError(
            f"the lake {place} has version {version}, but this release writes version {LAKE_VERSION}",
            consequence="nothing was written; reading works as before",
            remedy="stop the other jobs on the lake; `mirrorlake plan` shows the migration, `mirrorlake apply` does it",
        )
