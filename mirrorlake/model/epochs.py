"""Epochs count the owners of a flow; the transaction versions of the lake's tables derive from them.

An epoch is one above all known epochs, and at least the seconds since 1970, so it also grows over a ledger that was
lost. Versions suffice for every clock up to the year 2242 and for 2**30 appends of one owner, 34 years at one a
second. An owner that outlives even that continues with the versions of the seconds that passed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from mirrorlake.errors import SafetyError

EPOCHS = 2**33
_APPENDS = 2**30
# No release is older, so a clock that starts at zero or at a mistyped date is outside.
_EARLIEST = datetime(2025, 1, 1, tzinfo=timezone.utc)
_LATEST = datetime(2100, 1, 1, tzinfo=timezone.utc)


def next_epoch(known: Iterable[int], now: datetime) -> int:
    """Return the epoch after the latest known one; impossible epochs do not count.

    Law F: the epoch of a later owner is above that of every earlier one, whatever their clocks said.
    """
    return max([int(now.timestamp()), *(epoch + 1 for epoch in known if is_possible(epoch))])


def is_possible(epoch: int) -> bool:
    return 0 <= epoch < EPOCHS - 1


def table_version(epoch: int, append: int) -> int:
    """Return the transaction version of an owner's append to a table, counted from 0; Delta stores it in 63 bits.

    Law F: a later owner's versions are above all of an earlier one's, so Delta drops the appends of a zombie.
    """
    return epoch * _APPENDS + append


def refuse_absurd_clock(now: datetime, *, flow: str) -> None:
    """Raise `SafetyError` under a clock before 2025 or after 2099."""
    if not _EARLIEST <= now < _LATEST:
        raise SafetyError(
            f"the clock of this machine says {now:%Y-%m-%d %H:%M} UTC",
            consequence=f"{flow} would take its epoch and its records' times from this clock; nothing was republished",
            remedy="set the clock, then run the same command again",
            flow=flow,
        )
