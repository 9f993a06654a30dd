"""Write where a long-lived lander reads as Spark writes a checkpoint location, so that whoever reads one reads both.

`offsets/<batch>` is planned before the batch is committed to the relay, `commits/<batch>` is written after it (law F). Spark
never goes on from such a location (`CheckpointLocation.is_live`): a batch lander that comes next claims a number of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from mirrorlake.model.flow import TopicPartition
from mirrorlake.runtime import folder_of

LIVE, LANDED = "live", "landed"
_METADATA = json.dumps({LIVE: True})


class LiveProgress:
    """Write the progress of one live lander into its checkpoint location; the newest two batches are kept.

    `landed` is the newest batch that the relay holds, with the number that it was landed under: a relay that is older, after a
    power cut or from a backup, shows that these positions are ahead of it.
    """

    def __init__(
        self, path: str, positions: Mapping[TopicPartition, int], landed: tuple[int, int] | None = None
    ) -> None:
        self._landed = landed
        self._folders = {name: folder_of(f"{path}/{name}") for name in ("offsets", "commits")}
        self._positions = dict(positions)

    def plan(self, batch: int, read_to: Mapping[TopicPartition, int]) -> None:
        """Write the next offsets to read after a batch; those of partitions that did not move stay."""
        self._positions |= read_to
        document: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self._positions.items()):
            document.setdefault(tp.topic, {})[str(tp.partition)] = offset
        self._put("offsets", batch, f"v1\n{_METADATA}\n{json.dumps(document)}")
        self._folders["offsets"].flush(str(batch))

    def done(self, batch: int, *, landed: tuple[int, int] | None = None) -> None:
        """Note that a batch was read, and under which number the relay holds its records, where it had any."""
        self._landed = landed or self._landed
        self._put("commits", batch, f"v1\n{json.dumps({'nextBatchWatermarkMs': 0, LANDED: self._landed})}")
        for folder in self._folders.values():
            folder.remove(str(batch - 2))

    def _put(self, folder: str, batch: int, text: str) -> None:
        self._folders[folder].write(str(batch), text)
