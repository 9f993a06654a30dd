"""Fence a relay for one writer: the table itself refuses the commits of an older lander.

Every landing commit carries one application id of the source and a transaction version made of checkpoint number and batch. A
lander that claims the relay first commits its number, without a row. From then on Delta drops commits with a lower number, and
refuses one of two simultaneous commits. A commit is dropped silently, so each writer reads the number again after its commit, and
an older lander stops.

Law F (repeatable): a lander that wakes up writes nothing twice, whatever it was doing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.crash_points import crash_point
from mirrorlake.errors import LanderReplaced
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landing_commits import (
    CHECKPOINT_PROPERTY,
    CLAIM,
    CLUSTER_PROPERTY,
    OWNER_PROPERTY,
    LandingCommit,
    RelayClaim,
    app_id,
    lander_replaced_error,
    txn_version,
)
from mirrorlake.lake.landing_progress import LandingHistory, landing_history
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.owner import new_owner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTEMPTS = 5


class FencedRelayWriter:
    """Write to the relay of a source as its only lander.

    `keeps_number` is whether this writer lands under the number, or did before another one claimed the relay. `cluster_id`
    is of the cluster whose records are in the relay, None if it was never recorded.
    """

    def __init__(self, lake: Lake, alias: str, *, owner: str = "") -> None:
        self._lake = lake
        self._alias = alias
        self._location = lake.relay_location(alias)
        self._owner = owner or new_owner()
        self.keeps_number = False
        self.number = 0
        self.is_claimed = False
        self.cluster_id: str | None = None
        self.history = LandingHistory()

    def refresh(self) -> None:
        """Read the newest number and landing commit; LanderReplaced if this writer's number is no longer the newest."""
        if self.keeps_number:
            self.require_unfenced()
        properties = self._lake.properties(self._location)
        if CHECKPOINT_PROPERTY in properties:
            self._read_history()
        last, recorded = self.history.last, int(properties.get(CHECKPOINT_PROPERTY, "0"))
        # A lander that slept between two steps of its claim may have lowered the property.
        self.number = max(recorded, last.checkpoint if last else 0)
        self.cluster_id = properties.get(CLUSTER_PROPERTY)
        self.is_claimed = 0 < self.number == recorded

    def record_cluster(self, cluster_id: str) -> None:
        if self.cluster_id != cluster_id:
            self._lake.set_properties(self._location, {CLUSTER_PROPERTY: cluster_id})
            self.cluster_id = cluster_id

    def claim(self, cluster_id: str | None = None, read_to: Mapping[SourcePartition, int] | None = None) -> bool:
        """Claim the relay under a new number, and return whether others landed a batch since the last read.

        `read_to` are the next offsets to read, if the caller knows more than the commits.
        """
        before, number = self.history, self.number + 1
        claim = LandingCommit(number, CLAIM, self._owner, read_to=before.read_to if read_to is None else read_to)
        if claim.read_to is not None:
            claim = replace(claim, as_of=before.version)
        identity = {} if cluster_id is None else {CLUSTER_PROPERTY: cluster_id}
        numbered = {CHECKPOINT_PROPERTY: str(number), OWNER_PROPERTY: f"{number} {self._owner}"}
        try:
            self._lake.set_properties(self._location, numbered | identity)
        except Exception as error:
            if self._recorded() >= number:
                raise self._replaced_error() from error
            raise
        crash_point("land.numbered")
        for attempt in range(_ATTEMPTS):
            failure: Exception | None = None
            try:
                self._append(None, claim)
            except Exception as error:
                failure = error
            last = self._read_history().last
            if last is not None and (last.checkpoint, last.owner) == (number, self._owner):
                break
            if failure is None or (last is not None and last.checkpoint >= number):
                raise lander_replaced_error(self._alias, last) from failure
            # Delta refuses one of two simultaneous commits: an older lander's batch may have come first.
            if attempt + 1 == _ATTEMPTS:
                raise failure
        crash_point("land.claimed")
        self.number, self.keeps_number, self.is_claimed = number, True, True
        return self.history.last_batch != before.last_batch

    def append(self, rows: DataFrame, batch: int, landed_at: datetime) -> None:
        """Append a batch, its rows without `landed_at`; a batch that is in the table already is dropped."""
        try:
            self._append(rows, LandingCommit(self.number, batch, self._owner, landed_at))
        except Exception:
            self.require_unfenced()
            raise
        crash_point("land.committed")
        self.require_unfenced()

    def require_unfenced(self) -> None:
        """Raise LanderReplaced unless this writer's number is the newest."""
        if self._recorded() != self.number:
            raise self._replaced_error()

    def _replaced_error(self) -> LanderReplaced:
        last = self._read_history().last
        # A claim sets its number before it commits under it, so the newest commit may still be this writer's.
        return lander_replaced_error(self._alias, last if last is not None and last.owner != self._owner else None)

    def newest_owner(self) -> str:
        properties = self._lake.properties(self._location)
        number, _, owner = properties.get(OWNER_PROPERTY, "").partition(" ")
        return owner if number == properties.get(CHECKPOINT_PROPERTY) else ""

    def resume_after(self, owner: str) -> None:
        """Resume under the number that a temporary owner claimed last; a later claim is newer."""
        self.number = self._recorded()
        if self.newest_owner() != owner:
            raise self._replaced_error()
        self.keeps_number = True
        self.require_unfenced()

    def relay_claim(self) -> RelayClaim:
        return RelayClaim(self._alias, self._location, self.number, self._owner, as_of=self.history.version)

    def newest_landed_at(self) -> datetime | None:
        """Return the time of the newest batch; batch times always increase, whatever the clocks say."""
        last = self.history.last_batch
        if last is None or last.landed_at is not None:
            return None if last is None else last.landed_at
        # Its signature has no time, so it is queried once.
        [row] = self._lake.query("SELECT max(landed_at) AS newest FROM {relay}", relay=self._alias)
        found: datetime | None = row.newest
        return found

    def _append(self, rows: DataFrame | None, commit: LandingCommit) -> None:
        self._lake.land(
            rows,
            self._alias,
            landed_at=commit.landed_at,
            app_id=app_id(self._alias),
            version=txn_version(commit.checkpoint, commit.batch),
            signature=commit.to_text(),
        )

    def _recorded(self) -> int:
        return int(self._lake.properties(self._location).get(CHECKPOINT_PROPERTY, "0"))

    def _read_history(self) -> LandingHistory:
        self.history = landing_history(self._lake, self._location)
        return self.history
