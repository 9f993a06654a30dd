"""Follow the new records of a topic, on a cluster or in the relay.

Law H: reading joins no group and commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from mirrorlake.records.landed_log import LandedLog
from mirrorlake.records.log import ClusterLog
from mirrorlake.records.match import Match
from mirrorlake.records.record import BrowsedRecord

# A relay grows by batches.
_POLL_INTERVAL_S = 1.0


class Stop(Protocol):
    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


def tail_cluster(log: ClusterLog, *, match: Match, stop: Stop) -> Iterator[BrowsedRecord]:
    positions = {partition: held.end for partition, held in log.held.items()}
    with log:
        for one in log.follow(positions, stopped=stop.is_set):
            yield from match.among([one]) if match else [one]


def tail_relay(log: LandedLog, *, again: Callable[[], LandedLog], match: Match, stop: Stop) -> Iterator[BrowsedRecord]:
    """Yield the matching records landed after the log was opened (see `Mirror.tail`); `again` opens it once more."""
    lives = {partition: held.generation for partition, held in log.held.items()}
    positions: Mapping[int, int] = {partition: held.end for partition, held in log.held.items()}
    while not stop.is_set():
        for partition, held in log.held.items():
            # A topic that was created again begins at 0, in its next generation.
            begin = positions.get(partition, 0) if lives.get(partition, held.generation) == held.generation else 0
            for one in log.read(partition, begin, held.end):
                yield from match.among([one]) if match else [one]
        positions = {partition: held.end for partition, held in log.held.items()}
        lives = {partition: held.generation for partition, held in log.held.items()}
        if stop.wait(_POLL_INTERVAL_S):
            return
        log = again()
