"""Choose the target partition of each record: the last stage of a flow's view.

Law D: placement by key preserves the order of a key, because equal keys get equal partitions and one lane carries a source
partition. Records without a key are placed by their source partition and preserve its order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256

from mirrorlake.config.schema import Placement
from mirrorlake.model.flow import SourcePartition
from mirrorlake.rules.murmur2 import partitions_for
from mirrorlake.rules.view import Viewed


@dataclass(frozen=True, slots=True)
class Placer:
    """Place the records of a view on the target's partitions; does nothing if `placement` preserves the partition numbers."""

    placement: Placement

    @property
    def version(self) -> str:
        """The fingerprint of the placement, 8 hex digits; "" if it preserves the partition numbers."""
        if self.placement.kind == "keep":
            return ""
        return sha256(json.dumps(self.placement.plain(), sort_keys=True).encode()).hexdigest()[:8]

    def __call__(self, source: SourcePartition, viewed: Viewed) -> Viewed:
        count = self.placement.count
        if count is None:
            return viewed
        partitions = partitions_for(viewed.records.column("key"), count, nulls=source.partition % count)
        return replace(viewed, partitions=partitions)
