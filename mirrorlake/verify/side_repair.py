"""Remove broken files from side tables, so that commands work again, and name which rows are rebuilt and which are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.lake import AUDIT, REMOVABLE, SIDE_TABLES, Audit, Lake, broken_rows
from mirrorlake.model.plan import Change

_HISTORY = "history, which is not made again; nothing depends on it", "nothing to do"
# The effect on the rows, and the next command.
_THEN = {
    "positions": (
        "how far landing accounts for offsets is made again from the relay by its next start; samples, and where another mirror "
        "was taken over, are not",
        "mirrorlake land --source A --once, then mirrorlake status",
    ),
    "offset_map": (
        "the next start of each flow writes again what its ledger still holds; of older rows `offsets`, `groups` and `quarantine` "
        "know less, never something wrong",
        "mirrorlake run, then mirrorlake verify --full",
    ),
    "proofs": ("they are made again", "mirrorlake verify"),
    "metadata": ("the next look at the clusters writes what it sees", "mirrorlake doctor, then mirrorlake plan"),
    "gaps": ("not made again: offsets may lack their explanation", "mirrorlake verify names them"),
    "removed": ("not made again: what left the relay may lack its explanation", "mirrorlake verify names it"),
    "audit": ("not made again: steps of a failover or a replay may lack", "look at failovers and replays under way"),
    "control": (
        "not made again: pauses, choices and settings that were applied",
        "mirrorlake status, then pause again what has to stay paused, and mirrorlake apply",
    ),
    "checkpoints": _HISTORY,
    "samples": _HISTORY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenTable:
    """The loss of a side table with broken files: `rows` in `files`, the effect, and the next command."""

    name: str
    files: int
    rows: int
    then: str
    next_step: str


def repair_side_tables(lake: Lake, *, now: Callable[[], datetime], check: bool = False) -> tuple[BrokenTable, ...]:
    """Find the broken files of side tables and, without `check`, remove them from their tables."""
    tables = []
    for schema in SIDE_TABLES:
        upkeep = lake.open_maintenance(lake.meta_location(schema))
        if upkeep is None or not (broken := broken_rows(upkeep)):
            continue
        then, next_step = _THEN[schema.name]
        rows = sum(count for _, count in broken)
        tables.append(BrokenTable(name=schema.name, files=len(broken), rows=rows, then=then, next_step=next_step))
        if not check:
            upkeep.ensure_properties(REMOVABLE)
            # False if maintenance has removed them meanwhile.
            upkeep.replace([file for file, _ in broken], [], data_change=True, why="repair")
            upkeep.ensure_properties({name: schema.properties[name] for name in REMOVABLE})
    if tables and not check and lake.exists(lake.meta_location(AUDIT)):
        what = {"where": "lake", "kind": "table", "action": "repair", "reason": "broken files"}
        changes = [Change(name=table.name, after=f"{table.rows} rows lost", **what) for table in tables]
        Audit(lake, now=now).record(changes, command="repair")
    return tuple(tables)
