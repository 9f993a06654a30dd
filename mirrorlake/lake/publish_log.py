"""Who has published into a relay, and where it ends, by the history of the table: each commit is signed.

The history goes back as far as `delta.logRetentionDuration` (30 days), and holds the newest commit in any case.

Law F (repeatable): where the relay ends comes from the relay itself. Each signature says where every partition stood before
its commit, and the commit's own rows say the rest; where no signature says it, the whole table is read. No window of time
and no side table is asked, so that neither a death between two tables nor a clock gives an offset out again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landing_state import summarize_landed_after
from mirrorlake.lake.times import EPOCH, TICK
from mirrorlake.model.flow import SourcePartition

APP = "mirrorlake.publish"
# Others' commits since the last look are few; a longer history is read where these do not reach back to it.
_BATCH_SIZE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a publisher signs its commit with.

    Attributes:
        id: this very attempt.
        version: Delta's transaction version, one above the last.
        landed_at: time of the commit; each is later than the last, whatever the publishers' clocks say.
        before: the next offset of every partition before this commit; None in a commit of a release that did not record it.
        batch_id: what the application calls the batch, None for no name.
    """

    id: str
    version: int
    landed_at: datetime
    before: Mapping[SourcePartition, int] | None = None
    batch_id: str | None = None

    def to_text(self) -> str:
        """Write the commit's user metadata."""
        document: dict[str, Any] = {
            "app": APP,
            "id": self.id,
            "version": self.version,
            "landed_at": self.landed_at.isoformat(),
        }
        if self.before is not None:
            document["before"] = [[s.topic, s.generation, s.partition, offset] for s, offset in self.before.items()]
        if self.batch_id is not None:
            document["batch_id"] = self.batch_id
        return json.dumps(document)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Signature | None:
        """Read a commit's user metadata; None where no publisher has written it."""
        if document.get("app") != APP:
            return None
        before = document.get("before")
        return cls(
            id=document["id"],
            version=int(document["version"]),
            landed_at=datetime.fromisoformat(document["landed_at"]),
            before=None if before is None else {SourcePartition(*place): int(offset) for *place, offset in before},
            batch_id=document.get("batch_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Where a relay ends: its newest commit's transaction version and time, and the next offset of each partition."""

    version: int
    landed_at: datetime
    reached: Mapping[SourcePartition, int]


class PublishLog:
    """The publishers of one relay by its history; each commit is read once.

    Attributes:
        table_version: the newest version that was read, -1 before the first look.
        newest: the newest signed commit.
        ids: the attempts that were committed, as far as they were read.
        batches: the named batches that were committed, as far as they were read.
    """

    def __init__(self, lake: Lake, alias: str) -> None:
        self._lake = lake
        self._alias = alias
        self._location = lake.relay_location(alias)
        self._is_whole = False
        self.table_version = -1
        self.newest: Signature | None = None
        self.ids: set[str] = set()
        self.batches: dict[str, Signature] = {}

    def refresh(self, *, whole: bool = False) -> None:
        """Read the commits that came since the last look; `whole` once reads as far back as the history goes."""
        before = -1 if whole and not self._is_whole else self.table_version
        limit: int | None = _BATCH_SIZE
        while True:
            found = self._lake.commits(self._location, limit=limit)
            is_all = limit is None or len(found) < limit
            if is_all or found[-1].version <= before + 1:
                break
            if before < 0 and not whole and any(Signature.from_document(commit.signature) for commit in found):
                break
            # Others may commit between two looks, so it reaches further than it has to.
            limit = None if before < 0 else found[0].version - before + _BATCH_SIZE
        self._is_whole = self._is_whole or is_all
        for commit in reversed(found):
            signature = Signature.from_document(commit.signature)
            if signature is None:
                continue
            self.ids.add(signature.id)
            if signature.batch_id is not None:
                self.batches[signature.batch_id] = signature
            self.newest = max(self.newest or signature, signature, key=attrgetter("version"))
        self.table_version = max(self.table_version, found[0].version)

    def tail(self, known: Tail | None = None) -> Tail:
        """Find where the relay ends; with `known`, the end at an earlier look, only what came since is read."""
        # The history first: rows that are read after it may be newer, and then Delta refuses what is made of both.
        self.refresh()
        newest = self.newest
        if known is not None and newest is not None:
            reached, since = dict(known.reached), known.landed_at
        elif newest is not None and newest.before is not None:
            reached, since = dict(newest.before), newest.landed_at - TICK
        else:
            reached, since = {}, None
        last = since or EPOCH
        for span in summarize_landed_after(self._lake, self._alias, {}, since):
            source = SourcePartition(span.topic, span.generation, span.partition)
            reached[source] = max(reached.get(source, 0), int(span.last) + 1)
            last = max(last, span.landed_at.astimezone(timezone.utc))
        if newest is not None:
            return Tail(version=newest.version, landed_at=newest.landed_at, reached=reached)
        # Without rows and history it is a new table. With rows, one that was restored without its history: every commit
        # raised both versions, so the table's is free.
        return Tail(version=self.table_version if reached else 0, landed_at=last, reached=reached)
