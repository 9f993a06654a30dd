"""Bring a lake to the version of this release: planned first, then applied (law G)."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from mirrorlake.errors import SafetyError
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.made_tables import MadeTables
from mirrorlake.lake.schema import GAPS
from mirrorlake.lake.signs import StreamSign, all_signs
from mirrorlake.lake.version import LAKE_VERSION, due, stamp, version_in
from mirrorlake.model.plan import Change

# A stream writes a sign every 20 s; an older sign belongs to a mirror that ended or hangs.
_QUIET_S = 60


def lake_changes(lake: Lake) -> list[Change]:
    """Plan the changes that bring a lake to the version of this release; [] if there is no lake yet.

    Example:
        >>> [change.action for change in lake_changes(mirror.lake)]  # doctest: +SKIP
        ['record_version']
    """
    location = lake.meta_location(GAPS)
    if not lake.exists(location):
        return []
    version = version_in(lake.properties(location))
    change = partial(Change, where="lake", kind="lake", name=lake.address)
    changes = [
        change(action="migrate", before=one.to - 1, after=one.to, reason=one.reason) for one in due(version or 1)
    ]
    if version is None and not changes:
        reason = "written by a release that kept no version; nothing else changes"
        changes = [change(action="record_version", after=LAKE_VERSION, reason=reason)]
    if removed := lake.removed_tables():
        reason = "removed by hand and created again, empty; apply only clears the note of it"
        changes.append(change(action="forget_removed", before=", ".join(removed), reason=reason))
    return changes


def migrate(lake: Lake, *, now: datetime) -> None:
    """Apply the planned steps, and record the version after each; a second run changes nothing (law G).

    Raises:
        SafetyError: a mirror lands into the lake or republishes from it, and a step is due; a version is recorded anyway.
    """
    location = lake.meta_location(GAPS)
    if not lake.exists(location):
        return
    version = version_in(lake.properties(location))
    steps = due(version or 1)
    for name, sign in all_signs(lake).items() if steps else ():
        _refuse_beside(name, sign, now)
    for step in steps:
        step.do(lake)
        lake.set_properties(location, stamp(step.to))
    if version is None and not steps:
        lake.set_properties(location, stamp())
    if lake.removed_tables():
        lake.set_properties(location, MadeTables.forgotten())


def _refuse_beside(name: str, sign: StreamSign, now: datetime) -> None:
    age_s = now.timestamp() - (sign.read() or 0) / 1000
    if age_s < -_QUIET_S:
        # That machine's clock, or this one's, is wrong; waiting does not make such a sign old.
        raise SafetyError(
            f"a mirror's last sign of life on the lake is dated {-age_s:.0f} s in the future ({name})",
            consequence="it does not show whether that mirror still runs; the lake was not migrated",
            remedy=f"stop every job on this lake, delete {sign.place}, then mirrorlake apply",
        )
    if age_s < _QUIET_S:
        raise SafetyError(
            f"a mirror used the lake {max(0, age_s):.0f} s ago ({name})",
            consequence="the lake was not migrated: an earlier release may not write to the new version",
            remedy=f"stop every job on this lake, wait {_QUIET_S} s, then mirrorlake apply",
        )
