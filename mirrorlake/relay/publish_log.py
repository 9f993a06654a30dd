"""Who has published into a relay, told by the table's history: each commit is signed by its publisher.

The history goes back as far as `delta.logRetentionDuration` (30 days), and holds the newest commit in any case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.relay.lake import Lake
from mirrorlake.relay.progress import commits

APP = "mirrorlake.publish"
# Others' commits since the last look are few; a longer history is read where these do not reach back to it.
_AT_ONCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a publisher signs its commit with.

    Attributes:
        id: this very attempt.
        version: Delta's transaction version, one above the last.
        landed_at: time of the commit; each is later than the last, whatever the publishers' clocks say.
        batch_id: what the application calls the batch, None for no name.
    """

    id: str
    version: int
    landed_at: datetime
    batch_id: str | None = None

    def to_text(self) -> str:
        """Return the commit's user metadata."""
        document = {"app": APP, "id": self.id, "version": self.version, "landed_at": self.landed_at.isoformat()}
        return json.dumps(document | ({} if self.batch_id is None else {"batch_id": self.batch_id}))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Signature | None:
        """Return the signature that a commit holds, None where it is nobody's or another's."""
        if document.get("app") != APP:
            return None
        return cls(
            id=document["id"],
            version=int(document["version"]),
            landed_at=datetime.fromisoformat(document["landed_at"]),
            batch_id=document.get("batch_id"),
        )


class PublishLog:
    """What the history of one relay tells about publishers; each commit is read once.

    Attributes:
        table_version: the newest version that was read, -1 before the first look.
        newest: the newest signed commit.
        ids: the attempts that were committed, as far as they were read.
        batches: the named batches that were committed, as far as they were read.
    """

    def __init__(self, lake: Lake, location: str) -> None:
        self._lake = lake
        self._location = location
        self._is_whole = False
        self.table_version = -1
        self.newest: Signature | None = None
        self.ids: set[str] = set()
        self.batches: dict[str, Signature] = {}

    def refresh(self, *, whole: bool = False) -> None:
        """Read the commits that came since the last look; `whole` once reads as far back as the history goes."""
        before = -1 if whole and not self._is_whole else self.table_version
        limit: int | None = _AT_ONCE
        while True:
            found = commits(self._lake, self._location, limit=limit)
            is_all = limit is None or len(found) < limit
            if is_all or found[-1].version <= before + 1:
                break
            if before < 0 and not whole and any(Signature.from_document(commit.signature) for commit in found):
                break
            # Others may commit between two looks, so it reaches further than it has to.
            limit = None if before < 0 else found[0].version - before + _AT_ONCE
        self._is_whole = self._is_whole or is_all
        for commit in reversed(found):
            signature = Signature.from_document(commit.signature)
            if signature is None:
                continue
            self.ids.add(signature.id)
            if signature.batch_id is not None:
                self.batches[signature.batch_id] = signature
            if self.newest is None or signature.version > self.newest.version:
                self.newest = signature
        self.table_version = max(self.table_version, found[0].version)
