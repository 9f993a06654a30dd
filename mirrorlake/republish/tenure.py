"""What a process remembers of owning a flow, from one start of its stream to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mirrorlake.errors import LaneFenced
from mirrorlake.kafka.lane import fenced_error
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.owner import new_owner, said_owner


def replaced_error(newest: Claim) -> LaneFenced:
    """Return the error of an owner that the owner of the `newest` claim has replaced."""
    why = f"{said_owner(newest.owner)} took over in epoch {newest.epoch}"
    return fenced_error(newest.flow, why, flow=newest.flow)


class Tenure:
    """Own a flow over several starts of its stream, until another process takes it over.

    Without it, a stream that starts again after a failure would take the flow from whoever took it over meanwhile: the newer
    owner wins (law F).

    Args:
        check: called before the lanes are fenced, and again before they are claimed; raises where this process is not to
            own the flow.
        sign: the id of the sign of life of a command that owns the flow for a moment; empty for an owner that stays.
    """

    def __init__(self, check: Callable[[], object] = lambda: None, *, sign: str = "") -> None:
        self._check = check
        self._sign = sign
        self._owners: set[str] = set()
        self._epoch: int | None = None
        self._counted: dict[int, int] = {}

    def new_owner(self) -> str:
        """Make a name under which the flow may be claimed."""
        return new_owner(self._sign)

    def record_owner(self, owner: str) -> None:
        """Take note of a name under which this process claims the flow, or of a temporary owner that has ended."""
        self._owners.add(owner)

    def record_claim(self, claim: Claim) -> None:
        """Take note of a claim that stands in every lane."""
        self._epoch = claim.epoch

    def record_counted(self, records: Iterable[LedgerRecord]) -> None:
        """Record which ledger records this process has counted as sent."""
        for record in records:
            lane = record.claim.lane
            self._counted[lane] = max(record.seq, self._counted.get(lane, -1))

    def find_uncounted(self, records: Iterable[LedgerRecord]) -> list[LedgerRecord]:
        """Return the ledger records that an earlier owner of this process wrote and that were not counted.

        A task may commit while its ledger does not answer, and end before it does.
        """
        return [
            record
            for record in records
            if record.claim.owner in self._owners and record.seq > self._counted.get(record.claim.lane, -1)
        ]

    def require_claimable(self, before: Iterable[Claim] = ()) -> None:
        """Check that this process may claim the flow; `before` are the newest claims of its lanes.

        Raises:
            LaneFenced: another process took the flow over since this one owned it.
        """
        self._check()
        newest = max(before, key=lambda claim: claim.epoch, default=None)
        if self._epoch is not None and newest and newest.epoch > self._epoch and newest.owner not in self._owners:
            raise replaced_error(newest)
