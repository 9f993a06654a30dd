"""Decide which records a compacted log lacks by compaction, and which are lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.verify.content import Offsets, values_of

Losses = list[tuple[int, int, int, tuple[Any, ...]]]
"""Records by feed, upstream and downstream offset and content."""


class CompactedLog:
    """Records missing from a compacted log: explained if the key has a later record, or if they are tombstones.

    A later record may be missing, too, so only the newest known record of a key can be lost.
    """

    def __init__(self) -> None:
        self._lost: list[tuple[int, Offsets, Offsets, pa.RecordBatch]] = []
        self._known: list[pa.Table] = []
        self._judged: Losses | None = None

    @property
    def lacks(self) -> bool:
        return bool(self._lost)

    def lost(self, feed: int, upstream: Offsets, downstream: Offsets, rows: pa.RecordBatch) -> None:
        self._lost.append((feed, upstream, downstream, rows))
        self.survived(rows.column("key"), downstream)

    def survived(self, keys: pa.Array, offsets: Offsets) -> None:
        self._known.append(pa.table({"key": keys, "offset": offsets}))
        self._judged = None

    def judged(self) -> Losses:
        """Return the losses that nothing explains; cached until more is added."""
        if self._judged is None:
            self._judged = self._judge() if self._lost else []
        return self._judged

    def _judge(self) -> Losses:
        groups = pa.concat_tables(self._known).group_by("key").aggregate([("offset", "max")])
        newest = dict(zip(groups["key"].to_pylist(), groups["offset_max"].to_pylist(), strict=True))
        lost: Losses = []
        for feed, upstream, downstream, rows in self._lost:
            keys = rows.column("key")
            last = np.array([-1 if key is None else newest[key] for key in keys.to_pylist()])
            deletes = pc.is_null(rows.column("value")).to_numpy(zero_copy_only=False)
            has_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
            unexplained = np.flatnonzero(~((last > downstream) | (deletes & has_key)))
            values = values_of(rows.take(pa.array(unexplained)))
            lost += list(
                zip(
                    [feed] * len(values),
                    upstream[unexplained].tolist(),
                    downstream[unexplained].tolist(),
                    values,
                    strict=True,
                )
            )
        return lost
