"""Track how far a lane has filled its remote topics, to detect a truncated log before more is written (law F).

The ledger is another topic: it may be complete when a remote topic has lost its end (an unclean election, a lost disk).
Records written after such a truncation get offsets that the offset map gives to other records.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.kafka.remotes import find_truncated_topics, truncated_topic_error
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.offset_map import MappedRange

# A truncation takes the newest records, so older ranges need not be compared.
_NEWEST = 64


def find_ends(runs: Iterable[MappedRange]) -> dict[TopicPartition, int]:
    """Return the offset after the last record of each remote partition."""
    ends: dict[TopicPartition, int] = {}
    for run in runs:
        ends[run.target] = max(ends.get(run.target, 0), run.last_downstream + 1)
    return ends


class OverwriteDetector:
    """Detect truncated logs of remote partitions that several lanes write: no two records may have one offset (law F).

    A lane knows its own records. If a truncation took another lane's last records, the lane overwrites them unnoticed; only
    an observer of all lanes can tell.
    """

    def __init__(self) -> None:
        self._lanes: dict[TopicPartition, int] = {}
        self._spans: dict[TopicPartition, list[tuple[int, int]]] = {}

    def record(self, lane: int, runs: Iterable[MappedRange]) -> dict[TopicPartition, tuple[int, int]]:
        """Record mapped ranges of a lane. Return where they overlap others: the log's end after the truncation, and before it."""
        cut: dict[TopicPartition, tuple[int, int]] = {}
        for run in runs:
            place, first, end = run.target, run.first_downstream, run.last_downstream + 1
            # Most partitions are one lane's alone.
            if self._lanes.setdefault(place, lane) == lane and place not in self._spans:
                continue
            spans = self._spans.setdefault(place, [])
            at = bisect_left(spans, (first, end))
            if any(begins < end and first < ends for begins, ends in spans[max(0, at - 1) : at + 1]):
                cut[place] = min(first, cut.get(place, (first, 0))[0]), spans[-1][1]
            insort(spans, (first, end))
            del spans[:-_NEWEST]
        return cut


class SentEnds:
    """The offsets after the last confirmed records in each remote partition of a lane."""

    def __init__(self, spec: LaneSpec) -> None:
        self._flow, self._target = spec.claim.flow, spec.target
        self._ends: dict[TopicPartition, int] = {}
        self._ids: dict[str, str] = {}
        self.take_spec(spec)

    def take_spec(self, spec: LaneSpec) -> None:
        self._ids = {one.name: one.topic_id for one in spec.remotes.values()}
        self._raise_ends(spec.ends)

    def record(self, record: LedgerRecord) -> None:
        same = {one.name for one in record.remotes.values() if self._ids.get(one.name) == one.topic_id}
        self._raise_ends(find_ends(run for run in record.runs if run.target.topic in same))

    def require_not_truncated(self, admin: ClusterAdmin) -> None:
        """Check that the target's logs hold what was sent."""
        for remote, lacking in sorted(find_truncated_topics(admin, self._ends, self._ids).items()):
            raise truncated_topic_error(self._flow, self._target, remote, self._ids[remote], lacking)

    def require_after(self, runs: Iterable[MappedRange]) -> None:
        """Check that the records just written follow those sent before."""
        for run in runs:
            sent = self._ends.get(run.target, 0)
            if run.first_downstream < sent:
                remote, lacking = run.target.topic, {run.target.partition: (run.first_downstream, sent)}
                raise truncated_topic_error(self._flow, self._target, remote, self._ids.get(remote, ""), lacking)

    def _raise_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        for place, end in ends.items():
            if self._ids.get(place.topic):
                self._ends[place] = max(self._ends.get(place, 0), end)
