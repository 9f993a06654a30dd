"""The view of a batch of records: the records to send, their partitions, and the withheld ones with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.withheld import Withheld


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewed:
    """The target's view of some records of one source partition.

    `records` are those to send, in upstream order, with the columns `offset, timestamp, key, value, headers`. `withheld` are
    all others. `partitions` has the target partition of each record to send, or is None if partition numbers do not change.
    """

    records: pa.RecordBatch
    withheld: tuple[Withheld, ...] = ()
    partitions: np.ndarray[Any, np.dtype[np.int32]] | None = None


class View(Protocol):
    """The effect of a flow on records; deterministic, and picklable for Spark's workers.

    `version` is the fingerprint (8 hex digits) of everything that decides the target's records, except secrets.
    """

    @property
    def version(self) -> str: ...

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        """Return the view of records of one source partition, given in upstream order."""
