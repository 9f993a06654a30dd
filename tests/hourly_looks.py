"""An hourly look at one partition."""

from __future__ import annotations

from datetime import datetime, timedelta

from mirrorlake.config.schema import FlowConfig
from tests.kit.lake import Row, map_row, position_rows, rows, sample_rows

FLOW = FlowConfig.model_validate({"source": "east", "target": "central", "topics": "t"})
HOURS = 60


def hourly_looks(first: datetime) -> dict[str, list[Row]]:
    """Return rows by table: a look, complete every six hours, at a record a look that the flow sends one look late."""
    looks = [(n, first + timedelta(hours=n)) for n in range(HOURS)]
    late = timedelta(hours=1)
    return {
        "relay": [row for n, at in looks for row in rows("t", 0, n, timestamp=at, landed_at=at)],
        "positions": [r for n, at in looks for r in position_rows(at, last_stable=n + 1, reached=n + 1, republished=n)],
        "samples": [row for n, at in looks for row in sample_rows(at, complete=n % 6 == 0)],
        "offset_map": [map_row([n], n, topic="t", committed_at=at + late) for n, at in looks],
    }
