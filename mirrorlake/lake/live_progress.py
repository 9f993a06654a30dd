"""Write where a long-lived lander reads as Spark writes a checkpoint location, so that whoever reads one reads both.

`offsets/<batch>` is planned before the batch is committed to the relay, `commits/<batch>` is written after it (law F). Spark
never goes on from such a location (`CheckpointLocation.is_live`): a batch lander that comes next claims a number of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from mirrorlake.model.flow import TopicPartition
from mirrorlake.runtime import folder_of

LIVE = "live"
_METADATA = json.dumps({LIVE: True})
_DONE = 'v1\n{"nextBatchWatermarkMs":0}'


class LiveProgress:
    """Write the progress of one live lander into its checkpoint location; the newest two batches are kept."""

    def __init__(self, path: str, positions: Mapping[TopicPartition, int]) -> None:
        self._folders = {name: folder_of(f"{path}/{name}") for name in ("offsets", "commits")}
        self._positions = dict(positions)

    def plan(self, batch: int, read_to: Mapping[TopicPartition, int]) -> None:
        """Write the next offsets to read after a batch; those of partitions that did not move stay."""
        self._positions |= read_to
        document: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self._positions.items()):
            document.setdefault(tp.topic, {})[str(tp.partition)] = offset
        self._put("offsets", batch, f"v1\n{_METADATA}\n{json.dumps(document)}")

    def done(self, batch: int) -> None:
        """Note that the relay holds a batch."""
        self._put("commits", batch, _DONE)
        for folder in self._folders.values():
            folder.remove(str(batch - 2))

    def _put(self, folder: str, batch: int, text: str) -> None:
        self._folders[folder].write(str(batch), text)
