"""The landing commits of a relay: how each is signed and numbered, so that a table tells whose it is (see `one_writer.py`).

Needs no Spark: tasks commit by it, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.errors import LanderReplaced
from mirrorlake.model.owner import said_owner

APP = "mirrorlake.land"
CHECKPOINT_PROPERTY = "mirrorlake.checkpoint"
# The same number where its lander has claimed it; lakes of a release whose landers had one id a number lack it.
CLAIMED_PROPERTY = "mirrorlake.checkpoint.claimed"
CLUSTER_PROPERTY = "mirrorlake.cluster.id"
# The number and its owner, set in one commit, so that a replaced lander reads who replaced it.
OWNER_PROPERTY = "mirrorlake.checkpoint.owner"
CLAIM = -1


@dataclass(frozen=True, slots=True)
class Signed:
    """What a landing commit is signed with: `batch` is -1 where it only claimed the number."""

    checkpoint: int
    batch: int
    owner: str = ""
    landed_at: datetime | None = None

    def to_text(self) -> str:
        """Write the commit's user metadata."""
        document = {"app": APP, "checkpoint": self.checkpoint, "batch": self.batch, "owner": self.owner}
        return json.dumps(document | ({} if self.landed_at is None else {"landed_at": self.landed_at.isoformat()}))

    @classmethod
    def from_document(cls, document: Any) -> Signed | None:
        """Read a commit's user metadata; None where no lander has written it."""
        if document.get("app") != APP:
            return None
        at = document.get("landed_at")
        return cls(
            int(document["checkpoint"]),
            int(document["batch"]),
            str(document.get("owner", "")),
            None if at is None else datetime.fromisoformat(at),
        )


def txn_version(number: int, batch: int) -> int:
    """Number the transaction of a batch under a checkpoint number; `batch` is -1 for the claim.

    Example:
        >>> txn_version(1, 10**9) < txn_version(2, -1) < txn_version(2, 0) < 2**63
        True
    """
    return (number << 32) + 1 + batch


@dataclass(frozen=True, slots=True)
class Seat:
    """What a task on any machine needs to land as the only lander of a source: the relay's folder and the claimed number."""

    alias: str
    path: str
    number: int
    owner: str


def app_id(alias: str) -> str:
    """Return the application id of a source's landing commits."""
    return f"{APP}.{alias}"


def replaced(alias: str, newest: Signed | None = None) -> LanderReplaced:
    """Return the error of a lander whose relay another one has taken over; `newest` is that one's commit, where it is known."""
    who = "" if newest is None else f": {said_owner(newest.owner)}"
    return LanderReplaced(
        f"another lander of {alias} has taken its relay over{who}",
        consequence="this one wrote nothing more and stopped",
        remedy=f"keep one lander for {alias}; `mirrorlake status` shows its progress",
        alias=alias,
    )
