"""Collect the records of a batch that one rule withholds, with the reason."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.withheld import FILTERED, QUARANTINED, Withheld
from mirrorlake.rules.headers import Flags

_KINDS = {"quarantine": QUARANTINED, "drop": FILTERED}


class Sieve:
    """Withhold rows of a batch, in upstream order, for one rule."""

    def __init__(
        self,
        records: pa.RecordBatch,
        source: SourcePartition,
        *,
        rule: str,
        version: str,
        on_error: str,
    ) -> None:
        self._records = records
        self._source = source
        self._rule = rule
        self._version = version
        self.on_error = on_error
        self._goes = np.ones(len(records), np.bool_)
        self._held: dict[tuple[str, str], list[int]] = {}

    def hold(self, rows: Flags, kind: str, reason: str) -> None:
        if rows.any():
            self._goes &= ~rows
            offsets = self._records.column("offset").to_numpy(zero_copy_only=False)[rows]
            self._held.setdefault((kind, reason), []).extend(offsets.tolist())

    def failed(self, rows: Flags, reason: str) -> None:
        """Apply `on_error` to the flagged rows."""
        if self.on_error != "pass":
            self.hold(rows, _KINDS[self.on_error], reason)

    def passed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of `records` that pass, or `records` itself if all do; its rows are those of the batch."""
        return records if self._goes.all() else records.filter(pa.array(self._goes))

    def withheld(self) -> tuple[Withheld, ...]:
        return tuple(
            Withheld(
                source=self._source,
                kind=kind,
                rule=self._rule,
                version=self._version,
                ranges=Ranges.of(offsets),
                reason=reason,
            )
            for (kind, reason), offsets in self._held.items()
        )
