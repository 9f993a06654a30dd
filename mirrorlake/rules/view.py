"""What a flow's rules make of a batch of records: what goes out, where to, and what is withheld and why."""

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

    `records` are those that go out, in upstream order, with the columns `offset, timestamp, key, value, headers`.
    `withheld` are all others. `partitions` is the target partition of each record that goes out; None where the records
    keep their partition number.
    """

    records: pa.RecordBatch
    withheld: tuple[Withheld, ...] = ()
    partitions: np.ndarray[Any, np.dtype[np.int32]] | None = None


class View(Protocol):
    """What a flow does to records; picklable, because it runs in Spark's workers, and the same for the same records.

    `version` is the fingerprint of everything that decides what the target gets (8 hex digits); secrets do not count.
    """

    @property
    def version(self) -> str:
        """Return the fingerprint."""

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        """Return the view of records of one source partition, which come in upstream order."""
