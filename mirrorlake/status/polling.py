"""Call clusters in parallel, and retry the unreachable ones in the background, so that no caller waits for their time-outs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from mirrorlake.context import Context
from mirrorlake.errors import ClusterError, ClusterUnreachable
from mirrorlake.lake import Subject

# Requests in parallel.
_WORKERS = 8
# A reachable cluster answers within this; an unreachable one costs a poll no more.
_ANSWER_TIMEOUT_S = 0.5

T = TypeVar("T")


class UnreachableClusters:
    """Remember unreachable clusters and retry them in the background, for all samplers of a process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.away: dict[str, ClusterError] = {}
        self._retries: dict[str, threading.Thread] = {}

    def last_error(self, alias: str) -> ClusterError | None:
        """Return the error of an unreachable cluster, or None; wait a moment for a retry."""
        if alias not in self.away:
            return None
        retry = self._retries.get(alias)
        if retry is None or not retry.is_alive():
            # A daemon thread, because a client's time-out must not delay the end of the process.
            retry = threading.Thread(target=self._retry, args=[alias], name="ask a cluster", daemon=True)
            self._retries[alias] = retry
            retry.start()
        retry.join(_ANSWER_TIMEOUT_S)
        return self.away.get(alias)

    def _retry(self, alias: str) -> None:
        with suppress(ClusterError):
            # It may have another address when it is asked again.
            self._context.admin(alias).broker_count()
            self.away.pop(alias, None)


class PollRound:
    """Call subjects in parallel; skip a subject after its first failure."""

    def __init__(self) -> None:
        self.seconds: dict[Subject, float] = {}
        self.errors: dict[Subject, ClusterError] = {}
        # The clusters that were found unreachable in this round.
        self.unreachable: set[str] = set()

    def call(self, calls: Mapping[Subject, Callable[[], T]]) -> dict[Subject, T]:
        """Call the subjects that have not failed yet, and return their results."""
        open_ = {subject: call for subject, call in calls.items() if subject not in self.errors}
        with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="sample") as pool:
            answers = dict(zip(open_, pool.map(self._call_one, open_.items()), strict=True))
        return {subject: answer[0] for subject, answer in answers.items() if answer}

    def skip(self, subjects: Iterable[Subject], why: ClusterError) -> None:
        for subject in subjects:
            self.seconds.setdefault(subject, 0.0)
            self.errors[subject] = why

    def _call_one(self, item: tuple[Subject, Callable[[], T]]) -> tuple[T] | None:
        subject, call = item
        begun = time.monotonic()
        try:
            return (call(),)
        except ClusterError as error:
            self.errors[subject] = error
            if subject[0] == "cluster" and isinstance(error, ClusterUnreachable):
                self.unreachable.add(subject[1])
            return None
        finally:
            self.seconds[subject] = self.seconds.get(subject, 0.0) + time.monotonic() - begun
