"""The signature and number of a relay's landing commits, which identify the lander of each (see `fenced_writer.py`).

This module needs no Spark, because tasks commit by it, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.errors import LanderReplaced
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.owner import said_owner

APP = "mirrorlake.land"
CHECKPOINT_PROPERTY = "mirrorlake.checkpoint"
CLUSTER_PROPERTY = "mirrorlake.cluster.id"
# The number and its owner, set in one commit, so that a replaced lander reads who replaced it.
OWNER_PROPERTY = "mirrorlake.checkpoint.owner"
CLAIM = -1


@dataclass(frozen=True, slots=True)
class LandingCommit:
    """The signature of a landing commit; `batch` is -1 for a claim of the number.

    Attributes:
        landed_at: time of the newest batch with records.
        read_to: the next offset to read of partitions that were read past their last landed record; with `as_of`, of all
            partitions by the commits up to that version of the table. None if a checkpoint location has it: in commits of
            a Structured Streaming query.
        group: the landing group, if several tasks land under the number; their batches share one sequence of numbers.
    """

    checkpoint: int
    batch: int
    owner: str = ""
    landed_at: datetime | None = None
    read_to: Mapping[SourcePartition, int] | None = None
    as_of: int | None = None
    group: int | None = None

    def to_text(self) -> str:
        document: dict[str, Any] = {
            "app": APP,
            "checkpoint": self.checkpoint,
            "batch": self.batch,
            "owner": self.owner,
        }
        if self.landed_at is not None:
            document["landed_at"] = self.landed_at.isoformat()
        if self.read_to is not None:
            document["read_to"] = read_to_document(self.read_to)
        if self.as_of is not None:
            document["as_of"] = self.as_of
        if self.group is not None:
            document["group"] = self.group
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_document(cls, document: Any) -> LandingCommit | None:
        """Parse a commit's user metadata, or return None if no lander wrote it."""
        if document.get("app") != APP:
            return None
        at, read_to = document.get("landed_at"), document.get("read_to")
        return cls(
            int(document["checkpoint"]),
            int(document["batch"]),
            str(document.get("owner", "")),
            None if at is None else datetime.fromisoformat(at),
            None if read_to is None else parse_read_to(read_to),
            document.get("as_of"),
            document.get("group"),
        )


def read_to_document(read_to: Mapping[SourcePartition, int]) -> dict[str, dict[str, Any]]:
    """Return offsets by topic and partition, each after its generation unless that is the first."""
    document: dict[str, dict[str, Any]] = {}
    # The newest generation of a partition comes last.
    for source, offset in sorted(read_to.items()):
        at = offset if source.generation == 1 else [source.generation, offset]
        document.setdefault(source.topic, {})[str(source.partition)] = at
    return document


def parse_read_to(document: Mapping[str, Mapping[str, Any]]) -> dict[SourcePartition, int]:
    read_to = {}
    for topic, partitions in document.items():
        for partition, at in partitions.items():
            generation, offset = at if isinstance(at, list) else (1, at)
            read_to[SourcePartition(topic, generation, int(partition))] = int(offset)
    return read_to


def txn_version(number: int, batch: int) -> int:
    """Return the transaction version of a batch under a checkpoint number; `batch` is -1 for the claim."""
    return (number << 32) + 1 + batch


def batch_time(now: datetime, landed_until: datetime | None) -> datetime:
    """Return the time of a batch: later than the batch before, even if the clock was set back by hours.

    Offset accounts rely on increasing times.
    """
    return now if landed_until is None else max(now, landed_until + timedelta(microseconds=1))


@dataclass(frozen=True, slots=True)
class RelayClaim:
    """The relay's folder and the claimed number, by which a task on any machine lands for the only lander of a source.

    If several tasks land under the number, each has a `group`, and `as_of` is the relay's version that the lander read last.
    """

    alias: str
    path: str
    number: int
    owner: str
    group: int | None = None
    as_of: int = -1

    @property
    def app(self) -> str:
        return app_id(self.alias, self.group)


def app_id(alias: str, group: int | None = None) -> str:
    """Return the application id of a source's landing commits, or that of one landing group."""
    return f"{APP}.{alias}" if group is None else f"{APP}.{alias}/{group}"


def lander_replaced_error(alias: str, newest: LandingCommit | None = None) -> LanderReplaced:
    """Return the error of a lander that another one has replaced; `newest` is the commit of the other, if known."""
    who = "" if newest is None else f": {said_owner(newest.owner)}"
    return LanderReplaced(
        f"another lander has claimed the relay of {alias}{who}",
        consequence="this lander stopped and wrote nothing more",
        remedy=f"run only one lander for {alias}; `mirrorlake status` shows its progress",
        alias=alias,
    )
