"""The retry policy of requests to a Spark Connect server; importing it needs the client's packages."""

from __future__ import annotations

import time

from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

# A Spark Connect client tries a request 15 times, for ten minutes. A server without an answer for 15 s has probably ended, and its
# session too. The pauses are 0.05, 0.2, 0.8, 3.2, 5 and 5 s, with up to half a second more for each of the last three.
_MAX_RETRIES, _MAX_BACKOFF_MS = 6, 5_000
# Longer than any pause, so that consecutive failures count as one outage.
_AWAY_S = 10.0


class ConnectRetryPolicy(DefaultPolicy):  # type: ignore[misc]  # pyspark is not followed (pyproject)
    """Retry only the first request that a server does not answer, not each later one.

    A stream's clean-up after a failure calls the same server, and would double or triple the time until its process ends.
    """

    def __init__(self) -> None:
        super().__init__(max_retries=_MAX_RETRIES, max_backoff=_MAX_BACKOFF_MS)
        self.away_until = 0.0

    def to_state(self) -> RetryPolicyState:
        """Return the retry state of a new request."""
        return _Request(self)


class _Request(RetryPolicyState):  # type: ignore[misc]
    def __init__(self, policy: ConnectRetryPolicy) -> None:
        super().__init__(policy)
        self._policy = policy

    def next_attempt(self) -> int | None:
        now = time.monotonic()
        pause_ms = None if now < self._policy.away_until else super().next_attempt()
        if pause_ms is None:
            self._policy.away_until = now + _AWAY_S
        return pause_ms
