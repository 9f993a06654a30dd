"""Records that left a relay: expired by its retention, or erased on request; each explained before it is gone (law E)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges

EXPIRED = "expired"
ERASED = "erased"
# The word that explains an offset, the most specific first; `expired` alone means lost by the source before landing.
LEFT = {ERASED: "erased", EXPIRED: "expired_from_relay"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Records of one source partition that left the relay in one act.

    `ranges` are the offsets that left, also those without a record. `kind` is `expired` or `erased`; `evidence` never has
    a key or a value in clear. `relay_version` is the first version of the relay without them, None until that commit is confirmed.
    """

    removal: str
    source: SourcePartition
    ranges: Ranges
    kind: str
    records: int
    removed_at: datetime
    reason: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    relay_version: int | None = None

    @property
    def word(self) -> str:
        return LEFT[self.kind]

    @property
    def is_done(self) -> bool:
        """Whether the relay's commit is confirmed; otherwise the next maintenance does it."""
        return self.relay_version is not None

    @property
    def first_offset(self) -> int:
        return self.ranges.first

    @property
    def last_offset(self) -> int:
        return self.ranges.end - 1


def why_left(removed: Iterable[Removed], offset: int) -> str | None:
    """Return why the record at an offset left the relay, or None if none of these acts removed it."""
    words = {one.word for one in removed if one.ranges.contains(offset)}
    return next((word for word in LEFT.values() if word in words), None)
