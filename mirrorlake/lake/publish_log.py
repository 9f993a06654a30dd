"""Read the publishers and the end of a relay from the table's history: each commit is signed.

The history reaches back for `delta.logRetentionDuration` (30 days), and always includes the newest commit.

Law F (repeatable): the end of the relay comes from the relay itself. Each signature has the next offset of every partition before
its commit, and the commit's rows have the rest. Without a signature the whole table is read. No time window or side table is
used, so that neither a kill between two tables nor a clock makes an offset be assigned twice.
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
from mirrorlake.lake.reader import Commit
from mirrorlake.lake.times import EPOCH, TICK
from mirrorlake.model.flow import SourcePartition

APP = "mirrorlake.publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The signature of a publisher's commit.

    `version` is Delta's transaction version, one above the last. `landed_at` always increases, whatever the publishers' clocks
    say. `before` is the next offset of every partition before this commit, `batch_id` the application's name of the batch.
    """

    id: str
    version: int
    landed_at: datetime
    before: Mapping[SourcePartition, int]
    batch_id: str | None = None

    def to_text(self) -> str:
        document: dict[str, Any] = {
            "app": APP,
            "id": self.id,
            "version": self.version,
            "landed_at": self.landed_at.isoformat(),
            "before": [[s.topic, s.generation, s.partition, offset] for s, offset in self.before.items()],
        }
        if self.batch_id is not None:
            document["batch_id"] = self.batch_id
        return json.dumps(document)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Signature | None:
        """Parse a commit's user metadata, or return None if no publisher wrote it."""
        if document.get("app") != APP:
            return None
        return cls(
            id=document["id"],
            version=int(document["version"]),
            landed_at=datetime.fromisoformat(document["landed_at"]),
            before={SourcePartition(*place): int(offset) for *place, offset in document["before"]},
            batch_id=document.get("batch_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of a relay: its newest commit's transaction version and time, and the next offset of each partition."""

    version: int
    landed_at: datetime
    reached: Mapping[SourcePartition, int]


class PublishLog:
    """The publishers' commits in one relay's history; each is read once.

    `table_version` is -1 before the first read.
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
        """Read the commits since the last read; `whole` reads the whole history once."""
        since, found = -1 if whole and not self._is_whole else self.table_version, list[Commit]()
        for commit in self._lake.commits(self._location, since=since):
            found.append(commit)
            if since < 0 and not whole and Signature.from_document(commit.signature):
                break
        else:
            self._is_whole = self._is_whole or since < 0
        for commit in reversed(found):
            self.table_version = commit.version
            signature = Signature.from_document(commit.signature)
            if signature is None:
                continue
            self.ids.add(signature.id)
            if signature.batch_id is not None:
                self.batches[signature.batch_id] = signature
            self.newest = max(self.newest or signature, signature, key=attrgetter("version"))

    def tail(self, known: Tail | None = None) -> Tail:
        """Return the end of the relay; with `known`, an earlier end, read only later rows."""
        # The history first: rows read after it may be newer, and Delta then refuses a commit based on both.
        self.refresh()
        newest = self.newest
        if known is not None and newest is not None:
            reached, since = dict(known.reached), known.landed_at
        elif newest is not None:
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
        # Without rows and history it is a new table. With rows it was restored without its history: every commit raised both
        # versions, so the table's version is unused as a transaction version.
        return Tail(version=self.table_version if reached else 0, landed_at=last, reached=reached)
