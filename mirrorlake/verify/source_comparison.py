"""Compare a target with its sources directly, while these may delete records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.flow import SourcePartition
from mirrorlake.verify.direct import MAX_PARTITIONS, SourceFeed, SourceMoved
from mirrorlake.verify.offset_ranges import UNBOUNDED, OffsetRange
from mirrorlake.verify.runners import RunnerChoice
from mirrorlake.verify.scope import Scope
from mirrorlake.verify.target_hop import compare_with_target
from mirrorlake.verify.target_side import FeedKey, TargetResult, TargetSide

_MAX_ATTEMPTS = 3


def compare_with_sources(
    side: TargetSide,
    directly: Mapping[FeedKey, SourceFeed],
    admin: ClusterAdmin,
    scope: Scope,
    *,
    tell: Callable[[int], None],
    read_available: Callable[[], Mapping[tuple[str, SourcePartition], OffsetRange]],
) -> TargetResult:
    """Compare a target with its sources; start again without records that they delete meanwhile.

    Law E: a record that was deleted before it was read is not compared, and never called equal. `read_available` returns the
    ranges that sources still hold, by alias and source partition.

    Raises:
        ClusterError: a cluster does not answer, or deletes records faster than they are read.
    """
    for attempt in count(1):
        direct = replace(side, due={key: feed.due for key, feed in directly.items()}, directly=directly)
        try:
            found = compare_with_target(direct, admin, scope, RunnerChoice(max_partitions=MAX_PARTITIONS), tell)
            for feed in directly.values():
                feed.rest()
        except SourceMoved as moved:
            if attempt == _MAX_ATTEMPTS:
                raise ClusterError(
                    f"records leave their source faster than they are read: {moved}",
                    consequence="nothing of this verification was written down",
                    remedy="run `mirrorlake verify` again",
                ) from moved
            held = read_available()
            for feed in directly.values():
                feed.narrow(held.get((feed.alias, feed.source), OffsetRange(UNBOUNDED, UNBOUNDED)))
        else:
            return found
    raise AssertionError
