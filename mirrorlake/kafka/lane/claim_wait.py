"""The time that a fenced lane leaves to its fencer: the newer owner wins, once it has claimed the lane."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from mirrorlake.kafka.lane.faults import RestartProducer

# A claimant first reads the lake: half a second in a small one, some seconds in one of a million mapped ranges.
_MIN_WAIT_S, _MAX_WAIT_S, _POLL_INTERVAL_S = 5.0, 60.0, 0.5
# A claimant that failed fences again soon; a fence after this time is another claimant's.
_SAME_CLAIMANT_S = 300.0


class ClaimWait:
    """Count the fences of one lane, and wait for a claim before the lane is fenced again.

    The wait doubles with each fence in a row, so that a slow claimant can finish. A coordinator that aborts an old
    transaction looks the same.
    """

    def __init__(self) -> None:
        self._is_fenced = False
        self._fenced_at = float("-inf")
        self._wait_s = 0.0

    def record_fence(self) -> None:
        now = time.monotonic()
        is_first = now > self._fenced_at + _SAME_CLAIMANT_S
        self._wait_s = _MIN_WAIT_S if is_first else min(_MAX_WAIT_S, 2 * self._wait_s)
        self._is_fenced, self._fenced_at = True, now

    def record_commit(self) -> None:
        """Record that this producer has committed, so that nobody else holds the lane."""
        self._is_fenced = False

    def wait(self, check: Callable[[], object]) -> None:
        """Wait while another producer may claim the lane; `check` raises once another owner has claimed it."""
        until = time.monotonic() + (self._wait_s if self._is_fenced else 0.0)
        while time.monotonic() < until:
            with suppress(RestartProducer):
                check()
            time.sleep(_POLL_INTERVAL_S)
