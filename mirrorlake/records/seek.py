"""The request for a page: its start, the filter of its records, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.errors import UsageError
from mirrorlake.records.match import ANY, Match

MAX_RECORDS = 1000
MAX_READ = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """A request for records of a topic; without a start, for the newest records.

    `partition` None is all; `offset` needs one partition. `after` is the start of the following page by partition, `before` the end of
    the preceding page. `at` starts each partition at the first record of this time or later. One record may exceed `max_bytes`;
    `look` bounds the records read in a search.
    """

    partition: int | None = None
    offset: int | None = None
    at: datetime | None = None
    after: Mapping[int, int] | None = None
    before: Mapping[int, int] | None = None
    match: Match = ANY
    count: int = 20
    max_bytes: int = 2**20
    look: int = 10_000

    def __post_init__(self) -> None:
        if self.offset is not None and self.at is not None:
            raise UsageError("both an offset and a time are given", remedy="give one of them")
        if sum(place is not None for place in (self.offset, self.after, self.before)) > 1:
            raise UsageError("several places to begin at are given", remedy="give one of them")
        if not 1 <= self.count <= MAX_RECORDS or self.max_bytes < 1 or (self.offset is not None and self.offset < 0):
            raise UsageError(
                "count, bytes or offset are out of range",
                remedy=f"ask for 1 to {MAX_RECORDS} records from an offset >= 0",
            )
        if not 1 <= self.look <= MAX_READ:
            raise UsageError(
                f"{self.look} records cannot be looked through at once",
                remedy=f"look through 1 to {MAX_READ}, and go on from there",
            )
        if self.at is not None and self.at.tzinfo is None:
            raise UsageError(f"{self.at.isoformat()} has no time zone", remedy=f"write {self.at.isoformat()}Z for UTC")

    @property
    def is_backward(self) -> bool:
        """Whether the newest records are requested: of all, or before some offsets."""
        return self.offset is None and self.at is None and self.after is None
