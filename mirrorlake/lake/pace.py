"""Default intervals of always-on streams: short in a folder for latency, long on an object store for the price of requests.

The numbers of requests are counted at a server (`tests/stores/test_tables.py`); prices are Amazon S3's list prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

# (in a folder, on a store): between the starts of two turns of landing, between two polls of the relay's log, and between two
# copies of a flow's ledger, each an append of 40 ms; later ledger records are read from the ledger itself.
_LANDING_S = (0.03, 2.0)
_LOOK_S = (0.01, 0.5)
_COPY_S = (5.0, 30.0)
_PUTS_A_USD, _GETS_A_USD = 200_000, 2_500_000


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests to an object store: PUT and LIST, and GET and HEAD."""

    puts: float
    gets: float

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.puts + other.puts, self.gets + other.gets)

    def each(self, seconds: float) -> Requests:
        """Return the requests an hour, if these are made every `seconds`."""
        return Requests(self.puts * 3600 / seconds, self.gets * 3600 / seconds)

    @property
    def count(self) -> int:
        """The number of requests."""
        return round(self.puts + self.gets)

    @property
    def usd(self) -> float:
        """The price in USD by Amazon's list: 5 USD a million PUT and LIST, 0.4 a million GET and HEAD."""
        return self.puts / _PUTS_A_USD + self.gets / _GETS_A_USD


# A turn that lands: a file, a check for other commits, the commit, a check after it.
TURN = Requests(puts=5, gets=6)
# A flow reads the commit and its file.
SENT_TURN = Requests(puts=0, gets=6)
# A flow polls for the next commit and for its run marker; a landing task only for the marker, each turn.
LOOK, GOES_ON = Requests(puts=0, gets=2), Requests(puts=0, gets=1)
# A few rows of a side table.
APPEND = Requests(puts=5, gets=5)
# Written at an interval: a landed mark each 30 s, and while a flow sends a copy of its ledger, an append with a transaction,
# which reads the commits since the table's last log checkpoint: 0 to 100 of them.
_MARK, _MARK_S = Requests(puts=1, gets=0), 30.0
_COPY = APPEND + Requests(puts=0, gets=50)


def landing_requests(pace_s: float, *, busy: bool) -> Requests:
    """Return the requests an hour of a landing task: with records in every turn, or without any."""
    turn = GOES_ON + TURN if busy else GOES_ON
    return turn.each(pace_s) + _MARK.each(_MARK_S)


def sending_requests(look_s: float, landing_s: float, *, busy: bool) -> Requests:
    """Return the requests an hour of a sending task whose source lands every `landing_s` seconds."""
    looks = LOOK.each(look_s)
    return looks + SENT_TURN.each(landing_s) + _COPY.each(_COPY_S[1]) if busy else looks


def sampling_requests(every_s: float) -> Requests:
    """Return the requests an hour of sampling all positions; a sample is two appends."""
    return (APPEND + APPEND).each(every_s) if every_s else Requests(0, 0)


def landing_interval_s(path: str, trigger: timedelta) -> float:
    """Return the seconds between the starts of two turns of landing into a relay: the trigger if one is set.

    Example:
        >>> landing_interval_s("/lake", timedelta(0)), landing_interval_s("s3a://lake", timedelta(0))
        (0.03, 2.0)
        >>> landing_interval_s("s3a://lake", timedelta(seconds=5))
        5.0
    """
    return _interval_s(path, trigger, _LANDING_S)


def poll_interval_s(path: str, trigger: timedelta) -> float:
    """Return the seconds between two polls of a flow for the next commit of a relay: the trigger if one is set.

    Example:
        >>> poll_interval_s("/lake", timedelta(0)), poll_interval_s("s3a://lake", timedelta(0))
        (0.01, 0.5)
    """
    return _interval_s(path, trigger, _LOOK_S)


def copy_interval_s(path: str) -> float:
    """Return the seconds between two copies of a flow's ledger to the lake.

    Example:
        >>> copy_interval_s("/lake"), copy_interval_s("s3a://lake")
        (5.0, 30.0)
    """
    return _interval_s(path, timedelta(0), _COPY_S)


def _interval_s(path: str, trigger: timedelta, defaults: tuple[float, float]) -> float:
    return trigger.total_seconds() or defaults[":/" in path]
