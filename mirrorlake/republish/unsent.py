"""Find the first record that a flow has still to send, by the statistics of the relay's files.

Offsets before it have no record in the relay: markers of transactions, records that were erased, that expired, or that the source
lost before they were landed. They will never be sent, so nobody waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition

Positions = Mapping[SourcePartition, int]


def first_unsent(lake: Lake, flow: FlowConfig, sent: Positions, landed: Positions) -> dict[SourcePartition, int]:
    """Return, for each partition of a flow that is not sent up to `landed`, the first offset at which a record may wait.

    It is that of `landed` if none waits, and that of `sent` where only Spark reaches the relay.
    """
    late = {
        source: sent.get(source, 0)
        for source, position in sorted(landed.items())
        if flow.carries(source.topic) and sent.get(source, 0) < position
    }
    log = lake.relay_log(flow.source) if late else None
    if log is None:
        return late
    found = {source: landed[source] for source in late}
    for file in log.files(late, others=False):
        if file.source in late and file.last_offset >= late[file.source]:
            found[file.source] = min(found[file.source], max(file.first_offset, late[file.source]))
    return found


def find_unsent(lake: Lake, flow: FlowConfig, sent: Positions, landed: Positions) -> dict[SourcePartition, int]:
    """Return the position in `sent` of each partition of a flow whose relay has records from there up to `landed`.

    Where only Spark reaches the relay, all partitions with a position before `landed` are returned.
    """
    first = first_unsent(lake, flow, sent, landed)
    return {source: sent.get(source, 0) for source, offset in first.items() if offset < landed[source]}


class _Known(NamedTuple):
    position: int
    landed: int
    first: int

    def holds_for(self, position: int, landed: int) -> bool:
        return position == self.position and (self.first < self.landed or landed == self.landed)


class UnsentPositions:
    """The republished positions of flows, past offsets without a record; the relay's files are listed for positions that rest.

    A position that moved since the last call is taken as it is: listing the files at each sample would cost more than the sample.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._last: dict[str, Positions] = {}
        self._known: dict[str, dict[SourcePartition, _Known]] = {}

    def forget(self) -> None:
        """Forget what was found: records may have been erased meanwhile."""
        self._known.clear()

    def read(self, flow: FlowConfig, sent: Positions, landed: Positions) -> dict[SourcePartition, int]:
        """Return each position in `sent`, or that of the first record at or past it; of `landed` if none is."""
        last, known = self._last.get(flow.name, sent), self._known.setdefault(flow.name, {})
        late = {source: end for source, end in landed.items() if sent.get(source, 0) < end}
        asked = {
            source: end
            for source, end in late.items()
            if last.get(source) == sent.get(source)
            and not (source in known and known[source].holds_for(sent.get(source, 0), end))
        }
        for source, first in first_unsent(self._lake, flow, sent, asked).items():
            known[source] = _Known(sent.get(source, 0), landed[source], first)
        self._last[flow.name] = sent
        return {**sent} | {
            source: known[source].first
            for source, end in late.items()
            # Of a partition that the flow has sent nothing of, the caller knows the begin.
            if source in known
            and known[source].holds_for(sent.get(source, 0), end)
            and known[source].first > known[source].position
        }
