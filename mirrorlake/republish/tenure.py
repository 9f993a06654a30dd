"""A process's ownership of a flow, from one start of its stream to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mirrorlake.errors import LaneFenced
from mirrorlake.kafka.lane import fenced_error
from mirrorlake.model.ledger import Claim, LedgerRecord
from mirrorlake.model.owner import new_owner, said_owner


def replaced_error(newest: Claim) -> LaneFenced:
    why = f"{said_owner(newest.owner)} claimed it in epoch {newest.epoch}"
    return fenced_error(newest.flow, why, flow=newest.flow)


class Tenure:
    """Own a flow over several starts of its stream, until another process claims it.

    Otherwise a stream that restarts after a failure would take the flow from a newer owner, who wins by law F. `check` is called
    before the lanes are fenced, and again before they are claimed; it raises if this process must not own the flow. `sign` is the
    id of the sign of a command that owns the flow temporarily; "" for a lasting owner.
    """

    def __init__(self, check: Callable[[], object] = lambda: None, *, sign: str = "") -> None:
        self._check = check
        self._sign = sign
        self._owners: set[str] = set()
        self._epoch: int | None = None
        self._counted: dict[int, int] = {}

    def new_owner(self) -> str:
        return new_owner(self._sign)

    def record_owner(self, owner: str) -> None:
        """Record a name under which this process claims the flow, or that of a temporary owner that has ended."""
        self._owners.add(owner)

    def record_claim(self, claim: Claim) -> None:
        self._epoch = claim.epoch

    def record_counted(self, records: Iterable[LedgerRecord]) -> None:
        for record in records:
            lane = record.claim.lane
            self._counted[lane] = max(record.seq, self._counted.get(lane, -1))

    def find_uncounted(self, records: Iterable[LedgerRecord]) -> list[LedgerRecord]:
        """Return the ledger records of this process's earlier owners that were not counted.

        A task may commit while its ledger does not answer, and end before it does.
        """
        return [
            record
            for record in records
            if record.claim.owner in self._owners and record.seq > self._counted.get(record.claim.lane, -1)
        ]

    def require_claimable(self, before: Iterable[Claim] = ()) -> None:
        """Check that this process may claim the flow; `before` are the newest claims of its lanes."""
        self._check()
        newest = max(before, key=lambda claim: claim.epoch, default=None)
        if self._epoch is not None and newest and newest.epoch > self._epoch and newest.owner not in self._owners:
            raise replaced_error(newest)
