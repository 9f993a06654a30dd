"""Record begun and done replays in `audit`, since each changes a cluster (law G)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.context import Context
from mirrorlake.model.plan import Change
from mirrorlake.model.replay import Definition

EXPORT = "export"
"""Kind of the `audit` entries for folders that a replay writes Parquet files to."""

_BEGIN, _END = "begin", "end"
_ENTRIES = """
    SELECT object, action, after, at FROM {audit}
    WHERE startswith(object, 'replay ') AND (:name = '' OR object = :name) ORDER BY at, action, after
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A begun replay; `done_at` and `outcome` are None until it is done."""

    definition: Definition
    begun_at: datetime
    done_at: datetime | None = None
    outcome: Mapping[str, Any] | None = None


class Register:
    """Read and write the replays of one lake."""

    def __init__(self, context: Context) -> None:
        self._lake = context.lake
        self._audit = context.audit()

    def find(self, name: str) -> Begun | None:
        """Return the replay by the name of its flow, or None if none was begun."""
        return self._read(f"replay {name}").get(name)

    def all(self) -> dict[str, Begun]:
        """Return every replay by the name of its flow, oldest first."""
        return self._read("")

    def begin(self, definition: Definition) -> Definition:
        """Record the definition before its first record is sent; return the valid one: of two concurrent begins, the first."""
        self._record(definition, _BEGIN, definition.as_dict())
        first = self.find(definition.name)
        return definition if first is None else first.definition

    def end(self, definition: Definition, outcome: Mapping[str, Any]) -> None:
        """Record that all records of a replay were sent."""
        self._record(definition, _END, dict(outcome))

    def _record(self, definition: Definition, action: str, after: Any) -> None:
        change = Change(
            where=definition.target,
            kind="replay",
            name=definition.name,
            action=action,
            after=after,
            reason="asked for",
            flow=definition.name,
        )
        self._audit.record([change], command="replay")

    def _read(self, name: str) -> dict[str, Begun]:
        found: dict[str, Begun] = {}
        for row in self._lake.query_rows(_ENTRIES, missing_ok=True, name=name):
            flow = row.object.partition(" ")[2]
            before = found.get(flow)
            if row.action == _BEGIN and before is None:
                found[flow] = Begun(definition=Definition.from_dict(json.loads(row.after)), begun_at=row.at)
            elif row.action == _END and before is not None and before.done_at is None:
                found[flow] = Begun(
                    definition=before.definition,
                    begun_at=before.begun_at,
                    done_at=row.at,
                    outcome=json.loads(row.after),
                )
        return found
