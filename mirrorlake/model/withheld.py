"""Records in the relay that a flow withheld from its target: filtered or quarantined (law E).

The ledger records them in the transaction that skips them, so none is withheld twice or forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges

# What became of a record in a flow: the values of `kind` in the table `offset_map`.
SENT = "sent"
FILTERED = "filtered"
QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Upstream offsets of one source partition that one rule withheld from the target, for one reason.

    `kind` is `filtered` or `quarantined`. `rule` names the rule, `version` is the fingerprint of its definition (8
    hex digits). Every offset in `ranges` is a landed record.
    """

    source: SourcePartition
    kind: str
    rule: str
    version: str
    ranges: Ranges
    reason: str = ""

    @property
    def holes(self) -> Ranges:
        """The offsets between the ranges."""
        return Ranges([(self.ranges.first, self.ranges.end)]) - self.ranges
