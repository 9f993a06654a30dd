"""Build and split rows of the side tables that several packages use."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.gaps import Gap

Row = dict[str, Any]


def position_row(
    cluster: str,
    source: SourcePartition,
    kind: str,
    position: int | None,
    at: datetime,
    *,
    flow: str | None = None,
    group: str | None = None,
    record_timestamp: datetime | None = None,
    landed_at: datetime | None = None,
) -> Row:
    return {
        "source": cluster,
        "flow": flow,
        "topic": source.topic,
        "generation": source.generation,
        "partition": source.partition,
        "kind": kind,
        "group_id": group,
        "position": position,
        "record_timestamp": record_timestamp,
        "landed_at": landed_at,
        "observed_at": at,
    }


def gap_row(cluster: str, gap: Gap, at: datetime) -> Row:
    return {
        "source": cluster,
        "topic": gap.source.topic,
        "generation": gap.source.generation,
        "partition": gap.source.partition,
        "first_offset": gap.first_offset,
        "last_offset": gap.last_offset,
        "missing": gap.missing,
        "kind": gap.kind,
        "detected_at": at,
    }
